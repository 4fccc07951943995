"""import: what `import clew` takes in a fresh interpreter, against what it is made of."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable

from bench.figures import Figure, milliseconds, ratio
from bench.timing import in_rounds
from bench.workshop import Workshop

_ROUNDS = 25
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


def _import_seconds(modules: str) -> float:
    """The import alone, without the start of the interpreter. The first one writes the .pyc."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", _PROGRAM.format(modules=modules)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)
