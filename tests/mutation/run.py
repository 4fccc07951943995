"""Do the tests notice a mistake? Each mutant of core/ and context/ must make one of them fail.

    python tests/mutation/run.py [--count N] [--only core/lease_rules] [--seed N]

Every mutant runs in a process of its own, forked from one that has loaded all but Clew; an import
hook gives it the module with the mistake. The tests are those of the module's area, on the engines
that need no server, the fast ones first, up to the first failure. What takes ten times as long as
without a mistake is noticed too. Exit code 1: fewer than 85 % were noticed.

Why not mutmut or cosmic-ray: mutmut puts a trampoline in the place of every function, and here the
signatures of functions are data (`clew.core.wrapper` and the parity of aio read them), as are the
fields of structs; cosmic-ray changes the files of the working tree, which other runs are using.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.util
import io
import os
import random
import signal
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
SOURCE = ROOT / "src" / "clew"
sys.path.insert(0, str(TESTS))

from mutation.mutants import Mutant, mutants  # noqa: E402

ENOUGH = 0.85
SECONDS_MAX = 180.0
COUNT = 240  # of about four thousand; another seed gives others

# The tests of an area, the fast ones first. None of them asks a server.
WAIST = [
    "conformance/test_engines.py",
    "conformance/test_wrappers.py",
    "unit/test_store.py",
    "unit/test_turn.py",
    "model/test_model.py",
]
AREAS: dict[str, list[str]] = {
    "core/codec": ["unit/test_codec.py", "messages/test_bodies.py", "unit/test_store.py"],
    "core/maintenance": ["unit/test_maintenance.py", "cli/test_cli_migrate.py"],
    "core/lines": ["docs/test_format_files.py", *WAIST, "faults/test_files_faults.py"],
    "core/text_index": ["search/test_text_index.py", "search/test_search.py"],
    "core/checked_reads": ["conformance/test_wrappers.py", "unit/test_scrub.py"],
    "core/lease_rules": ["unit/test_lease_rules.py", *WAIST],
    "core/errors": ["unit/test_errors.py", *WAIST],
    "core/": [*WAIST, "facets/test_conversations.py"],
    "context/": ["context", "providers/test_contexts.py", "facets/test_conversations.py"],
}
# One engine is enough to see a mistake in what all of them share; files have parts of their own.
_OTHERS = "not postgres and not sqlite and not files"
_CHOICES = {"core/lines": "not postgres and not sqlite", "core/checked_reads": "not postgres"}


def paths_of(name: str) -> list[str]:
    area = next(area for area in AREAS if name.startswith(area))
    return [str(TESTS / path) for path in AREAS[area]]


class Mistaken(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Gives one module with another source."""

    def __init__(self, name: str, path: Path, source: str) -> None:
        self._name, self._path, self._source = name, path, source

    def find_spec(self, name: str, *_: object) -> object:
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(name, self._path, loader=self)

    def get_filename(self, name: str) -> str:
        return str(self._path)

    def get_data(self, path: str | bytes) -> bytes:
        return self._source.encode()


def prepare() -> None:
    """Load what every run needs, except Clew itself and what loads it."""
    import apsw  # noqa: F401
    import msgspec  # noqa: F401
    import psycopg  # noqa: F401
    import pytest  # noqa: F401


def attempt(name: str, source: str | None, limit: float) -> tuple[str, float]:
    """Run the tests of a module with this source: "passed", "failed" or "endless", and how long."""
    begun = time.monotonic()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os._exit(_run(name, source))
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        taken = time.monotonic() - begun
        if done:
            return ("passed" if status == 0 else "failed"), taken
        if taken > limit:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "endless", taken
        time.sleep(0.01)


def _run(name: str, source: str | None) -> int:
    if source is not None:
        module = "clew." + name.replace("/", ".")
        sys.meta_path.insert(0, Mistaken(module, SOURCE / f"{name}.py", source))
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    import pytest

    choice = next((k for area, k in _CHOICES.items() if name.startswith(area)), _OTHERS)
    options = ["-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-k", choice]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        try:
            return int(pytest.main([*options, "--rootdir", str(ROOT), *paths_of(name)]))
        except BaseException:
            return 1


def names() -> list[str]:
    found = [*(SOURCE / "core").glob("*.py"), *(SOURCE / "context").glob("*.py")]
    skipped = ("__init__", "engine", "options")  # declarations: types see a mistake there
    return sorted(
        str(path.relative_to(SOURCE).with_suffix("")) for path in found if path.stem not in skipped
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--only", default="", help="modules whose name begins so")
    parser.add_argument("--seed", type=int, default=4)
    asked = parser.parse_args()
    prepare()
    assert "clew" not in sys.modules
    every = [
        (name, mutant)
        for name in names()
        if name.startswith(asked.only)
        for mutant in mutants((SOURCE / f"{name}.py").read_text("utf-8"))
    ]
    chosen = random.Random(asked.seed).sample(every, min(asked.count, len(every)))
    print(f"{len(chosen):,} of {len(every):,} mutants", flush=True)
    survivors: list[tuple[str, Mutant]] = []
    limits: dict[str, float] = {}
    for n, (name, mutant) in enumerate(sorted(chosen, key=lambda one: (one[0], one[1].line)), 1):
        area = " ".join(paths_of(name))
        if area not in limits:
            state, taken = attempt(name, None, SECONDS_MAX * 5)
            if state != "passed":
                print(f"the tests of {name} fail without a mistake")
                return 1
            limits[area] = min(SECONDS_MAX * 5, 10 * taken + 10)
        state, _ = attempt(name, mutant.source, limits[area])
        if state == "passed":
            survivors.append((name, mutant))
            print(f"{n:,}: survived: {name}.py:{mutant.line}: {mutant.what}", flush=True)
    killed = 1 - len(survivors) / len(chosen) if chosen else 1.0
    print(f"{killed:.1%} noticed; {len(survivors):,} of {len(chosen):,} survived", flush=True)
    return int(killed < ENOUGH)


if __name__ == "__main__":
    sys.exit(main())
