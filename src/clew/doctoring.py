"""What a store is, what an acknowledgement means here, and what is wrong with the place.

`clew doctor` prints it. What an engine can tell beyond its `properties` is in the module
`examining` of its package; that is not a part of the waist, and an engine need not have one.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from importlib import import_module
from typing import Literal

from msgspec import Struct, field

from clew.engine import Engine
from clew.model import Properties, Stats
from clew.store import Store

ROOM_BYTES_MIN = 256 * 1024**2
_PACKAGES = ("sqlite", "files", "postgres")

# What is on these is in memory, or belongs to a container, whatever a sync says.
_FLEETING = {
    "tmpfs": "is memory: what is on it is gone when the machine stops",
    "ramfs": "is memory: what is on it is gone when the machine stops",
    "overlay": "is mostly a container's own: what is on it goes with the container",
}


class Finding(Struct, frozen=True):
    """Something that is wrong, or a risk (`warning`), and what to do about it."""

    level: Literal["wrong", "warning"]
    what: str
    do: str


class Examined(Struct, kw_only=True):
    """What an engine's package tells: of versions, of what it has read, of what it makes of it."""

    format: int | None = None
    versions: dict[str, str] = field(default_factory=dict)
    read: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def warn(self, what: str, do: str) -> None:
        self.findings.append(Finding("warning", what, do))

    def complain(self, what: str, do: str) -> None:
        self.findings.append(Finding("wrong", what, do))


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
        module = import_module(f"clew.engines.{properties.engine}.examining")
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


# --- for engines that lie on a disk ---------------------------------------------------------


def examine_disk(found: Examined, folder: str, kind: str | None) -> None:
    """The file system that a store lies on, and the room on it."""
    found.read["file system"] = kind or "not known"
    if kind in _FLEETING:
        do = "keep the store on a disk, or on a volume that outlives the container"
        found.warn(f"the file system ({kind}) {_FLEETING[kind]}", do)
    room = os.statvfs(folder)
    free = room.f_bavail * room.f_frsize
    found.read["room left"] = f"{free / 1024**3:.1f} GB"
    if free < ROOM_BYTES_MIN:
        do = "make room; a full disk refuses appends, and loses none"
        found.warn(f"there are only {free // 1024**2:,} MB left on the disk", do)


def examine_rights(found: Examined, path: str) -> None:
    """Who else on this machine may read it."""
    mode = os.stat(path).st_mode & 0o777
    found.read["rights"] = f"{mode:04o}"
    if mode & 0o077:
        only_me = "700" if os.path.isdir(path) else "600"
        found.warn(f"other users of this machine may use {path}", f"run: chmod {only_me} {path}")
