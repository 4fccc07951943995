"""Events, and a model that says what it was told to, for the tests of the ADK adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps.app import App, ResumabilityConfig
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions, EventCompaction
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import BaseSessionService
from google.genai import types

WHO = {"app_name": "travel", "user_id": "ann"}


def says(text: str, *, by: str = "user", run: str = "run-1", **fields: Any) -> Event:
    content = types.Content(role="user" if by == "user" else "model", parts=[types.Part(text=text)])
    return Event(author=by, invocation_id=run, content=content, **fields)


def changes(**state: Any) -> Event:
    """An event that changes the state; `app__key` stands for `app:key`."""
    delta = {key.replace("__", ":"): value for key, value in state.items()}
    return Event(author="guide", invocation_id="run", actions=EventActions(state_delta=delta))


def compacts(text: str, start: float, end: float) -> Event:
    summary = types.Content(role="model", parts=[types.Part(text=text)])
    compaction = EventCompaction(
        start_timestamp=start, end_timestamp=end, compacted_content=summary
    )
    actions = EventActions(compaction=compaction)
    return Event(author="user", invocation_id="compaction", actions=actions, timestamp=end + 9)


def texts(events: list[Event]) -> list[str | None]:
    return [event.content.parts[0].text if event.content else None for event in events]


class Scripted(BaseLlm):
    """Says what it was told to, and keeps what it was asked."""

    replies: list[Any]
    asked: list[Any]

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncIterator[LlmResponse]:
        self.asked.append([content.model_copy(deep=True) for content in llm_request.contents])
        reply = self.replies.pop(0)
        part = types.Part(text=reply) if isinstance(reply, str) else reply
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def look_up(city: str) -> dict[str, str]:
    """Look a city up."""
    return {"country": f"the land of {city}"}


def agent_of(*replies: Any, tool: Callable[..., Any] = look_up) -> tuple[LlmAgent, Scripted]:
    model = Scripted(model="scripted", replies=list(replies), asked=[])
    return LlmAgent(name="guide", model=model, tools=[tool], output_key="last"), model


def runner_of(
    service: BaseSessionService, *replies: Any, tool: Callable[..., Any] = look_up
) -> tuple[Runner, Scripted]:
    """ADK's real loop, around a model that gives these replies; its runs can be resumed."""
    guide, model = agent_of(*replies, tool=tool)
    resumable = ResumabilityConfig(is_resumable=True)
    app = App(name="travel", root_agent=guide, resumability_config=resumable)
    return Runner(app=app, session_service=service), model


def calls(city: str) -> types.Part:
    return types.Part(function_call=types.FunctionCall(name="look_up", args={"city": city}))


async def ask(runner: Runner, text: str) -> list[Event]:
    message = types.Content(role="user", parts=[types.Part(text=text)])
    found = runner.run_async(user_id="ann", session_id="s", new_message=message)
    return [event async for event in found]
