"""Bits flipped, records and blobs dropped, swapped and doubled: verify finds what changes data.

A damage counts as found when verify names something, or when the store refuses to open. It need
not be found when everything that can be read is as it was.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import apsw
from faults import operations
from faults.operations import HASHES, entry
from faults.points import Outcome
from faults.stores import Kind, differences, load, look, store, wrong_answer

from clew.core.engine import Engine
from clew.core.errors import ClewError

Damage = Callable[[Path, random.Random], str]
Wrap = Callable[[Engine], Engine]


class Flips:
    """A closed store with a bit of everything, to be damaged again and again."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self._kind, self._folder = kind, folder
        with kind.open(store({}, folder)) as engine:
            fill(engine)
        with kind.open(folder) as engine:
            self._view = look(engine, HASHES)
            assert list(engine.check()) == []
        self._image = load(folder)
        self.seen: Counter[str] = Counter()

    def run(self, damage: Damage, count: int, seed: int, outcome: Outcome) -> None:
        self._run(damage, count, seed, outcome, self._judge)

    def run_reads(
        self, damage: Damage, count: int, seed: int, outcome: Outcome, wrap: Wrap
    ) -> None:
        """The same, but nothing is verified: no answer through a wrapper may be wrong."""
        self._run(damage, count, seed, outcome, lambda: self._judge_reads(wrap))

    def _run(
        self,
        damage: Damage,
        count: int,
        seed: int,
        outcome: Outcome,
        judge: Callable[[], str | None],
    ) -> None:
        chance = random.Random(f"{damage.__name__} {seed}")
        for _ in range(count):
            store(self._image, self._folder)
            what = damage(self._folder, chance)
            outcome.add(f"{self._kind.name}, {what}", judge())

    def _judge_reads(self, wrap: Wrap) -> str | None:
        try:
            with self._kind.open(self._folder) as engine:
                wrong = wrong_answer(wrap(engine), self._view)
        except ClewError:
            return self._note("refused")
        except Exception as error:
            return f"a raw error: {type(error).__name__}: {error}"
        return None if wrong is None else f"a wrong answer: {wrong}"

    def _judge(self) -> str | None:
        try:
            with self._kind.open(self._folder) as engine:
                if list(engine.check()):
                    return self._note("named by verify")
                return self._compare(engine)
        except ClewError:
            return self._note("refused")
        except Exception as error:
            return f"a raw error: {type(error).__name__}: {error}"

    def _compare(self, engine: Engine) -> str | None:
        try:
            found = look(engine, HASHES)
        except Exception as error:
            return f"verify is content, but reading fails: {type(error).__name__}: {error}"
        if found == self._view:
            return self._note("changes nothing")
        return f"verify is content, but data has changed: {differences(self._view, found)}"

    def _note(self, what: str) -> None:
        self.seen[what] += 1


def fill(engine: Engine) -> None:
    """Enough data that most of the bytes of the store mean something."""
    for step in operations.SEQUENCE[: operations.SEQUENCE.index(operations.purge)]:
        step(engine)
    engine.append("new", [entry("loose", "no blob is loose", blobs=HASHES[:3])])
    chance = random.Random(4)
    for n in range(60):
        text = "".join(chance.choices("abcdefghij ", k=chance.randrange(200, 3000)))
        engine.append("new", [entry(f"new{n}", {"text": text}, meta_data=b'{"model":"m"}')])
        engine.append("fork", [entry(f"fork{n}", [n, text[:100]])])


# --- damages --------------------------------------------------------------------------------


def flip(folder: Path, chance: random.Random) -> str:
    """One bit, somewhere."""
    path = _choose(folder, chance)
    data = bytearray(path.read_bytes())
    place, bit = chance.randrange(len(data)), chance.randrange(8)
    data[place] ^= 1 << bit
    path.write_bytes(data)
    return f"bit {bit} of byte {place} of {path.relative_to(folder)}"


