"""Prove that nothing of what was purged or erased is there; else name where, and exit with 1.

Takes the id of a thread or of an entry, or a file with a receipt, as clew purge --json and clew
erase --json print it. Reads every thread of the namespace, and looks for the ids of threads in the
bytes of the store's files and of the caches.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from clew.cli import _exits
from clew.cli._arguments import add_namespace, add_object, add_store_option
from clew.cli._json import json_value
from clew.cli._screen import Screen
from clew.cli._stores import open_to_look
from clew.core.errors import InvalidInput
from clew.upkeep.proof import prove, read_receipt


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", nargs="?", metavar="STORE", help="default: your own store")
    parser.add_argument("what", metavar="ID", help="of a thread or an entry; or a receipt's file")
    add_store_option(parser)
    add_namespace(parser)
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    path = Path(options.what)
    if path.suffix == ".json" and not path.is_file():
        # As an id it would be found nowhere, and that would be told as a proof.
        raise InvalidInput("receipt", f"there is no file {options.what!r}")
    what = read_receipt(path.read_bytes()) if path.is_file() else options.what
    with open_to_look(options.store, options.namespace) as store, screen.bar("erased") as bar:
        proof = prove(store, what, bar)
    code = _exits.OK if proof.clean else _exits.DAMAGE
    if options.json:
        screen.json({"clean": proof.clean} | json_value(proof))
        return code
    for trace in proof.traces:
        where = " ".join(part for part in (trace.thread, trace.entry) if part)
        screen.line((trace.place, "bold red"), f": {trace.text}", f" ({where})" if where else "")
    if proof.receipt_of is not None:
        screen.line(f"the receipt is of another store: {proof.receipt_of}", fit=False)
    for place in proof.unseen:
        screen.line(f"not looked at: {place}", fit=False)
    if proof.clean:
        screen.line(("nothing of it is here", "bold green"), f": {', '.join(proof.looked)}")
    return code
