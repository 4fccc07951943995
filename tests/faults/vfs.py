"""SQLite file layers that fail on command."""

from __future__ import annotations

import errno
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import apsw
from faults.layers import SYNC, SYNC_FOLDER, UNCHECKED_SYNC, WRITE, Call, Layer

from clew.core.errors import Unavailable
from clew.engines.shared import file_system
from clew.engines.sqlite import connections, place

_numbers = itertools.count()


class FailingVFS(apsw.VFS):
    """Passes everything on until told to fail: `fail_sync` and `fail_write` name file endings."""

    def __init__(self) -> None:
        self.name = f"failing-{next(_numbers)}"
        self.fail_sync: str | None = None
        self.fail_write: str | None = None
        self.syncs = 0
        super().__init__(self.name, "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return FailingFile(self, name, flags)


class FailingFile(apsw.VFSFile):
    def __init__(self, vfs: FailingVFS, name: Any, flags: list[int]) -> None:
        self._vfs = vfs
        self._path = path_of(name)
        super().__init__("", name, flags)

    def xSync(self, flags: int) -> None:
        self._vfs.syncs += 1
        if self._hit(self._vfs.fail_sync):
            raise failure(apsw.IOError, apsw.SQLITE_IOERR_FSYNC)
        super().xSync(flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        if self._hit(self._vfs.fail_write):
            raise failure(apsw.FullError, apsw.SQLITE_FULL)
        super().xWrite(data, offset)

    def _hit(self, ending: str | None) -> bool:
        return ending is not None and self._path.endswith(ending)


def failure(kind: Callable[[str], Exception], code: int) -> Exception:
    error = kind("injected")
    error.extendedresult = code  # type: ignore[attr-defined]
    return error


def path_of(name: Any) -> str:
    return name.filename() if isinstance(name, apsw.URIFilename) else str(name or "")


# --- a layer of faults or recording under SQLite --------------------------------------------

_CODES = {
    WRITE: apsw.SQLITE_IOERR_WRITE,
    SYNC: apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "unlink": apsw.SQLITE_IOERR_DELETE,
}
# Files whose folder SQLite syncs with their first sync, when it opens them to be created.
_SYNCED_WITH_FOLDER = (
    apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL | apsw.SQLITE_OPEN_WAL
)


class LayeredVFS(apsw.VFS):
    """SQLite's own file layer, with a layer above it that is told of every change."""

    def __init__(self, layer: Layer) -> None:
        self.name = f"layered-{next(_numbers)}"
        self.layer = layer
        super().__init__(self.name, "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        path = path_of(name)
        call = Call("create", path)
        if not path or not flags[0] & apsw.SQLITE_OPEN_CREATE or os.path.exists(path):
            return LayeredFile(self, name, flags)
        return passed_on(self.layer, call, lambda: LayeredFile(self, name, flags))

    def xDelete(self, name: str, sync_folder: bool) -> None:
        passed_on(
            self.layer, Call("unlink", name), lambda: super(LayeredVFS, self).xDelete(name, False)
        )
        if sync_folder:
            _sync_folder_of(self.layer, name)


class LayeredFile(apsw.VFSFile):
    def __init__(self, vfs: LayeredVFS, name: Any, flags: list[int]) -> None:
        self._layer = vfs.layer
        self._path = path_of(name)
        self._new = bool(flags[0] & apsw.SQLITE_OPEN_CREATE and flags[0] & _SYNCED_WITH_FOLDER)
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        write = super().xWrite

        def half() -> None:
            write(data[: len(data) // 2], offset)
            raise OSError(errno.ENOSPC, "injected")

        call = Call(WRITE, self._path, bytes(data), offset)
        passed_on(self._layer, call, lambda: write(data, offset), half)

    def xTruncate(self, size: int) -> None:
        passed_on(
            self._layer,
            Call("truncate", self._path, size=size),
            lambda: super(LayeredFile, self).xTruncate(size),
        )

    def xSync(self, flags: int) -> None:
        passed_on(
            self._layer, Call(SYNC, self._path), lambda: super(LayeredFile, self).xSync(flags)
        )
        if self._new:
            self._new = False
            _sync_folder_of(self._layer, self._path)


def _sync_folder_of(layer: Layer, path: str) -> None:
    """SQLite ignores the failure of a folder's sync, so here it cannot fail either."""
    try:
        layer.around(Call(UNCHECKED_SYNC, os.path.dirname(path)), lambda: None)
    except OSError:
        pass


def passed_on(layer: Layer, call: Call, whole: Callable[[], Any], half: Any = None) -> Any:
    """What a layer raises, as SQLite wants to hear it."""
    try:
        return layer.around(call, whole, half)
    except OSError as error:
        if error.errno == errno.ENOSPC and call.name == WRITE:
            raise failure(apsw.FullError, apsw.SQLITE_FULL) from None
        if call.name == "create":
            raise failure(apsw.CantOpenError, apsw.SQLITE_CANTOPEN) from None
        raise failure(apsw.IOError, _CODES[call.name]) from None


@contextmanager
def folders_through(layer: Layer) -> Iterator[None]:
    """The engine syncs its folder by itself, past SQLite; the layer is to know of that too."""
    real = file_system.sync_folder

    def sync_folder(folder: Path) -> None:
        try:
            layer.around(Call(SYNC_FOLDER, str(folder)), lambda: real(folder))
        except OSError as error:
            raise Unavailable(f"{folder} cannot be synced", retryable=False) from error

    with (
        mock.patch.object(place, "sync_folder", sync_folder),
        mock.patch.object(connections, "sync_folder", sync_folder),
    ):
        yield


class _Connection(connections.StoreConnection):
    def close(self, force: bool = False) -> None:
        """SQLite ignores what fails in the checkpoint of a close; apsw tells what we raised."""
        try:
            super().close(force)
        except apsw.Error:
            pass


@contextmanager
def quiet() -> Iterator[None]:
    """apsw hands on what a file layer raises also where SQLite itself would say nothing."""
    before = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        with (
            mock.patch.object(apsw, "Connection", _Connection),
            mock.patch.object(connections, "StoreConnection", _Connection),
        ):
            yield
    finally:
        sys.unraisablehook = before
