"""A record says everything: a coding task of two turns, and what its file tells of it afterwards.

The file is read as a stranger would read it: line by line, as JSON, without Clew.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.interchange.export import export

CLASSES = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
ASKED = ("Round the total to two digits. canary-r1", "Not so: round it down. canary-r2")
ANSWERED = ("It is rounded now. canary-a1", "It is rounded down now. canary-a2")
SOURCES = ("total = round(9.999, 2)\nprint(total)\n", "total = int(9.999)\nprint(total)\n")


class Observer:
    """What was really done, noted where it was done, and never read from the record."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any]] = []
        self.results: list[tuple[str, str]] = []
        self.replies: list[dict[str, int]] = []
        self.files: list[tuple[str | None, str]] = []


def run_task(thread: clew.Thread, folder: Path) -> Observer:
    """An agent with two tools and a scripted model; what it does, it does on the disk."""
    seen, target = Observer(), folder / "checkout.py"
    target.write_text("total = 9.999\nprint(total)\n")
    for turn_number, source in enumerate(SOURCES):
        before = sha256(target)
        with thread.turn(owner="repair-bot", files=folder) as turn:
            turn.append_message({"role": "user", "content": ASKED[turn_number]})
            for step, (name, arguments) in enumerate(
                [("write", {"path": "checkout.py", "text": source}), ("run", {"check": "total"})]
            ):
                id = f"call_{turn_number}_{step}"
                seen.calls.append((id, name, arguments))
                respond(turn, seen, {"type": "tool_use", "id": id, "name": name}, arguments)
                output = use(name, arguments, folder, id)
                seen.results.append((id, output))
                turn.append_results({id: output})
            respond(turn, seen, {"type": "text", "text": ANSWERED[turn_number]})
        seen.files.append((before, sha256(target)))
    return seen


def respond(turn: clew.Turn, seen: Observer, block: Any, arguments: Any = None) -> None:
    number = len(seen.replies) + 1
    usage = dict(zip(CLASSES, (100 * number, number, 7 * number, 0), strict=True))
    seen.replies.append(usage)
    if arguments is not None:
        block = {**block, "input": arguments}
    turn.append_response(
        {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": "claude-x",
            "content": [{"type": "text", "text": f"Step {number}."}, block],
            "stop_reason": "end_turn" if arguments is None else "tool_use",
            "usage": {
                "input_tokens": usage["input_tokens"],
                "output_tokens": usage["output_tokens"],
                "cache_read_input_tokens": usage["cache_read_tokens"],
                "cache_creation_input_tokens": usage["cache_write_tokens"],
            },
        }
    )


def use(name: str, arguments: dict[str, str], folder: Path, nonce: str) -> str:
    if name == "write":
        (folder / arguments["path"]).write_text(arguments["text"])
        return f"written {nonce}"
    done = subprocess.run([sys.executable, "checkout.py"], cwd=folder, capture_output=True)
    return f"{done.stdout.decode().strip()} exit={done.returncode} {nonce}"


def sha256(path: Path) -> str:
    return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(params=["files", "bundle"])
