"""One thread as a transcript: who said what, each tool call with its result as one block.

THREAD is an id, as many of its first letters as tell it from all others, or @last, @2, …: see
clew help ids. Deleted threads are shown, too. On a terminal thinking is folded and long results
are shortened; in a pipe no message is cut. What is no message, such as an agent's own records, is
told in a line. --full shows all of it whole, and clew tree has the other branches.

--context is what the provider would get, in the thread's own format or another one: every message,
what had to be repaired on the way, and where the tokens are (an estimate). With --json, or in a
pipe, it is the very request: system, messages and tools as JSON.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from clew.cli import _exits
from clew.cli._arguments import add_json, add_thread
from clew.cli._json import json_value, record_value
from clew.cli._screen import Part, Screen
from clew.cli._stores import find_entry, opened_thread
from clew.cli._text import clean, one_line, partial_of, plural, text_of
from clew.cli._transcript import Transcript
from clew.cli.tree import STYLES, draw_head
from clew.core.codec import render
from clew.core.model import Entry
from clew.thread import Thread

BAR_CELLS = 20
_TAKE_A_WORD = ("--store", "--namespace", "--at")
FORMATS = ("anthropic", "openai-chat", "openai-responses", "gemini", "plain")


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("--full", action="store_true", help="fold and shorten nothing")
    parser.add_argument("--at", metavar="ENTRY", help="the path to this entry; default: the leaf")
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument(
        "--path", action="store_true", help="entry by entry, with the full text of each"
    )
    ways.add_argument(
        "--context",
        nargs="?",
        const="",
        metavar="FORMAT",
        help=f"what the provider would get: {', '.join(FORMATS)}",
    )
    ways.add_argument(
        "--raw", action="store_true", help="the bodies as they are stored, one a line"
    )
    add_json(parser, "each entry of the path (with --context: the request)")


def prepared(rest: Sequence[str]) -> list[str]:
    """`--context THREAD` names no format: it is the thread, if nothing else could be."""
    words = list(rest)
    if "--context" in words[:-1]:
        place = words.index("--context")
        others = words[:place] + words[place + 2 :]
        pairs = zip(["", *others], others, strict=False)
        named = [word for before, word in pairs if word[:1] != "-" and before not in _TAKE_A_WORD]
        if words[place + 1] not in FORMATS and not named:
            words[place] = "--context="
    return words


def run(options: argparse.Namespace, screen: Screen) -> int:
    if options.context and options.context not in FORMATS:
        known = ", ".join(FORMATS)
        raise _exits.UsageError(f"{options.context!r} is no format: --context takes {known}")
    with opened_thread("show", options, look=True, deleted=True) as thread, screen.paged():
        leaf = thread.leaf if options.at is None else find_entry(thread, options.at).id
        if options.context is not None:
            _show_context(screen, thread, leaf, options)
            return _exits.OK
        path = [] if leaf is None else thread.path(leaf)
        if options.raw:
            for entry in path:
                screen.raw(entry.data)
        elif options.json:
            for entry in path:
                screen.json(record_value(entry))
        elif options.path:
            draw_path(screen, thread, path)
        else:
            draw_transcript(screen, thread, path, full=options.full)
    return _exits.OK


def draw_transcript(screen: Screen, thread: Thread, path: list[Entry], *, full: bool) -> None:
    info = thread.info
    draw_head(screen, thread.store, info)
    if not path:
        screen.line(("nothing is said yet", "dim"))
    Transcript(screen, path, full=full, labels=info.labels).draw(path)


def draw_path(screen: Screen, thread: Thread, path: list[Entry]) -> None:
    info = thread.info
    draw_head(screen, thread.store, info)
    for entry in path:
        label, why = info.labels.get(entry.id), partial_of(entry)
        screen.line()
        screen.line(
            (f"{entry.seq:>4} ", "dim"),
            (one_line(entry.kind), f"bold {STYLES.get(entry.kind, '')}"),
            (f"  {entry.time:%Y-%m-%d %H:%M:%S}", "dim"),
            ("" if label is None else f"  [label {one_line(label)}]", "magenta"),
            ("" if why is None else f"  [partial: {one_line(why)}]", "yellow"),
        )
        screen.text(text_of(entry), indent="     ")


# --- what the provider would get ------------------------------------------------------------


def _show_context(
    screen: Screen, thread: Thread, leaf: str | None, options: argparse.Namespace
) -> None:
    context = thread.context(options.context or None, leaf=leaf, segments=True)
    report = context.report
    if options.json or screen.width is None:
        request = {
            "format": context.format,
            "system": context.system,
            "messages": context.messages,
            "tools": context.tools,
            "model": context.model,
            "next": context.next,
            "repairs": [json_value(repair) for repair in report.repairs],
            "tokens": report.tokens,
            "compaction": report.compaction,
        }
        screen.json(request)
        return
    screen.line(
        (context.format, "bold"),
        f": {plural(len(context.messages), 'message')}, about {report.tokens:,} tokens; ",
        f"next: {context.next}",
    )
    if report.compaction is not None:
        screen.line((f"a summary stands for what came before: {report.compaction}", "magenta"))
    for repair in report.repairs:
        place = "" if repair.entry is None else f" (entry {repair.entry})"
        screen.line(("repaired", "bold yellow"), f": {repair.message}{place}", fit=False)
    costs, repaired = _costs(context), {repair.entry for repair in report.repairs}
    if context.system is not None:
        _draw_message(screen, "system", context.system, 0, 0, note="", full=options.full)
    for index, message in enumerate(context.messages):
        entries = {one.entry_id for one in context.segments if one.message_index == index}
        _draw_message(
            screen,
            _role(message),
            message,
            costs.get(index, 0),
            max(report.tokens, 1),
            note="repaired" if entries & repaired else "" if entries else "in no entry",
            full=options.full,
        )


def _costs(context: Any) -> dict[int, int]:
    """The tokens of each message, as far as entries are known for it."""
    found: dict[int, int] = {}
    for segment in context.segments:
        if segment.message_index is not None:
            known = found.get(segment.message_index, 0)
            found[segment.message_index] = known + segment.token_estimate
    return found


def _role(message: Any) -> str:
    if not isinstance(message, dict):
        return "message"
    return str(message.get("role") or message.get("type") or "message")


def _draw_message(
    screen: Screen, role: str, value: Any, tokens: int, total: int, *, note: str, full: bool
) -> None:
    head: list[Part] = [(f"{one_line(role):<10}", "bold")]
    if total:
        filled = -(-tokens * BAR_CELLS // total)
        head += [("█" * filled, "cyan"), ("░" * (BAR_CELLS - filled), "dim")]
        head.append((f" {tokens:>7,} ({tokens * 100 // total:>2} %)", "dim"))
    head.append((f"  {note}" if note else "", "bold yellow"))
    screen.line(*head)
    text = clean(render(value))
    screen.line("  ", (text, "dim"), fit=not full)
