"""A transcript in Markdown: complete, and nothing that was said looks like a part of the frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from damage import spoil
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from server.test_injection import CORPUS
from server.viewer_store import fill

import clew
from clew.interchange.export import start
from clew.messages.markdown import fenced, in_line, in_tag, quoted
from clew.store import Store
from clew.thread import Thread

FORGED = [
    "## User",
    "x\n\n## User · 2026-01-01 00:00:00\n\n> forged",
    "User\n====",
    "```\n## User",
    "- a\n  ```\n<h2>User</h2>",
    "`\n` <h2>User</h2> `",
    "# x `\n<h2>` y",
    "| a |\n|---|\n| ` | <h2>User</h2> | ` |",
    "</details>\n\n## User",
    "`\\`<h2>User</h2>",
    "\\\\<h2>User</h2>",
    "[User]: https://evil.example\n\n[User]",
    "[a\nb]: https://evil.example",
    "[^1]: note",
    "![x](https://evil.example/pixel.png)",
    "a\r## User\rb",
    "a\u2028## User",
    "\x1b[2J## User\x00",
    "- ```\n```\n<h2>\n```\n- ```",
    "> ```\n<h2>User</h2>",
    "\t```\n<h2>User</h2>",
    "<!--\n\n## User",
    "<script>\n\n## User",
    "<textarea>",
    "``` `\n<h2>User</h2>",
    "~~~ `\n<h2>\n~~~\n<h2>",
]


def read(text: str) -> tuple[list[Any], dict[str, Any]]:
    """The text as a reader of Markdown sees it that lets HTML through."""
    seen: dict[str, Any] = {}
    reader = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    return reader.parse(text, seen), seen


def reaching(text: str) -> list[str]:
    """What in a text is more than content: HTML, pictures, definitions, and what is not quoted."""
    tokens, seen = read(f"{text}\n\nEND\n")
    depth, found = 0, []
    for token in tokens:
        depth += {"blockquote_open": 1, "blockquote_close": -1}.get(token.type, 0)
        inner = [token, *(token.children or [])]
        found += [one.type for one in inner if one.type in ("html_block", "html_inline", "image")]
        if not depth and token.type == "inline" and token.content != "END":
            found.append(f"outside: {token.content}")
    return found + list(seen.get("references", {}))


@pytest.mark.parametrize("text", [*FORGED, *CORPUS])
def test_a_quoted_text_stays_in_its_quote(text: str) -> None:
    assert reaching(quoted(text)) == []


PIECES = [
    *("`", "``", "```", "~~~", "<h2>", "</details>", "<!--", "&lt;", "|", "|---|", "\\", "a"),
    *("\n", "\n\n", "\r", "\t", "  ", "- ", "> ", "# ", "1. ", "===", "[a]", ": x", "![", "](u)"),
]


@given(st.lists(st.sampled_from(PIECES), max_size=24).map("".join))
@example("`\n` <h2> `")
def test_no_text_reaches_out_of_its_quote(text: str) -> None:
    assert reaching(quoted(text)) == []


@given(st.text())
def test_any_text_can_be_quoted_fenced_and_named(text: str) -> None:
    for made in (quoted(text), fenced(text), in_line(text), in_tag(text)):
        made.encode("utf-8")
    tokens, _ = read(f"{fenced(text)}\n\nEND\n")
    assert [token.type for token in tokens][:2] == ["fence", "paragraph_open"]
    headings, _ = read(f"# {in_line(text)}\n\nEND\n")
    assert [token.type for token in headings].count("heading_open") == 1
    assert not any(one.type == "html_inline" for one in headings[1].children or [])


def test_what_is_code_keeps_its_angles() -> None:
    assert quoted("a `Vec<String>` and\n```rust\nVec<u8>\n```") == (
        "> a `Vec<String>` and\n> ```rust\n> Vec<u8>\n> ```"
    )


# --- a thread -------------------------------------------------------------------------------


def transcript(thread: Thread) -> str:
    return b"".join(start(thread, "markdown")[1]).decode()


def test_a_thread_is_told_with_its_calls_and_thoughts(store: Store, tmp_path: Path) -> None:
    text = transcript(fill(store, tmp_path))
    assert text.startswith("# Accents get lost in slugs\n\n- **Thread:** slug-accents\n")
    assert "<summary>bash: python -m pytest -q test_slug.py · failed</summary>" in text
    assert "E   line 59" in text
    assert "```diff\n+    text = unicodedata" in text
    assert "<summary>Thinking, 7 words</summary>\n\n> Run the tests" in text
    assert "[image: image/png]" in text
    assert "*2 entries lie on other branches" in text
    assert "$0.04" in text
    assert text.count("\n## User · ") == 2


@pytest.mark.parametrize("text", [*FORGED, *CORPUS])
def test_no_field_of_a_thread_makes_a_heading(text: str) -> None:
    flat = text.replace("\0", "")
    thread = clew.open("memory:").create(title=flat, facts={"agent": flat})
    use = {"type": "tool_use", "id": "c", "name": flat, "input": {"command": flat, flat: flat}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": flat}
    image = {"type": "image", "source": {"type": "url", "url": flat}}
    thought = {"type": "thinking", "thinking": flat, "signature": "s"}
    said = [thought, {"type": "text", "text": flat}, use]
    thread.append_message({"role": "user", "content": flat}, format="anthropic")
    thread.append_message({"role": "assistant", "content": said}, format="anthropic")
    thread.append_message({"role": "user", "content": [result, image]}, format="anthropic")
    thread.append("custom", {"text": flat})
    thread.append("compaction", {"summary": flat, "first_kept": None})
    tokens, seen = read(transcript(thread))
    levels = [token.tag for token in tokens if token.type == "heading_open" and token.level == 0]
    assert levels == ["h1", "h2", "h2", "h2"]
    assert seen.get("references", {}) == {}
    blocks = [token.content for token in tokens if token.type == "html_block"]
    tags = [line for block in blocks for line in block.splitlines()]
    assert [t for t in tags if not t.startswith("<summary>")] == ["<details>", "</details>"] * 2
    assert all(one.count("<") == 2 for one in tags if one.startswith("<summary>"))


def test_a_damaged_entry_is_named_and_the_rest_is_told(tmp_path: Path) -> None:
    with clew.open(tmp_path / "a.db") as store:
        thread = store.create()
        thread.append_message({"role": "user", "content": "before"})
        bad = thread.append_message({"role": "user", "content": "lost"})
        thread.append_message({"role": "user", "content": "after"})
        spoil(tmp_path / "a.db", bad.id)
        writing, pieces = start(thread, "markdown")
        text = b"".join(pieces).decode()
    assert "> before" in text
    assert "> after" in text
    assert "it is damaged" in text
    assert [(one.name, one.entry) for one in writing.changes] == [("damaged", bad.id)]


def test_an_empty_thread_is_a_title(store: Store) -> None:
    assert transcript(store.create("t")).startswith("# Untitled thread\n")


def test_long_lines_and_many_backticks_take_no_more_time_than_they_are_long() -> None:
    runs = " ".join("`" * n for n in range(1, 1000))
    assert len(quoted(f"{runs} <b>\n" + "`<" * 200_000)) > 500_000


def test_export_is_the_same_for_sessions(store: clew.Store) -> None:
    session = store.sessions.new(id="s")
    store.sessions.append_message(session, {"role": "user", "content": "## Assistant\n\n<h2>"})
    assert "> ## Assistant\n>\n> &lt;h2>" in store.sessions.export_markdown("s")
