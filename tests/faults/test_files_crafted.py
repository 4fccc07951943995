"""Files whose every line matches its checksum, and which say what Clew does not write: each is
told of, and nothing is believed that would cost something else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import clew
from clew.core.lines import Source, header_line, parse_header, summed
from clew.engines.files import frames
from clew.engines.files.blobs import SPILL_BYTES
from clew.engines.shared.tables.rows import SEQ_MAX
from clew.upkeep.repair import repair

LARGE = "large " * (2 * SPILL_BYTES // 6)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with opened(root) as store:
        thread = store.create("t")
        thread.append("event", 1, id="a")
        thread.append([clew.draft("event", n, id=f"b{n}") for n in range(2)])
        thread.append("event", 2, id="c")
        thread.fork(at="a", id="f").append("event", 3, id="in-f")
        store.create("u").append("event", 4, id="in-u")
    return root


def opened(root: Path, **options: Any) -> clew.Store:
    return clew.open(f"files:{root}", **options)


def file_of(root: Path, id: str) -> Path:
    return root / "threads" / f"{id}.jsonl"


def rewrite(file: Path, id: str, at: int, **members: Any) -> None:
    """Change members of a line, or leave them out (None), and make its checksum right again."""
    lines = file.read_bytes().splitlines(keepends=True)
    whole = {**json.loads(lines[at]), **members}
    del whole["sum"]
    kept = {name: value for name, value in whole.items() if value is not None or name == "parent"}
    lines[at] = summed(id.encode(), json.dumps(kept, separators=(",", ":")).encode()[:-1])
    file.write_bytes(b"".join(lines))


def rewrite_header(file: Path, **members: Any) -> None:
    first, _, rest = file.read_bytes().partition(b"\n")
    file.write_bytes(header_line(replace(parse_header(first, ""), **members)) + rest)


def header(file: Path) -> Any:
    return parse_header(file.read_bytes().partition(b"\n")[0], "")


def codes(store: clew.Store, thread: str) -> set[str]:
    return {problem.code for problem in store.verify() if problem.thread == thread}


def others_are_whole(store: clew.Store) -> None:
    assert [entry.body for entry in store.get("u").path()] == [4]
    assert {info.id for info in store.list().items} >= {"t", "u"}


def test_a_write_that_has_lost_its_first_record_is_damage(root: Path) -> None:
    rewrite(file_of(root, "t"), "t", 2, left=None, of=None)
    shutil.rmtree(root / "index")
    with opened(root) as store:
        with pytest.raises(clew.Corrupt, match="written together are missing"):
            store.get("t").append("event", "more")
        assert codes(store, "t")
        others_are_whole(store)


def test_a_byte_in_the_place_of_the_last_newline_is_damage(root: Path) -> None:
    file = file_of(root, "t")
    data = file.read_bytes()
    file.write_bytes(data[:-1] + b"\x0b")
    shutil.rmtree(root / "index")
    with opened(root) as store:
        with pytest.raises(clew.Corrupt, match="does not end with a newline"):
            store.get("t").append("event", "more")
        assert codes(store, "t")
        others_are_whole(store)
    assert file.read_bytes() == data[:-1] + b"\x0b", "nothing was cut off"


def test_half_a_write_that_was_packed_is_named(root: Path) -> None:
    file = file_of(root, "t")
    lines = file.read_bytes().splitlines(keepends=True)
    data = b"".join(lines[:3])  # of the write of two the first
    pieces = frames.packed(lambda at, length: data[at : at + length], len(data))
    file.with_name("t.jsonl.zst").write_bytes(b"".join(pieces))
    file.unlink()
    shutil.rmtree(root / "index")
    with opened(root) as store:
        with pytest.raises(clew.Corrupt, match="half a write was packed"):
            store.get("t").path()
        assert codes(store, "t") == {"damaged_thread"}
        others_are_whole(store)


def test_what_is_left_of_a_thread_has_no_record_beyond_the_last_possible_one(root: Path) -> None:
    """Its number would be that of a record of the next thread."""
    with opened(root) as store:
        store.purge("t")
    (husk,) = (root / "purged").glob("*.jsonl")
    rewrite(husk, "t", 1, seq=SEQ_MAX + 1)
    shutil.rmtree(root / "index")
    with opened(root) as store:
        problems = [problem.message for problem in store.verify()]
        assert any("no thread has so many records" in message for message in problems)
        assert [entry.body for entry in store.get("u").path()] == [4]


@pytest.mark.parametrize("key", ["../threads/u", "é"])
def test_the_key_of_what_a_fork_begins_at_leads_nowhere_else(root: Path, key: str) -> None:
    file = file_of(root, "f")
    rewrite_header(file, source=Source("gone", key, 1))
    shutil.rmtree(root / "index")
    with opened(root) as store:
        with pytest.raises(clew.Corrupt, match="is not the key of a thread"):
            store.get("f").path()
        assert codes(store, "f")
        others_are_whole(store)


def test_two_threads_with_one_key_are_named(root: Path) -> None:
    rewrite_header(file_of(root, "u"), key=header(file_of(root, "t")).key)
    shutil.rmtree(root / "index")
    with opened(root) as store:
        assert "same_key" in codes(store, "u")
    repair(f"files:{root}")
    with opened(root) as store:
        assert store.verify() == []
        others_are_whole(store)
        assert [entry.id for entry in store.get("t").path()] == ["a", "b0", "b1", "c"]
        assert [entry.id for entry in store.get("f").path()] == ["a", "in-f"]


def test_a_sound_line_that_is_no_record_is_lost_with_its_reason(root: Path) -> None:
    rewrite(file_of(root, "t"), "t", 2, time="soon")
    (lost,) = repair(f"files:{root}").lost
    assert (lost.thread, lost.seq, lost.id) == ("t", 2, "b0")
    assert "it cannot be read" in lost.reason


def test_a_thread_without_any_legible_time_is_kept(root: Path) -> None:
    """Its header is damaged, and its records say no time."""
    file = file_of(root, "u")
    rewrite(file, "u", 1, time="soon")
    file.write_bytes(file.read_bytes().replace(b'"created":"2', b'"created":"x', 1))
    report = repair(f"files:{root}")
    assert any("it is kept as thread 'u'" in note for note in report.notes)
    with opened(root) as store:
        assert store.get("u").info.created_us == 0
        assert store.verify() == []


def test_a_fork_whose_header_does_not_say_where_it_begins_is_kept_by_its_origin(
    root: Path,
) -> None:
    file = file_of(root, "f")
    file.write_bytes(file.read_bytes().replace(b'"source":', b'"sourcf":', 1))
    report = repair(f"files:{root}")
    assert any("it is kept as thread 'f'" in note for note in report.notes)
    with opened(root) as store:
        assert [entry.id for entry in store.get("f").path()] == ["a", "in-f"]
        assert store.verify() == []


def test_an_id_that_cannot_be_decoded_is_not_guessed(root: Path) -> None:
    file = file_of(root, "t")
    file.write_bytes(file.read_bytes().replace(b'"id":"c"', b'"id":"\xff"', 1))
    (lost,) = repair(f"files:{root}").lost
    assert (lost.thread, lost.seq, lost.id) == ("t", 4, None)


@pytest.mark.parametrize("made", ["hollow", "link"])
def test_what_is_no_file_of_lines_is_left_out_of_a_repair_and_named(
    root: Path, tmp_path: Path, made: str
) -> None:
    strange = file_of(root, "strange")
    if made == "link":
        strange.symlink_to(tmp_path / "nowhere")
    else:
        with strange.open("wb") as file:
            file.truncate(1 << 36)
    file_of(root, "u").write_bytes(b"garbled\n")
    report = repair(f"files:{root}")
    assert (made == "link") or any("were ever written" in note for note in report.notes)
    with opened(root) as store:
        assert {info.id for info in store.list().items} == {"t", "f"}
        assert store.verify() == []


# --- a file that others have put in the place of the one that was written to ---


def test_another_record_under_the_seq_of_ones_own_is_told_also_where_others_have_erased(
    root: Path,
) -> None:
    file = file_of(root, "t")
    before = file.read_bytes()
    with opened(root) as store:
        thread = store.get("t")
        thread.append("event", "mine", id="mine")
        file.write_bytes(before)
        with opened(root) as other:
            other.get("t").append("event", "other", id="other")
            other.get("t").erase("a")
        with pytest.raises(clew.Corrupt, match="and not that record"):
            thread.append("event", "more")


def test_a_record_that_was_cut_off_behind_an_erasure_is_missed(root: Path) -> None:
    file = file_of(root, "t")
    with opened(root) as store:
        thread = store.get("t")
        thread.append("event", "mine", id="mine")
        with opened(root) as other:
            other.get("t").erase("a")
        lines = file.read_bytes().splitlines(keepends=True)
        (mine,) = (n for n, line in enumerate(lines) if b'"id":"mine"' in line)
        file.write_bytes(b"".join(lines[:mine]))
        with pytest.raises(clew.Corrupt, match="and not that record"):
            thread.append("event", "more")


def test_verify_names_an_index_that_is_of_another_file(root: Path, tmp_path: Path) -> None:
    """Put there by hand, of the same thread's id, while nobody looked; also without a file."""
    with opened(tmp_path / "other") as other:
        other.create("u").append("event", "of another store")
    for given_up in (False, True):
        with opened(root) as store:
            store.list()
            if given_up:
                store.engine._store.index.fall_back()  # type: ignore[attr-defined]
                store.list()
            old = file_of(root, "u").read_bytes()
            shutil.copy(file_of(tmp_path / "other", "u"), file_of(root, "u"))
            assert codes(store, "u") == {"wrong_index"}
            assert store.verify() == []
            assert [entry.body for entry in store.get("u").path()] == ["of another store"]
            file_of(root, "u").write_bytes(old)


