"""The contract of the waist as cases that any engine can be run against.

    from clew.testing import conformance

    for case in conformance.CASES:
        case(MyPlace())

A case takes a fresh `Place`, acts on an engine opened there, opens it again as after a restart
of the process, and asserts. It raises AssertionError, or whatever the engine raises.
"""

from __future__ import annotations

from clew.testing.cases import (
    appends,
    arguments,
    bodies,
    erasures,
    leases,
    namespaces,
    paths,
    readonly,
    threads,
    upkeep,
)
from clew.testing.cases.base import Case, Place

CASES: list[Case] = [
    case
    for module in (
        *(threads, appends, bodies, paths, leases, upkeep, erasures, namespaces, readonly),
        arguments,
    )
    for case in module.CASES.found
]

__all__ = ["CASES", "Case", "Place"]
