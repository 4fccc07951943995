"""`clew mcp`: an agent asks about earlier sessions, through the real client of the protocol."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cli_support import Run

import clew
from clew.cli._history import ANSWER_CHARACTERS_MAX, History

pytest.importorskip("mcp.server.mcpserver", reason="needs clew[mcp]")
pytestmark = pytest.mark.anyio

HERE, ELSEWHERE = "/work/login", "/work/else"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def filled(place: Path) -> Iterator[clew.Store]:
    with clew.open(place) as store:
        facts = {"agent": "claude-code", "session_id": "0f3c"}
        thread = store.create("login", title="Fix the login", workspace=HERE, facts=facts)
        said: dict[str, Any] = {
            "role": "user",
            "content": "The login fails since the cookie moved.",
        }
        thread.append_message(said, format="anthropic", id="question")
        reply: dict[str, Any] = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-5",
            "content": [
                {"type": "text", "text": "The cookie lacks SameSite. " + "Detail. " * 2000}
            ],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 1000, "output_tokens": 100},
        }
        thread.append_response(reply, format="anthropic")
        other = store.create("other", title="Another cookie", workspace=ELSEWHERE)
        other.append_message({"role": "user", "content": "Bake a cookie."}, format="anthropic")
        yield store


@asynccontextmanager
async def client(place: Path, *options: str) -> AsyncIterator[Any]:
    from mcp import Client, StdioServerParameters, stdio_client

    command = ["-m", "clew", "mcp", "--store", str(place), "--workspace", HERE, *options]
    parameters = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
    async with Client(stdio_client(parameters)) as connected:
        yield connected


async def ask(connected: Any, tool: str, **arguments: Any) -> str:
    answer = await connected.call_tool(tool, arguments)
    [content] = answer.content
    text: str = content.text
    assert not answer.is_error, text
    return text


async def test_an_agent_finds_what_was_said_and_reads_on_from_the_hit(
    place: Path, filled: clew.Store
) -> None:
    async with client(place) as connected:
        tools = (await connected.list_tools()).tools
        assert {tool.name for tool in tools} == {
            "search_sessions",
            "list_sessions",
            "get_session_overview",
            "get_messages",
            "get_usage_summary",
            "resume_command",
        }
        assert all(tool.annotations.read_only_hint for tool in tools)
        found = await ask(connected, "search_sessions", query="login cookie")
        assert "session login" in found
        assert "entry question" in found
        told = await ask(connected, "get_messages", session="login", entry="question", after=0)
        assert "The login fails since the cookie moved." in told
        assert "$" in await ask(connected, "get_usage_summary")
        overview = await ask(connected, "get_session_overview", session="log")
        assert "[question] user_message: The login fails" in overview
        command = await ask(connected, "resume_command", session="login")
        assert command.splitlines()[0] == f"cd {HERE} && claude --resume 0f3c"


async def test_only_the_workspace_is_looked_at_unless_all_are_asked_for(
    place: Path, filled: clew.Store
) -> None:
    async with client(place) as connected:
        assert "other" not in await ask(connected, "search_sessions", query="cookie")
        assert "session other" in await ask(
            connected, "search_sessions", query="cookie", workspace="*"
        )
        assert "other" not in await ask(connected, "list_sessions")
    async with client(place, "--everywhere") as connected:
        assert "other" in await ask(connected, "list_sessions")


async def test_a_mistake_is_told_to_the_model_and_the_server_goes_on(
    place: Path, filled: clew.Store
) -> None:
    async with client(place) as connected:
        for tool, arguments in (
            ("get_messages", {"session": "nothing"}),
            ("get_messages", {"session": "login", "entry": "nothing"}),
            ("search_sessions", {"query": "x", "limit": 0}),
            ("search_sessions", {"query": "x", "cursor": "x"}),
            ("list_sessions", {"since": "once"}),
            ("get_usage_summary", {"by": "moon"}),
        ):
            answer = await connected.call_tool(tool, arguments)
            assert answer.is_error, tool
            assert "mistake in Clew" not in answer.content[0].text
        assert "login" in await ask(connected, "list_sessions")


async def test_nothing_is_written_by_asking(place: Path, filled: clew.Store) -> None:
    before = [list(thread.read()) for thread in (filled.get("login"), filled.get("other"))]
    async with client(place) as connected:
        await ask(connected, "search_sessions", query="cookie", workspace="*")
        await ask(connected, "get_session_overview", session="login")
    assert [list(thread.read()) for thread in (filled.get("login"), filled.get("other"))] == before


def test_no_answer_is_longer_than_a_model_should_be_given(filled: clew.Store) -> None:
    for number in range(60):
        title = f"Cookie {number} " + "long " * 40
        thread = filled.create(f"s{number}", title=title, workspace=HERE)
        said = {"role": "user", "content": f"cookie {number} " * 300}
        thread.append_message(said, format="anthropic")
    history = History(filled, HERE)
    [reply] = [e.id for e in filled.get("login").path() if e.kind == "assistant_message"]
    answers = [
        history.search_sessions("cookie", limit=50),
        history.list_sessions(limit=50),
        history.get_session_overview("login"),
        history.get_messages("login"),
        history.get_messages("login", entry=reply, before=0, after=0),
        history.get_usage_summary(by="thread", workspace="*"),
    ]
    for answer in answers:
        assert len(answer) <= ANSWER_CHARACTERS_MAX
    assert "More: cursor=" in answers[1]
    long = filled.create("long")
    for _ in range(20):
        long.append_message({"role": "user", "content": "word " * 300}, format="anthropic")
    answer = history.get_messages("long", before=15)
    assert len(answer) <= ANSWER_CHARACTERS_MAX
    assert "left out for length" in answer
    assert "characters more" in answers[4]


@pytest.mark.parametrize("size", [4, 400])
def test_pages_go_through_everything_once_also_where_they_end_for_length(
    filled: clew.Store, size: int
) -> None:
    for number in range(40):
        facts = {"agent": "pi" if number % 2 else "codex"}
        thread = filled.create(f"s{number}", title="t" * size, workspace=HERE, facts=facts)
        thread.append_message({"role": "user", "content": "cookie " * size}, format="anthropic")
    history = History(filled, HERE)
    listed = _paged(lambda cursor: history.list_sessions(agent="pi", limit=20, cursor=cursor))
    assert sorted(listed) == sorted(f"s{number}" for number in range(1, 40, 2))
    hits = _paged(lambda cursor: history.search_sessions("cookie", limit=30, cursor=cursor), word=2)
    assert sorted(set(hits) - {"login"}) == sorted(f"s{number}" for number in range(40))
    assert len(hits) == len(set(hits)) + 1  # "login" has it twice


def _paged(ask: Callable[[str | None], str], word: int = 1) -> list[str]:
    """The ids on all pages, each the so-many-th word of its line."""
    seen: list[str] = []
    cursor: str | None = None
    while True:
        answer = ask(cursor)
        seen += [line.split()[word] for line in answer.splitlines() if line.startswith("- ")]
        if "cursor=" not in answer:
            return seen
        cursor = answer.split("cursor='")[1].split("'")[0]


def test_stored_control_sequences_do_not_reach_the_model(filled: clew.Store) -> None:
    thread = filled.create("odd", title="\x1b]0;owned\x07title", workspace=HERE)
    said = {"role": "user", "content": "cookie \x1b[2J\u202egnp.exe\nsecond line"}
    thread.append_message(said, format="anthropic")
    history = History(filled, HERE)
    for answer in (
        history.search_sessions("cookie"),
        history.list_sessions(),
        history.get_session_overview("odd"),
        history.get_messages("odd"),
    ):
        assert not set(answer) & {"\x1b", "\x07", "\u202e"}


def test_a_session_that_no_agent_knows_can_still_be_shown(filled: clew.Store) -> None:
    assert History(filled, None).resume_command("other").startswith("clew show other\n")


def test_a_command_for_a_shell_is_quoted(filled: clew.Store) -> None:
    facts = {"agent": "codex", "session_id": "x; rm -rf /"}
    filled.create("evil", workspace="/tmp/a b", facts=facts)
    command = History(filled, None).resume_command("evil").splitlines()[0]
    assert command == "cd '/tmp/a b' && codex resume 'x; rm -rf /'"


def test_without_the_package_it_says_what_to_install(
    run: Run, place: Path, filled: clew.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    told = run("mcp", "--store", place)
    assert told.code == 6
    assert "pip install 'clew[mcp]'" in told.err
