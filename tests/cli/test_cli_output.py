"""What reaches the terminal: never a control sequence of stored text, never half a character."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
import unicodedata
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import apsw
import pytest
from cli_support import Run, say
from hypothesis import given
from hypothesis import strategies as st

import clew
from clew.cli._screen import Screen, wants_colour
from clew.cli._text import ago, cells, characters, clean, cut, one_line, pad, plural
from clew.core.model import rfc3339

ATTACKS = {
    "colour": ("\x1b[31mred\x1b[0m", "red"),
    "cursor": ("safe\x1b[2A\x1b[2Khidden", "safehidden"),
    "title": ("\x1b]0;owned\x07text", "text"),
    "link": ("\x1b]8;;http://evil\x1b\\text\x1b]8;;\x1b\\", "text"),
    "clipboard": ("\x1b]52;c;ZXZpbA==\x9ctext", "text"),
    "eight-bit CSI": ("\x9b31mtext", "text"),
    "eight-bit OSC": ("\x9d0;owned\x9ctext", "text"),
    "device control": ("\x1bP+q544e\x1b\\text", "text"),
    "reset": ("\x1bctext", "text"),
    "charset": ("\x1b(0text", "text"),
    "made by cleaning": ("\x1b\x1b[31m[32mtext", "[32mtext"),
    "unfinished string": ("\x1b]0;shown anyway", "0;shown anyway"),
    "overwriting": ("good\rbad", "good bad"),
    "backspace": ("good\b\b\b\bbad", "goodbad"),
    "reading direction": ("user\u202e\u2066txt.exe\u2069", "usertxt.exe"),
    "invisible letters": ("a\U000e0041\u200b\ufeffb", "ab"),
    "line ends": ("a\u2028b\x85c\x0bd", "a b c d"),
    "lone surrogate": ("a\ud800b", "a\ufffdb"),
    "bell and null": ("a\x07\x00b", "ab"),
}


@pytest.mark.parametrize("case", ATTACKS)
def test_control_sequences_in_stored_text_do_not_reach_the_terminal(
    run: Run, store: clew.Store, place: Path, case: str
) -> None:
    attack, shown = ATTACKS[case]
    name = "n" + attack.encode("utf-8", "ignore").decode().replace("\0", "")
    thread = store.create(title=attack, tags=[name], workspace=name)
    entry = thread.append(name)
    thread.label(entry.id, attack)
    say(thread, attack)
    output = "".join(
        run(*arguments, place, thread.id).out
        for arguments in (["tree"], ["show"], ["show", "--full"], ["show", "--path"], ["tail"])
    )
    output += run("list", place).out
    assert _dangerous(output) == []
    assert run("tree", place, thread.id).lines[-1].endswith(f"[leaf] {shown}")


def _dangerous(text: str) -> list[str]:
    allowed = "\n\u200c\u200d"
    bad = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return [char for char in text if unicodedata.category(char) in bad and char not in allowed]


def test_errors_do_not_carry_control_sequences_either(
    run: Run, store: clew.Store, place: Path
) -> None:
    store.create("x\x1b[31m1")
    store.create("x\x1b[31m2")
    failed = run("show", place, "x")
    assert "begins the ids of several threads" in failed.err
    assert _dangerous(failed.err) == []
    assert failed.err.count("\n") == 1


def test_damage_reports_do_not_carry_control_sequences(
    run: Run, store: clew.Store, place: Path
) -> None:
    thread = store.create("evil\x1b[2J")
    say(thread, "x")
    store.close()
    database = apsw.Connection(str(place))
    database.execute("UPDATE records SET body = CAST('\x1b[2J' AS BLOB) WHERE type = 0")
    database.close()
    verified = run("verify", place)
    assert verified.code == 1
    assert _dangerous(verified.out) == []


@given(st.text(st.characters(codec=None)))
def test_cleaning_leaves_nothing_to_act_on_whatever_the_text(text: str) -> None:
    cleaned = clean(text)
    left = set(_dangerous(cleaned)) - {"\t"}
    # Other format characters, such as those of Arabic numbers, are letters to a terminal.
    assert not any(unicodedata.category(char) != "Cf" for char in left)
    assert clean(cleaned) == cleaned
    assert "\x1b" not in cleaned


@pytest.mark.parametrize("pattern", ["\x1b]", "\x9d", "\x1b[0", "\x9b;", "\x1b", "\x1bP0;"])
def test_no_text_makes_cleaning_slow(pattern: str) -> None:
    began = time.process_time()
    clean(pattern * 100_000)
    clean(pattern + "0" * 300_000)
    assert time.process_time() - began < 2


CHARACTERS = {
    "e\u0301": 1,  # a letter and its accent
    "漢": 2,
    "\U0001f469\u200d\U0001f680": 2,  # joined: an astronaut
    "\U0001f44d\U0001f3fd": 2,  # with a skin tone
    "\U0001f1e9\U0001f1ea": 2,  # a flag
    "\u2764\ufe0f": 2,
    "\u1112\u1161\u11ab": 2,  # a Korean syllable in three parts
}


@pytest.mark.parametrize("character", CHARACTERS)
def test_a_cut_never_goes_through_a_character(character: str) -> None:
    width = CHARACTERS[character]
    assert list(characters(character * 3)) == [character] * 3
    assert cells(character * 3) == 3 * width
    assert cut(character * 3, 2 * width) == character + "…"
    assert cut(character * 3, 3 * width) == character * 3


@given(st.text(max_size=60), st.integers(0, 30))
def test_a_cut_text_fits_and_is_a_beginning(text: str, width: int) -> None:
    line = one_line(text)
    short = cut(line, width)
    assert cells(short) <= width
    assert short == line or line.startswith(short.removesuffix("…"))
    assert cells(pad(line, width)) == width


def on_terminal(columns: int, *arguments: object) -> list[str]:
    """The lines that a command prints on a terminal of that width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    printed = bytearray()
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "clew", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.PIPE,
            env=os.environ | {"NO_COLOR": "1"},
        ):
            os.close(theirs)
            with suppress(OSError):  # how a terminal says that its other side is closed
                while piece := os.read(ours, 65536):
                    printed += piece
    finally:
        os.close(ours)
    return printed.decode().splitlines()


