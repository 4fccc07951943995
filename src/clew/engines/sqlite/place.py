"""Where a SQLite store may lie: local, private, and safe for the SQLite that is loaded."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import apsw

from clew.core.errors import NotFound, ReadOnly, Unavailable, Unsupported
from clew.engines.shared import file_system
from clew.engines.shared.file_system import refuse_network, sync_folder

# Before this version two connections that write and checkpoint at once could corrupt a
# database (the WAL-reset bug), so an older library gets a store for itself alone.
SAFE_VERSION = 3_051_003


def prepare(path: Path, *, create: bool) -> None:
    """Make sure that there is a private file in a local folder, or say why there is not."""
    inspect(path, create=create)
    refuse_unwritable(path)
    try:
        missing = [folder for folder in path.parents if not folder.is_dir()]
        for folder in reversed(missing):
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)
            sync_folder(folder.parent)
        refuse_network(path.parent)
        # Only ever a fresh file: closing a descriptor of a database that this process has open
        # would drop the locks that SQLite holds on it.
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
        with suppress(FileExistsError):  # another process may be a moment faster
            os.close(os.open(path, flags, 0o600))
    except OSError as error:
        raise Unavailable(f"{path} cannot be opened: {error.strerror}", retryable=False) from error


def inspect(path: Path, *, create: bool) -> None:
    """Whether what is there can be a store, as far as its name and its kind tell."""
    if not create and not path.exists():
        raise NotFound("store", str(path))
    if path.is_dir():
        raise Unsupported(f"{path} is a folder, not a SQLite file")
    _refuse_other_than_file(lock_of(path))
    real = os.path.realpath(path)  # where SQLite puts its files
    if os.path.lexists(f"{real}-journal"):
        # SQLite carries out what it says. One that names a further journal made SQLite before
        # 3.53.3 delete the file of that name, wherever it is.
        raise Unsupported(
            f"there is a rollback journal beside {path}, which Clew never makes and SQLite would "
            f"carry out; nothing was opened. If the store came from others, delete {real}-journal. "
            "If another program has changed the store, let that program open it once"
        )
    refuse_other_log(path)


def refuse_other_log(path: Path) -> None:
    """A log or an index that is not the store's own: SQLite would read and write it."""
    real = os.path.realpath(path)
    owner = os.stat(real).st_uid if os.path.exists(real) else None
    for companion in (Path(f"{real}-wal"), Path(f"{real}-shm")):
        found = _refuse_other_than_file(companion)
        if found is None:
            continue
        if found.st_nlink > 1:
            raise Unsupported(f"{companion} has a second name (a hard link), and would be written")
        if owner not in (None, found.st_uid):
            raise Unsupported(
                f"{companion} belongs to user {found.st_uid}, and {path} to user {owner}; a store "
                "and its log must have the same owner"
            )


def refuse_unwritable(path: Path) -> None:
    """Before anything is touched: a store that can be read, but not written."""
    if not path.exists() or not file_system.may(path, os.R_OK):
        return  # then there is another reason, which opening it tells
    real = os.path.realpath(path)
    for file in (path, Path(f"{real}-wal"), Path(f"{real}-shm"), lock_of(path)):
        if file_system.may(file, os.W_OK):
            continue
        # It is there, or is made in its folder. Others who close the store take its log away at
        # any moment, so whether it is there is asked after what they would make look like a no.
        what = file if file.exists() else file.parent
        if not file_system.may(what, os.W_OK):
            raise ReadOnly(str(path), reason=file_system.refusal(what))


def _refuse_other_than_file(path: Path) -> os.stat_result | None:
    """A pipe would make SQLite wait for ever, and a link lead its writes somewhere else."""
    try:
        found = path.lstat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise Unsupported(f"{path} must be a file, and no link, folder or pipe")
    return found


Id = tuple[int, int]  # device and inode: which file it is, whatever it is called


def which(path: str) -> Id | None:
    """The file that has this name now; None: there is none.

    It is only looked at: closing a descriptor of it would drop the locks that SQLite has on it.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


_TICK_NS = 20_000_000  # the clock of a file system may be that coarse
_WHOLE_SECONDS_NS = 2_000_000_000  # and this coarse where it counts in seconds


def is_settled(time_ns: int) -> bool:
    """Whether a file's time is so long ago that another change would not leave the same time."""
    coarse = time_ns % 1_000_000_000 == 0
    return abs(time.time_ns() - time_ns) > (_WHOLE_SECONDS_NS if coarse else _TICK_NS)


