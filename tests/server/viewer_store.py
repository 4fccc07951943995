"""A store as people have one: a thread with everything in it, forks, sub-agents, others."""

from __future__ import annotations

import base64
import struct
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import clew
from clew.core.model import to_us
from clew.store import Store
from clew.thread import Thread

BEGAN = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
CODE = '''def slugify(text: str) -> str:
    """The text as a part of an address."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
'''
FIXED = CODE.replace("    return", "    text = unicodedata.normalize('NFKD', text)\n    return")
ANSWER = """The accents were lost because `slugify` drops **everything** that is not ASCII.

1. normalise to NFKD first,
2. then replace what is left.

```python
text = unicodedata.normalize("NFKD", text)
```

| input | before | after |
|---|---|---|
| Crème brûlée | `cr-me-br-l-e` | `creme-brulee` |
"""


def png(width: int = 64, height: int = 32) -> bytes:
    """A small picture, made here."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = b"".join(
        b"\0" + b"".join(bytes((x * 4 % 256, y * 8 % 256, 140)) for x in range(width))
        for y in range(height)
    )
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


class Clock:
    """Every step takes a few seconds."""

    def __init__(self, now: datetime = BEGAN) -> None:
        self.now = now

    def __call__(self, seconds: float = 2.4) -> datetime:
        self.now += timedelta(seconds=seconds)
        return self.now


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def says(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def call(id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def gives(id: str, output: Any, *, is_error: bool = False) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": id, "content": output, "is_error": is_error}
    return {"role": "user", "content": [block]}


def fill(store: Store, folder: Path) -> Thread:
    """The whole store; the thread with everything in it."""
    clock = store.clock
    thread = fill_story(store, folder)
    store.clock = clock
    fill_relatives(store, thread)
    fill_others(store)
    return thread


def fill_story(store: Store, folder: Path) -> Thread:
    project = folder / "project"
    project.mkdir()
    (project / "slug.py").write_text(CODE)
    (project / "README.md").write_text("# slug\n\nMakes addresses of titles.\n")
    clock = Clock()
    store.clock = lambda: to_us(clock(0.3))  # what the store itself writes is a part of the story
    thread = store.create(
        "slug-accents",
        title="Accents get lost in slugs",
        tags=["bug", "python"],
        workspace="~/code/slug",
        facts={"agent": "coder", "model": "claude-sonnet-4-5"},
        time=clock(),
    )

    def add(message: dict[str, Any], seconds: float = 2.4) -> clew.Entry:
        return thread.append_message(message, format="anthropic", time=clock(seconds))

    thread.append(
        "system_message",
        {"role": "system", "content": "You are a careful programmer. Run the tests first."},
        time=clock(),
    )
    thread.append("turn_marker", {"status": "started", "owner": "coder"}, turn="t1", time=clock())
    first = add(
        user("`test_slugify` fails since this morning:\n\n> Crème brûlée\n\nCan you fix it?")
    )
    thread.snapshots.take(project, at=first.id, label="before the fix")
    add(
        says(
            {
                "type": "thinking",
                "thinking": "Run the tests, then look at **slug.py**.",
                "signature": "x",
            },
            text("I run the tests first."),
            call("c1", "bash", command="python -m pytest -q test_slug.py"),
        )
    )
    add(
        gives(
            "c1",
            "FAILED test_slug.py::test_accents\n" + "\n".join(f"E   line {n}" for n in range(60)),
            is_error=True,
        ),
        7.2,
    )
    usage(thread, clock, 4_210, 96)
    add(
        says(
            call("c2", "read_file", path="slug.py"),
            call("c3", "bash", command="git log --oneline -3"),
        )
    )
    add(gives("c2", CODE), 0.02)
    add(gives("c3", "a1f4e2c Lower-case first\n90be11d Slugs\n1d2c3b4 First\n"), 0.4)
    add(
        says(
            text("Accented letters are dropped."),
            call(
                "c4",
                "edit_file",
                file_path="slug.py",
                old_string="    return re.sub",
                new_string="    text = unicodedata.normalize('NFKD', text)\n    return re.sub",
            ),
        )
    )
    (project / "slug.py").write_text(FIXED)
    add(gives("c4", "slug.py: 1 line inserted"), 0.1)
    thread.snapshots.take(project, label="after the fix")
    add(says(call("c5", "screenshot", url="http://localhost:8000/creme-brulee")))
    add(
        gives(
            "c5",
            [
                text("The page as it is shown now"),
                {
                    "type": "image",
                    "source": {
                        "type": "base64",
                        "media_type": "image/png",
                        "data": base64.b64encode(png()).decode(),
                    },
                },
            ],
        ),
        1.9,
    )
    answer = add(says(text(ANSWER)))
    usage(thread, clock, 5_120, 412)
    thread.append("turn_marker", {"status": "completed"}, turn="t1", time=clock())
    thread.label(answer.id, "the fix")
    second = add(user("Thanks. A line for the changelog, please."), 65)
    add(says(text("- Use NFKD normalization in `slugify()`.")))
    thread.move(thread.path(second.id, limit=2)[0].id, time=clock())
    add(user("Thanks. A line for the changelog, for people who are no programmers."), 30)
    add(says(text("- Links to posts with accents in their titles work again.")))
    thread.append("run_failure", {"error": "RateLimitError: 429, try again in 20 s"}, time=clock())
    thread.append("turn_marker", {"status": "failed", "error": "429"}, turn="t2", time=clock())
    return thread


def usage(thread: Thread, clock: Clock, given: int, made: int) -> None:
    body = {
        "model": "claude-sonnet-4-5",
        "input_tokens": given,
        "cache_read_tokens": given // 2,
        "cache_write_tokens": 0,
        "output_tokens": made,
        "reasoning_tokens": 0,
    }
    thread.append("usage", body, format="anthropic", time=clock(0.1))


def fill_relatives(store: Store, thread: Thread) -> None:
    answer = next(id for id, name in thread.labels.items() if name == "the fix")
    fork = store.fork(
        thread.id, at=answer, id="slug-library", title="With a library instead", time=BEGAN
    )
    fork.append_message(user("Would a library do this for us?"), time=BEGAN + timedelta(minutes=4))
    fork.append_message(
        {"role": "assistant", "content": "python-slugify would."}, time=BEGAN + timedelta(minutes=5)
    )
    child = store.create(
        "slug-docs",
        title="Look for other places",
        parent=thread.id,
        time=BEGAN + timedelta(seconds=20),
    )
    child.append_message(user("Where else is slugify called?"), time=BEGAN + timedelta(seconds=25))
    child.append_message(
        {"role": "assistant", "content": "In `feeds.py` and in `admin.py`."},
        time=BEGAN + timedelta(seconds=40),
    )


def fill_others(store: Store) -> None:
    titles = (
        "Move the blog to a static site",
        "Why is the build slow on Mondays?",
        "Explain the retry policy",
        "Upgrade to Python 3.13",
        "A flaky test in the payment service",
        "Draft of the release notes",
    )
    for n, title in enumerate(titles):
        time = BEGAN - timedelta(days=n, hours=3)
        thread = store.create(
            f"other-{n}",
            title=title,
            tags=["work"] if n % 2 else [],
            workspace="~/code/blog",
            time=time,
        )
        thread.append_message(user(title), time=time + timedelta(minutes=1))
        thread.append_message(
            {"role": "assistant", "content": "I look into it."}, time=time + timedelta(minutes=2)
        )
    store.create("untitled", time=BEGAN - timedelta(days=20))
    store.get("other-5").set(archived=True)


def fill_long(store: Store, entries: int = 10_000, id: str = "long") -> Thread:
    """A thread of so many entries: questions, calls with their output, answers."""
    thread = store.create(id, title=f"A thread of {entries:,} entries", time=BEGAN)
    batch: list[Any] = []
    for n in range(entries // 5):
        batch += _exchange(n, BEGAN + timedelta(seconds=10 * n))
        if len(batch) >= 500:
            thread.append(batch)
            batch = []
    if batch:
        thread.append(batch)
    return thread


def _exchange(n: int, time: datetime) -> list[Any]:
    function = {"name": "bash", "arguments": f'{{"command": "make step-{n}"}}'}
    asked = [{"id": f"c{n}", "type": "function", "function": function}]
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("user_message", user(f"Question {n}: why does step {n} fail?")),
        (
            "assistant_message",
            {"role": "assistant", "content": f"I run **step {n}**.", "tool_calls": asked},
        ),
        ("tool_result", {"role": "tool", "tool_call_id": f"c{n}", "content": f"step {n}\n" * 30}),
        (
            "assistant_message",
            {"role": "assistant", "content": f"It is `x{n}`.\n\n```python\nx{n} = {n}\n```\n"},
        ),
        ("usage", {"model": "m", "input_tokens": 100 + n, "output_tokens": 10}),
    ]
    return [
        clew.draft(
            kind,
            body,
            format="openai-chat",
            id=f"e{n}-{place}",
            time=time + timedelta(seconds=place),
        )
        for place, (kind, body) in enumerate(bodies)
    ]
