"""What a context does with each thing that can have happened, and what it reports."""

from __future__ import annotations

import json
from typing import Any

import pytest
from context import dialogues as say

import clew
from clew import InvalidInput, NotFound, messages
from clew.context.normalise import CONTINUE, INTERRUPTED, OpenCall
from clew.messages.incoming import kind_for
from clew.store import Store
from clew.thread import Thread


def add(thread: Thread, *bodies: Any, format: str = "anthropic") -> list[str]:
    return [thread.append(kind_for(body), body, format=format).id for body in bodies]


def codes(thread: Thread, format: str = "anthropic", **options: Any) -> list[tuple[str, Any]]:
    return [(r.code, r.entry) for r in thread.context(format, **options).report.repairs]


USER = say.user("anthropic", "do it")
CALL = say.calls("anthropic", ("c1", "run", {"n": 1}))
CALLS = say.calls("anthropic", ("c1", "run", {"n": 1}), ("c2", "run", {"n": 2}))
RESULT = say.result("anthropic", "c1", "fine")
RESULT_2 = say.result("anthropic", "c2", "fine too")
ANSWER = say.assistant("anthropic", "done")


def test_a_killed_call_gets_a_marked_result(store: Store) -> None:
    thread = store.create()
    _, call = add(thread, USER, CALL)
    context = thread.context("anthropic")
    block = context.messages[-1]["content"][0]
    assert (block["type"], block["tool_use_id"], block["is_error"]) == ("tool_result", "c1", True)
    assert INTERRUPTED in str(block["content"])
    assert codes(thread) == [("interrupted_call", call)]


def test_the_real_result_takes_the_place_of_the_marked_one(store: Store) -> None:
    thread = store.create()
    add(thread, USER, CALL)
    thread.context("anthropic")
    add(thread, RESULT)
    assert codes(thread) == []
    assert INTERRUPTED not in str(thread.context("anthropic").messages)


def test_an_orphan_result_is_left_out(store: Store) -> None:
    thread = store.create()
    _, orphan, _, _ = add(thread, USER, RESULT, ANSWER, USER)
    assert codes(thread) == [("orphan_result", orphan)]
    assert "tool_result" not in str(thread.context("anthropic").messages)


def test_what_the_turn_itself_says_beside_its_calls_does_not_end_them(store: Store) -> None:
    """A message that comes while the tools run is told behind their results."""
    thread = store.create()
    for body in (USER, CALL, say.user("anthropic", "hurry"), RESULT, ANSWER, USER):
        thread.append(kind_for(body), body, format="anthropic", turn="t1")
        if body is not CALL:
            continue
        assert thread.context("anthropic").next == "tools"
    shown = thread.context("anthropic").messages
    assert [b["type"] for b in shown[2]["content"]] == ["tool_result", "text"]
    assert shown[2]["content"][0]["content"] == "fine"
    assert codes(thread) == []


@pytest.mark.parametrize("before", [say.user("anthropic", "hurry"), ANSWER])
def test_a_result_that_comes_after_the_dialogue_went_on_is_told_there(
    store: Store, before: Any
) -> None:
    """In the place of the result that said "interrupted" it would rewrite what was sent."""
    thread = store.create()
    _, call, _ = add(thread, USER, CALL, before)
    sent = thread.context("anthropic").messages
    if sent[-1]["content"][0] == {"type": "text", "text": CONTINUE}:
        sent.pop()  # nobody sends a request when it is the user's turn
    [late] = add(thread, say.result("anthropic", "c1", "it worked"))
    context = thread.context("anthropic")
    assert json.dumps(context.messages).startswith(json.dumps(sent)[:-3])
    assert context.messages[-1]["content"][-1]["text"] == "it worked"
    assert context.next == "model"
    repairs = [(r.code, r.entry, r.call) for r in context.report.repairs]
    assert repairs == [("interrupted_call", call, "c1"), ("late_result", late, "c1")]
    [again] = add(thread, say.result("anthropic", "c1", "it worked"))
    assert ("duplicate_result", again) in codes(thread)


