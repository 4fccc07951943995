"""A store whose namespaces have nothing in common: they are looked at one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing

from msgspec.structs import replace

from clew.core.engine import Engine, Progress
from clew.core.errors import ClewError
from clew.core.model import DEFAULT_NAMESPACE, Problem, Stats


class OneByOne:
    """A store whose namespaces have nothing in common: they are looked at one after the other."""

    def __init__(
        self, place: str, names: Callable[[], Iterable[str]], open: Callable[[str], Engine]
    ) -> None:
        self.place = place
        self._names = names
        self._open = open
        self._first = min(names(), key=_default_first, default=DEFAULT_NAMESPACE)
        self._held = open(self._first)

    def namespaces(self) -> list[str]:
        return sorted({self._first, *self._names()}, key=_default_first)

    def check(self, *, quick: bool = False, progress: Progress | None = None) -> Iterator[Problem]:
        count = _Count(progress)
        yield from _of(self._first, self._held.check(quick=quick, progress=count))
        for name in self._others():
            count.next()
            try:
                with closing(self._open(name)) as engine:
                    yield from _of(name, engine.check(quick=quick, progress=count))
            except ClewError as error:
                yield Problem(code="unreadable", message=str(error), namespace=name)

    def stats(self) -> Stats:
        found = [self._held.stats()]
        for name in self._others():
            with closing(self._open(name)) as engine:
                found.append(engine.stats())
        return _together(found)

    def _others(self) -> list[str]:
        return [name for name in self.namespaces() if name != self._first]

    def close(self) -> None:
        self._held.close()


def _default_first(name: str) -> tuple[bool, str]:
    return name != DEFAULT_NAMESPACE, name


def _of(namespace: str, problems: Iterable[Problem]) -> Iterator[Problem]:
    """As they are named: the default one is not."""
    for problem in problems:
        yield problem if namespace == DEFAULT_NAMESPACE else replace(problem, namespace=namespace)


class _Count:
    """Goes on counting from one namespace to the next."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._before = self._total = 0

    def __call__(self, done: int, total: int) -> None:
        self._total = self._before + total
        if self._progress is not None:
            self._progress(self._before + done, self._total)

    def next(self) -> None:
        self._before = self._total


def _together(parts: list[Stats]) -> Stats:
    names = Stats.__struct_fields__
    return Stats(**{name: sum(getattr(part, name) for part in parts) for name in names})
