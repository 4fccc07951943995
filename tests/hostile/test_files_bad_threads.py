"""One thread that holds what Clew does not write: it is named, and the others are not concerned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from amounts import pairs
from hostile.commands import COMMANDS, check_command

import clew
from clew import ClewError
from clew.core.codec import to_bytes
from clew.core.hashes import record_hash
from clew.core.lines import Header, header_line, record_line, summed
from clew.core.model import Fact, ThreadDraft
from clew.upkeep.copy import copy
from clew.upkeep.doctor import examine

NOW = 1_700_000_000_000_000


def fact(key: str, value: Any) -> bytes:
    made = Fact("bad", 1, "one", NOW, b"", key, json.dumps(value).encode())
    made = Fact("bad", 1, "one", NOW, to_bytes(record_hash(made) or ""), key, made.data)
    return record_line(b"bad", made)


def line(**members: Any) -> bytes:
    """A line as a stranger may make it: its checksum is right, and nothing else need be."""
    whole = {
        "seq": 1,
        "type": "entry",
        "kind": "event",
        "time": "2023-11-14T22:13:20.000001Z",
        "id": "one",
        "parent": None,
        "body": 1,
        "body_hash": "b3:" + "0" * 64,
        "hash": "b3:" + "0" * 64,
    } | members
    return summed(b"bad", json.dumps(whole, separators=(",", ":")).encode()[:-1])


CASES: dict[str, bytes] = {
    "title is a number": fact("title", 5),
    "tags are a number": fact("tags", 5),
    "tags hold lists": fact("tags", [[1], {"a": 1}]),
    "status is a list": fact("status", [1]),
    "workspace is an object": fact("workspace", {"a": 1}),
    "archived is text": fact("archived", "x"),
    "deleted at a text": fact("deleted_us", "yesterday"),
    "deleted at a huge time": fact("deleted_us", 2**70),
    "a time before year 1": line(time="0001-01-01T00:00:00+23:59"),
    "a time after 9999": line(time="9999-12-31T23:59:59-23:59"),
    "no time": line(time="soon"),
    "a huge seq": line(seq=2**62),
    "a seq beyond 64 bits": line(seq=2**70),
    "a negative seq": line(seq=-1),
    "a hash that is none": line(hash="x"),
    "a hash of other digits": line(hash="b3:" + "z" * 64),
    "a parent that is not there": line(parent="nowhere"),
    "it is its own parent": line(parent="one"),
    "a move to nowhere": line(type="move", leaf="nowhere"),
    "a blob with a path": line(blobs=["../../x"]),
    "a body in a blob with a path": line(body_blob="b3:../../x"),
    "an unknown type": line(type="other"),
    "a lone surrogate as an id": line(id="\ud800"),
    "a lone surrogate as a kind": line(kind="\ud800"),
    "left is huge": line(left=2**62, of=2**62 + 1),
    "of is negative": line(left=-2, of=-1),
    "nothing at all": b"",
    "not a line": b"\xff\xfe\n",
}


@pytest.mark.parametrize("case", CASES)
def test_a_bad_thread_is_named_and_passed_over(case: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with clew.open(f"files:{root}") as store:
        store.create("good").append("event", 1)
    draft = ThreadDraft(id="bad", created_us=NOW)
    file = root / "threads" / "bad.jsonl"
    file.write_bytes(header_line(Header("k1", draft)) + CASES[case])
    for readonly in (True, False):
        with clew.open(f"files:{root}", readonly=readonly) as store:
            assert "good" in [info.id for info in store.threads()]
            assert [entry.body for entry in store.get("good").path()] == [1]
            problems = store.verify()
            store.stats()
            for call in (
                lambda: store.get("bad").path(),
                lambda: store.get("bad").info.title,
                lambda: list(store.engine.read("bad")),
                lambda: store.get("bad").append("event", 2),
            ):
                try:
                    call()
                except ClewError:
                    pass
            assert all(problem.thread != "good" for problem in problems)
    with clew.open(f"files:{root}") as store, clew.open(tmp_path / "copy.db") as other:
        store.get("good").append("event", 2)
        assert [entry.body for entry in store.get("good").path()] == [1, 2]
        examine(store)
        copy(store.engine, other.engine)
        assert [entry.body for entry in other.get("good").path()] == [1, 2]


@pytest.mark.parametrize(("case", "command"), pairs(tuple(CASES), COMMANDS, 4))
def test_no_command_calls_it_a_mistake_of_clew(
    case: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "store"
    with clew.open(f"files:{root}", durability="relaxed") as store:
        store.create("good").append("event", 1)
    draft = ThreadDraft(id="bad", created_us=NOW)
    (root / "threads" / "bad.jsonl").write_bytes(header_line(Header("k1", draft)) + CASES[case])
    check_command(command, f"files:{root}", tmp_path, capsys)


def test_a_sound_thread_made_by_hand_is_no_bad_one(tmp_path: Path) -> None:
    root = tmp_path / "store"
    clew.open(f"files:{root}").close()
    (root / "threads" / "bad.jsonl").write_bytes(
        header_line(Header("k1", ThreadDraft(id="bad", created_us=NOW))) + fact("status", "x")
    )
    with clew.open(f"files:{root}") as store:
        assert store.verify() == []
