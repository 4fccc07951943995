"""What other programs get of a thread: nothing is invented, and what is left out is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import pytest
from atif import Trajectory
from hypothesis import HealthCheck, given, settings

import clew
from clew.core.errors import InvalidInput
from clew.core.model import ThreadDraft
from clew.interchange.export import Change, start
from clew.messages import validate
from clew.thread import Thread

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
USAGE = {
    "input_tokens": 10,
    "output_tokens": 3,
    "cache_read_input_tokens": 5,
    "cache_creation_input_tokens": 2,
}


@pytest.fixture
def store() -> Iterator[clew.Store]:
    with clew.open("memory:") as opened:
        yield opened


def written(thread: Thread, form: str, *, redact: bool = False) -> tuple[str, list[Change]]:
    writing, pieces = start(thread, form, redact=redact)
    return b"".join(pieces).decode(), writing.changes


def trajectory(thread: Thread) -> tuple[Any, list[Change]]:
    """The document, judged by the format's own models."""
    made, changes = written(thread, "atif")
    Trajectory.model_validate_json(made)
    return json.loads(made), changes


def reply(id: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    stop = "tool_use" if blocks[-1]["type"] == "tool_use" else "end_turn"
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": list(blocks),
        "stop_reason": stop,
        "usage": USAGE,
    }


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(id: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "edit", "input": arguments}


def talk(store: clew.Store, id: str = "t") -> Thread:
    thread = store.create(id, title="Fix it", facts={"harness": "demo", "harness_version": "2"})
    tool = {"name": "edit", "description": "Edits.", "input_schema": SCHEMA}
    thread.append("active_tools_change", [tool])
    thread.append_message({"role": "system", "content": "Be brief."})
    thread.append_message({"role": "user", "content": "Fix a.py"})
    thought = {"type": "thinking", "thinking": "hm", "signature": "x"}
    thread.append_response(reply("m1", thought, text("On it."), call("c1", path="a.py")))
    thread.append_results({"c1": "done"})
    thread.append_response(reply("m2", text("Fixed.")))
    return thread


# --- requests -------------------------------------------------------------------------------


def test_a_request_to_anthropic_has_its_system_prompt_and_tools(store: clew.Store) -> None:
    thread = talk(store)
    made, changes = written(thread, "anthropic")
    body = json.loads(made)
    assert (body["system"], changes) == ("Be brief.", [])
    assert body["tools"] == [{"name": "edit", "description": "Edits.", "input_schema": SCHEMA}]
    # Nobody said more than what is stored.
    assert body["messages"][-1] == {"role": "assistant", "content": [text("Fixed.")]}
    thread.append_message({"role": "user", "content": "Thanks."})
    assert validate("anthropic", json.loads(written(thread, "anthropic")[0])["messages"]) == []


@pytest.mark.parametrize(
    ("form", "format", "key"),
    [
        ("openai", "openai-chat", "messages"),
        ("openai-responses", "openai-responses", "input"),
        ("gemini", "gemini", "contents"),
    ],
)
def test_a_request_to_another_provider_is_valid_and_tells_what_was_left_out(
    store: clew.Store, form: str, format: str, key: str
) -> None:
    thread = talk(store)
    thread.append_message({"role": "user", "content": "Thanks."})
    made, changes = written(thread, form)
    body = json.loads(made)
    assert validate(format, body[key]) == []
    assert [change.name for change in changes] == ["thinking_dropped"]
    for word in ("Be brief.", "Fix a.py", "On it.", "done", "Fixed.", "Edits."):
        assert made.count(word) == 1
    assert SCHEMA in _values(body["tools"])


def _values(value: Any) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *[found for one in inner for found in _values(one)]]


def test_a_tool_that_is_only_named_is_told_and_not_invented(store: clew.Store) -> None:
    thread = store.create("t")
    thread.append("active_tools_change", ["edit", {"type": "web_search"}])
    thread.append_message({"role": "user", "content": "hi"})
    for form in ("openai", "anthropic", "gemini"):
        made, changes = written(thread, form)
        assert "tools" not in json.loads(made)
        assert [change.name for change in changes] == ["tool", "tool"]


@pytest.mark.parametrize("form", ["openai", "openai-responses", "anthropic", "gemini", "atif"])
def test_a_request_has_no_secret_that_was_replaced(store: clew.Store, form: str) -> None:
    thread = talk(store)
    secret = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
    thread.set(title=f"about {secret}")
    thread.append_message({"role": "user", "content": f"{secret} is out"})
    made, changes = written(thread, form, redact=True)
    assert secret not in made
    assert "[redacted: github-pat 1] is out" in made
    assert "secret" in [change.name for change in changes]


# --- trajectories ---------------------------------------------------------------------------


