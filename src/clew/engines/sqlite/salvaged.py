"""The namespaces of a damaged SQLite store: what they are called, and what belongs to each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from clew.checks import check_namespace
from clew.engines.sqlite.query import Row
from clew.engines.sqlite.spaces import DEFAULT
from clew.errors import ClewError
from clew.salvage import SalvagedThread

if TYPE_CHECKING:
    from clew.engines.sqlite.remains import RemainingThread
    from clew.engines.sqlite.salvage import SQLiteSalvage

UNKNOWN = 0  # the number of the namespace of a thread whose row is lost


class Names:
    """What namespaces are called: rows say it, and the hash of a thread proves it."""

    def __init__(self, rows: Iterable[Row], more: Iterable[Row]) -> None:
        self._candidates: dict[int, list[str]] = {DEFAULT.no: [DEFAULT.name]}
        self._proved: dict[int, str] = {}
        self._add(rows)
        self.known = list(self._candidates)
        self._add(more)  # from where a damaged file may give out anything

    def _add(self, rows: Iterable[Row]) -> None:
        for no, name in rows:
            if isinstance(no, int) and no > DEFAULT.no and _is_name(name):
                self._candidates.setdefault(no, []).append(name)

    def candidates(self, no: int) -> Iterator[tuple[int, str]]:
        """What a thread may be in: what its row says comes first."""
        order = sorted(self._candidates, key=lambda other: other != no)
        return ((other, name) for other in order for name in self._candidates[other])

    def prove(self, no: int, name: str) -> None:
        self._proved.setdefault(no, name)

    def of(self, no: int) -> str:
        name = self._proved.get(no) or self._candidates.get(no, [""])[0]
        if name and self._bearer(name) == no:
            return name
        name = "lost" if no == UNKNOWN else f"lost-namespace-{no}"
        while self._bearer(name) is not None:
            name += "-"
        return name

    def _bearer(self, name: str) -> int | None:
        """Whose name it is, if several claim it."""
        proved = [no for no, own in self._proved.items() if own == name]
        claimed = [no for no, names in self._candidates.items() if name in names]
        return min(proved or claimed, default=None)

    @property
    def only(self) -> int | None:
        """The one that everything must be in, if there is only one."""
        return self.known[0] if len(self.known) == 1 else None


def _is_name(value: object) -> bool:
    try:
        return bool(check_namespace(value))
    except ClewError:
        return False


class NamespaceSalvage:
    """One namespace, as `clew.salvage.Salvage` wants it."""

    def __init__(
        self,
        found: SQLiteSalvage,
        no: int,
        namespace: str,
        threads: list[RemainingThread],
        notes: list[str],
    ) -> None:
        self._found = found
        self._no = no
        self._threads = threads
        self.namespace = namespace
        self.notes = notes

    @property
    def unverified(self) -> set[tuple[str, str]]:
        found = self._found.unverified
        return {(thread, entry) for no, thread, entry in found if no == self._no}

    def threads(self) -> list[SalvagedThread]:
        return list(self._threads)

    def blob(self, hash: str) -> bytes:
        return self._found.blob(self._no, hash)

    def loose_blobs(self) -> Iterator[str]:
        return self._found.loose_blobs(self._no)