class Names:
    """The files of a store, by their names, as they were found: `gone` tells when one is another.

    That is asked in every transaction, so it costs one look at most times: a name cannot be taken
    away or given to another file without a new time of the folder.
    """

    def __init__(self, path: Path, files: Iterable[tuple[str, Id | None]]) -> None:
        self.files = tuple(files)
        self._folder = str(path.parent)
        self._is_link = path.is_symlink()  # it may be led elsewhere, in whatever folder it is
        self._seen: tuple[int, int, int] | None = None

    def gone(self) -> str | None:
        """The first name that does not lead any more to the file that it did."""
        try:
            folder = os.stat(self._folder)
        except OSError:
            return self.files[0][0]
        seen = (folder.st_dev, folder.st_ino, folder.st_ctime_ns)
        if seen == self._seen:
            return None
        for name, known in self.files:
            if which(name) != known:
                return name
        if is_settled(seen[2]) and not self._is_link:
            self._seen = seen
        return None


def library_version() -> int:
    """The loaded SQLite, as 3054001 for 3.54.1."""
    major, minor, patch = (int(part) for part in apsw.sqlite_lib_version().split("."))
    return major * 1_000_000 + minor * 1000 + patch


def lock_of(path: Path) -> Path:
    """Beside the file itself, like SQLite's own: all who open it, by whatever link, have one."""
    return Path(f"{os.path.realpath(path)}-lock")


class HostLock:
    """A lock beside the store: shared by safe libraries, exclusive for an unsafe one.

    It lies in a file of its own, because closing any descriptor of a database file would drop
    the locks that SQLite has on it. To look at a store, `readonly`, it is never made, and one that
    may not be opened is done without; what is only read is safe with every library.
    """

    def __init__(self, path: Path, library: int | None = None, *, readonly: bool = False) -> None:
        library = library_version() if library is None else library
        self._descriptor: int | None = None
        self.shared = True
        try:
            import fcntl
        except ImportError:  # no test: Windows, where processes cannot be told apart by it
            return
        lock = lock_of(path)
        flags = os.O_RDONLY if readonly else os.O_CREAT | os.O_RDWR
        try:
            self._descriptor = os.open(lock, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            if readonly and isinstance(error, FileNotFoundError | PermissionError):
                return
            text = f"{lock} cannot be opened: {error.strerror}"
            raise Unavailable(text, retryable=False) from error
        safe = self.shared = readonly or library >= SAFE_VERSION
        self._kind = fcntl.LOCK_SH if safe else fcntl.LOCK_EX
        if not self.try_usual():
            self.close()
            raise Unsupported(_refusal(path, library, safe))

    def try_usual(self) -> bool:
        """Hold it as long as the store is open, if no other process is in the way."""
        return self._descriptor is None or _try_lock(self._descriptor, self._kind)

    def try_alone(self) -> bool:
        """Hold it alone, if no other process holds it. Otherwise it is not held at all."""
        if self._descriptor is None:  # no test: Windows, as above
            return True
        import fcntl

        # Let go first: two processes that both try would never get it from each other.
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        return _try_lock(self._descriptor, fcntl.LOCK_EX)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def open_lock(path: str, store: str, mode: int) -> int:
    """The file of the host's lock once more, for other locks in it; -1: it is done without.

    It is there already, and is only ever locked: one that is missing, a link, no file, or another
    user's is not taken.
    """
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return -1
        owner = os.stat(store).st_uid
        descriptor = os.open(path, mode | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return -1
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_uid == owner:
        return descriptor
    os.close(descriptor)
    return -1


def _try_lock(descriptor: int, kind: int) -> bool:
    import fcntl

    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _refusal(path: Path, library: int, safe: bool) -> str:
    if safe:
        return (
            f"{path} is in use by a process with an old SQLite that must be alone with it; "
            "upgrade apsw there"
        )
    version = f"{library // 1_000_000}.{library // 1000 % 1000}.{library % 1000}"
    return (
        f"SQLite {version} can corrupt a store that several processes write, and {path} is in use "
        "by another one; install the apsw wheel, which brings 3.53.3 or newer"
    )
