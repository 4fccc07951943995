"""Values of channels as JSON, and back, without ever following an import path that was stored.

What JSON has is stored as it is. What it lacks is an object with a tag, `{"~": name, "v": …}`, and
the table here says how each tag is read: Python's own types, LangChain's messages and documents,
LangGraph's own types. An object of any other class is refused when it is written, unless its class
is allowed; it is then stored as its fields, with the name of its class, and read where the class
is allowed. Stored bytes name a class, but only the caller's list says which ones there are.
"""

from __future__ import annotations

import base64
import copy
import dataclasses
import math
import pathlib
import re
from collections import deque
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from functools import partial
from importlib import import_module
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
)
from typing import Any, TypeAlias
from uuid import UUID
from zoneinfo import ZoneInfo

from langchain_core import messages as langchain
from msgspec import Struct

from clew.core.codec import INT_MAX, INT_MIN, decode, encode
from clew.core.errors import Corrupt, InvalidInput

Allowed: TypeAlias = Iterable[type | tuple[str, ...]]
Json: TypeAlias = Any

TAG = "~"

_MESSAGES: dict[str, type[langchain.BaseMessage]] = {
    "human": langchain.HumanMessage,
    "ai": langchain.AIMessage,
    "system": langchain.SystemMessage,
    "tool": langchain.ToolMessage,
    "function": langchain.FunctionMessage,
    "chat": langchain.ChatMessage,
    "remove": langchain.RemoveMessage,
    "HumanMessageChunk": langchain.HumanMessageChunk,
    "AIMessageChunk": langchain.AIMessageChunk,
    "SystemMessageChunk": langchain.SystemMessageChunk,
    "ToolMessageChunk": langchain.ToolMessageChunk,
    "FunctionMessageChunk": langchain.FunctionMessageChunk,
    "ChatMessageChunk": langchain.ChatMessageChunk,
}
MESSAGE_TYPES = {kind: name for name, kind in _MESSAGES.items()}
_NONE = type(None)

# What a message has where nothing is said: by its type, the fields that are empty, and of which
# kind, and those that are not.
_EMPTY: dict[str, dict[str, type]] = {}
_FIXED: dict[str, dict[str, Any]] = {}
for _type, _message in _MESSAGES.items():
    _defaults = {
        name: field.get_default(call_default_factory=True)
        for name, field in _message.model_fields.items()
        if not field.is_required()
    }
    _EMPTY[_type] = {
        name: type(value) for name, value in _defaults.items() if value is None or value in ({}, [])
    }
    _FIXED[_type] = {name: value for name, value in _defaults.items() if name not in _EMPTY[_type]}

# The fields that most messages have, and what is in them.
_USUAL: dict[str, type] = {
    **dict.fromkeys(("type", "content", "id", "name", "status", "tool_call_id"), str),
    **dict.fromkeys(("additional_kwargs", "response_metadata", "usage_metadata"), dict),
}

# Classes that LangGraph itself puts into a state: tag → module, class, fields. They are imported
# by what stands here, when one of them is met.
_OWN: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "send": ("langgraph.types", "Send", ("node", "arg", "timeout")),
    "interrupt": ("langgraph.types", "Interrupt", ("value", "id", "response_schema")),
    "command": ("langgraph.types", "Command", ("graph", "update", "resume", "goto")),
    "overwrite": ("langgraph.types", "Overwrite", ("value",)),
    "timeout": ("langgraph.types", "TimeoutPolicy", ("run_timeout", "idle_timeout", "refresh_on")),
    "task": (
        "langgraph.types",
        "PregelTask",
        ("id", "name", "path", "error", "interrupts", "state", "result"),
    ),
    "snapshot": (
        "langgraph.types",
        "StateSnapshot",
        (
            "values",
            "next",
            "config",
            "metadata",
            "created_at",
            "parent_config",
            "tasks",
            "interrupts",
        ),
    ),
    "item": (
        "langgraph.store.base",
        "Item",
        ("value", "key", "namespace", "created_at", "updated_at"),
    ),
    "get": ("langgraph.store.base", "GetOp", ("namespace", "key", "refresh_ttl")),
    "delta": ("langgraph.checkpoint.serde.types", "_DeltaSnapshot", ("value",)),
    "document": ("langchain_core.documents.base", "Document", ("page_content", "metadata", "id")),
}
_OWN_TAGS = {(module, name): tag for tag, (module, name, _) in _OWN.items()}

_ADDRESSES: dict[str, type] = {
    kind.__name__: kind
    for kind in (IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network)
}


class Foreign(Struct, frozen=True):
    """An object of a class that was only read of: its fields, to be stored under its name."""

    module: str
    name: str
    data: Any


