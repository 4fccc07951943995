"""Compaction: an entry that stands for what came before it. It deletes nothing and can be undone.

`plan` chooses where to cut, `body` writes down what was decided. Calling the one who sums up, and
appending the entry, is the thread's work (`Thread.compact`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from clew import messages
from clew.context.project import Context, Options, edited, project, summary_text
from clew.context.tokens import Count, count_message, estimate
from clew.context.window import MESSAGE_KINDS, Window, read_window
from clew.core.codec import new_id
from clew.core.errors import Conflict, InvalidInput, NotFound
from clew.core.model import Entry
from clew.messages.neutral import Message, Text, calls_of, results_of

if TYPE_CHECKING:
    from clew.thread import Thread


SCHEMA_VERSION = 1
KEEP_TURNS = 2
KEEP_USER_TOKENS = 2000
NOTES = ("trigger", "reason", "phase", "usage_before", "usage_after", "details")


class CompactionPlan(Struct, frozen=True, kw_only=True):
    """What a compaction would do: `context` is what is to be summed up.

    `first_kept` is None when everything so far is summed up.
    """

    context: Context
    compacted_through: str
    first_kept: str | None
    kept_users: tuple[str, ...]
    carried: tuple[str, ...]
    previous: Entry | None
    tokens_before: int


class Compacted(Struct, frozen=True, kw_only=True):
    """What a compaction stands for: the entries that its summary replaces in contexts."""

    entry: Entry
    summary: str
    generation: int
    stands_for: list[Entry]
    kept_users: tuple[str, ...]


class _Measured(Struct, frozen=True):
    """An entry with what planning must know about it."""

    entry: Entry
    tokens: int
    is_request: bool
    calls: frozenset[str]
    results: frozenset[str]


def plan(
    window: Window,
    *,
    keep_turns: int | None = None,
    keep_tokens: int | None = None,
    keep_user_tokens: int = KEEP_USER_TOKENS,
    format: str | None = None,
    count: Count = estimate,
) -> CompactionPlan | None:
    """Where to cut, or None if there is nothing before the part to be kept.

    Cuts before a user's request where it can; inside the last turn, between two exchanges, if
    that turn alone is over `keep_tokens`. Never between a call and its result.
    """
    if keep_turns is not None and keep_tokens is not None:
        raise InvalidInput("keep_turns", "give either keep_turns or keep_tokens, not both")
    for name, value in (("keep_turns", keep_turns), ("keep_tokens", keep_tokens)):
        if value is not None and value < 0:
            raise InvalidInput(name, f"must not be negative, but is {value}")
    measured = [_measure(entry, count) for entry in window.entries]
    if keep_tokens is None:
        cut = _cut_by_turns(measured, KEEP_TURNS if keep_turns is None else keep_turns)
    else:
        cut = _cut_by_tokens(measured, keep_tokens)
    if not any(m.entry.kind in MESSAGE_KINDS for m in measured[:cut]):
        return None
    options = Options(format=format, count=count, purpose="compaction")
    return _planned(window, measured, cut, keep_user_tokens, options)


def _planned(
    window: Window, measured: list[_Measured], cut: int, keep_user_tokens: int, options: Options
) -> CompactionPlan:
    edits = [m.entry for m in measured[cut:] if m.entry.kind == "context_edit"]
    head = replace(window, entries=[*(m.entry for m in measured[:cut]), *edits])
    older = [_measure(entry, options.count) for entry in window.kept]
    untouched = edited(head.entries).isdisjoint
    requests = [m for m in (*older, *measured[:cut]) if m.is_request and untouched({m.entry.id})]
    inside_turn = cut < len(measured) and not measured[cut].is_request
    return CompactionPlan(
        context=project(head, options),
        compacted_through=measured[cut - 1].entry.id,
        first_kept=measured[cut].entry.id if cut < len(measured) else None,
        kept_users=_kept_users(requests, keep_user_tokens, at_least=int(inside_turn)),
        carried=_carried([*window.carried, *head.entries]),
        previous=window.compaction,
        tokens_before=project(window, replace(options, purpose="provider_request")).report.tokens,
    )


def compaction_body(
    decided: CompactionPlan,
    summary: str,
    *,
    trigger: str = "manual",
    reason: str | None = None,
    phase: str = "completed",
    usage_before: Any = None,
    usage_after: Any = None,
    details: Any = None,
    tokens_after: int | None = None,
) -> dict[str, Any]:
    """The body of the compaction's entry."""
    previous = {} if decided.previous is None else decided.previous.body
    previous = previous if isinstance(previous, dict) else {}
    generation = previous.get("generation")
    compaction_id = new_id()
    return {
        "compaction_id": compaction_id,
        "previous_compaction_id": previous.get("compaction_id"),
        "generation": (generation if isinstance(generation, int) else int(bool(previous))) + 1,
        "window_id": compaction_id,
        "first_kept_entry_id": decided.first_kept,
        "compacted_through_entry_id": decided.compacted_through,
        "kept_user_entry_ids": list(decided.kept_users),
        "carried_entry_ids": list(decided.carried),
        "summary": summary,
        "summary_schema_version": SCHEMA_VERSION,
        "trigger": trigger,
        "reason": reason,
        "phase": phase,
        "tokens_before": decided.tokens_before,
        "tokens_after_estimate": tokens_after,
        "context_usage_before": usage_before,
        "context_usage_after": usage_after,
        "details": details,
    }


