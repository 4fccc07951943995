"""What a context costs grows with what it shows, and not with its square."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import clew
from clew.thread import Thread


def exchanges(n: int) -> list[Any]:
    """One long turn of an agent."""
    found: list[Any] = [{"role": "user", "content": "go"}]
    for i in range(n):
        call = {"type": "tool_use", "id": f"c{i}", "name": "run", "input": {"n": i}}
        found.append({"role": "assistant", "content": [{"type": "text", "text": "So."}, call]})
        result = {"type": "tool_result", "tool_use_id": f"c{i}", "content": "x" * 400}
        found.append({"role": "user", "content": [result]})
    return found


def answers(n: int) -> list[Any]:
    return [{"role": "assistant", "content": f"answer {i}"} for i in range(n)]


def items(n: int) -> list[Any]:
    text = {"type": "output_text", "text": "x"}
    return [{"type": "message", "role": "assistant", "content": [text], "n": i} for i in range(n)]


def questions(n: int) -> list[Any]:
    return [{"role": "user", "content": f"question {i}"} for i in range(n)]


def parallel_calls(n: int) -> list[Any]:
    calls = [{"type": "tool_use", "id": f"c{i}", "name": "run", "input": {}} for i in range(n)]
    results = [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"c{i}"}]}
        for i in range(n)
    ]
    return [{"role": "assistant", "content": calls}, *results]


def thread_of(bodies: list[Any]) -> Thread:
    thread = clew.open("memory:").create()
    for body in bodies:
        thread.append_message(body)
    return thread


def seconds(thread: Thread, options: dict[str, Any]) -> float:
    """Of the processor, the best of three: others use the machine too."""
    found = []
    for _ in range(3):
        start = time.process_time()
        for format in ("anthropic", "openai-responses", "gemini"):
            thread.context(format, **options)
        found.append(time.process_time() - start)
    return min(found)


@pytest.mark.parametrize("options", [{}, {"budget_tokens": 2000}], ids=["whole", "budget"])
@pytest.mark.parametrize("make", [exchanges, answers, items, questions, parallel_calls])
def test_eight_times_as_much_takes_nothing_like_its_square(
    make: Callable[[int], list[Any]], options: dict[str, Any]
) -> None:
    few, many = thread_of(make(250)), thread_of(make(2000))
    assert seconds(many, options) < 24 * seconds(few, options)
