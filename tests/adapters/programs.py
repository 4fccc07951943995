"""Random programs that are given to two stores at once: a framework's own one, and ours."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import pytest
from amounts import amount
from places import ADDRESSES

import clew

A = TypeVar("A")

# On each engine, how many programs. One is the same in every run.
AMOUNTS = {"sqlite": (12, 600), "files": (6, 300), "postgres": (4, 100)}


class Ours(Generic[A]):
    """A store that may be closed and opened again, and adapters on it that take turns."""

    def __init__(self, address: str, namespace: str, make: Callable[[clew.Store], A]) -> None:
        self._address, self._namespace, self._make = address, namespace, make
        self.store = clew.open(address, namespace=namespace)
        self.adapters: list[A] = []

    def begin(self, random: random.Random) -> None:
        self.random = random
        self.adapters = [self._make(self.store) for _ in range(random.randint(1, 2))]

    @property
    def any(self) -> A:
        return self.random.choice(self.adapters)

    def reopen(self) -> None:
        self.store.close()
        self.store = clew.open(self._address, namespace=self._namespace)
        self.adapters = [self._make(self.store) for _ in self.adapters]


def each(
    request: pytest.FixtureRequest,
    engine: str,
    make: Callable[[clew.Store], A],
    program: Callable[[random.Random, Ours[A]], None],
) -> None:
    """Run the programs of an engine, each in a namespace of its own. A failure names its seed."""
    address = ADDRESSES[engine](request)
    for seed in range(amount(*AMOUNTS[engine])):
        ours = Ours(address, f"n{seed}", make)
        try:
            dice = random.Random(seed)
            ours.begin(dice)
            program(dice, ours)
            assert ours.store.verify() == []
        except BaseException as error:
            error.add_note(f"seed {seed} on {engine}")
            raise
        finally:
            ours.store.close()


def same(ours: Any, theirs: Any) -> None:
    """Assert that two values are equal, of the same types, and in the same order."""
    assert typed(ours) == typed(theirs)


def typed(value: Any) -> Any:
    """A value in which 1, 1.0 and True are three, and tuples are lists, as in JSON."""
    if isinstance(value, dict):
        return {key: typed(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [typed(part) for part in value]
    return (type(value).__name__, value) if isinstance(value, int | float) else value
