"""Streamed replies: stored whole at the end, and what there was if the end never came."""

from __future__ import annotations

import itertools
import json
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from event_streams import ALL, ARGUMENTS, STREAMS

import clew
from clew import messages

each_stream = pytest.mark.parametrize(("format", "name"), ALL)
each_format = pytest.mark.parametrize("format", STREAMS)
QUESTION = {"role": "user", "content": "What is in notes.txt?"}


class Broken(Exception):
    pass


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now_us = 1_700_000_000_000_000

    def __call__(self) -> int:
        return self.now_us

    def sleep(self, seconds: float) -> None:
        self.now_us += int(seconds * 1_000_000)


@pytest.fixture
def clock(store: clew.Store) -> Clock:
    store.clock = Clock()
    return store.clock


@pytest.fixture
def thread(store: clew.Store, clock: Clock) -> clew.Thread:
    thread = store.create("t")
    thread.append_message(QUESTION)
    return thread


def kinds(thread: clew.Thread) -> list[str]:
    return [entry.kind for entry in thread.path()]


def feed(thread: clew.Thread | clew.Turn, format: str, events: list[Any], **options: Any) -> Any:
    with thread.streaming(format, **options) as reply:
        for event in events:
            reply.feed(event)
    return reply


def check_contexts(thread: clew.Thread) -> None:
    """What leaves the store is valid for everyone, and has no half-finished call in it."""
    for target in STREAMS:
        context = thread.context(target)
        assert messages.validate(target, context.messages) == [], target
        for call in context.calls:
            assert call.arguments in (json.loads(ARGUMENTS), {})


# --- the whole ---


@each_format
@pytest.mark.parametrize("name", ["text", "thinking"])
def test_a_whole_stream_is_one_message_with_its_usage(
    thread: clew.Thread, format: str, name: str
) -> None:
    with thread.turn(owner="w") as turn:
        result = feed(turn, format, STREAMS[format][name]).result
    kind = "assistant_message" if name == "text" else "tool_call"
    assert kinds(thread) == ["user_message", "turn_marker", kind, "usage", "turn_marker"]
    assert (result.usage.body["output_tokens"], result.is_partial) == (42, False)
    assert result.message is not None
    assert result.message.meta == {}
    assert result.message.turn == turn.id
    assert result.text == ("The notes say: buy milk." if name == "text" else result.text)
    if name == "thinking":
        ids = [call.id for call in result.calls]
        assert len(ids) == 2
        thread.append_results(dict.fromkeys(ids, "milk"))
    check_contexts(thread)


@each_format
def test_a_stream_is_stored_as_the_same_reply_unstreamed(thread: clew.Thread, format: str) -> None:
    gathered = messages.accumulator(format)
    for event in STREAMS[format]["thinking"]:
        gathered.add(event)
    found = gathered.so_far()
    assert found is not None
    assert found.is_whole
    assert found.unfinished == ()
    streamed = feed(thread, format, STREAMS[format]["thinking"]).result
    thread.move(thread.path()[0].id)
    whole = thread.append_response(found.response, format=format)
    assert streamed.message is not None
    assert whole.message is not None
    assert (streamed.message.body, streamed.usage.body) == (whole.message.body, whole.usage.body)


@each_format
def test_an_id_of_yours_makes_a_retry_harmless(thread: clew.Thread, format: str) -> None:
    result = feed(thread, format, STREAMS[format]["text"], id="reply-1", meta={"a": 1}).result
    assert result.message is not None
    assert (result.message.id, result.usage.id) == ("reply-1", "reply-1.usage")
    assert result.message.meta == {"a": 1}


# --- the broken ---


@each_stream
def test_a_stream_that_is_cut_anywhere_leaves_a_valid_context(
    store: clew.Store, clock: Clock, format: str, name: str
) -> None:
    events = STREAMS[format][name]
    for cut in range(len(events) + 1):
        thread = store.create(f"t{cut}")
        thread.append_message(QUESTION)
        reply = thread.streaming(format)
        with pytest.raises(Broken), reply:
            for event in events[:cut]:
                reply.feed(event)
            raise Broken("the line went dead")
        path = thread.path()
        said = [entry for entry in path[1:] if entry.kind != "usage"]
        assert len(said) <= 1
        assert len(path) <= 3
        for entry in said:
            if "partial" in entry.meta:
                assert entry.meta["partial"] in ("Broken: the line went dead", *ERRORS)
                assert reply.result.is_partial
        check_contexts(thread)
        thread.append_message({"role": "user", "content": "Go on."})
        check_contexts(thread)


