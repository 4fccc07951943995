"""Turns over time: how long each took, what of it went into tools, how long it was waited for."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, Struct
from starlette.responses import Response

from clew import messages
from clew.core.model import Entry, to_time
from clew.messages import replies
from clew.messages.neutral import ToolCall, ToolResult, Usage
from clew.server.cards import preview
from clew.server.conversation import header
from clew.server.site import Ask

TURNS_MAX = 500
WIDTH = 1000.0
_BEGINS = ("user_message", "assistant_message", "tool_call")


class Bar(Struct, frozen=True):
    """A tool at work inside of a turn, in per mille of the longest turn."""

    x: float
    width: float
    name: str
    seconds: float


class Stretch(Struct, kw_only=True):
    """From a message of the user to the last entry before the next one."""

    entry: Entry
    text: str
    begin_us: int
    end_us: int
    waited: float = 0.0
    tools: float = 0.0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    bars: list[Bar]
    width: float = 0.0

    @property
    def seconds(self) -> float:
        return max(0.0, (self.end_us - self.begin_us) / 1e6)

    @property
    def time(self) -> str:
        return f"{to_time(self.begin_us):%Y-%m-%d %H:%M:%S}"


def page(ask: Ask) -> Response:
    thread = ask.thread()
    path = thread.path(ask.query.get("leaf") or UNSET)
    turns = stretches(path)
    shown = turns[-TURNS_MAX:]
    scale(shown)
    return ask.page(
        "timeline.html",
        tab="timeline",
        **header(ask, thread, thread.info),
        turns=shown,
        left_out=len(turns) - len(shown),
        worked=sum(turn.seconds for turn in turns),
        tools=sum(turn.tools for turn in turns),
        waited=sum(turn.waited for turn in turns),
    )


def stretches(path: Sequence[Entry]) -> list[Stretch]:
    """What was done for each message of the user."""
    found: list[Stretch] = []
    called: dict[str, tuple[int, str]] = {}
    progress = replies.Progress()
    told: dict[int, tuple[Stretch, Usage]] = {}  # the last record that tells of a reply counts
    for entry in path:
        if not found and entry.kind not in _BEGINS:
            continue  # a system prompt, the marker of a turn: nothing is waited for yet
        if entry.kind == "user_message" or not found:
            waited = (entry.time_us - found[-1].end_us) / 1e6 if found else 0.0
            found.append(
                Stretch(
                    entry=entry,
                    text=preview(entry),
                    begin_us=entry.time_us,
                    end_us=entry.time_us,
                    waited=max(0.0, waited),
                    bars=[],
                )
            )
            continue
        turn = found[-1]
        turn.end_us = max(turn.end_us, entry.time_us)
        reply = replies.read(entry, progress)
        if reply is not None and reply.usage is not None:
            told[reply.key] = (told.get(reply.key, (turn, None))[0], reply.usage)
        if entry.kind in ("assistant_message", "tool_call", "tool_result"):
            _pair(turn, entry, called)
    for turn, used in told.values():
        turn.input_tokens += used.input_tokens + used.cache_read_tokens + used.cache_write_tokens
        turn.output_tokens += used.output_tokens
    return found


def _pair(turn: Stretch, entry: Entry, called: dict[str, tuple[int, str]]) -> None:
    for message in messages.view(entry.format, entry.body):
        for part in message.parts:
            if isinstance(part, ToolCall):
                called[part.id] = (entry.time_us, part.name)
                turn.calls += 1
            elif isinstance(part, ToolResult) and part.call in called:
                began_us, name = called.pop(part.call)
                seconds = max(0.0, (entry.time_us - began_us) / 1e6)
                turn.tools += seconds
                turn.bars.append(Bar((began_us - turn.begin_us) / 1e6, seconds, name, seconds))


def scale(turns: Sequence[Stretch]) -> None:
    """Seconds become places on a line that is as long as the longest turn."""
    longest = max((turn.seconds for turn in turns), default=0.0) or 1.0
    for turn in turns:
        turn.width = max(2.0, turn.seconds * WIDTH / longest)
        turn.bars = [
            Bar(
                max(0.0, bar.x) * WIDTH / longest,
                max(1.5, bar.width * WIDTH / longest),
                bar.name,
                bar.seconds,
            )
            for bar in turn.bars
        ]
