"""The folder of a store: its marker, its rooms, the names of its files, and who has it open.

Each namespace but the default one is a folder of its own inside it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
from blake3 import blake3
from msgspec import Struct

from clew.core.codec import new_id
from clew.core.errors import (
    ClewError,
    Corrupt,
    FormatTooNew,
    NotFound,
    ReadOnly,
    Unavailable,
    Unsupported,
)
from clew.core.lines import MARKER, UNREADABLE
from clew.core.model import DEFAULT_NAMESPACE
from clew.core.names import check_namespace, file_stem
from clew.engines.files.disk import EXHAUSTED, Disk, GuardedDisk, is_folder, refuse_special
from clew.engines.files.locks import EXCLUSIVE, SHARED, FileLock
from clew.engines.shared.file_system import UNWRITABLE, may, refuse_network

FORMAT = "clew.files"
VERSION = 2  # the highest that is known; a store in which nothing was packed says 1
PACKED_VERSION = 2
ROOMS = ("threads", "purged", "blobs", "locks", "index", "index/changed", "recovered")
NAMESPACES = "namespaces"
MARKER_BYTES_MAX = 64 * 1024
_IGNORED_BY_GIT = "/index/\n/locks/\n.*.new\n"

LINES = ".jsonl"  # the ending of a thread's file
PACKED = ".zst"  # and what comes behind it when it is packed
STEM_MAX = 180  # with an ending and a time stamp it stays below the 255 bytes of a file name
_HEAD = 100
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_")
_VERSION_1 = re.compile(rb'"version"\s*:\s*1(?=\s*[,}])')
_STEM = re.compile(r"[a-z0-9%_~-]+")
_ESCAPED = [chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in range(256)]
_DEVICES = {"con", "prn", "aux", "nul"} | {
    f"{port}{n}" for port in ("com", "lpt") for n in range(10)
}


class _Marker(Struct):
    format: str
    version: int
    namespace: str | None = None


class Place:
    """Where things lie in a store's folder. Paths are strings: they are made at every append."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.threads = f"{self.root}/threads"
        self.purged = f"{self.root}/purged"
        self.blobs = f"{self.root}/blobs"
        self.locks = f"{self.root}/locks"
        self.index = f"{self.root}/index/index.db"
        self.changed = f"{self.root}/index/changed"
        self.recovered = f"{self.root}/recovered"

    def thread(self, id: str) -> str:
        return self.named(file_stem(id))

    def named(self, stem: str) -> str:
        """The file of the thread that has this name."""
        return f"{self.threads}/{stem}{LINES}"

    def husk(self, key: str) -> str:
        """What forks still need of a purged thread. The key was read from a file: it is checked."""
        if not (key.isascii() and key.isalnum()):
            raise Corrupt(f"{self.purged}", f"{key!r} is not the key of a thread")
        return f"{self.purged}/{key}{LINES}"

    def lock(self, id: str) -> str:
        return f"{self.locks}/{anonymous(id)}"

    def mark(self, id: str) -> str:
        return f"{self.changed}/{file_stem(id)}"

    def restore_index(self) -> None:
        """Make its folder again; the index itself is made when a store is next opened."""
        os.makedirs(self.changed, 0o700, exist_ok=True)


def prepare(
    root: Path, disk: Disk, *, create: bool, namespace: str | None = None, readonly: bool = False
) -> Place:
    """Make sure that the folder is a store of ours, or say why it is not.

    With `readonly` nothing is made, not even rooms that are missing: git keeps no empty folders.
    """
    place = Place(root)
    try:
        if root.exists() and not root.is_dir():
            raise Unsupported(f"{root} is a file, not a folder; a store of files is a folder")
        if not (root / MARKER).exists():
            _make(root, disk, namespace, create=create)
        found = read_marker(root / MARKER).namespace
        if namespace is not None and found not in (None, namespace):
            raise Corrupt(str(root / MARKER), f"it is the folder of namespace {found!r}")
        refuse_network(root)
        _make_rooms(root, disk, readonly=readonly)
    except OSError as error:
        if not readonly and error.errno in UNWRITABLE and may(root / MARKER, os.R_OK):
            raise ReadOnly(str(root), reason=os.strerror(error.errno)) from error
        text = f"{root} cannot be opened: {error.strerror}"
        raise Unavailable(text, retryable=False) from error
    return place


