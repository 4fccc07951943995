"""Reading files as they are: one call may give less than was asked for, and closing may fail."""

from __future__ import annotations

import os


def read_all(descriptor: int, size_max: int) -> bytes:
    """All that is there, up to a size."""
    data = os.read(descriptor, size_max)
    while data and len(data) < size_max:
        more = os.read(descriptor, size_max - len(data))
        if not more:
            break
        data += more
    return data


def close(descriptor: int) -> None:
    """Of something that was only read: it is gone, and nothing is lost, even if that fails."""
    try:
        os.close(descriptor)
    except OSError:
        pass
