"""A property that is computed when it is first looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class cached(Generic[T]):  # used like property
    """A property that is computed once and kept. Unlike functools' it takes no lock in 3.11."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    def __get__(self, owner: Any, kind: type | None = None) -> T:
        if owner is None:
            return self  # type: ignore[return-value]
        value = owner.__dict__[self._name] = self._compute(owner)
        return value
