"""Messages of every format with something changed inside: they are read, refused, or shown.

What others wrote is stored as it is, so that any of it may come to a reader and to a context. No
more than an error of Clew's may come of it, and no more work than there is to read.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import pytest
from amounts import amount
from context import dialogues
from hostile.mutants import changed

import clew
from clew import ClewError, messages
from clew.thread import Thread

FORMATS = dialogues.FORMATS
MUTANTS = amount(60, 4000)


def dialogue(format: str) -> list[Any]:
    """All that a format can say: text, thinking, calls and their results."""
    said = [
        dialogues.system(format, "rules"),
        dialogues.user(format, "go"),
        dialogues.thinking(format, "hm", "signed"),
        dialogues.calls(format, ("c1", "run", {"n": 1}), ("c2", "run", {}), text="so"),
        dialogues.result(format, "c1", "one"),
        dialogues.result(format, "c2", "two", is_error=True),
        dialogues.assistant(format, "done"),
    ]
    flat = [one for body in said for one in (body if isinstance(body, list) else [body])]
    return [body for body in flat if body is not None]


@pytest.mark.parametrize("format", FORMATS)
def test_a_changed_message_is_read_or_refused_and_a_context_made(format: str) -> None:
    bodies = dialogue(format)
    for number in range(MUTANTS):
        chance = random.Random(number)
        at = chance.randrange(len(bodies))
        body = bodies[at]
        for _ in range(chance.choice((1, 1, 2, 4))):
            body = changed(chance, body)
        try:
            messages.read(format, body)
        except ClewError:
            pass
        # As entries, so that nothing is refused on the way in.
        thread = clew.open("memory:").create()
        for n, one in enumerate(bodies):
            try:
                thread.append("message", body if n == at else one, format=format)
            except ClewError:
                pass  # too large, or no JSON: it is not stored
        for target in FORMATS:
            try:
                thread.context(target)
            except ClewError:
                pass


def work_of(act: Callable[[], object]) -> int:
    """How many calls of functions, Python's own too: the same in every run, unlike seconds."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return calls


def long_body(format: str, n: int) -> Any:
    """One message with many parts."""
    if format == "gemini":
        return {"role": "user", "parts": [{"text": f"t{i}"} for i in range(n)]}
    kind = "input_text" if format == "openai-responses" else "text"
    content = [{"type": kind, "text": f"t{i}"} for i in range(n)]
    return {"role": "user", "content": content} | (
        {"type": "message"} if format == "openai-responses" else {}
    )


def long_thread(format: str, n: int) -> Thread:
    thread = clew.open("memory:").create()
    for i in range(n):
        bodies = [
            dialogues.user(format, f"ask {i}"),
            dialogues.calls(format, (f"c{i}", "run", {"n": i}), text="so"),
            dialogues.result(format, f"c{i}", "r"),
            dialogues.assistant(format, f"answer {i}"),
        ]
        for body in bodies:
            for one in body if isinstance(body, list) else [body]:
                thread.append("message", one, format=format)
    return thread


@pytest.mark.parametrize("format", FORMATS)
def test_twice_as_many_parts_are_twice_the_work_to_read(format: str) -> None:
    few, many = (
        work_of(lambda n=n: messages.read(format, long_body(format, n)))  # type: ignore[misc]
        for n in (400, 800)
    )
    assert few > 400
    assert many < 2.2 * few


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("format", FORMATS)
def test_twice_as_many_messages_are_twice_the_work_to_show(format: str, target: str) -> None:
    first, last = (long_thread(format, n) for n in (40, 80))
    first.context(target)  # what is loaded and remembered at the first time is not counted
    options: dict[str, Any] = {"compacted": False}
    few, many = (work_of(lambda t=t: t.context(target, **options)) for t in (first, last))  # type: ignore[misc]
    assert few > 100
    assert many < 2.3 * few
