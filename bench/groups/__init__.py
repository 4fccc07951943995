"""The groups of figures, in the order of the table. Each is a function of the workshop."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bench.figures import Figure
from bench.groups import (
    append,
    context,
    files,
    flat,
    fork,
    group_commit,
    importing,
    listing,
    load,
    peers,
    postgres,
    runs,
    size,
    snapshots,
)
from bench.workshop import Workshop

GROUPS: dict[str, Callable[[Workshop], Iterable[Figure]]] = {
    "append": append.measure,
    "group": group_commit.measure,
    "flat": flat.measure,
    "files": files.measure,
    "fork": fork.measure,
    "load": load.measure,
    "context": context.measure,
    "runs": runs.measure,
    "list": listing.measure,
    "size": size.measure,
    "import": importing.measure,
    "snapshots": snapshots.measure,
    "peers": peers.measure,
    "postgres": postgres.measure,
}
