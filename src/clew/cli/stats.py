"""How much a store holds: threads, entries, bytes; and whose threads they are."""

from __future__ import annotations

import argparse
from collections import Counter

from clew.cli import _exits
from clew.cli._arguments import add_object, add_store
from clew.cli._json import json_value
from clew.cli._screen import Screen
from clew.cli._stores import open_to_look
from clew.cli._text import ago, cells, one_line, pad, plural, size
from clew.core.model import rfc3339

SHOWN_MAX = 10


def arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with open_to_look(options.store, options.namespace) as store:
        held, now, place = store.stats(), store.now(), store.properties.place
        groups: dict[str, Counter[str]] = {"agent": Counter(), "workspace": Counter()}
        times = []
        with screen.bar("stats") as bar:
            for done, info in enumerate(store.threads(archived=None), 1):
                bar(done, held.threads)
                groups["agent"][info.agent or ""] += 1
                groups["workspace"][info.workspace or ""] += 1
                times.append(info.updated_at)
    last = max(times, default=None)
    if options.json:
        counts = {name: dict(found.most_common()) for name, found in groups.items()}
        used = None if last is None else rfc3339(last)
        screen.json({"place": place} | json_value(held) | {"last_used_at": used, **counts})
        return _exits.OK
    screen.line(place, fit=False)
    deleted = f", and {held.deleted:,} deleted" if held.deleted else ""
    screen.line((plural(held.threads, "thread"), "bold"), deleted)
    screen.line(f"{plural(held.entries, 'entry')}, {plural(held.records, 'record')}")
    screen.line(f"{plural(held.blobs, 'blob')} of {size(held.blob_bytes)}")
    screen.line(f"{size(held.stored_bytes)} on disk")
    if last is not None:
        screen.line(f"last used {ago(last, now)}")
    for name, found in groups.items():
        _draw(screen, name, found)
    return _exits.OK


def _draw(screen: Screen, name: str, found: Counter[str]) -> None:
    """The largest groups, each with a bar; none if no thread says what it belongs to."""
    if set(found) <= {""}:
        return
    screen.line()
    screen.line((f"by {name}", "bold"))
    shown = found.most_common(SHOWN_MAX)
    names = {key: one_line(key) or "(none)" for key, _ in shown}
    most = 40 if screen.width is None else max(10, screen.width - 40)
    width = min(max(map(cells, names.values())), most)
    for key, number in shown:
        filled = "█" * max(1, number * 20 // shown[0][1])
        screen.line("  ", pad(names[key], width), f"  {number:>6,}  ", (filled, "cyan"))
    if len(found) > SHOWN_MAX:
        screen.line((f"  … and {len(found) - SHOWN_MAX:,} more; --json has all of them", "dim"))
