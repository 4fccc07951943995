"""Make a thread, and the store if it is not there; prints the thread's id."""

from __future__ import annotations

import argparse

import clew
from clew.cli import _exits
from clew.cli._arguments import add_object, add_store, add_workspace
from clew.cli._json import thread_value
from clew.cli._screen import Screen
from clew.cli._stores import named, resolve


def arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument("--title", metavar="TEXT", help="what it is about")
    parser.add_argument(
        "--tag", action="append", default=[], metavar="T", help="a tag of it; repeatable"
    )
    add_workspace(parser, "the folder or project it belongs to")
    parser.add_argument("--agent", metavar="A", help="the agent it belongs to")
    parser.add_argument("--parent", metavar="THREAD", help="the thread that it works for")
    parser.add_argument("--id", metavar="ID", help="default: a fresh one that sorts by time")
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with clew.open(options.store, **named(options.namespace)) as store:
        thread = store.create(
            options.id,
            title=options.title,
            tags=options.tag,
            workspace=options.workspace,
            parent=options.parent and resolve(store, options.parent).id,
            facts={} if options.agent is None else {"agent": options.agent},
        )
        if options.json:
            screen.json(thread_value(thread.info))
        else:
            screen.line(thread.id, fit=False)
    return _exits.OK
