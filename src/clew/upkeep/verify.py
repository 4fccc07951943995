"""Verify: read everything in a store, namespace by namespace, and name what is not as written."""

from __future__ import annotations

import os
from contextlib import closing

from msgspec import Struct

from clew.address import maintenance
from clew.core.engine import Progress
from clew.core.errors import ClewError, Corrupt
from clew.core.maintenance import Maintenance
from clew.core.model import Problem, Stats


class VerifyReport(Struct, frozen=True, kw_only=True):
    """What a verification found. `whole`: nothing is wrong in what was read.

    `namespaces` are those that were looked at. `stats` counts what there is to read; None if the
    store is too damaged to be counted. `readable` is False if the store could not be opened at
    all: then `problems` has that one problem. `repairs`: whether `clew.repair` can help.
    """

    place: str
    namespaces: list[str]
    problems: list[Problem]
    stats: Stats | None
    readable: bool = True
    repairs: bool = False

    @property
    def whole(self) -> bool:
        """Whether there is no problem."""
        return not self.problems


def verify(
    address: str | os.PathLike[str] | None = None,
    *,
    namespace: str | None = None,
    quick: bool = False,
    progress: Progress | None = None,
) -> VerifyReport:
    """Verify the store at an address, or one namespace of it. Changes nothing.

    `quick` reads the structure but no body and no blob, so it does not see changes in them.
    `Store.verify` does the same for the namespace of a store that is open.

    NotFound: there is no store there, or no such namespace. Unsupported: what is there is no
    store, or none that Clew can open. Damage is never an error but a part of the report.
    """
    with closing(maintenance(address)) as store:
        problems: list[Problem] = []
        readable = True
        try:
            for problem in store.check(namespace=namespace, quick=quick, progress=progress):
                problems.append(problem)
        except Corrupt as error:
            # Before the first problem it means that the store could not even be opened.
            readable = bool(problems)
            problems.append(Problem(code="unreadable", message=str(error)))
        return VerifyReport(
            place=store.place,
            namespaces=[namespace] if namespace is not None else _namespaces(store),
            problems=problems,
            stats=_stats(store, namespace),
            readable=readable,
            repairs=store.repairs,
        )


# A store may be damaged just where these would be read. The problems say so already.


def _namespaces(store: Maintenance) -> list[str]:
    try:
        return store.namespaces()
    except ClewError:
        return []


def _stats(store: Maintenance, namespace: str | None) -> Stats | None:
    try:
        return store.stats(namespace=namespace)
    except ClewError:
        return None
