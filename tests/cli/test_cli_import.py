"""`clew import` finds what agents left, brings it, and says what it could not bring."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from adapters.claude_transcripts import SESSION, conversation
from cli_support import Run

import clew
from clew.cli import _exits


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder in which Claude Code and pi were used."""
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_SESSION_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / ".claude" / "projects" / "-home-me-project"
    folder.mkdir(parents=True)
    lines = [json.dumps(record) for record in conversation().records]
    (folder / f"{SESSION}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    sessions = tmp_path / "home" / ".pi" / "agent" / "sessions" / "--work--"
    sessions.mkdir(parents=True)
    (sessions / "1_s.jsonl").write_text('{"type":"session","id":"s","cwd":"/work"}\n', "utf-8")
    return tmp_path / "home"


def test_without_arguments_it_says_what_there_is_and_brings_nothing_unasked(
    run: Run, home: Path, place: Path
) -> None:
    done = run("import", "--store", place)
    assert done.code == _exits.USAGE
    assert [line.split()[0] for line in done.lines] == ["claude-code", "pi"]
    assert "--all" in done.err
    assert not place.exists()


def test_all_brings_everything_and_again_nothing(run: Run, home: Path, place: Path) -> None:
    done = run("import", "--all", "--store", place)
    assert done.code == _exits.OK
    assert "imported 11 entries of 1 file" in done.out
    with clew.open(place) as store:
        assert {info.id.split(":")[0] for info in store.threads()} == {"claude", "pi"}
    again = json.loads(run("import", "--all", "--store", place, "--json").out)
    assert again["schema_version"] == 1
    assert again["agents"]["claude-code"]["unchanged"] == 1
    assert again["files"] == []


def test_one_agent_alone_is_brought_by_its_name(run: Run, home: Path, place: Path) -> None:
    assert run("import", "--agent", "pi", "--store", place).code == _exits.OK
    with clew.open(place) as store:
        assert [info.id for info in store.threads()] == ["pi:s"]


def test_a_dry_run_writes_nothing(run: Run, home: Path, place: Path) -> None:
    done = run("import", "--all", "--dry-run", "--store", place)
    assert "would import 11 entries" in done.out
    with clew.open(place) as store:
        assert list(store.threads()) == []


def test_what_is_left_out_is_named_and_the_exit_code_says_so(
    run: Run, home: Path, place: Path, tmp_path: Path
) -> None:
    file = next(home.rglob(f"{SESSION}.jsonl"))
    file.write_bytes(file.read_bytes() + b'{"type":"user","message":{"ro')
    (tmp_path / "notes.txt").write_text("nobody's")
    done = run("import", file, tmp_path / "notes.txt", "--store", place)
    assert done.code == _exits.DAMAGE
    assert "torn: line 12" in done.out
    assert "is no session of an agent" in done.out
    with clew.open(place) as store:
        assert len(list(store.threads())) == 1


def test_a_file_with_control_sequences_in_its_name_cannot_reach_the_terminal(
    run: Run, place: Path, tmp_path: Path
) -> None:
    path = tmp_path / "a\x1b[31mb.txt"
    path.write_text("nobody's")
    assert "\x1b" not in run("import", path, "--store", place).out


def test_a_watch_that_looks_once_brings_what_there_is(
    run: Run, home: Path, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    done = run("watch", "--once", "--store", place)
    assert done.code == _exits.OK
    assert f"11 entries  claude:-home-me-project/{SESSION}" in done.out
    assert run("watch", "--once", "--store", place).out == ""


def test_only_one_watch_runs_for_a_store(
    run: Run, home: Path, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib import import_module

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    watch = import_module("clew.cli.watch")
    with clew.open(place) as store, watch._alone(store):
        done = run("watch", "--once", "--store", place)
    assert done.code == _exits.USAGE
    assert "another clew watch" in done.err


def test_the_service_of_a_watch_names_the_store_and_nothing_of_it_is_run(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    done = run("watch", "--install", "--store", "my store 100%.db")
    unit = (tmp_path / "config" / "systemd" / "user" / "clew-watch.service").read_text()
    assert f"watch --store 'sqlite:{tmp_path}/my store 100%%.db'" in unit
    assert "systemctl --user enable --now clew-watch" in done.out


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        (["--no-scrub"], ["--every", "60", "--no-scrub"]),
        (["--no-pack"], ["--every", "60", "--no-pack"]),
        (["--every", "5", "--redact-at-import"], ["--every", "5", "--redact-at-import"]),
        (["--store", "files:kept"], ["--store", "files:{here}/kept", "--every", "60"]),
        (["--store", "postgresql://h/d"], ["--store", "postgresql://h/d", "--every", "60"]),
        (["--agent", "codex", "a"], ["{here}/a", "--agent", "codex", "--every", "60"]),
    ],
)
def test_the_service_of_a_watch_does_what_was_asked_for_wherever_it_is_started(
    given: list[str], passed: list[str], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("CLEW_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    assert run("watch", "--install", *given).code == 0
    unit = (tmp_path / "config" / "systemd" / "user" / "clew-watch.service").read_text()
    (command,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    words = shlex.split(command)
    assert words[words.index("watch") + 1 :] == [word.format(here=tmp_path) for word in passed]


def test_a_bomb_and_what_no_agent_knows_are_named_and_the_rest_is_done(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clew.interchange import values

    monkeypatch.setattr(values, "UNPACKED_BYTES_ALWAYS", 100_000)
    folder = tmp_path / "sessions"
    folder.mkdir()
    meta = b'{"timestamp":"2026-01-01T00:00:00Z","type":"session_meta","payload":{"id":"%s"}}\n'
    event = b'{"timestamp":"2026-01-01T00:00:00Z","type":"event_msg","payload":{"type":"x"}}\n'
    (folder / "rollout-good.jsonl").write_bytes(meta % b"good" + event + b"no JSON\n")
    bomb = values._zstd().compress(meta % b"bomb" + event * 100_000)
    (folder / "rollout-bomb.jsonl.zst").write_bytes(bomb)
    (folder / "rollout-zeros.jsonl").write_bytes(b"\0" * 1000)
    done = run("import", str(folder), "--store", str(tmp_path / "a.db"))
    assert done.code == 1
    assert "rollout-bomb.jsonl.zst: unpacks from" in done.out
    assert "imported 3 entries of 1 file" in done.out
    assert "unknown" not in done.out
    assert "lines that are no JSON (1)" in done.err
    assert "rollout-zeros.jsonl" in done.err
    with clew.open(tmp_path / "a.db") as store:
        assert [info.id for info in store.list().items] == ["codex:good"]
