"""A store whose namespaces have nothing in common: each is opened and checked by itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import closing

from msgspec.structs import replace

from clew.core.engine import Engine, Progress
from clew.core.errors import ClewError
from clew.core.model import DEFAULT_NAMESPACE, Problem, Stats


class OneByOne(ABC):
    """The part of `Maintenance` that goes from namespace to namespace.

    An engine's own class says which there are (`_names`) and how one is opened (`_open`).
    """

    place: str
    _held: Engine | None = None

    @abstractmethod
    def _names(self) -> Iterable[str]: ...

    @abstractmethod
    def _open(self, namespace: str) -> Engine: ...

    def namespaces(self) -> list[str]:
        return self._in_order({self._hold().properties.namespace, *self._names()})

    def check(
        self,
        *,
        namespace: str | None = None,
        quick: bool = False,
        progress: Progress | None = None,
    ) -> Iterator[Problem]:
        if namespace is not None:
            with closing(self._open(namespace)) as engine:
                yield from engine.check(quick=quick, progress=progress)
            return
        held, count = self._hold(), _Count(progress)
        first = held.properties.namespace
        yield from _named(first, held.check(quick=quick, progress=count))
        for name in self.namespaces():
            if name == first:
                continue
            count.next()
            # One namespace that cannot be opened must not keep the rest from being checked.
            try:
                with closing(self._open(name)) as engine:
                    yield from _named(name, engine.check(quick=quick, progress=count))
            except ClewError as error:
                yield Problem(code="unreadable", message=str(error), namespace=name)

    def stats(self, *, namespace: str | None = None) -> Stats:
        names = self.namespaces() if namespace is None else [namespace]
        found: list[Stats] = []
        for name in names:
            with closing(self._open(name)) as engine:
                found.append(engine.stats())
        fields = Stats.__struct_fields__
        return Stats(**{name: sum(getattr(part, name) for part in found) for name in fields})

    def close(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    def _hold(self) -> Engine:
        """An engine of the first namespace, open until `close`: meanwhile no repair can begin."""
        if self._held is None:
            names = self._in_order(self._names())
            self._held = self._open(names[0] if names else DEFAULT_NAMESPACE)
        return self._held

    @staticmethod
    def _in_order(names: Iterable[str]) -> list[str]:
        return sorted(names, key=lambda name: (name != DEFAULT_NAMESPACE, name))


def _named(namespace: str, problems: Iterable[Problem]) -> Iterator[Problem]:
    """Problems with their namespace, unless it is the default one, which reports do not name."""
    for problem in problems:
        yield problem if namespace == DEFAULT_NAMESPACE else replace(problem, namespace=namespace)


class _Count:
    """Progress that goes on counting from one namespace to the next."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._before = self._total = 0

    def __call__(self, done: int, total: int) -> None:
        self._total = self._before + total
        if self._progress is not None:
            self._progress(self._before + done, self._total)

    def next(self) -> None:
        self._before = self._total
