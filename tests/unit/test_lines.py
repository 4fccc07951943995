"""A line of a thread's file: what lacks something is no record, and says so before it is used."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clew.core.errors import Corrupt
from clew.core.lines import declared_version, parse, summed, take_apart

ENTRY = {"seq": 3, "type": "entry", "kind": "event", "time": "2023-11-14T22:13:20.000001Z"}
ENTRY |= {"id": "e", "parent": None, "body_hash": "b3:" + "1" * 64, "hash": "b3:" + "2" * 64}
FACT = {"seq": 3, "type": "fact", "time": "2023-11-14T22:13:20.000001Z", "id": "f"}
FACT |= {"hash": "b3:" + "2" * 64}


def line(members: dict[str, Any]) -> bytes:
    text = json.dumps(members, separators=(",", ":")).encode()
    return summed(b"t", text[:-1]).removesuffix(b"\n")


@pytest.mark.parametrize(
    "members",
    [
        FACT | {"key": "title"},
        FACT | {"value": 1},
        {name: value for name, value in ENTRY.items() if name != "kind"},
        {name: value for name, value in ENTRY.items() if name != "body_hash"},
        ENTRY | {"type": "wish"},
    ],
)
def test_a_line_without_what_its_type_must_have_is_no_record(members: dict[str, Any]) -> None:
    with pytest.raises(Corrupt, match="here: the line is not a record: it lacks"):
        parse(b"t", line(members), "here")


@pytest.mark.parametrize("given", [{"value": None}, {"value_blob": "b3:" + "3" * 64}])
def test_a_fact_has_its_value_in_the_line_or_elsewhere(given: dict[str, Any]) -> None:
    found = parse(b"t", line(FACT | {"key": "title"} | given), "here")
    assert found.spilled == given.get("value_blob")


def test_an_entry_whose_body_is_gone_is_not_read_as_one_with_an_empty_body() -> None:
    found = take_apart(line(ENTRY), "here")
    assert found.lacks_body
    with pytest.raises(Corrupt, match="record 3 of 't': its body is missing"):
        found.record("t")
    assert found.record("t", b"{}").body == {}, "unless there is something to put there"


def test_only_a_file_of_ours_declares_a_version_of_ours() -> None:
    assert declared_version(b'{"format":"clew.thread","version":9}') == 9
    assert declared_version(b'{"format":"other.thread","version":9}') is None
    assert declared_version(b"not json") is None
