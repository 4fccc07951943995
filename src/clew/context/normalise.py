"""A history made valid: a well-formed dialogue leaves a thread, however the thread was written.

Nothing here changes the journal. Every change to what was written is a `Repair` that names the
entry it concerns. The result is the normal form that `clew.messages` writes from:

- every assistant message with calls is followed by one tool message that answers each of them;
- no result without its call, no call twice, no id twice;
- no message without content, no two assistant messages in a row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from clew.messages.neutral import Message, Other, Part, Text, Thinking, ToolCall, ToolResult

INTERRUPTED = "[interrupted: this call has no result]"
BEGINNING = "[the conversation begins with the assistant]"

_USER_FIRST = frozenset({"anthropic", "gemini"})
_SIGNED = frozenset({"anthropic"})
_NAMED = frozenset({"gemini"})  # results carry the name of their tool


class Repair(Struct, frozen=True, gc=False):
    """One thing that was changed on the way out, and the entry it concerns."""

    code: str
    message: str
    entry: str | None = None


class Item(Struct, frozen=True, gc=False):
    """A message and the entry that it was read from; None for what was made."""

    entry: str | None
    message: Message


class Block(Struct, gc=False):
    """A message of the normal form, and the entries that it was made of."""

    message: Message
    entries: list[str | None]


class PairedCall(Struct, gc=False):
    """A call, and the result that answers it if there is one."""

    call: ToolCall
    entry: str | None
    answer: ToolResult | None = None
    answered_by: str | None = None


def normalise(items: Sequence[Item], target: str) -> tuple[list[Block], list[Repair]]:
    """The dialogue in normal form, for a format, and what had to be repaired for it."""
    pairs = _Pairing(items)
    builder = _Builder(target, pairs)
    for index, item in enumerate(items):
        builder.take(index, item)
    blocks = builder.finish()
    return blocks, pairs.repairs + builder.repairs


# --- calls and results ----------------------------------------------------------------------


class _Pairing:
    """Finds for every call its result, wherever it stands, and the calls to be left out."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.repairs: list[Repair] = []
        self.paired: dict[tuple[int, int], PairedCall] = {}  # (item, part) → its call
        self._by_id: dict[str, list[PairedCall]] = {}
        self._used: set[str] = set()
        self._early: dict[str, list[tuple[str | None, ToolResult]]] = defaultdict(list)
        for index, item in enumerate(items):
            for position, part in enumerate(item.message.parts):
                kind = type(part)
                if kind is Text:
                    continue
                if kind is ToolCall:
                    if item.message.role == "assistant":
                        self._take_call(index, position, part, item.entry)  # type: ignore[arg-type]
                elif kind is ToolResult:
                    self._take_result(part, item.entry)  # type: ignore[arg-type]
        self._settle_early()

    def _take_call(self, index: int, position: int, call: ToolCall, entry: str | None) -> None:
        known = self._by_id.get(call.id)
        if known is None:
            known = self._by_id[call.id] = []
        else:
            last = known[-1]
            # A retry after a crash writes the same call again. One that was answered in between
            # is another call, made by a model or a framework that counts its ids from 1 each turn.
            if last.answer is None and _same_call(last.call, call):
                self._report("duplicate_call", f"call {call.id} was written twice", entry)
                return
            renamed = self._free(call.id, len(known) + 1)
            self._report(
                "id_changed", f"call {call.id} became {renamed}: it was used before", entry
            )
            call = replace(call, id=renamed)
        self._used.add(call.id)
        pair = PairedCall(call, entry)
        known.append(pair)
        self.paired[index, position] = pair
        early = self._early.get(known[0].call.id)
        if early:
            self._answer(pair, *early.pop(0))
            self._report("result_moved", "a result stood before its call", pair.answered_by)

    def _free(self, id: str, number: int) -> str:
        while f"{id}-{number}" in self._used or f"{id}-{number}" in self._by_id:
            number += 1
        return f"{id}-{number}"

    def _take_result(self, result: ToolResult, entry: str | None) -> None:
        known = self._by_id.get(result.call)
        if known is None:
            self._early[result.call].append((entry, result))
            return
        # The newest call of that id: the ones before were left without a result by a crash.
        for pair in reversed(known):
            if pair.answer is None:
                self._answer(pair, entry, result)
                return
        self._early[result.call].append((entry, result))

    def _answer(self, pair: PairedCall, entry: str | None, result: ToolResult) -> None:
        if result.call != pair.call.id:
            result = replace(result, call=pair.call.id)
        pair.answer, pair.answered_by = result, entry

    def _settle_early(self) -> None:
        """What is left over answers nothing."""
        for id, results in self._early.items():
            for entry, _ in results:
                if id in self._by_id:
                    self._report("duplicate_result", f"call {id} was answered before", entry)
                else:
                    self._report("orphan_result", f"no call {id} is in this context", entry)

    def _report(self, code: str, message: str, entry: str | None) -> None:
        self.repairs.append(Repair(code, message, entry))


def _same_call(one: ToolCall, other: ToolCall) -> bool:
    return (one.name, one.arguments, one.unparsed) == (other.name, other.arguments, other.unparsed)


# --- the dialogue ---------------------------------------------------------------------------


