"""Do the tests notice a mistake? Each mutant of core/ and context/ must make one of them fail.

    python tests/mutation/run.py [--only core/lease_rules] [--sample N | --amount N] [--seed N]
                                 [--jobs N] [--patience N] [--left FILE]

All mutants are tried, or with --sample some of each module, or with --amount some of all of them
together: the same ones for the same seed. A mutant is tried with the tests of its module's area, on
engines that need no server, that run the line with the mistake: which ones do is found out once. If
the line runs on import, as a default does, they are the fastest ones that take a minute together.
Those that have noticed most come first, then the fast ones, up to the first failure. Survivors are
listed, with the reason if survivors.py has one. Exit code 1: fewer than 85 % were noticed.

What takes ten times as long as without a mistake is noticed too, as a loop without end would be.
On a busy machine it may only be slow: such mutants are told and counted apart, and --patience 5
waits five times as long. A test may also fail for another reason than the mistake. So some tests
run again in the same way without one: how many of these are noticed is told, and should be none.

With --left the survivors are also kept in a file, and the next run tries those alone: a test that
was added takes no other one away, so what was noticed once need not be tried again.

Every mutant runs in a process of its own. For a mistake in what a function does it is forked from
one that has loaded everything, and gives the function its other code; for one in what runs when a
module is loaded it is forked from one without Clew, and a hook of the import gives it the module.

Why not mutmut or cosmic-ray: mutmut puts a trampoline in the place of every function, and here the
signatures of functions are data (`clew.core.wrapper` and the parity of aio read them), as are the
fields of structs; cosmic-ray changes the files of the working tree, which other runs are using.
"""

from __future__ import annotations

import argparse
import gc
import importlib.abc
import importlib.util
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from types import CodeType, FrameType, FunctionType

import pytest

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
SOURCE = ROOT / "src" / "clew"
sys.path[:0] = [str(ROOT), str(TESTS)]

from mutation.mutants import Mutant, mutants  # noqa: E402
from mutation.survivors import REASONS  # noqa: E402

ENOUGH = 0.85
UNHARMED = 3  # of each module: runs of the same tests without a mistake
SECONDS_MAX = 180.0
SECONDS_FAST = 60.0
MEMORY_MAX = 8 << 30  # a mistake may ask for all there is
TOO_LONG = -1_000  # no exit code: it was killed, since it did not end in time
NOT_SO = 75  # exit code: the code of a function cannot be exchanged for that of the mutant

# The tests of an area. None of them asks a server.
WAIST = [
    "conformance/test_engines.py",
    "conformance/test_wrappers.py",
    "unit/test_store.py",
    "unit/test_turn.py",
    "model/test_model.py",
]
AREAS: dict[str, list[str]] = {
    "core/codec": [*WAIST, "unit/test_codec.py", "messages", "docs/test_format.py"],
    "core/maintenance": ["unit", "cli/test_cli_migrate.py", "migrations"],
    "core/names": [*WAIST, "unit", "model/test_namespaces.py", "faults/test_namespace_faults.py"],
    "core/tombstones": [
        *(*WAIST, "unit", "context/test_logs.py"),
        *("model/test_purges.py", "docs/test_format_files.py"),
    ],
    "core/lines": [
        *("unit/test_lines.py", "docs/test_format_files.py", *WAIST),
        "faults/test_files_faults.py",
    ],
    "core/text_index": ["search/test_text_index.py", "search/test_search.py"],
    "core/checked_reads": ["conformance/test_wrappers.py", "unit/test_scrub.py"],
    "core/lease_rules": ["unit/test_lease_rules.py", *WAIST],
    "core/errors": ["unit/test_errors.py", *WAIST],
    "core/hashes": [*WAIST, "docs/test_format.py", "docs/test_format_files.py"],
    "core/": [*WAIST, "unit", "facets/test_conversations.py"],
    "context/budget": ["context/test_budget.py", "context/test_context.py"],
    "context/": ["context", "providers/test_contexts.py", "facets/test_conversations.py"],
}
# One engine is enough to see a mistake in what all of them share; files have parts of their own.
_ON_DISK = {
    "core/lines": ["files"],
    "core/tombstones": ["files"],
    "core/checked_reads": ["files", "sqlite"],
    "core/maintenance": ["files", "sqlite"],
}


def area(name: str) -> list[str]:
    found = next(found for found in AREAS if name.startswith(found))
    return AREAS[found]


