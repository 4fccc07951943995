"""The system calls of a take in the working tree and for its cache, with a layer above them.

The modules that make them get this instead of `os`. A layer is told of every one, of those that
only look too: a name that cannot be listed or a byte that cannot be read is a fault like others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from faults.layers import WRITE, Call, Layer

from clew.snapshots import scan, stat_cache

OPEN, CREATE, READ, CLOSE, LIST = "open", "create", "read", "close", "list"
CHANGING = (CREATE, WRITE, "make folder", "rename", "unlink")
_PLAIN = {"fstat": "stat", "stat": "stat", "readlink": "read link", "dup": "open"}
_NAMED = {"mkdir": "make folder", "replace": "rename", "unlink": "unlink", "listdir": LIST}


class Watched:
    """Stands for the module `os`. What is not watched is the real one's."""

    def __init__(self, layer: Layer) -> None:
        self._layer = layer

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        kind = _PLAIN.get(name) or _NAMED.get(name)
        if kind is None:
            return real

        def called(*arguments: Any, **options: Any) -> Any:
            call = Call(kind, str(arguments[0]))
            return self._layer.around(call, lambda: real(*arguments, **options))

        return called

    def cpu_count(self) -> int:
        """One reader, so that the N-th call is always the same one."""
        return 1

    def open(self, path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        call = Call(CREATE if flags & os.O_CREAT else OPEN, str(path))
        return self._layer.around(call, lambda: os.open(path, flags, *arguments, **options))

    def read(self, descriptor: int, size: int) -> bytes:
        """Half of what was asked for is a legal answer."""
        return self._layer.around(
            Call(READ, str(descriptor), size=size),
            lambda: os.read(descriptor, size),
            lambda: os.read(descriptor, max(1, size // 2)),
        )

    def write(self, descriptor: int, data: bytes) -> int:
        half = bytes(data[: len(data) // 2])
        return self._layer.around(
            Call(WRITE, str(descriptor), bytes(data)),
            lambda: os.write(descriptor, data),
            lambda: os.write(descriptor, half),
        )

    def close(self, descriptor: int) -> None:
        """It is closed even if that fails."""
        os.close(descriptor)
        self._layer.around(Call(CLOSE, str(descriptor)), lambda: None)

    @contextmanager
    def scandir(self, descriptor: int) -> Iterator[Iterator[Any]]:
        call = Call(LIST, str(descriptor))
        with self._layer.around(call, lambda: os.scandir(descriptor)) as entries:
            yield self._names(entries)

    def _names(self, entries: Iterator[os.DirEntry[str]]) -> Iterator[Any]:
        while True:
            entry = self._layer.around(Call("next name", ""), lambda: next(entries, None))
            if entry is None:
                return
            yield _Name(self._layer, entry)


class _Name:
    def __init__(self, layer: Layer, entry: os.DirEntry[str]) -> None:
        self._layer, self._entry = layer, entry
        self.name = entry.name

    def stat(self, *, follow_symlinks: bool) -> os.stat_result:
        call = Call("stat", self.name)
        return self._layer.around(call, lambda: self._entry.stat(follow_symlinks=follow_symlinks))


@contextmanager
def watched_by(layer: Layer) -> Iterator[None]:
    with ExitStack() as stack:
        for module in (scan, stat_cache):
            stack.enter_context(mock.patch.object(module, "os", Watched(layer)))
        yield
