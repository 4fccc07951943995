"""What a fork of a facet's thread is given, so that it is one of that facet, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clew.core.model import ThreadInfo
from clew.facets.runs import checkpoint
from clew.facets.sessions import document
from clew.store import Store

_FACETS: dict[str, Callable[[Store, ThreadInfo, str | None, int], dict[str, Any]]] = {
    "conversation": lambda store, info, entry, now_us: _summary(info),
    checkpoint.FACET: checkpoint.forked_facts,
    document.FACET: document.forked_facts,
}


def forked_facts(store: Store, info: ThreadInfo, entry: str | None, now_us: int) -> dict[str, Any]:
    """The facts of the facet, as they are for a fork that begins at an entry, made now."""
    facet = info.facts["facet"]
    # A facet of another program: whose its threads are is all that is known of it.
    if not isinstance(facet, str) or facet not in _FACETS:
        return {}
    return {"facet": facet, **_FACETS[facet](store, info, entry, now_us)}


def _summary(info: ThreadInfo) -> dict[str, Any]:
    """A conversation's summary is about what the two share, or was when it was written."""
    return {"summary": info.facts["summary"]} if "summary" in info.facts else {}
