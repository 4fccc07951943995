"""docs/format/files.md says what is in a folder of files: its programs and tables hold."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from _pages import DOCS, assert_outputs
from places import packed_eagerly

import clew
from clew.core import lines, names
from clew.core.lines import Header, Source, header_line, record_line
from clew.core.model import Entry, EntryDraft, Fact, FactDraft, Move, MoveDraft, Origin, ThreadDraft
from clew.core.tombstones import tombstoned
from clew.engines.files import (
    FilesEngine,
    additions,
    blobs,
    frames,
    leases,
    pack,
    tail,
    thread_file,
)
from clew.engines.files import place as place_
from clew.engines.shared.compression import _zstd

zstd = _zstd()
PAGE = DOCS / "format" / "files.md"
TEXT = PAGE.read_text("utf-8")
T = 1_700_000_000_000_000
DIGEST = bytes(32)
HASH = "b3:" + "0" * 64


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the programs of the page leave behind."""
    monkeypatch.chdir(tmp_path)
    return assert_outputs(PAGE)


# --- the worked example ---


def test_the_worked_example_is_what_the_engine_writes(
    page: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(additions, "new_id", lambda: page["KEY"])
    engine = FilesEngine(tmp_path / "example")
    engine.create(ThreadDraft(id="t", created_us=T))
    first = EntryDraft(
        id="e1",
        kind="user_message",
        data='{"role":"user","content":"Grüße"}'.encode(),
        time_us=T + 1,
        turn="turn-1",
        format="plain",
        meta_data=b'{"model":"m"}',
    )
    second = EntryDraft(id="e2", kind="assistant_message", data=b'"ok"', time_us=T + 2)
    engine.append("t", [first, second])
    engine.append("t", [MoveDraft(id="m1", leaf="e1", time_us=T + 3)])
    engine.append("t", [FactDraft(id="f1", key="status", data=b'"busy"', time_us=T + 4)])
    engine.close()
    written = (tmp_path / "example" / "threads" / "t.jsonl").read_text("utf-8")
    assert written == page["file"]


def test_a_file_that_was_written_by_the_page_is_a_thread(
    page: dict[str, Any], tmp_path: Path
) -> None:
    clew.open(f"files:{tmp_path / 'own'}").close()
    (tmp_path / "own" / "threads" / "t.jsonl").write_text(page["file"], "utf-8")
    with clew.open(f"files:{tmp_path / 'own'}") as store:
        thread = store.get("t")
        assert [entry.body for entry in thread.entries()] == [page["body_1"], "ok"]
        assert thread.leaf == "e1"
        assert thread.info.status == "busy"
        assert list(store.verify()) == []
        assert thread.append("event", 1).seq == 5


# --- the verifier ---


def _varied(path: Path) -> int:
    """A store with everything that a line can have; how many records it holds."""
    with clew.open(f"files:{path}") as store:
        trunk = store.create("Trunk", title="Ünïcode \u2028", tags=["a", "b"])
        blob = store.blobs.put(b"bytes")
        trunk.append([clew.draft("event", n, id=f"e{n}") for n in range(4)])
        trunk.append("event", {"x": [1.0, -0.0, 1e16, "\ud83d"]}, blobs=[blob], meta={"m": 1e-7})
        trunk.append("tool_result", "large " * 20_000, id="large")
        fork = trunk.fork(at="large", id="fork")
        fork.append("event", 5, parent="e1")
        twig = fork.fork(at="e1", id="twig")
        twig.append("event", 6)
        trunk.move("e2")
        trunk.set(status="done")
        store.create("child", parent="Trunk")
        store.purge("Trunk")
        store.create("Trunk").append("event", "another thread of that name")
        return store.stats().records


def _pack(path: Path) -> list[Path]:
    """Pack every thread of a store; its packed files."""
    with clew.open(f"files:{path}") as store, packed_eagerly():
        store.engine.pack(idle_seconds=-60)
    return sorted(path.glob("threads/*.zst"))


@pytest.mark.parametrize("packed", [False, True])
def test_the_verifier_of_the_page_finds_a_varied_store_whole(
    packed: bool, page: dict[str, Any], tmp_path: Path
) -> None:
    records = _varied(tmp_path / "varied")
    assert not packed or len(_pack(tmp_path / "varied")) == 4
    assert page["verify"](tmp_path / "varied") == records
    assert list((tmp_path / "varied" / "purged").iterdir()) != []


def test_the_verifier_of_the_page_finds_a_changed_byte_of_a_packed_file(
    page: dict[str, Any], tmp_path: Path
) -> None:
    _varied(tmp_path / "varied")
    for path in _pack(tmp_path / "varied"):
        data = path.read_bytes()
        end = len(data) - 8 - 8 - 9  # the table, of one frame, which other tools pass over
        for at in range(0, end, 7):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            with pytest.raises((AssertionError, ValueError, KeyError, zstd.ZstdError)):
                page["verify"](tmp_path / "varied")
        path.write_bytes(data)


def test_a_packed_file_is_as_described(tmp_path: Path) -> None:
    """Frames one behind the other, and the table, number for number."""
    with clew.open(f"files:{tmp_path / 's'}") as store:
        thread = store.create("t")
        thread.append([clew.draft("event", f"{n} " * 900) for n in range(600)])
        plain = (tmp_path / "s" / "threads" / "t.jsonl").read_bytes()
        (path,) = _pack(tmp_path / "s")
    data, frames_ = path.read_bytes(), []
    count, flags, magic = struct.unpack("<IBI", data[-9:])
    table = data[-9 - 8 * count - 8 : -9]
    assert (count > 2, flags, magic) == (True, 0, 0x8F92EAB1)
    assert struct.unpack("<II", table[:8]) == (0x184D2A5E, 8 * count + 9)
    at = 0
    for length, size in struct.iter_unpack("<II", table[8:]):
        frames_.append(zstd.decompress(data[at : at + length]))
        assert len(frames_[-1]) == size == zstd.get_frame_info(data[at:]).decompressed_size
        assert frames_[-1].endswith(b"\n")
        at += length
    assert (b"".join(frames_), at) == (plain, len(data) - len(table) - 9)
    assert all(524_288 <= len(frame) < 524_288 + 9_000 for frame in frames_[:-1])


def test_the_verifier_of_the_page_finds_a_changed_byte_in_every_line(
    page: dict[str, Any], tmp_path: Path
) -> None:
    _varied(tmp_path / "varied")
    for path in (tmp_path / "varied").glob("*/*.jsonl"):
        data = path.read_bytes()
        at = 0
        for line in data.splitlines(keepends=True):
            middle = at + len(line) // 2
            path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
            with pytest.raises((AssertionError, ValueError, KeyError)):
                page["verify"](tmp_path / "varied")
            at += len(line)
        path.write_bytes(data)


# --- the tables ---


def _rows(introduction: str) -> list[str]:
    """The first cells of the table that follows some words of the page."""
    table = TEXT.partition(introduction)[2].partition("\n|---")[2].partition("\n\n")[0]
    return re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)


