"""Bodies: what went in comes out, small or large."""

from __future__ import annotations

from typing import Any

from clew.core import codec
from clew.core.errors import InvalidInput, NotFound
from clew.core.model import EntryDraft
from clew.testing.cases.base import T0, Cases, Place, entry, refused, thread, whole

CASES = Cases()


def _nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


VALUES: list[Any] = [
    None,
    True,
    "",
    "nul \0 inside",
    "cut emoji \ud83d",
    "\udc00 the wrong way round \ud800",
    {"\ud83d": ["\0"]},
    {"b": 1, "a": 2},
    2**64 - 1,
    -(2**63),
    2**53 + 1,
    -0.0,
    1e308,
    5e-324,
    1.0,
    {"$ref": "../../etc/passwd", "__class__": "os.system"},
    _nested(codec.NESTING_MAX),
    "line\u2028separators\u2029 \x7f \x1b[31m ß 😀",
    ["x"] * 5000,
    "y" * 1_000_000,
    {"mixed": "ab\0\ud83d" * 4000},
]


@CASES
def every_json_value_comes_back_exactly(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    batch = [entry(f"e{n}", value) for n, value in enumerate(VALUES)]
    engine.append("t", batch)
    engine = place.reopen(engine)
    for found, draft, value in zip(engine.path("t"), batch, VALUES, strict=True):
        assert found.data == draft.data
        assert found.body == value
        assert type(found.body) is type(value)
    assert [list(e.body) for e in engine.path("t") if e.id == "e7"] == [["b", "a"]]
    assert str(engine.path("t", "e11", limit=1)[0].body) == "-0.0"
    whole(engine)


@CASES
def large_facts_and_metadata_come_back(place: Place) -> None:
    engine = place.open()
    big = {"text": "z" * 50_000}
    engine.create(thread("t", facts={"big": big}))
    engine.append("t", [entry("a", meta={"m": "q" * 20_000})])
    engine = place.reopen(engine)
    assert engine.thread("t").facts["big"] == big
    assert engine.path("t")[0].meta == {"m": "q" * 20_000}
    whole(engine)


@CASES
def blobs_are_stored_once_and_checked(place: Place) -> None:
    engine = place.open()
    data = bytes(range(256)) * 100
    hashes = engine.put_blobs([data, b"", data])
    assert hashes == [codec.digest(data), codec.digest(b""), codec.digest(data)]
    assert engine.put_blobs([]) == []
    engine = place.reopen(engine)
    assert (engine.get_blob(hashes[0]), engine.get_blob(hashes[1])) == (data, b"")
    assert engine.has_blobs([*hashes, "b3:no"]) == set(hashes)
    assert engine.stats().blobs == 2
    with refused(NotFound):
        engine.get_blob("b3:no")
    whole(engine)


@CASES
def an_entry_must_find_the_blobs_it_names(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    missing = codec.digest(b"never put")
    with refused(InvalidInput):
        engine.append("t", [entry("a"), entry("b", blobs=[missing])])
    assert engine.read("t") == []
    hash = engine.put_blobs([b"here"])[0]
    engine.append("t", [entry("a", blobs=[hash, hash])])
    engine = place.reopen(engine)
    assert engine.path("t")[0].blobs == (hash, hash)
    whole(engine)


@CASES
def sweeping_asks_what_to_keep(place: Place) -> None:
    engine = place.open()
    wanted, other = engine.put_blobs([b"wanted", b"not wanted"])
    asked: list[set[str]] = []

    def keep(candidates: set[str]) -> set[str]:
        asked.append(candidates)
        assert engine.get_blob(wanted) == b"wanted", "it may read meanwhile"
        return {wanted}

    assert engine.sweep(grace_seconds=0, keep=keep).blobs == 1
    assert asked == [{wanted, other}]
    assert place.reopen(engine).has_blobs([wanted, other]) == {wanted}


@CASES
def what_is_used_while_a_sweep_decides_stays(place: Place) -> None:
    """No writer waits for it: it asks what to keep before it keeps writers away."""
    engine = place.open()
    engine.create(thread())
    body = b'"' + b"x" * 100_000 + b'"'
    data = [b"named" * 99, b"put" * 99, b"renewed" * 99, b"nothing" * 99, body]
    named, put, renewed, nothing, spilled = engine.put_blobs(data)
    asked: list[str] = []

    def keep(candidates: set[str]) -> set[str]:
        asked.extend(candidates)
        engine.append("t", [entry("a", blobs=[named])])
        engine.put_blobs([b"put" * 99])
        assert engine.renew_blobs([renewed, codec.digest(b"never put")]) == {renewed}
        engine.append("t", [EntryDraft(id="b", kind="event", data=body, time_us=T0)])
        return {spilled}

    assert engine.sweep(grace_seconds=0, keep=keep).blobs == 1
    assert set(asked) == {named, put, renewed, nothing, spilled}
    engine = place.reopen(engine)
    assert engine.has_blobs([named, put, renewed, nothing]) == {named, put, renewed}
    assert [one.data for one in engine.path("t")][1:] == [body]
    whole(engine)
    engine.sweep(grace_seconds=0)
    kept = engine.has_blobs([named, put, renewed])
    assert kept == {named}, "what was renewed is young for the grace, and no longer"


@CASES
def sweeping_reaches_everything(place: Place) -> None:
    """Also what does not fit into one of the batches that it removes."""
    engine = place.open()
    hashes = engine.put_blobs([b"%d" % n * 50 for n in range(1000)])
    swept = engine.sweep(grace_seconds=0, keep=lambda blobs: set(hashes[::10]) & blobs)
    assert (swept.blobs, engine.stats().blobs) == (900, 100)
    assert engine.has_blobs(hashes) == set(hashes[::10])
    whole(engine)


@CASES
def sweeping_spares_what_is_used_or_young(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    used, unused = engine.put_blobs([b"used" * 999, b"unused" * 999])
    engine.append("t", [entry("a", blobs=[used]), entry("b", "v" * 20_000)])
    assert engine.sweep(grace_seconds=3600).blobs == 0
    swept = engine.sweep(grace_seconds=0)
    assert (swept.blobs, swept.size_bytes) == (1, 6 * 999)
    engine = place.reopen(engine)
    assert engine.has_blobs([used, unused]) == {used}
    assert engine.path("t")[1].body == "v" * 20_000
    engine.purge("t")
    engine.sweep(grace_seconds=0)
    assert engine.stats().blobs == 0
    whole(engine)
