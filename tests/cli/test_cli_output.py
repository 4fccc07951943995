"""What reaches the terminal: never a control sequence of stored text, never half a character."""

from __future__ import annotations

import io
import json
import time
import unicodedata
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest
from cli_support import Run, say
from hypothesis import given
from hypothesis import strategies as st

import clew
from clew.cli._screen import Screen, wants_colour
from clew.cli._text import ago, cells, characters, clean, cut, one_line, pad, plural

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
        run(*arguments, place, thread.id).out for arguments in (["show"], ["show", "--path"])
    )
    output += run("list", place).out
    assert _dangerous(output) == []
    assert run("show", place, thread.id).lines[-1].endswith(f"[leaf] {shown}")


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
    began = time.monotonic()
    clean(pattern * 100_000)
    clean(pattern + "0" * 300_000)
    assert time.monotonic() - began < 2


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


def test_lines_fit_the_terminal(
    run: Run, store: clew.Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = store.create(title="漢字 " * 60)
    say(thread, "漢字 e\u0301 " * 60)
    for width in (30, 80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = run("show", place, thread.id).lines + run("list", place).lines
        assert max(map(cells, lines)) in (width - 1, width)


def test_the_width_is_80_when_there_is_no_terminal(
    run: Run, store: clew.Store, place: Path
) -> None:
    say(store.create("t"), "x" * 200)
    assert len(run("show", place, "t").lines[-1]) == 80


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
    assert json.loads(data) == {"text": "漢"}


def test_times_and_counts_read_as_words() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    words = {0: "just now", 61: "1 minute ago", 7200: "2 hours ago", 86_400 * 3: "3 days ago"}
    for seconds, text in words.items():
        assert ago(now - timedelta(seconds=seconds), now) == text
    assert ago(now + timedelta(days=1), now) == "2026-01-02 00:00"
    assert [plural(1, "entry"), plural(2000, "entry")] == ["1 entry", "2,000 entries"]
