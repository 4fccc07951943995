"""Values as JSON: what comes back exactly, what is refused, and what is never executed."""

from __future__ import annotations

import dataclasses
import decimal
import enum
import ipaddress
import os
import pathlib
import re
import subprocess
import sys
import uuid
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="langgraph is not installed")

from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.store.base import Item
from langgraph.types import Command, Interrupt, Overwrite, Send
from pydantic import BaseModel

import clew
from clew.adapters.langgraph import ClewSaver
from clew.adapters.langgraph.values import Values
from clew.core.codec import decode, encode

MESSAGES = [
    HumanMessage("hello", id="1", name="ada"),
    HumanMessage([{"type": "text", "text": "look"}, {"type": "image", "url": "https://x/y.png"}]),
    AIMessage(
        "",
        id="2",
        tool_calls=[{"id": "c", "name": "f", "args": {"a": 1}}],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        response_metadata={"model_name": "m"},
    ),
    AIMessage("x", invalid_tool_calls=[{"id": "c", "name": "f", "args": "{", "error": "cut"}]),
    AIMessageChunk("part", id="3"),
    ToolMessage("out", tool_call_id="c", status="error", artifact={"raw": (1, 2)}),
    ToolMessage("out", tool_call_id="c", artifact=[]),
    SystemMessage("be brief"),
    FunctionMessage("out", name="f"),
    ChatMessage("hm", role="critic"),
    RemoveMessage(id="1"),
    HumanMessage("extra", some_field=[None, {}], additional_kwargs={"~": "mine"}),
]
Point = namedtuple("Point", "x y")


class Colour(enum.Enum):
    RED = "red"


class Model(BaseModel):
    name: str
    when: datetime | None = None


@dataclasses.dataclass
class Data:
    x: int
    inner: Any = None
    derived: int = dataclasses.field(init=False, default=0)


PLAIN = [
    None,
    True,
    0,
    -1,
    2**64,
    -(2**70),
    1.5,
    float("inf"),
    "text",
    "lone \ud800 surrogate",
    b"bytes",
    bytearray(b"bytes"),
    [1, [2, {"a": None}]],
    (1, (2,)),
    {1, 2},
    frozenset({1}),
    deque([1, 2], maxlen=5),
    {"~": "message", "v": {}},
    {1: "a", (2, 3): "b"},
    {},
    [],
    datetime(2024, 1, 2, 3, 4, 5, 6),
    datetime(2024, 1, 2, tzinfo=UTC),
    datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Rome"), fold=1),
    datetime(2024, 1, 2, tzinfo=timezone(timedelta(hours=2), "here")),
    date(2024, 1, 2),
    time(1, 2, 3, tzinfo=UTC),
    timedelta(days=-1, microseconds=5),
    uuid.uuid4(),
    decimal.Decimal("1.10"),
    ipaddress.ip_address("127.0.0.1"),
    ipaddress.ip_network("fe80::/10"),
    pathlib.Path("/a/b"),
    re.compile("a.*", re.IGNORECASE),
    Document(page_content="x", metadata={"a": 1}),
    Send("node", {"a": HumanMessage("x")}),
    Interrupt(value={"q": 1}, id="i"),
    Command(update={"a": 1}, goto=("x", Send("y", 1))),
    Overwrite(value=[1]),
]


@pytest.mark.parametrize("value", [*PLAIN, *MESSAGES], ids=lambda value: type(value).__name__)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    values = Values()
    found = values.from_json(decode(encode(values.to_json(value))))
    assert found == value
    assert type(found) is type(value)
    if hasattr(value, "model_dump"):
        assert found.model_dump() == value.model_dump()


def test_an_item_of_a_langgraph_store_comes_back() -> None:
    now = datetime.now(UTC)
    item = Item(value={"a": 1}, key="k", namespace=("a", "b"), created_at=now, updated_at=now)
    assert Values().from_json(Values().to_json(item)) == item


def test_data_of_other_kinds_is_plain_data() -> None:
    values = Values()
    for value, plain in [
        (defaultdict(list, a=[1]), {"a": [1]}),
        (OrderedDict(a=1), {"a": 1}),
        (Counter("aa"), {"a": 2}),
        (ValueError("x"), "ValueError('x')"),
    ]:
        assert values.from_json(values.to_json(value)) == plain


OWN = [Colour.RED, Model(name="a"), Data(1, Colour.RED), Point(1, 2)]


@pytest.mark.parametrize("value", OWN, ids=lambda value: type(value).__name__)
def test_a_class_that_is_not_allowed_is_refused_with_the_way_to_allow_it(value: Any) -> None:
    with pytest.raises(clew.InvalidInput, match=r"allow=\["):
        Values().to_json({"deep": [value]})