def test_a_result_before_its_call_is_moved(store: Store) -> None:
    thread = store.create()
    _, early, _ = add(thread, USER, RESULT, CALL)
    assert codes(thread) == [("result_moved", early)]
    assert thread.context("anthropic").next == "model"


def test_a_result_without_a_call_does_not_answer_a_later_one(store: Store) -> None:
    """Some models count their ids from 1 in each reply."""
    thread = store.create()
    _, orphan, _, _, call = add(thread, USER, RESULT, ANSWER, USER, CALL)
    assert codes(thread) == [("orphan_result", orphan), ("interrupted_call", call)]


def test_results_of_parallel_calls_come_together_in_order(store: Store) -> None:
    thread = store.create()
    add(thread, USER, CALLS, RESULT_2, RESULT, ANSWER)
    blocks = thread.context("anthropic").messages[2]["content"]
    assert [b["tool_use_id"] for b in blocks] == ["c1", "c2"]


def test_pieces_of_one_reply_become_one_message(store: Store) -> None:
    """Claude Code stores a reply block by block, with results between; its id holds it together."""
    thread = store.create()
    second = say.calls("anthropic", ("c2", "run", {"n": 2}))
    pieces = [{**body, "id": "msg_1"} for body in (CALL, second)]
    add(thread, USER, pieces[0], RESULT, pieces[1], RESULT_2)
    shown = thread.context("anthropic").messages
    assert [m["role"] for m in shown] == ["user", "assistant", "user"]
    assert [block["id"] for block in shown[1]["content"]] == ["c1", "c2"]
    assert codes(thread) == []


def test_the_preview_of_a_message_that_only_thinks_is_the_thought(store: Store) -> None:
    thread = store.create()
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "x"}
    thread.append_message({"role": "assistant", "content": [thought]}, format="anthropic")
    assert thread.context(purpose="display").segments[0].preview == "Hm."


@pytest.mark.parametrize("target", say.FORMATS)
def test_two_replies_are_two_messages(store: Store, target: str) -> None:
    thread = store.create()
    second = say.calls("anthropic", ("c2", "run", {"n": 2}))
    ids = add(thread, USER, CALL, second, RESULT_2)
    context = thread.context(target)
    assert [(r.code, r.entry) for r in context.report.repairs] == [("interrupted_call", ids[1])]
    shown = json.dumps(context.messages)
    assert shown.index("c1") < shown.index(INTERRUPTED) < shown.index("c2")


def test_what_was_written_twice_is_told_once(store: Store) -> None:
    thread = store.create()
    ids = add(thread, USER, CALL, CALL, RESULT, RESULT, ANSWER, ANSWER, USER)
    assert codes(thread) == [
        ("duplicate_message", ids[2]),
        ("duplicate_result", ids[4]),
        ("duplicate_message", ids[6]),
    ]
    assert messages.validate("anthropic", thread.context("anthropic").messages) == []


def test_a_call_item_that_was_written_twice_is_sent_once(store: Store) -> None:
    thread = store.create()
    item = {"type": "function_call", "call_id": "c1", "name": "run", "arguments": "{}"}
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    add(thread, say.user("openai-responses", "Hi"), thought, item, format="openai-responses")
    [again] = add(thread, item, format="openai-responses")
    assert ("duplicate_message", again) in codes(thread, "openai-responses")
    add(thread, thought, format="openai-responses")
    [again] = add(thread, item, format="openai-responses")
    assert ("duplicate_call", again) in codes(thread, "openai-responses")


def test_what_was_said_apart_is_shown_apart(store: Store) -> None:
    thread = store.create()
    two = [{"type": "text", "text": "It is"}, {"type": "text", "text": "done."}]
    add(thread, USER, {"role": "assistant", "content": two})
    add(thread, say.assistant("anthropic", "It is"), say.assistant("anthropic", "done."))
    shown = thread.context(purpose="display").messages
    assert "isdone" not in json.dumps(shown)
    assert [message["content"] for message in shown[2:]] == ["It is", "done."]


