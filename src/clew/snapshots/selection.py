"""The paths that a restore is limited to."""

from __future__ import annotations

from collections.abc import Sequence

from clew.errors import InvalidInput, NotFound
from clew.snapshots.manifest import name_problem


class Selection:
    """The paths that a restore is limited to; None stands for all of them."""

    def __init__(self, paths: Sequence[str] | None) -> None:
        if isinstance(paths, str):
            raise InvalidInput("paths", "must be a list of paths")
        self._paths = None if paths is None else _outermost({_checked(path) for path in paths})
        self._above = {up for path in self._paths or () for up in _parents(path)}
        self._met: set[str] = set()

    def covers(self, path: str) -> bool:
        """Whether a path is one of them, or lies in one of them."""
        if self._paths is None:
            return True
        met = self._paths & {path, *_parents(path)}
        self._met |= met
        return bool(met)

    def leads_to(self, path: str) -> bool:
        """Whether one of them lies below a path."""
        return path in self._above

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