@pytest.mark.parametrize("value", OWN, ids=lambda value: type(value).__name__)
def test_a_class_that_is_allowed_comes_back(value: Any) -> None:
    kinds = [type(value), Colour]
    names = [(kind.__module__, kind.__qualname__) for kind in kinds]
    json = Values(kinds).to_json(value)
    for allowed in (Values(kinds), Values(names), Values().allowing(names)):
        assert allowed.from_json(json) == value
    with pytest.raises(clew.InvalidInput, match="is stored here"):
        Values().from_json(json)


def test_what_is_no_data_at_all_is_refused() -> None:
    for value in (object(), lambda: 1, os, iter([])):
        with pytest.raises(clew.InvalidInput):
            Values([type(value)]).to_json(value)


@pytest.mark.parametrize(
    "payload",
    [
        {"~": "object", "class": ["os", "system"], "v": "echo executed"},
        {"~": "object", "class": ["subprocess", "Popen"], "v": {"args": "echo executed"}},
        {"~": "object", "class": 5, "v": {}},
        {"~": "object"},
        {"~": "nothing", "v": 1},
        {"~": ["list"], "v": 1},
        {"~": "message", "v": {"type": "os.system"}},
        {"~": "message", "v": {"type": "human", "content": 5}},
        {"~": "send", "v": {"__class__": 1}},
        {"~": "uuid", "v": "no uuid"},
    ],
)
def test_a_payload_that_was_tampered_with_is_an_error(payload: Any) -> None:
    with pytest.raises((clew.InvalidInput, clew.Corrupt)):
        Values([Model]).from_json(payload)


def test_constructor_tags_of_other_serializers_are_plain_data() -> None:
    for payload in (
        {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": "x"}},
        {"lc": 2, "type": "constructor", "id": ["os", "system"], "args": ["x"]},
        {"__reduce__": "x", "py/object": "os.system"},
    ):
        assert Values().from_json(Values().to_json(payload)) == payload


def test_bytes_of_other_forms_are_not_read() -> None:
    values = Values()
    assert values.loads_typed(values.dumps_typed({"a": (1,)})) == {"a": (1,)}
    for form in ("pickle", "msgpack", "json"):
        with pytest.raises(clew.InvalidInput):
            values.loads_typed((form, b"{}"))


def test_a_refused_value_leaves_nothing_behind(store: clew.Store) -> None:
    saver = ClewSaver(store)
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"fine": 1, "mine": Model(name="x")}
    with pytest.raises(clew.InvalidInput, match="Model"):
        saver.put(config, checkpoint, {}, {})
    assert saver.get_tuple(config) is None
    allowed = saver.with_allowlist([(Model.__module__, "Model")])
    allowed.put(config, checkpoint, {}, {})
    found = allowed.get_tuple(config)
    assert found is not None
    assert found.checkpoint["channel_values"]["mine"] == Model(name="x")
    with pytest.raises(clew.InvalidInput):
        saver.get_tuple(config)


def test_every_value_comes_back_as_a_channel_of_its_own(store: clew.Store) -> None:
    saver = ClewSaver(store)
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    checkpoint = empty_checkpoint()
    several = [[value, value] for value in PLAIN]
    checkpoint["channel_values"] = {
        f"c{number}": value for number, value in enumerate([*PLAIN, *MESSAGES, *several, MESSAGES])
    }
    saver.put(config, checkpoint, {}, {})
    for checked in (saver, ClewSaver(store)):
        found = checked.get_tuple(config)
        assert found is not None
        assert found.checkpoint["channel_values"] == checkpoint["channel_values"]


STRICT = """
import enum
from typing import TypedDict
from langgraph.graph import START, StateGraph
from clew.adapters.langgraph import ClewSaver
import clew

class Colour(enum.Enum):
    RED = "red"

class State(TypedDict):
    colour: Colour

graph = StateGraph(State)
graph.add_node("paint", lambda state: {"colour": Colour.RED})
graph.add_edge(START, "paint")
compiled = graph.compile(checkpointer=ClewSaver(clew.open("memory:")))
config = {"configurable": {"thread_id": "t"}}
compiled.invoke({"colour": Colour.RED}, config)
print(compiled.get_state(config).values)
"""


def test_a_graph_allows_the_classes_of_its_schema_where_langgraph_is_strict() -> None:
    environment = {**os.environ, "LANGGRAPH_STRICT_MSGPACK": "true"}
    run = [sys.executable, "-W", "ignore", "-c", STRICT]
    out = subprocess.run(run, env=environment, capture_output=True, text=True, check=True)
    assert "Colour.RED" in out.stdout
