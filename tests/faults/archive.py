"""An archive of files in the format that a Linux kernel unpacks into its memory: cpio, "newc"."""

from __future__ import annotations

import importlib.util
import os
import re
import stat
import subprocess
from pathlib import Path

_ELF = b"\x7fELF"  # a program or a library begins so


class Archive:
    """Files at the places where the machine shall find them, the libraries that they need too."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._names: set[str] = set()
        self._binaries: list[Path] = []
        self._entry("dev", stat.S_IFDIR | 0o755)
        self._entry("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))

    def add_tree(self, folder: Path, target: Path, without: tuple[str, ...] = ()) -> None:
        for path in sorted(folder.rglob("*")):
            parts = path.relative_to(folder).parts
            if not set(parts) & {*without, "__pycache__"} and not parts[0].startswith("config-"):
                self.add_file(path, target / path.relative_to(folder))

    def add_file(self, path: Path, target: Path) -> None:
        if path.is_file():
            data = path.read_bytes()
            self.add(str(target), data, mode=0o755)
            if data.startswith(_ELF):
                self._binaries.append(path)

    def add_package(self, name: str, target: Path) -> None:
        """A package that can be imported here, or a module; what is not there is left out."""
        spec = importlib.util.find_spec(name)
        if spec is None:
            return
        for place in map(Path, spec.submodule_search_locations or ()):
            self.add_tree(place, target / name)
            # Beside it lie the libraries that its wheel brings, and what tells its version.
            for beside in (f"{name}.libs", f"{name}-*.dist-info"):
                for found in place.parent.glob(beside):
                    self.add_tree(found, target / found.name)
        if spec.submodule_search_locations is None:
            self.add_file(Path(str(spec.origin)), target / Path(str(spec.origin)).name)

    def add_libraries(self) -> None:
        """Whatever the loader would look for, at the places where it is here."""
        command = ["ldd", *map(str, self._binaries)]
        done = subprocess.run(command, capture_output=True, text=True)
        for name in sorted(set(re.findall(r"(/\S+) \(0x", done.stdout))):
            self.add_file(Path(name), Path(os.path.normpath(name)))

    def add(self, name: str, data: bytes, mode: int = 0o644) -> None:
        name = name.lstrip("/")
        for above in reversed(Path(name).parents[:-1]):
            self._entry(str(above), stat.S_IFDIR | 0o755)
        self._entry(name, stat.S_IFREG | mode, data)

    def bytes(self) -> bytes:
        self._entry("TRAILER!!!", 0)
        return b"".join(self._pieces)

    def _entry(
        self, name: str, mode: int, data: bytes = b"", device: tuple[int, int] = (0, 0)
    ) -> None:
        if name in self._names:
            return
        self._names.add(name)
        path = name.encode() + b"\0"
        links = 2 if stat.S_ISDIR(mode) else 1
        numbers = (len(self._names), mode, 0, 0, links, 0, len(data), 0, 0, *device, len(path), 0)
        head = b"070701" + b"".join(b"%08X" % number for number in numbers) + path
        for piece in (head, data):
            self._pieces += [piece, bytes(-len(piece) % 4)]
