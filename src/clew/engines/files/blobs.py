"""Blobs: files named by their hash, in folders named by its first two digits."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress

from msgspec import Struct

from clew.core.errors import ClewError, Corrupt, NotFound, Unavailable, Unsupported
from clew.engines.files.disk import EXHAUSTED, NOT_A_FILE, Disk, is_folder, refuse_special
from clew.engines.files.place import Place, remove_quietly, write_aside
from clew.engines.shared.compression import BLOB_BYTES_MAX, Packed, frame_size, unpack
from clew.engines.shared.plain_files import refuse_hollow

SPILL_BYTES = 64 * 1024  # bodies over this are blobs; the rest can be read in the thread's file
_HASH = re.compile(r"b3:[0-9a-f]{64}")
_FILE = re.compile(r"[0-9a-f]{62}(\.zst)?")
_FOLDER = re.compile(r"[0-9a-f]{2}")
_ENDINGS = {"raw": "", "zstd": ".zst"}


class Stored(Struct, frozen=True):
    """A blob's file."""

    hash: str
    path: str
    codec: str
    size: int  # of the file
    put_us: int


class Blobs:
    """The blobs of a store. Every read checks the bytes against their hash."""

    def __init__(self, place: Place, disk: Disk) -> None:
        self._place = place
        self._disk = disk
        self._plain: set[str] = set()  # folders that are no links
        self._lasting: set[str] = set()  # folders whose own names are on disk
        self.owed: set[str] = set()  # folders with names that a caller was told of
        self._mutex = threading.Lock()

    def find(self, hash: str) -> Stored | None:
        if _HASH.fullmatch(hash) is None:
            return None
        folder = self._folder(hash)
        if folder not in self._plain and os.path.lexists(folder):
            if not is_folder(folder):
                raise Corrupt(folder, "it must be a folder, and no link")
            self._plain.add(folder)
        for codec, ending in _ENDINGS.items():
            path = f"{folder}/{hash[5:]}{ending}"
            try:
                return _stored(hash, path, codec, os.lstat(path))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise Corrupt(path, f"the blob cannot be read: {error.strerror}") from error
        return None

    def has(self, hashes: Iterable[str]) -> set[str]:
        """Those that are there. A name is seen before it is on disk: see `settle`."""
        found = {hash for hash in hashes if self.find(hash) is not None}
        with self._mutex:
            self.owed |= {self._folder(hash) for hash in found}
        return found

    def renew(self, hashes: Iterable[str], now_us: int) -> set[str]:
        """The same; and they are young again for sweep. Needs the gate open."""
        found = self.has(hashes)
        for hash in found:
            stored = self.find(hash)
            assert stored is not None  # the gate keeps it from being removed
            os.utime(stored.path, ns=(now_us * 1000, now_us * 1000), follow_symlinks=False)
        return found

    def settle(self) -> None:
        """Sync the names of blobs that were said to be there, before anything is acknowledged.

        The writer that put them may have died before that, or not have come to it yet.
        """
        with self._mutex:
            for folder in sorted(self.owed):
                self._disk.sync_folder(folder)
            self.owed = set()

    def get(self, hash: str) -> bytes:
        stored = self.find(hash)
        if stored is None:
            raise NotFound("blob", hash)
        return self.load(stored)

    def load(self, stored: Stored) -> bytes:
        data = _read(stored.path)
        size = frame_size(stored.hash, data) if stored.codec == "zstd" else len(data)
        return unpack(stored.hash, size, stored.codec, data)

    def put_all(self, blobs: list[Packed], now_us: int) -> None:
        """Each is written and synced aside; they get their names; then the names are synced."""
        new: dict[str, str] = {}  # the name that each will get → where it is now
        folders = {self._folder(blob.hash) for blob in blobs}
        try:
            self._make_folders(folders)
            for blob in blobs:
                folder = self._folder(blob.hash)
                path = f"{folder}/{blob.hash[5:]}{_ENDINGS[blob.codec]}"
                if path not in new and not self._renew(blob.hash, path, now_us):
                    new[path] = write_aside(self._disk, folder, blob.data)
            # Names come after all contents are synced: a name never leads to half a blob.
            for path in list(new):
                os.utime(new[path], ns=(now_us * 1000, now_us * 1000))
                self._disk.rename(new[path], path)
                del new[path]
            # Also those of blobs that were there: their writer may not have come to this yet.
            for folder in sorted(folders):
                self._disk.sync_folder(folder)
        except BaseException:
            # Those that have their names stay: another writer may rely on them already, and what no
            # record refers to is swept.
            for temporary in new.values():
                remove_quietly(self._disk, temporary)
            raise

    def _renew(self, hash: str, path: str, now_us: int) -> bool:
        """Whether a sound one is there: it is young again for sweep. A damaged one is removed."""
        stored = self.find(hash)
        if stored is None:
            return False
        if self._is_sound(stored):
            os.utime(stored.path, ns=(now_us * 1000, now_us * 1000))
            return True
        if stored.path != path:
            self._disk.unlink(stored.path)
        return False

    def _make_folders(self, folders: set[str]) -> None:
        """Also those that are there: the writer that made them may not have come to the sync."""
        fresh = folders - self._lasting
        for folder in sorted(fresh):
            if not os.path.lexists(folder):
                with suppress(FileExistsError):
                    self._disk.make_folder(folder)
            if not is_folder(folder):
                raise Unsupported(f"{folder} must be a folder, and no link")
        if fresh:
            self._disk.sync_folder(self._place.blobs)
            self._lasting |= fresh

    def _is_sound(self, stored: Stored) -> bool:
        try:
            self.load(stored)
        except Corrupt:
            return False
        return True

    def remove(self, hash: str) -> None:
        stored = self.find(hash)
        if stored is not None:  # one way: unless another process was faster
            remove_quietly(self._disk, stored.path)

    def all(self) -> Iterator[Stored]:
        if not os.path.isdir(self._place.blobs):
            return  # a store that is only looked at may lack it
        for folder in sorted(os.listdir(self._place.blobs)):
            path = f"{self._place.blobs}/{folder}"
            if _FOLDER.fullmatch(folder) is None or not is_folder(path):
                continue
            for name in sorted(os.listdir(path)):
                if _FILE.fullmatch(name):
                    codec = "zstd" if name.endswith(".zst") else "raw"
                    hash = f"b3:{folder}{name.removesuffix('.zst')}"
                    yield _stored(hash, f"{path}/{name}", codec, os.lstat(f"{path}/{name}"))

    def strange(self) -> Iterator[str]:
        """What has the name of a folder of blobs, and is none: nothing is looked for in there."""
        if is_folder(self._place.blobs):
            for name in sorted(os.listdir(self._place.blobs)):
                path = f"{self._place.blobs}/{name}"
                if _FOLDER.fullmatch(name) and not is_folder(path):
                    yield path

    def size_of(self, stored: Stored) -> int:
        """How many bytes a blob has, by what its file says of itself; a bad one, as it lies there.

        One bad blob must not keep the others from being counted or swept.
        """
        if stored.codec == "raw":
            return stored.size
        try:
            return frame_size(stored.hash, _read(stored.path, 32))
        except ClewError:
            return stored.size

    def _folder(self, hash: str) -> str:
        return f"{self._place.blobs}/{hash[3:5]}"


def _stored(hash: str, path: str, codec: str, found: os.stat_result) -> Stored:
    return Stored(hash, path, codec, found.st_size, found.st_mtime_ns // 1000)


def _read(path: str, size: int = -1) -> bytes:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        refuse_special(path)
        with os.fdopen(os.open(path, flags), "rb") as file:
            if size < 0:
                refuse_hollow(file.fileno(), path)
                # Room is made for as much as is said here, before anything is read: so it is no
                # more than the file has. What is larger than the most is no blob of ours.
                size = min(os.fstat(file.fileno()).st_size, BLOB_BYTES_MAX) + 1
            return file.read(size)
    except Unsupported as error:
        raise Corrupt(path, f"the blob {NOT_A_FILE}") from error
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise Unavailable(f"{path} cannot be read: {error.strerror}") from error
        raise Corrupt(path, f"the blob cannot be read: {error.strerror}") from error
