"""Between a document and its thread: the batch that one save writes, and what is read back."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from clew.context.compaction import compaction_body
from clew.context.projection import summary_text
from clew.context.window import Window, read_window
from clew.core import drafts
from clew.core.codec import encode
from clew.core.errors import InvalidInput
from clew.core.model import Draft, Entry, EntryDraft, FactDraft, ThreadInfo, to_time
from clew.facets import _base
from clew.facets.sessions.document import (
    Event,
    Session,
    Sync,
    add_call,
    check_whole,
    first_user_text,
    title_from,
)
from clew.facets.sessions.workspace import normalize_workspace_path, workspace_facts
from clew.messages import as_body
from clew.messages.incoming import message_drafts
from clew.store import Store
from clew.thread import Thread

_TEXTS = ("vendor", "endpoint", "model")


class CompactedHistory(Struct, frozen=True):
    """Messages that are to stand for all before them."""

    messages: list[Any]
    token_count: int | None = None


class SessionSave:
    """What one save writes, as long as the thread stands where the document thinks it does.

    The batch is empty if the document has nothing new. `settle` tells the document that the
    batch is stored; until then the document is as it was, so that a failed save changes nothing.
    """

    def __init__(
        self,
        store: Store,
        session: Session,
        format: str | None,
        checkpoint: CompactedHistory | None = None,
        updated_us: int | None = None,
    ) -> None:
        self._clock = store.clock if updated_us is None else lambda: updated_us
        self._thread = Thread(store, session.sync.thread)
        self._session = session
        self._format = format
        self._now_us = self._clock()
        self._leaf = session.sync.leaf  # this and the next two: as they will be afterwards
        self._titled = session.title
        self._used = session.usage
        calls = [self._draft("usage", call) for call in session.sync.calls]
        entries: list[Draft] = [*self._messages(), *self._events(), *self._noted(calls)]
        if checkpoint is not None:
            entries.append(self._checkpoint(checkpoint))
        facts = self._facts()
        if not entries and (facts or updated_us is not None):
            # Facts alone would pass by the lease and leave `updated_at` as it was. A move to
            # where the thread stands does neither.
            entries = [drafts.move(self._leaf, self._now_us)]
        self.batch = [*entries, *facts]

    # --- entries ---

    def _messages(self) -> list[EntryDraft]:
        given, sync = self._session.messages, self._session.sync
        start = _base.shared(sync.messages, given)
        if start == len(sync.messages):
            return self._appended(start)
        # Not what the document was before. Is it what a load would give, and more?
        view = shown(read_window(self._thread, sync.leaf))
        start = _base.shared(view, given)
        if start == len(view):
            return self._appended(start)
        # It was edited: its beginning now stands for all that was before.
        opening = self._checkpoint(CompactedHistory([as_body(m) for m in given[:start]]))
        return [opening, *self._appended(start)]

    def _appended(self, start: int) -> list[EntryDraft]:
        rest = self._session.messages[start:]
        return self._noted(message_drafts(rest, self._format, start=start, clock=self._clock))

    def _events(self) -> list[EntryDraft]:
        events = self._session.events
        start = _base.shared(self._session.sync.events, events)
        for index, event in enumerate(events[start:], start):
            check_event(event, f"$[{index}]")
        return self._noted([self._draft("event", asdict(event)) for event in events[start:]])

    def _checkpoint(self, checkpoint: CompactedHistory) -> EntryDraft:
        """The messages themselves go along, so that a resume reads no further back than this.

        Messages of other writers, which the caller who compacted has not seen, go along as well.
        """
        # It says nothing of a compaction before it: to find that one, the path would be read.
        body = compaction_body(
            None,
            first_kept=None,
            through=self._leaf,
            trigger="checkpoint",
            tokens_after=checkpoint.token_count,
            details={"messages": [*checkpoint.messages, *self._session.sync.unseen]},
        )
        return self._noted([self._draft("compaction", body)])[0]

    def _draft(self, kind: str, body: Any) -> EntryDraft:
        return drafts.draft(kind, body, clock=self._clock)

    def _noted(self, made: list[EntryDraft]) -> list[EntryDraft]:
        """The drafts as they are; the last of them is where the thread will stand."""
        self._leaf = made[-1].id if made else self._leaf
        return made

    # --- facts ---

    def _facts(self) -> list[FactDraft]:
        session, known = self._session, self._session.sync.facts
        plain: dict[str, Any] = {name: getattr(session, name) or None for name in _TEXTS}
        plain |= {"events_complete": session.events_complete or None, "cost": session.cost}
        if session.events:
            plain["has_events"] = True
        made = drafts.facts(plain, self._now_us)
        # Compared as bytes: a fact that says the same would only make the log longer.
        changed = [fact for fact in made if known.get(fact.key, b"null") != fact.data]
        more = {**self._workspace(), **self._title(), **self._usage()}
        return [*changed, *drafts.facts(more, self._now_us)]

    def _workspace(self) -> dict[str, Any]:
        session = self._session
        if session.workspace == session.sync.workspace:
            return {}  # the folder is not looked at again: it may be gone by now
        session.workspace = normalize_workspace_path(session.workspace)
        return workspace_facts(session.workspace, self._info.tags)

    def _title(self) -> dict[str, Any]:
        session, source = self._session, "user"
        if not session.title and not session.sync.title:
            if self._info.title is None:
                new = session.messages[len(session.sync.messages) :]
                self._titled, source = title_from(first_user_text(new)), "host"
            else:  # another writer has set one
                self._titled = session.title = session.sync.title = self._info.title.text
        if self._titled == session.sync.title:
            return {}
        title = {"text": self._titled, "status": "ready", "source": source}
        return {"title": {**title, "time_us": self._now_us} if self._titled else None}

    def _usage(self) -> dict[str, Any]:
        calls = self._session.sync.calls
        if not calls:
            return {}
        # Added to what is stored, not to what the document knows: other writers add theirs.
        self._used = self._info.facts.get("usage") or {}
        for call in calls:
            add_call(self._used, call)
        return {"usage": self._used}

    @cached_property
    def _info(self) -> ThreadInfo:
        info = self._thread.info
        check_whole(info)
        return info

    # --- afterwards ---

    def settle(self) -> None:
        """The batch is stored: now the document knows it."""
        session, sync = self._session, self._session.sync
        facts = {draft.key: draft.data for draft in self.batch if isinstance(draft, FactDraft)}
        session.title, session.usage = self._titled, self._used
        kept = _base.shared(sync.messages, session.messages)
        session.sync = Sync(
            known=True,
            thread=sync.thread,
            leaf=self._leaf,
            messages=sync.messages[:kept] + _base.copied(session.messages[kept:]),
            unseen=sync.unseen,
            events=list(session.events),
            facts=sync.facts | facts,
            title=session.title,
            workspace=session.workspace,
        )
        times = [draft.time_us for draft in self.batch if not isinstance(draft, FactDraft)]
        session.updated_at = to_time(times[-1])


def check(session: Session) -> None:
    """A document that can be stored, or InvalidInput that names the field."""
    for name in ("title", "workspace", *_TEXTS):
        if not isinstance(getattr(session, name), str):
            raise InvalidInput(name, f"must be text, not {getattr(session, name)!r}")
    for name in ("messages", "events"):
        if not isinstance(getattr(session, name), list):
            raise InvalidInput(name, f"must be a list, not {getattr(session, name)!r}")


def check_event(event: object, path: str | None = None) -> None:
    if not isinstance(event, Event):
        raise InvalidInput("events", f"must be an Event, not {event!r}", path=path)
    encode(asdict(event), field="events")


# --- what is stored: the messages as a load gives them, and the events ------------------------


def shown(window: Window) -> list[Any]:
    """The messages for the model: what the last checkpoint brings, and all after it."""
    return [*_opening(window), *bodies(window.entries)]


def _opening(window: Window) -> list[Any]:
    """What stands for the part before the window."""
    compaction = window.compaction
    if compaction is None:
        return []
    if compaction.messages is not None:
        return compaction.messages
    # A compaction that `Thread.compact` made has a summary instead.
    text = summary_text(compaction.summary, window.kept)
    return [] if text is None else [{"role": "user", "content": text}]


def bodies(entries: Iterable[Entry]) -> list[Any]:
    """The messages among entries."""
    return [entry.body for entry in entries if _base.is_message(entry)]


def stored_events(thread: Thread, info: ThreadInfo, window: Window) -> list[Event]:
    """All events of the path. Reads past a checkpoint only if there are any."""
    if window.compaction is None:
        return events(window.entries)
    return events(thread.path(info.leaf)) if info.facts.get("has_events") else []


def events(entries: Iterable[Entry]) -> list[Event]:
    """The events among entries."""
    return [_event(entry.body) for entry in entries if entry.kind == "event"]


def _event(body: Any) -> Event:
    """Events that other programs have written come back as well: all that they say is data."""
    if isinstance(body, dict) and isinstance(body.get("event_id"), str):
        names = ("event_id", "stream_id", "type", "data")
        return Event(**{name: body[name] for name in names if name in body})
    return Event("", data=body)
