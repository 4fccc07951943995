"""Compaction: an entry that stands for what came before it. It deletes nothing and can be undone.

`plan` chooses where to cut, `body` writes down what was decided. Calling the one who sums up, and
appending the entry, is the thread's work (`Thread.compact`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from clew import messages
from clew.codec import new_id
from clew.context import Context, Options, edited, project
from clew.errors import InvalidInput
from clew.messages.neutral import Message, calls_of, results_of
from clew.model import Entry
from clew.tokens import Count, count_message, estimate
from clew.window import MESSAGE_KINDS, Window

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


def body(
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
