"""Look at a store in a browser: threads, their trees, files and contexts, live.

The viewer listens on this machine only. The link that it opens has a token, and without that
token nothing is shown. While it runs it also reads the store once a week, at a hundredth of a core,
and the page Health says what it found; and packs what is cold, as clew pack does, at another
hundredth, unless it is a store of files. Ctrl-C ends it. Needs the extra: pip install
'clew[viewer]'
"""

from __future__ import annotations

import argparse
import webbrowser
from contextlib import nullcontext
from types import ModuleType

from clew.cli import _exits
from clew.cli._arguments import add_store
from clew.cli._screen import Screen
from clew.cli._stores import existing, named, open_to_look
from clew.core.errors import Unsupported
from clew.store import Store
from clew.upkeep.pack import Packer
from clew.upkeep.scrub import Scrubber


def arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    add_server(parser)


def add_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=port, default=0, metavar="N", help="default: any free one")
    parser.add_argument(
        "--host", default="127.0.0.1", help="127.0.0.1, localhost or ::1; no other is allowed"
    )
    parser.add_argument("--read-only", action="store_true", help="change nothing, whatever happens")
    parser.add_argument("--no-open", action="store_true", help="only print the link")
    parser.add_argument(
        "--no-scrub", action="store_true", help="do not read the store in the background"
    )
    parser.add_argument(
        "--no-pack", action="store_true", help="do not pack the store in the background"
    )


def run(options: argparse.Namespace, screen: Screen) -> int:
    server()
    with opened(options) as store:
        return serve(options, screen, store, "/", {})


def port(text: str) -> int:
    if not text.isdecimal() or not 0 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


def server() -> ModuleType:
    """The viewer's own parts, or the hint how to get them."""
    try:
        from clew.server import listen
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "clew":
            raise
        hint = f"the viewer needs {error.name}: pip install 'clew[viewer]'"
        raise Unsupported(hint) from None
    return listen


def opened(options: argparse.Namespace) -> Store:
    if not options.read_only:
        return open_to_look(options.store, options.namespace)
    import clew

    with existing(options.store):
        return clew.open(options.store, readonly=True, **named(options.namespace))


def serve(
    options: argparse.Namespace, screen: Screen, store: Store, place: str, query: dict[str, str]
) -> int:
    """Serve until Ctrl-C, with a page of the viewer opened in the browser."""
    listen = server()
    listener = listen.bind(options.host, options.port)

    def ready(link: str) -> None:
        screen.line("Clew shows ", (store.properties.place, "bold"))
        screen.line(link)
        screen.line(("Ctrl-C ends it.", "dim"))
        screen.flush()
        if not options.no_open:
            webbrowser.open(link)

    with (
        nullcontext() if options.no_scrub else Scrubber(options.store),
        nullcontext() if options.no_pack or store.properties.read_only else Packer(options.store),
    ):
        listen.serve(store, listener, place=place, query=query, ready=ready)
    screen.line("ended")
    return _exits.OK
