"""What an agent may ask about earlier sessions: short answers in text, with ids to go on from.

The readers are models, so an answer begins with what was asked for, has about 4 KB at most, says
what it left out, and names each entry by an id that the next call takes. A session is a thread.
Stored text is data for the model that reads it: it is cleaned, indented and never a heading.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice

from clew.cli._text import ago, one_line, partial_of, plural, text_of
from clew.context.window import MESSAGE_KINDS
from clew.core.drafts import check_number
from clew.core.errors import InvalidInput, NotFound
from clew.core.model import PAGE_MAX, Entry, ThreadInfo, encode_cursor, rfc3339
from clew.search.searcher import Hit, SearchPage
from clew.store import Store
from clew.thread import Thread
from clew.usage.model import By, line_of

ANSWER_CHARACTERS_MAX = 4_000
_TAIL_CHARACTERS = 200  # that are kept for what stands at the end of an answer
_EVERYWHERE = "*"
_SNIPPET_CHARACTERS = 90  # on both sides of a match
_LINE_CHARACTERS = 240  # of a message in an overview
_MESSAGE_CHARACTERS = 1_200  # of one among several
_RECENT = 200  # entries that an overview looks at

# How agents are told to go on with a session of theirs.
_RESUME = {
    "claude-code": "claude --resume {id}",
    "codex": "codex resume {id}",
    "copilot-cli": "copilot --resume {id}",
    "gemini-cli": "gemini --resume {id}",
    "opencode": "opencode --session {id}",
    "pi": "pi --session {id}",
}


class History:
    """The sessions of a store, as an agent sees them that works in `workspace`.

    The docstrings of what it answers are for the models that ask.
    """

    def __init__(self, store: Store, workspace: str | None) -> None:
        self._store = store
        self._workspace = workspace

    # --- finding ---

    def search_sessions(
        self,
        query: str,
        *,
        workspace: str | None = None,
        agent: str | None = None,
        role: str | None = None,
        since: str | None = None,
        limit: int = 8,
        cursor: str | None = None,
    ) -> str:
        """Find what was said, called or answered in earlier sessions: the best hits first.

        query: words, "phrases", prefix*, OR, -word. workspace: a folder, or "*" for all of them;
        by default the one you work in. agent: such as claude-code or codex. role: user, assistant,
        system or tool. since: 7d, 12h, 2w, or a date. cursor: from the answer before, to go on.
        """
        where, begin = self._where(workspace), self._time(since)

        def look(limit: int) -> SearchPage:
            return self._store.search(
                query,
                workspace=where,
                agent=agent,
                role=role,
                since=begin,
                limit=limit,
                cursor=cursor,
                context=_SNIPPET_CHARACTERS,
            )

        page = look(limit)
        count = f"{'' if page.exact else 'at least '}{plural(page.total, 'hit')}"
        head = [f"{count} for {query!r} {_told(where)}."]
        if page.relaxed:
            head.append("Nothing has all the words; these have some of them.")
        if not page.items and where is not None:
            head.append(f"workspace={_EVERYWHERE!r} looks in all workspaces.")
        text, shown = _fitted(head, [self._hit(hit) for hit in page.items])
        if shown < len(page.items):
            page = look(shown)  # the next page begins behind what there was room for
        return _with_more(text, page.cursor)

    def _hit(self, hit: Hit) -> str:
        title = "" if hit.title is None else f" {one_line(hit.title)!r}"
        place = "title" if hit.entry is None else f"entry {hit.entry}"
        said = f"{hit.role or hit.kind}, {ago(hit.time, self._store.now())}"
        return f"- session {hit.thread}{title}, {place} ({said}):\n  {one_line(hit.snippet)}"

    def list_sessions(
        self,
        *,
        workspace: str | None = None,
        agent: str | None = None,
        since: str | None = None,
        limit: int = 20,
        cursor: str | None = None,
    ) -> str:
        """The sessions, the last used first: id, title, age, agent, workspace.

        workspace: a folder, or "*" for all of them; by default the one you work in. since: 7d,
        12h, 2w, or a date. cursor: from the answer before, to go on.
        """
        check_number(limit, "limit", 1, PAGE_MAX)
        where = self._where(workspace)
        found: list[ThreadInfo] = []
        # An agent is no column of the list, so pages are read until there are enough of its own.
        while True:
            page = self._store.list(
                order="updated",
                workspace=where,
                after=self._time(since),
                limit=limit,
                cursor=cursor,
            )
            cursor = page.cursor
            for info in page.items:
                if agent is None or info.agent == agent:
                    found.append(info)
                if len(found) == limit:
                    break
            if len(found) == limit or cursor is None:
                break
        more = len(found) == limit and (cursor is not None or found[-1] is not page.items[-1])
        head = [f"{plural(len(found), 'session')} {_told(where)}, the last used first."]
        if not found and where is not None:
            head.append(f"workspace={_EVERYWHERE!r} lists all workspaces.")
        text, shown = _fitted(head, [f"- {self._session(info)}" for info in found])
        if not more and shown == len(found):
            return text
        last = found[shown - 1]
        return _with_more(text, encode_cursor(last.updated_us, last.id))

    def _session(self, info: ThreadInfo) -> str:
        title = "(no title)" if info.title is None else repr(one_line(info.title.text))
        notes = [ago(info.updated_at, self._store.now()), plural(info.seq, "record")]
        notes += [text for text in (info.agent, info.workspace) if text is not None]
        if info.origin is not None:
            notes.append(f"fork of {info.origin.thread}")
        if info.parent is not None:
            notes.append(f"sub-agent of {info.parent}")
        return f"{info.id} {title} ({', '.join(map(one_line, notes))})"

    # --- one session ---

    def get_session_overview(self, session: str) -> str:
        """One session at a glance: what was asked, how it ended, what it cost, what belongs to it.

        session: its id, or how the id begins.
        """
        thread = self._store.resolve(session)
        info = thread.info
        head = [
            self._session(info),
            f"created {rfc3339(info.created_at)}, last written {rfc3339(info.updated_at)}",
            f"usage: {line_of(self._store.usage(thread.id).total)}",
        ]
        below = [one.id for one in islice(self._store.threads(parent=thread.id), 6)]
        forks = [one.id for one in islice(self._store.threads(origin=thread.id), 6)]
        for name, ids in (("sub-agents", below), ("forks", forks)):
            if ids:
                head.append(f"{name}: {', '.join(ids[:5])}{' …' if len(ids) > 5 else ''}")
        path = thread.path(limit=_RECENT)
        messages = [entry for entry in path if entry.kind in MESSAGE_KINDS]
        asked = [entry for entry in messages if entry.kind == "user_message"]
        if len(path) == _RECENT:
            head.append(f"of its last {_RECENT} entries:")
        parts = ["", f"what the user asked ({len(asked)}), the newest last:"]
        parts += [_line(entry) for entry in asked[-12:]]
        parts += ["", "how it ends:", *[_line(entry) for entry in messages[-3:]]]
        return _answer(head, parts)

    def get_messages(
        self,
        session: str,
        *,
        entry: str | None = None,
        before: int = 2,
        after: int = 5,
    ) -> str:
        """The messages around an entry of a session; without one, the last messages.

        entry: as a hit names it. before, after: how many messages on either side. With before=0
        and after=0 it is that one message, as much of it as fits.
        """
        thread = self._store.resolve(session)
        path = _around(thread, entry, before, after)
        if entry is not None and not before and not after:  # this very one, as long as may be
            return _answer([_heading(path[0])], [_indented(text_of(path[0]))])
        head = [f"{plural(len(path), 'message')} of session {thread.id}, oldest first."]
        shown = [f"{_heading(one)}\n{_indented(_cut(text_of(one)))}" for one in path]
        return _answer(head, shown, "One whole message: entry=ID, before=0, after=0.")

    def resume_command(self, session: str) -> str:
        """The command with which the user goes on with a session."""
        thread = self._store.resolve(session)
        info = thread.info
        name, own = info.agent, info.facts.get("session_id")
        if name not in _RESUME or not isinstance(own, str):
            text = f"clew show {shlex.quote(thread.id)}"
            return (
                f"{text}\nIt is no session of an agent that Clew knows how to call; this shows it. "
                f"clew resume {shlex.quote(thread.id)} --in AGENT carries on with it in Claude "
                "Code, Codex, pi or opencode."
            )
        command = _RESUME[name].format(id=shlex.quote(own))
        folder = f"cd {shlex.quote(info.workspace)} && " if info.workspace else ""
        return (
            f"{folder}{command}\nFor the user to type. It works as long as {name} itself still has "
            f"the session; clew resume {shlex.quote(thread.id)} --in AGENT writes it anew, for "
            "Claude Code, Codex, pi or opencode."
        )

    # --- what it took ---

    def get_usage_summary(
        self, *, by: By = "model", workspace: str | None = None, since: str | None = None
    ) -> str:
        """Tokens and cost, each reply counted once. by: day, model, workspace, agent or thread."""
        where = self._where(workspace)
        report = self._store.usage(by=by, workspace=where, since=self._time(since))
        total = report.total
        head = [f"{line_of(total)} in {plural(total.replies, 'reply')} {_told(where)}, by {by}:"]
        rows = [f"- {one_line(row.key or 'unknown')}: {line_of(row.used)}" for row in report.rows]
        return _answer(head, rows, f"Prices: {report.prices}.")

    # --- what a call means ---

    def _where(self, workspace: str | None) -> str | None:
        """The workspace that is meant; None: all of them."""
        if workspace == _EVERYWHERE:
            return None
        return workspace or self._workspace

    def _time(self, text: str | None) -> datetime | None:
        if text is None:
            return None
        span = re.fullmatch(r"(\d{1,5})([hdw])", text)
        if span is not None:
            hours = int(span[1]) * {"h": 1, "d": 24, "w": 168}[span[2]]
            return self._store.now() - timedelta(hours=hours)
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            raise InvalidInput("since", f"{text!r} is neither a span like 7d nor a date") from None
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _around(thread: Thread, entry: str | None, before: int, after: int) -> list[Entry]:
    """The messages around one of them, on its branch; without it the last ones."""
    for name, number in (("before", before), ("after", after)):
        check_number(number, name, 0, 50)
    if entry is None:
        count = before + 1 + after
        path = thread.path(limit=count * 4)
        return [one for one in path if one.kind in MESSAGE_KINDS][-count:]
    up_to = thread.path(entry, limit=1 + before * 4)
    earlier = [one for one in up_to[:-1] if one.kind in MESSAGE_KINDS][-before:] if before else []
    later: list[Entry] = []
    if after:
        # Of an entry beside the current path what follows is on another branch, or nothing.
        with suppress(NotFound):
            found = thread.path(after=entry)
            later = [one for one in found if one.kind in MESSAGE_KINDS][:after]
    return [*earlier, up_to[-1], *later]


def _told(workspace: str | None) -> str:
    return "in all workspaces" if workspace is None else f"in workspace {workspace}"


def _heading(entry: Entry) -> str:
    partial = ", partial" if partial_of(entry) is not None else ""
    return f"[{entry.id}] {entry.kind}{partial}, {rfc3339(entry.time)}"


def _line(entry: Entry) -> str:
    text = one_line(text_of(entry))
    return f"- [{entry.id}] {entry.kind}: {_cut(text, _LINE_CHARACTERS)}"


def _indented(text: str) -> str:
    return "\n".join(f"  {one_line(line)}" for line in text.splitlines())


def _cut(text: str, size: int = _MESSAGE_CHARACTERS) -> str:
    left = len(text) - size
    return text if left <= 0 else f"{text[:size]} … ({left:,} characters more)"


def _with_more(text: str, cursor: str | None) -> str:
    return text if cursor is None else f"{text}\nMore: cursor={cursor!r}."


def _answer(head: Sequence[str], parts: Sequence[str], tail: str = "") -> str:
    """An answer that need not go on where it ends for length."""
    text, shown = _fitted(head, parts)
    if shown < len(parts):
        text += f"\n… {plural(len(parts) - shown, 'part')} left out for length."
    return f"{text}\n{tail}".rstrip()


def _fitted(head: Sequence[str], parts: Sequence[str]) -> tuple[str, int]:
    """The head and as many parts as an answer has room for, but one at least; and how many."""
    text = "\n".join(head)
    for number, part in enumerate(parts):
        room = ANSWER_CHARACTERS_MAX - len(text) - _TAIL_CHARACTERS
        if len(part) > room and number:
            return text, number
        text += f"\n{_cut(part, max(room, 0))}"
    return text, len(parts)
