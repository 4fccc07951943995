"""SQLite file layers that fail on command."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import apsw

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
        self._path = name.filename() if isinstance(name, apsw.URIFilename) else str(name or "")
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
