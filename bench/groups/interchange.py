"""interchange: bringing a session of Claude Code of 100 MB, a tree that has not changed; a page."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import clew
from bench.figures import Figure, megabytes, milliseconds
from bench.workshop import Workshop
from clew.core.model import EntryDraft
from clew.interchange.export import start
from clew.interchange.tree import bring_all

_BYTES = 100_000_000
_FILES = 500
_ROUNDS = 5
_ENTRIES, _PAGES = 10_000, 3
# In a process of its own, because what it takes of memory is asked for.
_PROGRAM = """
import resource, sys, time
from pathlib import Path
import clew
from clew.interchange.tree import bring_all
with clew.open(sys.argv[1]) as store:
    begin, worked = time.perf_counter(), time.process_time()
    report = bring_all(store, [Path(sys.argv[2])])
    seconds, worked = time.perf_counter() - begin, time.process_time() - worked
assert not report.left
unit = 1 if sys.platform == "darwin" else 1024
print(seconds, worked, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6)
"""


def measure(workshop: Workshop) -> Iterable[Figure]:
    folder = workshop.new_path().parent
    big = folder / "projects" / "-work" / f"{uuid.UUID(int=1)}.jsonl"
    size = _write(big, _BYTES)
    command = [sys.executable, "-c", _PROGRAM, str(folder / "big.db"), str(big)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, worked, memory = map(float, done.stdout.split())
    # Beside each, the time of the processor alone: where others work too, only that can be judged.
    name = "interchange: Claude Code JSONL"
    yield Figure(name, size / 1e6 / seconds, "MB/s", 20.0, ">=")
    yield Figure(f"{name}, of the processor", size / 1e6 / worked, "MB/s", 20.0, ">=")
    yield megabytes("interchange: memory for a file of 100 MB", memory, at_most=300)
    name = "interchange: a page of 10,000 entries"
    taken = _page(folder / "page.db")
    yield milliseconds(name, [seconds for seconds, _ in taken], at_most=3000)
    yield milliseconds(f"{name}, of the processor", [worked for _, worked in taken], at_most=3000)
    yield milliseconds(
        f"interchange: {_FILES} files that have not changed", _again(folder / "tree"), at_most=500
    )


def _page(path: Path) -> list[tuple[float, float]]:
    """A thread of 10,000 entries as one page, without its secrets: by the clock, and worked."""
    found = []
    with clew.open(path, durability="relaxed") as store:
        thread = store.create("long", title="A thread of 10,000 entries")
        thread.append([draft for n in range(_ENTRIES // 4) for draft in _exchange(n)])
        for _ in range(_PAGES):
            begin, worked = time.perf_counter(), time.process_time()
            pieces = start(thread, "html")[1]
            assert sum(map(len, pieces)) > 1_000_000
            found.append((time.perf_counter() - begin, time.process_time() - worked))
    return found


def _exchange(n: int) -> Iterator[EntryDraft]:
    call = {"type": "tool_use", "id": f"c{n}", "name": "bash", "input": {"command": f"make {n}"}}
    result = {"type": "tool_result", "tool_use_id": f"c{n}", "content": f"step {n}\n" * 30}
    said = f"It is `x{n}`.\n\n```python\nx{n} = {n}\n```\n"
    for kind, role, content in (
        ("user_message", "user", f"Why does step {n} fail?"),
        ("assistant_message", "assistant", [{"type": "text", "text": f"I run **{n}**."}, call]),
        ("tool_result", "user", [result]),
        ("assistant_message", "assistant", said),
    ):
        yield clew.draft(kind, {"role": role, "content": content}, format="anthropic")


def _again(folder: Path) -> list[float]:
    for number in range(_FILES):
        _write(folder / "projects" / "-work" / f"{uuid.UUID(int=number)}.jsonl", 20_000)
    found = []
    with clew.open(folder / "tree.db", durability="relaxed") as store:
        bring_all(store, [folder / "projects"])
        for _ in range(_ROUNDS):
            begin = time.perf_counter()
            bring_all(store, [folder / "projects"])
            found.append(time.perf_counter() - begin)
    return found


def _write(path: Path, size: int) -> int:
    """A session of so many bytes: prompts, calls, and outputs of all sizes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with path.open("w", encoding="utf-8") as file:
        for record in _records():
            written += file.write(json.dumps(record, separators=(",", ":")) + "\n")
            if written >= size:
                return written
    return written


def _records() -> Iterator[dict[str, Any]]:
    chance = random.Random(7)
    words = ["".join(chance.choices("abcdefghij \n", k=chance.randint(2, 12))) for _ in range(5000)]
    parent: str | None = None
    number = 0
    while True:
        reply, call = f"msg_{number}", f"toolu_{number}"
        output = " ".join(chance.choices(words, k=int(chance.lognormvariate(5, 1.2))))
        usage = {"input_tokens": 10, "output_tokens": 200, "cache_read_input_tokens": 5000}
        for type, content in (
            (
                "assistant",
                [{"type": "thinking", "thinking": output[:400], "signature": "c2ln" * 80}],
            ),
            ("assistant", [{"type": "tool_use", "id": call, "name": "Bash", "input": {"c": "ls"}}]),
            ("user", [{"type": "tool_result", "tool_use_id": call, "content": output}]),
        ):
            number += 1
            name = str(uuid.UUID(int=number))
            message: dict[str, Any] = {"role": type, "content": content}
            more: dict[str, Any] = {}
            if type == "assistant":
                message |= {"id": reply, "type": "message", "model": "m", "usage": usage}
            else:
                more["toolUseResult"] = {"stdout": output, "stderr": "", "interrupted": False}
            yield {
                "parentUuid": parent,
                "isSidechain": False,
                "cwd": "/work",
                "sessionId": str(uuid.UUID(int=1)),
                "version": "2.1.199",
                "gitBranch": "main",
                "type": type,
                "message": message,
                **more,
                "uuid": name,
                "timestamp": f"2026-03-01T10:{number // 60 % 60:02}:{number % 60:02}.000Z",
            }
            parent = name
