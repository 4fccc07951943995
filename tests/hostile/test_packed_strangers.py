"""A packed thread from a stranger: it is named, it costs little, and no other one is concerned."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from amounts import amount, pairs
from hostile.commands import COMMANDS, EVERYTHING, check_command
from hostile.limited import Limits, Runner
from hostile.packed import PACKED, sound

import clew
from clew import ClewError
from clew.upkeep.repair import repair

LIMITS = Limits(cpu_seconds=20, wall_seconds=600)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with clew.open(f"files:{root}", durability="relaxed") as store:
        store.create("good").append("event", {"text": "word"})
    return root


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner() as runner:
        yield runner


def bad(root: Path) -> Path:
    return root / "threads" / "bad.jsonl.zst"


def use(root: Path, *, readonly: bool) -> None:
    """All that reads or writes either thread: the good one is as it was."""
    with clew.open(f"files:{root}", readonly=readonly) as store:
        assert "good" in [info.id for info in store.threads()]
        before = [entry.body for entry in store.get("good").path()]
        problems = store.verify()
        assert all(problem.thread != "good" for problem in problems)
        store.stats()
        for call in (
            lambda: store.get("bad").path(),
            lambda: store.get("bad").info.title,
            lambda: store.engine.read("bad"),
            lambda: store.get("bad").append("event", 2),
            lambda: store.engine.pack(idle_seconds=-60),
            lambda: store.get("bad").erase("e1"),
            lambda: store.get("good").append("event", {"text": "word"}),
        ):
            try:
                call()
            except ClewError:
                pass
        found = [entry.body for entry in store.get("good").path()]
        assert found[: len(before)] == before


@pytest.mark.parametrize("case", PACKED)
def test_a_bad_packed_thread_is_named_and_passed_over(case: str, root: Path) -> None:
    data = PACKED[case]()
    bad(root).write_bytes(data)
    with clew.open(f"files:{root}", readonly=True) as store:
        assert store.verify(), "none of them is a thread that Clew wrote"
    use(root, readonly=True)
    assert bad(root).read_bytes() == data
    use(root, readonly=False)
    repair(f"files:{root}")
    use(root, readonly=False)


@pytest.mark.parametrize(("case", "command"), pairs(tuple(PACKED), COMMANDS, 8))
def test_no_command_calls_it_a_mistake_of_clew(
    case: str, command: str, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad(root).write_bytes(PACKED[case]())
    check_command(command, f"files:{root}", tmp_path, capsys)


@pytest.mark.parametrize(("case", "command"), pairs(tuple(PACKED), EVERYTHING, len(EVERYTHING)))
def test_no_command_takes_more_than_it_may(
    case: str, command: str, root: Path, runner: Runner, tmp_path: Path
) -> None:
    bad(root).write_bytes(PACKED[case]())
    words = [word.format(a=f"files:{root}", t="bad") for word in command.split()]
    assert runner.run(words, tmp_path, LIMITS).failings(LIMITS) == []


@pytest.mark.parametrize("command", ["verify {a}", "repair {a}", "list {a}", "title {a} bad x"])
@pytest.mark.parametrize("case", [case for case in PACKED if "bomb" in case])
def test_no_bomb_goes_off(
    case: str, command: str, root: Path, runner: Runner, tmp_path: Path
) -> None:
    bad(root).write_bytes(PACKED[case]())
    words = [word.format(a=f"files:{root}") for word in command.split()]
    assert runner.run(words, tmp_path, LIMITS).failings(LIMITS) == []


def test_whatever_byte_is_changed_nothing_wrong_is_read(root: Path) -> None:
    """Nor where it is cut off, nor when something comes between."""
    with clew.open(f"files:{root}") as store:
        thread = store.create("t")
        for n in range(60):
            thread.append("event", {"n": n, "text": "words that come again " * 4})
        assert store.engine.pack(idle_seconds=-60).packs == 1
        right = [entry.body["n"] for entry in thread.path()]
    file = root / "threads" / "t.jsonl.zst"
    whole, chance = file.read_bytes(), random.Random(7)
    for _ in range(amount(120, 2000)):
        data = bytearray(whole)
        at = chance.randrange(len(data))
        how = chance.choice(["flip", "cut", "drop", "double"])
        if how == "flip":
            data[at] ^= 1 << chance.randrange(8)
        else:
            end = min(len(data), at + chance.randrange(1, 60))
            data[at:end] = {"cut": b"", "drop": b"", "double": data[at:end] * 2}[how]
            data = data[:at] if how == "cut" else data
        if bytes(data) == whole:
            continue
        file.write_bytes(data)
        for index in (root / "index").glob("index.db*"):
            index.unlink()
        with clew.open(f"files:{root}") as store:
            try:
                assert [entry.body["n"] for entry in store.get("t").path()] == right
            except ClewError:
                assert store.verify()
            assert len(store.get("good").path()) == 1


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "link to nothing"])
@pytest.mark.parametrize("beside", [False, True])
def test_what_is_no_file_is_not_opened(kind: str, beside: bool, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(sound())
    name = root / "threads" / "good.jsonl.zst" if beside else bad(root)
    if kind == "fifo":
        os.mkfifo(name)
    elif kind == "folder":
        name.mkdir()
    else:
        name.symlink_to(outside if kind == "link" else tmp_path / "nothing")
    for readonly in (True, False):
        if beside:
            with clew.open(f"files:{root}", readonly=readonly) as store:
                assert len(store.get("good").path()) == 1
                assert {problem.code for problem in store.verify()} == {"strange_file"}
                with pytest.raises(ClewError):
                    store.get("good").append("event", 2)
                assert len(store.get("good").path()) == 1
        else:
            use(root, readonly=readonly)
            with clew.open(f"files:{root}", readonly=readonly) as store:
                assert {problem.code for problem in store.verify()} == {"damaged_thread"}
    assert outside.read_bytes() == sound()
    assert os.path.lexists(name)


def test_what_it_is_made_of_is_no_matter_of_its_size(root: Path) -> None:
    """The controls: the same file is a thread when nothing is wrong with its table."""
    bad(root).write_bytes(sound())
    with clew.open(f"files:{root}") as store:
        assert [record.seq for record in store.engine.read("bad")] == list(range(1, 301))
