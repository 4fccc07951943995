"""What records, threads, names and findings say of themselves, also when they are odd."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from msgspec.structs import replace

import clew
from clew import Corrupt, InvalidInput, TooLarge
from clew.core.codec import encode, render
from clew.core.errors import shortened
from clew.core.facts import check_fact
from clew.core.maintenance import Budget, Examined, Finding, Grant
from clew.core.model import Entry, Problem, ThreadInfo, fact_keys, rfc3339, to_time
from clew.core.names import STEM_MAX, file_stem, id_of
from clew.core.tombstones import tombstoned


def entry_with(body: Any = 1, **given: Any) -> Entry:
    return clew.open("memory:").create().append("event", body, **given)


def info_with(**facts: Any) -> ThreadInfo:
    return ThreadInfo(
        id="t",
        created_us=0,
        updated_us=0,
        seq=1,
        leaf=None,
        parent=None,
        origin=None,
        fact_data={key.replace("__", "."): encode(value) for key, value in facts.items()},
    )


# --- entries --------------------------------------------------------------------------------


def test_entries_are_equal_by_all_they_hold_and_hash_alike() -> None:
    entry = entry_with({"a": 1}, meta={"m": 1}, blobs=())
    same = replace(entry, noted_digest=entry.body_digest)
    other = replace(entry, noted_digest=None)
    assert same == other == entry, "whether the hash of the body was noted is no difference"
    assert len({same, other, entry}) == 1
    assert hash(entry) == hash(same)
    for change in (
        {"seq": 9},
        {"kind": "custom"},
        {"data": b"2", "noted_digest": None},
        {"noted_digest": b"x" * 32},
        {"turn": "t"},
        {"format": "plain"},
        {"meta_data": None},
        {"parent": "p"},
    ):
        assert replace(entry, **change) != entry, change
    assert entry != "entry"


@pytest.mark.parametrize(
    ("meta", "labels"),
    [
        (None, []),
        ({"note": 1}, []),
        ({"artifacts": [{"label": "log"}, {"label": "b", "size": 3}]}, ["log", "b"]),
        ({"artifacts": [{"label": "log"}, {"url": "x"}, 5, {"label": 7}]}, ["log"]),
        ({"artifacts": {"label": "log"}}, []),
        ({"artifacts": "log"}, []),
        ({"inner": {"artifacts": [{"label": "log"}]}}, []),
    ],
)
def test_of_what_stands_under_artifacts_those_are_given_that_are(
    meta: dict[str, Any] | None, labels: list[str]
) -> None:
    assert [one.label for one in entry_with(meta=meta).artifacts] == labels


def test_a_tombstone_tells_the_size_of_body_and_meta() -> None:
    entry = entry_with("x" * 10, meta={"m": "y" * 20})
    assert entry.meta_data is not None
    buried = tombstoned(entry, 5)
    assert buried.tombstone is not None
    assert buried.tombstone.size_bytes == len(entry.data) + len(entry.meta_data)
    unread = tombstoned(entry, 5, size_bytes=1000).tombstone
    assert unread is not None
    assert unread.size_bytes == 1000 + len(entry.meta_data)
    assert buried.erased_at == to_time(5)
    assert entry.erased_at is None


@pytest.mark.parametrize(
    ("kind", "data", "kept"),
    [
        ("turn_marker", b'{"status":"failed","why":"secret"}', {"status": "failed"}),
        ("turn_marker", b'{"status":"secret"}', {}),
        ("custom", b'{"status":"failed"}', {}),
        ("context_edit", b'{"edit":"remove","target":"e"}', {"edit": "remove", "target": "e"}),
        (
            "context_edit",
            b'{"edit":"replace","target":"e","message":"secret"}',
            {"edit": "replace", "target": "e", "message": "[erased]"},
        ),
        ("context_edit", b"{no json", {}),
        ("custom", b"[1]", {}),
    ],
)
def test_what_stands_in_for_an_erased_body_keeps_the_order_of_the_thread_and_no_word(
    kind: str, data: bytes, kept: dict[str, Any]
) -> None:
    entry = replace(entry_with(), kind=kind, data=data, noted_digest=None)
    assert tombstoned(entry, 5).body == {**kept, "erased": True}


def test_a_time_is_spelled_in_utc_to_the_microsecond_wherever_it_was_taken() -> None:
    there = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=3)))
    assert rfc3339(there) == "2026-01-02T00:04:05.000000Z"
    assert rfc3339(to_time(1)) == "1970-01-01T00:00:00.000001Z"
    assert to_time(0) == datetime(1970, 1, 1, tzinfo=UTC)


# --- threads --------------------------------------------------------------------------------


def test_whose_work_a_thread_is() -> None:
    assert info_with(agent="a", adapter="b").agent == "a"
    assert info_with(adapter="b").agent == "b"
    assert info_with(agent={"name": "a"}).agent is None
    assert info_with().agent is None


def test_labels_are_texts_under_their_prefix_and_nothing_else() -> None:
    info = info_with(label__e1="start", label__e2=5, labels="no", other="x")
    assert info.labels == {"e1": "start"}


def test_all_that_is_damaged_in_a_thread_is_told() -> None:
    whole = info_with(tags=["a"])
    assert (whole.damaged, whole.damaged_facts) == (None, {})
    damaged = replace(info_with(tags=5), lost_facts={"status": "it is gone"}, unreadable="cut")
    assert damaged.damaged is not None
    first, *facts = damaged.damaged.split("; ")
    assert first == "cut"
    assert sorted(facts)[0] == "fact 'status': it is gone"
    assert any(fact.startswith("fact 'tags': ") for fact in facts)
    assert damaged.tags == ()


@pytest.mark.parametrize(
    ("lost", "unreadable", "is_refused"),
    [
        ({}, None, False),
        ({"other": "gone"}, None, False),
        ({"run.2": "gone"}, None, True),
        ({"": "a fact without its key"}, None, True),
        ({}, "cut", True),
    ],
)
def test_a_fact_that_is_lost_is_not_taken_for_one_that_was_never_set(
    lost: dict[str, str], unreadable: str | None, is_refused: bool
) -> None:
    info = replace(info_with(run__1=1, other=2), lost_facts=lost, unreadable=unreadable)
    if not is_refused:
        assert fact_keys(info, "run.") == ["run.1"]
        return
    with pytest.raises(Corrupt):
        fact_keys(info, "run.")


def test_the_years_that_a_datetime_has_are_the_times_that_are_taken() -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    for edge, step in ((datetime.min, -1), (datetime.max, 1)):
        span = edge.replace(tzinfo=UTC) - epoch
        time_us = (span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds
        check_fact("deleted_us", time_us)
        assert to_time(time_us).replace(tzinfo=None) == edge
        with pytest.raises(InvalidInput):
            check_fact("deleted_us", time_us + step)


# --- messages -------------------------------------------------------------------------------


def test_a_problem_that_quotes_something_huge_is_told_in_short() -> None:
    problem = Problem(code="c", message="begin " + "x" * 10_000 + " end")
    assert problem.message == shortened(problem.message)
    assert len(problem.message) < 5_000
    assert problem.message.startswith("begin")
    assert problem.message.endswith("end")


def test_json_that_is_shown_has_lone_surrogates_spelled_out() -> None:
    assert render({"a": "ü"}) == '{"a":"ü"}'
    assert render(["\ud83d"]) == '["\\ud83d"]'


# --- names of files -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "id", ["abc-1_z", "A", "ü/x", "con", "com1", "lpt9", "com10", "a.b", "%41"]
)
def test_a_file_tells_the_id_that_it_is_named_for(id: str) -> None:
    stem = file_stem(id)
    assert id_of(stem) == id
    assert stem.lower() == stem, "two ids would share a file where case does not count"
    assert stem not in {"con", "prn", "aux", "nul", "com1", "lpt9"}, "Windows keeps those"


def test_a_name_that_is_no_name_of_ours_tells_no_id() -> None:
    for stem in ("%ff", "A", "a~b", "com1", "%63"):
        assert id_of(stem) is None, stem
    assert (file_stem("con"), file_stem("com1")) == ("%63on", "%63om1")


def test_a_long_id_is_named_in_full_as_far_as_it_fits_and_no_two_are_named_alike() -> None:
    assert file_stem("x" * STEM_MAX) == "x" * STEM_MAX
    long, other = file_stem("x" * (STEM_MAX + 1)), file_stem("x" * (STEM_MAX + 2))
    assert long != other
    assert len(long) <= STEM_MAX
    assert long.startswith("x" * 50)
    assert id_of(long) is None


# --- findings, grants, budgets --------------------------------------------------------------


def test_what_is_a_risk_and_what_is_wrong_are_both_told_in_order() -> None:
    found = Examined()
    found.warn("old", "update")
    found.complain("broken", "repair")
    assert found.findings == [
        Finding("warning", "old", "update"),
        Finding("wrong", "broken", "repair"),
    ]


def test_a_grant_names_a_role_and_a_namespace_or_is_refused() -> None:
    assert Grant.parse("role=space") == Grant("role", "space")
    assert Grant.parse("role=a=b") == Grant("role", "a=b")
    for text in ("role", "role=", "=space", "=", ""):
        with pytest.raises(InvalidInput, match="ROLE=NAMESPACE"):
            Grant.parse(text)
    assert Grant.parse("r" * 63 + "=space").role == "r" * 63
    with pytest.raises(TooLarge):
        Grant.parse("r" * 64 + "=space")


def test_a_repair_makes_up_as_many_records_as_a_store_of_that_size_could_have_had() -> None:
    small = Budget(0)
    assert small.left == 20_000
    assert Budget(128_000).left == 21_000
    assert not small.take(-1)
    assert small.take(0)
    assert small.take(19_999)
    assert not small.take(2)
    assert small.take(1)
    assert not small.take(1)
    assert small.left == 0
