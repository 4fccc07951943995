"""Erasing entries: nothing of them is left, in files, words, counts and copies; and the proof."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

import clew
from clew import messages
from clew.core.checked_reads import check_reads
from clew.core.engine import innermost
from clew.core.model import Entry, Page, ThreadHead, ThreadInfo, ThreadQuery
from clew.core.removal import Receipt
from clew.interchange.bundle import bring
from clew.upkeep.proof import prove, read_receipt
from clew.upkeep.repair import repair

WORD = "zanzibarkey"
LONG = f"{WORD} and more of it " * 2_000
PLACES = ["memory:", "sqlite", "files"]

Address = Callable[[str], str]


@pytest.fixture(params=PLACES)
def address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: Any) -> Address:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def of(name: str) -> str:
        if request.param == "memory:":
            return "memory:"
        return f"{request.param}:{tmp_path / name}"

    return of


def fill(store: clew.Store) -> None:
    """A thread that says a word everywhere, and a fork of it."""
    thread = store.create("t", workspace="/w")
    with thread.turn(owner="me") as turn:
        turn.append_message({"role": "user", "content": f"the {WORD}"}, id="a")
        reply = {
            "role": "assistant",
            "content": [
                {"type": "text", "text": LONG},
                {"type": "tool_use", "id": "call", "name": "look", "input": {"q": WORD}},
            ],
            "usage": {"input_tokens": 5, "output_tokens": 6},
        }
        turn.append("assistant_message", reply, format="anthropic", id="b", meta={"note": WORD})
        result = {"type": "tool_result", "tool_use_id": "call", "content": WORD}
        body = {"role": "user", "content": [result]}
        turn.append("tool_result", body, format="anthropic", id="c")
    fork = store.fork("t", at="c", id="f")
    fork.append_message({"role": "user", "content": "and now?"}, id="d")


def files_with(folder: Path, word: str) -> list[Path]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in found if word.encode() in path.read_bytes()]


def test_nothing_of_a_body_is_left(address: Address, tmp_path: Path) -> None:
    with clew.open(address("store")) as store:
        fill(store)
        assert store.search(WORD).total == 3
        assert store.usage().total.replies == 1
        store.unfinished_turns()
        store.get("f").context("anthropic")
        receipt = store.get("f").erase("a", "b", "c", reason="a key")
        assert [one.place for one in receipt.left] == []
        assert [(one.thread, one.entry) for one in receipt.entries] == [
            ("t", "a"),
            ("t", "b"),
            ("t", "c"),
        ]
        assert store.search(WORD).total == 0
        assert WORD not in str(store.get("f").context("anthropic").messages)
        assert store.usage().total.replies == 0
        assert store.verify() == []
    assert files_with(tmp_path, WORD) == []


def test_another_handle_finds_no_word_of_it(address: Address) -> None:
    place = address("store")
    if place == "memory:":
        pytest.skip("another process sees nothing of it")
    with clew.open(place) as store, clew.open(place) as other:
        fill(store)
        fork = other.get("t")
        assert other.search(WORD).total == 3
        assert other.usage().total.replies == 1
        assert WORD in str(fork.context("anthropic").messages)
        store.engine.erase("t", ["a", "b", "c"], time_us=1)  # and nothing that was made of them
        assert other.search(WORD).total == 0
        assert other.usage().total.replies == 0
        fork.append_message({"role": "user", "content": "go on"})
        assert WORD not in str(fork.context("anthropic").messages)
        assert other.verify() == []


@pytest.mark.parametrize("format", ["anthropic", "openai-chat", "openai-responses", "gemini"])
@pytest.mark.parametrize("erased", ["a", "b", "c", "ab", "bc", "abc"])
def test_a_context_stays_valid(format: str, erased: str) -> None:
    with clew.open("memory:") as store:
        fill(store)
        store.get("f").erase(*erased)
        found = store.get("f").context(format).messages
        assert messages.validate(format, found) == []
        said = str(found)
        assert ("[erased]" in said) == (erased != "c")
        assert "and now?" in said


def test_an_erasure_lists_the_tree_of_its_thread_alone(address: Address, monkeypatch: Any) -> None:
    listed: list[str] = []

    def listing(engine: Any) -> Any:
        threads, heads = engine.threads, engine.heads

        def counted_threads(query: ThreadQuery) -> Page[ThreadInfo]:
            page: Page[ThreadInfo] = threads(query)
            listed.extend(info.id for info in page.items)
            return page

        def counted_heads() -> list[ThreadHead]:
            found: list[ThreadHead] = heads()
            listed.extend(head.thread for head in found)
            return found

        monkeypatch.setattr(engine, "threads", counted_threads)
        monkeypatch.setattr(engine, "heads", counted_heads)

    with clew.open(address("store")) as store:
        fill(store)
        store.fork("f", id="g", title=f"the {WORD}").set(archived=True)
        store.fork("g", id="h", title=f"the {WORD}")
        store.delete("h")
        for n in range(20):
            store.create(f"other-{n}", title=f"the {WORD}").append_message(
                {"role": "user", "content": f"the {WORD}"}
            )
        listing(innermost(store.engine))
        receipt = store.erase("t", ["a"])
        assert set(listed) == {"f", "g", "h"}
        assert {one.thread for one in receipt.repeats} == {"g", "h"}
        assert store.get("g").info.title is None


def test_erasing_again_gives_the_same_hashes(address: Address) -> None:
    with clew.open(address("store")) as store:
        fill(store)
        first = store.erase("t", ["a"], reason="one")
        again = store.erase("t", ["a"], reason="two")
        assert (again.entries, again.time_us) == (first.entries, first.time_us)
        with pytest.raises(clew.NotFound):
            store.erase("t", ["a", "nobody"])
        with pytest.raises(clew.InvalidInput):
            store.erase("t", "a")


def test_reads_that_are_checked_take_what_was_erased(address: Address) -> None:
    with clew.open(address("store")) as store:
        fill(store)
        store.erase("t", ["a", "b"])
        checked = check_reads(store.engine)
        assert [entry.id for entry in checked.path("f")][-4:] == ["a", "b", "c", "d"]
        assert checked.read("t") == store.engine.read("t")


# --- blobs and snapshots ---


def test_blobs_that_only_it_named_go_at_once(address: Address) -> None:
    with clew.open(address("store")) as store:
        fill(store)
        mine, shared, loose = (store.blobs.put(data) for data in (b"mine", b"ours", b"loose"))
        thread = store.get("t")
        thread.append("event", 1, id="x", blobs=[mine, shared])
        thread.append("event", 2, id="y", blobs=[shared])
        receipt = thread.erase("x")
        assert receipt.blobs == (mine,)
        assert [one.place for one in receipt.left] == ["blobs"]
        assert (store.blobs.has(mine), store.blobs.has(shared), store.blobs.has(loose)) == (
            (False, True, True)
        )
        assert store.verify() == []


def test_a_snapshot_is_dropped_with_its_files(address: Address, tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "secret.txt").write_text(WORD)
    with clew.open(address("store")) as store:
        thread = store.create("t")
        thread.append("event", 1)
        first = thread.snapshots.take(root)
        (root / "secret.txt").write_text("clean")
        (root / "more.txt").write_text("more")
        second = thread.snapshots.take(root)
        receipt = thread.erase(first.id)
        assert receipt.blobs
        assert [one.id for one in thread.snapshots.list()] == [second.id]
        assert thread.snapshots.read(second.id, "more.txt") == b"more"
        assert store.verify() == []
    root.joinpath("secret.txt").unlink()
    assert files_with(tmp_path, WORD) == []


def test_the_name_of_a_model_goes_with_the_reply_that_said_it(
    address: Address, tmp_path: Path
) -> None:
    """A reply says its model in words of its own; the counts keep the name apart."""
    reply = {"role": "assistant", "content": "hello", "model": WORD, "usage": {"input_tokens": 1}}
    with clew.open(address("store")) as store:
        thread = store.create("t")
        thread.append("assistant_message", reply, format="anthropic", id="a")
        other = {**reply, "model": "another"}
        thread.append("assistant_message", other, format="anthropic", id="b")
        assert store.usage().total.replies == 2
        thread.erase("a")
        assert store.usage().total.replies == 1
    assert files_with(tmp_path / "cache", WORD) == []


def test_the_names_of_files_of_a_dropped_snapshot_are_in_no_cache(
    address: Address, tmp_path: Path
) -> None:
    """With its fact goes what leads to the cache: the purge would not find it."""
    root = tmp_path / "project"
    root.mkdir()
    (root / f"{WORD}.txt").write_text("1")
    with clew.open(address("store")) as store:
        thread = store.create("t")
        thread.snapshots.drop(thread.snapshots.take(root).id)
        store.purge("t")
    assert files_with(tmp_path / "cache", WORD) == []


def test_what_another_process_remembers_of_a_tree_is_forgotten_too(
    address: Address, tmp_path: Path
) -> None:
    place = address("store")
    if place == "memory:":
        pytest.skip("another process sees nothing of it")
    root = tmp_path / "project"
    root.mkdir()
    with clew.open(place) as store, clew.open(place) as other:
        store.create("first").snapshots.take(root)  # this handle remembers the tree so
        (root / f"{WORD}.txt").write_text("1")
        other.create("second").snapshots.take(root)
        store.purge("second")
    assert files_with(tmp_path / "cache", WORD) == []


# --- copies ---


def test_copies_are_erased_with_the_next_copy(address: Address, tmp_path: Path) -> None:
    with clew.open(address("store")) as store, clew.open(f"sqlite:{tmp_path / 'copy.db'}") as copy:
        fill(store)
        assert store.copy_to(copy).complete
        store.erase("t", ["a", "b"], reason="a key")
        store.get("t").append("event", "later")
        report = store.copy_to(copy)
        assert [done.outcome for done in report.threads if done.thread == "t"] == ["extended"]
        assert copy.engine.read("t") == store.engine.read("t")
        assert store.copy_to(copy).records == 0
        assert copy.verify() == []
    assert [path.name for path in files_with(tmp_path, LONG[:60])] == []


def test_what_was_erased_is_copied_so(address: Address, tmp_path: Path) -> None:
    with clew.open(address("store")) as store:
        fill(store)
        store.erase("t", ["a", "b"])
        store.purge("t")
        for other in ("sqlite:copy.db", "files:copy"):
            kind, name = other.split(":")
            with clew.open(f"{kind}:{tmp_path / name}") as copy:
                assert store.copy_to(copy).complete
                assert copy.engine.path("f") == store.engine.path("f")
                assert copy.verify() == []


def test_a_copy_that_went_its_own_way_is_erased_too(tmp_path: Path) -> None:
    with clew.open("memory:") as store, clew.open(f"files:{tmp_path / 'copy'}") as copy:
        fill(store)
        store.copy_to(copy)
        copy.get("t").append("event", "of its own")
        store.erase("t", ["a"])
        store.copy_to(copy)
        assert copy.get("t").get("a").erased_at is not None
        assert copy.verify() == []


@pytest.mark.parametrize("form", ["clew", "bundle"])
def test_an_export_brings_tombstones(address: Address, tmp_path: Path, form: str) -> None:
    from clew.interchange.export import export

    with clew.open(address("store")) as store, clew.open("memory:") as target:
        fill(store)
        store.erase("t", ["a", "b"])
        path = tmp_path / "t.jsonl"
        export(store.get("f"), path, form)
        bring(target, path)
        found = {entry.id: entry for entry in target.get("f").path()}
        assert found["a"].erased_at == store.get("f").get("a").erased_at
        assert found["b"].hash == store.get("f").get("b").hash
        assert target.verify() == []


@pytest.mark.parametrize("kind", ["sqlite", "files"])
def test_a_repair_keeps_tombstones(tmp_path: Path, kind: str) -> None:
    place = f"{kind}:{tmp_path / 'store'}"
    with clew.open(place) as store:
        fill(store)
        store.erase("t", ["a", "b"])
        before = store.engine.read("t")
    report = repair(place)
    assert report.lost == ()
    with clew.open(place) as store:
        assert store.engine.read("t") == before
        assert store.verify() == []


def test_a_conversation_that_is_compacted_keeps_tombstones() -> None:
    with clew.open("memory:") as store:
        fill(store)
        copy = store.clone("t", id="u")
        assert copy.get("a").erased_at is None
        store.erase("t", ["a"])
        assert store.clone("t", id="v").get("a").erased_at is not None
        assert store.verify() == []


# --- others at work ---


@pytest.mark.parametrize("kind", ["sqlite", "files"])
def test_a_writer_goes_on_beside_an_erasure(tmp_path: Path, kind: str) -> None:
    place = f"{kind}:{tmp_path / 'store'}"
    with clew.open(place) as store:
        fill(store)
        thread = store.get("t")
        with thread.turn(owner="me") as turn:
            turn.append("event", 1, id="e1")
            code = (
                "import sys, clew\n"
                "with clew.open(sys.argv[1]) as store: store.erase('t', ['a', 'b', 'e1'])"
            )
            subprocess.run([sys.executable, "-c", code, place], check=True)
            turn.append("event", 2, id="e2")
            assert thread.get("e1").erased_at is not None
        assert [entry.id for entry in thread.path()][-3:-1] == ["e1", "e2"]
        assert store.verify() == []


def test_a_body_that_is_missing_without_a_tombstone_is_damage(tmp_path: Path) -> None:
    import apsw

    path = tmp_path / "store.db"
    with clew.open(str(path)) as store:
        fill(store)
        store.erase("t", ["a"])
    db = apsw.Connection(str(path))
    db.execute("UPDATE records SET body = NULL WHERE id = 'd'")
    db.execute("UPDATE records SET meta = NULL WHERE id = 'a'")
    db.close()
    with clew.open(str(path)) as store:
        found = {(problem.code, problem.entry) for problem in store.verify()}
    assert {("missing_body", "a"), ("missing_body", "d")} <= found


# --- receipts and proofs ---


def test_a_purge_gives_a_receipt(address: Address) -> None:
    with clew.open(address("store")) as store:
        fill(store)
        store.search(WORD)
        body = store.get("f").get("d")
        receipt = store.purge("f").receipt
        assert receipt is not None
        assert (receipt.what, receipt.threads, receipt.records) == ("purge", ("f",), 2)
        assert [(one.entry, one.hash, one.body_hash) for one in receipt.entries] == [
            ("d", body.hash, body.body_hash)
        ]
        assert receipt.left == ()
        kept = store.purge("t").receipt
        assert kept is not None
        assert (kept.kept, kept.left) == (0, ())


def test_a_receipt_says_what_stays_for_forks(address: Address) -> None:
    with clew.open(address("store")) as store:
        fill(store)
        receipt = store.purge("t").receipt
        assert receipt is not None
        assert receipt.kept_for == ("f",)
        assert {one.entry for one in receipt.entries}.isdisjoint({"a", "b", "c"})
        assert "records" in {one.place for one in receipt.left}
        assert not prove(store, receipt).clean


def test_what_was_adopted_from_a_purged_thread_is_named(address: Address) -> None:
    """Also on a server, whose files cannot be looked through for the id."""
    with clew.open(address("store")) as store:
        thread = store.create("a-thread-that-stays")
        thread.append("event", 1)
        fork = thread.fork(id="a-thread-to-go")
        fork.append("event", 2, id="adopted")
        thread.adopt(fork)
        receipt = store.purge("a-thread-to-go").receipt
        assert receipt is not None
        told = [trace for trace in prove(store, receipt).traces if trace.place == "records"]
        assert ("the entry was adopted from it", "adopted") in [
            (trace.text, trace.entry) for trace in told
        ]


def test_a_record_is_a_forks_only_if_it_is(address: Address) -> None:
    with clew.open(address("store")) as store:
        store.create("a-thread").append("event", 1)
        texts = {trace.text for trace in prove(store, "a-thread").traces}
        assert "a record of it" in texts
        assert "a record of it, which a fork shares" not in texts


def test_a_cleanup_gives_receipts(address: Address) -> None:
    from datetime import timedelta

    with clew.open(address("store")) as store:
        store.create("some-old-thread").append("event", WORD, id="a")
        store.fork("some-old-thread", id="a-fork-of-it").append("event", 2, id="b")
        report = store.cleanup(older_than=timedelta(0))
        assert set(report.purged) == {"some-old-thread", "a-fork-of-it"}
        assert {one.threads[0] for one in report.receipts} == set(report.purged)
        # What the fork shared went with it, and is on its receipt.
        named = [one.entry for receipt in report.receipts for one in receipt.entries]
        assert sorted(named) == ["a", "b"]
        assert all(prove(store, receipt).clean for receipt in report.receipts)


def test_the_proof_of_an_erasure(address: Address) -> None:
    with clew.open(address("store")) as store:
        fill(store)
        assert not prove(store, "a").clean
        receipt = store.erase("t", ["a"])
        assert prove(store, receipt).clean
        assert prove(store, "a").clean
        store.create("u").append_message({"role": "user", "content": f"the {WORD}"}, id="again")
        (trace,) = prove(store, receipt).traces
        assert (trace.place, trace.thread, trace.entry) == ("records", "u", "again")
        assert prove(store, read_receipt(msgspec.json.encode(receipt))).traces == (trace,)


def test_the_proof_of_a_purge(address: Address, tmp_path: Path) -> None:
    with clew.open(address("store")) as store:
        store.create("a-thread-to-go").append("event", 1)
        store.create("child", parent="a-thread-to-go")
        store.usage()
        store.search("nothing")
        places = {trace.place for trace in prove(store, "a-thread-to-go").traces}
        assert {"threads", "records", "index"} <= places
        receipt = store.purge("a-thread-to-go").receipt
        assert receipt is not None
        found = {(one.place, one.thread) for one in prove(store, receipt).traces if one.thread}
        assert found == {("threads", "child")}
        store.purge("child")
        assert prove(store, receipt).clean
        assert prove(store, "a-thread-to-go").clean
    assert files_with(tmp_path, "a-thread-to-go") == []


def test_what_is_no_receipt_is_refused() -> None:
    for data in (b"", b"[]", b"{}", b'{"receipt":1}'):
        with pytest.raises(clew.InvalidInput):
            read_receipt(data)


def test_only_a_receipt_has_what_was_removed() -> None:
    """The store keeps none, as it would name what is gone."""
    names = set(Receipt.__struct_fields__)
    assert {"id", "what", "time_us", "threads", "entries", "blobs", "checked"} <= names
    with clew.open("memory:") as store:
        fill(store)
        receipt = store.purge("f").receipt
        assert receipt is not None
        said = [entry for entry in store.get("t").read() if isinstance(entry, Entry)]
        assert receipt.id not in str(said)


@pytest.mark.parametrize("erased", ["before", "broken", "behind"])
def test_a_damaged_body_keeps_nothing_from_being_erased(
    address: Address, tmp_path: Path, erased: str
) -> None:
    place = address("store")
    if place == "memory:":
        pytest.skip("nothing of it lies where it could be damaged")
    with clew.open(place) as store:
        thread = store.create("t", title="A plain title")
        thread.append_message({"role": "assistant", "content": WORD}, id="before")
        thread.append("note", os.urandom(100_000).hex(), id="broken")
        thread.append_message({"role": "assistant", "content": WORD}, id="behind")
    _damage_blobs(tmp_path / "store")
    with clew.open(place) as store:
        receipt = store.erase("t", [erased])
        assert [(one.thread, one.entry) for one in receipt.entries] == [("t", erased)]
        assert receipt.left == ()
        # What else may say it is told as far as it can be read, and of the rest that it cannot.
        others = {"before": {"behind"}, "behind": {"before"}, "broken": set()}[erased]
        broken = {record for record in ("no. 3",) if erased != "broken"}
        assert {one.record for one in receipt.repeats} == others | broken
        assert store.get("t").get(erased).tombstone is not None
        damaged = [problem.entry for problem in store.verify() if problem.code == "damaged_body"]
        assert damaged == ([] if erased == "broken" else ["broken"])


def test_a_gap_of_numbers_before_a_damaged_record_keeps_no_erasure_from_ending(
    tmp_path: Path,
) -> None:
    """Each number was asked for by itself, and there may be four billion of them."""
    path = tmp_path / "store.db"
    with clew.open(path) as store:
        thread = store.create("t")
        thread.append_message({"role": "user", "content": WORD}, id="said")
        thread.append("note", "far away", id="far")
    with closing(apsw.Connection(str(path))) as db:
        db.execute(
            "UPDATE records SET no = no + 2000000000, blob = 7, body = NULL WHERE id = 'far'"
        )
    with clew.open(path) as store:
        (told,) = store.erase("t", ["said"]).repeats
    assert told.record.startswith("no. 2 to ")
    assert told.record.endswith(" and all behind it")


def _damage_blobs(place: Path) -> None:
    if place.is_file():
        with closing(apsw.Connection(str(place))) as db:
            db.execute("UPDATE blobs SET data = zeroblob(length(data))")
        return
    for file in (place / "blobs").rglob("*"):
        if file.is_file():
            file.write_bytes(b"nothing")


# --- what repeats it ---


def test_earlier_saves_of_a_streamed_reply_go_with_it(address: Address, tmp_path: Path) -> None:
    chunk: Any = {"id": "r", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    with clew.open(address("store")) as store:
        thread = store.create("t")
        thread.append_message({"role": "user", "content": "say it"})
        with thread.streaming("openai-chat", id="reply", save_seconds=0) as reply:
            for text in ("the ", WORD, " is this"):
                choice = {"index": 0, "delta": {"role": "assistant", "content": text}}
                reply.feed(chunk | {"choices": [choice | {"finish_reason": None}]})
            reply.feed(chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        with_it = [one for one in thread.read() if WORD.encode() in getattr(one, "data", b"")]
        assert len(with_it) >= 3
        receipt = thread.erase("reply")
        assert {one.entry for one in receipt.entries} >= {one.id for one in with_it}
        assert [one for one in thread.read() if WORD.encode() in getattr(one, "data", b"")] == []
        assert store.verify() == []
    assert files_with(tmp_path, WORD) == []


def test_a_title_made_of_it_is_taken_away_and_named(address: Address) -> None:
    with clew.open(address("store")) as store:
        thread = store.create("t", title=f"The {WORD}\u2026")
        thread.append_message({"role": "user", "content": f"the  {WORD} is this"}, id="a")
        store.fork("t", id="f", title="another one")
        store.create("u", title=f"the {WORD}")
        receipt = store.erase("f", ["a"])
        assert thread.info.title is None
        assert store.get("f").info.title is not None
        assert store.get("u").info.title is not None, "it is of another thread"
        assert [(one.thread, one.fact) for one in receipt.repeats] == [("t", "title")]


def test_what_may_repeat_it_is_named(address: Address) -> None:
    with clew.open(address("store")) as store:
        fill(store)
        thread = store.get("t")
        before = thread.append("compaction", {"summary": "s"}, id="early", parent=None)
        thread.move("c")
        thread.append_message({"role": "user", "content": f"the {WORD}"}, id="twice")
        summary = thread.append("compaction", {"summary": f"about {WORD}"}, id="summary")
        thread.label("a", WORD)
        receipt = thread.erase("a")
        found = {(one.record if one.fact is None else one.fact) for one in receipt.repeats}
        assert found == {"twice", summary.id, "label.a"}
        assert before.id not in found
        assert msgspec.json.decode(msgspec.json.encode(receipt), type=Receipt) == receipt
