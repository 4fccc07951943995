"""What apsw's errors mean, as ours, and what must be done when one comes."""

from __future__ import annotations

import apsw

from clew.core.errors import ClewError, Corrupt, ReadOnly, Unavailable, Unsupported

# What reading a damaged row may raise: SQLite's errors, ours, and values of the wrong type.
UNREADABLE = (apsw.Error, ClewError, ValueError, TypeError, AttributeError, OverflowError)


def translate(error: apsw.Error, place: str) -> ClewError:
    """What a failed statement means. The caller decides whether the handle is poisoned."""
    # On a full disk there may be no room even for the memory that a log's readers share.
    no_room = getattr(error, "extendedresult", None) == apsw.SQLITE_IOERR_SHMSIZE
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return Unavailable(f"{place} is being written by another process; nothing was written")
        case _ if no_room or isinstance(error, apsw.FullError):
            return Unavailable(f"the disk of {place} is full; nothing was written")
        case apsw.CorruptError():
            return Corrupt(place, f"SQLite says: {error}; run clew verify")
        case apsw.NotADBError():
            return Unsupported(f"{place} is not a SQLite file")
        case apsw.ReadOnlyError():
            return ReadOnly(place, reason=str(error))
        case apsw.PermissionsError() | apsw.CantOpenError():
            return Unavailable(f"{place} cannot be opened: {error}", retryable=False)
        case apsw.TooBigError():
            return Unavailable(f"a value is too large for SQLite: {error}", retryable=False)
        case _:
            return Unavailable(f"SQLite failed on {place}: {error}", retryable=False)


def poisons(error: apsw.Error) -> bool:
    return isinstance(error, apsw.IOError)


def let_go(error: Exception) -> None:
    """End what was being read when an error came up in the middle of it.

    The error may be kept for long, in a report for one, and it knows the frames that it came
    through. A statement that waits there for its next row would keep its view of the store, and
    with it every checkpoint from emptying the log. So does the error that it was made of.
    """
    import traceback

    reason: BaseException | None = error
    while reason is not None:
        traceback.clear_frames(reason.__traceback__)
        reason = reason.__cause__ or reason.__context__