def test_artifacts_of_a_result_are_told_with_it(store: Store) -> None:
    thread = store.create()
    add(thread, USER, CALL)
    log = clew.Artifact(
        label="log",
        url="https://ci.example/1",
        kind="log",
        mime="text/plain",
        size=7,
        hash="sha256:00",
    )
    odd = ["no artifact", {"url": "without a label"}]
    entry = thread.append_message(RESULT, meta={"artifacts": [log, *odd], "mine": 1})
    assert entry.meta["artifacts"][0]["label"] == "log"
    assert thread.get(entry.id).artifacts == (log,)
    segments = thread.context(purpose="display").segments
    assert [segment.artifacts for segment in segments] == [(), (), (log,)]
    assert thread.append("event", meta={"artifacts": "none"}).artifacts == ()


def test_the_preview_of_a_compaction_is_its_summary(store: Store) -> None:
    thread = store.create()
    add(thread, USER, ANSWER, USER, ANSWER)
    thread.compact(lambda _: "They spoke.", keep_turns=1)
    assert thread.context(purpose="display").segments[0].preview == "They spoke."


@pytest.mark.parametrize("target", say.FORMATS)
def test_a_path_that_was_read_already_gives_the_same_context(store: Store, target: str) -> None:
    thread = store.create()
    for n in range(4):
        add(thread, say.user("anthropic", f"question {n}"), CALL, RESULT, ANSWER)
        if n == 2:
            thread.compact(lambda _: "They spoke.", keep_turns=1)
    path = thread.path()
    for options in ({}, {"compacted": False}, {"segments": True}, {"budget_tokens": 50}):
        given = clew.context.project(path, target, **options)
        assert given == thread.context(target, **options)
    assert clew.context.project([], target).messages == []
    kept = clew.context.project(path[-5:], target)  # what the compaction keeps is not there
    assert messages.validate(target, kept.messages) == [] or not kept.messages
    assert [r.code for r in kept.report.repairs][:1] == ["boundary_repaired"]


# --- who goes on ----------------------------------------------------------------------------


@pytest.mark.parametrize("target", say.FORMATS)
def test_a_context_tells_who_goes_on(store: Store, target: str) -> None:
    thread = store.create()
    assert thread.context(target).next == "user"
    add(thread, say.system("anthropic", "Be brief."))
    assert thread.context(target).next == "user"
    add(thread, USER)
    assert thread.context(target).next == "model"
    [call] = add(thread, CALLS)
    context = thread.context(target)
    assert context.next == "tools"
    assert context.calls == (
        OpenCall("c1", "run", {"n": 1}, call),
        OpenCall("c2", "run", {"n": 2}, call),
    )
    add(thread, RESULT_2)
    assert [open_call.id for open_call in thread.context(target).calls] == ["c1"]
    add(thread, RESULT)
    assert (thread.context(target).next, thread.context(target).calls) == ("model", ())
    add(thread, ANSWER)
    assert thread.context(target).next == "user"
    [second] = add(thread, say.calls("anthropic", ("c1", "run", {"n": 3})))
    assert thread.context(target).calls == (OpenCall("c1", "run", {"n": 3}, second),)
    add(thread, USER)
    assert thread.context(target).next == "model", "the user went on, so the call was interrupted"


def test_arguments_that_are_not_json_are_given_as_text(store: Store) -> None:
    thread = store.create()
    function = {"name": "run", "arguments": '{"n": 1'}
    body = {"role": "assistant", "tool_calls": [{"id": "c1", "function": function}]}
    add(thread, body, format="openai-chat")
    assert [call.arguments for call in thread.context().calls] == ['{"n": 1']


@pytest.mark.parametrize("target", ["anthropic", "gemini"])
def test_a_request_ends_with_the_user_where_the_provider_wants_it(
    store: Store, target: str
) -> None:
    thread = store.create()
    _, answer = add(thread, USER, say.assistant("anthropic", "I look "))
    context = thread.context(target)
    assert messages.validate(target, context.messages) == []
    assert CONTINUE in json.dumps(context.messages[-1])
    assert codes(thread, target) == [("user_added", answer)]
    for options in ({"purpose": "compaction"}, {"purpose": "display"}):
        assert CONTINUE not in json.dumps(thread.context(target, **options).messages)
    assert CONTINUE not in json.dumps(thread.context("openai-chat").messages)
    add(thread, USER)
    assert CONTINUE not in json.dumps(thread.context(target).messages)