class _Builder:
    """Puts the dialogue together, message by message."""

    def __init__(self, target: str, pairs: _Pairing) -> None:
        self.repairs: list[Repair] = []
        self._target = target
        self._pairs = pairs
        self._blocks: list[Block] = []
        self._open: Block | None = None  # the assistant's message that may still grow
        self._paired: list[PairedCall] = []  # its calls

    def take(self, index: int, item: Item) -> None:
        message = item.message
        if message.role == "assistant":
            self._take_assistant(index, item)
            return
        parts = self._carried(item)
        rest = tuple([part for part in parts if type(part) is not ToolResult])
        # A message with nothing but results of older calls must not end the assistant's message
        # that is open: its own results may still come.
        if rest or self._answers(item):
            self._close()
        if rest:
            role = "user" if message.role == "tool" else message.role
            same = len(rest) == len(message.parts)
            kept = message if same else replace(message, parts=rest, role=role)
            self._blocks.append(Block(kept, [item.entry]))
        elif not parts:
            self._report_empty(item)

    def _carried(self, item: Item) -> list[Part]:
        """The parts of a message that have content which the target can carry."""
        kept: list[Part] = []
        for part in item.message.parts:
            if type(part) is Text:
                if part.text and not part.text.isspace():
                    kept.append(part)
            elif self._keeps(part, item.entry):
                kept.append(part)
        return kept

    def _answers(self, item: Item) -> bool:
        """Whether a message holds a result for the calls of the open assistant message."""
        for pair in self._paired:
            if pair.answer is not None and pair.answered_by == item.entry:
                return True
        return False

    def _take_assistant(self, index: int, item: Item) -> None:
        parts: list[Part] = []
        for position, part in enumerate(item.message.parts):
            kind = type(part)
            if kind is Text:
                if part.text and not part.text.isspace():  # type: ignore[attr-defined]
                    parts.append(part)
            elif kind is ToolCall:
                pair = self._pairs.paired.get((index, position))
                if pair is not None:
                    self._paired.append(pair)
                    parts.append(pair.call)
            elif kind is not ToolResult and self._keeps(part, item.entry):
                parts.append(part)
        if not parts:
            self._report_empty(item)
            return
        if self._open is None:
            whole = tuple(parts)
            same = whole == item.message.parts  # tuples compare their items by identity first
            message = item.message if same else replace(item.message, parts=whole)
            self._open = Block(message, [item.entry])
            return
        merged = (*self._open.message.parts, *parts)
        self._open.message = replace(self._open.message, parts=merged)
        self._open.entries.append(item.entry)
        self._report("merged", "it was joined with the message before it", item.entry)

    def _keeps(self, part: Part, entry: str | None) -> bool:
        """Whether the target can carry a part that is not text."""
        if isinstance(part, Thinking):
            foreign = part.format != self._target and self._target != "plain"
            unsigned = self._target in _SIGNED and part.signature is None
            if foreign or unsigned:
                why = "is of another provider" if foreign else "was not finished"
                self._report("thinking_dropped", f"thinking that {why} was left out", entry)
            return not (foreign or unsigned)
        if isinstance(part, ToolCall):
            self._report("call_dropped", "a call that is not the assistant's was left out", entry)
            return False
        if isinstance(part, Other) and part.format != self._target:
            self._report("block_dropped", "a block that only its own format knows", entry)
            return False
        return True

    def _close(self) -> None:
        """End the open assistant message and answer its calls."""
        block, paired = self._open, self._paired
        self._open, self._paired = None, []
        if block is None or not self._end_of_thinking(block):
            return
        self._blocks.append(block)
        if paired:
            results = tuple([self._result(pair) for pair in paired])
            sources = dict.fromkeys([pair.answered_by for pair in paired if pair.answered_by])
            self._blocks.append(Block(Message(role="tool", parts=results), list(sources)))

    def _end_of_thinking(self, block: Block) -> bool:
        """Cut thinking that leads to nothing from the end; false if nothing else is there."""
        if type(block.message.parts[-1]) is not Thinking:
            return True
        parts = list(block.message.parts)
        while parts and isinstance(parts[-1], Thinking) and self._target != "plain":
            parts.pop()
            text = "thinking that led to nothing was left out"
            self._report("thinking_dropped", text, block.entries[-1])
        if len(parts) < len(block.message.parts):
            block.message = replace(block.message, parts=tuple(parts))
        return bool(parts)

    def _result(self, pair: PairedCall) -> ToolResult:
        if pair.answer is None:
            text = f"call {pair.call.id} of {pair.call.name} has no result"
            self._report("interrupted_call", text, pair.entry)
            made = (Text(text=INTERRUPTED),)
            return ToolResult(call=pair.call.id, name=pair.call.name, content=made, is_error=True)
        if pair.answer.name is None and self._target in _NAMED:
            return replace(pair.answer, name=pair.call.name)
        return pair.answer

    def finish(self) -> list[Block]:
        self._close()
        if self._target in _USER_FIRST:
            self._begin_with_user()
        if self._target in _SIGNED and self._blocks:
            self._trim_end()
        return self._blocks

    def _begin_with_user(self) -> None:
        for position, block in enumerate(self._blocks):
            if block.message.role == "user":
                return
            if block.message.role != "system":
                made = Message(role="user", parts=(Text(text=BEGINNING),))
                self._blocks.insert(position, Block(made, []))
                text = "the first message was the assistant's"
                self._report("user_added", text, block.entries[0])
                return

    def _trim_end(self) -> None:
        """A last assistant message must not end with white space: it would be continued."""
        block = self._blocks[-1]
        last = block.message.parts[-1]
        if block.message.role != "assistant" or not isinstance(last, Text):
            return
        text = last.text.rstrip()
        if text != last.text:
            parts = (*block.message.parts[:-1], Text(text=text))
            block.message = replace(block.message, parts=parts)
            self._report("trimmed", "white space at the end was left out", block.entries[-1])

    def _report_empty(self, item: Item) -> None:
        """What had something else than blank text in it was reported when that was left out."""
        if all(isinstance(part, Text) for part in item.message.parts):
            self._report("empty", "a message without content was left out", item.entry)

    def _report(self, code: str, message: str, entry: str | None) -> None:
        self.repairs.append(Repair(code, message, entry))
