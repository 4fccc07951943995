"""Shrinking: every table is written anew, so that its files have nothing but the rows that are.

A row that is changed or removed stays in its page as an earlier version. A plain VACUUM gives its
room free without overwriting it, and an index of words keeps every word for ever. VACUUM FULL
copies what is there into new files, table by table, each one locked meanwhile. It has to copy what
a transaction may still see that began earlier; it says how many rows those are.
"""

from __future__ import annotations

import re
import time

from psycopg.errors import Diagnostic, LockNotAvailable

from clew.core.engine import PackResult
from clew.core.errors import Unavailable, Unsupported
from clew.engines.postgres.address import ServerAddress
from clew.engines.postgres.migrate import attached
from clew.engines.postgres.wire import Wire

_TABLES = """
SELECT c.oid::bigint, c.oid::regclass::text, pg_has_role(c.relowner, 'USAGE')
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relkind = 'r' ORDER BY c.relname
"""
_SIZE = "SELECT coalesce(sum(pg_total_relation_size(o)), 0)::bigint FROM unnest(%s::oid[]) AS o"


def shrink(
    address: ServerAddress,
    *,
    lock_seconds: float | None,
    max_seconds: float | None,
) -> PackResult:
    """Write the tables of all namespaces anew. Unsupported: the role is not their owner.

    No table is waited for longer than `lock_seconds`, since others wait behind it; None, where a
    setting would stay with a connection that others use, waits as long as it takes.
    """
    until = None if max_seconds is None else time.monotonic() + max_seconds
    with attached(address, float("inf")) as wire:
        tables = wire.every(_TABLES, (address.schema,))
        if not all(owned for _, _, owned in tables):
            raise Unsupported(
                f"{address.place}: the tables can be written anew by their owner alone, and "
                f"{wire.info.user!r} is not; let the owner run: clew pack --shrink"
            )
        if lock_seconds is not None:
            wire.execute(f"SET lock_timeout = {round(lock_seconds * 1000)}")
        oids = [oid for oid, _, _ in tables]
        before = wire.value(_SIZE, (oids,))
        left: int | None = 0
        for done, (_, name, _) in enumerate(tables):
            if until is not None and time.monotonic() >= until:
                return PackResult(left_rows=None, complete=False)
            found = _rewrite(wire, name, address.place, f"{done} of {len(tables)}")
            left = None if found is None or left is None else left + found
        freed = before - wire.value(_SIZE, (oids,))
    return PackResult(shrunk_bytes=max(0, freed), left_rows=left)


def _rewrite(wire: Wire, table: str, place: str, done: str) -> int | None:
    """How many rows were copied that are not there any more; None if the server does not say."""
    details: list[str] = []

    def note(said: Diagnostic) -> None:
        details.append(said.message_detail or "")  # read at once: it is gone with the answer

    wire.add_notice_handler(note)
    try:
        wire.execute(f"VACUUM (FULL, VERBOSE) {table}")
        wire.execute(f"ANALYZE {table}")
    except LockNotAvailable as error:
        raise Unavailable(
            f"{place}: others hold the table {table}; {done} tables were written anew. Try again "
            "when no long transaction, backup or migration is at work",
            retryable=True,
            committed=True,
        ) from error
    finally:
        wire.remove_notice_handler(note)
    # Only the line about the table has a detail, and that begins with the number, in any language.
    numbers = [re.match(r"\d+", detail) for detail in details]
    counts = [int(number[0]) for number in numbers if number is not None]
    return counts[0] if len(counts) == 1 else None
