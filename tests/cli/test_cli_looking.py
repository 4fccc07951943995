"""list, tree and show: what is there is shown, in its shape, and found by what is printed."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cli_support import Run, say
from hypothesis import given, settings
from hypothesis import strategies as st

import clew
from clew.cli._stores import short_id, short_ids
from clew.core.model import Page, ThreadInfo, ThreadQuery


def openai_call(arguments: str) -> dict[str, object]:
    function = {"name": "run", "arguments": arguments}
    calls = [{"id": "c", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


TEXTS = {
    "plain": ({"role": "user", "content": "good morning"}, "good morning"),
    "blocks": (
        {"role": "assistant", "content": [{"type": "text", "text": w} for w in ("look", "see")]},
        "look see",
    ),
    "tool_use": (
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "c", "name": "read", "input": {"path": "a.py", "n": 3}}
            ],
        },
        '→ read(path="a.py", n=3)',
    ),
    "tool_result": (
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c",
                    "content": [{"type": "text", "text": "42"}],
                    "is_error": True,
                }
            ],
        },
        "← error: 42",
    ),
    "tool_calls": (openai_call('{"quick":true}'), "→ run(quick=true)"),
    "broken arguments": (openai_call("{oops"), "→ run({oops)"),
    "gemini": ({"role": "model", "parts": [{"functionCall": {"name": "run"}}]}, "→ run()"),
    "responses": (
        {"type": "function_call", "call_id": "c", "name": "run", "arguments": "{}"},
        "→ run()",
    ),
    "strange calls": (
        {"role": "assistant", "tool_calls": [7]},
        '{"role":"assistant","tool_calls":[7]}',
    ),
    "unknown block": ({"role": "user", "content": [{"type": "hologram"}]}, '{"type":"hologram"}'),
    "odd content": ({"role": "user", "content": {"a": 1}}, '{"role":"user","content":{"a":1}}'),
    "no message": ([1, "two", None], '[1,"two",null]'),
}


@pytest.mark.parametrize("case", TEXTS)
def test_no_shape_of_message_is_shown_wrong(
    run: Run, store: clew.Store, place: Path, case: str
) -> None:
    body, text = TEXTS[case]
    thread = store.create()
    thread.append("user_message", body)
    assert run("tree", place, thread.id).lines[-1].endswith(f"user_message  [leaf] {text}")


def test_branches_are_drawn_beside_the_current_path(
    run: Run, store: clew.Store, place: Path
) -> None:
    thread = store.create(title="Tree")
    root = say(thread, "root")
    say(thread, "left 1")
    say(thread, "left 2")
    thread.move(root.id)
    middle = say(thread, "right 1")
    say(thread, "right 2")
    thread.move(middle.id)
    say(thread, "right 3")
    shown = run("tree", place, thread.id)
    assert [line[5:] for line in shown.lines[2:]] == [
        "● user_message  root",
        "├─○ user_message  left 1",
        "│ ○ user_message  left 2",
        "● user_message  right 1",
        "├─○ user_message  right 2",
        "◉ user_message  [leaf] right 3",
    ]


def test_a_branch_of_a_branch_is_indented_once_more(
    run: Run, store: clew.Store, place: Path
) -> None:
    thread = store.create()
    root = say(thread, "root")
    branch = say(thread, "branch")
    say(thread, "twig 1")
    thread.move(branch.id)
    say(thread, "twig 2")
    thread.move(root.id)
    shown = run("tree", place, thread.id)
    assert [line[5:] for line in shown.lines[2:]] == [
        "◉ user_message  [leaf] root",
        "○ user_message  branch",
        "├─○ user_message  twig 1",
        "○ user_message  twig 2",
    ]


def test_several_roots_and_a_leaf_before_them_are_shown(
    run: Run, store: clew.Store, place: Path
) -> None:
    thread = store.create()
    say(thread, "first")
    thread.move(None)
    say(thread, "second")
    thread.move(None)
    shown = run("tree", place, thread.id).out
    assert "leaf: before the root" in shown
    assert "first" in shown
    assert "second" in shown


def test_a_long_thread_does_not_exhaust_the_stack(run: Run, store: clew.Store, place: Path) -> None:
    thread = store.create()
    thread.append(
        [clew.draft("user_message", {"role": "user", "content": "x"}) for _ in range(3000)]
    )
    assert len(run("tree", place, thread.id).lines) == 3002


def test_forks_labels_and_origins_are_named(run: Run, store: clew.Store, place: Path) -> None:
    thread = store.create(title="First")
    entry = say(thread, "shared")
    thread.label(entry.id, "good start")
    fork = thread.fork(title="Second")
    say(fork, "own")
    source = run("tree", place, thread.id).out
    assert f"label good start, fork {fork.id[:12]}" in source
    forked = run("tree", place, fork.id).out
    assert f"[forked from {thread.id[:12]}] shared" in forked
    assert "[leaf] own" in forked


def test_the_path_shows_the_full_text_and_no_other_branch(
    run: Run, store: clew.Store, place: Path
) -> None:
    thread = store.create()
    root = say(thread, "one\n\ttwo " + "long " * 100)
    say(thread, "left behind")
    thread.move(root.id)
    shown = run("show", place, "--path", thread.id).out
    assert "     one\n         two long" in shown
    assert "long " * 99 in shown
    assert "left behind" not in shown


def test_an_entry_of_an_adapters_own_is_shown_by_its_label(
    run: Run, store: clew.Store, place: Path
) -> None:
    thread = store.create("t")
    thread.append("custom", {"versions": [1, 2]}, meta={"label": "checkpoint of step 3"})
    thread.append("custom", {"versions": [3]}, meta={"label": 7})
    for options in ((), ("--path",)):
        out = run("show", str(place), "t", *options).out
        assert "checkpoint of step 3" in out
        assert '{"versions":[3]}' in out
        assert "[1,2]" not in out


def test_a_deleted_thread_can_still_be_looked_at(run: Run, store: clew.Store, place: Path) -> None:
    thread = store.create(title="Gone")
    say(thread, "still here")
    store.delete(thread.id)
    assert run("list", place).lines == ["no threads"]
    assert "Gone" in run("list", place, "--deleted").out
    shown = run("show", place, thread.id).out
    assert "deleted just now" in shown
    assert "still here" in shown


def test_options_may_stand_between_store_and_thread(
    run: Run, store: clew.Store, place: Path
) -> None:
    thread = store.create()
    assert run("show", place, "--path", thread.id).code == 0
    assert run("--no-color", "show", "--json", place, thread.id).code == 0


def test_one_argument_is_a_thread_of_the_users_own_store(run: Run) -> None:
    with clew.open() as own:
        thread = own.create(title="Mine")
    assert "Mine" in run("show", thread.id).out
    assert "Mine" in run("list").out


def test_an_id_longer_than_a_file_name_is_not_looked_for_on_disk(run: Run) -> None:
    with clew.open() as own:
        own.create("x" * 500)
    assert run("show", "x" * 500).code == 0


def test_every_printed_id_finds_its_thread(run: Run, store: clew.Store, place: Path) -> None:
    ids = [f"session-2026-11-{day:02}" for day in range(1, 25)]
    for id in [*ids, "session-2026-1", "s", "s\u0301pecial"]:
        store.create(id)
    printed = [line.split("  ")[0] for line in run("list", place).lines]
    assert sorted(store.resolve(name).id for name in printed) == sorted(
        [*ids, "session-2026-1", "s", "s\u0301pecial"]
    )


def test_filters_and_order_reach_the_store(run: Run, store: clew.Store, place: Path) -> None:
    old = store.create(title="Old", tags=["bug"], workspace="here")
    store.create(title="New")
    archived = store.create(title="Away")
    archived.set(archived=True)
    say(old, "touched again")

    def titles(*options: str) -> list[str]:
        return [json.loads(line)["title"] for line in run("list", place, "--json", *options).lines]

    assert titles() == ["Old", "New"]
    assert titles("--order", "created") == ["New", "Old"]
    assert titles("--all", "--order", "created") == ["Away", "New", "Old"]
    assert titles("--tag", "bug") == ["Old"]
    assert titles("--workspace", "here") == ["Old"]
    assert titles("--limit", "1") == ["Old"]


def test_agents_families_and_times_narrow_a_list(run: Run, store: clew.Store, place: Path) -> None:
    old = store.create("old", title="Old", time=datetime(2020, 1, 1, tzinfo=UTC))
    boss = store.create("boss", title="Boss", facts={"agent": "pi", "status": "busy"})
    say(boss, "go")
    store.create("helper", title="Helper", parent="boss")
    boss.fork(id="fork", title="Fork")
    store.fork("fork", id="nested", title="Nested")

    def ids(*options: str) -> list[str]:
        return [json.loads(line)["id"] for line in run("list", place, "--json", *options).lines]

    assert ids("--agent", "pi") == ["nested", "fork", "boss"], "a fork is its agent's too"
    assert ids("--status", "busy") == ["boss"]
    assert ids("--parent", "boss") == ["helper"]
    assert ids("--origin", "boss") == ["fork"]
    assert sorted(ids("--roots")) == ["boss", "old"]
    assert ids("--until", "2021-01-01") == ["old"]
    assert "old" not in ids("--since", "7d")
    assert ids("--since", "7d", "--agent", "nobody") == []
    assert ids("--tree", "--since", "7d") == ["boss", "helper", "fork", "nested"]
    drawn = run("list", place, "--tree", "--since", "7d").lines
    ends = [line.split("  ")[-1].strip() for line in drawn[1:3]]
    assert ends == ["└ sub-agent Helper", "└ fork Fork"]
    assert run("list", place, "--since", "soon").code == 2
    assert run("list", place, "--parent", "nobody").code == 3
    assert old.info.seq == 1


def test_messages_are_counted_or_said_to_be_an_estimate(
    run: Run, store: clew.Store, place: Path
) -> None:
    store.create("none")
    few = store.create("few")
    with few.turn(owner="me") as turn:
        turn.append_message({"role": "user", "content": "hello"})
        turn.append_message({"role": "assistant", "content": "hello"})
    many = store.create("many")
    many.append([clew.draft("user_message", {"role": "user", "content": n}) for n in range(900)])
    found = {
        value["id"]: (value["messages"], value["messages_estimate"])
        for value in map(json.loads, run("list", place, "--json").lines)
    }
    assert found == {"none": (0, None), "few": (2, None), "many": (None, 901)}
    assert "~901 msg" in run("list", place).out


def test_tokens_and_cost_are_columns_where_they_are_known(
    run: Run, store: clew.Store, place: Path
) -> None:
    for id, model in (("priced", "claude-sonnet-4-5"), ("unpriced", "my-own-model")):
        reply = {
            "id": f"msg_{id}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [{"type": "text", "text": "Done."}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 1_000_000, "output_tokens": 100_000},
        }
        store.create(id).append_response(reply, format="anthropic")
    store.create("silent")
    lines = {line.split()[0]: line for line in run("list", place).lines}
    assert re.search(r"1\.10M tok +\$[0-9.]+ ", lines["priced"])
    assert re.search(r"1\.10M tok +unknown ", lines["unpriced"])
    assert "tok" not in lines["silent"]
    values = {value["id"]: value for value in map(json.loads, run("list", place, "--json").lines)}
    assert values["priced"]["usage"]["cost_microdollars"] > 0
    assert values["unpriced"]["usage"]["cost_microdollars"] is None
    assert values["silent"]["usage"]["replies"] == 0


def test_a_limit_says_that_there_is_more(run: Run, store: clew.Store, place: Path) -> None:
    for _ in range(3):
        store.create()
    assert "and more" in run("list", place, "--limit", 2).lines[-1]
    assert "and more" not in run("list", place, "--limit", 3).out


def test_json_gives_every_record_back_exactly(run: Run, store: clew.Store, place: Path) -> None:
    body = {"text": "\x1b[31m\u009b\u202e\u2028é\ud800 \U000e0041", "n": 2**63, "f": 1.5, "z": None}
    source = store.create()
    shared = source.append("custom", body, meta={"by": "me"})
    thread = source.fork()
    thread.move(None)
    lines = run("tree", place, thread.id, "--json").lines
    entry, move = map(json.loads, lines)
    assert entry["body"] == body
    assert (entry["id"], entry["hash"], entry["meta"]) == (shared.id, shared.hash, {"by": "me"})
    assert (entry["type"], entry["thread"]) == ("entry", source.id)
    assert (move["type"], move["leaf"]) == ("move", None)


def test_a_store_that_only_another_process_closed_is_listed_while_open(
    run: Run, store: clew.Store, place: Path
) -> None:
    store.create(title="Live")
    assert "Live" in run("list", f"sqlite:///{place}").out


ids = st.text("ab", min_size=1, max_size=16) | st.integers(0, 300).map(lambda n: f"session-{n:05}")


@given(st.sets(ids, min_size=1, max_size=150), st.sets(ids, max_size=20), st.integers(1, 50))
@settings(max_examples=25)
def test_what_a_list_prints_of_an_id_leads_to_its_thread(
    there: set[str], deleted: set[str], shown: int
) -> None:
    with clew.open("memory:") as store:
        for id in sorted(there | deleted):
            store.create(id)
        for id in deleted:
            store.delete(id)
        page = sorted(there | deleted)[-shown:]
        found = short_ids(store, page)
        assert list(found) == page
        for id, short in found.items():
            assert store.resolve(short, deleted=True).id == id
            assert short == short_id(store, id)
        assert short_ids(store, []) == {}


def test_short_ids_of_a_whole_store_do_not_take_a_look_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with clew.open("memory:") as store:
        names = [f"{n:012} of many" for n in range(300)]
        for name in names:
            store.create(name)
        looks: list[ThreadQuery] = []
        threads = store.engine.threads

        def counted(query: ThreadQuery) -> Page[ThreadInfo]:
            looks.append(query)
            return threads(query)

        monkeypatch.setattr(store.engine, "threads", counted)
        assert short_ids(store, names) == {name: name[:12] for name in names}
    assert len(looks) < 10