def test_a_trajectory_has_each_reply_with_its_calls_results_and_usage(store: clew.Store) -> None:
    thread = talk(store)
    made, changes = trajectory(thread)
    assert [step["source"] for step in made["steps"]] == ["system", "user", "agent", "agent"]
    _, _, first, last = made["steps"]
    assert (first["message"], first["reasoning_content"]) == ("On it.", "hm")
    (asked,) = first["tool_calls"]
    assert asked == {"tool_call_id": "c1", "function_name": "edit", "arguments": {"path": "a.py"}}
    (result,) = first["observation"]["results"]
    assert (result["source_call_id"], result["content"]) == ("c1", "done")
    assert last["model_name"] == made["agent"]["model_name"] == "claude-x"
    assert (made["agent"]["name"], made["agent"]["version"]) == ("demo", "2")
    assert made["agent"]["tool_definitions"][0]["function"]["parameters"] == SCHEMA
    expected = {"prompt_tokens": 17, "completion_tokens": 3, "cached_tokens": 5}
    assert all(step["metrics"].items() >= expected.items() for step in (first, last))
    totals = made["final_metrics"]
    assert (totals["total_prompt_tokens"], totals["total_completion_tokens"]) == (34, 6)
    assert all(step["timestamp"].endswith("Z") for step in made["steps"])
    assert changes == []


def test_the_pieces_of_a_reply_are_one_step_and_count_once(store: clew.Store) -> None:
    thread = store.create("t")
    thread.append_message({"role": "user", "content": "go"})
    for block in (text("One"), text("two"), call("c")):
        message = {**reply("m", block), "stop_reason": None}
        record = {"type": "assistant", "uuid": block["type"], "message": message}
        thread.append("assistant_message", record, format="claude-code")
    made, _ = trajectory(thread)
    _, step = made["steps"]
    assert (step["message"], len(step["tool_calls"])) == ("One\ntwo", 1)
    assert made["final_metrics"]["total_completion_tokens"] == 3


def test_a_result_without_its_call_is_an_observation_with_a_warning(store: clew.Store) -> None:
    thread = store.create("t")
    thread.append_message({"role": "user", "content": "go"})
    body = {"role": "tool", "tool_call_id": "lost", "content": "what it gave"}
    entry = thread.append("tool_result", body, format="openai-chat")
    made, changes = trajectory(thread)
    step = made["steps"][-1]
    assert step["source"] == "system"
    assert step["extra"]["warning"] == "unmatched_result"
    (result,) = step["observation"]["results"]
    assert (result["content"], result["extra"]["unmatched_call_id"]) == ("what it gave", "lost")
    assert [(change.name, change.entry) for change in changes] == [("unmatched_result", entry.id)]


def test_sub_agents_are_in_the_document_and_named_by_the_call_that_they_worked_for(
    store: clew.Store,
) -> None:
    thread = talk(store)
    for id, parent in (("t/c1", "t"), ("t/c1/x", "t/c1"), ("empty", "t")):
        child = store.create(id, parent=parent)
        if id != "empty":
            child.append_message({"role": "user", "content": id})
    made, changes = trajectory(thread)
    (child,) = made["subagent_trajectories"]
    (grandchild,) = child["subagent_trajectories"]
    assert [child["trajectory_id"], grandchild["trajectory_id"]] == ["t/c1", "t/c1/x"]
    (result,) = made["steps"][2]["observation"]["results"]
    assert result["subagent_trajectory_ref"] == [{"trajectory_id": "t/c1"}]
    assert [change.name for change in changes] == ["empty"]


def test_threads_that_work_for_each_other_end(store: clew.Store) -> None:
    for id, parent in (("a", "b"), ("b", "a")):  # as two files may say it that were brought
        store.engine.create(ThreadDraft(id=id, created_us=1, parent=parent))
        store.get(id).append_message({"role": "user", "content": id})
    made, _ = trajectory(store.get("a"))
    assert [child["trajectory_id"] for child in made["subagent_trajectories"]] == ["b"]
    assert "subagent_trajectories" not in made["subagent_trajectories"][0]


def test_a_fork_says_which_steps_it_did_not_make_itself(store: clew.Store) -> None:
    fork = talk(store).fork(id="f")
    fork.append_message({"role": "user", "content": "more"})
    made, _ = trajectory(fork)
    assert [step.get("is_copied_context") for step in made["steps"]] == [True] * 4 + [None]


def test_a_thread_without_messages_is_no_trajectory(store: clew.Store) -> None:
    thread = store.create("t")
    thread.append("event", 1)
    with pytest.raises(InvalidInput, match="no messages"):
        written(thread, "atif")


