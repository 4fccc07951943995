"""search: what is printed can be read, jumped to, and fed to programs; stored text does no harm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_support import Run, say

import clew


@pytest.fixture
def filled(store: clew.Store) -> clew.Store:
    thread = store.create("fix-login", title="Fix the \x1b]0;evil\x07login", tags=["bug"])
    say(thread, "The login fails in Safari")
    say(thread, "It was the \x1b[31msession_token\x1b[0m of the login", "assistant")
    return store


def test_a_hit_names_thread_entry_and_place(run: Run, place: Path, filled: clew.Store) -> None:
    result = run("search", "session", "token", "--store", place)
    assert result.code == 0
    assert result.lines[0].startswith("fix-login #4  assistant  ")
    assert result.lines[0].endswith("Fix the login")
    assert result.lines[1:] == ["    It was the session_token of the login", "1 hit"]


def test_no_control_sequence_of_stored_text_is_printed(
    run: Run, place: Path, filled: clew.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "\x1b" not in run("search", "login", "--store", place).out
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = run("search", "safari", "--store", place).out
    assert "\x1b[1;31mSafari\x1b[0m" in coloured
    assert "evil" not in coloured


def test_programs_get_one_object(run: Run, place: Path, filled: clew.Store) -> None:
    found = json.loads(run("search", "login", "--store", place, "--json", "--limit", 1).out)
    assert found["schema_version"] == 1
    assert (found["total"], found["exact"], len(found["hits"])) == (3, True, 1)
    more = run("search", "login", "--store", place, "--json", "--cursor", found["cursor"]).out
    assert len(json.loads(more)["hits"]) == 2
    (hit,) = json.loads(run("search", "safari", "--store", place, "--json").out)["hits"]
    assert (hit["thread"], hit["seq"], hit["time"][-1]) == ("fix-login", 3, "Z")


def test_what_was_left_out_is_told(run: Run, place: Path, filled: clew.Store) -> None:
    cut = run("search", "login", "--store", place, "--limit", 1)
    assert cut.lines[-1] == "1 of 3 hits; --cursor 1 goes on"
    some = run("search", "safari", "zebra", "--store", place)
    assert some.lines[-1] == "1 hit with some of the words: nothing has all of them"
    assert run("search", "zebra", "--store", place).lines == ["nothing found"]


def test_filters_are_passed_on(run: Run, place: Path, filled: clew.Store) -> None:
    for given, count in (
        (("--role", "user"), 1),
        (("--tag", "bug"), 3),
        (("--kind", "title"), 1),
        (("--since", "1d"), 3),
        (("--until", "1d"), 0),
        (("--thread", "fix"), 3),
    ):
        out = run("search", "login", "--store", place, "--json", *given).out
        assert json.loads(out)["total"] == count, given
    assert json.loads(run("search", "--substring", "ession_to", "--store", place, "--json").out)[
        "hits"
    ]


def test_a_store_that_is_not_there_is_not_made(run: Run, tmp_path: Path) -> None:
    result = run("search", "x", "--store", tmp_path / "nothing.db")
    assert (result.code, result.out) == (2, "")
    assert list(tmp_path.glob("nothing*")) == []


def test_an_index_made_anew_is_said_on_standard_error(
    run: Run, place: Path, filled: clew.Store
) -> None:
    filled.search("login")
    index = Path(filled.properties.text_index_place or "")
    filled.close()
    index.write_bytes(b"no index")
    result = run("search", "login", "--store", place)
    assert "made anew" in result.err
    assert result.lines[-1] == "3 hits"