def test_a_reply_that_the_provider_paused_goes_back_as_it_is(store: Store) -> None:
    """It runs the tool itself, and goes on from there."""
    thread = store.create()
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    add(thread, USER, {"role": "assistant", "content": [search]})
    context = thread.context("anthropic")
    assert context.messages[-1] == {"role": "assistant", "content": [search]}
    assert context.next == "model"
    assert messages.validate("anthropic", context.messages) == []


def test_an_id_used_again_for_another_call_is_changed(store: Store) -> None:
    thread = store.create()
    other = say.calls("anthropic", ("c1", "run", {"n": 2}))
    ids = add(thread, USER, CALL, RESULT, other, say.result("anthropic", "c1", "second"))
    assert codes(thread) == [("id_changed", ids[3])]
    shown = thread.context("anthropic").messages
    assert shown[4]["content"][0]["tool_use_id"] == shown[3]["content"][0]["id"] != "c1"
    assert "second" in str(shown[4])


def test_gemini_calls_without_ids_keep_their_results(store: Store) -> None:
    """Its calls have no ids; two of the same tool must not get each other's results."""
    thread = store.create()
    call = {"role": "model", "parts": [{"functionCall": {"name": "run", "args": {}}}]}
    for n in range(2):
        response = {"name": "run", "response": {"result": f"output {n}"}}
        result = {"role": "user", "parts": [{"functionResponse": response}]}
        done = {"role": "model", "parts": [{"text": f"done {n}"}]}
        add(thread, say.user("gemini", f"question {n}"), call, result, done, format="gemini")
    for target in say.FORMATS:
        context = thread.context(target)
        assert messages.validate(target, context.messages) == []
        shown = str(context.messages)
        assert "id_changed" not in [repair.code for repair in context.report.repairs]
        order = [shown.index(f"{word} {n}") for n in range(2) for word in ("output", "done")]
        assert order == sorted(order)


def test_empty_messages_are_left_out(store: Store) -> None:
    thread = store.create()
    _, empty, _ = add(thread, USER, say.assistant("anthropic", " "), say.user("anthropic", "?"))
    assert codes(thread) == [("empty", empty)]


def test_a_message_that_cannot_be_read_is_shown_as_text(store: Store) -> None:
    thread = store.create()
    entry = thread.append("user_message", {"role": "user", "content": 5}, format="anthropic")
    assert codes(thread)[0] == ("unreadable", entry.id)
    assert len(thread.context("anthropic").messages) == 1


def test_half_an_emoji_becomes_a_replacement_character(store: Store) -> None:
    thread = store.create()
    (entry,) = add(thread, say.user("anthropic", "cut \ud83d"))
    assert codes(thread) == [("text_mended", entry)]
    assert "cut \ufffd" in str(thread.context("anthropic").messages)
    assert thread.path()[0].body["content"] == "cut \ud83d", "the journal keeps it"
    assert codes(thread, "plain", leaf=add(thread, say.user("anthropic", r"C:\udir"))[0]) == [
        ("text_mended", entry)
    ]


def test_edits_remove_replace_and_restore(store: Store) -> None:
    thread = store.create()
    first, second = add(thread, USER, say.user("anthropic", "secret"))
    thread.append("context_edit", {"edit": "remove", "target": first})
    replacement = {"role": "user", "content": "***"}
    thread.append("context_edit", {"edit": "replace", "target": second, "message": replacement})
    assert "secret" not in str(thread.context("anthropic").messages)
    assert "***" in str(thread.context("anthropic").messages)
    thread.append("context_edit", {"edit": "restore", "target": first})
    assert "do it" in str(thread.context("anthropic").messages)


def test_branch_summaries_speak(store: Store) -> None:
    thread = store.create()
    add(thread, USER)
    thread.append("branch_summary", {"summary": "the other way failed"})
    assert "the other way failed" in str(thread.context("anthropic").messages)


