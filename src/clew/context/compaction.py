"""Compaction: an entry that stands for what came before it. It deletes nothing and can be undone.

`cut` chooses what to sum up; here the summary is asked for, the entry is built and appended, and
taken back. The functions work on the thread that they are given and read nothing else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct, UnsetType

from clew import messages
from clew.context import chunks
from clew.context.bodies import Compaction
from clew.context.cut import CompactionPlan, plan
from clew.context.projection import Options, project_window, summary_text
from clew.context.tokens import count_message, estimate
from clew.context.window import Window, read_window
from clew.core.codec import new_id
from clew.core.errors import Conflict, InvalidInput, NotFound
from clew.core.model import Entry
from clew.messages.neutral import Message, Text

if TYPE_CHECKING:
    from clew.thread import Thread

SCHEMA_VERSION = 1
NOTES = ("trigger", "reason", "phase", "usage_before", "usage_after", "details")

_TRIES = 20

Summarize = Callable[[list[Any]], str]


class Compacted(Struct, frozen=True, kw_only=True):
    """What a compaction stands for: the entries that its summary replaces in contexts."""

    entry: Entry
    summary: str
    generation: int
    stands_for: list[Entry]
    kept_users: tuple[str, ...]


def compact(
    thread: Thread,
    summarize: Summarize | None,
    summary: str | None,
    *,
    fence: int | None,
    notes: dict[str, Any],
    **keep: Any,
) -> Entry | None:
    """See `Thread.compact`; `keep` are the options of `cut.plan`."""
    check(summarize, summary, notes)
    decided = prepare(thread, **keep)
    if decided is None:
        return None
    if summarize is not None:
        requests = ask(decided)
        asked: list[Any] | None = next(requests)
        while asked is not None:
            summary = summarize(asked)
            if inspect.isawaitable(summary):
                if inspect.iscoroutine(summary):
                    summary.close()  # or Python warns that it was never awaited
                raise InvalidInput("summarize", "is asynchronous; use AsyncThread.compact")
            asked = requests.send(summary)
    return commit(thread, decided, summary, fence=fence, notes=notes)


def ask(decided: CompactionPlan) -> Generator[list[Any] | None, Any, None]:
    """What the function that sums up is asked, one request after the other; None at the end.

    It is sent each summary; the last one is that of the whole. One piece is one request. Of
    several, each is summed up, and then the summaries are, together, until there is one.
    """
    texts: list[str] = []
    for piece in decided.pieces:
        texts.append(checked_summary((yield piece)))
    while len(texts) > 1:
        assert decided.max_tokens is not None
        joined = chunks.join(texts, decided.max_tokens, estimate)
        texts = []
        for message in joined:
            written = messages.write(decided.context.format, [message]).messages
            texts.append(checked_summary((yield written)))
    yield None


def checked_summary(summary: Any) -> str:
    if not isinstance(summary, str) or not summary.strip():
        raise InvalidInput("summarize", f"must return text, not {summary!r}; nothing was written")
    return summary


def check(summarize: object, summary: str | None, notes: dict[str, Any]) -> None:
    """What a caller may say of a compaction; checked before the summary, which costs money."""
    if (summarize is None) == (summary is None):
        raise InvalidInput("summary", "give either the summary, or a function that makes it")
    for name in notes:
        if name not in NOTES:
            known = ", ".join(NOTES)
            raise InvalidInput(name, f"is not a note of a compaction (they are: {known})")


def prepare(thread: Thread, **keep: Any) -> CompactionPlan | None:
    """Where a compaction would cut, and what there is to be summed up."""
    return plan(read_window(thread), **keep)


def commit(
    thread: Thread,
    decided: CompactionPlan,
    summary: Any,
    *,
    fence: int | None,
    notes: dict[str, Any],
) -> Entry:
    """Append the compaction where the thread stands now.

    Entries that were appended while the summary was made lie behind the first kept one, so they
    survive. If another writer moved or compacted the thread meanwhile: Conflict.
    """
    summary = checked_summary(summary)
    body: dict[str, Any] | None = None
    # A summary may take minutes, and the thread grows meanwhile. An append that loses the race
    # for the leaf is tried again: the plan still holds as long as its cut is on the path.
    for _ in range(_TRIES):
        leaf = thread.leaf
        tail = _tail_now(thread, leaf, decided)
        if body is None:
            body = compaction_body(
                decided.previous,
                first_kept=decided.first_kept,
                through=decided.compacted_through,
                kept_users=decided.kept_users,
                carried=decided.carried,
                summary=summary,
                tokens_before=decided.tokens_before,
                tokens_after=_tokens_after(thread, decided, summary, tail),
                **notes,
            )
        try:
            return thread.append("compaction", body, expect=leaf, fence=fence)
        except Conflict as error:
            last = error
    raise last


def compaction_body(
    previous: Compaction | None,
    *,
    first_kept: str | None,
    through: str | None,
    kept_users: Iterable[str] = (),
    carried: Iterable[str] = (),
    summary: str = "",
    trigger: str = "manual",
    reason: str | None = None,
    phase: str = "completed",
    tokens_before: int | None = None,
    tokens_after: int | None = None,
    usage_before: Any = None,
    usage_after: Any = None,
    details: Any = None,
) -> dict[str, Any]:
    """The body of every compaction, those of the facets too. `previous` is the one in force."""
    compaction_id = new_id()
    return {
        "compaction_id": compaction_id,
        "previous_compaction_id": None if previous is None else previous.compaction_id,
        "generation": 1 if previous is None else previous.generation + 1,
        "window_id": compaction_id,
        "first_kept_entry_id": first_kept,
        "compacted_through_entry_id": through,
        "kept_user_entry_ids": list(kept_users),
        "carried_entry_ids": list(carried),
        "summary": summary,
        "summary_schema_version": SCHEMA_VERSION,
        "trigger": trigger,
        "reason": reason,
        "phase": phase,
        "tokens_before": tokens_before,
        "tokens_after_estimate": tokens_after,
        "context_usage_before": usage_before,
        "context_usage_after": usage_after,
        "details": details,
    }


def uncompact(thread: Thread, *, fence: int | None) -> Entry | None:
    """Take the compaction in force out of it again; the one before it, if any, is back."""
    found = read_window(thread).compaction
    if found is None:
        return None
    entry = found.entry
    if thread.leaf == entry.id:
        thread.move(entry.parent, expect=entry.id, fence=fence)
    else:
        edit = {"edit": "uncompact", "target": entry.id, "compaction_id": found.compaction_id}
        thread.append("context_edit", edit, fence=fence)
    return entry


def explain(thread: Thread, leaf: str | UnsetType | None = UNSET) -> Compacted | None:
    """What the summary that is in force stands for."""
    found = read_window(thread, leaf).compaction
    if found is None:
        return None
    entries = read_window(thread, found.entry.parent).entries
    ids = [entry.id for entry in entries]
    if found.through in ids:
        entries = entries[: ids.index(found.through) + 1]
    return Compacted(
        entry=found.entry,
        summary=found.summary,
        generation=found.generation,
        stands_for=entries,
        kept_users=found.kept_users,
    )


# --- what has become of the thread while the summary was made ------------------------------


def _tail_now(thread: Thread, leaf: str | None, decided: CompactionPlan) -> list[Entry]:
    """What lies behind the cut now; Conflict if the thread is not where the plan was made."""
    window = read_window(thread, leaf)
    before = None if decided.previous is None else decided.previous.entry.id
    now = None if window.compaction is None else window.compaction.entry.id
    if now != before:
        raise Conflict(
            "the thread was compacted meanwhile", field="compaction", expected=before, actual=now
        )
    try:
        return thread.path(leaf, after=decided.compacted_through)
    except NotFound:
        raise Conflict(
            "the thread was moved to another branch meanwhile",
            field="leaf",
            expected=decided.compacted_through,
            actual=leaf,
        ) from None


def _tokens_after(thread: Thread, decided: CompactionPlan, summary: str, tail: list[Entry]) -> int:
    """What the context will take: the summary as it will stand there, and what is kept."""
    kept = [thread.get(id) for id in decided.kept_users]
    told = Message(role="user", parts=(Text(text=summary_text(summary, kept) or ""),))
    entries = [entry for entry in tail if entry.kind != "compaction"]
    after = project_window(Window(entries), Options(format=decided.context.format))
    return count_message(told) + after.report.tokens
