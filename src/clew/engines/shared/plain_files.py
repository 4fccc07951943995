"""Files as they may be in a store from others: mostly holes, no files at all, folders without end.

What counts is what was written of a file. Its size says nothing: a file of a terabyte that is one
hole takes no room, and reading it takes all of the memory, or copying it all of the disk.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress

from clew.core.errors import Corrupt

HOLES_BYTES_MAX = 16 * 1024 * 1024  # a loss of power may leave some; more are no accident
_PIECE_BYTES = 1024 * 1024
_SAFELY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def extents(descriptor: int) -> Iterator[tuple[int, int]]:
    """The beginning and the end of each part of a file that was written; it moves the offset."""
    size, end = os.fstat(descriptor).st_size, 0
    while end < size:
        try:
            begin = os.lseek(descriptor, end, os.SEEK_DATA)
            end = os.lseek(descriptor, begin, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:  # this file system cannot tell
                yield end, size
            return
        yield begin, end


def written_bytes(descriptor: int) -> int:
    """How much of a file was written."""
    return sum(end - begin for begin, end in extents(descriptor))


def refuse_hollow(descriptor: int, place: str, size: int | None = None) -> None:
    """Corrupt if a file is mostly holes. `size` is that of the file, if it is known."""
    size = os.fstat(descriptor).st_size if size is None else size
    if size <= HOLES_BYTES_MAX:
        return
    written = written_bytes(descriptor)
    if size - written > HOLES_BYTES_MAX:
        raise Corrupt(place, f"of its {size:,} bytes only {written:,} were ever written")


def read_at(descriptor: int, start: int, length: int) -> bytes:
    """So many bytes of a file, or as many as there are. Short reads happen: then it goes on."""
    data = os.pread(descriptor, length, start)
    while len(data) < length:
        more = os.pread(descriptor, length - len(data), start + len(data))
        if not more:
            break
        data += more
    return data


def copy_file(source: str, target: str) -> int:
    """Copy what was written of a file, which must be one; how much that is. Holes stay holes."""
    reader = os.open(source, os.O_RDONLY | _SAFELY)
    try:
        look = os.fstat(reader)
        if not stat.S_ISREG(look.st_mode):
            raise OSError(errno.EINVAL, "it must be a file, and no link, folder, pipe or device")
        writer = os.open(target, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | _SAFELY, 0o600)
        try:
            copied = 0
            for begin, end in extents(reader):
                # Until nothing comes: it may have been cut meanwhile.
                while data := os.pread(reader, min(_PIECE_BYTES, end - begin), begin):
                    begin += os.pwrite(writer, data, begin)
                    copied += len(data)
            os.ftruncate(writer, look.st_size)
            return copied
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def copy_tree(
    source: str, target: str, *, depth: int, left_out: Callable[[str, list[str]], set[str]]
) -> int:
    """Copy folders and plain files, so many folders deep and no deeper; how much was written."""
    copied = 0
    todo = [(source, target, depth)]
    while todo:
        here, there, left = todo.pop()
        os.mkdir(there, 0o700)
        names = os.listdir(here)
        for name in sorted({*names} - left_out(here, names)):
            mode = os.lstat(f"{here}/{name}").st_mode
            if stat.S_ISDIR(mode) and left > 0:
                todo.append((f"{here}/{name}", f"{there}/{name}", left - 1))
            elif stat.S_ISREG(mode):
                copied += copy_file(f"{here}/{name}", f"{there}/{name}")
    return copied


def remove_tree(path: str) -> None:
    """Remove a folder with all that is in it, however deep that goes; no link is followed.

    Each folder inside is brought up to the top before it is looked into: neither a path nor the
    stack grows with the depth.
    """
    top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        todo: list[str] = []
        _empty(top, top, todo)
        while todo:
            name = todo.pop()
            folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
            try:
                _empty(folder, top, todo)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(path)


def _empty(folder: int, top: int, todo: list[str]) -> None:
    """Unlink the files of a folder, and bring its folders up."""
    for name in os.listdir(folder):
        if not stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
            os.unlink(name, dir_fd=folder)
            continue
        new = f".{os.urandom(8).hex()}"
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=top)
        todo.append(new)


def remove_tree_quietly(path: str) -> None:
    """The same for what may stay, if it has to: a copy, or a cache."""
    with suppress(OSError):
        remove_tree(path)
