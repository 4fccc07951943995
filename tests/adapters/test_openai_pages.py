"""The pages about the Agents SDK and about bare loops do what they say, top to bottom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents", reason="the Agents SDK is not installed")
pytest.importorskip("anthropic", reason="the SDK of Anthropic is not installed")

import anthropic
from agents.models.multi_provider import MultiProvider
from docs._pages import DOCS, assert_outputs
from fake_provider import FakeProvider
from openai_scripts import ScriptedModel, default_loop, says


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_page_of_the_agents_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedModel([says("Paris.")])
    monkeypatch.setattr(MultiProvider, "get_model", lambda self, name: model)
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    with default_loop():
        left = assert_outputs(DOCS / "howto" / "openai-agents.md")
    left["store"].close()


def test_the_page_of_bare_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    about: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }
    use = {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1, "b": 2}}
    said = {"type": "text", "text": "It is 3."}
    provider = FakeProvider(
        {**about, "content": [use], "stop_reason": "tool_use"},
        {**about, "content": [said], "stop_reason": "end_turn"},
    )
    client = provider.anthropic()
    monkeypatch.setattr(anthropic, "Anthropic", lambda: client)
    left = assert_outputs(DOCS / "howto" / "record-a-bare-loop.md")
    left["store"].close()
