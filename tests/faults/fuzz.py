"""Fuzz targets: whatever the bytes are, reading them gives data or one of Clew's own errors.

Run as a script with atheris: `fuzz.py TARGET SECONDS FOLDER`. In the tests the same targets get
mutations of good input from a fixed seed.
"""

from __future__ import annotations

import logging
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import atheris

    with atheris.instrument_imports(include=["clew"]):
        import clew.engines.files
        import clew.engines.sqlite  # noqa: F401

from faults.operations import HASHES, prepare
from faults.stores import KINDS, load, look, store

from clew.core import lines
from clew.core.errors import ClewError

Target = Callable[[bytes], None]
PLACE = "a line"


def read_lines(data: bytes) -> None:
    """The decoder of the files engine: a line as it comes, and one whose checksum is right."""
    thread, _, line = data.partition(b"\n")
    for given in (line, lines.summed(thread, line)[:-1]):
        for read in (_record, _header, lambda line: lines.declared_version(line)):
            try:
                read(thread, given) if read is _record else read(given)
            except ClewError:
                pass


def _record(thread: bytes, line: bytes) -> None:
    found = lines.parse(thread, line, PLACE)
    found.record(thread.decode("utf-8", "replace"), b"1")


def _header(line: bytes) -> None:
    lines.parse_header(line, PLACE)


class Opener:
    """Opens a store one of whose files holds the bytes: the first two choose which."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind, self._folder = KINDS[kind], folder
        with self._kind.open(store({}, folder)) as engine:
            prepare(engine)
        self._image = load(folder)
        self._files = sorted(name for name, data in self._image.items() if data)

    def corpus(self) -> list[bytes]:
        return [bytes([n, 0]) + (self._image[name] or b"") for n, name in enumerate(self._files)]

    def __call__(self, data: bytes) -> None:
        name = self._files[data[0] % len(self._files)] if data else self._files[0]
        store(self._image | {name: data[2:]}, self._folder)
        try:
            with self._kind.open(self._folder) as engine:
                list(engine.check())
                look(engine, HASHES)
        except ClewError:
            pass


def line_corpus(folder: Path) -> list[bytes]:
    """Good lines to begin with."""
    Opener("files", folder)
    found = []
    for path in sorted((folder / "threads" / "threads").glob("*.jsonl")):
        thread = path.stem.encode()
        for n, line in enumerate(path.read_bytes().splitlines()):
            bare = line.rpartition(b',"sum":"')[0]
            found += [(thread if n else b"") + b"\n" + part for part in (line, bare)]
    return found


def mutate(data: bytes, chance: random.Random) -> bytes:
    """A few small damages, as a fuzzer makes them."""
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(6):
            case 0 if changed:
                changed[at % len(changed)] = chance.randrange(256)
            case 1:
                changed[at:at] = chance.randbytes(chance.randrange(1, 9))
            case 2:
                del changed[at : at + chance.randrange(1, 40)]
            case 3:
                changed[at:at] = chance.choice(TOKENS)
            case 4:
                end = chance.randrange(len(changed) + 1)
                changed[at:at] = changed[min(at, end) : max(at, end)][:200]
            case _:
                del changed[at:]
    return bytes(changed)


TOKENS = (
    b'"', b"{", b"}", b"[", b"]" * 3, b",", b":", b"null", b"-1", b"1e400", b"\x00", b"\xff",
    b"\\ud800", b'"seq":', b'"left":99999999999', b'"time":"x"', b"\n", b"[" * 3000, b'{"a":' * 500,
)  # fmt: skip


def mutations(target: Target, corpus: list[bytes], count: int, seed: int) -> list[str]:
    """What went wrong in so many mutations."""
    chance = random.Random(seed)
    failures = []
    for _ in range(count):
        data = mutate(chance.choice(corpus), chance)
        try:
            target(data)
        except Exception as error:
            failures.append(f"{type(error).__name__}: {error} for {data[:200]!r}")
    return failures


def executions(report: str) -> int:
    """How often atheris says that it ran a target."""
    return sum(map(int, re.findall(r"^Done (\d+) runs", report, re.MULTILINE)))


def targets(name: str, folder: Path) -> tuple[Target, list[bytes]]:
    if name == "lines":
        return read_lines, line_corpus(folder)
    opener = Opener(name, folder)
    return opener, opener.corpus()


def main(name: str, seconds: str, place: str) -> None:
    """In a folder that the caller removes: atheris ends the process."""
    target, corpus = targets(name, Path(place) / "store")
    seeds = Path(place) / "corpus"
    seeds.mkdir()
    for number, seed in enumerate(corpus):
        (seeds / str(number)).write_bytes(seed)
    logging.disable(logging.WARNING)
    options = ["-max_len=65536", "-timeout=30", f"-artifact_prefix={place}/"]
    atheris.Setup([sys.argv[0], f"-max_total_time={seconds}", *options, str(seeds)], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
