"""A thread that went out as a file of Clew's own comes back as it was, or not at all."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from samples import bring

import clew
from clew.cli import main
from clew.core.lines import Header, header_line, summed
from clew.core.model import ThreadDraft
from clew.interchange.export import Writing, start, writer_of
from clew.interchange.tree import bring_all
from clew.store import Store
from clew.thread import Thread
from clew.upkeep.transfer import MARK

BODIES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
) | st.sampled_from(["\ud800half", {"long": "x" * 70_000}, 1.5])
BLOBS = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("append"),
            st.sampled_from(["user_message", "custom", "odd kind"]),
            BODIES,
            st.integers(0, 9),
            BLOBS,
        ),
        st.tuples(st.just("move"), st.integers(0, 9)),
        st.tuples(st.just("fact"), st.sampled_from(["mine", "é"]), BODIES),
    ),
    max_size=8,
)
NAMES = itertools.count()


def work(thread: Thread, steps: list[Any]) -> None:
    """Do what steps say. A place is counted from the thread's first entry, round and round."""
    for verb, *what in steps:
        known = [entry.id for entry in thread.entries()]
        if verb == "append":
            kind, body, place, data = what
            blobs = [] if data is None else thread.store.engine.put_blobs([data])
            parent = None if not known or place == 9 else known[place % len(known)]
            thread.append(kind, body, parent=parent, blobs=blobs, meta={"n": place})
        elif verb == "move":
            thread.move(known[what[0] % len(known)] if known else None)
        else:
            thread.set_facts({what[0]: what[1]})


def lines_of(thread: Thread, form: str = "bundle") -> bytes:
    return b"".join(writer_of(form).write(thread, Writing(form)))


def after_header(lines: bytes) -> bytes:
    """All but the first line: it has the key of the file, which no other file ever has."""
    return lines.partition(b"\n")[2]


def told(thread: Thread) -> Any:
    info = thread.info
    records = [(r.seq, r.id, r.hash, r.time_us) for r in thread.read()]
    return info.created_us, info.updated_us, info.leaf, info.parent, info.facts, records


@pytest.fixture
def source() -> Iterator[Store]:
    with clew.open("memory:") as opened:
        yield opened


