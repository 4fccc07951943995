"""A recorded thread as a test: clients that answer from it, and tools that give what they gave.

    run = clew.testing.replay(thread)
    answer = my_agent(client=run.anthropic(), tools=run.tools)
    run.check_done()

The clients are those of the providers' SDKs, over no network. Each request is compared with what
the thread says before the reply: the first one that differs is a `ReplayMismatch`.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from clew import messages
from clew.context.normalise import CONTINUE
from clew.context.window import MESSAGE_KINDS
from clew.core.errors import InvalidInput
from clew.core.model import Entry
from clew.messages.likeness import describe, key, spoken
from clew.messages.neutral import Media, Message, Part, Text, ToolCall, ToolResult, calls_of
from clew.testing import answers, clients
from clew.thread import Thread

Said = tuple[str, Part]  # who, and what


class ReplayMismatch(BaseException):
    """What an agent did is not what was recorded: the first difference.

    `request` counts from 1; `place` says where in it. `expected` is what the thread has there, and
    `actual` what came; None stands for nothing. No Exception on purpose: the SDKs turn those of
    their transport into errors of their own, and agents that retry would hide it.
    """

    def __init__(
        self, what: str, *, request: int, place: str, expected: str | None, actual: str | None
    ) -> None:
        self.request, self.place = request, place
        self.expected, self.actual = expected, actual
        told = [f"{what}: request {request}, {place}"]
        told += [f"  expected: {_short(expected)}", f"  came:     {_short(actual)}"]
        super().__init__("\n".join(told))


class RecordedFailure(Exception):
    """What a recorded tool raised, again: a class of the name that the exception had."""


class _Reply(Struct, frozen=True):
    """A reply of the thread, where it stands among the messages, and what it follows."""

    response: dict[str, Any]
    before: int
    since: int
    parent: str | None


class _Result(Struct):
    """What a call gave, and whether a tool has been asked for it."""

    call: ToolCall
    result: ToolResult | None
    is_given: bool = False


def replay(thread: Thread, *, decode: Callable[[str], Any] | None = None) -> Replay:
    """The run that a thread has recorded, to be run again without a provider.

    It is read here, once, along the path that the thread stands on. `decode` makes what a tool
    gives from the text that was recorded, for example `json.loads`. InvalidInput if there is no
    reply of a provider on the path, or a message that cannot be read.
    """
    return Replay(thread, decode=decode)


class Replay:
    """See `replay`. Its clients and tools may be used from several threads and tasks."""

    def __init__(self, thread: Thread, *, decode: Callable[[str], Any] | None = None) -> None:
        if not isinstance(thread, Thread):
            raise InvalidInput("thread", f"must be a thread, not {thread!r}")
        self.thread = thread
        self._decode = decode or (lambda text: text)
        self._mutex = threading.Lock()
        self._said: list[Said] = []
        self._systems: list[str] = []
        self._results: list[_Result] = []
        self._replies: list[_Reply] = []
        self._next = 0
        self.format = self._read(thread.path())

    def _read(self, path: Sequence[Entry]) -> str:
        """Take the path apart: what is said, the replies, the results. The replies' format."""
        formats: list[str] = []
        since = 0
        for place, entry in enumerate(path):
            if entry.kind not in MESSAGE_KINDS:
                continue
            found = messages.view(entry.format, entry.body)
            if not found:
                raise InvalidInput("thread", f"entry {entry.id!r} cannot be read as a message")
            if any(message.role == "assistant" for message in found):
                after = path[place + 1] if place + 1 < len(path) else None
                note = after.body if after is not None and after.kind == "usage" else {}
                format = messages.known_format(entry.format, entry.body)
                if format not in messages.STREAMED:
                    reason = f"entry {entry.id!r} is a reply in {format!r}, which no client gives"
                    raise InvalidInput("thread", reason)
                formats.append(format)
                response = answers.whole(format, entry.body, note)
                self._replies.append(_Reply(response, len(self._said), since, entry.parent))
            self._note(found)
            if any(message.role == "assistant" for message in found):
                since = len(self._said)
        if not formats or len(set(formats)) > 1:
            told = "has no reply of a provider" if not formats else "has replies in several formats"
            raise InvalidInput("thread", f"{self.thread.id!r} {told}: it cannot be replayed")
        return formats[0]

    def _note(self, found: Sequence[Message]) -> None:
        for message in found:
            for call in calls_of(message):
                self._results.append(_Result(call, None))
            for part in message.parts:
                if isinstance(part, ToolResult):
                    for known in self._results:
                        if known.call.id == part.call and known.result is None:
                            known.result = part
                            break
            if message.role == "system":
                self._systems += [describe("system", part) for part in spoken(message)]
        self._said += _spoken(found)

    # --- clients ---

    def anthropic(self, *, aio: bool = False) -> Any:
        """A client of the Anthropic SDK, or its asynchronous one, that answers from the thread."""
        return clients.anthropic(self.answer, aio=aio)

    def openai(self, *, aio: bool = False) -> Any:
        """A client of the OpenAI SDK, or its asynchronous one: Chat Completions and Responses."""
        return clients.openai(self.answer, aio=aio)

    def gemini(self) -> Any:
        """A client of the Google Gen AI SDK; `client.aio` is its asynchronous side."""
        return clients.gemini(self.answer)

    def answer(self, format: str, body: Mapping[str, Any], is_streamed: bool) -> bytes:
        """The recorded answer to a request, as bytes of JSON or of a stream of events.

        ReplayMismatch if the request is not the one that was answered so. For a client of yours.
        """
        with self._mutex:
            number = self._next + 1
            if format != self.format:
                what = {"expected": self.format, "actual": format}
                raise ReplayMismatch("the request differs", request=number, place="API", **what)
            asked = _request(format, body)
            if self._next == len(self._replies):
                raise ReplayMismatch(
                    "the request is one more than were recorded",
                    request=number,
                    place="the last of what is said",
                    expected=None,
                    actual=describe(*asked[-1]) if asked else None,
                )
            reply = self._replies[self._next]
            self._check(asked, reply, number, _goes_on(body))
            self._check_systems(format, body, number)
            self._next += 1
        if is_streamed:
            return answers.sse(answers.events(format, reply.response))
        return json.dumps(reply.response).encode()

    def _check(self, asked: list[Said], reply: _Reply, number: int, goes_on: bool) -> None:
        """By what is said. A request may leave out the oldest, or be the thread's context."""
        known = self._said[: reply.before]
        came = _keys(asked)
        wanted = _keys(known[reply.since :] if goes_on else known)
        if came == wanted or (came and not goes_on and _ends_with(wanted, came)):
            return
        context = self.thread.context(self.format, leaf=reply.parent).messages
        made = _spoken([one for body in context for one in messages.view(self.format, body)])
        if came == _keys(made):
            return
        expected = known[reply.since :] if goes_on else known
        place = next(
            (n for n, (a, b) in enumerate(zip(wanted, came, strict=False)) if a != b),
            min(len(wanted), len(came)),
        )
        raise ReplayMismatch(
            "the request differs from what was recorded",
            request=number,
            place=f"part {place + 1} of what is said",
            expected=describe(*_sorted(expected)[place]) if place < len(wanted) else None,
            actual=describe(*_sorted(asked)[place]) if place < len(came) else None,
        )

    def _check_systems(self, format: str, body: Mapping[str, Any], number: int) -> None:
        """The host's words, if the thread has them: those beside the messages are not recorded."""
        told = [
            describe("system", part)
            for one in _messages(format, body)
            if one.role == "system"
            for part in spoken(one)
        ]
        for text in told:
            if self._systems and text not in self._systems:
                what = {"expected": self._systems[0], "actual": text}
                place = "the system's words"
                raise ReplayMismatch("the request differs", request=number, place=place, **what)

    # --- tools ---

    @property
    def tools(self) -> dict[str, Callable[..., Any]]:
        """The tools that were called, by name: functions that give what was recorded."""
        return {name: self.tool(name) for name in {one.call.name: None for one in self._results}}

    def tool(self, name: str) -> Callable[..., Any]:
        """A tool: called with the arguments of a recorded call, it gives the recorded result.

        Equal calls give their results in the order of the thread, others in any order. A result
        that was an error is raised: a RecordedFailure with the name of what was raised.
        """

        def call(**arguments: Any) -> Any:
            return self._give(name, arguments)

        call.__name__ = name
        return call

    def _give(self, name: str, arguments: dict[str, Any]) -> Any:
        with self._mutex:
            waiting = [one for one in self._results if one.call.name == name and not one.is_given]
            found = next((one for one in waiting if one.call.arguments == arguments), None)
            if found is None or found.result is None:
                raise ReplayMismatch(
                    "the call of a tool differs from what was recorded",
                    request=self._next,
                    place=f"tool {name!r}",
                    expected=describe("call", waiting[0].call) if waiting else None,
                    actual=f"call: {name}({json.dumps(arguments, default=str)})",
                )
            found.is_given = True
        return self._output(found.result)

    def _output(self, result: ToolResult) -> Any:
        texts = [part.text for part in result.content if isinstance(part, Text)]
        if result.is_error:
            raised = re.match(r"([A-Za-z_]\w*)(?:: (.*))?\Z", "".join(texts), re.DOTALL)
            if raised is None:
                raise RecordedFailure("".join(texts))
            kind = type(raised[1], (RecordedFailure,), {})
            raise kind(raised[2] or "")
        if any(isinstance(part, Media) for part in result.content):
            return [_block(part) for part in result.content]
        return self._decode("".join(texts))

    # --- the end ---

    @property
    def left(self) -> int:
        """How many recorded replies have not been asked for."""
        return len(self._replies) - self._next

    def check_done(self) -> None:
        """That all of it was replayed; ReplayMismatch names the reply that was not asked for."""
        if self.left:
            reply = self._replies[self._next]
            said = self._said[reply.before] if reply.before < len(self._said) else None
            raise ReplayMismatch(
                f"the run ended early: {self.left} replies were not asked for",
                request=self._next + 1,
                place="which was not sent",
                expected=None if said is None else describe(*said),
                actual=None,
            )


