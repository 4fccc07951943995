"""Watching: agents' folders are brought while agents write in them, so that nothing gets lost.

A change of a file brings that file. Now and then everything is looked at again, because a computer
that slept, a folder that was made anew and a full queue of the system swallow changes; that costs
little, since what has not changed is not opened.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from clew.core.errors import ClewError
from clew.interchange.intake import Intake
from clew.interchange.registry import is_candidate
from clew.interchange.report import FileReport
from clew.interchange.tree import bring_paths
from clew.store import Store

LOOK_SECONDS = 60.0

Changes = Iterable[set[Path] | None]
"""What has changed, set by set; None: look at everything."""


class Watch:
    """Keeps a store up to date with folders. `tell` is told of what was brought, and of trouble."""

    def __init__(
        self,
        store: Store,
        folders: Callable[[], list[Path]],
        tell: Callable[[FileReport], None],
        *,
        agent: str | None = None,
        redact: bool = False,
    ) -> None:
        self._intake = Intake(store, redact=redact)
        self._folders = folders
        self._tell = tell
        self._agent = agent
        self._told: dict[str, str | None] = {}  # trouble that was told, which is not told again

    def run(self, changes: Changes) -> None:
        """Go on as long as there are changes. Trouble of the store passes, or is told again."""
        for changed in changes:
            try:
                self._bring(changed)
            except ClewError as error:
                if not error.retryable:
                    raise
                self._report(FileReport(path="").fail("failed", str(error)))

    def _bring(self, changed: set[Path] | None) -> None:
        if changed is None:
            folders = self._folders()
            empty = {str(folder) for folder in folders if folder.is_dir()}
            for report in bring_paths(self._intake, folders, agent=self._agent).files:
                if report.path not in empty:  # a folder without sessions may get some
                    self._report(report)
            return
        for path in sorted(changed):
            if is_candidate(path, self._agent) and path.is_file() and not path.is_symlink():
                for report in self._intake.bring(path, self._agent):
                    self._report(report)

    def _report(self, report: FileReport) -> None:
        if report.status == "unchanged":
            return
        trouble = None if report.is_whole else report.reason or ", ".join(report.notes)
        if report.entries or (trouble and trouble != self._told.get(report.path)):
            self._tell(report)
        self._told[report.path] = trouble


def changes_of(folders: Callable[[], list[Path]], look_seconds: float = LOOK_SECONDS) -> Changes:
    """The changes under folders, for ever: by the system's word if watchfiles is installed."""
    try:
        from watchfiles import watch
    except ImportError:
        return _by_looking(look_seconds)

    def by_the_system() -> Iterator[set[Path] | None]:
        while True:
            yield None
            there = [folder for folder in folders() if folder.exists()]
            if not there:
                time.sleep(look_seconds)
                continue
            until = time.monotonic() + look_seconds
            # Ended after a while, so that folders which are new are watched as well.
            for found in watch(*there, yield_on_timeout=True, rust_timeout=5000, debounce=1600):
                if found:
                    yield {Path(path) for _, path in found}
                if time.monotonic() > until:
                    break

    return by_the_system()


def _by_looking(look_seconds: float) -> Iterator[set[Path] | None]:
    while True:
        yield None
        time.sleep(look_seconds)
