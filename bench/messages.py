"""Messages as agents leave them behind: about 1 KB of JSON each, the same in every run.

A conversation goes user, call, result, call, result, answer, and begins anew. User messages
are short, tool results long, as in life; the mean is what matters.
"""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import msgspec

Message = dict[str, Any]

FORMAT = "openai-chat"
SEED = 20
_LONGEST_CYCLE = 10_000

_TEXT = """
the store returns a page of threads and index reads cursor when test fails because of path handler
session token expired login request error value none expected branch commit file line function class
method import module schema column query transaction journal entry leaf fork parent hash write read
append retry timeout connection pool worker queue event stream user asked to fix update refactor
rename remove check verify explain naïve café “quoted” → ok
"""
_WORDS = _TEXT.split()
_TOOLS = ("read_file", "run_tests", "search_code", "edit_file", "list_folder")


def messages(count: int) -> list[Message]:
    """The first `count` messages; long runs repeat themselves."""
    cycle = _cycle(min(count, _LONGEST_CYCLE))
    return [cycle[number % len(cycle)] for number in range(count)]


def encoded(batch: list[Message]) -> list[bytes]:
    """The bytes of each message as compact JSON: the raw size, and what the bare parts store."""
    return [msgspec.json.encode(message) for message in batch]


def raw_bytes(batch: list[Message]) -> int:
    return sum(map(len, encoded(batch)))


@cache
def _cycle(count: int) -> list[Message]:
    chance = random.Random(SEED)
    makers = (_user, _call, _result, _call, _result, _answer)
    return [makers[number % len(makers)](chance, number) for number in range(count)]


def _user(chance: random.Random, number: int) -> Message:
    return {"role": "user", "content": prose(chance, 60)}


def _answer(chance: random.Random, number: int) -> Message:
    return {"role": "assistant", "content": prose(chance, 170)}


def _call(chance: random.Random, number: int) -> Message:
    arguments = {
        "path": f"src/{chance.choice(_WORDS)}/{chance.choice(_WORDS)}.py",
        "first_line": chance.randrange(400),
        "replacement": _code(chance, 10),
    }
    function = {"name": chance.choice(_TOOLS), "arguments": msgspec.json.encode(arguments).decode()}
    call = {"id": f"call_{number:08d}", "type": "function", "function": function}
    return {"role": "assistant", "content": prose(chance, 30), "tool_calls": [call]}


def _result(chance: random.Random, number: int) -> Message:
    content = "\n".join(f"{line:4d}  {_code(chance, 1)}" for line in range(28))
    return {"role": "tool", "tool_call_id": f"call_{number - 1:08d}", "content": content}


def prose(chance: random.Random, words: int) -> str:
    """So many words, more or less."""
    count = chance.randint(words // 2, words * 3 // 2)
    return " ".join(chance.choices(_WORDS, k=count)).capitalize() + "."


def _code(chance: random.Random, lines: int) -> str:
    return "\n".join(
        f"    {chance.choice(_WORDS)}_{chance.choice(_WORDS)} = {chance.choice(_WORDS)}"
        f"({chance.choice(_WORDS)}, {chance.randrange(10_000)})"
        for _ in range(lines)
    )
