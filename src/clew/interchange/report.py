"""What an import found, did and left, file by file: for people, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct, field

Status = Literal["imported", "unchanged", "skipped", "failed"]
NOTES_MAX = 20  # places that are named for a file; more are counted

# Odd things about a file that an import survives and keeps whole; all others are losses.
HARMLESS = frozenset(
    "glued invalid_utf8 not_json inexact dangling_parent late_parent loop repeated branched "
    "redacted".split()
)


class FileReport(Struct, kw_only=True):
    """One file. Its values are the new ones, those that were stored already, and the skipped."""

    path: str
    agent: str | None = None
    thread: str | None = None
    status: Status = "imported"
    reason: str | None = None
    size: int = 0
    values: int = 0
    entries: int = 0
    known: int = 0
    skipped: int = 0
    notes: dict[str, int] = field(default_factory=dict)
    places: list[str] = field(default_factory=list)

    def note(self, name: str, place: str) -> None:
        self.notes[name] = self.notes.get(name, 0) + 1
        if len(self.places) < NOTES_MAX:
            self.places.append(f"{name}: {place}")

    def fail(self, status: Status, reason: str) -> FileReport:
        self.status, self.reason = status, reason
        return self

    @property
    def is_whole(self) -> bool:
        """Whether all that the file holds is in the store now."""
        return self.status in ("imported", "unchanged") and not (self.notes.keys() - HARMLESS)


class Report(Struct, kw_only=True):
    """A whole import. `ignored` are files that no agent would call a session, by their names.

    `unknown` are those that are called like one and that no agent knows: of another program, or
    damaged from their beginning on.
    """

    files: list[FileReport] = field(default_factory=list)
    ignored: int = 0
    unknown: list[str] = field(default_factory=list)
    dry_run: bool = False

    @property
    def left(self) -> list[FileReport]:
        """The files that are not in the store as a whole."""
        return [file for file in self.files if not file.is_whole]

    def totals(self) -> dict[str, dict[str, int]]:
        """Sums by agent."""
        found: dict[str, dict[str, int]] = {}
        for file in self.files:
            sums = found.setdefault(file.agent or "unknown", dict.fromkeys(_SUMS, 0))
            sums["files"] += 1
            sums[file.status] += 1
            for name in ("size", "values", "entries", "known"):
                sums[name] += getattr(file, name)
            sums["left_out"] += file.skipped
        return dict(sorted(found.items()))

    def as_json(self) -> dict[str, Any]:
        return {
            "schema_version": 1,
            "dry_run": self.dry_run,
            "ignored": self.ignored,
            "unknown": self.unknown,
            "agents": self.totals(),
            "files": [_as_json(file) for file in self.files if file.status != "unchanged"],
        }

    def threads(self) -> Iterator[str]:
        return (file.thread for file in self.files if file.thread is not None)


def _as_json(file: FileReport) -> dict[str, Any]:
    return {name: getattr(file, name) for name in FileReport.__struct_fields__}


_SUMS = "files imported unchanged skipped failed size values entries known left_out".split()
