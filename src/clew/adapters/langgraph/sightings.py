"""Which objects of a list have been stored as what, so that they need not be written out again.

LangGraph hands a whole list over with every checkpoint, and all of its messages but the last are
the objects that it had before. To tell that they still say what they said takes a comparison with
a copy of their fields; to write them out takes ten times as long. A message may be changed in
place, so the object alone proves nothing. From the same copies messages are made again when a
checkpoint is read that was written, or read, a moment ago.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from pydantic import BaseModel

from clew.adapters.langgraph.elements import Item, item_of
from clew.adapters.langgraph.memory import Recent
from clew.adapters.langgraph.values import MESSAGE_TYPES, Values
from clew.core.codec import decode

Place = tuple[str, str]  # a journal, and a channel of it

_OUTSIDE = frozenset({"remove"})  # messages that tell a list something, and are none of its own
_SCALARS = frozenset({str, int, float, bool, type(None)})
_EMPTY: dict[type, Any] = {dict: {}, list: []}
_ALL = {kind: set(kind.model_fields) for kind in MESSAGE_TYPES}
_CONTAINERS: dict[type, list[tuple[str, Any]]] = {
    kind: [
        (name, field.default_factory)
        for name, field in kind.model_fields.items()
        if field.default_factory in _EMPTY
    ]
    for kind in MESSAGE_TYPES
}

# What sets the parts of a message, without a look at its class for each of them.
_set_fields = vars(BaseModel)["__dict__"].__set__
_set_names = vars(BaseModel)["__pydantic_fields_set__"].__set__
_set_extra = vars(BaseModel)["__pydantic_extra__"].__set__
_set_private = vars(BaseModel)["__pydantic_private__"].__set__


class _Sighting(Struct, frozen=True, gc=False):
    """An object, what it said, and what it is stored as. `plain`: it says nothing but texts."""

    value: Any
    fields: dict[str, Any]
    item: Item
    plain: bool

    def again(self) -> _Sighting:
        """Another object that says the same."""
        kind = type(self.value)
        fields = self.fields.copy()
        for name, container in _CONTAINERS[kind]:
            fields[name] = container()
        made: Any = object.__new__(kind)
        _set_fields(made, fields)
        # All fields are set, so that there is none that one of the objects could add for all.
        _set_names(made, _ALL[kind])
        _set_extra(made, {})
        _set_private(made, None)
        return _Sighting(made, self.fields, self.item, True)


class Sightings:
    """The objects of the lists that were read or written last."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._last: Recent[Place, list[_Sighting | None]] = Recent()

    def items(self, place: Place, values: Sequence[Any], *, told: bool) -> list[Item]:
        """The elements of a list. `told`: it is the conversation, so messages are messages."""
        before = self._last.get(place) or []
        elsewhere: dict[int, _Sighting] | None = None
        found: list[Item] = []
        sightings: list[_Sighting | None] = []
        for index, value in enumerate(values):
            sighting = before[index] if index < len(before) else None
            if sighting is None or sighting.value is not value:
                # What comes behind a list that is as it was is new.
                if elsewhere is None and index < len(before):
                    elsewhere = {id(one.value): one for one in before if one is not None}
                sighting = None if elsewhere is None else elsewhere.get(id(value))
            if (
                sighting is not None
                and value.__dict__ == sighting.fields
                and not value.__pydantic_extra__
            ):
                item = sighting.item
            else:
                item = self._item(value, told)
                sighting = _sighting(value, item)
            found.append(item)
            sightings.append(sighting)
        self._last[place] = sightings
        return found

    def restored(self, place: Place, items: Sequence[Item], *, remember: bool) -> list[Any]:
        """The list that elements are of: objects that no other list has.

        `remember`: a checkpoint is likely to follow in which most of them are the same.
        """
        before = self._last.get(place) or []
        found: list[Any] = []
        sightings: list[_Sighting | None] = []
        for index, item in enumerate(items):
            sighting = before[index] if index < len(before) else None
            if sighting is not None and sighting.plain and sighting.item is item:
                sighting = sighting.again()
                value = sighting.value
            else:
                json = decode(item.data)
                read = self._values.message_from_json if item.message else self._values.from_json
                value = read(json)
                sighting = _sighting(value, item) if remember else None
            found.append(value)
            sightings.append(sighting)
        if remember:
            self._last[place] = sightings
        return found

    def _item(self, value: Any, told: bool) -> Item:
        name = MESSAGE_TYPES.get(type(value))
        if told and name is not None and name not in _OUTSIDE:
            return item_of(self._values.message_to_json(value), message=True)
        return item_of(self._values.to_json(value))


def _sighting(value: Any, item: Item) -> _Sighting | None:
    """What is remembered of an object; of one that cannot be compared, nothing."""
    if type(value) not in MESSAGE_TYPES or value.__pydantic_extra__:
        return None
    fields: dict[str, Any] = value.__dict__.copy()
    plain = True
    for name, part in fields.items():
        if type(part) in _EMPTY and not part:
            fields[name] = _EMPTY[type(part)]  # one for all: there are thousands of them
            plain = plain and (name, type(part)) in _CONTAINERS[type(value)]
        elif type(part) not in _SCALARS:
            plain = False
            try:
                fields[name] = copy.deepcopy(part)
            except Exception:
                return None  # an artifact of a tool may be anything
    return _Sighting(value, fields, item, plain)
