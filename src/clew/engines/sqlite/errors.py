"""apsw's errors as Clew's, in one place."""

from __future__ import annotations

import apsw

from clew.errors import ClewError, Corrupt, Unavailable, Unsupported

# What reading a damaged row may raise: SQLite's errors, ours, and values of the wrong type.
UNREADABLE = (apsw.Error, ClewError, ValueError, TypeError, AttributeError, OverflowError)


def translate(error: apsw.Error, place: str) -> ClewError:
    """What a failed statement means. The caller decides whether the handle is poisoned."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return Unavailable(f"{place} is being written by another process; nothing was written")
        case _ if _is_full(error):
            return Unavailable(f"the disk of {place} is full; nothing was written")
        case apsw.CorruptError():
            return Corrupt(place, f"SQLite says: {error}; run clew verify")
        case apsw.NotADBError():
            return Unsupported(f"{place} is not a SQLite file")
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.CantOpenError():
            return Unavailable(f"{place} cannot be written: {error}", retryable=False)
        case apsw.TooBigError():
            return Unavailable(f"a value is too large for SQLite: {error}", retryable=False)
        case _:
            return Unavailable(f"SQLite failed on {place}: {error}", retryable=False)


def _is_full(error: apsw.Error) -> bool:
    """On a full disk there may be no room even for the memory that a log's readers share."""
    no_room = getattr(error, "extendedresult", None) == apsw.SQLITE_IOERR_SHMSIZE
    return no_room or isinstance(error, apsw.FullError)


def poisons(error: apsw.Error) -> bool:
    """After a failed write or sync nobody knows what is on disk, and a later sync may lie."""
    return isinstance(error, apsw.IOError)