SAID = st.sampled_from(["one", "two", "\ud800", "", "é\0"])
IDS = st.sampled_from(["c1", "c2", "c3"])
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
SOUND = {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}
BODIES: Any = st.one_of(
    st.builds(lambda said: {"role": "user", "content": said}, SAID),
    st.builds(
        lambda said, part: {"role": "user", "content": [{"type": "text", "text": said}, part]},
        SAID,
        st.sampled_from([PICTURE, SOUND]),
    ),
    st.builds(
        lambda said, id, arguments: {
            "role": "assistant",
            "content": said,
            "tool_calls": [
                {"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}}
            ],
        },
        SAID,
        IDS,
        st.sampled_from(['{"a": 1}', "[1]", "no json"]),
    ),
    st.builds(lambda said, id: {"role": "tool", "tool_call_id": id, "content": said}, SAID, IDS),
    st.builds(lambda said: {"role": "assistant", "content": said}, SAID),
    st.just({"role": "what", "content": 7}),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bodies=st.lists(BODIES, min_size=1, max_size=8))
def test_whatever_was_stored_is_a_valid_trajectory_with_every_result_in_it(
    store: clew.Store, bodies: list[Any]
) -> None:
    kinds = {"user": "user_message", "assistant": "assistant_message", "tool": "tool_result"}
    thread = store.create()
    for body in bodies:
        thread.append(kinds.get(body["role"], "user_message"), body, format="openai-chat")
    made, changes = trajectory(thread)
    results = [
        result
        for step in made["steps"]
        for result in step.get("observation", {}).get("results", ())
    ]
    assert len(results) == sum(body["role"] == "tool" for body in bodies)
    lost = [result for result in results if result["source_call_id"] is None]
    assert len(lost) == sum(change.name == "unmatched_result" for change in changes)
    for form in ("openai", "training", "anthropic"):
        for line in written(thread, form)[0].splitlines():
            line.encode()  # half a character is in none of them
            json.loads(line)


# --- examples to train with -----------------------------------------------------------------


def examples(thread: Thread) -> tuple[list[Any], list[Change]]:
    made, changes = written(thread, "training")
    return [json.loads(line) for line in made.splitlines()], changes


def test_an_example_has_messages_and_tools_and_no_thinking(store: clew.Store) -> None:
    (example,), changes = examples(talk(store))
    assert [message["role"] for message in example["messages"]] == [
        *("system", "user", "assistant", "tool", "assistant")
    ]
    assert example["tools"][0]["function"]["name"] == "edit"
    assert validate("openai-chat", example["messages"]) == []
    assert "hm" not in json.dumps(example)
    assert [change.name for change in changes] == ["thinking_dropped"]


def test_each_branch_is_one_example_and_none_is_in_another(store: clew.Store) -> None:
    thread = talk(store)
    end = thread.leaf
    for question in ("And b.py?", "And c.py?", None):
        thread.move(end)
        thread.append("event", "a branch that says nothing")
        if question is not None:
            thread.append_message({"role": "user", "content": question})
            thread.append_message({"role": "assistant", "content": f"Yes: {question}"})
    found, changes = examples(thread)
    assert [example["messages"][-2]["content"] for example in found] == ["And b.py?", "And c.py?"]
    assert [change.name for change in changes] == ["thinking_dropped"]  # once, though they share it


def test_turns_that_did_not_come_to_their_end_are_left_out_and_told(store: clew.Store) -> None:
    thread = talk(store)
    with pytest.raises(ZeroDivisionError), thread.turn(owner="me") as turn:
        turn.append_message({"role": "user", "content": "this fails"})
        turn.append_message({"role": "assistant", "content": "oh"})
        raise ZeroDivisionError
    thread.append_message({"role": "user", "content": "this works"})
    thread.append_message({"role": "assistant", "content": "yes"})
    thread.append_message({"role": "user", "content": "this waits"})
    thread.append_response(reply("m9", call("c9")))
    (example,), changes = examples(thread)
    said = [message.get("content") for message in example["messages"]]
    assert said[-3:] == ["Fixed.", "this works", "yes"]
    assert [change.name for change in changes].count("incomplete_turn") == 2


def test_a_result_that_nobody_asked_for_spoils_no_example(store: clew.Store) -> None:
    thread = talk(store)
    (example,), _ = examples(thread)
    body = {"role": "tool", "tool_call_id": "lost", "content": "what it gave"}
    thread.append("tool_result", body, format="openai-chat")
    found, changes = examples(thread)
    assert found == [example]
    assert "orphan_result" in [change.name for change in changes]


def test_examples_show_what_a_compaction_stands_for_and_a_fork_all_that_it_shares(
    store: clew.Store,
) -> None:
    thread = talk(store)
    thread.append_message({"role": "user", "content": "more"})
    thread.append_message({"role": "assistant", "content": "less"})
    thread.compact(summary="All is fixed.", keep_turns=1)
    (example,), _ = examples(thread)
    assert "All is fixed." not in json.dumps(example)
    assert len(example["messages"]) == 7
    assert examples(thread.fork(id="f"))[0] == [example]