def belongs(test: str, name: str) -> bool:
    """Whether a module is tried with this test. What measures memory does not work in a survey."""
    if "costs" in test:
        return False
    path = test.partition("::")[0].removeprefix("tests/")
    if not any(path == one or path.startswith(one + "/") for one in area(name)):
        return False
    engines = {"postgres", "sqlite", "files"} - set(_ON_DISK.get(name, ()))
    return not any(engine in test for engine in engines)


@dataclass(frozen=True)
class Known:
    """What the survey has found: the lines that run on import, and for each test its lines of each
    module and how long it takes."""

    imported: dict[str, list[int]]
    lines: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    patience: float = 1.0
    noticed: Counter[str] = field(default_factory=Counter)  # mistakes so far, by each test

    def on_import(self, name: str, mutant: Mutant) -> bool:
        return not mutant.in_function or _among(mutant, self.imported.get(name, ()))

    def tests_for(self, name: str, mutant: Mutant) -> list[str]:
        """Those that run its line, first those that have noticed much in little time."""
        always = self.on_import(name, mutant)
        found = [
            test
            for test, lines in self.lines.items()
            if belongs(test, name) and (always or _among(mutant, lines.get(name, ())))
        ]
        return sorted(found, key=lambda test: self.seconds[test] / (1 + self.noticed[test]) ** 2)

    def fast(self, tests: list[str]) -> list[str]:
        """As many of these as take less than a minute together."""
        so_far = accumulate(self.seconds[test] for test in tests)
        return [test for test, seconds in zip(tests, so_far, strict=True) if seconds < SECONDS_FAST]

    def limit(self, tests: list[str]) -> float:
        usual = sum(self.seconds[test] for test in tests)
        return self.patience * min(10 * usual + 20, max(3 * usual, SECONDS_MAX))


def _among(mutant: Mutant, lines: Iterable[int]) -> bool:
    return any(mutant.line <= line <= mutant.last for line in lines)


# Processes


Work = tuple[str, Callable[[], int], float]


def attempts(works: Iterable[Work], jobs: int) -> Iterator[tuple[str, int]]:
    """Do each in a process of its own, some at once, and say how it ended: its exit code, the
    negative number of the signal that killed it, or TOO_LONG."""
    running: dict[int, tuple[str, float, str]] = {}
    for key, work, limit in works:
        while len(running) >= jobs:
            yield from _ended(running)
        folder = tempfile.mkdtemp(prefix="clew-mutant-")
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            # Tests leave things where things are temporary, above all when they fail.
            os.environ["TMPDIR"] = tempfile.tempdir = folder
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
            code = 1
            try:
                code = work()
            finally:
                os._exit(code)
        running[child] = key, time.monotonic() + limit, folder
    while running:
        yield from _ended(running)


def _ended(running: dict[int, tuple[str, float, str]]) -> Iterator[tuple[str, int]]:
    time.sleep(0.005)
    for child, (key, until, folder) in list(running.items()):
        done, status = os.waitpid(child, os.WNOHANG)
        if not done and time.monotonic() <= until:
            continue
        try:
            os.killpg(child, signal.SIGKILL)  # what a test had started and did not end
        except ProcessLookupError:
            pass
        if not done:
            os.waitpid(child, 0)
        del running[child]
        shutil.rmtree(folder, ignore_errors=True)
        yield key, os.waitstatus_to_exitcode(status) if done else TOO_LONG


def run_pytest(paths: list[str], plugin: object, said: io.StringIO) -> int:
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    options = ["-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--rootdir", str(ROOT)]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    with redirect_stdout(said), redirect_stderr(said):
        try:
            return int(pytest.main([*options, *paths], plugins=[plugin]))
        except BaseException:
            return 1


class Plugin:
    """What all runs of pytest here have in common."""

    def pytest_configure(self, config: pytest.Config) -> None:
        from hypothesis import Phase, settings

        # That a test fails is enough; the simplest example would take longer to find.
        usual = settings.get_profile("clew")
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", usual, phases=phases)
        settings.load_profile("mutants")


# A mistake in what runs on import


