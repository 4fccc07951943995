"""Which threads of a store a command is about: the same options for all that take several."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import datetime, timedelta

from clew.cli._arguments import add_workspace, moment
from clew.cli._stores import resolve
from clew.core.drafts import before
from clew.core.model import PAGE_MAX, ThreadInfo
from clew.store import Store


def add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tag", metavar="T", help="only threads with this tag")
    add_workspace(parser)
    parser.add_argument("--agent", metavar="A", help="only threads of this agent")
    parser.add_argument("--status", metavar="S", help="only threads with this status")
    parser.add_argument("--parent", metavar="THREAD", help="only the sub-agents of this thread")
    parser.add_argument("--origin", metavar="THREAD", help="only the forks of this thread")
    parser.add_argument("--roots", action="store_true", help="no forks and no sub-agents")
    parser.add_argument("--since", type=moment, metavar="TIME", help="used after this time")
    parser.add_argument("--until", type=moment, metavar="TIME", help="used before this time")


def filtered(
    store: Store,
    options: argparse.Namespace,
    *,
    order: str = "updated",
    archived: bool | None = None,
    deleted: bool = False,
    cursor: str | None = None,
    limit: int = PAGE_MAX,
) -> Iterator[ThreadInfo]:
    """The threads that the options mean, newest first, read page by page."""
    now = store.now()
    parent, origin = (
        named and resolve(store, named, deleted=True).id
        for named in (options.parent, options.origin)
    )
    while True:
        page = store.list(
            order="created" if order == "created" else "updated",
            archived=archived,
            deleted=deleted,
            tag=options.tag,
            workspace=options.workspace,
            status=options.status,
            parent=parent,
            origin=origin,
            roots=options.roots,
            after=_time(options.since, now),
            before=_time(options.until, now),
            limit=min(limit, PAGE_MAX),
            cursor=cursor,
        )
        yield from (info for info in page.items if options.agent in (None, info.agent))
        cursor = page.cursor
        if cursor is None:
            return


def _time(given: timedelta | datetime | None, now: datetime) -> datetime | None:
    return before(now, given, "time") if isinstance(given, timedelta) else given
