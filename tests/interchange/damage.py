"""A store in which the body of an entry is no JSON any more."""

from __future__ import annotations

from pathlib import Path

import apsw


def spoil(store: Path, entry: str, body: bytes = b"{") -> None:
    """Put other bytes into the place of a body, as a bad disk would."""
    with apsw.Connection(str(store)) as db:
        db.execute("UPDATE records SET body = ? WHERE id = ?", (body, entry))
        assert db.changes() == 1