def _choose(folder: Path, chance: random.Random) -> Path:
    """A file by its size; a cache is large and matters little, so it is chosen now and then."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size]
    wanted = chance.random() < 0.05
    found = [path for path in files if (path.parent.name == "index") == wanted] or files
    return chance.choices(found, [path.stat().st_size for path in found])[0]


_RECORD = "type, id, time_us, hash, parent, kind, turn, format, meta, blobs, body, blob"
_ROW_DAMAGES = {
    "record {a} dropped": "DELETE FROM records WHERE no = {a}",
    "records {a} and {b} swapped": (
        "CREATE TEMP TABLE two AS SELECT * FROM records WHERE no IN ({a}, {b});"
        "DELETE FROM records WHERE no IN ({a}, {b});"
        "UPDATE two SET no = {a} + {b} - no; INSERT INTO records SELECT * FROM two"
    ),
    "record {a} doubled as {c}": (
        f"INSERT OR REPLACE INTO records (no, {_RECORD})"
        f" SELECT {{c}}, {_RECORD} FROM records WHERE no = {{a}}"
    ),
    "bodies of {a} and {b} swapped": (
        "CREATE TEMP TABLE two AS SELECT no, body, blob FROM records WHERE no IN ({a}, {b});"
        "UPDATE records SET (body, blob) = (SELECT body, blob FROM two WHERE two.no = {a} + {b}"
        " - records.no) WHERE no IN ({a}, {b})"
    ),
    "blob {x} dropped": "DELETE FROM blobs WHERE no = {x}",
    "blobs {x} and {y} swapped": (
        "CREATE TEMP TABLE two AS SELECT no, size, codec, stored, data FROM blobs"
        " WHERE no IN ({x}, {y});"
        "UPDATE blobs SET (size, codec, stored, data) = (SELECT size, codec, stored, data"
        " FROM two WHERE two.no = {x} + {y} - blobs.no) WHERE no IN ({x}, {y})"
    ),
    "blob {x} doubled": (
        "INSERT INTO blobs (hash, size, codec, stored, put_us, data)"
        " SELECT hash || '0', size, codec, stored, put_us, data FROM blobs WHERE no = {x}"
    ),
}


def mix_rows(folder: Path, chance: random.Random) -> str:
    """A record or blob of a SQLite store dropped, doubled, or swapped with another one."""
    db = apsw.Connection(str(folder / "threads.db"))
    records = [no for (no,) in db.execute("SELECT no FROM records ORDER BY no")]
    blobs = [no for (no,) in db.execute("SELECT no FROM blobs ORDER BY no")]
    a, b = chance.sample(records, 2)
    x, y = chance.sample(blobs, 2)
    free = chance.choice(records) + chance.choice((0, 1, 2, 100))
    names = {"a": a, "b": b, "c": free if free != a else free + 1, "x": x, "y": y}
    what, script = chance.choice(sorted(_ROW_DAMAGES.items()))
    try:
        db.execute(script.format(**names))
    except apsw.ConstraintError:
        what = f"refused by SQLite itself: {what}"
    db.close()
    return what.format(**names)


def mix_lines(folder: Path, chance: random.Random) -> str:
    """A line or blob of a files store dropped, doubled, or swapped with another one.

    Not dropped: the last line of a file. Without it the file is what it was before that append.
    """
    threads = sorted(folder.glob("threads/threads/*.jsonl"))
    blobs = sorted(path for path in folder.glob("threads/blobs/*/*") if path.is_file())
    damages = (_drop_line, _swap_lines, _double_line, _move_line, _swap_files)
    damage = chance.choice((*damages, _drop_file, _double_file))
    of_blobs = damage in (_drop_file, _double_file) or (
        damage is _swap_files and chance.random() < 0.5
    )
    return damage(blobs if of_blobs else threads, chance)


def _drop_line(files: list[Path], chance: random.Random) -> str:
    path, lines = _long(files, chance)
    at = chance.randrange(len(lines) - 1)
    path.write_bytes(b"".join(lines[:at] + lines[at + 1 :]))
    return f"line {at + 1} of {path.name} dropped"


def _swap_lines(files: list[Path], chance: random.Random) -> str:
    path, lines = _long(files, chance)
    a, b = chance.sample(range(len(lines)), 2)
    lines[a], lines[b] = lines[b], lines[a]
    path.write_bytes(b"".join(lines))
    return f"lines {a + 1} and {b + 1} of {path.name} swapped"


def _double_line(files: list[Path], chance: random.Random) -> str:
    path, lines = _long(files, chance)
    a, b = chance.randrange(len(lines)), chance.randrange(len(lines) + 1)
    path.write_bytes(b"".join([*lines[:b], lines[a], *lines[b:]]))
    return f"line {a + 1} of {path.name} doubled before line {b + 1}"


def _move_line(files: list[Path], chance: random.Random) -> str:
    source, lines = _long(files, chance)
    target = chance.choice(files)
    there = target.read_bytes().splitlines(keepends=True)
    a, b = chance.randrange(len(lines)), chance.randrange(len(there))
    there[b] = lines[a]
    target.write_bytes(b"".join(there))
    return f"line {b + 1} of {target.name} replaced by line {a + 1} of {source.name}"


def _swap_files(files: list[Path], chance: random.Random) -> str:
    a, b = chance.sample(files, 2)
    one, two = a.read_bytes(), b.read_bytes()
    a.write_bytes(two)
    b.write_bytes(one)
    return f"{a.name} and {b.name} swapped"


def _drop_file(files: list[Path], chance: random.Random) -> str:
    path = chance.choice(files)
    path.unlink()
    return f"{path.name} dropped"


def _double_file(files: list[Path], chance: random.Random) -> str:
    a, b = chance.sample(files, 2)
    b.write_bytes(a.read_bytes())
    return f"{b.name} replaced by {a.name}"


def _long(files: list[Path], chance: random.Random) -> tuple[Path, list[bytes]]:
    """A file of at least two lines."""
    while True:
        path = chance.choice(files)
        lines = path.read_bytes().splitlines(keepends=True)
        if len(lines) > 1:
            return path, lines


MIXES: dict[str, Damage] = {"sqlite": mix_rows, "files": mix_lines}
