"""Opening the files of threads with care: a store's folder may hold anything."""

from __future__ import annotations

import errno
import os
import stat

from clew.engines.files.lines import Header, parse_header
from clew.errors import Unavailable, Unsupported

HEADER_BYTES_MAX = 32 * 1024


def open_regular(path: str, flags: int) -> int:
    """Open a file that must be a file: not a link, not a pipe, not a folder."""
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EROFS) and flags & os.O_RDWR:
            return open_regular(path, flags & ~os.O_RDWR)
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise Unsupported(f"{path} must be a file, and no link, folder or pipe") from error
        raise Unavailable(f"{path} cannot be opened: {error.strerror}", retryable=False) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Unsupported(f"{path} must be a file, and no link, folder or pipe")
    return descriptor


def read_header(path: str) -> Header:
    if not os.path.lexists(path):
        raise FileNotFoundError(path)
    descriptor = open_regular(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        line, newline, _ = os.pread(descriptor, HEADER_BYTES_MAX, 0).partition(b"\n")
    finally:
        os.close(descriptor)
    return parse_header(line if newline else b"", f"{path} line 1")
