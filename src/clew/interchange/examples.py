"""Examples to train a model with: the branches of a thread, each as one line of chat messages.

The lines are those of OpenAI's fine-tuning of chat models: `messages`, and `tools` where they are
known. A turn that did not come to its end is in none, nor is thinking. What compactions stand for
is there itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from blake3 import blake3

from clew import messages
from clew.context.projection import edited
from clew.context.window import MESSAGE_KINDS
from clew.core.codec import render_bytes
from clew.core.errors import Corrupt
from clew.core.model import Entry
from clew.interchange.delivery import context_of, json_line, tools_of, written_tools
from clew.interchange.export import THREAD_LEFT_OUT, Writing
from clew.messages.neutral import tool_ids
from clew.thread import Thread

_FORMAT = "openai-chat"
_IN_MEMORY_BYTES = 16 * 1024 * 1024
_ENDED_BADLY = frozenset({"failed", "aborted", "waiting"})


def write(thread: Thread, writing: Writing) -> Iterator[bytes]:
    """A line for each branch. One that goes no further than another is in that one."""
    with SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as file:
        examples = _Examples(writing, file)
        examples.add(thread)
        yield from examples.lines()


def write_all(threads: Iterable[Thread], writing: Writing) -> Iterator[bytes]:
    """The same for many threads: what a fork shares with its origin is no example of its own.

    A thread that cannot be read is left out and told.
    """
    with SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as file:
        examples = _Examples(writing, file)
        for thread in threads:
            try:
                examples.add(thread)
            except Corrupt as error:
                writing.change(THREAD_LEFT_OUT, f"thread {thread.id}: {error}")
        yield from examples.lines()


class _Examples:
    """Examples, until it is known which of them go further than others."""

    def __init__(self, writing: Writing, file: IO[bytes]) -> None:
        self._writing = writing
        self._file = file
        self._ends: list[tuple[bytes, int]] = []  # of the lines there, and how long each is
        self._inner: set[bytes] = set()  # marks behind which an example goes on

    def add(self, thread: Thread) -> None:
        mine = Writing(self._writing.form)  # branches share entries, of which all is told once
        for leaf in thread.leaves():
            example = _example(thread, mine, leaf)
            marks = _marks(example)
            if marks:
                self._inner.update(marks[:-1])
                self._ends.append((marks[-1], self._file.write(json_line(example))))
        self._writing.changes += dict.fromkeys(mine.changes)

    def lines(self) -> Iterator[bytes]:
        self._file.seek(0)
        for end, size in self._ends:
            line = self._file.read(size)
            if end not in self._inner:
                self._inner.add(end)
                yield line


def _marks(example: dict[str, Any]) -> list[bytes]:
    """How an example goes, message by message: each mark stands for all up to there."""
    marks: list[bytes] = []
    for message in example["messages"]:
        before = marks[-1] if marks else b""
        marks.append(blake3(before + render_bytes(message)).digest(16))
    return marks


def _example(thread: Thread, writing: Writing, leaf: str) -> dict[str, Any]:
    path = thread.path(leaf)
    whole: list[Entry] = []
    gone = edited(path)
    for turn in _turns(path):
        if _is_complete([entry for entry in turn if entry.id not in gone]):
            whole += turn
        else:
            said = [entry for entry in turn if entry.kind in MESSAGE_KINDS]
            whole += [entry for entry in turn if entry.kind not in MESSAGE_KINDS]
            text = f"{len(said)} messages of a turn that did not come to its end are left out"
            writing.change("incomplete_turn", text, said[0].id)
    context = context_of(whole, _FORMAT, writing, compacted=False)
    spoken = any(message["role"] == "assistant" for message in context.messages)
    example = {"messages": context.messages if spoken else []}
    tools = written_tools(tools_of(context.tools, writing), _FORMAT)
    return {**example, "tools": tools} if tools else example


def _turns(path: Sequence[Entry]) -> Iterator[list[Entry]]:
    """The path in pieces that each begin with what the user, or the host, has said."""
    turn: list[Entry] = []
    has_reply = False
    for entry in path:
        if has_reply and entry.kind in ("user_message", "system_message") and not _answers(entry):
            yield turn
            turn, has_reply = [], False
        has_reply = has_reply or entry.kind in ("assistant_message", "tool_call", "tool_result")
        turn.append(entry)
    if turn:
        yield turn


def _answers(entry: Entry) -> bool:
    """Whether a message has results in it beside the words."""
    return bool(tool_ids(messages.view(entry.format, entry.body))[1])


def _is_complete(turn: Sequence[Entry]) -> bool:
    """Whether a turn has no messages, or ends with a reply that waits for nothing."""
    said = [entry for entry in turn if entry.kind in MESSAGE_KINDS]
    if all(entry.kind == "system_message" for entry in said):
        return True
    markers = [entry.body for entry in turn if entry.kind == "turn_marker"]
    if any(isinstance(body, dict) and body.get("status") in _ENDED_BADLY for body in markers):
        return False
    if said[-1].meta.get("partial"):
        return False
    views = [message for entry in said for message in messages.view(entry.format, entry.body)]
    calls, results = tool_ids(views)
    # A result that answers no call of the turn is in no example, and may come when it likes.
    heard = [view for view in views if view.role != "tool" or not tool_ids([view])[1] - calls]
    return calls <= results and bool(heard) and heard[-1].role == "assistant"