class Values:
    """How values are stored, with the classes of the caller's that are allowed."""

    def __init__(self, allow: Allowed = ()) -> None:
        # A class that was given itself needs no import; one that was named is imported when the
        # first value of it is read.
        self._allowed: dict[tuple[str, str], type | None] = {}
        self._allow(allow)

    def allowing(self, allow: Allowed) -> Values:
        """The same with more classes allowed."""
        wider = copy.copy(self)
        wider._allowed = dict(self._allowed)
        wider._allow(allow)
        return wider

    def _allow(self, allow: Allowed) -> None:
        for one in allow:
            if isinstance(one, type):
                self._allowed[(one.__module__, one.__qualname__)] = one
            elif isinstance(one, tuple) and len(one) == 2 and all(isinstance(n, str) for n in one):
                self._allowed.setdefault((one[0], one[1]), None)
            else:
                reason = f'takes classes, or names like ("my.module", "MyClass"), not {one!r}'
                raise InvalidInput("allow", reason)

    # --- what LangGraph calls a serializer --------------------------------------------------

    def dumps_typed(self, value: Any) -> tuple[str, bytes]:
        """A value as bytes, with the name of their form."""
        return "clew-json", encode(self.to_json(value), field="checkpoint")

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """The value of such bytes. Of any other form there is none: pickles least of all."""
        form, content = data
        if form != "clew-json":
            raise InvalidInput("checkpoint", f"bytes in the form {form!r} are not read here")
        return self.from_json(decode(content))

    # --- to JSON ----------------------------------------------------------------------------

    def to_json(self, value: Any) -> Json:
        kind = type(value)
        if kind in _PLAIN:
            return value
        writer = _WRITERS.get(kind)
        if writer is not None:
            return writer(self, value)
        if kind in MESSAGE_TYPES:
            return _tagged("message", self.message_to_json(value))
        own = _OWN_TAGS.get((kind.__module__, kind.__qualname__))
        if own is not None:
            return _tagged(own, self._own_fields(value, _OWN[own][2]))
        return self._other(value)

    def message_to_json(self, message: Any) -> dict[str, Json]:
        """A message in LangChain's own field names, without what is empty by default."""
        kind = MESSAGE_TYPES[type(message)]
        empty = _EMPTY[kind]
        found: dict[str, Json] = {"type": kind, "content": ""}
        for name, value in message.__dict__.items():
            if type(value) is str:
                found[name] = value
            elif value or name not in empty or type(value) is not empty[name]:
                found[name] = self.to_json(value)
        for name, value in (message.__pydantic_extra__ or {}).items():
            found[name] = self.to_json(value)
        return found

    def _own_fields(self, value: Any, names: tuple[str, ...]) -> Json:
        found = {name: getattr(value, name, None) for name in names}
        if isinstance(found.get("response_schema"), type):
            found["response_schema"] = None  # a class of the program's, which it brings again
        return {name: self.to_json(part) for name, part in found.items() if part is not None}

    def _other(self, value: Any) -> Json:
        """What no table names: an object of an allowed class, or data of a subclass."""
        kind = type(value)
        if kind is Foreign:
            return {
                TAG: "object",
                "class": [value.module, value.name],
                "v": self.to_json(value.data),
            }
        if isinstance(value, BaseException):
            return repr(value)  # as LangGraph's own savers store the error of a task
        fields = _fields(value)
        if fields is None:
            for base, write in _BASES:
                if isinstance(value, base):
                    return write(self, value)
        named = (kind.__module__, kind.__qualname__)
        if fields is None or named not in self._allowed:
            raise InvalidInput("checkpoint", _refusal(named, "would be stored", fields is not None))
        return {TAG: "object", "class": [*named], "v": self.to_json(fields)}

    # --- from JSON --------------------------------------------------------------------------

    def from_json(self, found: Json) -> Any:
        kind = type(found)
        if kind is list:
            return [self.from_json(one) for one in found]
        if kind is not dict:
            return found
        tag = found.get(TAG)
        if tag is None:
            return {key: self.from_json(value) for key, value in found.items()}
        try:
            return self._read(tag, found)
        except InvalidInput:
            raise
        except Exception as error:
            # Whatever a constructor says of fields that it cannot take: the bytes are not ours.
            raise Corrupt("a value of a checkpoint", f"{tag!r} cannot be read: {error}") from error

    def message_from_json(self, found: dict[str, Json]) -> Any:
        """The message; `found` was decoded for this, and is used up."""
        usual = True
        for name, value in found.items():
            if type(value) is not str:
                value = found[name] = self.from_json(value)
            usual = usual and type(value) is _USUAL.get(name)
        name = found["type"]
        kind = _MESSAGES[name]
        if not usual:
            return kind(**found)
        # Fields that were a message's before need not be judged again, which is most of what a
        # constructor does. So a message is what it was, whatever a newer one would make of it.
        fields = {**_FIXED[name]}
        for empty, of in _EMPTY[name].items():
            fields[empty] = None if of is _NONE else of()
        fields.update(found)
        message: Any = object.__new__(kind)
        object.__setattr__(message, "__dict__", fields)
        object.__setattr__(message, "__pydantic_fields_set__", set(found))
        object.__setattr__(message, "__pydantic_extra__", {})
        object.__setattr__(message, "__pydantic_private__", None)
        return message

    def _read(self, tag: Any, found: dict[str, Json]) -> Any:
        payload = found.get("v")
        if tag == "message":
            return self.message_from_json(found["v"])
        if tag == "object":
            return self._rebuilt(found)
        if tag in _OWN:
            module, name, names = _OWN[tag]
            fields = {key: self.from_json(part) for key, part in found["v"].items() if key in names}
            # Fields that were None are not stored; those without a default are given it again.
            if tag in ("snapshot", "interrupt", "delta", "overwrite"):
                fields = {**dict.fromkeys(names), **fields}
            return getattr(import_module(module), name)(**fields)
        reader = _READERS.get(tag)
        if reader is None:
            raise InvalidInput("checkpoint", f"{tag!r} is no tag that this release writes")
        return reader(self, payload)

    def _rebuilt(self, found: dict[str, Json]) -> Any:
        module, name = found["class"]
        if (module, name) not in self._allowed:
            raise InvalidInput("checkpoint", _refusal((module, name), "is stored here", True))
        kind = self._allowed[(module, name)]
        if kind is None:
            kind = _imported(module, name)
            self._allowed[(module, name)] = kind
        return _build(kind, self.from_json(found["v"]))


