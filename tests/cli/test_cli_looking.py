"""list and show: what is there is shown, in its shape, and can be found by what is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_support import Run, say

import clew


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
    assert run("show", place, thread.id).lines[-1].endswith(f"user_message  [leaf] {text}")


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
    shown = run("show", place, thread.id)
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
    shown = run("show", place, thread.id)
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
    shown = run("show", place, thread.id).out
    assert "leaf: before the root" in shown
    assert "first" in shown
    assert "second" in shown


def test_a_long_thread_does_not_exhaust_the_stack(run: Run, store: clew.Store, place: Path) -> None:
    thread = store.create()
    thread.append(
        [clew.draft("user_message", {"role": "user", "content": "x"}) for _ in range(3000)]
    )
    assert len(run("show", place, thread.id).lines) == 3002


def test_forks_labels_and_origins_are_named(run: Run, store: clew.Store, place: Path) -> None:
    thread = store.create(title="First")
    entry = say(thread, "shared")
    thread.label(entry.id, "good start")
    fork = thread.fork(title="Second")
    say(fork, "own")
    source = run("show", place, thread.id).out
    assert f"label good start, fork {fork.id[:12]}" in source
    forked = run("show", place, fork.id).out
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
    lines = run("show", place, thread.id, "--json").lines
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
