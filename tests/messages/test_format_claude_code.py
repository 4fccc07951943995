"""Records of Claude Code: what is read as a message, and what hangs on what."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

import clew
from clew import messages
from clew.messages.claude_code import Chain
from clew.messages.neutral import Text, ToolCall, ToolResult

CALL = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "a.py"}


def record(type: str, content: Any, **fields: Any) -> dict[str, Any]:
    role = "assistant" if type == "assistant" else "user"
    return {"type": type, "message": {"role": role, "content": content}, "uuid": "u", **fields}


def test_a_record_is_read_as_the_message_that_it_holds() -> None:
    [said] = messages.read("claude-code", record("user", "Hello"))
    assert (said.role, said.parts) == ("user", (Text("Hello", format="anthropic", raw="Hello"),))
    [asked] = messages.read("claude-code", record("assistant", [CALL]))
    assert isinstance(asked.parts[0], ToolCall)
    [gave] = messages.read("claude-code", record("user", [RESULT]))
    assert (gave.role, type(gave.parts[0])) == ("tool", ToolResult)


def test_usage_and_model_come_with_a_reply() -> None:
    body = record("assistant", [CALL])
    body["message"] |= {"model": "claude-test", "usage": {"input_tokens": 7, "output_tokens": 2}}
    [said] = messages.read("claude-code", body)
    assert (said.model, said.usage.input_tokens) == ("claude-test", 7)
    assert messages.read_usage("claude-code", body["message"]["usage"]) == said.usage


@pytest.mark.parametrize(
    "body",
    [
        None,
        "text",
        {"type": "summary", "summary": "x"},
        {"type": "user"},
        {"type": "user", "message": "Hello"},
        record("system", "x"),
        record("assistant", "API Error", isApiErrorMessage=True),
    ],
)
def test_what_holds_no_message_is_refused(body: Any) -> None:
    with pytest.raises(clew.InvalidInput):
        messages.read("claude-code", body)
    assert messages.view("claude-code", body) == []


def test_an_error_names_the_place_in_the_record() -> None:
    with pytest.raises(clew.InvalidInput) as caught:
        messages.read("claude-code", record("assistant", [CALL, {"type": "text"}]))
    assert caught.value.path == "$.message.content[1].text"


def test_a_request_goes_on_in_the_providers_format() -> None:
    thread = clew.open("memory:").create()
    thread.append_message(record("user", "Hello"), format="claude-code")
    context = thread.context()
    hello = [{"type": "text", "text": "Hello"}]
    assert (context.format, context.messages) == (
        "anthropic",
        [{"role": "user", "content": hello}],
    )
    assert messages.request_format("claude-code") == "anthropic"
    assert messages.request_format("gemini") == "gemini"
    assert messages.request_format("of tomorrow") is None
    with pytest.raises(clew.InvalidInput):
        messages.write("claude-code", [])


def linked(uuid: str, parent: Any, type: str = "user", content: Any = "x", **more: Any) -> Any:
    made = record(type, content, parentUuid=parent)
    made["message"] |= more
    return made | {"uuid": uuid}


def placed(*records: Any) -> list[Any]:
    chain, known, parents = Chain(), set(), []
    for one in records:
        parents.append(chain.take(one, known.__contains__))
        known.add(one.get("uuid"))
    return parents


def test_records_that_follow_each_other_need_no_parent() -> None:
    aside = {"type": "mode", "mode": "normal"}
    attached = {"type": "attachment", "uuid": "b", "parentUuid": "a"}
    found = placed(aside, linked("a", None), aside, attached, linked("c", "b"))
    assert found == [UNSET] * 5


def test_the_results_of_parallel_calls_are_no_branches() -> None:
    def piece(uuid: str, parent: str) -> Any:
        return linked(uuid, parent, "assistant", [CALL], id="m1")

    def result(uuid: str, parent: str) -> Any:
        return linked(uuid, parent, "user", [RESULT])

    behind = linked("next", "r1", "assistant", id="m2")
    question = linked("q", None)
    both = [piece("p1", "q"), piece("p2", "p1"), result("r1", "p1"), result("r2", "p2")]
    assert placed(question, *both, behind) == [UNSET] * 6
    mixed = [piece("p1", "q"), result("r1", "p1"), piece("p2", "p1"), result("r2", "p2")]
    assert placed(question, *mixed, behind) == [UNSET] * 6
    early = [piece("p1", "q"), result("r2", "p2"), piece("p2", "p1"), result("r1", "p1")]
    assert placed(question, *early, behind) == [UNSET] * 6


def test_a_question_asked_otherwise_and_a_new_beginning_are_branches() -> None:
    answer = linked("b", "a", "assistant", id="m1")
    found = placed(linked("a", None), answer, linked("c", "b"), linked("d", "b"), linked("e", None))
    assert found == [UNSET, UNSET, UNSET, "b", None]


def test_a_parent_that_is_not_there_or_is_the_record_itself_is_none() -> None:
    assert placed(linked("a", "gone"), linked("b", "b"), linked("c", 5)) == [UNSET] * 3
