"""Where a compaction cuts: which entries it sums up, which it keeps word for word. Pure.

A cut never parts a call from its result, because no provider takes the one without the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from clew import messages
from clew.context.bodies import Compaction
from clew.context.chunks import TOKENS_MIN
from clew.context.projection import Options, edited, project_pieces, project_window
from clew.context.request import Context
from clew.context.tokens import KEEP_USER_TOKENS, Count, count_message, estimate
from clew.context.window import MESSAGE_KINDS, Window
from clew.core.drafts import check_number
from clew.core.errors import InvalidInput
from clew.core.model import Entry
from clew.messages.neutral import results_of, tool_ids

KEEP_TURNS = 2
_SUMMED_UP = MESSAGE_KINDS - {"system_message"}  # which stays in force, word for word


class CompactionPlan(Struct, frozen=True, kw_only=True):
    """What a compaction would do: `context` is what is to be summed up.

    `first_kept` is None when everything so far is summed up. `pieces` are the messages of
    `context`, in parts of at most `max_tokens` if that was asked for.
    """

    context: Context
    compacted_through: str
    first_kept: str | None
    kept_users: tuple[str, ...]
    carried: tuple[str, ...]
    previous: Compaction | None
    tokens_before: int
    pieces: list[list[Any]]
    max_tokens: int | None


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
    through: str | None = None,
    max_tokens: int | None = None,
    format: str | None = None,
    count: Count = estimate,
) -> CompactionPlan | None:
    """Where to cut, or None if there is nothing before the part to be kept.

    Cuts before a user's request where it can; inside the last turn, between two exchanges, if
    that turn alone is over `keep_tokens`; behind `through` if the caller says so.
    """
    said = [name for name in (keep_turns, keep_tokens, through) if name is not None]
    if len(said) > 1:
        raise InvalidInput("keep_turns", "give one of keep_turns, keep_tokens and through")
    for name, value in (("keep_turns", keep_turns), ("keep_tokens", keep_tokens)):
        if value is not None:
            check_number(value, name)
    if max_tokens is not None:
        check_number(max_tokens, "max_tokens", TOKENS_MIN)
    measured = [_measure(entry, count) for entry in window.entries]
    if through is not None:
        cut = _cut_behind(measured, through)
    elif keep_tokens is None:
        cut = _cut_by_turns(measured, KEEP_TURNS if keep_turns is None else keep_turns)
    else:
        cut = _cut_by_tokens(measured, keep_tokens)
    before = measured[:cut]
    if not any(m.entry.kind in _SUMMED_UP for m in before):
        return None
    # An edit may stand behind the cut and be about an entry before it: what was edited out must
    # not come back through the summary or the preserved inputs.
    edits = [m.entry for m in measured[cut:] if m.entry.kind == "context_edit"]
    head = replace(window, entries=[*(m.entry for m in before), *edits])
    removed = edited(head.entries)
    asked = [*(_measure(entry, count) for entry in window.kept), *before]
    requests = [m for m in asked if m.is_request and m.entry.id not in removed]
    inside_turn = cut < len(measured) and not measured[cut].is_request
    options = Options(format=format, count=count, purpose="compaction")
    context = project_window(head, options)
    pieces = [context.messages]
    if max_tokens is not None:
        pieces = project_pieces(head, replace(options, format=context.format), max_tokens)
    return CompactionPlan(
        context=context,
        pieces=pieces,
        max_tokens=max_tokens,
        compacted_through=measured[cut - 1].entry.id,
        first_kept=measured[cut].entry.id if cut < len(measured) else None,
        kept_users=_kept_users(requests, keep_user_tokens, at_least=int(inside_turn)),
        carried=_carried([*window.carried, *head.entries]),
        previous=window.compaction,
        tokens_before=project_window(
            window, replace(options, purpose="provider_request")
        ).report.tokens,
    )


def _measure(entry: Entry, count: Count) -> _Measured:
    if entry.kind not in MESSAGE_KINDS:
        return _Measured(entry, 0, False, frozenset(), frozenset())
    found = messages.view(entry.format, entry.body)
    if not found:  # it cannot be read, so its kind is all there is to go by
        return _Measured(entry, 0, entry.kind == "user_message", frozenset(), frozenset())
    tokens = sum(count_message(message, count) for message in found)
    asks = any(m.role == "user" and len(results_of(m)) < len(m.parts) for m in found)
    return _Measured(entry, tokens, asks, *tool_ids(found))


# --- where turns and exchanges begin --------------------------------------------------------


def _cut_behind(measured: Sequence[_Measured], through: str) -> int:
    """The index behind an entry of the caller's choice."""
    cut = next((i for i, m in enumerate(measured, 1) if m.entry.id == through), None)
    if cut is None:
        reason = f"{through!r} is not among the entries since the last compaction"
        raise InvalidInput("through", reason)
    open_ = {id for m in measured[:cut] for id in m.calls} - {
        id for m in measured[:cut] for id in m.results
    }
    parted = sorted(open_ & {id for m in measured[cut:] for id in m.results})
    if parted:
        raise InvalidInput("through", f"{through!r} parts call {parted[0]!r} from its result")
    return cut


def _cut_by_turns(measured: Sequence[_Measured], keep_turns: int) -> int:
    """The index where the last `keep_turns` turns begin; 0 if there are no more than those."""
    starts = _turn_starts(measured)
    if keep_turns == 0:
        return len(measured)
    return starts[-keep_turns] if len(starts) > keep_turns else 0


def _cut_by_tokens(measured: Sequence[_Measured], keep_tokens: int) -> int:
    """The earliest turn from which the rest fits; inside the last turn if that is too large.

    0 if everything fits."""
    # For each index, the tokens from there to the end.
    sizes = list(accumulate(m.tokens for m in reversed(measured)))[::-1]
    if not sizes or sizes[0] <= keep_tokens:
        return 0
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
    """Where the assistant speaks and no call is open: each call before has its result before."""
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
