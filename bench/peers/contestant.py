"""What the benchmark asks of a store, Clew's or a peer's."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from bench.messages import Message


class Contestant(Protocol):
    """One opened store with one conversation in it."""

    label: str
    length: int  # how many messages the conversation grows to; fewer where growth is slow

    def __init__(self, path: Path) -> None: ...

    def prepare(self, batch: list[Message]) -> list[Any]:
        """The messages in the store's own types. This is not measured."""
        ...

    def append_all(self, prepared: list[Any]) -> None:
        """Append one by one, each durable before the next."""
        ...

    def fill(self, prepared: list[Any]) -> None:
        """Append all by the shortest way there is, for the sake of loading them."""
        ...

    def crowd(self, prepared: list[Any]) -> None:
        """Make a conversation of its own of each message, beside this one, by the shortest way."""
        ...

    def load(self) -> int:
        """Read the whole conversation as the framework does to resume it; how many messages."""
        ...

    def close(self) -> None: ...
