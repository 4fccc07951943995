"""A file is brought once, however often and in whatever state it is found again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from adapters.claude_transcripts import SESSION, Transcript, conversation, text
from samples import bring, thread_of, write_lines

import clew
from clew.interchange import intake
from clew.interchange.tree import bring_all


def place(tmp_path: Path) -> Path:
    return tmp_path / "projects" / "-home-me-project" / f"{SESSION}.jsonl"


def test_a_second_import_opens_no_file_that_has_not_changed(
    store: clew.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_lines(place(tmp_path), conversation().records)
    first = bring(store, path)
    seq = thread_of(store, first).info.seq
    monkeypatch.setattr(intake, "open_values", lambda *given: pytest.fail("it was opened"))
    again = bring(store, path)
    assert (again.status, again.thread, again.entries) == ("unchanged", first.thread, 0)
    assert thread_of(store, first).info.seq == seq


def test_of_a_file_that_has_grown_only_the_new_part_is_read(
    store: clew.Store, tmp_path: Path
) -> None:
    made = conversation()
    path = write_lines(place(tmp_path), made.records)
    bring(store, path)
    count = len(made.records)
    made.user("And now?")
    made.assistant(text("Nothing."), id="msg_3")
    write_lines(path, made.records)
    grown = bring(store, path)
    assert (grown.values, grown.entries, grown.known) == (2, 2, 0)
    thread = thread_of(store, grown)
    assert len(list(thread.entries())) == count + 2
    assert [entry.body["uuid"] for entry in thread.path() if "uuid" in entry.body] == [
        record["uuid"] for record in made.records if "uuid" in record
    ]


def test_the_same_thread_comes_of_a_file_in_one_go_and_line_by_line(tmp_path: Path) -> None:
    made = conversation()
    made.user("Other", parentUuid=made.records[1]["uuid"])  # a branch
    made.aside("ai-title", aiTitle="Files")
    whole, grown = clew.open("memory:"), clew.open("memory:")
    path = place(tmp_path)
    for end in range(2, len(made.records) + 1):
        report = bring(grown, write_lines(path, made.records[:end]))
    one = thread_of(whole, bring(whole, path))
    other = thread_of(grown, report)
    facts = [dict(t.info.facts) for t in (one, other)]
    ours = [{k: v for k, v in f.items() if not k.startswith("import.")} for f in facts]
    assert ours[0] == ours[1]
    assert [e.id for e in one.path()] == [e.id for e in other.path()]
    assert {e.id: e.parent for e in one.entries()} == {e.id: e.parent for e in other.entries()}


def test_a_file_that_was_rewritten_becomes_a_branch_and_nothing_is_stored_twice(
    store: clew.Store, tmp_path: Path
) -> None:
    path = write_lines(place(tmp_path), conversation().records)
    thread = thread_of(store, bring(store, path))
    before = {entry.id for entry in thread.entries()}
    records = json.loads(json.dumps(conversation().records))
    changed = next(r for r in records if r.get("type") == "assistant" and "There" in str(r))
    changed["message"]["content"][0]["text"] = "There is b.py."
    report = bring(store, write_lines(path, records))
    after = {entry.id for entry in thread.entries()}
    assert before < after
    assert {id.split("~")[0] for id in after} == before  # what follows the change comes with it
    said = str(thread.context("anthropic").messages)
    assert "There is b.py." in said
    assert "There is a.py." not in said
    assert thread.path()[-1].body["type"] == "last-prompt"
    assert report.entries + report.known == len(records)
    assert bring(store, path).status == "unchanged"


def test_a_file_that_was_cut_short_takes_nothing_from_the_store(
    store: clew.Store, tmp_path: Path
) -> None:
    records = conversation().records
    path = write_lines(place(tmp_path), records)
    thread = thread_of(store, bring(store, path))
    count = len(list(thread.entries()))
    report = bring(store, write_lines(path, records[:4]))
    assert (report.entries, report.known) == (0, 4)
    assert len(list(thread.entries())) == count


def test_an_import_that_was_killed_goes_on_and_doubles_nothing(
    store: clew.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "BATCH_ENTRIES", 3)
    records = conversation().records
    path = write_lines(place(tmp_path), records)
    writes = 0
    real = clew.Thread.write

    def dying(self: clew.Thread, *given: Any, **options: Any) -> Any:
        nonlocal writes
        writes += 1
        if writes == 3:
            raise KeyboardInterrupt
        return real(self, *given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(clew.Thread, "write", dying)
        with pytest.raises(KeyboardInterrupt):
            bring(store, path)
    report = bring(store, path)
    assert 0 < report.values < len(records)  # it did not begin anew
    entries = list(thread_of(store, report).entries())
    assert len(entries) == len({entry.id for entry in entries}) == len(records)


def test_a_thread_that_was_deleted_stays_deleted(store: clew.Store, tmp_path: Path) -> None:
    path = write_lines(place(tmp_path), conversation().records)
    report = bring(store, path)
    assert report.thread is not None
    store.delete(report.thread)
    made = conversation()
    made.user("More")
    assert bring(store, write_lines(path, made.records)).status == "skipped"
    store.restore(report.thread)
    assert bring(store, path).entries == 1


def test_a_dry_run_says_the_same_and_writes_nothing(store: clew.Store, tmp_path: Path) -> None:
    path = write_lines(place(tmp_path), conversation().records)
    told = bring(store, path, dry_run=True)
    assert told.entries == len(conversation().records)
    assert store.list().items == []
    assert bring(store, path).entries == told.entries


def test_one_bad_file_keeps_no_other_from_being_brought(store: clew.Store, tmp_path: Path) -> None:
    root = tmp_path / "projects" / "-home-me-project"
    good = write_lines(root / f"{SESSION}.jsonl", conversation().records)
    locked = write_lines(root / "locked.jsonl", conversation().records)
    locked.chmod(0)
    outside = write_lines(tmp_path / "elsewhere.jsonl", conversation().records)
    (root / "link.jsonl").symlink_to(outside)
    (root / "notes.txt").write_text("nobody's")
    (root / "own.jsonl").write_text('{"hello": "world"}\n')
    report = bring_all(store, [tmp_path / "projects"])
    assert str(good) in {file.path for file in report.files if file.status == "imported"}
    failed = {Path(file.path).name: file.reason for file in report.left}
    assert "leads out" in str(failed.pop("link.jsonl"))
    assert failed == {} if os.geteuid() == 0 else failed.keys() == {"locked.jsonl"}
    assert report.ignored == 1
    assert [Path(name).name for name in report.unknown] == ["own.jsonl"]


def test_a_folder_and_a_file_that_are_no_agents_are_named(
    store: clew.Store, tmp_path: Path
) -> None:
    folder, file = tmp_path / "photos", tmp_path / "list.jsonl"
    folder.mkdir()
    file.write_text('{"name": "milk"}\n')
    report = bring_all(store, [folder, file, tmp_path / "missing"])
    assert [Path(one.path).name for one in report.left] == ["list.jsonl", "missing", "photos"]
    assert store.list().items == []


def test_a_file_that_is_rewritten_while_it_is_read_is_named_and_read_again(
    store: clew.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_lines(place(tmp_path), conversation().records)
    real = intake.Source.of
    looks = 0

    def rewriting(*given: Any) -> Any:
        nonlocal looks
        looks += 1
        if looks == 3:
            os.utime(path, ns=(1, 1))
        return real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(intake.Source, "of", rewriting)
        report = bring(store, path)
    assert report.notes == {"changed": 1}
    assert not report.is_whole
    assert bring(store, path).is_whole


def test_a_records_own_times_are_those_of_the_thread(store: clew.Store, tmp_path: Path) -> None:
    made = Transcript(SESSION)
    made.user("Hello")
    made.assistant(text("Hi."), id="msg_1")
    info = thread_of(store, bring(store, write_lines(place(tmp_path), made.records))).info
    assert info.created_at.isoformat() == "2026-03-01T10:00:00+00:00"
    assert info.updated_at.isoformat() == "2026-03-01T10:00:01+00:00"
