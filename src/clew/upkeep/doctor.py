"""What a store is, what an acknowledgement means here, and what is wrong with the place.

`clew doctor` prints it. What an engine can tell beyond its `properties` is in the module
`doctor` of its package; that is not a part of the waist, and an engine need not have one.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib import import_module

from msgspec import Struct

from clew.core.engine import Engine
from clew.core.maintenance import Examined, Finding
from clew.core.model import Properties, Stats
from clew.store import Store

_PACKAGES = ("sqlite", "files", "postgres")


class Examination(Struct, frozen=True, kw_only=True):
    """All of it. `sound`: nothing is wrong, though there may be warnings."""

    properties: Properties
    format: int | None
    versions: dict[str, str]
    read: dict[str, str]
    findings: list[Finding]
    stats: Stats

    @property
    def sound(self) -> bool:
        return all(finding.level != "wrong" for finding in self.findings)


def examine(store: Store) -> Examination:
    """Look at an open store. Reads settings and counts; changes nothing, and reads no entry."""
    properties = store.properties
    found = Examined()
    if properties.engine in _PACKAGES:
        module = import_module(f"clew.engines.{properties.engine}.doctor")
        tell: Callable[[Engine], Examined] = module.examine
        found = tell(store.engine)
    wrong_first = sorted(found.findings, key=lambda finding: finding.level != "wrong")
    return Examination(
        properties=properties,
        format=found.format,
        versions={"Python": platform.python_version()} | found.versions,
        read=found.read,
        findings=wrong_first,
        stats=store.stats(),
    )