@settings(
    max_examples=12,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(first=STEPS, later=STEPS, at=st.integers(0, 9))
def test_a_bundle_comes_out_of_every_engine_as_it_went_in(
    store: Store, tmp_path: Path, first: list[Any], later: list[Any], at: int
) -> None:
    with clew.open("memory:") as source:
        source.create("main")
        thread = source.create(f"T {next(NAMES)}", parent="main", title="Mine")
        work(thread, first)
        known = [entry.id for entry in thread.entries()]
        fork = thread.fork(at=known[at % len(known)] if known else None, id=f"f/{next(NAMES)}")
        work(fork, later)
        for one in (thread, fork):
            lines = lines_of(one)
            path = tmp_path / "t.jsonl"
            path.write_bytes(lines)
            report = bring(store, path)
            assert (report.status, report.thread) == ("imported", one.id), report.reason
            assert (report.entries, report.known) == (report.values, 0)
            there = store.get(one.id)
            if one is thread:
                assert told(there) == told(one)
            assert [(e.id, e.hash) for e in there.path()] == [(e.id, e.hash) for e in one.path()]
            assert after_header(lines_of(there)) == after_header(lines)
            again = bring(store, path)
            assert (again.entries, again.known) == (0, report.values)
    assert list(store.verify()) == []


def test_the_files_of_a_fork_come_along_with_what_its_origin_knew_of_them(
    store: Store, source: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "a.txt").write_text("one")
    (folder / "b").write_bytes(b"\xff\x00")
    thread = source.create("t")
    message = thread.append_message({"role": "user", "content": "go"})
    thread.snapshots.take(folder)
    fork = thread.fork(id="f")
    (folder / "a.txt").write_text("two")
    fork.snapshots.take(folder)
    path = tmp_path / "f.jsonl"
    path.write_bytes(lines_of(fork))
    assert bring(store, path).status == "imported"
    there = store.get("f")
    newest, first = there.snapshots.list()
    assert there.snapshots.read(newest, "a.txt") == b"two"
    assert there.snapshots.read(first, "a.txt") == b"one"
    assert (first.at, there.snapshots.read(first, "b")) == (message.id, b"\xff\x00")
    assert after_header(lines_of(there)) == after_header(path.read_bytes())


def test_what_both_sides_added_becomes_a_branch_and_what_is_new_is_added(
    store: Store, source: Store, tmp_path: Path
) -> None:
    thread = source.create("t")
    thread.append("event", 1, id="a")
    path = tmp_path / "t.jsonl"
    path.write_bytes(lines_of(thread))
    bring(store, path)
    thread.append("event", 2, id="b")
    path.write_bytes(lines_of(thread))
    assert (bring(store, path).entries, store.get("t").leaf) == (1, "b")
    thread.append("event", 3, id="c")
    store.get("t").append("event", 4, id="d")
    path.write_bytes(lines_of(thread))
    report = bring(store, path)
    assert (report.status, report.notes) == ("imported", {"branched": 1})
    assert (store.get("t").leaf, store.get("t").children("b")) == ("d", ["d", "c"])


# --- what is wrong with a file --------------------------------------------------------------


@pytest.fixture
def lines(source: Store) -> bytes:
    thread = source.create("t", title="Mine")
    thread.append("event", {"n": 1}, blobs=source.engine.put_blobs([b"\xff", b"text"]))
    thread.append("event", {"n": 2})
    return lines_of(thread)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_bundle_with_any_bit_turned_is_not_brought(
    lines: bytes, tmp_path: Path, at: int, bit: int
) -> None:
    damaged = bytearray(lines)
    damaged[at % len(lines)] ^= 1 << bit
    path = tmp_path / "t.jsonl"
    path.write_bytes(damaged)
    with clew.open("memory:") as target:
        assert len(bring_all(target, [path]).left) == 1
        assert list(target.threads()) == []


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(1, 10**6))
def test_a_bundle_that_was_cut_off_anywhere_is_not_brought(
    lines: bytes, tmp_path: Path, at: int
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(lines[: at % len(lines)])
    with clew.open("memory:") as target:
        assert len(bring_all(target, [path]).left) == 1
        assert list(target.threads()) == []


def test_lines_without_the_blobs_that_they_name_are_refused_unless_the_store_has_them(
    store: Store, source: Store, tmp_path: Path
) -> None:
    thread = source.create("t")
    thread.append("event", 1, blobs=source.engine.put_blobs([b"bytes"]))
    path = tmp_path / "t.jsonl"
    path.write_bytes(lines_of(thread, "clew"))
    report = bring(store, path)
    assert report.status == "failed"
    assert "bundle" in str(report.reason)
    assert store.find("t") is None
    store.engine.put_blobs([b"bytes"])
    assert bring(store, path).entries == 1
    assert lines_of(store.get("t"), "clew").splitlines()[1:] == path.read_bytes().splitlines()[1:]


def test_a_bundle_of_a_later_version_is_refused_and_a_line_of_a_later_type_is_not(
    lines: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "t.jsonl"
    first, second, rest = lines.split(b"\n", 2)
    odd = summed(b"t", b'{"type":"odd","say":1')
    path.write_bytes(b"\n".join([first, second, odd + rest]))
    with clew.open("memory:") as target:
        assert bring(target, path).status == "imported"
    for wrong in (
        [summed(b"", first[: first.rindex(b",")].replace(b'"version":1', b'"version":9')), second],
        [first + b"\n", summed(b"t", b'{"type":"bundle","version":9')[:-1]],
    ):
        path.write_bytes(b"".join(wrong) + b"\n" + rest)
        with clew.open("memory:") as target:
            report = bring(target, path)
            assert (report.status, list(target.threads())) == ("failed", [])
            assert "version 9" in str(report.reason)


@pytest.mark.parametrize("parent", [MARK, "a\0b"])
def test_a_header_that_says_what_no_thread_may_is_refused(
    store: Store, tmp_path: Path, parent: str
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(header_line(Header("k", ThreadDraft(id="t", created_us=1, parent=parent))))
    assert bring(store, path).status == "failed"
    assert store.find("t") is None


def test_another_thread_of_the_same_id_and_a_deleted_one_are_left_alone(
    store: Store, lines: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(lines)
    other = store.create("t")
    other.append("event", "other")
    assert bring(store, path).status == "failed"
    assert [entry.body for entry in other.path()] == ["other"]
    store.delete("t")
    assert bring(store, path).status == "skipped"


# --- secrets ---


SECRET = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"


def test_a_redacted_bundle_has_no_secret_and_is_whole_in_itself(
    store: Store, source: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "key").write_text(f"a {SECRET}")
    thread = source.create("t", title=f"about {SECRET}")
    blobs = source.engine.put_blobs([SECRET.encode(), b"other"])
    thread.append("event", "before")
    thread.append("event", {"key": SECRET}, blobs=blobs)
    thread.append("event", "after")
    thread.snapshots.take(folder)
    path = tmp_path / "t.jsonl"
    writing, pieces = start(thread, "bundle", redact=True)
    path.write_bytes(b"".join(pieces))
    assert SECRET.encode() not in path.read_bytes()
    assert [change.name for change in writing.changes].count("blob") == 2
    report = bring(store, path)
    assert report.status == "imported", report.reason
    assert list(store.verify()) == []
    before, key, _, _ = store.get("t").path()
    assert (before.hash, key.body) == (
        thread.path()[0].hash,
        {"key": "[redacted: github-pat 1]"},
    )
    assert key.blobs == (blobs[1],)


def test_the_commands_carry_a_thread_from_one_store_to_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "t.jsonl")
    with clew.open(tmp_path / "a.db") as store:
        store.create("t").append("event", 1, blobs=store.engine.put_blobs([b"\xff"]))
    assert main(["export", str(tmp_path / "a.db"), "t", "--as", "bundle", "--out", out]) == 0
    target = f"files:{tmp_path}/b"
    capsys.readouterr()
    assert main(["import", out, "--store", target, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"][0]["entries"] == 1
    assert main(["import", out, "--store", target]) == 0
    with clew.open(target) as store:
        assert store.engine.get_blob(store.get("t").path()[0].blobs[0]) == b"\xff"
        assert store.verify() == []
    Path(out).write_bytes(Path(out).read_bytes()[:-20])
    assert main(["import", out, "--store", target]) == 1
