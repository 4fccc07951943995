"""What the records of a thread add up to: for engines that keep such sums beside the records."""

from __future__ import annotations

from typing import Any

from clew.core.codec import decode
from clew.core.errors import Corrupt
from clew.core.model import Entry, Fact, Move, Origin


class Sums:
    """Takes a thread's records in their order, and knows what its row should say."""

    def __init__(self, created_us: int, origin: Origin | None) -> None:
        self.seq = 0
        self.leaf = None if origin is None else origin.entry
        self.leaf_hash = None if origin is None else origin.hash
        self.tail: Entry | None = None  # the last entry
        self.updated_us = created_us
        self._facts: dict[str, Fact] = {}

    def lacks(self, seq: int) -> str | None:
        """What is missing before a record; None if it follows the one before it."""
        if seq == self.seq + 1:
            return None
        return f"records {self.seq + 1} to {seq - 1} are missing"

    def continues(self, entry: Entry) -> bool:
        """Whether an entry continues the segment, as a child of the entry before it."""
        return self.tail is not None and entry.parent == self.tail.id

    def take_entry(self, entry: Entry) -> None:
        self.seq = entry.seq
        self.tail = entry
        self.leaf, self.leaf_hash = entry.id, entry.hash
        self.updated_us = entry.time_us

    def take_move(self, move: Move, leaf_hash: str | None) -> None:
        self.seq = move.seq
        self.leaf, self.leaf_hash = move.leaf, leaf_hash
        self.updated_us = move.time_us

    def take_fact(self, fact: Fact) -> None:
        self.seq = fact.seq
        self._facts[fact.key] = fact

    @property
    def facts(self) -> dict[str, Fact]:
        """The latest of each key, without those that were removed."""
        return {key: fact for key, fact in self._facts.items() if fact.data != b"null"}

    def value(self, key: str) -> Any:
        """A fact's value. Corrupt if it cannot be read, which its record was reported for."""
        fact = self._facts.get(key)
        return None if fact is None else decode(fact.data)

    def tags(self) -> set[str]:
        tags = self.value("tags") or []
        if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
            raise Corrupt("the fact tags", "it is not a list of names")
        return set(tags)

    def head(self) -> dict[str, Any]:
        """The columns that hold a sum, with what should be in them."""
        return {
            "seq": self.seq,
            "leaf": self.leaf,
            "leaf_hash": self.leaf_hash,
            "tail": None if self.tail is None else self.tail.id,
            "updated_us": self.updated_us,
            "archived": bool(self.value("archived")),
            "deleted_us": self.value("deleted_us"),
            "status": self.value("status"),
            "workspace": self.value("workspace"),
        }