def _members(line: bytes) -> list[str]:
    return list(json.loads(line))


def test_every_member_of_a_header_is_described_in_its_order() -> None:
    origin = Origin("o", "e", HASH)
    draft = ThreadDraft(id="t", created_us=T, parent="p", origin=origin)
    written = header_line(Header("k", draft, Source("o", "k2", 1), purged=True))
    assert _rows("### The header\n") == _members(written)
    plain = header_line(Header("k", ThreadDraft(id="t", created_us=T)))
    always = re.findall(r"^\| `(\w+)` \| yes", TEXT.partition("### The header\n")[2], re.MULTILINE)
    assert _members(plain) == always[: always.index("sum") + 1]


def _entry(**more: Any) -> Entry:
    return Entry("t", 1, "e", T, DIGEST, None, "event", b"1", DIGEST, **more)


def test_every_member_of_a_record_is_described_in_its_order() -> None:
    entry = _entry(turn="u", format="plain", meta_data=b"{}", blobs=(HASH,))
    fact = Fact("t", 1, "f", T, DIGEST, "k", b"1")
    move = Move("t", 1, "m", T, DIGEST, None)
    for introduction, record, name in [
        ("The line of an entry:", entry, "body"),
        ("The line of a move:", move, ""),
        ("The line of a fact:", fact, "value"),
    ]:
        described = [member for member in _rows(introduction) if member != "erased"]
        inline = [member for member in described if member not in (f"{name}_blob", f"{name}_size")]
        assert inline == _members(record_line(b"t", record, left=1, of=2))
        if name:
            spilled = [member for member in described if member not in (name, f"{name}_hash")]
            assert spilled == _members(record_line(b"t", record, left=1, of=2, blob=HASH))