ERRORS = (
    "overloaded_error: Overloaded",
    "server had an error",
    "server_error: no",
    "503: overloaded",
)


@each_stream
def test_in_between_saves_leave_a_valid_context_as_well(
    store: clew.Store, clock: Clock, format: str, name: str
) -> None:
    """As after a kill: what was saved last is all there is."""
    events = STREAMS[format][name]
    thread = store.create()
    thread.append_message(QUESTION)
    reply = thread.streaming(format, save_seconds=0).__enter__()
    for event in events:
        reply.feed(event)
        assert len(thread.path()) <= 2
        check_contexts(thread)
        if len(thread.path()) == 2:
            assert thread.path()[1].meta["partial"] == "streaming"
            assert thread.context().next in ("model", "tools")


@each_format
def test_an_error_of_the_provider_ends_the_reply_as_a_partial_one(
    thread: clew.Thread, format: str
) -> None:
    result = feed(thread, format, STREAMS[format]["error"]).result
    assert result.is_partial
    assert result.message is not None
    assert result.message.meta["partial"] in ERRORS
    assert result.text.startswith("The notes")
    assert thread.context(format).next == "model"


@each_format
def test_a_block_that_is_left_early_is_a_partial_reply(thread: clew.Thread, format: str) -> None:
    result = feed(thread, format, STREAMS[format]["text"][: 3 if format == "gemini" else 5]).result
    assert result.is_partial
    assert result.message is not None
    assert "before the reply did" in result.message.meta["partial"]


@each_format
def test_arguments_that_were_cut_off_stay_in_the_store(thread: clew.Thread, format: str) -> None:
    if format == "gemini":
        pytest.skip("calls come whole")
    events = STREAMS[format]["thinking"]
    cut = next(n for n, event in enumerate(events) if '{"path"' in str(event)) + 1
    reply = feed(thread, format, events[: cut + 1])
    message = reply.result.message
    assert message is not None
    assert message.meta["unfinished"][0]["name"] == "read"
    assert ARGUMENTS.startswith(message.meta["unfinished"][0]["arguments"])
    assert reply.result.calls == ()


@pytest.mark.parametrize("format", ["anthropic", "openai-chat"])
def test_a_reply_at_its_limit_of_tokens_has_no_half_call(thread: clew.Thread, format: str) -> None:
    result = feed(thread, format, STREAMS[format]["limit"]).result
    assert not result.is_partial
    assert result.stop_reason in ("max_tokens", "length")
    assert result.message is not None
    assert len(result.message.meta["unfinished"]) == 1
    assert all(call.arguments == json.loads(ARGUMENTS) for call in result.calls)
    check_contexts(thread)


def test_nothing_is_written_for_a_stream_without_events(thread: clew.Thread) -> None:
    before = thread.info.seq
    reply = feed(thread, "anthropic", [])
    assert thread.info.seq == before
    with pytest.raises(RuntimeError, match="no event came"):
        _ = reply.result


# --- in-between saves ---


def long_reply(count: int) -> list[Any]:
    start, *_ = STREAMS["anthropic"]["text"]
    block = {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "text", "text": ""},
    }
    delta = {"type": "text_delta", "text": "word "}
    return [start, block] + [{"type": "content_block_delta", "index": 0, "delta": delta}] * count


def appended(thread: clew.Thread) -> list[clew.Entry]:
    return [record for record in thread.read() if isinstance(record, clew.Entry)]


def test_saves_are_made_by_time_and_not_by_token(thread: clew.Thread, clock: Clock) -> None:
    with thread.streaming("anthropic") as reply:
        for event in long_reply(200):
            clock.sleep(0.01)
            reply.feed(event)
    saved = [entry for entry in appended(thread) if entry.kind == "assistant_message"]
    assert [entry.meta.get("partial") for entry in saved[:-1]] == ["streaming"] * 2
    assert len(saved) == 3
    assert {entry.parent for entry in saved} == {thread.path()[0].id}
    assert {entry.meta["stream"] for entry in saved} == {reply.id}
    assert thread.path()[1].body["content"][0]["text"] == "word " * 200


def test_a_long_reply_is_saved_less_often(thread: clew.Thread, clock: Clock) -> None:
    with thread.streaming("anthropic") as reply:
        for event in long_reply(1000):
            clock.sleep(0.1)
            event = json.loads(json.dumps(event).replace("word ", "x" * 1024))
            reply.feed(event)
    saved = [entry for entry in appended(thread) if entry.kind == "assistant_message"]
    written = sum(len(entry.data) for entry in saved)
    assert written < 5 * 1024 * 1024
    assert len(saved) < 40


