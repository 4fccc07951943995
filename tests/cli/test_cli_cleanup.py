"""clew cleanup says what it would remove, asks, and removes just that."""

from __future__ import annotations

import argparse
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cli_support import Run
from places import ADDRESSES

import clew
from clew.cli import _exits
from clew.cli._screen import Screen
from clew.cli.cleanup import moment

LONG_AGO = datetime.now(UTC) - timedelta(days=90)


@pytest.fixture(params=ADDRESSES)
def address(request: pytest.FixtureRequest) -> str:
    """Threads of all ages."""
    made = ADDRESSES[request.param](request)
    with clew.open(made) as store:
        for id in ("old", "older", "pinned", "busy"):
            age = timedelta(days=30 if id == "older" else 0)
            tags = ["pinned"] if id == "pinned" else []
            thread = store.create(id, title=f"the {id} one", tags=tags, time=LONG_AGO - age)
            thread.append("user_message", id, time=LONG_AGO - age)
        store.create("young").append("user_message", "young")
        store.get("busy").leases.acquire("worker-1", ttl_seconds=600)
    return made


def ids(address: str) -> set[str]:
    with clew.open(address) as store:
        return {info.id for info in store.threads()}


def test_the_plan_comes_first_and_nothing_goes_unasked(run: Run, address: str) -> None:
    for options, code in ((["--dry-run"], 0), ([], _exits.USAGE)):
        done = run("cleanup", address, "--older-than", "30d", "--keep-tag", "pinned", *options)
        assert done.code == code
        assert done.lines[0].startswith("last used before ")
        assert [line.split()[0] for line in done.lines[1:3]] == ["older", "old"]
        assert "the older one" in done.lines[1]
        assert "to be removed: 2 threads, at most" in done.out
        assert "1 thread stays: kept by their tags" in done.out
        assert "1 thread stays: in use" in done.out
        assert "is leased by 'worker-1'" in done.out
    assert "removes threads for good" in done.err
    assert ids(address) == {"old", "older", "pinned", "busy", "young"}


def test_what_was_planned_is_removed(run: Run, address: str) -> None:
    done = run("cleanup", address, "--older-than", "30d", "--keep-tag", "pinned", "--yes")
    assert done.code == 0
    assert done.lines[-1].startswith("removed: 2 threads, ")
    assert ids(address) == {"pinned", "busy", "young"}
    assert (
        "to be removed: 0 threads"
        in run("cleanup", address, "--older-than", "30d", "--keep-tag", "pinned").out
    )


def test_the_report_is_json_if_asked_for(run: Run, address: str) -> None:
    done = run("cleanup", address, "--older-than", "30d", "--limit", "1", "--yes", "--json")
    report = json.loads(done.out)
    assert (report["purged"], report["more"], report["dry_run"]) == (["older"], True, False)
    planned = json.loads(run("cleanup", address, "--older-than", "30d", "--dry-run", "--json").out)
    assert [skipped["reason"] for skipped in planned["skipped"]] == ["in_use"]
    assert run("cleanup", address, "--older-than", "30d", "--json").code == _exits.USAGE


def test_only_deleted_threads_if_asked_for(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "threads.db"
    with clew.open(place) as store:
        for id in ("gone", "there"):
            store.create(id, time=LONG_AGO).append("event", time=LONG_AGO)
        store.get("gone").set(deleted_us=round(LONG_AGO.timestamp() * 1e6))
    done = run("cleanup", place, "--older-than", "30d", "--deleted-only", "--yes")
    assert done.lines[-1].startswith("removed: 1 thread, ")
    assert ids(str(place)) == {"there"}


def test_children_that_lose_their_parent_are_named(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "threads.db"
    with clew.open(place) as store:
        store.create("boss", time=LONG_AGO)
        store.create("helper", parent="boss")
        store.get("boss").set(deleted_us=round(LONG_AGO.timestamp() * 1e6))
    planned = run("cleanup", place, "--older-than", "30d", "--dry-run")
    assert planned.lines[-2:] == ["1 thread will work for a thread that is gone:", "  helper"]
    done = run("cleanup", place, "--older-than", "30d", "--yes")
    assert "1 thread works for a thread that is gone:\n  helper\n" in done.out
    assert ids(str(place)) == {"helper"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "left"), [("y\n", set()), ("n\n", {"t"}), ("", {"t"})])
def test_the_person_at_the_terminal_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, left: set[str]
) -> None:
    from clew.cli import cleanup

    place = tmp_path / "threads.db"
    with clew.open(place) as store:
        store.create("t", time=LONG_AGO)
    out, err = io.StringIO(), io.StringIO()
    screen = Screen(out, err, answers=Terminal(answer))
    parser = argparse.ArgumentParser()
    cleanup.arguments(parser)
    options = parser.parse_args([str(place), "--older-than", "1h"])
    assert cleanup.run(options, screen) == 0
    assert "remove 1 thread for good? [y/N]" in err.getvalue()
    assert ids(str(place)) == left


def test_spans_and_dates_are_told_apart() -> None:
    assert moment("30d") == timedelta(days=30)
    assert moment("90m") == timedelta(minutes=90)
    assert moment("2w") == timedelta(weeks=2)
    assert moment("2026-01-31") == datetime(2026, 1, 31, tzinfo=UTC)
    assert moment("2026-01-31T12:00+02:00").utcoffset() == timedelta(hours=2)


@pytest.mark.parametrize("time", ["30", "d", "-1d", "yesterday", "30d12h", "", "9999999d"])
def test_a_time_that_cannot_be_read_removes_nothing(run: Run, tmp_path: Path, time: str) -> None:
    place = tmp_path / "threads.db"
    with clew.open(place) as store:
        store.create("t", time=LONG_AGO)
    failed = run("cleanup", place, f"--older-than={time}", "--yes")
    assert (failed.code, failed.out) == (_exits.USAGE, "")
    assert run("cleanup", place, "--yes").code == _exits.USAGE, "without a time"
    assert ids(str(place)) == {"t"}
