"""JSON comes back exactly or is refused with its place; ids sort; hashes are stable."""

from __future__ import annotations

import json
import math
import os
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from clew.core import codec
from clew.core.errors import Corrupt, InvalidInput, TooLarge

# Text of any code points, lone surrogates included. A surrogate pair is one character in JSON.
text = st.text(st.characters(exclude_categories=())).map(
    lambda s: s.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
)
numbers = st.integers(codec.INT_MIN, codec.INT_MAX) | st.floats(
    allow_nan=False, allow_infinity=False
)
values = st.recursive(
    st.none() | st.booleans() | numbers | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=20,
)


def exactly(a: Any, b: Any) -> bool:
    """Equal, of the same types, in the same order, with the same sign of zero."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(exactly(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(exactly, a, b))
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    return bool(a == b)


@given(values)
def test_every_json_value_survives_the_round_trip(value: Any) -> None:
    data = codec.encode(value)
    assert exactly(codec.decode(data), value)
    assert exactly(json.loads(data), value), "any other JSON reader must agree"


@given(values)
def test_canonical_bytes_are_a_fixed_point(value: Any) -> None:
    data = codec.encode(value)
    assert codec.parse(data) == data
    assert codec.encode(codec.decode(data)) == data


@given(values)
def test_raw_json_with_spaces_and_escapes_is_the_same_value(value: Any) -> None:
    raw = json.dumps(value, indent=1, ensure_ascii=True)
    assert codec.parse(raw) == codec.encode(value)


def nested(depth: int, leaf: Any = 0) -> Any:
    for _ in range(depth):
        leaf = {"a": leaf}
    return leaf


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (float("nan"), "$"),
        ({"a": [1, float("inf")]}, "$.a[1]"),
        ({"a": 2**64}, "$.a"),
        ([-(2**63) - 1], "$[0]"),
        ({1: "key"}, "$"),
        ({"when": object()}, "$.when"),
        ({"raw": b"bytes"}, "$.raw"),
        ({"many": {1, 2}}, "$.many"),
        (nested(codec.NESTING_MAX + 1), None),
        (nested(100_000), None),
    ],
)
def test_what_json_cannot_carry_is_refused_with_its_place(value: Any, path: str | None) -> None:
    with pytest.raises(InvalidInput) as caught:
        codec.encode(value)
    assert caught.value.field == "body"
    if path is not None:
        assert caught.value.path == path


def test_a_cycle_is_refused_and_does_not_hang() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(InvalidInput, match="nested"):
        codec.encode(cycle)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'{"a":1,"a":2}', "twice"),
        (b'{"a":{"b":1, "b":1}}', "twice"),
        (b"NaN", "NaN"),
        (b"[-Infinity]", "Infinity"),
        (b"1e400", "lose value"),
        (b"1e-400", "lose value"),
        (b"0.10000000000000000555", "lose value"),
        (b"18446744073709551616", "64 bits"),
        (b"9" * 10_000, "64 bits"),
        (b"1." + b"0" * 1000, "lose value"),
        (b"[" * 201 + b"]" * 201, "nested"),
        (b"[" * 100_000, "nested"),
        (b"{", "not JSON"),
        (b"[1] x", "not JSON"),
        (b"", "not JSON"),
        (b'"\xff"', "not JSON"),
        (b"\xef\xbb\xbf1", "not JSON"),
    ],
)
def test_raw_json_that_would_lose_something_is_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        codec.parse(raw)


@pytest.mark.parametrize(
    ("raw", "data"),
    [
        (b" [1 , 2.50] ", b"[1,2.5]"),
        (b"1e2", b"100.0"),
        (b"-0.0", b"-0.0"),
        (b'"\\u0041\\/"', b'"A/"'),
        (b'"\\ud83d\\ude00"', '"😀"'.encode()),
        (b'"\\ud83d"', b'"\\ud83d"'),
        (b'{"b":1,"a":2}', b'{"b":1,"a":2}'),
        (b"[" * 200 + b"]" * 200, b"[" * 200 + b"]" * 200),
    ],
)
def test_raw_json_is_brought_into_the_canonical_form(raw: bytes, data: bytes) -> None:
    assert codec.parse(raw) == data
    assert codec.encode(raw) == data, "bytes are raw JSON at the door"


def test_limits_hold_before_and_after_encoding() -> None:
    with pytest.raises(TooLarge) as caught:
        codec.encode("x" * 99, limit=100)
    assert (caught.value.size, caught.value.limit) == (101, 100)
    with pytest.raises(TooLarge):
        codec.parse(b" " * 101, limit=100)
    assert len(codec.encode("x" * 98, limit=100)) == 100


def test_what_decodes_as_unicode_has_no_lone_surrogate() -> None:
    """Contexts rely on it: they look for halves of characters only in what is refused."""
    shapes = (r'"\u%04x"', r'"a\u%04xb"', r'"\u%04x\n"', r'"\u%04x\u0041"', r'{"\u%04x":1}')
    for point in range(0xD800, 0xE000):
        for shape in shapes:
            data = (shape % point).encode()
            with pytest.raises(codec.REFUSALS):
                codec.decode_unicode(data)
            assert codec.decode(data) == json.loads(data)
    assert codec.decode_unicode(rb'"\ud83d\ude00"') == "\U0001f600"


def test_a_joined_pair_of_surrogates_becomes_its_character() -> None:
    assert codec.encode(["\ud83d" + "\ude00"]) == codec.encode(["😀"])
    mixed = codec.encode("\ud83d\ude00 and \ud83d")
    assert mixed == codec.encode("😀 and \ud83d")
    assert codec.decode(mixed) == "😀 and \ud83d"


def test_tuples_are_arrays() -> None:
    assert codec.encode({"a": (1, ("b",))}) == b'{"a":[1,["b"]]}'


def test_damaged_bytes_are_reported_as_corrupt() -> None:
    with pytest.raises(Corrupt):
        codec.decode(b'{"a":')


def test_hashes_name_their_algorithm() -> None:
    empty = "b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    assert codec.digest(b"") == empty


@given(st.lists(st.none() | st.text(st.characters(exclude_characters="\0")), max_size=4))
def test_fields_cannot_run_into_each_other(fields: list[str | None]) -> None:
    assert codec.digest_fields(*fields, "a", "b") != codec.digest_fields(*fields, "ab", "")


def test_ids_sort_in_the_order_they_were_minted() -> None:
    minted = [codec.new_id() for _ in range(5000)]
    assert minted == sorted(minted)
    assert len(set(minted)) == 5000
    assert {len(id) for id in minted} == {26}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_mints_other_ids() -> None:
    codec.new_id()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, "\n".join(codec.new_id() for _ in range(200)).encode())
        os._exit(0)
    mine = {codec.new_id() for _ in range(200)}
    os.waitpid(child, 0)
    theirs = set(os.read(read, 100_000).decode().split("\n"))
    os.close(read)
    os.close(write)
    assert len(theirs) == 200
    assert not mine & theirs


# --- ids, number by number ---

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def number_of(id: str) -> int:
    """The number that an id is written from: 26 digits of base 32, of which 25.6 are used."""
    return int("".join("0123456789abcdefghijklmnopqrstuv"[ALPHABET.index(c)] for c in id), 32)


@given(st.integers(1, 2**48 - 1), st.integers(0, 2**79 - 1))
def test_an_id_is_its_milliseconds_and_then_its_random_bits(ms: int, bits: int) -> None:
    """Ids sort by time across processes and versions only if they are written so for ever."""
    ids = codec._Ids()
    ids._bits = lambda wanted: bits if wanted == 79 else pytest.fail("other bits were asked for")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec.time, "time_ns", lambda: ms * 1_000_000 + 999_999)
        id = ids.mint()
    assert len(id) == 26
    assert number_of(id) == ms << 80 | bits


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=30), st.integers(0, 2**32 - 1))
def test_ids_grow_whatever_the_clock_does(steps: list[int], bits: int) -> None:
    ids, now, seen = codec._Ids(), 1_700_000_000_000, [""]
    ids._bits = lambda wanted: min(bits, 2**wanted - 1)
    with pytest.MonkeyPatch.context() as patch:
        for step in steps:
            now += step
            patch.setattr(codec.time, "time_ns", lambda now=now: now * 1_000_000)
            seen.append(ids.mint())
    assert seen == sorted(set(seen)), "one that is no greater than the last would be given twice"


# --- where a limit lies ---


@pytest.mark.parametrize("number", [2**64 - 1, -(2**63)])
def test_the_outermost_integers_come_back_also_from_text_with_blanks(number: int) -> None:
    assert codec.decode(codec.encode(number)) == number
    assert codec.parse(b"[ %d ]" % number) == b"[%d]" % number
    for beyond in (number + 1, number - 1):
        if not -(2**63) <= beyond <= 2**64 - 1:
            for raw in (b"%d" % beyond, b"[ %d ]" % beyond):
                with pytest.raises(InvalidInput):
                    codec.parse(raw)
            with pytest.raises(InvalidInput):
                codec.encode([beyond])


def test_a_number_that_is_spelled_at_length_is_taken_if_it_is_exact() -> None:
    spelled = b"0.5" + b"0" * 397
    assert codec.parse(b"[ " + spelled + b" ]") == b"[0.5]"
    with pytest.raises(InvalidInput):
        codec.parse(b"[ " + spelled + b"0 ]")


@pytest.mark.parametrize("leaf", ["x", "\ud800"])  # the fast way, and the one with care
@pytest.mark.parametrize("make", [lambda v: [v], lambda v: {"a": v}, lambda v: [v, 1.5]])
def test_the_deepest_nesting_is_taken_and_one_more_is_refused(make: Any, leaf: str) -> None:
    value: Any = leaf
    for _ in range(codec.NESTING_MAX):
        value = make(value)
    data = codec.encode(value)
    assert codec.decode(data) == value
    assert codec.parse(data) == data
    assert codec.parse(json.dumps(value, indent=1)) == data
    for ask in (codec.encode, lambda v: codec.parse(json.dumps(v)), _parse_compact):
        with pytest.raises(InvalidInput, match="nested"):
            ask(make(value))


def _parse_compact(value: Any) -> bytes:
    return codec.parse(json.dumps(value, separators=(",", ":")))


def test_a_limit_is_the_last_size_that_is_taken() -> None:
    for value in ({"a": "xyz"}, ["xyz"], ["\ud800"]):
        size = len(codec.encode(value))
        assert len(codec.encode(value, limit=size)) == size
        assert codec.parse(codec.encode(value), limit=size) == codec.encode(value)
        for ask in (codec.encode, lambda v, limit: codec.parse(codec.encode(v), limit=limit)):
            with pytest.raises(TooLarge) as refused:
                ask(value, limit=size - 1)
            assert (refused.value.size, refused.value.limit) == (size, size - 1)


def test_a_large_value_comes_back_as_a_small_one_does() -> None:
    for length in (1024 * 1024 - 3, 1024 * 1024 - 2, 1024 * 1024):
        data = codec.encode("x" * length)
        assert codec.decode(data) == "x" * length


@given(st.binary(min_size=32, max_size=32))
def test_a_hash_and_its_bytes_are_each_others(data: bytes) -> None:
    hash = codec.to_hash(data)
    assert codec.to_bytes(hash) == data
    for other in (hash.upper(), hash[:5] + " " + hash[5:], "xx:" + hash[3:], hash[3:], hash + "g"):
        if other != hash:
            assert codec.to_bytes(other) != data, "a text that is no hash is found under none"