def _tagged(tag: str, value: Json) -> Json:
    return {TAG: tag, "v": value}


def _refusal(named: tuple[str, str], what: str, is_data: bool) -> str:
    module, name = named
    if not is_data:
        return f"a value of {module}.{name} {what}, which is neither data nor made of fields"
    return (
        f"an object of {module}.{name} {what}; classes are rebuilt only if they are allowed: "
        f"ClewSaver(…, allow=[{name}]) or allow=[({module!r}, {name!r})]"
    )


def _fields(value: Any) -> Any:
    """What an object is made of: the data that its class can be built from again."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(getattr(type(value), "model_fields", None), dict):  # pydantic
        return {**value.__dict__, **(getattr(value, "__pydantic_extra__", None) or {})}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()
    return None


def _build(kind: type, data: Any) -> Any:
    if issubclass(kind, Enum):
        return kind(data)
    if dataclasses.is_dataclass(kind):
        later = {field.name for field in dataclasses.fields(kind) if not field.init}
        built = kind(**{name: value for name, value in data.items() if name not in later})
        for name in later & data.keys():
            object.__setattr__(built, name, data[name])
        return built
    try:
        return kind(**data)
    except Exception:
        # A pydantic model may take its fields by other names, or refuse what it once accepted.
        construct = getattr(kind, "model_construct", None)
        if construct is None:
            raise
        return construct(**data)


def _imported(module: str, name: str) -> type:
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not isinstance(found, type):
        raise InvalidInput("allow", f"{module}.{name} is not a class")
    return found


# --- Python's own types ---------------------------------------------------------------------

_PLAIN = frozenset({str, bool, type(None)})


def _write_int(_: Values, value: int) -> Json:
    value = int(value)
    return value if INT_MIN <= value <= INT_MAX else _tagged("int", str(value))


def _write_float(_: Values, value: float) -> Json:
    value = float(value)
    return value if math.isfinite(value) else _tagged("float", repr(value))


def _write_list(values: Values, value: Iterable[Any]) -> Json:
    return [values.to_json(one) for one in value]


def is_plain_dict(value: dict[Any, Any]) -> bool:
    """Whether JSON can carry the keys of a dict, and no reader would take it for a tag."""
    return TAG not in value and all(type(key) is str for key in value)


def _write_dict(values: Values, value: dict[Any, Any]) -> Json:
    if not is_plain_dict(value):
        pairs = [[values.to_json(key), values.to_json(part)] for key, part in value.items()]
        return _tagged("dict", pairs)
    return {key: values.to_json(part) for key, part in value.items()}


def _read_dict(values: Values, found: Json) -> Any:
    return {values.from_json(key): values.from_json(value) for key, value in found}


def _write_datetime(values: Values, value: datetime) -> Json:
    naive = value.replace(tzinfo=None, fold=0).isoformat()
    return _tagged("datetime", [naive, values.to_json(value.tzinfo), value.fold])


def _read_datetime(values: Values, found: Json) -> datetime:
    naive, zone, fold = found
    return datetime.fromisoformat(naive).replace(tzinfo=values.from_json(zone), fold=fold)


def _write_time(values: Values, value: time) -> Json:
    naive = value.replace(tzinfo=None, fold=0).isoformat()
    return _tagged("time", [naive, values.to_json(value.tzinfo), value.fold])


def _read_time(values: Values, found: Json) -> time:
    naive, zone, fold = found
    return time.fromisoformat(naive).replace(tzinfo=values.from_json(zone), fold=fold)


def _write_zone(values: Values, value: timezone) -> Json:
    offset = value.utcoffset(None)
    named = value.tzname(None) if value != timezone(offset) or value.tzname(None) else None
    plain = timezone(offset).tzname(None) == named
    return _tagged("timezone", [values.to_json(offset), None if plain else named])


def _read_zone(values: Values, found: Json) -> timezone:
    offset, named = values.from_json(found[0]), found[1]
    return timezone(offset) if named is None else timezone(offset, named)


def _write_bytes(tag: str) -> Callable[[Values, Any], Json]:
    return lambda _, value: _tagged(tag, base64.b64encode(value).decode("ascii"))


def _write_items(tag: str) -> Callable[[Values, Any], Json]:
    return lambda values, value: _tagged(tag, _write_list(values, value))


def _write_text(tag: str) -> Callable[[Values, Any], Json]:
    return lambda _, value: _tagged(tag, str(value))


_WRITERS: dict[type, Callable[[Values, Any], Json]] = {
    int: _write_int,
    float: _write_float,
    list: _write_list,
    dict: _write_dict,
    tuple: _write_items("tuple"),
    set: _write_items("set"),
    frozenset: _write_items("frozenset"),
    deque: lambda values, value: _tagged("deque", [_write_list(values, value), value.maxlen]),
    bytes: _write_bytes("bytes"),
    bytearray: _write_bytes("bytearray"),
    datetime: _write_datetime,
    date: lambda _, value: _tagged("date", value.isoformat()),
    time: _write_time,
    timedelta: lambda _, v: _tagged("timedelta", [v.days, v.seconds, v.microseconds]),
    timezone: _write_zone,
    ZoneInfo: lambda _, value: _tagged("zone", value.key),
    UUID: _write_text("uuid"),
    Decimal: _write_text("decimal"),
    re.Pattern: lambda values, v: _tagged("pattern", [values.to_json(v.pattern), v.flags]),
}
for _kind in _ADDRESSES.values():
    _WRITERS[_kind] = _write_text(_kind.__name__)

# Subclasses of plain data are stored as that data, as LangGraph's own savers do.
_BASES: tuple[tuple[type, Callable[[Values, Any], Json]], ...] = (
    (str, lambda _, value: str.__str__(value)),
    (int, _write_int),
    (float, _write_float),
    (dict, _write_dict),
    (list, _write_list),
    (tuple, _write_items("tuple")),
    (set, _write_items("set")),
    (deque, _write_items("set")),
    (pathlib.PurePath, _write_text("path")),
)

_READERS: dict[str, Callable[[Values, Json], Any]] = {
    "int": lambda _, found: int(found),
    "float": lambda _, found: float(found),
    "dict": _read_dict,
    "tuple": lambda values, found: tuple([values.from_json(one) for one in found]),
    "set": lambda values, found: {values.from_json(one) for one in found},
    "frozenset": lambda values, found: frozenset([values.from_json(one) for one in found]),
    "deque": lambda values, found: deque(values.from_json(found[0]), found[1]),
    "bytes": lambda _, found: base64.b64decode(found, validate=True),
    "bytearray": lambda _, found: bytearray(base64.b64decode(found, validate=True)),
    "datetime": _read_datetime,
    "date": lambda _, found: date.fromisoformat(found),
    "time": _read_time,
    "timedelta": lambda _, found: timedelta(*found),
    "timezone": _read_zone,
    "zone": lambda _, found: ZoneInfo(found),
    "uuid": lambda _, found: UUID(found),
    "decimal": lambda _, found: Decimal(found),
    "pattern": lambda values, found: re.compile(values.from_json(found[0]), found[1]),
    "path": lambda _, found: pathlib.Path(found),
}
for _name, _kind in _ADDRESSES.items():
    _READERS[_name] = partial(lambda kind, _, found: kind(found), _kind)
