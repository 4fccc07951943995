"""Doctor: what a store is, what an acknowledgement means here, and what is wrong with the place."""

from __future__ import annotations

import platform

from msgspec import Struct

from clew.core.engine import innermost
from clew.core.maintenance import Examined, Finding, maintenance_class
from clew.core.model import Properties, Stats
from clew.store import Store


class Examination(Struct, frozen=True, kw_only=True):
    """All of it. `sound`: nothing is wrong, though there may be warnings."""

    properties: Properties
    kind: str
    format: int | None
    versions: dict[str, str]
    read: dict[str, str]
    findings: list[Finding]
    stats: Stats

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return all(finding.level != "wrong" for finding in self.findings)


def examine(store: Store) -> Examination:
    """Look at an open store. Reads settings and counts; changes nothing, and reads no entry.

    An engine that offers no maintenance, such as the one in memory, tells its properties only.
    """
    properties = store.properties
    found = Examined()
    if properties.maintenance is not None:
        found = maintenance_class(properties).examine(innermost(store.engine))
    return Examination(
        properties=properties,
        kind=found.kind or properties.engine,
        format=found.format,
        versions={"Python": platform.python_version()} | found.versions,
        read=found.read,
        findings=sorted(found.findings, key=lambda finding: finding.level != "wrong"),
        stats=store.stats(),
    )
