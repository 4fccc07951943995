"""clew usage: numbers for people and for programs, from whatever is stored."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cli_support import Run

import clew
from clew.cli import usage
from clew.cli._arguments import parse
from clew.cli._screen import Screen


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))


NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)


def reply(
    thread: clew.Thread, id: str, model: str = "claude-sonnet-4-5", days: int = 0, **usage: Any
) -> None:
    body = {"role": "assistant", "content": [{"type": "text", "text": "Yes."}], "id": id}
    body |= {"model": model, "type": "message", "stop_reason": "end_turn"}
    body["usage"] = {"input_tokens": 1000, "output_tokens": 200, **usage}
    thread.append("assistant_message", body, format="anthropic", time=NOON + timedelta(days=days))


@pytest.fixture
def used(store: clew.Store) -> clew.Store:
    thread = store.create("t", title="Fix the login", workspace="=cmd()", facts={"agent": "mine"})
    reply(thread, "msg_1")
    reply(thread, "msg_2", days=1)
    reply(store.create("sub", parent="t"), "msg_3", model="my-model", days=1)
    return store


def test_days_with_their_cost_and_a_total(run: Run, place: Path, used: clew.Store) -> None:
    found = run("usage", "--store", place, "--timezone", "UTC")
    assert found.code == 0
    lines = [" ".join(line.split()) for line in found.lines]
    assert lines[:4] == [
        "day replies input output cost",
        "2026-03-10 1 1.0k 200 $0.01",
        "2026-03-11 2 2.0k 400 $0.01+",
        "total 3 3.0k 600 $0.01+",
    ]
    assert "my-model" in lines[4]
    assert "prices: genai-prices" in lines[5]


def test_a_fork_adds_nothing(run: Run, place: Path, used: clew.Store) -> None:
    before = run("usage", "--store", place, "--json").out
    for _ in range(10):
        used.fork("t")
    assert run("usage", "--store", place, "--json").out == before


def test_json_has_a_version_and_money_in_whole_numbers(
    run: Run, place: Path, used: clew.Store
) -> None:
    value = json.loads(run("usage", "--store", place, "--by", "model", "--json").out)
    assert value["schema_version"] == 1
    known, unknown = value["rows"]
    assert (known["key"], known["cost_microdollars"], known["priced"]) == (
        "claude-sonnet-4-5",
        12_000,
        True,
    )
    assert (unknown["key"], unknown["cost_microdollars"], unknown["priced"]) == (
        "my-model",
        None,
        False,
    )
    assert value["total"]["unknown_models"] == ["my-model"]
    assert value["total"]["tokens"] == {
        "input": 3000,
        "output": 600,
        "cache_read": 0,
        "cache_write": 0,
        "reasoning": 0,
    }


def test_csv_has_every_row_and_no_formula(run: Run, place: Path, used: clew.Store) -> None:
    found = run("usage", "--store", place, "--by", "workspace", "--csv").out
    rows = list(csv.DictReader(io.StringIO(found)))
    assert [row["workspace"] for row in rows] == ["'=cmd()", ""]
    assert [row["cost_microdollars"] for row in rows] == ["12000", ""]


def test_a_thread_with_what_it_started(run: Run, place: Path, used: clew.Store) -> None:
    options = ("usage", "--store", place, "--thread", "t", "--by", "thread", "--json")
    alone = json.loads(run(*options).out)
    assert [row["key"] for row in alone["rows"]] == ["t"]
    tree = json.loads(run(*options, "--tree").out)
    found = {row["key"]: (row["replies"], row["tree"]["replies"]) for row in tree["rows"]}
    assert found == {"t": (2, 3), "sub": (1, 1)}
    shown = run("usage", "--store", place, "--by", "thread", "--tree").out
    assert "Fix the login" in shown


@pytest.mark.parametrize(
    ("options", "replies"),
    [
        (["--since", "2026-03-11"], 2),
        (["--until", "2026-03-10"], 1),
        (["--until", "2026-03-11"], 3),
        (["--since", "2026-03-10T13:00:00Z"], 2),
        (["--since", "2026-03-10T13:00", "--until", "2026-03-11T12:00"], 0),
        (["--until", "2026-03-10T23:30:00-02:00"], 1),
        (["--since", "2026-03-11", "--timezone", "Pacific/Kiritimati"], 3),
        (["--since", "1h"], 0),
        (["--since", "9000d"], 3),
        (["--model", "my-model"], 1),
        (["--agent", "mine"], 2),
        (["--workspace", "=cmd()"], 2),
        (["--workspace", "elsewhere"], 0),
    ],
)
def test_only_what_was_asked_for(
    run: Run, place: Path, used: clew.Store, options: list[str], replies: int
) -> None:
    zone = [] if "--timezone" in options else ["--timezone", "UTC"]
    value = json.loads(run("usage", "--store", place, "--json", *options, *zone).out)
    assert value["total"]["replies"] == replies


def test_prices_of_ones_own(run: Run, place: Path, used: clew.Store, tmp_path: Path) -> None:
    file = tmp_path / "prices.json"
    file.write_text('{"models": {"my-model": {"input": "2.5", "output": 10}}}')
    found = run("usage", "--store", place, "--by", "model", "--prices", file, "--json")
    rows = {row["key"]: row for row in json.loads(found.out)["rows"]}
    assert rows["my-model"]["cost_microdollars"] == 2500 + 2000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--by", "week"], "week"),
        (["--since", "soon"], "soon"),
        (["--timezone", "Mars"], "Mars"),
        (["--prices", "/no/such/file"], "/no/such/file"),
        (["--thread", "no-such"], "no-such"),
        (["--json", "--csv"], "exclude"),
        (["--store", "/no/such/store.db"], "no store"),
        (["--since", "99999999999d"], "99999999999d"),
    ],
)
def test_a_mistake_is_one_line_and_no_traceback(
    run: Run, place: Path, used: clew.Store, options: list[str], said: str
) -> None:
    found = run("usage", "--store", place, *options)
    assert found.code in (2, 3)
    assert found.err.startswith('{"schema_version"' if "--json" in options else "clew: ")
    assert said in found.err
    assert found.out == ""
    assert len(found.err.splitlines()) == 1


def test_a_store_without_replies_says_so(run: Run, place: Path, store: clew.Store) -> None:
    assert "no replies" in run("usage", "--store", place).out


def test_unreadable_usage_is_named(run: Run, place: Path, used: clew.Store) -> None:
    reply(used.get("t"), "msg_4", input_tokens=-1)
    assert "1 reply with a usage that cannot be one" in run("usage", "--store", place).out


def test_stored_names_do_not_reach_the_terminal_as_control_sequences(
    run: Run, place: Path, store: clew.Store
) -> None:
    evil = "\x1b]0;owned\x07\x1b[31mred\u202e"
    thread = store.create("t", title=evil, workspace=evil[:30], facts={"agent": evil})
    reply(thread, "msg_1", model=evil)
    for by in ("model", "workspace", "agent", "thread"):
        for form in ([], ["--json"]):
            out = run("usage", "--store", place, "--by", by, *form).out
            assert not {"\x1b", "\x07", "\u202e"} & set(out)


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_every_line_fits_the_terminal_and_the_cost_is_never_dropped(
    place: Path, used: clew.Store, width: int
) -> None:
    reply(used.get("t"), "msg_long", model="m" * 60)
    out = io.StringIO()
    screen = Screen(out, io.StringIO(), width=width)
    options = parse("usage", usage, ["--store", str(place), "--by", "model"])
    assert usage.run(options, screen) == 0
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert "cost" in lines[0]
    assert width < 40 or "$0.01" in out.getvalue()
    assert width < 60 or "#" in out.getvalue()


def test_nothing_is_cut_in_a_pipe(run: Run, place: Path, used: clew.Store) -> None:
    name = "a-model-" * 20
    reply(used.get("t"), "msg_long", model=name)
    assert f"{name} " in run("usage", "--store", place, "--by", "model").out
