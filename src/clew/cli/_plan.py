"""A plan as people read it before files are changed, and the question whether they shall be."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from clew.cli._exits import UsageError
from clew.cli._render import Screen
from clew.cli._text import plural
from clew.snapshots.model import Plan, Restored, Rewound

STEPS_MAX = 40
_NAMED_MAX = 10
_STYLES = {"create": "green", "overwrite": "yellow", "delete": "red", "mode": "magenta"}
_DONE = {"create": "created", "overwrite": "overwritten", "delete": "deleted", "mode": "modes set"}


def draw(screen: Screen, plan: Plan) -> None:
    """Every step, or the first of many, and what stands in the way or stays."""
    screen.line(("files", "bold"), f" of {plan.root}", fit=False)
    for step in plan.steps[:STEPS_MAX]:
        slash = "/" if step.kind == "folder" else ""
        screen.line("  ", (f"{step.act:<9}", _STYLES[step.act]), f" {step.path}{slash}", fit=False)
    if len(plan.steps) > STEPS_MAX:
        screen.line((f"  … and {len(plan.steps) - STEPS_MAX:,} more", "dim"))
    screen.line((f"  {plural(plan.unchanged, 'file')} unchanged", "dim"))
    _named(screen, "in no snapshot, they stay", plan.kept, "dim")
    _named(screen, "changed since the last snapshot, by somebody else", plan.foreign, "bold red")
    _named(screen, "in the way, and in no snapshot", plan.blocked, "bold red")


def _named(screen: Screen, what: str, paths: Sequence[str], style: str) -> None:
    if not paths:
        return
    more = f" and {len(paths) - _NAMED_MAX:,} more" if len(paths) > _NAMED_MAX else ""
    screen.line((f"  {what}: {', '.join(paths[:_NAMED_MAX])}{more}", style), fit=False)


def counts(plan: Plan) -> str:
    """What was done, in numbers."""
    found = Counter[str](step.act for step in plan.steps)
    words = [f"{found[act]:,} {word}" for act, word in _DONE.items() if found[act]]
    return ", ".join(words) or "no file changed"


def consent(
    screen: Screen, options: argparse.Namespace, question: str, what: str = "changes files"
) -> bool:
    """Whether to go on: --yes, or a yes at the terminal. Nobody to ask is a mistake."""
    if options.yes:
        return True
    said = None if getattr(options, "json", False) else screen.ask(question)
    if said is None:
        raise UsageError(f"this {what}: look at it with --dry-run, do it with --yes")
    if not said:
        screen.line("nothing was changed")
    return said


def value(done: Rewound | Restored) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(done)
    return fields
