"""Every provider counts in its own way; a token must be in one class, and in no other."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replies_support import PRICES, anthropic

import clew
from clew import messages
from clew.core.codec import encode
from clew.messages import replies
from clew.messages.shared.read import TOKENS_MAX
from clew.messages.usage import in_data, in_message, in_note
from clew.usage.model import Tokens

TEXT = [{"type": "text", "text": "Yes."}]


def responses(usage: Any) -> dict[str, Any]:
    item = {
        "type": "message",
        "id": "i",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Yes.", "annotations": []}],
    }
    return {"id": "resp_1", "object": "response", "model": "m", "output": [item], "usage": usage}


CASES: dict[str, tuple[str, dict[str, Any], Tokens]] = {
    "anthropic: the cache is beside the input, thinking in the output": (
        "anthropic",
        anthropic(
            cache_read_input_tokens=50,
            cache_creation_input_tokens=7,
            output_tokens_details={"thinking_tokens": 4},
        ),
        Tokens(input=100, output=6, cache_read=50, cache_write=7, reasoning=4),
    ),
    "claude code: a record holds a message of Anthropic": (
        "claude-code",
        {
            "type": "assistant",
            "uuid": "u",
            "message": anthropic("msg_1", cache_read_input_tokens=5),
        },
        Tokens(input=100, output=10, cache_read=5),
    ),
    "codex: a count of tokens is an event of its own": (
        "codex",
        {
            "type": "event_msg",
            "payload": {
                "type": "token_count",
                "info": {
                    "total_token_usage": {"total_tokens": 110},
                    "last_token_usage": {
                        "input_tokens": 100,
                        "cached_input_tokens": 60,
                        "output_tokens": 10,
                        "reasoning_output_tokens": 4,
                    },
                },
            },
        },
        Tokens(input=40, output=6, cache_read=60, reasoning=4),
    ),
    "pi: the usage is that of the message in the record": (
        "pi",
        {
            "type": "message",
            "id": "a",
            "message": {
                "role": "assistant",
                "model": "m",
                "content": [{"type": "text", "text": "Yes."}],
                "usage": {"input": 100, "output": 10, "cacheRead": 5, "cacheWrite": 2},
            },
        },
        Tokens(input=100, output=10, cache_read=5, cache_write=2),
    ),
    "opencode: reasoning is beside the output": (
        "opencode",
        {
            "info": {
                "id": "m1",
                "role": "assistant",
                "modelID": "m",
                "tokens": {
                    "input": 100,
                    "output": 10,
                    "reasoning": 4,
                    "cache": {"read": 5, "write": 2},
                },
            },
            "parts": [{"type": "text", "text": "Yes."}],
        },
        Tokens(input=100, output=10, cache_read=5, cache_write=2, reasoning=4),
    ),
    "gemini cli: the cache is in the input, thoughts beside the output": (
        "gemini-cli",
        {
            "id": "g1",
            "type": "gemini",
            "content": "Yes.",
            "model": "m",
            "tokens": {"input": 100, "output": 10, "cached": 60, "thoughts": 4},
        },
        Tokens(input=40, output=10, cache_read=60, reasoning=4),
    ),
    "cline: the metrics of a message": (
        "cline",
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "Yes."}],
            "metrics": {"inputTokens": 100, "outputTokens": 10, "cacheReadTokens": 5},
        },
        Tokens(input=100, output=10, cache_read=5),
    ),
    "copilot: what the model made": (
        "copilot",
        {
            "type": "assistant.message",
            "data": {"messageId": "c1", "model": "m", "content": "Yes.", "outputTokens": 10},
        },
        Tokens(output=10),
    ),
    "openai chat: the cache is in the input, reasoning in the output": (
        "openai-chat",
        {
            "id": "chatcmpl-a",
            "model": "m",
            "choices": [{"message": {"role": "assistant", "content": "Yes."}}],
            "usage": {
                "prompt_tokens": 100,
                "completion_tokens": 10,
                "prompt_tokens_details": {"cached_tokens": 60},
                "completion_tokens_details": {"reasoning_tokens": 4},
            },
        },
        Tokens(input=40, output=6, cache_read=60, reasoning=4),
    ),
    "openai responses: the same under other names": (
        "openai-responses",
        responses(
            {
                "input_tokens": 100,
                "output_tokens": 10,
                "input_tokens_details": {"cached_tokens": 60},
                "output_tokens_details": {"reasoning_tokens": 4},
            }
        ),
        Tokens(input=40, output=6, cache_read=60, reasoning=4),
    ),
    "gemini: thoughts are beside the candidates, the cache in the prompt": (
        "gemini",
        {
            "responseId": "g",
            "modelVersion": "m",
            "candidates": [{"content": {"role": "model", "parts": [{"text": "Yes."}]}}],
            "usageMetadata": {
                "promptTokenCount": 100,
                "cachedContentTokenCount": 60,
                "candidatesTokenCount": 6,
                "thoughtsTokenCount": 4,
                "toolUsePromptTokenCount": 3,
                "totalTokenCount": 113,
                "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 100}],
            },
        },
        Tokens(input=43, output=6, cache_read=60, reasoning=4),
    ),
    "adk: an event tells what a response of Gemini tells": (
        "adk",
        {
            "id": "e",
            "author": "helper",
            "content": {"role": "model", "parts": [{"text": "Yes."}]},
            "model_version": "m",
            "usage_metadata": {
                "prompt_token_count": 100,
                "candidates_token_count": 6,
                "thoughts_token_count": 4,
            },
        },
        Tokens(input=100, output=6, reasoning=4),
    ),
    "converse: the cache is beside the input": (
        "converse",
        {
            "role": "assistant",
            "content": [{"text": "Yes."}],
            "metadata": {
                "usage": {
                    "inputTokens": 100,
                    "outputTokens": 10,
                    "cacheReadInputTokens": 50,
                    "cacheWriteInputTokens": 7,
                    "totalTokens": 167,
                }
            },
        },
        Tokens(input=100, output=10, cache_read=50, cache_write=7),
    ),
    "pydantic ai: the cache is in the input": (
        "pydantic-ai",
        {
            "kind": "response",
            "parts": [{"part_kind": "text", "content": "Yes."}],
            "model_name": "m",
            "provider_response_id": "msg_9",
            "usage": {
                "input_tokens": 100,
                "cache_read_tokens": 60,
                "cache_write_tokens": 7,
                "output_tokens": 10,
                "details": {"reasoning_tokens": 4},
            },
        },
        Tokens(input=33, output=6, cache_read=60, cache_write=7, reasoning=4),
    ),
    "langchain: the cache is in the input": (
        "langchain",
        {
            "type": "ai",
            "content": "Yes.",
            "id": "run-1",
            "response_metadata": {"model_name": "m"},
            "usage_metadata": {
                "input_tokens": 100,
                "output_tokens": 10,
                "total_tokens": 110,
                "input_token_details": {"cache_read": 60, "cache_creation": 7},
                "output_token_details": {"reasoning": 4},
            },
        },
        Tokens(input=33, output=6, cache_read=60, cache_write=7, reasoning=4),
    ),
    "agent framework: the cache is in the input": (
        "agent-framework",
        {
            "type": "message",
            "role": "assistant",
            "contents": [
                {"type": "text", "text": "Yes."},
                {
                    "type": "usage",
                    "usage_details": {
                        "input_token_count": 100,
                        "output_token_count": 10,
                        "cache_read_input_token_count": 60,
                        "reasoning_output_token_count": 4,
                    },
                },
            ],
        },
        Tokens(input=40, output=6, cache_read=60, reasoning=4),
    ),
    "plain: with the names of whichever provider it was": (
        "plain",
        {
            "role": "assistant",
            "content": "Yes.",
            "usage": {"prompt_tokens": 100, "completion_tokens": 10},
        },
        Tokens(input=100, output=10),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_no_token_is_in_two_classes(case: str) -> None:
    format, body, expected = CASES[case]
    with clew.open("memory:") as store:
        kind = "usage" if format == "codex" else "assistant_message"
        store.create("t").append(kind, body, format=format)
        assert store.usage().total.tokens == expected


@pytest.mark.parametrize("case", CASES)
def test_the_neutral_view_of_a_message_tells_the_same(case: str) -> None:
    """There is one place that reads usage: what readers give is what is counted."""
    format, body, _ = CASES[case]
    told = in_message(format, body)
    assert told is not None
    if format not in ("plain", "codex"):  # whose messages have no usage of their own to be viewed
        assert messages.read(format, body)[-1].usage == told.usage


def test_what_is_no_usage_of_codex_is_none() -> None:
    assert [messages.read_usage("codex", odd) for odd in (None, 7, "many", [])] == [None] * 4


def test_every_format_with_a_usage_has_a_case_here() -> None:
    every = (*messages.FORMATS, *messages.FRAMEWORKS)
    assert {f for f in every if messages.counter(f)} <= {f for f, _, _ in CASES.values()}


WHOLE = [case for case, (format, _, _) in CASES.items() if format in messages.FORMATS[:4]]


@pytest.mark.parametrize("case", WHOLE)
def test_a_whole_response_costs_the_same_as_its_message(case: str) -> None:
    """append_response takes it apart; what it cost must not depend on how it was stored."""
    _, body, expected = CASES[case]
    with clew.open("memory:") as store:
        store.create("t").append_response(body)
        assert store.usage().total.tokens == expected


def test_what_is_cached_for_an_hour_has_its_own_price() -> None:
    written = {"cache_creation_input_tokens": 7, "cache_creation": {"ephemeral_1h_input_tokens": 5}}
    with clew.open("memory:") as store:
        store.create("t").append_message(anthropic(**written))
        used = store.usage(prices=PRICES).total
    assert used.tokens.cache_write == 7
    assert used.cost_microdollars == 100 * 1 + 10 * 2 + 2 * 8 + 5 * 16


ODD = [-1, -(2**63), TOKENS_MAX + 1, 2**62, "12", "", True, 1.5, [], {"n": 1}, 1e300]


@pytest.mark.parametrize("odd", [o for o in ODD if o != [] and o != {"n": 1}], ids=repr)
def test_a_number_that_can_be_no_count_makes_a_reply_unreadable_and_not_cheap(odd: Any) -> None:
    with clew.open("memory:") as store:
        thread = store.create("t")
        thread.append("assistant_message", anthropic("msg_1", input_tokens=odd), format="anthropic")
        thread.append("assistant_message", anthropic("msg_2"), format="anthropic")
        used = store.usage(prices=PRICES).total
    assert (used.replies, used.unreadable, used.priced) == (2, 1, False)
    assert used.tokens == Tokens(input=100, output=10)
    assert used.cost_microdollars == 120


@pytest.mark.parametrize("usage", ["lots", [], 5, {}, {"x": 1}, {"input_tokens": {}}], ids=repr)
def test_a_usage_that_says_nothing_is_named_and_not_passed_over(usage: Any) -> None:
    with clew.open("memory:") as store:
        thread = store.create("t")
        thread.append("assistant_message", {**anthropic(), "usage": usage}, format="anthropic")
        thread.append("user_message", "Hm.")
        thread.append("usage", usage)
        used = store.usage().total
    assert (used.replies, used.unreadable) == (2, 2)
    assert used.tokens == Tokens()


json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "usage",
                    "message",
                    "usage_metadata",
                    "usageMetadata",
                    "metadata",
                    "contents",
                    "type",
                    "input_tokens",
                    "output_tokens",
                    "input_tokens_details",
                    "id",
                    "model",
                    "data",
                    "prompt_tokens",
                    "cached_tokens",
                    "response_metadata",
                    "output",
                    "choices",
                    "x",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(json, st.sampled_from([None, "no-such", *messages.FORMATS, *messages.FRAMEWORKS]))
def test_nothing_that_is_stored_breaks_the_reader(body: Any, format: str | None) -> None:
    for told in (in_message(format, body), in_note(format, body)):
        usage = None if told is None else told.usage
        if usage is not None:
            counts = [getattr(usage, name) for name in usage.__struct_fields__]
            assert all(type(count) is int and 0 <= count <= 3 * TOKENS_MAX for count in counts)


USUAL = {
    format: body
    for format, body, _ in reversed(CASES.values())
    if messages.usual(format) is not None and format != "plain"
}
number = st.integers(-2, 40) | st.sampled_from([TOKENS_MAX, TOKENS_MAX + 1, 2**63])
odd = number | st.none() | st.booleans() | st.floats(0, 9) | st.text(max_size=2)
names = st.sampled_from(
    [
        *("input_tokens", "output_tokens", "prompt_tokens", "completion_tokens", "total_tokens"),
        *("cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation"),
        *("input_tokens_details", "output_tokens_details", "prompt_tokens_details"),
        *("completion_tokens_details", "service_tier", "server_tool_use", "new_tokens", "x"),
    ]
)
details = st.dictionaries(
    st.sampled_from(
        [
            *("cached_tokens", "reasoning_tokens", "audio_tokens", "cache_write_tokens", "x"),
            *("ephemeral_1h_input_tokens", "ephemeral_5m_input_tokens", "thinking_tokens"),
        ]
    ),
    odd,
    max_size=3,
)


@given(
    st.sampled_from(sorted(USUAL)),
    st.dictionaries(names, odd | details | st.lists(odd, max_size=2), max_size=5),
    st.dictionaries(st.sampled_from(["id", "model", "output", "isApiErrorMessage"]), odd),
    st.booleans(),
)
def test_what_is_read_the_short_way_is_what_the_long_way_says(
    format: str, changed: dict[str, Any], beside: dict[str, Any], alone: bool
) -> None:
    body = USUAL[format]
    message = body.get("message", body)
    usage = changed if alone else {**message["usage"], **changed}
    message = {**message, "usage": usage, **beside}
    body = {**body, "message": message, **beside} if "message" in body else message
    assert in_data(format, encode(body)) == in_message(format, body)


@pytest.mark.parametrize("format", sorted(USUAL))
def test_what_is_usual_is_read_the_short_way(format: str) -> None:
    short: Any = msgspec.json.decode(encode(USUAL[format]), type=messages.usual(format))
    told = in_message(format, USUAL[format])
    assert told is not None
    assert short.tokens() == told.usage


def test_a_damaged_reply_tells_nothing() -> None:
    for data in (b'{"usage":', b'{"usage":{"input_tokens":1,"output_tokens":1},"content":"\\', b""):
        assert in_data("anthropic", data) is None


def test_a_record_that_is_damaged_or_only_speaks_of_usage_is_no_reply() -> None:
    thread = clew.open("memory:").create()
    said = thread.append_message({"role": "assistant", "content": 'the word "usage"'})
    note = thread.append("usage", {"input_tokens": 1})
    (fact,) = thread.set(model="m-1")
    progress = replies.Progress()
    assert replies.read(said, progress) is None
    broken = replies.read(msgspec.structs.replace(note, data=b"{"), progress)
    assert broken is not None
    assert broken.usage is None
    assert replies.read(fact, progress) is None
    assert progress.facts == {"model": "m-1"}
    assert replies.read(msgspec.structs.replace(fact, data=b"{"), progress) is None
    assert progress.facts == {}


NOTES: dict[str, dict[str, Any]] = {
    "as append_response writes it": {
        "format": "anthropic",
        "model": "m",
        "input_tokens": 100,
        "cache_read_tokens": 50,
        "output_tokens": 10,
        "reasoning_tokens": 0,
        "usage": {"input_tokens": 100, "output_tokens": 10, "cache_read_input_tokens": 50},
    },
    "as the neutral usage is": {
        "input_tokens": 100,
        "cache_read_tokens": 50,
        "output_tokens": 10,
        "cache_write_tokens": 0,
        "reasoning_tokens": 0,
    },
    "as Anthropic tells it": {
        "input_tokens": 100,
        "output_tokens": 10,
        "cache_read_input_tokens": 50,
    },
    "as OpenAI tells it": {
        "prompt_tokens": 150,
        "completion_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 50},
    },
    "as Gemini tells it": {
        "usage": {
            "promptTokenCount": 150,
            "candidatesTokenCount": 10,
            "cachedContentTokenCount": 50,
        }
    },
    "as Pydantic AI tells it": {
        "requests": 1,
        "input_tokens": 150,
        "output_tokens": 10,
        "cache_read_tokens": 50,
    },
}


@pytest.mark.parametrize("note", NOTES)
def test_a_usage_entry_is_read_in_whichever_form_it_is(note: str) -> None:
    with clew.open("memory:") as store:
        store.create("t").append("usage", NOTES[note])
        total = store.usage().total
    assert total.tokens == Tokens(input=100, output=10, cache_read=50)
