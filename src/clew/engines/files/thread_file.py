"""Opening the files of threads with care: a store's folder may hold anything."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from zlib import crc32

from msgspec import Struct

from clew.core.errors import Corrupt, FormatTooNew, Unavailable, Unsupported
from clew.core.lines import (
    ERASED_VERSION,
    VERSION,
    Header,
    declared_version,
    parse,
    parse_header,
)
from clew.engines.files.disk import EXHAUSTED, NOT_A_FILE, refuse_special
from clew.engines.files.frames import Frames, first_bytes, let_go
from clew.engines.files.locks import try_flock, wait_for
from clew.engines.files.place import PACKED, names_of
from clew.engines.shared.plain_files import read_at, refuse_hollow
from clew.engines.shared.tables.rows import SEQ_MAX

HEADER_BYTES_MAX = 32 * 1024
LAST_BYTES = 32
# A link must not lead out of the folder, and a pipe must not make the open wait for ever.
_SAFELY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class ThreadFile:
    """The file of a thread, opened to be read and appended to, with its header.

    One that is packed is read alike, but must be unpacked before it can grow.
    """

    def __init__(self, path: str, id: str, *, husk: bool, readonly: bool = False) -> None:
        self.path = path
        self.alone_checked = False  # whether a writer has looked that no packed one is beside it
        self._frames: Frames | None = None
        packed = path.endswith(PACKED)
        flags = os.O_RDONLY if readonly or packed else os.O_RDWR | os.O_APPEND
        self.descriptor = open_regular(path, flags | _SAFELY)
        try:
            look = os.fstat(self.descriptor)
            self.inode = look.st_ino
            refuse_hollow(self.descriptor, path, look.st_size)
            if packed:
                self._frames = Frames(self.descriptor, path)
            line = _first_line(self.read(0, HEADER_BYTES_MAX))
            self.header = _header(path, line)
            if self.header.draft.id != id or self.header.purged != husk:
                raise Corrupt(path, f"it is the file of thread {self.header.draft.id!r}")
        except BaseException:
            self.close()
            raise
        self.start = len(line) + 1  # of the first record

    def look(self) -> os.stat_result:
        return os.fstat(self.descriptor)

    @property
    def is_packed(self) -> bool:
        return self._frames is not None

    @property
    def size(self) -> int:
        """How many bytes its lines have, unpacked."""
        return self.look().st_size if self._frames is None else self._frames.size

    def read(self, start: int, length: int) -> bytes:
        if self._frames is not None:
            return self._frames.read(start, length)
        return read_at(self.descriptor, start, length)

    def pieces(self, size: int) -> Iterator[bytes]:
        """Its lines, so many bytes of them; of a packed one also what lies behind damage."""
        if self._frames is not None:
            yield from self._frames.each()
        else:
            yield self.read(0, size)

    def hold(self, kind: int, seconds: float) -> None:
        """Lock the file itself. Its lock file can be removed; then this one still excludes."""
        wait_for(lambda: try_flock(self.descriptor, kind, self.path), self.path, seconds)

    def let_go(self) -> None:
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self.descriptor)
        if self._frames is not None:
            let_go(self._frames)


class LeftBehind(Struct, frozen=True):
    """How the handle's last append left a thread's file: its size, its last bytes, their record."""

    key: str
    size: int
    last: bytes
    seq: int
    hash: str

    def found_in(self, file: ThreadFile, size: int) -> LeftBehind | None:
        """The same, as it is in a file now; None: it is not there.

        A file in which something was erased was written anew, and has the record elsewhere.
        """
        at = self.size - len(self.last)
        if size >= self.size and file.read(at, len(self.last)) == self.last:
            return self
        if file.header.version < ERASED_VERSION:
            return None
        end, id = file.start, file.header.draft.id.encode("utf-8")
        for text in file.read(end, size - end).split(b"\n")[:-1]:
            end += len(text) + 1
            if text.startswith(b'{"seq":%d,' % self.seq):
                if parse(id, text, file.path).hash != self.hash:
                    return None
                last = file.read(end - LAST_BYTES, LAST_BYTES)
                return LeftBehind(self.key, end, last, self.seq, self.hash)
        return None


def open_thread(path: str, id: str, *, husk: bool, readonly: bool) -> ThreadFile:
    """The file of a thread, plain or packed. FileNotFoundError if there is none."""
    for name in (path,) if husk else names_of(path):
        try:
            return ThreadFile(name, id, husk=husk, readonly=readonly)
        except FileNotFoundError:
            continue
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def look_at(path: str) -> os.stat_result:
    """How the file of a thread looks, plain or packed. FileNotFoundError if there is none."""
    try:
        return os.stat(path, follow_symlinks=False)  # as nearly always: each append looks twice
    except FileNotFoundError:
        pass
    for name in names_of(path):
        try:
            return os.stat(name, follow_symlinks=False)
        except FileNotFoundError:
            continue
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _first_line(data: bytes) -> bytes:
    line, newline, _ = data.partition(b"\n")
    return line if newline else b""


def _header(path: str, line: bytes) -> Header:
    version = declared_version(line)
    if version is not None and version > VERSION:
        raise FormatTooNew(path, found=version, known=VERSION)
    header = parse_header(line, f"{path} line 1")
    if header.source is not None and not 0 < header.source.seq <= SEQ_MAX:
        raise Corrupt(f"{path} line 1", "it says that it begins at a record that cannot be")
    return header


def open_regular(path: str, flags: int) -> int:
    """Open a file that must be a file: not a link, not a pipe, not a folder.

    Corrupt if it is not: that is damage of this thread, and no reason to refuse all others."""
    try:
        refuse_special(path)
    except Unsupported as error:
        raise Corrupt(path, NOT_A_FILE) from error
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        # A store that this user may not write, or on a read-only disk, can still be read.
        if error.errno in (errno.EACCES, errno.EROFS) and flags & os.O_RDWR:
            return open_regular(path, flags & ~os.O_RDWR)
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise Corrupt(path, NOT_A_FILE) from error
        if error.errno == errno.ENOENT:
            raise  # it has been packed, unpacked or purged since it was looked at
        text = f"{path} cannot be opened: {error.strerror}"
        raise Unavailable(text, retryable=error.errno in EXHAUSTED) from error
    return descriptor


def read_header(path: str) -> Header:
    """The header alone. FileNotFoundError if there is no file: it may have been purged."""
    for name in names_of(path):
        try:
            descriptor = open_regular(name, os.O_RDONLY | _SAFELY)
        except FileNotFoundError:
            continue
        try:
            if name.endswith(PACKED):
                data = first_bytes(descriptor, name, HEADER_BYTES_MAX)
            else:
                data = read_at(descriptor, 0, HEADER_BYTES_MAX)
            return _header(name, _first_line(data))
        finally:
            os.close(descriptor)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def stamp_of(stem: str, look: os.stat_result) -> int:
    """How a file looks from outside: if this is the same, it is taken to be the same.

    Its name is a part of it, so that a sum of stamps tells of a renamed file, too.
    """
    # A hash of integers is the same in every process, that of a string is not.
    return hash((crc32(stem.encode()), look.st_ino, look.st_size, look.st_mtime_ns))
