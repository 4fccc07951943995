"""Folders of sessions: what lies in them, and the import of all of it.

A tree is walked without following links to folders; a link to a file counts if the file lies in
the tree. What cannot be looked at is named, and the rest is done.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from clew.core.engine import Progress
from clew.interchange.intake import Intake
from clew.interchange.registry import is_candidate, places
from clew.interchange.report import FileReport, Report
from clew.store import Store

Trouble = Callable[[Path, str], None]


class Found(Struct, frozen=True):
    """A place where an agent keeps its sessions on this machine."""

    agent: str
    place: Path
    files: list[Path]
    size: int


def survey(home: Path, environ: Mapping[str, str], agent: str | None = None) -> list[Found]:
    """The sessions that agents have left under a home. Nothing is read but the folders."""
    found = []
    for name, place in places(home, environ):
        if agent in (None, name):
            files = [file for file in walk(place) if is_candidate(file, name)]
            size = sum(file.stat().st_size for file in files)
            if files:
                found.append(Found(name, place, files, size))
    return found


def bring_all(
    store: Store,
    paths: Iterable[Path],
    *,
    agent: str | None = None,
    dry_run: bool = False,
    redact: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Bring every session that lies under the paths, which are files or folders.

    `agent` says whose they must be. `redact` keeps secrets out of the store. What is wrong with one
    file is told in the report and keeps no other from being brought; errors are those of the store.
    """
    intake = Intake(store, dry_run=dry_run, redact=redact)
    return bring_paths(intake, paths, agent=agent, progress=progress)


def bring_paths(
    intake: Intake,
    paths: Iterable[Path],
    *,
    agent: str | None = None,
    progress: Progress | None = None,
) -> Report:
    """The same, for those who bring again and again."""
    report = Report(dry_run=intake.dry_run)

    def trouble(path: Path, reason: str) -> None:
        report.files.append(FileReport(path=str(path)).fail("failed", reason))

    named = [Path(os.path.abspath(path)) for path in paths]
    files: dict[Path, Path] = {}  # each file once, and the path that led to it
    for path in named:
        for file in [path] if not path.is_dir() else walk(path, trouble):
            files.setdefault(file, path)
    useful = set()
    for done, (file, root) in enumerate(files.items(), 1):
        named_or_likely = file == root or is_candidate(file, agent)
        found = intake.bring(file, agent) if named_or_likely else []
        if found:
            report.files += found
            useful.add(root)
        elif file == root:
            trouble(file, "is no session of an agent that is known here")
            useful.add(root)
        elif named_or_likely and not _is_empty(file):
            report.unknown.append(str(file))
        else:
            report.ignored += 1
        if progress is not None:
            progress(done, len(files))
    for path in named:
        if path not in useful and not any(file.path.startswith(str(path)) for file in report.files):
            trouble(path, "holds no session of an agent that is known here")
    return report


def walk(root: Path, trouble: Trouble = lambda path, reason: None) -> Iterator[Path]:
    """The files of a tree, those of a folder before the folders in it."""
    try:
        with os.scandir(root) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except NotADirectoryError:
        yield root
        return
    except OSError as error:
        trouble(root, error.strerror or str(error))
        return
    folders = []
    for entry in entries:
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            folders.append(path)
        elif entry.is_symlink():
            target = Path(os.path.realpath(path))
            if not target.is_relative_to(os.path.realpath(root)):
                trouble(path, "is a link that leads out of the folder; name its target to bring it")
            # The target lies in the tree, and comes by its own name.
        elif entry.is_file():
            yield path
    for folder in folders:
        yield from walk(folder, trouble)


def _is_empty(file: Path) -> bool:
    """Whether a file has nothing in it, or has gone since: agents leave such ones behind."""
    try:
        return file.stat().st_size == 0
    except OSError:
        return True