def test_a_clock_that_is_set_back_does_not_stop_the_saves(
    thread: clew.Thread, clock: Clock
) -> None:
    with thread.streaming("anthropic") as reply:
        for event in long_reply(10):
            reply.feed(event)
        clock.sleep(-3600)
        reply.feed(long_reply(1)[-1])
        assert len(thread.path()) == 2


def test_only_the_end_has_a_usage(thread: clew.Thread) -> None:
    feed(thread, "anthropic", STREAMS["anthropic"]["text"], save_seconds=0)
    assert [entry.kind for entry in appended(thread)].count("usage") == 1
    assert len(thread.leaves()) > 1
    assert kinds(thread) == ["user_message", "assistant_message", "usage"]


def test_what_is_written_meanwhile_stays_and_nothing_is_said_twice(thread: clew.Thread) -> None:
    events = STREAMS["anthropic"]["text"]
    with thread.streaming("anthropic", save_seconds=0) as reply:
        reply.feed(events[0])
        thread.append("event", {"before": "the first save"})
        for event in events[1:5]:
            reply.feed(event)
        thread.append_message({"role": "user", "content": "Quick!"})
        for event in events[5:]:
            reply.feed(event)
    assert "event" in kinds(thread)
    texts = [str(message["content"]) for message in thread.context("openai-chat").messages]
    assert texts == ["What is in notes.txt?", "Quick!", "The notes say: buy milk."]
    check_contexts(thread)


def test_a_thread_that_is_moved_away_stays_there_and_the_reply_is_a_branch(
    thread: clew.Thread,
) -> None:
    events = STREAMS["anthropic"]["text"]
    with thread.streaming("anthropic", save_seconds=0) as reply:
        for event in events[:6]:
            reply.feed(event)
        thread.move(None)
        other = thread.append_message({"role": "user", "content": "Never mind."})
        for event in events[6:]:
            reply.feed(event)
    assert thread.leaf == other.id
    assert reply.result.message is not None
    assert reply.result.message.parent == next(thread.entries()).id
    assert reply.result.text == "The notes say: buy milk."


def test_a_lost_lease_is_told_and_what_was_saved_stays(thread: clew.Thread, clock: Clock) -> None:
    events = STREAMS["anthropic"]["text"]
    lease = thread.leases.acquire("w")
    reply = thread.streaming("anthropic", save_seconds=0, fence=lease.fence)
    with pytest.raises(clew.LeaseLost) as caught, reply:
        for event in events[:6]:
            reply.feed(event)
        thread.leases.release(lease)
        thread.leases.acquire("other")
        reply.feed(events[6])
    assert "could not be stored" in caught.value.__notes__[0]
    assert thread.path()[-1].meta["partial"] == "streaming"


# --- what is refused ---


@each_format
def test_events_of_another_provider_are_refused(thread: clew.Thread, format: str) -> None:
    before = thread.info.seq
    for other, name in itertools.product(STREAMS, ("text", "thinking")):
        if other != format:
            with pytest.raises(clew.InvalidInput, match="event"):
                feed(thread, format, STREAMS[other][name][:3])
    for what in (None, 1, "text", [], {}, {"type": 3}, object()):
        with pytest.raises(clew.InvalidInput, match="event"):
            feed(thread, format, [what])
    assert thread.info.seq == before


@pytest.mark.parametrize("format", ["anthropic", "openai-chat", "openai-responses"])
def test_events_behind_the_end_are_refused(thread: clew.Thread, format: str) -> None:
    events = STREAMS[format]["text"]
    with thread.streaming(format) as reply:
        for event in events:
            reply.feed(event)
        with pytest.raises(clew.InvalidInput, match="after the end"):
            reply.feed(events[3])
    assert not reply.result.is_partial
    assert reply.result.text == "The notes say: buy milk."


@pytest.mark.parametrize("format", ["anthropic", "openai-responses"])
def test_events_out_of_order_are_refused_and_change_nothing(
    thread: clew.Thread, format: str
) -> None:
    events = STREAMS[format]["thinking"]
    with pytest.raises(clew.InvalidInput, match="out of order"):
        feed(thread, format, events[3:])
    with thread.streaming(format) as reply:
        for number, event in enumerate(events):
            if number:
                for wrong in (events[0], events[number - 1]):
                    if wrong["type"] not in ("content_block_delta", "message_delta"):
                        with pytest.raises(clew.InvalidInput, match="out of order"):
                            reply.feed(wrong)
            reply.feed(event)
    assert not reply.result.is_partial
    assert len(reply.result.calls) == 2


