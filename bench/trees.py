"""Trees of files to take snapshots of: the same in every run, with binaries and long names."""

from __future__ import annotations

import random
from pathlib import Path

_WORDS = 3_000
_BINARY_EVERY = 10
_FILES_A_FOLDER = 20


def grow(root: Path, files: int, size_bytes: int) -> Path:
    """A tree of about that many files and bytes; sizes vary as those of source files do."""
    chance = random.Random(files)
    words = [_word(chance) for _ in range(_WORDS)]
    for number in range(files):
        folder = root / f"package_{number // 400}" / f"module_{number // _FILES_A_FOLDER % 20}"
        folder.mkdir(parents=True, exist_ok=True)
        size = max(20, int(chance.expovariate(files / size_bytes)))
        binary = number % _BINARY_EVERY == 0
        data = chance.randbytes(size) if binary else _text(chance, words, size)
        ending = "bin" if binary else "py"
        (folder / f"a_file_with_a_rather_long_name_{number:06}.{ending}").write_bytes(data)
    (root / ".gitignore").write_text("*.log\n/build/\n*.o\n__pycache__/\n")
    return root


def change(root: Path, count: int, round: int) -> list[Path]:
    """Add a line to some files, spread over the tree."""
    changed = []
    for number in range(count):
        folder = root / f"package_{number % 5}" / f"module_{number}"
        file = sorted(folder.iterdir())[round % _FILES_A_FOLDER]
        with file.open("ab") as end:
            end.write(b"a change, number %d\n" % round)
        changed.append(file)
    return changed


def _word(chance: random.Random) -> bytes:
    return bytes(chance.choices(b"abcdefghijklmnop_ (){};=\n", k=chance.randint(3, 12)))


def _text(chance: random.Random, words: list[bytes], size: int) -> bytes:
    return b" ".join(chance.choices(words, k=size // 7 + 1))[:size]
