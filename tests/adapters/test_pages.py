"""The pages about frameworks do what they say, with scripted models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from docs._pages import DOCS, assert_outputs

PLACES = {"Rome": "Italy", "Oslo": "Norway", "Bern": "Switzerland", "Paris": "France"}


def answer(prompt: str) -> str:
    """What the models of the pages know."""
    place = next(place for place in PLACES if place in prompt)
    return f"{place} is in {PLACES[place]}."


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(page: str, **given: Any) -> dict[str, Any]:
    return assert_outputs(DOCS / "howto" / page, {"__name__": "page", **given})


def test_the_page_about_pydantic_ai() -> None:
    pydantic_ai = pytest.importorskip("pydantic_ai", reason="Pydantic AI is not installed")
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.models.function import FunctionModel

    def reply(history: Any, info: Any) -> ModelResponse:
        return ModelResponse(parts=[TextPart(answer(str(history[-1].parts[-1].content)))])

    left = run("pydantic-ai.md", agent=pydantic_ai.Agent(FunctionModel(reply)))
    left["conversations"].close()


def test_the_page_about_strands() -> None:
    pytest.importorskip("strands", reason="Strands is not installed")
    from strands_agent import Scripted

    class Guide(Scripted):
        async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            yield {"messageStart": {"role": "assistant"}}
            yield {"contentBlockStart": {"start": {}}}
            text = answer(messages[-1]["content"][-1]["text"])
            yield {"contentBlockDelta": {"delta": {"text": text}}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "end_turn"}}

    run("strands.md", model=Guide())


def test_the_page_about_agent_framework() -> None:
    pytest.importorskip("agent_framework", reason="Agent Framework is not installed")
    from agent_framework import ChatResponse, Message
    from agent_framework_agent import Scripted

    class Guide(Scripted):
        def _inner_get_response(self, *, messages: Any, **options: Any) -> Any:
            async def reply() -> ChatResponse:
                return ChatResponse(messages=[Message("assistant", [answer(messages[-1].text)])])

            return reply()

    run("agent-framework.md", client=Guide())


def test_the_page_about_llama_index() -> None:
    pytest.importorskip("llama_index.core", reason="LlamaIndex is not installed")
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.llms import ChatMessage
    from llama_index.core.llms.mock import MockFunctionCallingLLM

    def reply(messages: Any, **options: Any) -> ChatMessage:
        return ChatMessage(role="assistant", content=answer(messages[-1].content))

    def look_up(key: str) -> str:
        """Look it up."""
        return key

    model = MockFunctionCallingLLM(response_generator=reply)
    run("llama-index.md", agent=FunctionAgent(tools=[look_up], llm=model))


def test_the_page_about_recorded_threads() -> None:
    pytest.importorskip("anthropic", reason="the SDK of Anthropic is not installed")
    run("test-an-agent-with-a-recorded-thread.md")["store"].close()
