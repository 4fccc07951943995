"""Nothing of a file is lost or made up while it is read, whatever state it is in."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from clew.core.codec import encode
from clew.interchange import values
from clew.interchange.values import Lines, Unreadable, Value, _zstd, check_unpacked, open_values

OBJECTS = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=5,
    ),
    max_size=4,
)


def read(data: bytes, **options: Any) -> tuple[list[Value], dict[str, int], Lines]:
    notes: dict[str, int] = {}

    def note(name: str, place: str) -> None:
        notes[name] = notes.get(name, 0) + 1

    lines = Lines(io.BytesIO(data), note, **options)
    return list(lines), notes, lines


@given(st.lists(st.tuples(OBJECTS, st.sampled_from(["\n", "", " ", "\n\n", "\r\n"])), max_size=8))
def test_every_value_comes_back_also_where_two_are_glued_on_one_line(
    parts: list[tuple[dict[str, Any], str]],
) -> None:
    text = "".join(json.dumps(value) + between for value, between in parts)
    values, notes, lines = read(text.encode())
    assert [value.value for value in values] == [value for value, _ in parts]
    assert [value.data for value in values] == [encode(value) for value, _ in parts]
    assert notes.keys() <= {"glued"}
    assert lines.end == len(text.encode())


@given(OBJECTS.filter(bool), st.data())
def test_a_torn_tail_is_left_for_the_time_when_there_is_more_of_it(
    value: dict[str, Any], data: st.DataObject
) -> None:
    whole = encode(value) + b"\n"
    cut = data.draw(st.integers(1, len(whole) - 2))
    values, notes, lines = read(whole + whole[:cut])
    assert [one.value for one in values] == [value]
    assert notes == {"torn": 1}
    assert lines.end == len(whole)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_json_are_kept_so_that_they_can_be_made_again(junk: bytes) -> None:
    junk = junk.replace(b"\n", b"").strip()
    values, _, _ = read(b'{"a":1}\n' + junk + b"\n" + b'{"b":2}\n')
    assert values[0].value == {"a": 1}
    assert values[-1].value == {"b": 2}
    kept = b"".join(
        v.value.encode("utf-8", "surrogateescape") if v.text else v.data for v in values[1:-1]
    )
    assert not junk or kept.replace(b" ", b"") == junk.replace(b" ", b"") or not values[1].text


def test_a_message_with_bytes_that_are_no_utf8_is_still_a_message() -> None:
    values, notes, _ = read(b'{"text":"caf\xe9"}\n')
    assert notes == {"invalid_utf8": 1}
    text = values[0].value["text"]
    assert text.encode("utf-8", "surrogateescape") == b"caf\xe9"


@pytest.mark.parametrize("text", ['{"a":1,"a":2}', '{"a":1e999}', '{"n":123456789012345678901}'])
def test_json_that_would_not_come_back_exactly_is_kept_as_its_text(text: str) -> None:
    values, notes, _ = read(text.encode() + b"\n")
    assert (values[0].text, values[0].value) == (True, text)
    assert notes == {"inexact": 1}


def test_a_line_that_is_too_long_is_named_and_never_in_memory_and_the_rest_is_read() -> None:
    class Counting(io.BytesIO):
        most = 0

        def readline(self, size: int | None = -1, /) -> bytes:
            found = super().readline(size)
            self.most = max(self.most, len(found))
            return found

    file = Counting(b'{"a":1}\n{"b":"' + b"x" * 5_000_000 + b'"}\n{"c":3}\n')
    named: list[str] = []
    lines = Lines(file, lambda name, place: named.append(f"{name} {place}"), line_bytes_max=1000)
    assert [value.value for value in lines] == [{"a": 1}, {"c": 3}]
    assert lines.skipped == 1
    assert named == ["too_long line 2 has 5,000,009 bytes; at most 1,000 fit"]
    assert file.most <= 1024 * 1024


def test_a_compressed_file_reads_as_what_it_holds_and_a_bomb_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b'{"a":1}\n' + b'{"b":"' + b"x" * 1000 + b'"}\n'
    path = tmp_path / "rollout.jsonl.zst"
    path.write_bytes(_zstd().compress(data))
    with open_values(path) as file:
        assert [v.value["a"] for v in Lines(file, lambda n, p: None) if "a" in v.value] == [1]
    check_unpacked(path)
    monkeypatch.setattr(values, "UNPACKED_BYTES_ALWAYS", 500)
    check_unpacked(path)
    path.write_bytes(_zstd().compress(data + b" " * 1_000_000))
    with pytest.raises(Unreadable, match="more than a session"):
        check_unpacked(path)
    path.write_bytes(_zstd().compress(data)[:-5])
    check_unpacked(path)  # torn: its beginning is read
    with pytest.raises(Unreadable), open_values(path) as file:
        list(Lines(file, lambda name, place: None))