def test_the_line_of_an_erased_entry_is_described() -> None:
    entry = tombstoned(_entry(turn="u", format="plain", meta_data=b"{}", blobs=(HASH,)), T)
    gone = ("meta", "body", "body_blob", "body_size")
    described = [member for member in _rows("The line of an entry:") if member not in gone]
    assert described == _members(record_line(b"t", entry, left=1, of=2))


def test_the_members_that_are_always_there_are_those_of_a_bare_record() -> None:
    bare = _members(record_line(b"t", _entry()))
    table = TEXT.partition("The line of an entry:")[2].partition("\n\nThe line of a move")[0]
    always = re.findall(r"^\| `(\w+)` \| (?:yes|or)", table, re.MULTILINE)
    assert always == bare


def test_the_slots_of_a_lease_are_described() -> None:
    table = TEXT.partition("\n## Leases\n")[2].partition("\n## ")[0]
    named = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)))
    assert named == list(leases._LeaseSlot.__struct_fields__)


def test_the_folder_is_as_described(tmp_path: Path) -> None:
    _varied(tmp_path / "varied")
    clew.open(f"files:{tmp_path / 'varied'}", namespace="acme").close()
    described = {place.partition("/")[0] for place in _rows("## The folder\n")}
    assert {path.name for path in (tmp_path / "varied").iterdir()} == described


def test_the_file_names_are_as_described() -> None:
    table = TEXT.partition("## File names\n")[2].partition("\n## ")[0]
    examples = re.findall(r"^\| `([^`]+)` \| `([^`]+)\.jsonl` \|", table, re.MULTILINE)
    assert len(examples) >= 4
    for id, name in examples:
        assert names.file_stem(id) == name
    assert names.file_stem("x" * 181).startswith("x" * 100 + "~")
    assert names.file_stem("x" * 180) == "x" * 180
    assert len(place_.anonymous("t")) == 40
    assert {"com0", "com9", "lpt0", "lpt9", "con", "prn", "aux", "nul"} <= names._DEVICES


def test_the_rules_name_the_limits_of_the_code() -> None:
    assert (names.STEM_MAX, names._HEAD, lines.SUM_DIGITS) == (180, 100, 16)
    assert (blobs.SPILL_BYTES, tail.SECTOR_BYTES, leases.SLOT_BYTES) == (65_536, 512, 8_192)
    assert (thread_file.HEADER_BYTES_MAX, lines.VERSION) == (32_768, 2)
    assert (frames.FRAME_BYTES, frames.FRAME_BYTES_MAX) == (524_288, 4_194_304)
    assert (frames.RATIO_MAX, frames.LINE_BYTES_MIN, pack.BLOCK_BYTES) == (128, 32, 4_096)
    assert (place_.VERSION, place_.PACKED_VERSION) == (2, 2)
    said = " ".join(TEXT.split())
    for words in ("524,288 bytes", "4,194,304 bytes", "over 128 times", "every 32 bytes", "4,096"):
        assert words in said
    for words in ("more than 65,536 bytes", "512 bytes, aligned", "8,192 bytes each", "32,768"):
        assert words in said
