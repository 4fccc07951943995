"""Clew itself, as the peers are measured."""

from __future__ import annotations

from pathlib import Path

import clew
from bench.messages import Message
from bench.workshop import extend


class ClewStore:
    label = "Clew"
    length = 1000

    def __init__(self, path: Path) -> None:
        self._path = path
        self._store = clew.open(path)
        self._thread = self._store.create()

    def prepare(self, batch: list[Message]) -> list[Message]:
        return batch

    def append_all(self, prepared: list[Message]) -> None:
        for message in prepared:
            self._thread.append_message(message)

    def fill(self, prepared: list[Message]) -> None:
        extend(self._thread, prepared)

    def crowd(self, prepared: list[Message]) -> None:
        with clew.open(self._path, durability="relaxed") as store:
            for message in prepared:
                store.create().append_message(message)

    def load(self) -> int:
        return len([entry.body for entry in self._thread.path()])

    def close(self) -> None:
        self._store.close()
