"""Every error that Clew raises on purpose.

    ClewError
    ├── NotFound        there is no such thread, entry or blob (or it is deleted)
    ├── AlreadyExists   a thread with this id is there already
    ├── Conflict        another writer was first: the leaf or the id's content differs
    ├── LeaseHeld       another owner has the right to write this thread until a time
    ├── LeaseLost       the lease that you write under is over or was taken over
    ├── InvalidInput    the call itself is wrong; nothing was read or written
    ├── TooLarge        a value is over its limit
    ├── Corrupt         stored data is not what was written
    ├── Unsupported     this place, library or address cannot be used
    ├── FormatTooNew    the store was written by a newer Clew
    ├── ReadOnly        the store is open for looking only, or may be read but not written
    ├── Unavailable     the storage cannot answer now
    └── Closed          the handle was closed, or is unusable in this process

`code` and `retryable` are for programs; the other fields say what a caller needs to act.
`committed` says what was left behind: False nothing, True everything, None unknown
(retry with the same ids: what is there already is not written twice).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

__all__ = [
    "AlreadyExists",
    "ClewError",
    "Closed",
    "Conflict",
    "Corrupt",
    "FormatTooNew",
    "InvalidInput",
    "LeaseHeld",
    "LeaseLost",
    "NotFound",
    "ReadOnly",
    "TooLarge",
    "Unavailable",
    "Unsupported",
]


MESSAGE_MAX = 4000  # characters
_END = 500


def shortened(message: str) -> str:
    """A message without its middle, if it is too long: it may quote a stored value of any size."""
    if len(message) <= MESSAGE_MAX:
        return message
    return f"{message[: MESSAGE_MAX - _END]} … {message[-_END:]}"


class ClewError(Exception):
    """The root. Catch it to catch everything that Clew raises on purpose."""

    code: ClassVar[str] = "error"
    retryable: bool = False
    committed: bool | None = False

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(shortened(message))  # `fields` have all of it
        self.fields = fields
        for name, value in fields.items():
            setattr(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        # Keyword fields do not survive the default pickling, and errors cross process pools.
        return _rebuild, (type(self), self.args[0], self.fields)


def _rebuild(kind: type[ClewError], message: str, fields: dict[str, Any]) -> ClewError:
    error = kind.__new__(kind)
    ClewError.__init__(error, message, **fields)
    return error


class NotFound(ClewError):
    """There is no such thing. `deleted_at` is set when it is only deleted and can be restored.

    `erased_at`: it was there, and what it said was removed for good.
    """

    code = "not_found"
    what: str
    id: str
    deleted_at: datetime | None
    erased_at: datetime | None = None

    def __init__(
        self,
        what: str,
        id: str,
        *,
        deleted_at: datetime | None = None,
        erased_at: datetime | None = None,
    ) -> None:
        text = f"{what} {id!r} was not found"
        if deleted_at is not None:
            text = (
                f"{what} {id!r} was deleted at {deleted_at:%Y-%m-%d %H:%M:%S %Z}; restore it first"
            )
        if erased_at is not None:
            text = f"{what} {id!r} was erased for good at {erased_at:%Y-%m-%d %H:%M:%S %Z}"
        more = {} if erased_at is None else {"erased_at": erased_at}
        super().__init__(text, what=what, id=id, deleted_at=deleted_at, **more)


class AlreadyExists(ClewError):
    """A thread with this id is there already, perhaps as a deleted one."""

    code = "already_exists"
    what: str
    id: str
    deleted_at: datetime | None

    def __init__(self, what: str, id: str, *, deleted_at: datetime | None = None) -> None:
        tail = "" if deleted_at is None else " (deleted, but it can be restored)"
        super().__init__(
            f"{what} {id!r} exists already{tail}", what=what, id=id, deleted_at=deleted_at
        )


class Conflict(ClewError):
    """Another writer was first. Read again and decide; a blind retry would hide its work.

    `field` names what differs: leaf (the thread stands elsewhere, or a move goes elsewhere); kind,
    body, parent, turn, format, meta or blobs of an entry; key or value of a fact; type (the id is
    that of another sort of record); hash (of a fork's origin); seq, compaction, files or root.
    """

    code = "conflict"
    field: str | None
    expected: Any
    actual: Any

    def __init__(
        self, message: str, *, expected: Any, actual: Any, field: str | None = None, **more: Any
    ) -> None:
        super().__init__(message, field=field, expected=expected, actual=actual, **more)


class LeaseHeld(ClewError):
    """Another owner may write this thread until `until`."""

    code = "lease_held"
    retryable = True
    thread: str
    owner: str
    until: datetime

    def __init__(self, thread: str, *, owner: str, until: datetime) -> None:
        super().__init__(
            f"thread {thread!r} is leased by {owner!r} until {until:%Y-%m-%d %H:%M:%S %Z}; if that "
            "is a turn of your own, write through it (turn.append, turn.rewind, …)",
            thread=thread,
            owner=owner,
            until=until,
        )


class LeaseLost(ClewError):
    """The fence given is not the live one: the lease expired, was released or was taken over."""

    code = "lease_lost"
    thread: str
    fence: int
    current: int | None

    def __init__(self, thread: str, *, fence: int, current: int | None) -> None:
        state = "no lease is live" if current is None else f"fence {current} is the live one"
        super().__init__(
            f"the lease with fence {fence} on thread {thread!r} is over ({state}); "
            "nothing was written; acquire it again and re-read the thread",
            thread=thread,
            fence=fence,
            current=current,
        )


class InvalidInput(ClewError):
    """The call is wrong. `field` names the argument, `path` the place inside of it."""

    code = "invalid_input"
    field: str
    path: str | None

    def __init__(self, field: str, reason: str, *, path: str | None = None, **more: Any) -> None:
        place = field if path is None else f"{field} at {path}"
        super().__init__(f"{place}: {reason}", field=field, path=path, reason=reason, **more)


class TooLarge(ClewError):
    """A value is over its limit; nothing was written."""

    code = "too_large"
    field: str
    size: int
    limit: int

    def __init__(self, field: str, *, size: int, limit: int) -> None:
        super().__init__(
            f"{field} has {size:,} bytes, the limit is {limit:,}",
            field=field,
            size=size,
            limit=limit,
        )


class Corrupt(ClewError):
    """Stored data is not what was written. `place` says where; `clew verify` lists everything."""

    code = "corrupt"
    place: str

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}", place=place, reason=reason)


class Unsupported(ClewError):
    """This address, place or library cannot carry a store."""

    code = "unsupported"


class FormatTooNew(ClewError):
    """The store was written by a newer Clew; nothing was touched. Upgrade Clew to open it."""

    code = "format_too_new"
    found: int
    known: int

    def __init__(self, place: str, *, found: int, known: int) -> None:
        super().__init__(
            f"{place} has format {found}, this Clew knows up to {known}; upgrade Clew to open it",
            place=place,
            found=found,
            known=known,
        )


class ReadOnly(ClewError):
    """A write to a store that can only be read; nothing was touched.

    `operation` was refused, because the store was opened with `readonly=True`. Or the store could
    not be opened for writing (None), and `reason` is what the system said to that.
    """

    code = "read_only"
    place: str
    operation: str | None
    reason: str | None

    def __init__(
        self, place: str, *, operation: str | None = None, reason: str | None = None
    ) -> None:
        if operation is not None:
            text = f"{place} is open read-only: {operation} was refused, and nothing was changed"
        else:
            text = f"{place} may not be written ({reason}); to look at it, open it with "
            text += "readonly=True"
        super().__init__(text, place=place, operation=operation, reason=reason)


class Unavailable(ClewError):
    """The storage cannot answer now. Look at `committed` before you write again."""

    code = "unavailable"

    def __init__(
        self, message: str, *, retryable: bool = True, committed: bool | None = False
    ) -> None:
        super().__init__(message, retryable=retryable, committed=committed)


class Closed(ClewError):
    """The handle cannot be used any more; open the store again."""

    code = "closed"
