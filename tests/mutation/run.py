"""Do the tests notice a mistake? Each mutant of core/ and context/ must make one of them fail.

    python tests/mutation/run.py [--count N] [--only core/lease_rules] [--seed N]

Every mutant runs in a process of its own, forked from one that has loaded all but Clew; an import
hook gives it the module with the mistake. The tests are those of the module's area, on the engines
that need no server, that run the line with the mistake: which ones do is found out once. The fast
ones come first, up to the first failure. What takes ten times as long as without a mistake is
noticed too. Exit code 1: fewer than 85 % were noticed.

Why not mutmut or cosmic-ray: mutmut puts a trampoline in the place of every function, and here the
signatures of functions are data (`clew.core.wrapper` and the parity of aio read them), as are the
fields of structs; cosmic-ray changes the files of the working tree, which other runs are using.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.util
import io
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pytest

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
    "context/budget": ["context/test_budget.py", "context/test_context.py"],
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


class Survey:
    """Which tests run which lines of a module, and how long each takes: a plugin of pytest."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._now: set[int] = set()
        self.lines: dict[str, list[int]] = {}
        self.seconds: dict[str, float] = {}

    def start(self) -> None:
        threading.settrace(self._trace)
        sys.settrace(self._trace)

    def _trace(self, frame: FrameType, event: str, _: object) -> object:
        return self._note if frame.f_code.co_filename == self._path else None

    def _note(self, frame: FrameType, event: str, _: object) -> object:
        self._now.add(frame.f_lineno)
        return self._note

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        # What ran before the first test was the import: all of them depend on that.
        self.lines.setdefault("", sorted(self._now))
        self._now.clear()
        begun = time.monotonic()
        yield
        self.seconds[item.nodeid] = time.monotonic() - begun
        self.lines[item.nodeid] = sorted(self._now)


class Selection:
    """The tests that a mutant is tried with, in this order: a plugin of pytest."""

    def __init__(self, tests: list[str]) -> None:
        self._place = {test: n for n, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self._place]
        items.sort(key=lambda item: self._place[item.nodeid])


@dataclass(frozen=True)
class Known:
    """What a survey has found."""

    lines: dict[str, list[int]]
    seconds: dict[str, float]

    def tests_for(self, mutant: Mutant) -> list[str]:
        """Those that run its line, the fast ones first."""
        span = range(mutant.line, mutant.last + 1)
        imported = any(line in span for line in self.lines.get("", ()))
        found = [
            test
            for test in self.seconds
            if imported or any(line in span for line in self.lines[test])
        ]
        return sorted(found, key=lambda test: self.seconds[test])


def survey(name: str) -> Known | None:
    """None if the tests fail without a mistake."""
    with tempfile.NamedTemporaryFile() as told:

        def work() -> int:
            plugin = Survey(SOURCE / f"{name}.py")
            plugin.start()
            code = _run(name, paths_of(name), plugin)
            sys.settrace(None)
            Path(told.name).write_text(json.dumps([plugin.lines, plugin.seconds]))
            return code

        state, _ = attempt(work, SECONDS_MAX * 5)
        return Known(*json.loads(Path(told.name).read_text())) if state == "passed" else None


def attempt(work: Callable[[], int], limit: float) -> tuple[str, float]:
    """Do something in a process of its own: "passed", "failed" or "endless", and how long."""
    begun = time.monotonic()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os._exit(work())
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


def try_mutant(name: str, mutant: Mutant, known: Known) -> str:
    tests = known.tests_for(mutant)
    if not tests:
        return "passed"  # no test runs it at all

    def work() -> int:
        module = "clew." + name.replace("/", ".")
        sys.meta_path.insert(0, Mistaken(module, SOURCE / f"{name}.py", mutant.source))
        paths = list(dict.fromkeys(str(ROOT / test.partition("::")[0]) for test in tests))
        return _run(name, paths, Selection(tests))

    limit = 10 * sum(known.seconds[test] for test in tests) + 20
    return attempt(work, min(limit, SECONDS_MAX))[0]


def _run(name: str, paths: list[str], plugin: object) -> int:
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    choice = next((k for area, k in _CHOICES.items() if name.startswith(area)), _OTHERS)
    options = ["-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-k", choice]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        try:
            return int(pytest.main([*options, "--rootdir", str(ROOT), *paths], plugins=[plugin]))
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
    begun = time.monotonic()
    known: dict[str, Known | None] = {}
    for n, (name, mutant) in enumerate(sorted(chosen, key=lambda one: (one[0], one[1].line)), 1):
        if name not in known:
            known[name] = survey(name)
            print(f"{name}, after {time.monotonic() - begun:.0f} s", flush=True)
        found = known[name]
        if found is None:
            print(f"the tests of {name} fail without a mistake")
            return 1
        if try_mutant(name, mutant, found) == "passed":
            survivors.append((name, mutant))
            print(f"{n:,}: survived: {name}.py:{mutant.line}: {mutant.what}", flush=True)
    killed = 1 - len(survivors) / len(chosen) if chosen else 1.0
    print(f"{killed:.1%} noticed; {len(survivors):,} of {len(chosen):,} survived", flush=True)
    return int(killed < ENOUGH)


if __name__ == "__main__":
    sys.exit(main())
