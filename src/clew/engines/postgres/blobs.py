"""Blobs: bytes by their hash, compressed, stored once in a namespace."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from clew.core.codec import digest
from clew.core.errors import NotFound
from clew.core.removal import Swept
from clew.engines.postgres.rows import to_bytes
from clew.engines.postgres.wire import Wire, array
from clew.engines.shared.compression import Packed, unpack

if TYPE_CHECKING:
    from clew.engines.postgres.lookup import Book

SPILL_BYTES = 8 * 1024  # bodies over this are blobs
SWEEP_PAGE = 5000
SWEEP_SECONDS = 0.005  # that a transaction which removes blobs should hold writers off
SWEEP_LEAST = 50  # at a time: on a busy machine a few would take the time of many
LOAD_BYTES = 64 * 1024 * 1024


def columns(packed: Sequence[Packed]) -> tuple[list[Any], ...]:
    """Blobs as the arrays that the server's functions take; each of them once."""
    once = list({blob.hash: blob for blob in packed}.values())
    return (
        [to_bytes(blob.hash) for blob in once],
        array(blob.size for blob in once),
        [blob.codec for blob in once],
        [to_bytes(digest(blob.data)) for blob in once],
        [blob.data for blob in once],
    )


_PUT = "SELECT clew.put_blobs(%s, %b::bytea[], %b::bigint[], %b::text[], %b::bytea[], %b::bytea[])"


def put(wire: Wire, book: Book, packed: Sequence[Packed]) -> None:
    """All or none; in several statements only if one would be too long for the server."""
    loads = list(_loads(packed))
    with wire.transaction() if len(loads) > 1 else nullcontext():
        for load in loads:
            wire.execute(book.sql(_PUT), (book.space, *columns(load)))


def _loads(packed: Sequence[Packed]) -> Iterator[list[Packed]]:
    load: list[Packed] = []
    weight = 0
    # By hash, so that two writers of the same blobs cannot each wait for what the other holds.
    for blob in sorted(packed, key=lambda blob: blob.hash):
        if load and weight + len(blob.data) > LOAD_BYTES:
            yield load
            load, weight = [], 0
        load.append(blob)
        weight += len(blob.data)
    if load:  # one way: nobody loads nothing
        yield load


def weigh(packed: Iterable[Packed]) -> int:
    return sum(len(blob.data) for blob in packed)


def get(wire: Wire, book: Book, hash: str) -> bytes:
    row = wire.one(
        book.sql("SELECT size, codec, data FROM clew.get_blob(%s, %s)"),
        (book.space, to_bytes(hash)),
    )
    if row is None:
        raise NotFound("blob", hash)
    return unpack(hash, *row)


def has(wire: Wire, book: Book, hashes: Iterable[str]) -> set[str]:
    wanted = {to_bytes(hash): hash for hash in hashes}
    found = wire.every(
        book.sql("SELECT * FROM clew.has_blobs(%s, %s::bytea[])"), (book.space, list(wanted))
    )
    return {wanted[hash] for (hash,) in found}


# --- sweeping ---


def renew(wire: Wire, book: Book, hashes: Sequence[str]) -> set[str]:
    """Those that are stored; they are young again for sweep."""
    wanted = {to_bytes(hash): hash for hash in hashes}
    sql = "SELECT * FROM clew.renew_blobs(%s, %s::bytea[])"
    return {wanted[hash] for (hash,) in wire.every(book.sql(sql), (book.space, list(wanted)))}


def unused(wire: Wire, book: Book, before_us: int, after: bytes) -> list[bytes]:
    """One page of the blobs that no record uses and that were put before a time, by hash."""
    sql = "SELECT * FROM clew.unused_blobs(%s, %s, %s, %s)"
    found = wire.every(book.sql(sql), (book.space, before_us, after, SWEEP_PAGE))
    return [bytes(hash) for (hash,) in found]


def remove(wire: Wire, book: Book, hashes: Sequence[bytes], before_us: int) -> tuple[Swept, float]:
    """Remove blobs, as far as they are still unused and old; and since when writers wait.

    Only a writer waits that is about to use one of these.
    """
    held = time.monotonic()
    sql = "SELECT removed, size_bytes FROM clew.sweep_blobs(%s, %s::bytea[], %s)"
    row = wire.one(book.sql(sql), (book.space, list(hashes), before_us))
    assert row is not None
    return Swept(blobs=row[0], size_bytes=row[1]), held
