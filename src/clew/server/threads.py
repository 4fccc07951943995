"""The list of threads: filters, pages by cursor, and what can be done to a thread in place."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct
from starlette.responses import JSONResponse, Response

from clew.core.errors import InvalidInput
from clew.core.model import ThreadInfo
from clew.server.site import Ask, count, title_of, url
from clew.store import Store
from clew.usage import line_of, usage_of
from clew.usage.model import money
from clew.usage.model import short as few

PAGE_ROWS = 50
SCANNED_MAX = 3000  # threads that one request looks through for a word
LEASE_AGE = timedelta(days=1)  # a thread that was not written to for so long is not at work
FILTERS = ("q", "tag", "workspace", "status", "agent", "model", "days", "show", "order")
_FIELD_CHARACTERS_MAX = 500
_TAGS_MAX = 50
_IDS_MAX = 500


class Row(Struct, kw_only=True):
    """A thread in the list. `depth` is how far it hangs under others of the same page."""

    info: ThreadInfo
    title: str
    running: str | None
    depth: int = 0
    marks: list[str]


# --- looking --------------------------------------------------------------------------------


def page(ask: Ask) -> Response:
    filters = _filters(ask.query)
    return ask.page(
        "threads.html",
        tab="threads",
        filters=filters,
        is_filtered=any(value for key, value in filters.items() if key != "order"),
        **_rows(ask, filters),
    )


def rows(ask: Ask) -> Response:
    """A further page of the list, or the first one anew."""
    filters = _filters(ask.query)
    return ask.page("rows.html", filters=filters, **_rows(ask, filters))


def row(ask: Ask) -> Response:
    """One row, perhaps with its form open."""
    info = ask.thread().info
    made = _row(ask.store, info, ask.store.now())
    return ask.page("row.html", row=made, editing=ask.query.get("edit") or "")


def used(ask: Ask) -> Response:
    """Tokens and cost of some rows, which a page asks for when it is shown already.

    The first count of a large store takes its time: then the answer is how far it is.
    """
    try:
        ids = json.loads(ask.wanted("ids"))
    except ValueError:
        ids = None
    if not isinstance(ids, list) or not all(isinstance(id, str) for id in ids):
        raise InvalidInput("ids", "must be a list of ids, as JSON")
    counted = ask.site.counted
    if not counted.ready():
        return JSONResponse({"done": counted.done, "total": counted.total})
    found = usage_of(ask.store, ids[:_IDS_MAX]) if ids else {}
    return JSONResponse(
        {
            "used": {
                id: [money(one), f"{few(one.tokens.total)} tokens", line_of(one)]
                for id, one in found.items()
                if one.tokens.total
            }
        }
    )


def _filters(query: Mapping[str, str]) -> dict[str, str]:
    return {name: query.get(name, "").strip()[:_FIELD_CHARACTERS_MAX] for name in FILTERS}


def _rows(ask: Ask, filters: Mapping[str, str]) -> dict[str, Any]:
    found, cursor, scanned = _find(ask, filters)
    now = ask.store.now()
    more = None
    if cursor is not None:
        more = url("/threads/rows", **filters, cursor=cursor)
    return {
        "rows": nested([_row(ask.store, info, now) for info in found]),
        "more": more,
        "searched": count(scanned, "thread") if cursor is not None and not found else "",
        "said": url("/search", q=filters["q"]) if filters["q"] else "",
    }


def _find(ask: Ask, filters: Mapping[str, str]) -> tuple[list[ThreadInfo], str | None, int]:
    """A page of threads, where to go on, and how many were looked through for it.

    What the store has an index for is asked of it. For the rest its list is read through, up to
    a bound: then the page may be short, and the cursor goes on from there.
    """
    listed = _listed(filters, ask.store.now())
    sifts = any(filters[key] for key in ("q", "agent", "model"))
    found: list[ThreadInfo] = []
    cursor: str | None = ask.query.get("cursor") or None
    scanned = 0
    while True:
        step = 500 if sifts else PAGE_ROWS
        page = ask.store.list(**listed, limit=step, cursor=cursor)
        for info in page.items:
            scanned += 1
            if not sifts or _fits(info, filters):
                found.append(info)
            if len(found) == PAGE_ROWS and info is not page.items[-1]:
                return found, _cursor(info, listed["order"]), scanned
        cursor = page.cursor
        if cursor is None or len(found) >= PAGE_ROWS or scanned >= SCANNED_MAX:
            return found, cursor, scanned


def _cursor(info: ThreadInfo, order: str) -> str:
    time_us = info.created_us if order == "created" else info.updated_us
    return f"{time_us}.{info.id}"


def _listed(filters: Mapping[str, str], now: datetime) -> dict[str, Any]:
    order = "created" if filters["order"] == "created" else "updated"
    asked: dict[str, Any] = {
        key: filters[key] for key in ("tag", "workspace", "status") if filters[key]
    }
    match filters["show"]:
        case "deleted":
            asked["deleted"] = True
            asked["archived"] = None
        case "archived":
            asked["archived"] = True
        case "all":
            asked["archived"] = None
    if filters["days"]:
        if not filters["days"].isdecimal() or len(filters["days"]) > 5 or not int(filters["days"]):
            raise InvalidInput("days", "must be a number of days")
        asked["after"] = now - timedelta(days=int(filters["days"]))
    return {"order": order, **asked}


def _fits(info: ThreadInfo, filters: Mapping[str, str]) -> bool:
    word = filters["q"].casefold()
    if word:
        if word.isascii() and word.isalnum() and not _may_have(info, word):
            return False
        places = (title_of(info), info.id, info.workspace or "", *info.tags)
        if not any(word in place.casefold() for place in places):
            return False
    for key in ("agent", "model"):
        if filters[key] and filters[key].casefold() not in _fact(info, key).casefold():
            return False
    return True


def _may_have(info: ThreadInfo, word: str) -> bool:
    """Whether a look at the facts is worth it: a plain word stands in their JSON as it is."""
    raw = b" ".join([info.fact_data.get(key, b"") for key in ("title", "tags", "workspace")])
    return word.encode() in raw.lower() or word in info.id.lower() or "title" not in info.fact_data


def _fact(info: ThreadInfo, key: str) -> str:
    value = info.facts.get(key)
    if isinstance(value, dict):
        value = value.get("id") or value.get("name") or value.get("model")
    return value if isinstance(value, str) else ""


def _row(store: Store, info: ThreadInfo, now: datetime) -> Row:
    running = None
    if now - info.updated_at < LEASE_AGE and info.deleted_at is None:
        lease = store.get(info.id).leases.active()
        running = None if lease is None else lease.owner
    marks = [_fact(info, key) for key in ("agent", "model")]
    return Row(
        info=info, title=title_of(info), running=running, marks=[mark for mark in marks if mark]
    )


def nested(found: list[Row]) -> list[Row]:
    """Forks and sub-agents under the thread that they come from, where both are on the page."""
    ids = {row.info.id for row in found}
    below: dict[str, list[Row]] = {}
    tops: list[Row] = []
    for one in found:
        over = _above(one.info)
        if over in ids and over != one.info.id:
            below.setdefault(over, []).append(one)
        else:
            tops.append(one)
    ordered = list(_ordered(tops, below, 0))
    # Two that name each other as their parent hang under no top: they are shown all the same.
    seen = {row.info.id for row in ordered}
    return ordered + [row for row in found if row.info.id not in seen]


def _above(info: ThreadInfo) -> str | None:
    if info.parent is not None:
        return info.parent
    return None if info.origin is None else info.origin.thread


def _ordered(rows: list[Row], below: dict[str, list[Row]], depth: int) -> Iterator[Row]:
    for one in rows:
        one.depth = depth
        yield one
        yield from _ordered(below.get(one.info.id, []), below, min(depth + 1, 4))


# --- changing -------------------------------------------------------------------------------


def change(ask: Ask) -> Response:
    """Rename, tag, archive, delete or restore; the answer is the row as it is now."""
    thread = ask.thread()
    match ask.wanted("action"):
        case "rename":
            title = " ".join(ask.form.get("title", "").split())[:_FIELD_CHARACTERS_MAX]
            if title:
                thread.set_title(title, source="viewer")
            else:
                thread.set(title=None)
        case "tags":
            thread.set(tags=_tags(ask.form.get("tags", "")) or None)
        case "archive":
            thread.set(archived=True)
        case "unarchive":
            thread.set(archived=None)
        case "delete":
            ask.store.delete(thread.id)
        case "restore":
            ask.store.restore(thread.id)
        case other:
            raise InvalidInput("action", f"{other!r} is not one of this page's")
    if not ask.is_partial:
        return ask.go("/thread", id=thread.id)
    made = _row(ask.store, thread.info, datetime.now(UTC))
    return ask.page("row.html", row=made, editing="")


def _tags(text: str) -> list[str]:
    words = [word.strip().lstrip("#") for word in text.replace(",", " ").split()]
    return list(dict.fromkeys(word for word in words if word))[:_TAGS_MAX]
