"""Files as they were: the snapshots of a thread, what differs between two, one file over time."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from markupsafe import Markup
from msgspec import Struct
from starlette.responses import Response

from clew.server import render
from clew.server.cards import preview
from clew.server.conversation import download, header
from clew.server.site import Ask
from clew.snapshots.diff import is_binary
from clew.snapshots.model import BlamedLine, Snapshot, Version
from clew.thread import Thread

FILES_MAX = 500
TEXT_BYTES_MAX = 400_000
DIFF_LINES_MAX = 3_000


class Stretch(Struct, frozen=True, kw_only=True):
    """Lines that follow each other and came with one version; None: with an older one."""

    version: Version | None
    by: str
    first: int
    lines: list[Markup]


def page(ask: Ask) -> Response:
    """The snapshots; with `a` what that one has, with `a` and `b` what differs."""
    thread = ask.thread()
    info = thread.info
    snapshots = thread.snapshots.list()
    a, b = ask.query.get("a"), ask.query.get("b")
    shown: dict[str, Any] = {"chosen": None, "files": [], "changes": None, "base": None}
    if not a and snapshots:
        a = snapshots[0].id
    if a:
        shown = _chosen(thread, snapshots, a, b)
    return ask.page(
        "files.html", tab="files", **header(ask, thread, info), snapshots=snapshots, **shown
    )


def _chosen(thread: Thread, snapshots: list[Snapshot], a: str, b: str | None) -> dict[str, Any]:
    chosen = thread.snapshots.get(b or a)
    base = thread.snapshots.get(a) if b else _before(snapshots, chosen)
    found = thread.snapshots.files(chosen)
    changes = None if base is None else thread.snapshots.diff(base, chosen)
    return {
        "chosen": chosen,
        "base": base,
        "files": found[:FILES_MAX],
        "left_out": max(0, len(found) - FILES_MAX),
        "changes": changes,
    }


def _before(snapshots: list[Snapshot], chosen: Snapshot) -> Snapshot | None:
    """The one that was taken of the same folder before it."""
    older = [one for one in snapshots if one.root == chosen.root and one.time_us < chosen.time_us]
    return older[0] if older else None


def diff(ask: Ask) -> Response:
    """What differs between two snapshots in one file, or in all of them."""
    thread = ask.thread()
    a, b = ask.wanted("a"), ask.wanted("b")
    text = thread.snapshots.unified(a, b, path=ask.query.get("path") or None)
    lines = render.read_patch(text)
    return ask.page(
        "file_diff.html",
        info=thread.info,
        lines=lines[:DIFF_LINES_MAX],
        left_out=max(0, len(lines) - DIFF_LINES_MAX),
    )


def file(ask: Ask) -> Response:
    """One file of a snapshot, and every version of it."""
    thread = ask.thread()
    snapshot, path = thread.snapshots.get(ask.wanted("snapshot")), ask.wanted("path")
    data = thread.snapshots.read(snapshot, path)
    if ask.query.get("keep") == "1":
        return download(data, "file.bin")
    shown = None
    if not is_binary(data) and len(data) <= TEXT_BYTES_MAX:
        shown = render.code(data.decode("utf-8", "replace"), path=path)
    stretches = None
    if shown is not None and ask.query.get("blame") == "1":
        stretches = _stretches(thread, thread.snapshots.blame(path, snapshot), path)
    return ask.page(
        "file.html",
        tab="files",
        **header(ask, thread, thread.info),
        snapshot=snapshot,
        path=path,
        size=len(data),
        shown=shown,
        stretches=stretches,
        versions=_versions(thread, path, snapshot.root),
    )


def _stretches(thread: Thread, lines: list[BlamedLine], path: str) -> list[Stretch]:
    # A return inside of a line would be a line end to what colours it.
    texts = [render.clean(line.text).replace("\r", "") for line in lines]
    drawn = render.coloured_lines(texts, path)
    found: list[Stretch] = []
    said: dict[str | None, str] = {}
    for version, group in groupby(range(len(lines)), lambda n: lines[n].version):
        places = list(group)
        entry = None if version is None else version.entry
        if entry not in said:
            said[entry] = "there before" if entry is None else preview(thread.get(entry))
        found.append(
            Stretch(
                version=version,
                by="older than what was looked at" if version is None else said[entry],
                first=places[0] + 1,
                lines=[drawn[n] for n in places],
            )
        )
    return found


def _versions(thread: Thread, path: str, root: str) -> list[dict[str, Any]]:
    """Newest first: when, by which entry, and from which snapshot to which."""
    try:
        found = thread.snapshots.history(path, root=root)
    except OSError:
        return []  # the folder is gone from this machine
    versions: list[dict[str, Any]] = []
    for n, one in enumerate(found):
        entry = None if one.entry is None else thread.get(one.entry)
        versions.append(
            {
                "version": one,
                "before": found[n - 1].snapshot if n else None,
                "by": "there before" if entry is None else preview(entry),
            }
        )
    return versions[::-1]