def test_an_error_says_that_more_ids_begin_so_than_it_names(
    run: Run, store: clew.Store, place: Path
) -> None:
    for n in range(12):
        store.create(f"many-{n:02}")
    assert run("show", place, "many").err.endswith("many-11, …\n")
    store.delete("many-00")
    store.delete("many-01")
    assert run("label", place, "many", "1", "x").err.endswith("many-11\n"), "there are ten"


def test_the_help_of_a_family_parts_what_it_says_from_its_commands(run: Run) -> None:
    assert ".\n\ncommands:\n" in run("snapshot").out


def test_lines_fit_the_terminal(store: clew.Store, place: Path) -> None:
    thread = store.create(title="漢字 " * 60)
    say(thread, "漢字 e\u0301 " * 60)
    for width in (30, 200):
        lines = on_terminal(width, "tree", place, thread.id) + on_terminal(width, "list", place)
        assert max(map(cells, lines)) in (width - 1, width)


def test_a_narrow_terminal_shows_what_a_thread_is_about(store: clew.Store, place: Path) -> None:
    for n in range(2):
        store.create(f"an-id-of-some-length-{n}", title="Fix the login")
    for line in on_terminal(40, "list", place):
        assert "Fix the login" in line


@pytest.mark.parametrize("columns", [None, "30"])
def test_no_terminal_cuts_what_goes_to_a_pipe(
    run: Run,
    store: clew.Store,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    columns: str | None,
) -> None:
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    thread = store.create("t", title="long " * 40 + "end")
    say(thread, "x" * 200 + " end")
    thread.append("a kind with a name that is longer than a column")
    listed, shown = run("list", place), run("show", place, "t")
    assert listed.lines[-1].endswith("long end")
    assert shown.lines[0].endswith("long end")
    assert "x" * 200 + " end" in shown.out
    assert "a kind with a name that is longer than a column" in shown.out
    assert "…" not in listed.out + shown.out