class Mistaken(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Gives one module with a mistake."""

    def __init__(self, name: str, mutant: Mutant) -> None:
        self._name = "clew." + name.replace("/", ".")
        self._path = SOURCE / f"{name}.py"
        self._mutant = mutant

    def find_spec(self, name: str, *_: object) -> object:
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(name, self._path, loader=self)

    def get_filename(self, name: str) -> str:
        return str(self._path)

    def get_data(self, path: str | bytes) -> bytes:
        return self._path.read_bytes()

    def source_to_code(self, *_: object) -> CodeType:  # type: ignore[override]
        return compile(self._mutant.tree, str(self._path), "exec", dont_inherit=True)


class Selection(Plugin):
    """The tests that a mutant is tried with, in this order: a plugin of pytest."""

    def __init__(self, tests: list[str]) -> None:
        self._place = {test: n for n, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self._place]
        items.sort(key=lambda item: self._place[item.nodeid])


def imported_with(name: str, mutant: Mutant, known: Known) -> Work:
    tests = known.fast(known.tests_for(name, mutant))

    def work() -> int:
        sys.meta_path.insert(0, Mistaken(name, mutant))
        paths = list(dict.fromkeys(str(ROOT / test.partition("::")[0]) for test in tests))
        return run_pytest(paths, Selection(tests), io.StringIO())

    return key_of(name, mutant), work, known.limit(tests)


# A mistake in a function


class Functions:
    """The functions of a module, as they were loaded."""

    def __init__(self, name: str) -> None:
        self._path = str(SOURCE / f"{name}.py")
        self._all = [
            one
            for one in gc.get_objects()
            if isinstance(one, FunctionType) and one.__code__.co_filename == self._path
        ]

    def become(self, mutant: Mutant) -> bool:
        """False if they cannot: they would need other variables of the function around them."""
        codes = dict(_codes(compile(mutant.tree, self._path, "exec", dont_inherit=True)))
        for function in self._all:
            code = codes[function.__code__.co_qualname, function.__code__.co_firstlineno]
            if code.co_freevars != function.__code__.co_freevars:
                return False
            function.__code__ = code
        return True


def _codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    yield (code.co_qualname, code.co_firstlineno), code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


class Session(Plugin):
    """Finds out which tests run which lines, then tries the mutants: a plugin of pytest."""

    def __init__(
        self,
        chosen: dict[str, list[Mutant]],
        jobs: int,
        patience: float,
        tell: Callable[[str], None],
    ) -> None:
        self._names = {str(SOURCE / f"{name}.py"): name for name in chosen}
        self._chosen, self._jobs, self._patience, self._tell = chosen, jobs, patience, tell
        self._now: dict[str, set[int]] = {}
        self.known = Known({})
        self.codes: dict[str, int] = {}
        self.unharmed: list[int] = []  # how runs without a mistake ended
        # A process that tries a mutant says here which test has noticed it.
        self._noticed, self._notices = os.pipe()
        os.set_blocking(self._noticed, False)
        self._trace_on()

    def _trace_on(self) -> None:
        self._now = {name: set() for name in self._chosen}
        threading.settrace(self._trace)
        sys.settrace(self._trace)

    def _trace_off(self) -> dict[str, list[int]]:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        return {name: sorted(lines) for name, lines in self._now.items() if lines}

    def _trace(self, frame: FrameType, event: str, _: object) -> object:
        name = self._names.get(frame.f_code.co_filename)
        if name is None:
            return None
        lines = self._now[name]

        def note(frame: FrameType, event: str, _: object) -> object:
            lines.add(frame.f_lineno)
            return note

        return note

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [i for i in items if any(belongs(i.nodeid, name) for name in self._chosen)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.known = Known(self._trace_off(), patience=self._patience)
        self._survey(session)
        if session.testsfailed:
            return True
        items = {item.nodeid: item for item in session.items}
        for name, found in self._chosen.items():
            inside = [one for one in found if not self.known.on_import(name, one)]
            functions = Functions(name)
            works = (self._work(session, items, name, mutant, functions) for mutant in inside)
            begun, survived = time.monotonic(), 0
            by_key = {key_of(name, one): one for one in inside}
            for key, code in attempts(works, self._jobs):
                self.codes[key] = code
                if code == 0:
                    survived += 1
                    one = by_key[key]
                    self._tell(f"  {one.line}: {one.what}: {one.text}")
            without = [self._run_of(session, items, name, one) for one in inside[:UNHARMED]]
            for key, code in attempts(without, self._jobs):
                self.unharmed.append(code)
                if code:
                    self._tell(f"  WITHOUT A MISTAKE, the tests of line {by_key[key].line}: {code}")
            taken = time.monotonic() - begun
            self._tell(f"{name}: {len(inside):,} tried, {survived:,} survived, in {taken:,.0f} s")
        return True

    def _survey(self, session: pytest.Session) -> None:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:

            def part(n: int) -> int:
                seconds, lines = {}, {}
                for item in session.items[n :: self._jobs]:
                    begun = time.monotonic()
                    self._trace_on()
                    failed = _run_items(session, [item])
                    lines[item.nodeid] = self._trace_off()
                    seconds[item.nodeid] = time.monotonic() - begun
                    if failed is not None:
                        self._tell(f"{item.nodeid} fails without a mistake")
                        return 1
                Path(folder, str(n)).write_text(json.dumps([lines, seconds]))
                return 0

            works = ((str(n), lambda n=n: part(n), 3600.0) for n in range(self._jobs))
            for n, code in attempts(works, self._jobs):
                if code:
                    session.testsfailed = 1
                    self._tell(f"the survey ended with {code}")
                    continue
                lines, seconds = json.loads(Path(folder, n).read_text())
                self.known.lines.update(lines)
                self.known.seconds.update(seconds)
        taken = time.monotonic() - begun
        self._tell(f"{len(self.known.lines):,} tests looked at, in {taken:,.0f} s")

    def _work(
        self,
        session: pytest.Session,
        items: dict[str, pytest.Item],
        name: str,
        mutant: Mutant,
        functions: Functions,
    ) -> Work:
        key, run, limit = self._run_of(session, items, name, mutant)
        return key, lambda: run() if functions.become(mutant) else NOT_SO, limit

    def _run_of(
        self, session: pytest.Session, items: dict[str, pytest.Item], name: str, mutant: Mutant
    ) -> Work:
        """The tests of a mutant, on the module as it is by then."""
        try:
            self.known.noticed.update(os.read(self._noticed, 1 << 16).decode().splitlines())
        except BlockingIOError:
            pass  # none since the last one
        tests = self.known.tests_for(name, mutant)

        def work() -> int:
            noticed = _run_items(session, [items[test] for test in tests])
            if noticed is not None:
                os.write(self._notices, f"{noticed.nodeid}\n".encode())
            return int(noticed is not None)

        return key_of(name, mutant), work, self.known.limit(tests)


def _run_items(session: pytest.Session, items: list[pytest.Item]) -> pytest.Item | None:
    """Run them up to the one that fails, and give that one."""
    for item, following in pairwise([*items, None]):
        assert item is not None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return item
    return None


def judged_inside(
    chosen: dict[str, list[Mutant]], jobs: int, patience: float
) -> tuple[Known, dict[str, int], list[int]]:
    """In a process that loads everything: what is known of the tests, how the mutants with a
    mistake in a function ended, and how some did without it."""
    with tempfile.NamedTemporaryFile() as told, os.fdopen(os.dup(1), "w") as stream:

        def tell(line: str) -> None:
            print(line, file=stream, flush=True)

        def work() -> int:
            session = Session(chosen, jobs, patience, tell)
            paths = dict.fromkeys(str(TESTS / path) for name in chosen for path in area(name))
            said = io.StringIO()
            code = run_pytest(list(paths), session, said)
            if code:
                tell(said.getvalue())
            known = session.known
            found = [known.imported, known.lines, known.seconds, session.codes, session.unharmed]
            Path(told.name).write_text(json.dumps(found))
            return code

        [(_, code)] = attempts([("", work, 24 * 3600.0)], 1)
        if code:
            sys.exit(f"pytest ended with {code}")
        *survey, codes, unharmed = json.loads(Path(told.name).read_text())
        return Known(*survey, patience), codes, unharmed


# All of it


def names() -> list[str]:
    found = [*(SOURCE / "core").glob("*.py"), *(SOURCE / "context").glob("*.py")]
    skipped = ("__init__", "engine", "options")  # declarations: types see a mistake there
    return sorted(
        str(path.relative_to(SOURCE).with_suffix("")) for path in found if path.stem not in skipped
    )


def all_mutants(name: str) -> list[Mutant]:
    return mutants((SOURCE / f"{name}.py").read_text("utf-8"))


def choose(name: str, sample: int | None, seed: int) -> list[Mutant]:
    """All of a module, or some that depend on nothing but it, the amount and the seed."""
    every = all_mutants(name)
    if sample is None or sample >= len(every):
        return every
    places = random.Random(f"{seed} {name}").sample(range(len(every)), sample)
    return [every[n] for n in sorted(places)]


def choose_together(chosen: dict[str, list[Mutant]], amount: int, seed: int) -> None:
    """Leave so many of all modules together, so that a large one has its share of them."""
    every = [(name, n) for name, found in chosen.items() for n in range(len(found))]
    some = set(random.Random(f"{seed} together").sample(every, min(amount, len(every))))
    for name, found in list(chosen.items()):
        chosen[name] = [one for n, one in enumerate(found) if (name, n) in some]
        if not chosen[name]:
            del chosen[name]


def key_of(name: str, mutant: Mutant) -> str:
    return f"{name} {id(mutant)}"  # the same in processes that are forked from this one


def report(chosen: dict[str, list[Mutant]], codes: dict[str, int]) -> float:
    """Print what survived, then how many of each module were noticed; the share of these."""
    lines: dict[str, tuple[int, int, int]] = {}
    print("\nSurvivors:")
    for name, found in chosen.items():
        ends = [codes[key_of(name, one)] for one in found]
        lines[name] = len(ends) - ends.count(0), ends.count(TOO_LONG), len(ends)
        for one in (one for one, end in zip(found, ends, strict=True) if end == 0):
            reason = REASONS.get((name, one.text, one.what), "NO TEST NOTICES IT")
            print(f"{name}.py:{one.line}: {one.what}: {one.text}\n    {reason}")
    print("\n| module | noticed | of these not in time | of mutants | |\n|---|---|---|---|---|")
    lines["all"] = killed, _, tried = tuple(map(sum, zip(*lines.values(), strict=True)))
    for name, (noticed, late, total) in lines.items():
        print(f"| {name} | {noticed:,} | {late:,} | {total:,} | {noticed / max(total, 1):.0%} |")
    return killed / max(tried, 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="modules whose name begins so, or so")
    parser.add_argument("--sample", type=int, help="try so many of each module, not all")
    parser.add_argument("--amount", type=int, help="try so many of all modules together")
    parser.add_argument("--patience", type=float, default=1.0, help="wait so many times as long")
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--left", type=Path, help="keep survivors here; try those that are here")
    asked = parser.parse_args()
    begun = time.monotonic()
    _load_all_but_clew()
    wanted = [name for name in names() if name.startswith(tuple(asked.only.split(",")))]
    chosen = {name: choose(name, asked.sample, asked.seed) for name in wanted}
    if asked.left is not None and asked.left.exists():
        left = {tuple(key) for key in json.loads(asked.left.read_text())}
        chosen = {
            name: some
            for name, found in chosen.items()
            if (some := [one for one in found if (name, one.text, one.what) in left])
        }
    every = sum(len(all_mutants(name)) for name in chosen)
    if asked.amount is not None:
        choose_together(chosen, asked.amount, asked.seed)
    tried = sum(map(len, chosen.values()))
    amount = "all" if tried == every else f"{tried:,} (seed {asked.seed}) of the"
    print(f"{amount} {every:,} mutants of {len(chosen)} modules", flush=True)
    known, codes, unharmed = judged_inside(chosen, asked.jobs, asked.patience)
    anew = [
        (name, mutant)
        for name, found in chosen.items()
        for mutant in found
        if codes.get(key_of(name, mutant), NOT_SO) == NOT_SO
    ]
    print(f"{len(anew):,} more, for each of which Clew is loaded anew", flush=True)
    codes.update(attempts((imported_with(*one, known) for one in anew), asked.jobs))
    lost = {
        name: [mutant for mutant in found if codes[key_of(name, mutant)] == 0]
        for name, found in chosen.items()
    }
    if asked.left is not None:
        keys = [(name, one.text, one.what) for name, found in lost.items() for one in found]
        asked.left.write_text(json.dumps(keys, indent=1))
    killed = report(chosen, codes)
    print(f"{len(unharmed):,} runs without a mistake, {sum(map(bool, unharmed)):,} noticed")
    print(f"{killed:.1%} noticed, in {time.monotonic() - begun:,.0f} s", flush=True)
    return int(killed < ENOUGH)


def _load_all_but_clew() -> None:
    import apsw  # noqa: F401
    import hypothesis  # noqa: F401
    import msgspec  # noqa: F401
    import psycopg  # noqa: F401

    assert "clew" not in sys.modules


if __name__ == "__main__":
    sys.exit(main())