def test_system_messages_tools_and_model_are_beside_the_messages(store: Store) -> None:
    thread = store.create()
    thread.append_message({"role": "system", "content": "Be brief."})
    thread.append("active_tools_change", ["run"])
    thread.append("model_change", {"model": "m-2"})
    add(thread, USER)
    context = thread.context("anthropic")
    assert "Be brief." in str(context.system)
    assert (context.tools, context.model) == (["run"], {"model": "m-2"})
    assert "Be brief." in str(thread.context("openai-chat").messages[0])
    assert thread.context("anthropic", system=False).system is None


def test_signal_tools_become_words(store: Store) -> None:
    thread = store.create()
    ask = say.calls("anthropic", ("c1", "ask_user", {"question": "Which one?"}))
    add(thread, USER, ask, say.user("anthropic", "The second."))
    context = thread.context("anthropic", signal_tools=["ask_user"])
    assert context.report.repairs == ()
    assert context.messages[1]["content"] in (
        "Which one?",
        [{"type": "text", "text": "Which one?"}],
    )


def test_the_answer_to_a_signal_is_the_users(store: Store) -> None:
    thread = store.create()
    ask = say.calls("anthropic", ("c1", "ask_user", {"question": "Which one?"}))
    add(thread, USER, ask, say.result("anthropic", "c1", "The second."))
    context = thread.context("anthropic", signal_tools=["ask_user"])
    assert context.report.repairs == ()
    assert [m["role"] for m in context.messages] == ["user", "assistant", "user"]
    assert "The second." in str(context.messages[-1])


def test_segments_say_where_each_entry_went(store: Store) -> None:
    thread = store.create()
    blob = store.blobs.put(b"picture")
    user = thread.append("user_message", say.user("plain", "é" * 300), blobs=[blob]).id
    call, result = add(thread, CALL, RESULT)
    found = {s.entry_id: s for s in thread.context("anthropic", segments=True).segments}
    assert [found[id].message_index for id in (user, call, result)] == [0, 1, 2]
    assert (found[call].tool_call_id, found[call].tool_name) == ("c1", "run")
    assert (found[result].tool_call_id, found[result].role) == ("c1", "tool")
    assert found[user].blobs == (blob,)
    assert found[user].token_estimate > 100
    assert found[user].preview.endswith("…")
    assert len(found[user].preview) <= 240
    assert (found[call].preview, found[result].preview) == ('run({"n":1})', "fine")


def test_a_segment_names_the_call_of_its_own_entry(store: Store) -> None:
    thread = store.create()
    two = say.calls("anthropic", ("c1", "first", {}), ("c2", "second", {}))
    *_, result = add(thread, USER, two, RESULT_2)
    found = {s.entry_id: s for s in thread.context("anthropic", segments=True).segments}
    assert (found[result].tool_call_id, found[result].tool_name) == ("c2", "second")


def test_display_is_plain_and_has_segments(store: Store) -> None:
    thread = store.create()
    add(thread, USER, CALL, RESULT, ANSWER)
    context = thread.context(purpose="display")
    assert context.format == "plain"
    assert len(context.segments) == 4


def test_the_format_is_that_of_the_newest_message(store: Store) -> None:
    thread = store.create()
    assert thread.context().format == "plain"
    assert thread.context().messages == []
    add(thread, USER, CALL, RESULT)
    assert thread.context().format == "anthropic"
    for unknown in ("cohere", ["anthropic"]):
        with pytest.raises(InvalidInput, match="openai-chat"):
            thread.context(unknown)  # type: ignore[arg-type]


def test_a_context_of_another_leaf(store: Store) -> None:
    thread = store.create()
    first, *_ = add(thread, USER, CALL, RESULT)
    assert len(thread.context("anthropic", leaf=first).messages) == 1
    with pytest.raises(NotFound):
        thread.context("anthropic", leaf="nobody")


def test_an_unknown_purpose_is_refused(store: Store) -> None:
    with pytest.raises(InvalidInput, match="display"):
        store.create().context("plain", purpose="nonsense")  # type: ignore[arg-type]


