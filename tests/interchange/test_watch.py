"""A watch brings what is written while it runs, and outlives what can happen to folders."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from adapters.claude_transcripts import SESSION, conversation, text
from samples import write_lines

import clew
from clew.core.errors import Unavailable
from clew.interchange.intake import Intake
from clew.interchange.report import FileReport
from clew.interchange.watch import Watch


def test_changes_are_brought_and_what_an_agent_deletes_stays(tmp_path: Path) -> None:
    folder = tmp_path / "projects" / "-home-me-project"
    path = folder / f"{SESSION}.jsonl"
    made = conversation()
    told: list[FileReport] = []

    def changes() -> Iterator[set[Path] | None]:
        yield None  # the folder is not even there
        write_lines(path, made.records)
        yield {path, folder / "notes.txt", folder / "gone.jsonl"}
        made.user("More")
        with path.open("a") as file:
            file.write(json.dumps(made.records[-1])[:50])
        yield {path}  # torn: told once
        yield {path}
        with path.open("a") as file:
            file.write(json.dumps(made.records[-1])[50:] + "\n")
        yield {path}
        made.assistant(text("Done."), id="msg_9")
        path.unlink()
        write_lines(path, made.records)  # written anew, as a rotation does
        yield None
        path.unlink()  # the agent's clean-up
        yield {path}
        yield None

    with clew.open("memory:") as store:
        watch = Watch(store, lambda: [tmp_path / "projects"], told.append)
        watch.run(changes())
        thread = next(store.threads())
        assert len(list(store.get(thread.id).entries())) == len(made.records)
    brought = [(report.entries, report.is_whole) for report in told if report.thread]
    assert brought == [(11, True), (0, False), (1, True), (1, True)]


def test_a_store_that_cannot_answer_now_does_not_end_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_lines(tmp_path / f"{SESSION}.jsonl", conversation().records)
    told: list[FileReport] = []
    real = Intake.bring
    failed = False

    def failing(self: Intake, *given: object) -> list[FileReport]:
        nonlocal failed
        if not failed:
            failed = True
            raise Unavailable("the disk is away")
        return real(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Intake, "bring", failing)
    with clew.open("memory:") as store:
        Watch(store, lambda: [tmp_path], told.append).run([{path}, {path}])
        assert len(list(store.threads())) == 1
    assert "the disk is away" in str(told[0].reason)