def _make(root: Path, disk: Disk, namespace: str | None, *, create: bool) -> None:
    if not create:
        raise (
            NotFound("store", str(root)) if namespace is None else NotFound("namespace", namespace)
        )
    missing = [folder for folder in (root, *root.parents) if not folder.exists()]
    for folder in reversed(missing):
        try:
            disk.make_folder(str(folder))
        except FileExistsError:  # no test: between two calls of the system
            pass  # another process makes the same store at the same time
        disk.sync_folder(str(folder.parent))
    refuse_network(root)
    # What an interrupted making of a store may leave, or another process is about to finish.
    ours = (".gitignore", MARKER)
    foreign = [n for n in os.listdir(root) if n not in ours and not n.endswith(".new")]
    if (root / MARKER).exists():  # no test: another process makes it between two looks
        return
    if foreign:
        text = (
            f"{root} is not a Clew store, and not empty (it has {foreign[0]!r}): nothing was done"
        )
        raise Unsupported(text)
    about = "A store of Clew: one JSONL file for each thread, in threads/. See docs/format.md."
    marker = {"format": FORMAT, "version": 1, "about": about}
    if namespace is not None:
        marker["namespace"] = namespace
    # The marker comes last: a folder without it holds nothing yet.
    put_file(disk, str(root), ".gitignore", _IGNORED_BY_GIT.encode())
    put_file(disk, str(root), MARKER, msgspec.json.encode(marker) + b"\n")


def put_file(disk: Disk, folder: str, name: str, data: bytes) -> None:
    """A whole file under a name, durably, or nothing under it."""
    temporary = write_aside(disk, folder, data)
    try:
        disk.rename(temporary, f"{folder}/{name}")
    except BaseException:
        remove_quietly(disk, temporary)
        raise
    disk.sync_folder(folder)


def write_aside(disk: Disk, folder: str, data: bytes) -> str:
    """A durable file that has no name of its own yet; its path."""
    temporary = f"{folder}/.{new_id()}.new"
    try:
        descriptor = disk.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        try:
            write_all(disk, descriptor, data)
            disk.sync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        remove_quietly(disk, temporary)
        raise
    return temporary


def write_all(disk: Disk, descriptor: int, data: bytes) -> None:
    """Short writes happen: go on until all is written, or an error says why not."""
    written = disk.write(descriptor, data)
    while written < len(data):
        written += disk.write(descriptor, data[written:])


def remove_quietly(disk: Disk, path: str) -> None:
    try:
        disk.unlink(path)
    except OSError:
        pass  # the error that led here is the one that matters


def read_marker(path: Path) -> _Marker:
    refuse_special(str(path))
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        data = os.read(descriptor, MARKER_BYTES_MAX)
    finally:
        os.close(descriptor)
    try:
        marker = msgspec.json.decode(data, type=_Marker)
    except UNREADABLE as error:
        raise Corrupt(str(path), f"the format marker cannot be read: {error}") from error
    if marker.format != FORMAT or marker.version < 1:
        raise Unsupported(f"{path.parent} is not a Clew store of files: {path.name} says otherwise")
    if marker.version > VERSION:
        raise FormatTooNew(str(path.parent), found=marker.version, known=VERSION)
    return marker


def declare_packed(root: str, disk: GuardedDisk) -> None:
    """Have the marker say that there are packed files, before the first one gets its name.

    One digit of it is written over. It stays the same file, which those that have the store open
    hold a lock on.
    """
    path = f"{root}/{MARKER}"
    if read_marker(Path(path)).version >= PACKED_VERSION:
        return
    refuse_special(path)
    descriptor = disk.open(path, os.O_RDWR)
    try:
        data = os.pread(descriptor, MARKER_BYTES_MAX, 0)
        found = _VERSION_1.search(data)
        at, digit = found.end() - 1 if found else 0, b"%d" % PACKED_VERSION
        try:
            said = msgspec.json.decode(data[:at] + digit + data[at + 1 :], type=_Marker).version
        except UNREADABLE:
            said = 0
        if said != PACKED_VERSION:
            raise Unsupported(f"{path} does not say its version as Clew writes it: nothing is done")
        disk.write_at(descriptor, digit, at)
        disk.sync(descriptor, always=True)
    finally:
        os.close(descriptor)


def check_rooms(root: Path) -> list[str]:
    """Those that are missing. Unsupported if one is a link: nothing is reached through it."""
    missing = [room for room in ROOMS if not os.path.lexists(root / room)]
    for room in ROOMS:
        if room not in missing and not is_folder(f"{root}/{room}"):
            raise Unsupported(f"{root / room} must be a folder, and no symbolic link")
    return missing


def _make_rooms(root: Path, disk: Disk, *, readonly: bool) -> None:
    missing = check_rooms(root)
    if readonly:
        return
    for room in missing:
        with suppress(FileExistsError):
            disk.make_folder(str(root / room))
    if missing:
        disk.sync_folder(str(root))


def in_use(places: Iterable[Place], *, readonly: bool = False) -> list[FileLock]:
    """Held, shared, as long as a store is open, so that `repair` knows whether it is alone."""
    refusal = "is being repaired; open it when that is done"
    return _hold(places, SHARED, refusal, readonly=readonly)


