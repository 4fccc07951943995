"""What is left of what was removed for good: tombstones in the store, receipts for its owner."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Tombstone(Struct, frozen=True, gc=False):
    """What is left where a body and a meta were erased: when, and what the entry's hash needs.

    `meta_hash` is the hash of the meta that stood there, None if there was none, and `format` that
    of the body. `size_bytes` counts what was removed, and `stand_in` is what readers see instead.
    """

    time_us: int
    size_bytes: int
    meta_hash: str | None
    format: str | None
    stand_in: bytes


class Erased(Struct, frozen=True, kw_only=True):
    """An entry whose body and meta are not there any more, and what is known of them.

    `thread` is the one that it was written in. `recorded`: its log tells of it, as it does unless
    that thread was purged. `blobs` are those that the entry names. `log_bytes` are in a log that
    could not be emptied because others were reading; None: the engine cannot tell. `pages_left`:
    copies may lie in pages of a file that are wiped later.
    """

    thread: str
    entry: str
    time_us: int
    hash: str
    body_hash: str
    meta_hash: str | None
    size_bytes: int
    blobs: tuple[str, ...] = ()
    recorded: bool = True
    log_bytes: int | None = 0
    pages_left: bool = False


class Removed(Struct, frozen=True, kw_only=True):
    """An entry of which the body is not there any more: all that may be kept of it."""

    thread: str
    entry: str
    hash: str
    body_hash: str


class Checked(Struct, frozen=True, kw_only=True):
    """A place that was looked at after something was removed.

    `left` counts what was found there: 0 is nothing, and None that it cannot be told from here.
    `note` says what it is, or why not.
    """

    place: str
    left: int | None
    note: str | None = None


class Repeat(Struct, frozen=True, kw_only=True):
    """A record that may say again what was erased: an entry, or a fact of that key; and why."""

    thread: str
    record: str
    how: str
    fact: str | None = None


class Receipt(Struct, frozen=True, kw_only=True):
    """What was removed for good, when, and where it was looked for afterwards.

    The store keeps none: it would name what was removed. It is a JSON document of yours to keep;
    `clew erased` takes it and proves later that nothing is there. `entries` have the hashes of what
    is gone, and `blobs` are blobs that went with it. `repeats` are records that were not erased
    and may say the same: a summary of it, a title made of it. `kept` entries of a purged thread
    stay because forks share them.
    """

    id: str
    what: Literal["purge", "erase"]
    time_us: int
    store: str
    namespace: str
    threads: tuple[str, ...]
    entries: tuple[Removed, ...]
    records: int
    size_bytes: int
    blobs: tuple[str, ...] = ()
    kept: int = 0
    kept_for: tuple[str, ...] = ()
    reason: str | None = None
    checked: tuple[Checked, ...] = ()
    repeats: tuple[Repeat, ...] = ()
    format: str = "clew.receipt"
    version: int = 1

    @property
    def left(self) -> tuple[Checked, ...]:
        """The places where something was left, or where that cannot be told."""
        return tuple(one for one in self.checked if one.left != 0)


class Purged(Struct, frozen=True, kw_only=True):
    """What a purge removed, and what stays because forks still need it.

    `children` are the threads whose parent it was. `Store.purge` names them, and gives the
    `receipt`; engines do not look. `log_bytes` and `pages_left` are as in `Erased`.
    """

    thread: str
    records: int
    kept: int
    kept_for: tuple[str, ...]
    children: tuple[str, ...] = ()
    log_bytes: int | None = 0
    pages_left: bool = False
    receipt: Receipt | None = None


class Swept(Struct, frozen=True, kw_only=True):
    blobs: int
    size_bytes: int