@pytest.mark.parametrize(
    ("environ", "tty", "expected"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "0"}, True, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
    ],
)
def test_colour_is_only_where_it_is_wanted(
    environ: dict[str, str], tty: bool, expected: bool
) -> None:
    assert wants_colour(environ, tty=tty) is expected


def test_no_color_wins_on_the_command_line_too(
    run: Run, store: clew.Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create(title="Plain")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1mPlain\x1b[0m" in run("list", place).out
    assert "\x1b" not in run("list", place, "--no-color").out
    assert "\x1b" not in run("--no-color", "list", place).out
    assert "\x1b" not in run("list", place, "--json").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in run("list", place).out


def test_an_old_encoding_is_no_reason_to_fail() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii", errors="replace")
    screen = Screen(out, io.StringIO())
    screen.line("├─● 漢 …")
    screen.json({"text": "漢"})
    screen.flush()
    drawn, data = raw.getvalue().decode("ascii").splitlines()
    assert drawn == "+-* ? ..."
    assert json.loads(data) == {"schema_version": 1, "text": "漢"}


def test_what_is_left_out_of_a_line_is_marked_on_a_pipe_too(
    run: Run, store: clew.Store, place: Path
) -> None:
    say(store.create("t"), "x" * 5000)
    assert run("tree", place, "t").lines[-1].endswith("x…")
    assert "x" * 5000 in run("show", place, "t", "--path").out
    assert "x" * 5000 in run("show", place, "t").out


RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def test_every_time_in_json_is_spelled_the_same(
    run: Run, store: clew.Store, place: Path, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "file.txt").write_text("one")
    thread = store.create("t")
    say(thread, "hello")
    thread.snapshots.take(work)
    (work / "file.txt").write_text("two")
    thread.snapshots.take(work)
    store.delete(store.create("gone").id)
    commands = [
        ["list", place],
        ["list", place, "--deleted"],
        ["show", place, "t"],
        ["snapshot", "list", place, "t"],
        ["snapshot", "show", place, "t", "--history", "file.txt"],
        ["cleanup", place, "--older-than", "2020-01-01", "--dry-run"],
    ]
    for command in commands:
        printed = run(*command, "--json")
        assert printed.code == 0, printed.err
        times = [time for line in printed.lines for time in _times(json.loads(line))]
        assert times, command
        assert [time for time in times if not RFC3339.fullmatch(str(time))] == [], command


def _times(value: Any, key: str = "") -> list[Any]:
    """Whatever looks like a time or is called one, but for what the user has stored."""
    if isinstance(value, dict):
        return [
            t for k, v in value.items() if k not in ("facts", "body", "value") for t in _times(v, k)
        ]
    if isinstance(value, list):
        return [time for item in value for time in _times(item, key)]
    named = key in ("time", "time_us", "cutoff") or key.endswith("_at")
    dated = isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\dT", value)
    return [value] if value is not None and (named or dated) else []


def test_a_time_of_another_zone_is_spelled_in_utc() -> None:
    noon = datetime(2026, 7, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert rfc3339(noon) == "2026-07-01T10:00:00.000000Z"


def test_times_and_counts_read_as_words() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    words = {0: "just now", 61: "1 minute ago", 7200: "2 hours ago", 86_400 * 3: "3 days ago"}
    for seconds, text in words.items():
        assert ago(now - timedelta(seconds=seconds), now) == text
    assert ago(now + timedelta(days=1), now) == "2026-01-02 00:00"
    assert [plural(1, "entry"), plural(2000, "entry")] == ["1 entry", "2,000 entries"]