# --- what is compared -----------------------------------------------------------------------


def _request(format: str, body: Mapping[str, Any]) -> list[Said]:
    return _spoken(_messages(format, body))


def _messages(format: str, body: Mapping[str, Any]) -> list[Message]:
    given = body.get({"openai-responses": "input", "gemini": "contents"}.get(format, "messages"))
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    return [one for message in given or () for one in messages.view(format, message)]


def _goes_on(body: Mapping[str, Any]) -> bool:
    """Whether the provider keeps what was before, so that a request says only what is new."""
    return bool(body.get("previous_response_id") or body.get("conversation"))


def _spoken(found: Sequence[Message]) -> list[Said]:
    return [
        (message.role, part)
        for message in found
        if message.role != "system"
        for part in spoken(message)
        if not (isinstance(part, Text) and part.text == CONTINUE)
    ]


def _keys(said: Sequence[Said]) -> list[str]:
    return [key(role, part) for role, part in _sorted(said)]


def _sorted(said: Sequence[Said]) -> list[Said]:
    """Results that stand side by side, in one order: tools that run in parallel end in any."""
    return [one for run in _runs(said) for one in sorted(run, key=lambda said: key(*said))]


def _runs(said: Sequence[Said]) -> Iterator[list[Said]]:
    run: list[Said] = []
    for one in said:
        if run and not (isinstance(one[1], ToolResult) and isinstance(run[-1][1], ToolResult)):
            yield run
            run = []
        run.append(one)
    if run:
        yield run


def _ends_with(wanted: Sequence[str], came: Sequence[str]) -> bool:
    return 1 < len(came) < len(wanted) and list(wanted[-len(came) :]) == list(came)


def _block(part: Part) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Media):
        return {"type": part.kind, "mime": part.mime, "data": part.data}
    return {"type": "text", "text": json.dumps(part.raw, default=str)}


def _short(text: str | None) -> str:
    if text is None:
        return "nothing"
    return text if len(text) <= 400 else f"{text[:400]}… ({len(text)} characters)"
