"""What is given by mistake is refused by name, before anything is opened, written or removed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.adapters.workflows import Claim
from clew.testing import replay

STORES = {
    "agent_framework": ("agent_framework", ("ClewHistoryProvider", "ClewCheckpointStorage")),
    "claude_agent_sdk": ("claude_agent_sdk", ("ClewSessionStore",)),
    "google_adk": ("google.adk", ("ClewSessionService",)),
    "langgraph": ("langgraph.checkpoint.base", ("ClewSaver",)),
    "llama_index": ("llama_index.core", ("ClewChatStore",)),
    "pydantic_ai": ("pydantic_ai", ("ClewConversationStore",)),
    "strands": ("strands", ("ClewSessionRepository",)),
}
NO_FRAMEWORK = """
import importlib.metadata as metadata, sys

def version(name):
    raise metadata.PackageNotFoundError(name)

metadata.version = version
sys.modules["anyio"] = None  # as where it is not installed
"""


def adapter(name: str) -> Any:
    pytest.importorskip(STORES[name][0], reason=f"the framework of {name} is not installed")
    return import_module(f"clew.adapters.{name}")


def in_a_plain_python(program: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", NO_FRAMEWORK + program],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert not done.returncode, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("given", [None, 5, b"threads.db", ["memory:"]])
def test_what_is_no_store_is_refused_and_no_store_is_opened_in_its_place(
    name: str, given: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEW_STORE", str(tmp_path / "mine.db"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    module = adapter(name)
    for make in STORES[name][1]:
        with pytest.raises(clew.InvalidInput, match="store: must be an open store or the address"):
            getattr(module, make)(given)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["openai_agents", "otel", *STORES])
def test_without_its_framework_an_adapter_names_what_to_install(name: str, tmp_path: Path) -> None:
    program = f"""
try:
    import clew.adapters.{name}
except ImportError as error:
    print(error)
"""
    told = in_a_plain_python(program, tmp_path)
    assert "this adapter needs" in told
    assert "pip install 'clew[" in told


def test_claims_need_nothing_but_clew_unless_a_step_is_asynchronous(tmp_path: Path) -> None:
    program = """
import clew
from clew.adapters.workflows import Claim

store = clew.open("threads.db")
claim = Claim.of(store.create("renewal"))
claim = claim.append(store, [{"role": "user", "content": "Renew it."}], step="start")
print(claim.context(store, "anthropic").messages[0]["role"])
try:
    claim.aafter(store, "next").send(None)
except ImportError as error:
    print(error)
"""
    told = in_a_plain_python(program, tmp_path).splitlines()
    assert told == ["user", "asynchronous steps need anyio: pip install 'clew[async]'"]


def test_a_text_is_no_list_of_threads_to_prune_and_none_of_its_letters_is_removed() -> None:
    saver = adapter("langgraph").ClewSaver("memory:")
    for thread in "abc":
        saver.store.create(thread)
    with pytest.raises(clew.InvalidInput, match="thread_ids: must be a list"):
        saver.prune("abc", strategy="delete")
    with pytest.raises(clew.InvalidInput, match="run_ids: must be a list"):
        saver.delete_for_runs("abc")
    assert {info.id for info in saver.store.threads()} == set("abc")


def test_a_limit_is_a_number() -> None:
    saver = adapter("langgraph").ClewSaver("memory:")
    with pytest.raises(clew.InvalidInput, match="limit: must be a whole number or None, not '1'"):
        saver.list({"configurable": {"thread_id": "t"}}, limit="1")
    pytest.importorskip("agents", reason="openai-agents is not installed")
    session = import_module("clew.adapters.openai_agents").ClewSession("s")
    with pytest.raises(clew.InvalidInput, match="limit: must be a whole number or None, not '3'"):
        asyncio.run(session.get_items("3"))


def test_the_channel_of_messages_has_a_name() -> None:
    with pytest.raises(clew.InvalidInput, match="messages: must be a non-empty string"):
        adapter("langgraph").ClewSaver("memory:", messages=3)


def test_the_id_of_a_session_is_text() -> None:
    service = adapter("google_adk").ClewSessionService("memory:")
    names = {"app_name": "a", "user_id": "u"}
    for call in (service.create_session, service.get_session, service.delete_session):
        with pytest.raises(clew.InvalidInput, match="session_id: must be text, not 7"):
            asyncio.run(call(**names, session_id=7))
    with pytest.raises(clew.InvalidInput, match="new_session_id: must be text"):
        asyncio.run(service.fork_session(**names, session_id="s", new_session_id=7))


def sdk_clients() -> dict[str, Any]:
    for name in ("anthropic", "openai", "google.genai"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    import anthropic
    import openai
    from google import genai

    return {
        "anthropic": anthropic.Anthropic(api_key="none"),
        "openai": openai.OpenAI(api_key="none"),
        "gemini": genai.Client(api_key="none"),
        "a class": anthropic.Anthropic,
        "text": "client",
    }


@pytest.mark.parametrize("name", ["anthropic", "openai", "gemini"])
def test_a_client_of_another_sdk_is_named(name: str) -> None:
    record: Callable[[Any, Any], Any] = getattr(import_module("clew.record"), f"record_{name}")
    thread = clew.open("memory:").create()
    for given, client in sdk_clients().items():
        if given == name:
            record(client, thread)
            continue
        with pytest.raises(
            clew.InvalidInput, match=r"client: must be a client of the [\w ]+ SDK, not"
        ):
            record(client, thread)


@pytest.mark.parametrize("given", [None, "t", 5])
def test_the_id_of_a_thread_is_no_thread(given: Any) -> None:
    for call in (Claim.of, replay):
        with pytest.raises(clew.InvalidInput, match="thread: must be a thread, not"):
            call(given)
    pytest.importorskip("opentelemetry", reason="opentelemetry is not installed")
    otel = import_module("clew.adapters.otel")
    with pytest.raises(clew.InvalidInput, match="thread: must be a thread, not"):
        otel.export_thread(given)
    with pytest.raises(clew.InvalidInput, match="store: must be an open store, not"):
        otel.traced(given)


def test_a_hint_says_how_an_id_becomes_a_thread() -> None:
    with pytest.raises(clew.InvalidInput, match=r"store\.get\('t'\) gives the one of that id"):
        Claim.of("t")  # type: ignore[arg-type]
