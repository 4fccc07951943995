"""One save: what a document has that its thread has not, as one batch."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from clew import _facets, drafts
from clew.codec import encode
from clew.errors import InvalidInput
from clew.model import Draft, EntryDraft, FactDraft, ThreadInfo, to_time
from clew.sessions.document import Event, Session, Sync, first_user_text
from clew.sessions.reading import shown_at
from clew.sessions.titles import title_from
from clew.sessions.usage import add_call
from clew.sessions.workspace import normalize_workspace_path, workspace_facts
from clew.store import Store
from clew.thread import Thread

_TEXTS = ("vendor", "endpoint", "model")


class Checkpoint(Struct, frozen=True):
    """A compacted history that is to stand for all before it."""

    messages: list[Any]
    token_count: int | None = None


class Step:
    """What one save writes, for as long as the thread stands where the document thinks.

    The batch is empty if the document has nothing new.
    """

    def __init__(
        self,
        store: Store,
        thread: str,
        session: Session,
        format: str | None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self._store = store
        self._thread = thread
        self._session = session
        self._format = format
        self._now_us = store.clock()
        self._leaf = session.sync.leaf  # this and the next two: as they will be afterwards
        self._titled = session.title
        self._used = session.usage
        entries: list[Draft] = [*self._messages(), *self._events(), *self._calls()]
        if checkpoint is not None:
            entries.append(self._checkpoint(checkpoint))
        facts = self._facts()
        if facts and not entries:
            entries = [_facets.touch(self._leaf, self._now_us)]
        self.batch = [*entries, *facts]

    # --- entries ---

    def _messages(self) -> list[EntryDraft]:
        given, sync = self._session.messages, self._session.sync
        start = _facets.shared(sync.messages, given)
        if start == len(sync.messages):
            return self._appended(start)
        # Not what the document was before. Is it what a load would give, and more?
        view = shown_at(Thread(self._store, self._thread), sync.leaf)
        start = _facets.shared(view, given)
        if start == len(view):
            return self._appended(start)
        # It was edited: its beginning now stands for all that was before.
        opening = self._checkpoint(Checkpoint(_facets.as_bodies(given[:start])))
        return [opening, *self._appended(start)]

    def _appended(self, start: int) -> list[EntryDraft]:
        rest = self._session.messages[start:]
        return self._noted(_facets.message_drafts(self._store, rest, self._format, start=start))

    def _events(self) -> list[EntryDraft]:
        events = self._session.events
        start = _facets.shared(self._session.sync.events, events)
        for index, event in enumerate(events[start:], start):
            check_event(event, f"$[{index}]")
        return self._noted([self._draft("event", asdict(event)) for event in events[start:]])

    def _calls(self) -> list[EntryDraft]:
        return self._noted([self._draft("usage", call) for call in self._session.sync.calls])

    def _checkpoint(self, checkpoint: Checkpoint) -> EntryDraft:
        """The messages themselves go along, so that a resume reads no further back than this.

        Those of others, which whoever made the checkpoint has not seen, go along as well.
        """
        brought = [*checkpoint.messages, *self._session.sync.unseen]
        body = _facets.compaction_body(
            None,
            first_kept=None,
            through=self._leaf,
            trigger="checkpoint",
            tokens_after_estimate=checkpoint.token_count,
            details={"messages": brought},
        )
        return self._noted([self._draft("compaction", body)])[0]

    def _draft(self, kind: str, body: Any) -> EntryDraft:
        return drafts.draft(kind, body, clock=self._store.clock)

    def _noted(self, made: list[EntryDraft]) -> list[EntryDraft]:
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
        changed = [fact for fact in made if known.get(fact.key, b"null") != fact.data]
        more = {**self._workspace(), **self._title(), **self._usage()}
        return [*changed, *drafts.facts(more, self._now_us)]

    def _workspace(self) -> dict[str, Any]:
        session = self._session
        if session.workspace == session.sync.workspace:
            return {}
        session.workspace = normalize_workspace_path(session.workspace)
        return workspace_facts(session.workspace, self._info.tags)

    def _title(self) -> dict[str, Any]:
        session, source = self._session, "user"
        if not session.title and not session.sync.title:
            if self._info.title is None:
                new = session.messages[len(session.sync.messages) :]
                self._titled, source = title_from(first_user_text(new)), "host"
            else:  # somebody else has found one
                self._titled = session.title = session.sync.title = self._info.title.text
        if self._titled == session.sync.title:
            return {}
        title = {"text": self._titled, "status": "ready", "source": source}
        return {"title": {**title, "time_us": self._now_us} if self._titled else None}

    def _usage(self) -> dict[str, Any]:
        calls = self._session.sync.calls
        if not calls:
            return {}
        self._used = self._info.facts.get("usage") or {}
        for call in calls:
            add_call(self._used, call)
        return {"usage": self._used}

    @cached_property
    def _info(self) -> ThreadInfo:
        return self._store.engine.thread(self._thread)

    # --- afterwards ---

    def settle(self) -> None:
        """The batch is stored: now the document knows it."""
        session, sync = self._session, self._session.sync
        facts = {draft.key: draft.data for draft in self.batch if isinstance(draft, FactDraft)}
        session.title, session.usage = self._titled, self._used
        kept = _facets.shared(sync.messages, session.messages)
        session.sync = Sync(
            known=True,
            leaf=self._leaf,
            messages=sync.messages[:kept] + _facets.copied(session.messages[kept:]),
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
