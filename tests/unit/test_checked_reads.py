"""Reads that are checked on the way out notice an end that is not there."""

from __future__ import annotations

from typing import Any

import pytest

import clew
from clew.core.checked_reads import check_reads


def test_a_log_whose_newest_records_are_not_given_out_is_damage() -> None:
    with clew.open("memory:") as store:
        thread = store.create("t")
        for n in range(3):
            thread.append("event", n)
        read = store.engine.read

        class Short:
            """An engine whose pages lack the end of the log, though it is there."""

            def __getattr__(self, name: str) -> Any:
                return getattr(store.engine, name)

            def read(self, thread: str, *, after: int = 0, limit: int = 1000) -> list[Any]:
                found = read(thread, after=after, limit=limit)
                return found if limit <= 2 else [record for record in found if record.seq < 3]

        engine: Any = Short()
        assert len(check_reads(store.engine).read("t")) == 3
        with pytest.raises(clew.Corrupt, match="it is missing"):
            check_reads(engine).read("t")
