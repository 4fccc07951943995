"""Open one thread in a browser, on this machine.

THREAD is an id, or as many of its first letters as tell it from all others. The rest is as with
`clew serve`: a link with a token, this machine only, until Ctrl-C.
"""

from __future__ import annotations

import argparse

from clew.cli._arguments import add_thread
from clew.cli._screen import Screen
from clew.cli._stores import refuse_lone_store, resolve
from clew.cli.serve import add_server, opened, serve, server


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    add_server(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    server()
    refuse_lone_store("view", options)
    with opened(options) as store:
        thread = resolve(store, options.thread, deleted=True)
        return serve(options, screen, store, "/thread", {"id": thread.id})
