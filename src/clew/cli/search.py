"""Find what was said, called, answered or named a thread, in all threads of a store.

QUERY is words, all of which must be there; "a phrase"; the beginning of a word with *; OR between
alternatives; NOT or - before what must not be there; parentheses. There is no wrong query. Each
hit is a thread, the number of the entry in it, and the place with the words. The first search
reads the whole store and keeps an index beside it; later ones read what is new.

examples:
  clew search session token
  clew search '"connection refused" -docker' --since 30d
  clew search 'getUser*' --tool edit_file --path src/auth
  clew search --substring '::1]:54' --json
"""

from __future__ import annotations

import argparse
from datetime import datetime, timedelta
from typing import Any

from clew.cli import _exits
from clew.cli._arguments import (
    add_namespace,
    add_object,
    add_store_option,
    add_workspace,
    count,
    moment,
)
from clew.cli._json import json_value
from clew.cli._screen import Part, Screen
from clew.cli._stores import open_to_look, resolve, short_id
from clew.cli._text import ago, one_line, plural
from clew.core.drafts import before
from clew.core.model import rfc3339
from clew.search.searcher import Hit, SearchPage
from clew.store import Store

CONTEXT = 100  # characters on both sides, where there is no terminal to fill
_INDENT = "    "
_STYLES = {"user": "cyan", "assistant": "green", "tool": "yellow"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", nargs="*", metavar="QUERY", help="what to look for")
    add_store_option(parser)
    add_namespace(parser)
    parser.add_argument(
        "--substring", action="store_true", help="the text as it is, also inside of words"
    )
    add_workspace(parser)
    for name, what in (
        ("agent", "only threads of this agent"),
        ("model", "only what was said to and by this model"),
        ("tag", "only threads with this tag"),
        ("thread", "only this thread: its id, or the first letters"),
        ("tool", "only calls of this tool, and their results where they name it"),
        ("role", "only what this one said: user, assistant, system, tool"),
        ("kind", "only entries of this kind, or: title"),
        ("path", "only tool calls that name this file or folder"),
        ("cursor", "go on after a page, with what it has printed"),
    ):
        parser.add_argument(f"--{name}", metavar=name.upper(), help=what)
    for name, what in (("since", "not before"), ("until", "before")):
        help = f"only what was written {what} this: 30d, 12h, 2w, or a date"
        parser.add_argument(f"--{name}", type=moment, metavar="TIME", help=help)
    parser.add_argument("--deleted", action="store_true", help="deleted threads as well")
    parser.add_argument("--limit", type=count, default=20, metavar="N", help="default: 20")
    parser.add_argument(
        "--context", type=count, metavar="N", help="show so many characters around a match"
    )
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with open_to_look(options.store, options.namespace) as store:
        with screen.bar("reading") as bar:
            page = store.search(
                " ".join(options.query),
                substring=options.substring,
                thread=None if options.thread is None else resolve(store, options.thread).id,
                agent=options.agent,
                workspace=options.workspace,
                model=options.model,
                tool=options.tool,
                role=options.role,
                kind=options.kind,
                path=options.path,
                tag=options.tag,
                since=_time(store, options.since),
                until=_time(store, options.until),
                deleted=options.deleted,
                limit=options.limit,
                cursor=options.cursor,
                context=options.context or _context(screen),
                progress=bar,
            )
        if options.json:
            screen.json(page_value(page))
            return _exits.OK
        for note in page.notes:
            screen.error(note)
        for hit in page.items:
            draw(screen, store, hit)
        _draw_rest(screen, page)
    return _exits.OK


def page_value(page: SearchPage) -> dict[str, Any]:
    """A page for programs."""
    hits = [{**json_value(hit), "time": rfc3339(hit.time)} for hit in page.items]
    return {
        "total": page.total,
        "exact": page.exact,
        "relaxed": page.relaxed,
        "cursor": page.cursor,
        "notes": list(page.notes),
        "hits": hits,
    }


def _time(store: Store, given: timedelta | datetime | None) -> datetime | None:
    return before(store.now(), given, "time") if isinstance(given, timedelta) else given


def _context(screen: Screen) -> int:
    """As much as fits into the line."""
    return CONTEXT if screen.width is None else max(20, (screen.width - len(_INDENT)) // 2 - 1)


def draw(screen: Screen, store: Store, hit: Hit) -> None:
    screen.line(
        (one_line(short_id(store, hit.thread)), "yellow"),
        f" #{hit.seq}  ",
        (hit.role or hit.kind, _STYLES.get(hit.role or "", "magenta")),
        (f"  {ago(hit.time, store.now())}  ", "dim"),
        (one_line(hit.title), "bold") if hit.title else ("(no title)", "dim"),
    )
    if hit.kind != "title":
        screen.line(_INDENT, *_marked(hit))


def _marked(hit: Hit) -> list[Part]:
    """The snippet, in which what was looked for stands out."""
    parts: list[Part] = []
    last = 0
    for start, end in hit.matches:
        parts += [hit.snippet[last:start], (hit.snippet[start:end], "bold red")]
        last = end
    return [*parts, hit.snippet[last:]]


def _draw_rest(screen: Screen, page: SearchPage) -> None:
    if not page.items:
        screen.line(("nothing found", "dim"))
        return
    few = " with some of the words: nothing has all of them" if page.relaxed else ""
    if page.more:
        total = f"{page.total:,}" if page.exact else f"at least {page.total:,}"
        shown = f"{len(page.items):,} of {total} hits{few}; --cursor {page.cursor} goes on"
    else:
        shown = f"{plural(page.total, 'hit')}{few}"
    screen.line((shown, "dim"))