def record(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[list[Any], Observer, str]:
    """The lines of the record, what was done, and which form the record has."""
    form, folder = request.param, tmp_path / "project"
    folder.mkdir()
    address = f"files:{tmp_path}/store" if form == "files" else str(tmp_path / "store.db")
    with clew.open(address) as store:
        thread = store.create("task", facts={"harness": "repair-bot", "surface": "cli"})
        seen = run_task(thread, folder)
        path = tmp_path / "store" / "threads" / "task.jsonl"
        if form == "bundle":
            path = export(thread, tmp_path / "task.jsonl", form).path
    alone = path.read_bytes()  # nothing else is looked at
    return [json.loads(line) for line in alone.splitlines()], seen, form


def entries(lines: list[Any], *kinds: str) -> list[Any]:
    return [line for line in lines if line.get("kind") in kinds]


def test_every_turn_answer_call_and_result_is_there_once_and_in_order(
    record: tuple[list[Any], Observer, str],
) -> None:
    lines, seen, _ = record
    assert tuple(e["body"]["content"] for e in entries(lines, "user_message")) == ASKED
    replies = entries(lines, "assistant_message", "tool_call")
    blocks = [block for reply in replies for block in reply["body"]["content"]]
    calls = [(b["id"], b["name"], b["input"]) for b in blocks if b["type"] == "tool_use"]
    results = entries(lines, "tool_result")
    assert calls == seen.calls
    assert [(r["body"]["tool_call_id"], r["body"]["content"]) for r in results] == seen.results
    last = [reply["body"]["content"][-1]["text"] for reply in replies if reply["kind"][0] == "a"]
    assert tuple(last) == ANSWERED
    said = [*ASKED, *ANSWERED, *(output for _, output in seen.results)]
    for words in said:
        assert sum(words in json.dumps(line) for line in lines) == 1
    for id, _, arguments in seen.calls:
        spelled = json.dumps({"id": id, "input": arguments})[:-1].split(", ", 1)
        assert sum(all(part[1:] in json.dumps(line) for part in spelled) for line in lines) == 1


def test_what_belongs_together_is_joined_by_ids(
    record: tuple[list[Any], Observer, str],
) -> None:
    lines, _, _ = record
    seqs = {line["id"]: line["seq"] for line in lines if "seq" in line}
    assert list(seqs.values()) == list(range(1, len(seqs) + 1))
    own = [line for line in lines if line.get("type") == "entry"]
    assert all(line["parent"] is None or seqs[line["parent"]] < line["seq"] for line in own)
    calls = {
        block["id"]: call
        for call in entries(lines, "tool_call")
        for block in call["body"]["content"]
        if block["type"] == "tool_use"
    }
    for result in entries(lines, "tool_result"):
        call = calls.pop(result["body"]["tool_call_id"])
        assert call["seq"] < result["seq"]
        assert call["turn"] == result["turn"]
    assert calls == {}
    turns = [entry["turn"] for entry in entries(lines, "user_message")]
    assert [entry["turn"] for entry in entries(lines, "assistant_message")] == turns
    assert len(set(turns)) == 2


def test_the_usage_of_each_reply_is_explicit_and_sums_to_the_total_that_is_stated(
    record: tuple[list[Any], Observer, str],
) -> None:
    lines, seen, form = record
    notes = entries(lines, "usage")
    replies = entries(lines, "assistant_message", "tool_call")
    assert [{name: note["body"][name] for name in CLASSES} for note in notes] == seen.replies
    assert [note["parent"] for note in notes] == [reply["id"] for reply in replies]
    assert {note["body"]["model"] for note in notes} == {"claude-x"}
    stated = [m for m in entries(lines, "turn_marker") if m["body"]["status"] == "completed"]
    for number, marker in enumerate(stated):
        mine = seen.replies[3 * number : 3 * number + 3]
        total = marker["body"]["usage"]
        assert total["replies"] == 3
        assert all(total[name] == sum(reply[name] for reply in mine) for name in CLASSES)
    if form == "bundle":
        total = lines[-1]["usage"]
        assert (lines[-1]["type"], total["replies"]) == ("end", 6)
        assert all(total[name] == sum(reply[name] for reply in seen.replies) for name in CLASSES)


def test_changed_files_are_named_with_the_hashes_that_they_had_on_the_disk(
    record: tuple[list[Any], Observer, str],
) -> None:
    lines, seen, _ = record
    markers = [m for m in entries(lines, "turn_marker") if m["body"]["status"] == "completed"]
    changes = [change for marker in markers for change in marker["body"]["changes"]]
    assert [(c["path"], c["change"]) for c in changes] == [("checkout.py", "modified")] * 2
    assert [(c["before"], c["after"]) for c in changes] == seen.files


def test_the_record_names_itself_its_version_its_harness_and_zoned_times(
    record: tuple[list[Any], Observer, str],
) -> None:
    lines, _, form = record
    header = lines[0]
    assert (header["format"], header["version"], header["id"]) == ("clew.thread", 1, "task")
    facts = {line["key"]: line["value"] for line in lines if line.get("type") == "fact"}
    assert (facts["harness"], facts["surface"]) == ("repair-bot", "cli")
    if form == "bundle":
        named = {"type": "bundle", "version": 1, "harness": "repair-bot", "surface": "cli"}
        assert lines[1].items() >= named.items()
    records = [line for line in lines if "seq" in line]
    times = [datetime.fromisoformat(line["time"]) for line in records]
    assert all(time.utcoffset() == timedelta(0) for time in times)
    assert times == sorted(times)
    assert all(line["time"].endswith("Z") for line in records)


# --- the parts of it ---


def test_a_reply_that_is_written_again_is_counted_once(store: clew.Store) -> None:
    thread = store.create("t")
    body = {"input_tokens": 3, "output_tokens": 1, "cache_read_tokens": 0}
    with thread.turn(owner="me") as turn:
        for _ in range(2):
            turn.append("usage", body, id="u")
        turn.append([clew.draft("usage", body)])
    total = thread.path()[-1].body["usage"]
    assert (total["replies"], total["input_tokens"], total["cache_write_tokens"]) == (2, 6, 0)


def test_a_turn_without_replies_or_changes_states_none(store: clew.Store, tmp_path: Path) -> None:
    thread = store.create("t")
    folder = tmp_path / "project"
    folder.mkdir()
    with thread.turn(owner="me", files=folder) as turn:
        turn.append("usage", {"model": "of a provider that tells no tokens"})
    assert thread.path()[-1].body.keys() == {"status", "snapshot"}


def test_streamed_replies_are_in_the_total(store: clew.Store) -> None:
    thread = store.create("t")
    with thread.turn(owner="me") as turn:
        turn.append_message({"role": "user", "content": "hi"})
        for number in range(2):
            with turn.streaming("openai-chat") as reply:
                for event in chunks(number):
                    reply.feed(event)
    total = thread.path()[-1].body["usage"]
    assert (total["replies"], total["input_tokens"], total["output_tokens"]) == (2, 8, 2)


def chunks(number: int) -> list[dict[str, Any]]:
    base = {"id": f"chatcmpl-x{number}", "object": "chat.completion.chunk", "model": "gpt-x"}
    delta = {"role": "assistant", "content": "hello"}
    usage = {"prompt_tokens": 4, "completion_tokens": 1, "total_tokens": 5}
    return [
        {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {**base, "choices": [], "usage": usage},
    ]


def test_files_that_were_added_removed_renamed_or_linked_are_told_by_their_contents(
    store: clew.Store, tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    (folder / "sub").mkdir(parents=True)
    (folder / "old").write_bytes(b"the same contents, whatever the name is\n")
    (folder / "gone").write_bytes(b"\x00")
    (folder / "link").symlink_to("old")
    moved, gone = sha256(folder / "old"), sha256(folder / "gone")
    thread = store.create("t")
    with thread.turn(owner="me", files=folder):
        (folder / "old").rename(folder / "sub" / "new")
        (folder / "gone").unlink()
        (folder / "link").unlink()
        (folder / "link").symlink_to("sub/new")
        (folder / "added").write_bytes(b"")
    added = sha256(folder / "added")
    found = {change["path"]: change for change in thread.path()[-1].body["changes"]}
    told = {path: (c["change"], c["before"], c["after"]) for path, c in found.items()}
    target = ["sha256:" + hashlib.sha256(name).hexdigest() for name in (b"old", b"sub/new")]
    assert told == {
        "sub/new": ("renamed", moved, moved),
        "gone": ("removed", gone, None),
        "added": ("added", None, added),
        "link": ("modified", *target),
    }
    assert found["sub/new"]["old_path"] == "old"


def test_a_turn_that_changes_very_many_files_names_some_and_counts_the_rest(
    store: clew.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clew.turn.CHANGES_MAX", 2)
    folder = tmp_path / "project"
    folder.mkdir()
    thread = store.create("t")
    with thread.turn(owner="me", files=folder):
        for number in range(5):
            (folder / f"{number}").write_text(str(number))
    body = thread.path()[-1].body
    assert (len(body["changes"]), body["changes_left_out"]) == (2, 3)
