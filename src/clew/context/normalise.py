"""A history made valid: a well-formed dialogue leaves a thread, however the thread was written.

Nothing here changes the journal. Every change to what was written is a `Repair` that names the
entry it concerns. The result is the normal form that `clew.messages` writes from:

- every assistant message with calls is followed by one tool message that answers each of them;
- no result without its call, no call twice, no id twice;
- no message without content; an assistant message is one reply of the model, never two.

The dialogue is built from its beginning, and what the model has replied to is not touched again:
a request that was sent once is how every later one begins, as long as the thread only grew. So a
result that comes after the user or the model went on does not take the place of the one that said
"interrupted"; it is told where it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from clew.messages.neutral import Message, Other, Part, Text, Thinking, ToolCall, ToolResult

INTERRUPTED = "[interrupted: this call has no result]"
BEGINNING = "[the conversation begins with the assistant]"
CONTINUE = "[continue]"

Next = Literal["model", "tools", "user"]

_USER_FIRST = frozenset({"anthropic", "converse", "gemini"})  # and last, and between two replies
_SIGNED = frozenset({"anthropic", "converse"})
_NAMED = frozenset({"gemini", "pydantic-ai"})  # results carry the name of their tool
_PAUSED = frozenset({"server_tool_use", "mcp_tool_use"})  # the provider itself goes on from there


class Repair(Struct, frozen=True, gc=False):
    """One thing that was changed on the way out, the entry it concerns, and the call if one is."""

    code: str
    message: str
    entry: str | None = None
    call: str | None = None


class OpenCall(Struct, frozen=True, gc=False):
    """A call that waits for its result. `arguments` are text where the model wrote no JSON."""

    id: str
    name: str
    arguments: Any
    entry: str | None

    @classmethod
    def of(cls, call: ToolCall, entry: str | None, id: str | None = None) -> OpenCall:
        arguments, text = call.parse()
        arguments = arguments if text is None else text
        return cls(id or call.id, call.name, arguments, entry)


class Item(Struct, frozen=True, gc=False):
    """A message, and the entry that it was read from; None for what was made.

    Assistant messages with the same `reply` are pieces of one reply; one without it is a whole.
    `step` counts what came between replies: a message equal to the one before it in the same step
    was written twice. `turn` is the turn that wrote it. `is_partial`: its stream was broken off, so
    that the model has not said all of it.
    """

    entry: str | None
    message: Message
    turn: str | None = None
    reply: str | None = None
    step: int = 0
    is_partial: bool = False


class Block(Struct, gc=False):
    """A message of the normal form, and the entries that it was made of."""

    message: Message
    entries: tuple[str | None, ...]


class Dialogue(Struct, frozen=True):
    """The normal form, what was repaired for it, who goes on, and the calls that wait."""

    blocks: list[Block]
    repairs: list[Repair]
    next: Next
    calls: tuple[OpenCall, ...]


class PairedCall(Struct, gc=False):
    """A call as it is sent, the id it was made with, and the result that answers it if one does."""

    call: ToolCall
    id: str
    entry: str | None
    answer: ToolResult | None = None
    answered_by: str | None = None
    is_late: bool = False  # its result came after the dialogue had gone on


def normalise(items: Sequence[Item], target: str, *, to_be_sent: bool = True) -> Dialogue:
    """The dialogue in normal form, for a format; to be sent, it ends where the model may go on."""
    builder = Builder(target)
    builder.take(items)
    return builder.finish(to_be_sent=to_be_sent)


class Builder:
    """The dialogue as it grows: what is settled, and the last reply, which waits for results.

    What is settled is only ever added to, whatever is taken later.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._user_first = target in _USER_FIRST
        self._blocks: list[Block] = []
        self._preceded: Block | None = None  # what the made beginning stands before
        self._repairs: list[Repair] = []
        self._last: Block | None = None  # the last block that is not the system's
        # The last reply: the last message that was taken for it, what is kept of it and of which
        # entries, its calls, and what came after it and has to stand behind their results.
        self._source: Item | None = None
        self._is_partial = False
        self._parts: list[Part] = []
        self._entries: list[str | None] = []
        self._calls: list[PairedCall] = []
        self._calls_by_id: dict[str, list[PairedCall]] = {}  # the id that they were made with
        self._waiting = 0  # how many of them have no result
        self._behind: list[Block] = []
        # Calls that are settled, by the id they were made with, and how often an id was made.
        self._settled: dict[str, tuple[PairedCall, ...]] = {}
        self._ids: dict[str, int] = {}
        # Results without a call: before the open reply, and since.
        self._early: list[tuple[str | None, ToolResult]] = []
        self._unclaimed: list[tuple[str | None, ToolResult]] = []

    @property
    def settled(self) -> int:
        """How many blocks of the dialogue no longer change."""
        return len(self._blocks)

    def since(self, known: int) -> list[Block]:
        """The blocks that no longer change, but for so many at the beginning."""
        return self._blocks[known:]

    def take(self, items: Iterable[Item]) -> None:
        for item in items:
            if item.message.role == "assistant":
                self._take_reply(item)
            else:
                self._take_input(item)

    def branch(self) -> Builder:
        """Another one, to be finished, while this one goes on."""
        other = copy(self)
        other._blocks, other._repairs = self._blocks.copy(), self._repairs.copy()
        other._parts, other._entries = self._parts.copy(), self._entries.copy()
        other._behind = self._behind.copy()
        other._settled = {}  # the end only adds to them
        return other

    # --- the model's side ---

    def _take_reply(self, item: Item) -> None:
        last, read = self._source, item.message.parts
        # By a writer that did not know that its message was stored.
        if last is not None and last.step == item.step and last.message.parts == read:
            self._report("duplicate_message", "it was written twice", item.entry)
            return
        if last is None or item.reply is None or item.reply != last.reply:
            self._begin_reply()
        self._source, self._is_partial = item, item.is_partial
        parts = self._parts
        before = len(parts)
        results: list[ToolResult] = []
        for part in read:
            kind = type(part)
            if kind is Text:
                if part.text and not part.text.isspace():  # type: ignore[attr-defined]
                    parts.append(part)
            elif kind is ToolCall:
                call = self._called(part, item.entry)  # type: ignore[arg-type]
                if call is not None:
                    parts.append(call)
            elif kind is ToolResult:
                results.append(part)  # type: ignore[arg-type]
            elif self._keeps(part, item.entry):
                parts.append(part)
        if len(parts) > before:
            self._entries.append(item.entry)
        else:
            self._report_empty(item)
        for result in results:
            self._answer(result, item.entry)

    def _begin_reply(self) -> None:
        # The model was asked with all that is here, also if there is nothing left of its reply.
        self._close()
        if self._user_first:
            self._let_user_speak()
        if self._early or self._unclaimed:
            self._report_orphans(self._early)
            self._early, self._unclaimed = self._unclaimed, []

    def _called(self, call: ToolCall, entry: str | None) -> ToolCall | None:
        """The call with an id that no other has; None if this very call was written twice."""
        id = call.id
        twins = self._calls_by_id.setdefault(id, [])
        if twins and any(pair.call == call or _same(pair.call.raw, call.raw) for pair in twins):
            self._report("duplicate_call", f"call {id} was written twice", entry, id)
            return None
        made = self._ids.get(id, 0) + 1
        self._ids[id] = made
        if made > 1:
            # A model or a framework that counts its ids from 1 each turn, most often.
            while (renamed := f"{id}-{made}") in self._ids:
                made += 1
            self._ids |= {id: made, renamed: 1}
            if not call.made_id:
                text = f"call {id} became {renamed}: it was used before"
                self._report("id_changed", text, entry, id)
            call = replace(call, id=renamed)
        pair = PairedCall(call, id, entry)
        twins.append(pair)
        self._calls.append(pair)
        self._waiting += 1
        for index, (source, result) in enumerate(self._early):
            if result.call == id:
                del self._early[index]
                self._fill(pair, result, source)
                self._report("result_moved", "a result stood before its call", source, id)
                break
        return call

    def _keeps(self, part: Part, entry: str | None) -> bool:
        """Whether the target can carry a part that is not text."""
        if isinstance(part, Thinking):
            why = self._why_dropped(part)
            if why is not None:
                self._report("thinking_dropped", f"thinking that {why} was left out", entry)
            return why is None
        if isinstance(part, ToolCall):
            text = "a call that is not the assistant's was left out"
            self._report("call_dropped", text, entry, part.id)
            return False
        if isinstance(part, Other) and part.format != self._target:
            self._report("block_dropped", "a block that only its own format knows", entry)
            return False
        return True

    def _why_dropped(self, part: Thinking) -> str | None:
        if part.format != self._target and self._target != "plain":
            return "is of another provider"
        if part.signature is None and (self._target in _SIGNED or not part.text):
            return "was not finished"
        return None

    # --- the other side ---

    def _take_input(self, item: Item) -> None:
        """A message of the user, of a tool or of the host."""
        parts: list[Part] = []
        answered = False
        for part in item.message.parts:
            kind = type(part)
            if kind is Text:
                if part.text and not part.text.isspace():  # type: ignore[attr-defined]
                    parts.append(part)
            elif kind is ToolResult:
                self._answer(part, item.entry)  # type: ignore[arg-type]
                answered = True
            elif self._keeps(part, item.entry):
                parts.append(part)
        if parts:
            self._take_words(item, tuple(parts))
        elif not answered:
            self._report_empty(item)

    def _take_words(self, item: Item, parts: tuple[Part, ...]) -> None:
        message = item.message
        if len(parts) < len(message.parts):
            message = replace(message, parts=parts)
        if message.role == "tool":
            message = replace(message, role="user")
        block = Block(message, (item.entry,))
        if message.role == "system" or (self._waiting and self._is_within_turn(item)):
            self._add_behind(block)
        else:
            # The user goes on, so the calls that have no result were interrupted.
            self._close()
            self._add(block)

    def _is_within_turn(self, item: Item) -> bool:
        """Whether the very turn that made the open calls says it, so that they go on beside it."""
        source = self._source
        return source is not None and item.turn is not None and source.turn == item.turn

    def _answer(self, result: ToolResult, entry: str | None) -> None:
        twins = self._calls_by_id.get(result.call, ())
        for pair in twins:
            if pair.answer is None:
                self._fill(pair, result, entry)
                return
        for pair in reversed(self._settled.get(result.call, ())):
            if pair.answer is None and not pair.is_late:
                self._tell_late(pair, result, entry)
                return
        if twins or result.call in self._settled:
            text = f"call {result.call} was answered before"
            self._report("duplicate_result", text, entry, result.call)
        else:
            self._unclaimed.append((entry, result))

    def _fill(self, pair: PairedCall, result: ToolResult, entry: str | None) -> None:
        if result.call != pair.call.id:
            result = replace(result, call=pair.call.id)
        pair.answer, pair.answered_by = result, entry
        self._waiting -= 1

    def _tell_late(self, pair: PairedCall, result: ToolResult, entry: str | None) -> None:
        """A result of a call that was said to be interrupted: words, in the place where it came."""
        pair.is_late = True
        kind = "error" if result.is_error else "result"
        head = Text(text=f"[late {kind} of call {pair.call.id} of {pair.call.name}]")
        said = [part for part in result.content if not isinstance(part, Text) or part.text.strip()]
        self._add_behind(Block(Message(role="user", parts=(head, *said)), (entry,)))
        text = f"the result of call {pair.id} came after the dialogue had gone on"
        self._report("late_result", text, entry, pair.id)

    # --- settling ---

    def _add(self, block: Block) -> None:
        role = block.message.role
        if role != "system":
            if self._last is None and role != "user" and self._user_first:
                made = Message(role="user", parts=(Text(text=BEGINNING),))
                self._blocks.append(Block(made, ()))
                self._preceded = block
            self._last = block
        self._blocks.append(block)

    def _add_behind(self, block: Block) -> None:
        """Add a block that leaves the open reply open."""
        if self._source is None:
            self._add(block)
        else:
            self._behind.append(block)

    def _close(self) -> None:
        """Settle the open reply, and answer its calls."""
        source = self._source
        if source is None:
            return
        parts, entries, calls, behind = self._parts, self._entries, self._calls, self._behind
        self._source, self._parts, self._entries = None, [], []
        if parts and type(parts[-1]) is Thinking:
            self._cut_thinking(parts, entries)
        if parts:
            whole = tuple(parts)
            # Tuples compare their items by identity first.
            same = len(entries) == 1 and whole == source.message.parts
            message = source.message if same else replace(source.message, parts=whole)
            self._add(Block(message, tuple(entries)))
        if calls:
            self._calls, self._calls_by_id, self._waiting = [], {}, 0
            results: list[Part] = []
            sources: dict[str | None, None] = {}
            for pair in calls:
                results.append(self._result(pair))
                if pair.answered_by:
                    sources[pair.answered_by] = None
                self._settled[pair.id] = (*self._settled.get(pair.id, ()), pair)
            self._add(Block(Message(role="tool", parts=tuple(results)), tuple(sources)))
        if behind:
            self._behind = []
            for other in behind:
                self._add(other)

    def _cut_thinking(self, parts: list[Part], entries: Sequence[str | None]) -> None:
        """Cut thinking that led to nothing from the end."""
        kept = len(parts)
        while kept and type(parts[kept - 1]) is Thinking and self._target != "plain":
            kept -= 1
        # Gemini signs a text in an empty part behind it.
        if kept == len(parts) or (kept and self._target == "gemini"):
            return
        for _ in parts[kept:]:
            text = "thinking that led to nothing was left out"
            self._report("thinking_dropped", text, entries[-1])
        del parts[kept:]

    def _result(self, pair: PairedCall) -> ToolResult:
        if pair.answer is None:
            text = f"call {pair.id} of {pair.call.name} has no result"
            self._report("interrupted_call", text, pair.entry, pair.id)
            made = (Text(text=INTERRUPTED),)
            return ToolResult(call=pair.call.id, name=pair.call.name, content=made, is_error=True)
        if pair.answer.name is None and self._target in _NAMED:
            return replace(pair.answer, name=pair.call.name)
        return pair.answer

    def _let_user_speak(self) -> None:
        """Between two replies, and behind the last one, something must have been said."""
        last = self._last
        if last is not None and _is_complete(last.message):
            self._add(Block(Message(role="user", parts=(Text(text=CONTINUE),)), ()))
            text = "the user has to speak after the assistant"
            self._report("user_added", text, last.entries[-1])

    def finish(self, *, to_be_sent: bool) -> Dialogue:
        waiting = [pair for pair in self._calls if pair.answer is None]
        self._close()
        self._report_orphans([*self._early, *self._unclaimed])
        next_: Next = "model"
        if waiting:
            next_ = "tools"
        elif self._last is None or (_is_complete(self._last.message) and not self._is_partial):
            next_ = "user"
        if to_be_sent and self._user_first:
            self._let_user_speak()
        if self._preceded is not None:
            text = "the first message was the assistant's"
            self._report("user_added", text, self._preceded.entries[0])
        calls = tuple([OpenCall.of(pair.call, pair.entry, pair.id) for pair in waiting])
        return Dialogue(self._blocks, self._repairs, next_, calls)

    # --- reporting ---

    def _report_orphans(self, results: Sequence[tuple[str | None, ToolResult]]) -> None:
        for entry, result in results:
            text = f"no call {result.call} is in this context"
            self._report("orphan_result", text, entry, result.call)

    def _report_empty(self, item: Item) -> None:
        """What had something else than blank text in it was reported when that was left out."""
        if all(isinstance(part, Text) for part in item.message.parts):
            self._report("empty", "a message without content was left out", item.entry)

    def _report(self, code: str, message: str, entry: str | None, call: str | None = None) -> None:
        self._repairs.append(Repair(code, message, entry, call))


def _same(one: Any, other: Any) -> bool:
    return one is not None and one == other


def _is_complete(message: Message) -> bool:
    """Whether it is a reply, and the model cannot go on from it by itself.

    It can where the provider runs the tool that the reply ends with.
    """
    if message.role != "assistant":
        return False
    last = message.parts[-1]
    raw = last.raw if isinstance(last, Other) else None
    return not (isinstance(raw, dict) and raw.get("type") in _PAUSED)