# --- the door ---


@pytest.mark.parametrize(
    ("message", "format"),
    [
        ({"role": "user", "content": [3]}, "anthropic"),
        ({"role": "user", "content": [{"type": "text"}]}, "anthropic"),
        ({"role": "user", "content": "x"}, "nonsense"),
        ({"content": "x"}, None),
        ({"content": "x"}, "openai-chat"),
        (5, None),
        (RESULT, "anthropic"),
        (say.result("openai-responses", "c9", "x"), "openai-responses"),
    ],
)
def test_a_message_that_a_provider_would_not_know_is_refused(
    store: Store, message: Any, format: str | None
) -> None:
    thread = store.create()
    with pytest.raises(InvalidInput):
        thread.append_message(message, format=format)
    assert thread.info.seq == 0


def test_a_result_is_accepted_however_far_back_its_call_is(store: Store) -> None:
    thread = store.create()
    thread.append_message(USER, format="anthropic")
    thread.append_message(CALL, format="anthropic")
    for n in range(40):
        thread.append("event", n)
    thread.append_message(RESULT, format="anthropic")
    assert codes(thread) == []


def test_objects_of_an_sdk_are_messages(store: Store) -> None:
    class Reply:
        role = "assistant"

        def model_dump(self, **options: Any) -> dict[str, Any]:
            return {"role": "assistant", "content": "from an object"}

    entry = store.create().append_message(Reply(), format="openai-chat")
    assert (entry.kind, entry.body["content"]) == ("assistant_message", "from an object")


# --- budgets ---


def long_thread(store: Store, turns: int = 6) -> Thread:
    thread = store.create()
    for n in range(turns):
        call = say.calls("anthropic", (f"c{n}", "run", {"n": n}))
        result = say.result("anthropic", f"c{n}", "word " * 100)
        answer = say.assistant("anthropic", f"answer {n}")
        add(thread, say.user("anthropic", f"question {n}"), call, result, answer)
    return thread


@pytest.mark.parametrize("budget", [1, 50, 200, 300, 500, 1000])
def test_a_budget_keeps_whole_turns_and_the_last_request(store: Store, budget: int) -> None:
    thread = long_thread(store)
    context = thread.context("anthropic", budget_tokens=budget)
    shown = str(context.messages)
    assert "question 5" in shown
    assert messages.validate("anthropic", context.messages) == []
    assert context.report.tokens <= budget or budget < 200
    for n in range(5):  # whole turns: the question is there exactly if the answer is
        assert (f"question {n}" in shown) == (f"answer {n}" in shown)
    left_out = [r for r in context.report.repairs if r.code == "over_budget"]
    assert left_out or budget >= 1000


def test_a_single_turn_that_is_too_large_is_cut_visibly(store: Store) -> None:
    thread = store.create()
    add(thread, USER, CALL, say.result("anthropic", "c1", "x" * 100_000), ANSWER)
    context = thread.context("anthropic", budget_tokens=500)
    assert context.report.tokens <= 500
    assert "characters left out" in str(context.messages)
    assert "truncated" in {repair.code for repair in context.report.repairs}
    assert messages.validate("anthropic", context.messages) == []


def test_a_counter_of_yours_is_asked(store: Store) -> None:
    thread = long_thread(store, 2)
    asked: list[str] = []

    def count(text: str) -> int:
        asked.append(text)
        return len(text.split())

    context = thread.context("anthropic", count=count, budget_tokens=10_000)
    assert "question 0" in asked
    assert 200 < context.report.tokens < 300


def test_the_summary_stays_in_a_budget(store: Store) -> None:
    thread = long_thread(store)
    thread.compact(lambda _: "they talked", keep_turns=3)
    shown = str(thread.context("anthropic", budget_tokens=300).messages)
    assert "they talked" in shown
    assert "question 5" in shown
    assert "question 3" not in shown.partition("</summary>")[2]


def test_a_budget_must_be_a_number_of_tokens(store: Store) -> None:
    with pytest.raises(InvalidInput):
        store.create().context("plain", budget_tokens=0)
