"""Snapshots of files, and plans to change files, as the command line names and draws them."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence

from clew.cli import _exits
from clew.cli._arguments import add_consent, add_object, add_thread, consent
from clew.cli._exits import UsageError
from clew.cli._json import json_value
from clew.cli._screen import Screen
from clew.cli._text import plural, preview, size
from clew.core.errors import NotFound
from clew.snapshots.model import SAFETY, Plan, Rewound, Snapshot
from clew.snapshots.preflight import refuse
from clew.thread import Thread

SHORT_ID = 14
LEFT_OUT_MAX = 20  # that are named, of what a snapshot left out
STEPS_MAX = 40
PATHS_MAX = 10

_REASONS = {
    "too_large": "too large",
    "over_quota": "too much for one snapshot",
    "unreadable": "cannot be read",
    "changing": "changed while it was read",
    "special": "no file (a pipe, a socket, a device)",
    "collides": "differs from another name only in case or Unicode form",
    "name": "a name that could not be restored",
}
_STYLES = {"create": "green", "overwrite": "yellow", "delete": "red", "mode": "magenta"}
_DONE = {"create": "created", "overwrite": "overwritten", "delete": "deleted", "mode": "modes set"}


def add_snapshot(parser: argparse.ArgumentParser, *names: str, help: str) -> None:
    parser.add_argument(*names, metavar="SNAPSHOT", help=f"{help}; id, or its first letters")


def find(thread: Thread, prefix: str | None) -> Snapshot:
    """The snapshot with this id, or the only one whose id begins so.

    None asks for the newest that the user took: not one that a rewind took for safety.
    """
    snapshots = thread.snapshots.list()
    if prefix is None:
        meant = [one for one in snapshots if one.label not in SAFETY.values()]
        if not meant:
            raise UsageError("this thread has no snapshots yet; clew snapshot take makes one")
        return thread.snapshots.get(meant[0].id)
    found = [snapshot.id for snapshot in snapshots if snapshot.id.startswith(prefix)]
    if len(found) > 1 and prefix not in found:
        raise UsageError(f"{prefix!r} begins the ids of {len(found)} snapshots")
    if not found:
        raise NotFound("snapshot", prefix)
    return thread.snapshots.get(prefix if prefix in found else found[0])


def short_ids(snapshots: list[Snapshot]) -> dict[str, str]:
    """Of each id as many letters as tell it from the others."""
    # Ids of one second share their first letters, so a fixed length would not do.
    size = SHORT_ID
    ids = [snapshot.id for snapshot in snapshots]
    while len({id[:size] for id in ids}) < len(ids):
        size += 1
    return {id: id[:size] for id in ids}


def draw_left_out(screen: Screen, snapshot: Snapshot) -> None:
    """What a snapshot does not have: counted, and the first of them named."""
    if not snapshot.left_out_count:
        return
    counts = Counter[str](item.reason for item in snapshot.left_out)
    words = ", ".join(f"{n:,} {_REASONS.get(reason, reason)}" for reason, n in counts.items())
    screen.line((f"left out: {words}", "yellow"), fit=False)
    for item in snapshot.left_out[:LEFT_OUT_MAX]:
        told = f" ({size(item.size)})" if item.size else ""
        screen.line(f"  {item.path}{told}: {_REASONS.get(item.reason, item.reason)}", fit=False)
    if snapshot.left_out_count > LEFT_OUT_MAX:
        screen.line((f"  … and {snapshot.left_out_count - LEFT_OUT_MAX:,} more", "dim"))


# --- plans: what a rewind or restore would do -----------------------------------------------


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
    _named(
        screen, "changed since the last snapshot, and not by this thread", plan.foreign, "bold red"
    )
    _named(screen, "in the way, and in no snapshot", plan.blocked, "bold red")


def _named(screen: Screen, what: str, paths: Sequence[str], style: str) -> None:
    if not paths:
        return
    more = f" and {len(paths) - PATHS_MAX:,} more" if len(paths) > PATHS_MAX else ""
    screen.line((f"  {what}: {', '.join(paths[:PATHS_MAX])}{more}", style), fit=False)


def counts(plan: Plan) -> str:
    """What was done, in numbers."""
    found = Counter[str](step.act for step in plan.steps)
    words = [f"{found[act]:,} {word}" for act, word in _DONE.items() if found[act]]
    return ", ".join(words) or "no file changed"


# --- undo and redo: one way, there and back -------------------------------------------------


def add_take_back(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("--root", metavar="FOLDER", help="where the folder is now, if it was moved")
    add_consent(parser)
    add_object(parser)


def take_back(
    options: argparse.Namespace,
    screen: Screen,
    thread: Thread,
    call: Callable[..., Rewound],
    words: tuple[str, str, str],
) -> int:
    """Say what an undo or a redo would do, ask, and do it."""
    verb, what, past = words
    done = call(thread, force=options.force, root=options.root, dry_run=True)
    if not options.json:
        screen.line((verb, "bold"), f" {what}")
        _draw_leaf(screen, thread, done)
        if done.files is not None:
            draw(screen, done.files.plan)
    if not options.dry_run:
        if done.files is not None:
            refuse(done.files.plan, force=options.force)
        if not consent(screen, options, f"{verb} it?"):
            return _exits.OK
        with screen.bar(verb) as bar:
            done = call(thread, force=options.force, root=options.root, progress=bar)
    if options.json:
        screen.json(json_value(done))
    elif not options.dry_run:
        files = "" if done.files is None else f": {counts(done.files.plan)}"
        screen.line((past, "bold green"), files)
    return _exits.OK


def _draw_leaf(screen: Screen, thread: Thread, planned: Rewound) -> None:
    if planned.moved and planned.leaf is None:
        screen.line(("conversation", "bold"), " before the root")
    elif planned.moved and planned.leaf is not None:
        leaf = thread.get(planned.leaf)
        screen.line(("conversation", "bold"), f" to entry {leaf.seq}: ", preview(leaf))