def stored(thread: clew.Thread, format: str, events: list[Any]) -> list[Any]:
    """What a whole stream leaves in a thread, but for its usage."""
    before = len(thread.path())
    assert not feed(thread, format, events).result.is_partial
    return [entry.body for entry in thread.path()[before:] if entry.kind != "usage"]


@pytest.mark.parametrize(
    ("format", "events"),
    [
        ("anthropic", [{"type": "message_start"}]),
        ("anthropic", [{"type": "message_start", "message": {}}, {"type": "content_block_start"}]),
        (
            "anthropic",
            [
                *STREAMS["anthropic"]["text"][:3],
                {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta"}},
            ],
        ),
        ("anthropic", [{"type": "message_stop"}]),
        ("openai-chat", [{"choices": [{"index": 1, "delta": {"content": "b"}}]}]),
        ("openai-chat", [{"choices": [{"delta": {"tool_calls": [{"index": 5}]}}]}]),
        ("openai-chat", [{"choices": [{}]}]),
        ("openai-responses", [{"type": "response.created"}]),
        (
            "openai-responses",
            [
                *STREAMS["openai-responses"]["text"][:2],
                {"type": "response.output_text.delta", "output_index": 0, "delta": "x"},
            ],
        ),
        (
            "openai-responses",
            [
                *STREAMS["openai-responses"]["text"][:2],
                {
                    "type": "response.output_text.delta",
                    "output_index": 0,
                    "content_index": -1,
                    "delta": "x",
                },
            ],
        ),
        (
            "openai-responses",
            [
                *STREAMS["openai-responses"]["text"][:2],
                *[{"type": "response.output_item.added", "output_index": 9, "item": {}}] * 2,
            ],
        ),
        *(
            (
                "openai-responses",
                [
                    STREAMS["openai-responses"]["text"][0],
                    {
                        "type": "response.output_item.added",
                        "output_index": 9,
                        "item": {"type": "message"},
                    },
                    {
                        "type": "response.output_text.delta",
                        "output_index": 9,
                        "content_index": number,
                        "delta": "x",
                    },
                ],
            )
            for number in (None, -1, "0")
        ),
        ("anthropic", [{"type": "content.delta"}]),
        ("gemini", [{"candidates": ["text"]}]),
        ("gemini", [{"candidates": [{"content": {"parts": "text"}}]}]),
        ("gemini", [{"candidates": [{"index": 1, "content": {"parts": [{"text": "b"}]}}]}]),
    ],
)
def test_damaged_events_are_refused(thread: clew.Thread, format: str, events: list[Any]) -> None:
    with thread.streaming(format) as reply:
        for event in events[:-1]:
            reply.feed(event)
        with pytest.raises(clew.InvalidInput, match="event"):
            reply.feed(events[-1])


@pytest.mark.parametrize(
    ("format", "event", "told"),
    [
        ("anthropic", {"type": "error", "error": "Boom"}, "Boom"),
        ("openai-chat", {"error": {"type": "api_error", "message": "Boom"}}, "api_error: Boom"),
        ("gemini", {"error": {}}, "error"),
        (
            "openai-responses",
            {"type": "response.failed", "response": {"error": {"code": "gone", "message": "Boom"}}},
            "gone: Boom",
        ),
        ("openai-responses", {"type": "response.failed", "response": {}}, "response.failed"),
    ],
)
def test_an_error_is_told_in_the_providers_words_and_nothing_comes_after_it(
    format: str, event: Any, told: str
) -> None:
    accumulator = messages.accumulator(format)
    first, second, *_ = STREAMS[format]["text"]
    accumulator.add(first)
    accumulator.add(event)
    assert (accumulator.error, accumulator.is_done) == (told, True)
    found = accumulator.so_far()
    assert found is None or not found.is_whole
    with pytest.raises(clew.InvalidInput, match="after the end"):
        accumulator.add(second)


def test_a_sort_of_delta_that_comes_later_is_passed_by(thread: clew.Thread) -> None:
    start, ping, begun, *rest = STREAMS["anthropic"]["text"]
    later = {"type": "content_block_delta", "index": 0, "delta": {"type": "later_delta", "x": 1}}
    whole = stored(thread, "anthropic", [start, ping, begun, *rest])
    assert stored(thread, "anthropic", [start, ping, begun, later, *rest]) == whole


def test_chunks_that_are_objects_are_read_with_the_fields_that_the_sdk_does_not_know(
    thread: clew.Thread,
) -> None:
    class Known(SimpleNamespace):
        """Stands in for a model of the SDK, which keeps unknown fields beside its own."""

        model_extra: ClassVar[Any] = None

    class Said(Known):
        model_extra: ClassVar[Any] = {"reasoning": "hm"}

    said = Said(content="Hi", role="assistant")
    chunk = {"object": "chat.completion.chunk", "id": "c1", "model": "m"}
    chunks = [
        Known(choices=[Known(index=0, delta=said, finish_reason=None)], **chunk),
        Known(choices=[Known(index=0, delta=None, finish_reason="stop")], **chunk),
    ]
    accumulator = messages.accumulator("openai-chat")
    for one in chunks:
        accumulator.add(one)
    found = accumulator.so_far()
    assert found is not None
    assert found.is_whole
    message = found.response["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "Hi", "reasoning": "hm"}
    assert (found.response["id"], found.response["model"]) == ("c1", "m")


def test_a_call_of_gemini_whose_arguments_come_in_pieces_is_none_until_it_is_whole() -> None:
    accumulator = messages.accumulator("gemini")
    piece = {"id": "c", "name": "f", "partialArgs": [{"jsonPath": "$.a"}], "willContinue": True}
    parts = [{"text": "I look."}, {"functionCall": piece}]
    accumulator.add({"candidates": [{"content": {"role": "model", "parts": parts}}]})
    found = accumulator.so_far()
    assert found is not None
    assert found.response["candidates"][0]["content"]["parts"] == [{"text": "I look."}]
    (cut,) = found.unfinished
    assert (cut["id"], cut["name"]) == ("c", "f")
    assert "$.a" in cut["arguments"]


def test_items_that_are_open_and_say_nothing_are_no_part_of_a_broken_reply() -> None:
    accumulator = messages.accumulator("openai-responses")
    accumulator.add({"type": "response.created", "response": {"id": "r", "output": []}})
    for index, item in enumerate(({"type": "web_search_call", "id": "w"}, {"type": "message"})):
        added = {"type": "response.output_item.added", "output_index": index, "item": item}
        accumulator.add(added)
    where = {"output_index": 1, "content_index": 0}
    accumulator.add({"type": "response.output_text.delta", **where, "delta": ""})
    found = accumulator.so_far()
    assert found is not None
    assert (found.response["output"], found.unfinished) == ([], ())


def test_the_events_that_an_sdk_tells_beside_the_chunks_are_passed_by(thread: clew.Thread) -> None:
    events: list[Any] = []
    for chunk in STREAMS["openai-chat"]["text"]:
        events += [{"type": "chunk", "chunk": chunk}, {"type": "content.delta", "delta": "twice"}]
    told = stored(thread, "openai-chat", events)
    assert told == stored(thread, "openai-chat", STREAMS["openai-chat"]["text"])
    assert "twice" not in json.dumps(told)


def test_what_a_reply_cites_is_kept_with_its_text(thread: clew.Thread) -> None:
    start, _, begun, *rest = STREAMS["anthropic"]["text"]
    cited = [{"type": "char_location", "cited_text": word} for word in ("milk", "bread")]
    deltas = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", **one}}
        for one in ({"citation": citation} for citation in cited)
    ]
    (message, *_) = stored(thread, "anthropic", [start, begun, *deltas, *rest])
    (block,) = message["content"]
    assert block["citations"] == cited
    assert block["text"] == "The notes say: buy milk."


def test_an_end_that_does_not_repeat_the_output_ends_what_was_told_before(
    thread: clew.Thread,
) -> None:
    *events, end = STREAMS["openai-responses"]["text"]
    bare = {**end, "response": {k: v for k, v in end["response"].items() if k != "output"}}
    whole = stored(thread, "openai-responses", [*events, end])
    assert stored(thread, "openai-responses", [*events, bare]) == whole
    assert "buy milk" in json.dumps(whole)


def test_a_format_that_is_not_streamed_is_refused(thread: clew.Thread) -> None:
    with pytest.raises(clew.InvalidInput, match="'plain' is not one of anthropic"):
        thread.streaming("plain")
    with pytest.raises(clew.InvalidInput, match="save_seconds"):
        thread.streaming("gemini", save_seconds=-1)
