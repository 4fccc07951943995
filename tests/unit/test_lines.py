"""A line of a thread's file: what lacks something is no record, and says so before it is used."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clew.core.errors import Corrupt
from clew.core.lines import (
    Header,
    declared_version,
    header_line,
    parse,
    parse_header,
    summed,
    take_apart,
)
from clew.core.model import ThreadDraft
from clew.core.tombstones import from_stored

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


def test_a_line_that_only_begins_as_one_is_no_record() -> None:
    whole = line(FACT | {"key": "title", "value": "\ud800"})
    assert take_apart(whole, "here").key == "title"
    for end in range(1, len(whole)):
        with pytest.raises(Corrupt, match="the line is not a record"):
            take_apart(whole[:end], "here")


def test_a_header_with_another_hash_or_key_than_it_could_have_is_refused() -> None:
    draft = ThreadDraft(id="t", created_us=5)
    whole = header_line(Header("k1", draft)).removesuffix(b"\n")
    assert parse_header(whole, "here").key == "k1"
    unsealed = whole[: whole.rindex(b',"sum"')]
    for old, new, reason in (
        (b"00.000005Z", b"00.000006Z", "does not match its hash"),
        (b'"k1"', b'"../k1"', "is not the key of a thread"),
        (b'"k1"', b'"\xc3\xa9"', "is not the key of a thread"),
        (b"1970-", b"0000-", "the header cannot be read"),
    ):
        assert old in unsealed
        changed = summed(b"", unsealed.replace(old, new)).removesuffix(b"\n")
        with pytest.raises(Corrupt, match=reason):
            parse_header(changed, "here")
        with pytest.raises(Corrupt, match="its checksum"):
            parse_header(whole.replace(old, new), "here")


def test_a_tombstone_of_no_time_is_none_and_the_body_is_missing() -> None:
    whole = b'{"erased_us":%d,"size":0,"meta_hash":null,"body":1}'
    assert from_stored(whole % 5, None, "here").time_us == 5
    for stored, reason in (
        (whole % -(10**18), "says no time"),
        (whole % 10**18, "says no time"),
        (b'{"erased_us":5}', "its body is missing"),
        (None, "its body is missing"),
    ):
        with pytest.raises(Corrupt, match=f"here: .*{reason}"):
            from_stored(stored, None, "here")


def test_only_a_file_of_ours_declares_a_version_of_ours() -> None:
    assert declared_version(b'{"format":"clew.thread","version":9}') == 9
    assert declared_version(b'{"format":"other.thread","version":9}') is None
    assert declared_version(b"not json") is None
