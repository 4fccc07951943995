"""The files engine's system calls, with a layer above them that is told of every change."""

from __future__ import annotations

import os
from pathlib import Path

from faults.layers import SYNC, SYNC_FOLDER, WRITE, Call, Layer

from clew.engines.files.disk import Disk


class LayeredDisk(Disk):
    def __init__(self, layer: Layer) -> None:
        self._layer = layer
        self._real = Disk()

    def open(self, path: str, flags: int) -> int:
        if not flags & os.O_CREAT or os.path.lexists(path):
            return self._real.open(path, flags)
        return self._layer.around(Call("create", path), lambda: self._real.open(path, flags))

    def write(self, descriptor: int, data: bytes) -> int:
        half = bytes(data[: len(data) // 2])
        return self._layer.around(
            Call(WRITE, _path(descriptor), bytes(data)),
            lambda: self._real.write(descriptor, data),
            lambda: self._real.write(descriptor, half),
        )

    def write_at(self, descriptor: int, data: bytes, offset: int) -> int:
        half = bytes(data[: len(data) // 2])
        return self._layer.around(
            Call(WRITE, _path(descriptor), bytes(data), offset),
            lambda: self._real.write_at(descriptor, data, offset),
            lambda: self._real.write_at(descriptor, half, offset),
        )

    def sync(self, descriptor: int) -> None:
        self._layer.around(Call(SYNC, _path(descriptor)), lambda: self._real.sync(descriptor))

    def sync_folder(self, path: str) -> None:
        self._layer.around(Call(SYNC_FOLDER, path), lambda: self._real.sync_folder(path))

    def truncate(self, descriptor: int, size: int) -> None:
        call = Call("truncate", _path(descriptor), size=size)
        self._layer.around(call, lambda: self._real.truncate(descriptor, size))

    def rename(self, source: str, target: str) -> None:
        call = Call("rename", source, target=target)
        self._layer.around(call, lambda: self._real.rename(source, target))

    def unlink(self, path: str) -> None:
        self._layer.around(Call("unlink", path), lambda: self._real.unlink(path))

    def make_folder(self, path: str) -> None:
        self._layer.around(Call("make folder", path), lambda: self._real.make_folder(path))


def _path(descriptor: int) -> str:
    """The name of an open file, as the system knows it."""
    link = f"/proc/self/fd/{descriptor}"
    return os.readlink(link) if Path(link).is_symlink() else f"descriptor {descriptor}"
