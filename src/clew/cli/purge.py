"""Remove one thread for good, deleted before or not. This cannot be undone; it asks first.

Entries that a fork shares stay for the fork. Sub-agents of it stay, without the thread that they
worked for. What is printed with --json has a receipt; clew erased takes it. clew cleanup does it
for all threads of an age.
"""

from __future__ import annotations

import argparse

from clew.cli import _exits
from clew.cli._arguments import add_asking, add_object, add_thread, consent
from clew.cli._json import json_value, thread_value
from clew.cli._screen import Screen
from clew.cli._stores import opened_thread
from clew.cli._text import plural, remainders
from clew.cli.list import draw_threads


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    add_asking(parser)
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("purge", options, look=options.dry_run, deleted=True) as thread:
        info = thread.info
        if not options.json:
            draw_threads(screen, thread.store, [info])
        if options.dry_run:
            if options.json:
                screen.json({"dry_run": True, "thread": thread_value(info)})
            return _exits.OK
        question = f"remove this thread with {plural(info.seq, 'record')} for good?"
        if not consent(screen, options, question, "removes a thread for good"):
            return _exits.OK
        done = thread.store.purge(thread.id)
    if options.json:
        screen.json({"dry_run": False} | json_value(done))
        return _exits.OK
    kept = f"; {plural(done.kept, 'record')} kept for forks" if done.kept else ""
    screen.line(("removed", "bold green"), f": {plural(done.records, 'record')}{kept}")
    for line in remainders(done.receipt):
        screen.line(line, fit=False)
    if done.children:
        count = plural(len(done.children), "thread")
        screen.line(f"{count} worked for it: {', '.join(done.children)}", fit=False)
    return _exits.OK