def alone(places: Iterable[Place]) -> list[FileLock]:
    """The same locks for one process alone: no other has the store open, nor can open it."""
    return _hold(places, EXCLUSIVE, "is in use; close every program that has it open")


def _hold(
    places: Iterable[Place], kind: int, refusal: str, *, readonly: bool = False
) -> list[FileLock]:
    held: list[FileLock] = []
    try:
        for place in places:
            try:
                held.append(FileLock(f"{place.locks}/open", readonly=readonly))
            except ReadOnly as error:
                raise ReadOnly(place.root, reason=f"{error.place}: {error.reason}") from error
            # Locks can be removed while they are held. The marker is there as long as the store,
            # unless it is this that is to be repaired.
            marker = f"{place.root}/{MARKER}"
            if os.path.lexists(marker):
                held.append(FileLock(marker, readonly=readonly, make=False))
            if not all(lock.try_take(kind) for lock in held[-2:]):
                raise Unavailable(f"{place.root} {refusal}")
    except BaseException:
        release(held)
        raise
    return held


def release(locks: Iterable[FileLock]) -> None:
    for lock in locks:
        lock.close()


# --- file names for thread ids; `file_stem` makes them ---


def stem_of(path: str) -> str:
    """The name of a thread's file, or of what is left of one, without its folder and ending."""
    return os.path.basename(path).removesuffix(PACKED).removesuffix(LINES)


def is_there(path: str) -> bool:
    """Whether a thread has a file, plain or packed. `path` is that of the plain one."""
    return any(os.path.lexists(name) for name in names_of(path))


def names_of(path: str) -> tuple[str, ...]:
    """The names to look for a thread's file under, in this order, by that of the plain one.

    Where both are there, the plain one is it. While one is looked for, the thread may be packed,
    or unpacked; the new name comes before the old one goes. So who finds neither looks again.
    """
    return (path, path + PACKED) * 2


def is_stem(name: str) -> bool:
    """Whether a name can be one of these."""
    return _STEM.fullmatch(name) is not None


def unescaped(stem: str) -> str:
    """The id that a name was made of, if it was not too long."""
    data = re.sub(rb"%([0-9a-f]{2})", lambda m: bytes.fromhex(m[1].decode()), stem.encode())
    return data.decode("utf-8", "replace")


def anonymous(id: str) -> str:
    """A name that does not tell the id: lock files outlive what is purged."""
    return blake3(id.encode("utf-8")).hexdigest()[:40]


# --- namespaces as folders: each but the default one is a store of its own ---


def home(root: Path, namespace: str) -> Path:
    """The folder that a namespace has."""
    if namespace == DEFAULT_NAMESPACE:
        return root
    return root / NAMESPACES / file_stem(namespace)


def enter(
    root: Path, namespace: str, disk: Disk, *, create: bool, readonly: bool = False
) -> list[Place]:
    """The place of a namespace, made if need be; behind it the one that it lies in, if any."""
    above = prepare(root, disk, create=create, readonly=readonly)
    if namespace == DEFAULT_NAMESPACE:
        return [above]
    folder = home(root, namespace)
    for part in (root / NAMESPACES, folder):
        if os.path.lexists(part) and not is_folder(str(part)):
            raise Unsupported(f"{part} must be a folder, and no symbolic link")
    inside = prepare(folder, disk, create=create, namespace=namespace, readonly=readonly)
    return [inside, above]


def namespaces(root: Path) -> dict[str, Path]:
    """Every namespace with its folder, the default one first.

    The name stands in the marker. If that cannot be read, the folder's own name tells it.
    """
    found = {DEFAULT_NAMESPACE: root}
    if not is_folder(f"{root}/{NAMESPACES}"):
        return found
    try:
        folders = [path for path in (root / NAMESPACES).iterdir() if _is_folder(path)]
    except OSError as error:
        text = f"the namespaces of {root} cannot be listed: {error.strerror}"
        raise Unavailable(text, retryable=error.errno in EXHAUSTED) from error
    for name, folder in sorted((_name_of(folder), folder) for folder in folders):
        found.setdefault(name, folder)
    return found


def _is_folder(path: Path) -> bool:
    if not is_stem(path.name) or not is_folder(str(path)):
        return False
    return (path / MARKER).exists() or is_folder(f"{path}/threads")


def _name_of(folder: Path) -> str:
    try:
        name = check_namespace(read_marker(folder / MARKER).namespace)
        if file_stem(name) == folder.name:
            return name
    except (ClewError, OSError):
        pass
    name = unescaped(folder.name)
    return name if file_stem(name) == folder.name else f"lost-{folder.name[-32:]}"
