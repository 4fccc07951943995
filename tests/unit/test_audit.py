"""The rules of verification, by rows that no engine has: each broken one has its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

import clew
from clew.core.hashes import thread_hash
from clew.core.model import Entry, FactDraft, Move, MoveDraft, Record
from clew.core.reducer import Head, plan
from clew.engines.shared.audit import Audit, Link, Meter, ReadRecord, ReadThread, Rest


def records() -> list[Record]:
    """Two branches, a fact that was set twice, and a move back to the first branch."""
    drafts = [
        clew.draft("event", 1, id="a"),
        FactDraft(id="f1", key="mood", data=b'"old"', time_us=1),
        clew.draft("event", 2, id="b"),
        clew.draft("event", 3, id="c", parent="a"),
        FactDraft(id="f2", key="mood", data=b'"new"', time_us=2),
        MoveDraft(id="m", leaf="b", time_us=3),
    ]
    known: dict[str, Record] = {}
    return plan(Head("t"), drafts, known.get).new


class Rows:
    """What an engine would have read. A place is a seq here."""

    def __init__(self, found: Sequence[Record]) -> None:
        self.segments: dict[int, Any] = {1: None, 4: 1}
        self.facts = {"mood": 5}
        self.tags: set[str] = set()
        self.found: list[ReadRecord] = [ReadRecord(r.seq, r, r.seq) for r in found]
        last = [record for record in found if isinstance(record, Entry)]
        sums = {"seq": 6, "leaf": "b", "leaf_hash": last[1].hash, "leaf_place": 3, "tail": "c"}
        sums |= {"updated_us": 3, "listed_us": None, "shelf": 0, "status": None}
        self.thread = ReadThread(
            id="t",
            created_us=0,
            parent=None,
            origin=None,
            hash=thread_hash("t", 0, None, None),
            namespace="default",
            sums=sums,
        )

    def pages(self) -> Iterator[list[ReadRecord]]:
        for read in self.found:
            begun = [self.segments.pop(read.seq)] if read.seq in self.segments else []
            yield [replace(read, segments=begun)]

    def find(self, record: Entry | Move, id: str) -> Link | None:
        for read in self.found:
            if isinstance(read.record, Entry) and read.record.id == id and read.seq < record.seq:
                return Link(read.seq, read.record.hash)
        return None

    def rest(self) -> Rest:
        return Rest(self.facts, self.tags, len(self.segments))


def audited(rows: Rows, *, quick: bool = False) -> list[tuple[str, int | None]]:
    found = Audit(rows, quick=quick, meter=None).check()
    return [(problem.code, problem.seq) for problem in found]


def test_what_the_rules_made_keeps_them() -> None:
    assert audited(Rows(records())) == []
    assert audited(Rows(records()), quick=True) == []


def change(n: int, **fields: Any) -> Callable[[Rows], None]:
    def work(rows: Rows) -> None:
        record = rows.found[n].record
        assert record is not None
        rows.found[n] = replace(rows.found[n], record=replace(record, **fields))

    return work


def sums(**values: Any) -> Callable[[Rows], None]:
    def work(rows: Rows) -> None:
        rows.thread = replace(rows.thread, sums={**rows.thread.sums, **values})

    return work


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (change(0, data=b"2"), [("damaged_body", 1)]),
        (change(0, noted_digest=b"\0"), [("damaged_record", 1), ("damaged_body", 1)]),
        (change(1, key="other"), [("damaged_record", 2), ("wrong_sum", None)]),
        (change(5, leaf="nowhere"), [("broken_chain", 6), ("damaged_record", 6)]),
        (change(3, parent="nowhere"), [("broken_chain", 4)]),
        (lambda rows: rows.found.pop(1), [("gap", 3)]),
        (lambda rows: rows.found.insert(2, rows.found.pop(3)), [("gap", 4), ("gap", 3)]),
        (lambda rows: rows.segments.pop(4), [("wrong_sum", None)]),
        (lambda rows: rows.segments.update({2: None}), [("wrong_sum", None)]),
        (lambda rows: rows.segments.update({4: 3}), [("wrong_sum", None)]),
        (lambda rows: rows.facts.update(mood=2), [("wrong_sum", None)]),
        (lambda rows: rows.tags.add("x"), [("wrong_sum", None)]),
        (sums(leaf_place=1), [("wrong_sum", None)]),
        (sums(shelf=1), [("wrong_sum", None)]),
        (sums(listed_us=1), [("wrong_sum", None)]),
    ],
)
def test_a_broken_rule_has_its_name(
    damage: Callable[[Rows], None], expected: list[tuple[str, int | None]]
) -> None:
    rows = Rows(records())
    damage(rows)
    assert audited(rows)[: len(expected)] == expected


def test_a_purged_thread_of_which_nothing_is_left_to_share_is_a_wrong_sum() -> None:
    rows = Rows(records())
    sums = dict.fromkeys("leaf leaf_hash leaf_place tail listed_us updated_us status".split())
    rows.thread = replace(rows.thread, purged=True, sums={**sums, "shelf": 3, "seq": 0})
    rows.found, rows.facts, rows.segments = [], {}, {}
    found = [problem.message for problem in Audit(rows, quick=False, meter=None).check()]
    assert found == ["it is purged, and nothing of it is left to share"]


def test_an_id_that_has_no_hash_is_damage_of_its_thread() -> None:
    rows = Rows(records())
    rows.thread = replace(rows.thread, id="half \ud800")
    assert ("damaged_thread", None) in audited(rows)


def test_of_a_thread_with_an_unreadable_record_the_sums_are_not_told() -> None:
    rows = Rows(records())
    rows.found[4] = ReadRecord(5, None, flaw="it cannot be read")
    rows.facts.clear()
    assert audited(rows) == [("damaged_record", 5)]


def test_what_cannot_be_shown_is_made_fit_to_be_shown() -> None:
    rows = Rows(records())
    rows.found[0] = replace(rows.found[0], flaw="not \udcff text", where="t.jsonl line 2")
    (found,) = Audit(rows, quick=False, meter=None).check()
    assert (found.message, found.entry) == ("t.jsonl line 2: not ? text", "a")


def test_a_meter_tells_now_and_then_and_at_the_end() -> None:
    told: list[tuple[int, int]] = []
    meter = Meter(lambda *now: told.append(now), 6, every=4)
    assert list(Audit(Rows(records()), quick=False, meter=meter).check()) == []
    meter.end()
    assert told == [(4, 6), (6, 6)]
