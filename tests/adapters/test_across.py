"""What one adapter wrote, every other one reads: a question, a call, its result, an answer."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

import clew

QUESTION, RESULT, ANSWER = "What time is it?", "noon in UTC", "It is noon."
ARGUMENTS = {"zone": "UTC"}


def module(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed")


def now(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    async def run() -> Any:
        return await call(*arguments, **options)

    return asyncio.run(run())


# --- each writes the same conversation; the id of its thread --------------------------------


def write_openai(store: clew.Store) -> str:
    adapter = module("clew.adapters.openai_agents")
    arguments = json.dumps(ARGUMENTS)
    answer = {"type": "output_text", "text": ANSWER, "annotations": []}
    items = [
        {"role": "user", "content": QUESTION},
        {"type": "function_call", "call_id": "c1", "name": "clock", "arguments": arguments},
        {"type": "function_call_output", "call_id": "c1", "output": RESULT},
        {
            "type": "message",
            "id": "m1",
            "role": "assistant",
            "status": "completed",
            "content": [answer],
        },
    ]
    now(adapter.ClewSession("s", store=store).add_items, items)
    return "s"


def write_adk(store: clew.Store) -> str:
    adapter, types = module("clew.adapters.google_adk"), module("google.genai.types")
    event = module("google.adk.events.event").Event
    service = adapter.ClewSessionService(store)
    who = {"app_name": "app", "user_id": "ann", "session_id": "s"}
    call = types.FunctionCall(id="c1", name="clock", args=ARGUMENTS)
    result = types.FunctionResponse(id="c1", name="clock", response={"result": RESULT})
    said = [
        ("user", "user", types.Part(text=QUESTION)),
        ("guide", "model", types.Part(function_call=call)),
        ("guide", "user", types.Part(function_response=result)),
        ("guide", "model", types.Part(text=ANSWER)),
    ]

    async def write() -> None:
        session = await service.create_session(**who)
        for author, role, part in said:
            content = types.Content(role=role, parts=[part])
            await service.append_event(
                session, event(author=author, content=content, invocation_id="i")
            )

    now(write)
    found: str = service.thread(**who).id
    return found


def write_claude(store: clew.Store) -> str:
    sessions = module("clew.adapters.claude_agent_sdk").ClewSessionStore(store)
    session = str(uuid.UUID(int=7))
    use = {"type": "tool_use", "id": "c1", "name": "clock", "input": ARGUMENTS}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": RESULT}
    said = [
        ("user", QUESTION),
        ("assistant", [use]),
        ("user", [result]),
        ("assistant", [{"type": "text", "text": ANSWER}]),
    ]
    records, parent = [], None
    for n, (role, content) in enumerate(said, 1):
        message: dict[str, Any] = {"role": role, "content": content}
        if role == "assistant":
            message |= {"id": f"m{n}", "type": "message", "model": "claude"}
        record = {"type": role, "uuid": str(uuid.UUID(int=n)), "parentUuid": parent}
        record |= {"sessionId": session, "timestamp": f"2026-01-01T00:00:0{n}.000Z"}
        records.append({**record, "message": message})
        parent = record["uuid"]
    now(sessions.append, {"project_key": "p", "session_id": session}, records)
    return next(info.id for info in store.threads())


def write_langgraph(store: clew.Store) -> str:
    adapter, graph = module("clew.adapters.langgraph"), module("langgraph.graph")
    core = module("langchain_core.messages")
    call = {"id": "c1", "name": "clock", "args": ARGUMENTS, "type": "tool_call"}
    said = [
        core.HumanMessage(QUESTION),
        core.AIMessage("", tool_calls=[call]),
        core.ToolMessage(RESULT, tool_call_id="c1", name="clock"),
    ]
    built = graph.StateGraph(graph.MessagesState)
    built.add_node("answer", lambda state: {"messages": [core.AIMessage(ANSWER)]})
    built.set_entry_point("answer")
    config = {"configurable": {"thread_id": "s"}}
    built.compile(checkpointer=adapter.ClewSaver(store)).invoke({"messages": said}, config)
    return "s"


def write_pydantic_ai(store: clew.Store) -> str:
    adapter, ai = module("clew.adapters.pydantic_ai"), module("pydantic_ai")
    function = module("pydantic_ai.models.function")
    parts = module("pydantic_ai.messages")

    def reply(messages: list[Any], info: Any) -> Any:
        called = any(isinstance(part, parts.ToolReturnPart) for part in messages[-1].parts)
        part = parts.TextPart(ANSWER) if called else parts.ToolCallPart("clock", ARGUMENTS, "c1")
        return parts.ModelResponse([part])

    agent = ai.Agent(function.FunctionModel(reply))
    agent.tool_plain(lambda zone: RESULT, name="clock")

    async def write() -> None:
        ours = adapter.ClewConversationStore(store)
        await ours.save(
            await agent.run(QUESTION, conversation=ai.Conversation(conversation_id="s"))
        )

    now(write)
    return "s"


def write_strands(store: clew.Store) -> str:
    adapter, types = module("clew.adapters.strands"), module("strands.types.session")
    ours = adapter.ClewSessionRepository(store)
    ours.create_session(types.Session(session_id="s", session_type=types.SessionType.AGENT))
    agent = types.SessionAgent(agent_id="default", state={}, conversation_manager_state={})
    ours.create_agent("s", agent)
    use = {"toolUse": {"toolUseId": "c1", "name": "clock", "input": ARGUMENTS}}
    result = {"toolUseId": "c1", "status": "success", "content": [{"text": RESULT}]}
    said = [
        ("user", {"text": QUESTION}),
        ("assistant", use),
        ("user", {"toolResult": result}),
        ("assistant", {"text": ANSWER}),
    ]
    for n, (role, block) in enumerate(said):
        message = types.SessionMessage.from_message({"role": role, "content": [block]}, n)
        ours.create_message("s", "default", message)
    return "s"


def write_agent_framework(store: clew.Store) -> str:
    adapter, framework = module("clew.adapters.agent_framework"), module("agent_framework")
    content = framework.Content
    said = [
        ("user", content.from_text(QUESTION)),
        ("assistant", content.from_function_call("c1", "clock", arguments=ARGUMENTS)),
        ("tool", content.from_function_result("c1", result=RESULT)),
        ("assistant", content.from_text(ANSWER)),
    ]
    messages = [framework.Message(role, [part]) for role, part in said]
    now(adapter.ClewHistoryProvider(store).save_messages, "s", messages)
    return "s"


def write_llama_index(store: clew.Store) -> str:
    adapter, llms = module("clew.adapters.llama_index"), module("llama_index.core.llms")
    call = {"id": "c1", "type": "function"}
    call |= {"function": {"name": "clock", "arguments": json.dumps(ARGUMENTS)}}
    result = {"tool_call_id": "c1", "name": "clock"}
    ours = adapter.ClewChatStore(store)
    for message in (
        llms.ChatMessage(role="user", content=QUESTION),
        llms.ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": [call]}),
        llms.ChatMessage(role="tool", content=RESULT, additional_kwargs=result),
        llms.ChatMessage(role="assistant", content=ANSWER),
    ):
        ours.add_message("s", message)
    return "s"


WRITERS: dict[str, Callable[[clew.Store], str]] = {
    name.removeprefix("write_"): made
    for name, made in list(globals().items())
    if name.startswith("write_")
}


# --- each reads a thread, as its framework would get it: its messages as text ----------------


def read_openai(store: clew.Store, thread: str) -> list[Any]:
    session = module("clew.adapters.openai_agents").ClewSession(thread, store=store)
    found: list[Any] = now(session.get_items)
    return found


def read_adk(store: clew.Store, thread: str) -> list[Any]:
    service = module("clew.adapters.google_adk").ClewSessionService(store)
    session = now(service.adopt_thread, thread, app_name="a", user_id="b")
    return [event.model_dump(mode="json", exclude_none=True) for event in session.events]


def read_claude(store: clew.Store, thread: str) -> list[Any]:
    sessions = module("clew.adapters.claude_agent_sdk").ClewSessionStore(store)
    key = now(sessions.fork, thread, project_key="other")
    found: list[Any] = now(sessions.load, key)
    return [record for record in found if "message" in record]


def read_langgraph(store: clew.Store, thread: str) -> list[Any]:
    core = module("langchain_core.messages")
    told = store.get(thread).context("langchain", purpose="display").messages
    return [message.model_dump() for message in core.convert_to_messages(told)]


def read_pydantic_ai(store: clew.Store, thread: str) -> list[Any]:
    ours = module("clew.adapters.pydantic_ai").ClewConversationStore(store)
    found: list[Any] = now(ours.load, thread).messages
    return found


def read_strands(store: clew.Store, thread: str) -> list[Any]:
    # Strands takes no session whose id has a separator of paths; a history is one all the same.
    found: list[Any] = module("clew.adapters.strands").message_history(store.get(thread))
    return found


def read_agent_framework(store: clew.Store, thread: str) -> list[Any]:
    provider = module("clew.adapters.agent_framework").ClewHistoryProvider(store)
    return [message.to_dict() for message in now(provider.get_messages, thread)]


def read_llama_index(store: clew.Store, thread: str) -> list[Any]:
    ours = module("clew.adapters.llama_index").ClewChatStore(store)
    return [message.model_dump() for message in ours.get_messages(thread)]


READERS: dict[str, Callable[[clew.Store, str], list[Any]]] = {
    name.removeprefix("read_"): made
    for name, made in list(globals().items())
    if name.startswith("read_")
}


@pytest.mark.parametrize("writer", WRITERS)
def test_what_an_adapter_wrote_is_a_conversation_of_the_library(writer: str) -> None:
    with clew.open("memory:") as store:
        thread = store.get(WRITERS[writer](store))
        for format in ("anthropic", "openai-chat", "openai-responses", "gemini"):
            context = thread.context(format)
            assert clew.messages.validate(format, context.messages) == []
            assert not [repair for repair in context.report.repairs if repair.code != "user_added"]
            check(context.messages)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("writer", WRITERS)
def test_what_an_adapter_wrote_another_one_reads(writer: str, reader: str) -> None:
    with clew.open("memory:") as store:
        thread = WRITERS[writer](store)
        check(READERS[reader](store, thread))


def check(messages: list[Any]) -> None:
    """Four messages in their order: who asked what, which call, its result, the answer."""
    told = [str(message) for message in messages]
    places = []
    for words in (QUESTION, "clock", RESULT, ANSWER):
        found = [n for n, text in enumerate(told) if words in text]
        assert found, f"{words!r} is not in {told}"
        places.append(found[0])
    assert places == sorted(places)
    assert len(set(places)) == 4
    assert "UTC" in told[places[1]]
