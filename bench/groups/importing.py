"""import: what `import clew` takes in a fresh interpreter, against what it is made of.

And what a command takes from the first byte to the last, against an interpreter that does nothing
but load the same two libraries.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from time import perf_counter

import clew
from bench.figures import Figure, milliseconds, ratio
from bench.timing import in_rounds
from bench.workshop import Workshop

_ROUNDS = 25
_THREADS = 20
_PROGRAM = "from time import perf_counter as p; b = p(); import {modules}; print(p() - b)"


def measure(workshop: Workshop) -> Iterable[Figure]:
    ours, engine, parts = in_rounds(
        _ROUNDS,
        lambda: (
            _import_seconds("clew"),
            _import_seconds("clew, clew.engines.sqlite"),
            _import_seconds("apsw, msgspec"),
        ),
    )
    yield ratio("import: clew / apsw and msgspec", ours, parts, at_most=2)
    yield ratio("import: clew and its SQLite engine / apsw and msgspec", engine, parts)
    yield milliseconds("import: clew", ours)
    yield milliseconds("import: apsw and msgspec", parts)
    yield from _commands(workshop)


def _commands(workshop: Workshop) -> Iterable[Figure]:
    place = workshop.new_path()
    with clew.open(place, durability="relaxed") as store:
        for number in range(_THREADS):
            thread = store.create(title=f"Thread {number}")
            thread.append_message({"role": "user", "content": "hello"})
    helped, listed, parts = in_rounds(
        _ROUNDS,
        lambda: (
            _process_seconds("-m", "clew", "--help"),
            _process_seconds("-m", "clew", "list", str(place)),
            _process_seconds("-c", "import apsw, msgspec"),
        ),
    )
    yield ratio(
        "import: start of clew --help / python -c 'import apsw, msgspec'",
        helped,
        parts,
        at_most=2.5,
    )
    yield ratio(
        "import: start of clew list / python -c 'import apsw, msgspec'", listed, parts, at_most=2.5
    )
    yield milliseconds("import: start of clew --help", helped)
    yield milliseconds("import: start of clew list, 20 threads", listed)


def _process_seconds(*arguments: str) -> float:
    """A process from its start to its end."""
    began = perf_counter()
    subprocess.run(
        [sys.executable, *arguments], env=_environment(), stdout=subprocess.DEVNULL, check=True
    )
    return perf_counter() - began


def _import_seconds(modules: str) -> float:
    """The import alone, without the start of the interpreter. The first one writes the .pyc."""
    command = [sys.executable, "-c", _PROGRAM.format(modules=modules)]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=True)
    return float(done.stdout)


def _environment() -> dict[str, str]:
    left_out = ("PYTHONDONTWRITEBYTECODE", "CLEW_STORE")
    return {key: value for key, value in os.environ.items() if key not in left_out}
