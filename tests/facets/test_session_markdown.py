"""Sessions as Markdown: complete, and nothing that was said breaks out of its place."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from clew.facets.sessions import Session, Sessions, export_session_markdown
from clew.store import Store

TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def exported(*messages: Any, **fields: Any) -> str:
    given = {"title": "Fix the login", "vendor": "anthropic", "endpoint": "api", "model": "sonnet"}
    session = Session("s", TIME, TIME, messages=list(messages), **{**given, **fields})
    return export_session_markdown(session)


def test_the_head_says_what_the_session_is() -> None:
    assert exported().splitlines() == [
        "# Fix the login",
        "",
        "- **Session:** s",
        "- **Created:** 2026-01-02T03:04:05.000000Z",
        "- **Updated:** 2026-01-02T03:04:05.000000Z",
        "- **Vendor:** anthropic / api / sonnet",
        "- **Messages:** 0",
    ]
    assert exported(title="").startswith("# Untitled session\n")
    assert exported(title="a\n# b <script>").startswith("# a # b \\<script\\>\n")


def test_messages_calls_and_results() -> None:
    text = exported(
        {"role": "user", "content": "Read it"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.\nYes.", "signature": "x"},
                {"type": "text", "text": "Reading."},
                {"type": "tool_use", "id": "t", "name": "read", "input": {"path": "ü"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t",
                    "content": "not found",
                    "is_error": True,
                }
            ],
        },
        {"role": "system", "content": "Be brief."},
        {"role": "narrator", "content": "Meanwhile"},
    )
    assert "- **Messages:** 5\n\n---\n\n## User\n\n> Read it\n\n---\n\n## Assistant\n\n" in text
    assert "**Thinking:**\n\n> Hm.\n> Yes.\n\n> Reading.\n\n**Tool Call:** `read`\n\n" in text
    assert '```json\n{\n  "path": "ü"\n}\n```' in text
    assert "**Tool Result** (error=true):\n\n```\nnot found\n```" in text
    assert "## System\n\n> Be brief." in text
    assert "## narrator\n\n> Meanwhile" in text


def test_results_without_an_error_say_so() -> None:
    text = exported({"role": "tool", "tool_call_id": "c", "content": "fine"})
    assert "## Tool\n\n**Tool Result** (error=false):\n\n```\nfine\n```" in text


def test_backticks_do_not_end_a_fence() -> None:
    content = "before\n```\n## Assistant\n````\nafter"
    text = exported({"role": "tool", "tool_call_id": "c", "content": content})
    assert f"`````\n{content}\n`````" in text


def test_a_tool_with_backticks_in_its_name_stays_in_line() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "a`b", "arguments": "{}"}}
    text = exported({"role": "assistant", "content": None, "tool_calls": [call]})
    assert "**Tool Call:** `` a`b ``" in text


def test_a_code_block_that_was_cut_off_does_not_swallow_the_rest() -> None:
    for cut, closed in (
        ("```python\nx = 1", "> ```python\n> x = 1\n> ```\n\n---"),
        ("~~~~\nx", "> ~~~~\n> x\n> ~~~~\n\n---"),
        ("```\nx\n```", "> ```\n> x\n> ```\n\n---"),
        ("```in line``` code", "> ```in line``` code\n\n---"),
        ("````\n```\n", "> ````\n> ```\n> ````\n\n---"),
    ):
        text = exported({"role": "user", "content": cut}, {"role": "user", "content": "next"})
        assert closed in text, cut


def test_images_are_named() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://x/y.png"}}
    assert "*\\[image: " in exported({"role": "user", "content": [image]})


def test_what_cannot_be_read_is_shown_as_it_is() -> None:
    text = exported({"role": "user", "content": {"odd": "\ud83d"}})
    assert '"odd": "' in text
    text.encode("utf-8")


def test_an_id_exports_the_full_history(store: Store) -> None:
    sessions = Sessions(store)
    session = sessions.new(id="s")
    sessions.append_message(session, {"role": "user", "content": "Before"})
    sessions.append_checkpoint("s", [{"role": "user", "content": "Summary"}], 1)
    assert "Before" in sessions.export_markdown("s")
    assert "Summary" not in sessions.export_markdown("s")
    assert "Summary" in sessions.export_markdown(sessions.load("s"))