# --- where to cut ---------------------------------------------------------------------------


def _measure(entry: Entry, count: Count) -> _Measured:
    if entry.kind not in MESSAGE_KINDS:
        return _Measured(entry, 0, False, frozenset(), frozenset())
    found = messages.view(entry.format, entry.body)
    if not found:
        return _Measured(entry, 0, entry.kind == "user_message", frozenset(), frozenset())
    return _Measured(
        entry,
        sum(count_message(message, count) for message in found),
        any(_is_request(message) for message in found),
        frozenset(call.id for message in found for call in calls_of(message)),
        frozenset(result.call for message in found for result in results_of(message)),
    )


def _is_request(message: Message) -> bool:
    return message.role == "user" and len(results_of(message)) < len(message.parts)


def _cut_by_turns(measured: Sequence[_Measured], keep_turns: int) -> int:
    """The index of the first entry of the last so many turns."""
    starts = _turn_starts(measured)
    if keep_turns == 0:
        return len(measured)
    return starts[-keep_turns] if len(starts) >= keep_turns else 0


def _cut_by_tokens(measured: Sequence[_Measured], keep_tokens: int) -> int:
    """The earliest turn from which on all fits; inside the last turn if that is too large."""
    sizes = _sizes_from(measured)
    starts = _turn_starts(measured)
    for start in starts:
        if sizes[start] <= keep_tokens:
            return start
    last = starts[-1] if starts else 0
    exchanges = [i for i in _exchange_starts(measured) if i > last]
    for start in exchanges:
        if sizes[start] <= keep_tokens:
            return start
    return exchanges[-1] if exchanges else last


def _sizes_from(measured: Sequence[_Measured]) -> list[int]:
    """For each index, the tokens from there to the end."""
    sizes, total = [0] * len(measured), 0
    for index in range(len(measured) - 1, -1, -1):
        total += measured[index].tokens
        sizes[index] = total
    return sizes


def _turn_starts(measured: Sequence[_Measured]) -> list[int]:
    """The requests that begin a turn: a user's message after something else than one."""
    starts: list[int] = []
    after_request = False
    for index, item in enumerate(measured):
        if item.is_request and not after_request:
            starts.append(index)
        if item.entry.kind in MESSAGE_KINDS:
            after_request = item.is_request
    return starts


def _exchange_starts(measured: Sequence[_Measured]) -> list[int]:
    """Where the assistant speaks and nothing is open: every call before has its result before."""
    answered = {id: i for i, item in enumerate(measured) for id in item.results}
    starts: list[int] = []
    open_until = -1
    for index, item in enumerate(measured):
        if index > open_until and item.entry.kind in ("assistant_message", "tool_call"):
            starts.append(index)
        for id in item.calls:
            open_until = max(open_until, answered.get(id, index))
    return starts


def _kept_users(requests: Sequence[_Measured], tokens: int, *, at_least: int) -> tuple[str, ...]:
    """The newest requests of the part that is summed up, word for word, as far as they fit.

    The request of a turn that is cut in two is always among them.
    """
    kept: list[str] = []
    for item in reversed(requests):
        tokens -= item.tokens
        if tokens < 0 and len(kept) >= at_least:
            break
        kept.append(item.entry.id)
    return tuple(reversed(kept))


def _carried(entries: Sequence[Entry]) -> tuple[str, ...]:
    """What stays in force behind the cut: system messages, the last tools and the last model."""
    removed = edited(entries)
    found = [e.id for e in entries if e.kind == "system_message" and e.id not in removed]
    for kind in ("active_tools_change", "model_change"):
        found += [entry.id for entry in entries if entry.kind == kind][-1:]
    return tuple(found)


# --- what a thread does with projections: read its window, project it, and keep compactions ---

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
            body = compaction_body(decided, summary, tokens_after=tokens_after, **notes)
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
