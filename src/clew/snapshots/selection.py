"""The paths that a restore is limited to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from clew.errors import InvalidInput, NotFound
from clew.snapshots.manifest import name_problem


class Selection:
    """The paths that a restore is limited to, with all below them; None stands for everything.

    `above` are places on the way to them that count as well, but only themselves: a folder that
    had to be made for a path, or a file that had to make room for it.
    """

    def __init__(self, paths: Sequence[str] | None, above: Iterable[str] = ()) -> None:
        if isinstance(paths, str):
            raise InvalidInput("paths", "must be a list of paths")
        self._paths = None if paths is None else _outermost({_checked(path) for path in paths})
        self._above = {_checked(path) for path in above}
        self._names: dict[str, set[str]] = {}
        for path in (self._paths or set()) | self._above:
            self._lead_to(path)
        self._met: set[str] = set()

    def _lead_to(self, path: str) -> None:
        while path:
            folder, _, name = path.rpartition("/")
            self._names.setdefault(folder, set()).add(name)
            path = folder

    @property
    def paths(self) -> tuple[str, ...] | None:
        """The outermost ones, in order; None for everything."""
        return None if self._paths is None else tuple(sorted(self._paths))

    def holds(self, path: str) -> bool:
        """Whether a path is one of them, or lies in one of them."""
        if self._paths is None:
            return True
        while path and path not in self._paths:
            path = path.rpartition("/")[0]
        if path:
            self._met.add(path)
        return bool(path)

    def covers(self, path: str) -> bool:
        """Whether a path may be changed itself, whatever becomes of what lies in it."""
        return self.holds(path) or path in self._above

    def leads_to(self, path: str) -> bool:
        """Whether one of them lies below a path."""
        return path in self._names

    def names_in(self, folder: str) -> set[str] | None:
        """The names in a folder that lead to one of them; None: all that are in it."""
        return None if self.holds(folder) else self._names.get(folder, set())

    def below(self, folder: str) -> list[str]:
        """Those that lie below a folder."""
        return [path for path in self._paths or () if path.startswith(folder + "/")]

    def check(self) -> None:
        """NotFound for a path that was met neither here nor there."""
        for path in sorted((self._paths or set()) - self._met):
            raise NotFound("file", path)


def _checked(path: str) -> str:
    if not isinstance(path, str):
        raise InvalidInput("paths", f"must be text, not {path!r}")
    path = path.rstrip("/") if path != "/" else path
    if path in ("", "."):
        return ""
    for name in path.split("/"):
        problem = name_problem(name)
        if problem is not None:
            raise InvalidInput("paths", f"{path!r} does not lie inside of the root: {problem}")
    return path


def _outermost(paths: set[str]) -> set[str] | None:
    """Without those that lie in another one; None if the top itself is among them."""
    if "" in paths:
        return None
    return {path for path in paths if not paths & set(_parents(path))}


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts))]
