"""A process that reads a store, and remembers what it has read. Run as a script, with an address.

For each line on its input, the id of a thread, it says what it shows of it: one line of JSON.
"""

from __future__ import annotations

import json
import sys

import clew


def shown(store: clew.Store, thread: str, word: str) -> dict[str, object]:
    """Everything that may have been remembered of a thread."""
    at = store.get(thread)
    return {
        "context": word in json.dumps(at.context("plain").messages),
        "path": [entry.id for entry in at.path() if word.encode() in entry.data],
        "feed": [one.id for one in at.read() if word.encode() in getattr(one, "data", b"")],
        "search": store.search(word).total,
        "erased": [entry.id for entry in at.path() if entry.erased_at is not None],
    }


def main(address: str, word: str) -> None:
    with clew.open(address) as store:
        for line in sys.stdin:
            print(json.dumps(shown(store, line.strip(), word)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