@pytest.mark.parametrize("damage", [None, b"garbled"])
@pytest.mark.parametrize("remembered", [True, False])
def test_a_large_fact_whose_blob_is_damaged_costs_no_entry(
    root: Path, damage: bytes | None, remembered: bool
) -> None:
    with opened(root) as store:
        store.get("t").set(notes=LARGE)
        store.list()
    (blob,) = (file for file in (root / "blobs").rglob("*") if file.is_file())
    blob.chmod(0o600)
    blob.unlink() if damage is None else blob.write_bytes(damage)
    if not remembered:
        shutil.rmtree(root / "index")
    with opened(root) as store:
        assert codes(store, "t") & {"damaged_record", "missing_blob"}
        assert "'notes'" in str(store.get("t").info.damaged)
        assert store.get("t").append("event", 5).parent == "c"
        assert [entry.id for entry in store.get("f").path()] == ["a", "in-f"]
        store.get("t").set(notes=LARGE)
        assert store.get("t").info.damaged is None
        assert codes(store, "t") <= {"wrong_index"}, "the blob is there again: it did not know"
        assert store.verify() == []


def test_a_purge_that_was_interrupted_before_it_removed_the_thread_is_no_damage(
    root: Path, tmp_path: Path
) -> None:
    """What forks need was put beside it already."""
    shutil.copytree(root, tmp_path / "copy")
    with opened(tmp_path / "copy") as store:
        store.purge("t")
    (husk,) = (tmp_path / "copy" / "purged").glob("*.jsonl")
    shutil.copy(husk, root / "purged")
    with opened(root) as store:
        assert store.verify() == []
        assert [entry.id for entry in store.get("t").path()] == ["a", "b0", "b1", "c"]
        assert [entry.id for entry in store.get("f").path()] == ["a", "in-f"]
