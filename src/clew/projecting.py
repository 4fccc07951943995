"""What a thread does with projections: read its window, project it, and keep compactions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from clew import compaction, messages
from clew.compaction import Compacted, CompactionPlan
from clew.context import Context, Options, project, summary_text
from clew.errors import Conflict, InvalidInput, NotFound
from clew.messages.neutral import Message, Text, calls_of, results_of
from clew.model import Entry
from clew.tokens import count_message
from clew.window import Window, read_window

if TYPE_CHECKING:
    from clew.thread import Thread

_TRIES = 20

Summarize = Callable[[list[Any]], str]


def context(
    thread: Thread, leaf: str | UnsetType | None, *, compacted: bool, options: Options
) -> Context:
    if options.budget_tokens is not None and options.budget_tokens < 1:
        raise InvalidInput("budget_tokens", f"must be at least 1, not {options.budget_tokens}")
    return project(read_window(thread, leaf, compacted=compacted), options)


# --- messages at the door ---


def checked_message(thread: Thread, message: Any, format: str | None) -> Any:
    """A message as JSON; with a format, only if it can be read and answers known calls."""
    body = message if isinstance(message, dict) else messages.as_body(message)
    if format is None:
        return body
    wanted = {result.call for read in messages.read(format, body) for result in results_of(read)}
    if wanted:
        _check_calls(thread, wanted)
    return body


def _check_calls(thread: Thread, wanted: set[str]) -> None:
    """A result comes soon after its call, so the newest entries are looked at first."""
    leaf: str | UnsetType | None = UNSET
    limit = 16
    while wanted:
        entries = thread.path(leaf, limit=limit)
        wanted -= {id for entry in entries for id in _call_ids(entry)}
        if not entries or entries[0].parent is None:
            break
        leaf, limit = entries[0].parent, 1000
    for id in sorted(wanted):
        raise InvalidInput("message", f"is a result for call {id!r}, which is not in the thread")


def _call_ids(entry: Entry) -> list[str]:
    if entry.kind not in ("tool_call", "assistant_message", "custom"):
        return []
    found = messages.view(entry.format, entry.body)
    return [call.id for message in found for call in calls_of(message)]


# --- compacting -----------------------------------------------------------------------------


def compact(
    thread: Thread, summarize: Summarize, *, fence: int | None, notes: dict[str, Any], **keep: Any
) -> Entry | None:
    check_notes(notes)
    decided = prepare(thread, **keep)
    if decided is None:
        return None
    summary = summarize(decided.context.messages)
    if inspect.isawaitable(summary):
        if inspect.iscoroutine(summary):
            summary.close()
        raise InvalidInput("summarize", "is asynchronous; use AsyncThread.compact")
    return commit(thread, decided, summary, fence=fence, notes=notes)


def check_notes(notes: dict[str, Any]) -> None:
    """What a compaction may be told about itself; checked before anybody sums up."""
    for name in notes:
        if name not in compaction.NOTES:
            known = ", ".join(compaction.NOTES)
            raise InvalidInput(name, f"is not a note of a compaction (they are: {known})")


def prepare(thread: Thread, **keep: Any) -> CompactionPlan | None:
    """Where a compaction would cut, and what there is to be summed up."""
    return compaction.plan(read_window(thread), **keep)


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
    survive. If the thread was moved or compacted by somebody else meanwhile: Conflict.
    """
    if not isinstance(summary, str) or not summary.strip():
        raise InvalidInput("summarize", f"must return text, not {summary!r}; nothing was written")
    body: dict[str, Any] | None = None
    for _ in range(_TRIES):
        leaf = thread.leaf
        tail = _tail_now(thread, leaf, decided)
        if body is None:
            tokens_after = _tokens_after(thread, decided, summary, tail)
            body = compaction.body(decided, summary, tokens_after=tokens_after, **notes)
        try:
            return thread.append("compaction", body, expect=leaf, fence=fence)
        except Conflict as error:
            last = error
    raise last


def _tail_now(thread: Thread, leaf: str | None, decided: CompactionPlan) -> list[Entry]:
    """What lies behind the cut now; Conflict if the thread is not where the plan was made."""
    window = read_window(thread, leaf)
    before = None if decided.previous is None else decided.previous.id
    now = None if window.compaction is None else window.compaction.id
    if now != before:
        raise Conflict("the thread was compacted meanwhile", expected=before, actual=now)
    try:
        return thread.path(leaf, after=decided.compacted_through)
    except NotFound:
        raise Conflict(
            "the thread was moved to another branch meanwhile",
            expected=decided.compacted_through,
            actual=leaf,
        ) from None


def _tokens_after(thread: Thread, decided: CompactionPlan, summary: str, tail: list[Entry]) -> int:
    """What the context will take: the summary as it will stand there, and what is kept."""
    kept = [thread.get(id) for id in decided.kept_users]
    told = Message(role="user", parts=(Text(text=summary_text(summary, kept) or ""),))
    entries = [entry for entry in tail if entry.kind != "compaction"]
    after = project(Window(entries), Options(format=decided.context.format))
    return count_message(told) + after.report.tokens


# --- undoing and explaining -----------------------------------------------------------------


def uncompact(thread: Thread, *, fence: int | None) -> Entry | None:
    """Take the compaction in force out of it again; the one before it, if any, is back."""
    found = read_window(thread).compaction
    if found is None:
        return None
    if thread.leaf == found.id:
        thread.move(found.parent, expect=found.id, fence=fence)
    else:
        edit = {
            "edit": "uncompact",
            "target": found.id,
            "compaction_id": found.body.get("compaction_id"),
        }
        thread.append("context_edit", edit, fence=fence)
    return found


def explain(thread: Thread) -> Compacted | None:
    """What the summary that is in force stands for."""
    found = read_window(thread).compaction
    if found is None:
        return None
    body = found.body if isinstance(found.body, dict) else {}
    through = body.get("compacted_through_entry_id")
    window = read_window(thread, found.parent)
    entries = window.entries
    ids = [entry.id for entry in entries]
    if through in ids:
        entries = entries[: ids.index(through) + 1]
    return Compacted(
        entry=found,
        summary=str(body.get("summary") or ""),
        generation=int(body.get("generation") or 1),
        stands_for=entries,
        kept_users=tuple(body.get("kept_user_entry_ids") or ()),
    )
