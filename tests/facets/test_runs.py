"""The runs facet: a checkpoint is there whole or not at all, and only what is new is written."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import clew
from clew import AlreadyExists, InvalidInput, LeaseHeld, LeaseLost, NotFound, Unavailable
from clew.facets.runs import Checkpoint, Runs
from clew.store import Store


def say(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def says(*texts: str) -> list[Any]:
    return [say(text) for text in texts]


def checkpoint(*texts: str, **fields: Any) -> Checkpoint:
    return Checkpoint(**{"run_id": "r", "messages": says(*texts), **fields})


def loaded(runs: Runs, run_id: str = "r") -> list[str]:
    return [message["content"] for message in runs.load(run_id).messages]


@pytest.fixture
def runs(store: Store) -> Runs:
    return Runs(store)


@pytest.fixture(params=["remembered", "forgotten"])
def again(request: pytest.FixtureRequest, runs: Runs) -> Any:
    """The same object, which remembers what it saved, or a new one, which has to read."""
    return lambda: runs if request.param == "remembered" else Runs(runs.store)


def log(runs: Runs, run_id: str = "r") -> list[str]:
    """What has been written: the kinds of entries, moves, the keys of facts."""
    records = runs.store.get(f"run:{run_id}").read()
    return [getattr(r, "kind", None) or getattr(r, "key", None) or "move" for r in records]


# --- saving and loading ---


def test_every_field_comes_back(runs: Runs) -> None:
    given = Checkpoint(
        run_id="r",
        task_name="report",
        iteration=3,
        messages=[say("a"), {"role": "assistant", "content": [{"type": "text", "text": "\ud83d"}]}],
        system_prompt="You are terse.",
        input_tokens=10,
        output_tokens=2,
        metadata={"branch": "main", "deep": [{"x": None}]},
    )
    stored = runs.save(given)
    assert runs.load("r") == stored
    assert replace(stored, created_at=None, updated_at=None) == given
    assert stored.created_at is not None
    assert stored.created_at.tzinfo is UTC
    assert stored.created_at == stored.updated_at


def test_the_first_time_stays_and_the_last_moves(runs: Runs, again: Any) -> None:
    first = runs.save(checkpoint("a"))
    second = again().save(checkpoint("a", "b"))
    assert second.created_at == first.created_at
    assert second.updated_at > first.updated_at
    assert runs.load("r") == second


def test_a_given_creation_time_is_kept(runs: Runs) -> None:
    time = datetime(2020, 1, 1, tzinfo=UTC)
    assert runs.save(checkpoint("a", created_at=time)).created_at == time
    assert runs.load("r").created_at == time


def test_a_run_that_is_not_there_is_not_found(runs: Runs) -> None:
    with pytest.raises(NotFound) as caught:
        runs.load("r")
    assert (caught.value.what, caught.value.id) == ("run", "r")
    assert runs.find("r") is None
    assert runs.has("r") is False
    assert runs.history("r") == []
    runs.delete("r")
    assert runs.store.stats().threads == 0


def test_a_run_without_messages_can_be_saved(runs: Runs, again: Any) -> None:
    runs.save(Checkpoint(run_id="r"))
    again().save(Checkpoint(run_id="r", iteration=1))
    assert (runs.load("r").messages, runs.load("r").iteration) == ([], 1)


# --- only what is new ---


def test_the_next_iteration_writes_only_what_is_new(runs: Runs, again: Any) -> None:
    messages = [say(str(n)) for n in range(1000)]
    runs.save(Checkpoint(run_id="r", messages=messages, system_prompt="p", metadata={"a": 1}))
    before = len(log(runs))
    messages.append(say("new"))
    again().save(
        Checkpoint(run_id="r", messages=messages, iteration=1, system_prompt="p", metadata={"a": 1})
    )
    assert log(runs)[before:] == ["user_message", "checkpoint"]
    assert runs.load("r").messages == messages


def test_a_save_without_new_messages_writes_no_message(runs: Runs, again: Any) -> None:
    runs.save(checkpoint("a", "b"))
    before = len(log(runs))
    again().save(checkpoint("a", "b", iteration=1))
    assert log(runs)[before:] == ["turn_marker", "checkpoint"]
    again().save(checkpoint("a", "b", "c"))
    assert loaded(runs) == ["a", "b", "c"]


def test_messages_that_differ_begin_a_branch_where_they_do(runs: Runs, again: Any) -> None:
    runs.save(checkpoint("a", "b", "c", "d"))
    old = runs.store.get("run:r").leaf
    before = len(log(runs))
    again().save(checkpoint("a", "b", "x"))
    assert log(runs)[before:] == ["move", "user_message", "checkpoint"]
    assert loaded(runs) == ["a", "b", "x"]
    thread = runs.store.get("run:r")
    assert [entry.body["content"] for entry in thread.path(old)] == ["a", "b", "c", "d"]
    assert thread.compare(old, thread.leaf).common.body == say("b")


@pytest.mark.parametrize("texts", ["", "a", "ab", "xyz", "xbc", "abcd", "b"])
def test_whatever_is_saved_is_what_is_loaded(runs: Runs, again: Any, texts: str) -> None:
    for others in ("abc", "", "abcdef", texts, "abc", texts):
        again().save(checkpoint(*others))
        assert loaded(runs) == list(others)
        assert loaded(Runs(runs.store)) == list(others)


def test_changing_a_message_in_place_is_noticed(runs: Runs) -> None:
    messages = says("a", "b", "c")
    state = Checkpoint(run_id="r", messages=messages, metadata={"list": [1]})
    runs.save(state)
    messages[1]["content"] = "changed"
    state.metadata["list"].append(2)
    runs.save(state)
    assert loaded(runs) == ["a", "changed", "c"]
    assert runs.load("r").metadata == {"list": [1, 2]}


def test_tuples_are_the_lists_that_they_are_stored_as(runs: Runs, again: Any) -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "a", "range": (1, 2)}]}
    runs.save(Checkpoint(run_id="r", messages=[message]))
    before = len(log(runs))
    again().save(Checkpoint(run_id="r", messages=[message, say("b")]))
    assert log(runs)[before:] == ["user_message", "checkpoint"]


def test_what_others_put_into_the_thread_is_not_taken_for_messages(runs: Runs, again: Any) -> None:
    runs.save(checkpoint("a"))
    runs.store.get("run:r").append("event", {"note": 1})
    again().save(checkpoint("a", "b"))
    assert loaded(runs) == ["a", "b"]
    assert [e.kind for e in runs.store.get("run:r").path()] == [
        "user_message",
        "event",
        "user_message",
    ]


def test_a_message_that_somebody_else_added_is_not_mixed_in(runs: Runs) -> None:
    runs.save(checkpoint("a"))
    Runs(runs.store).save(checkpoint("a", "theirs"))
    runs.save(checkpoint("a", "ours"))
    assert loaded(runs) == ["a", "ours"]


def test_metadata_that_somebody_else_changed_is_replaced_as_a_whole(runs: Runs) -> None:
    runs.save(checkpoint("a", system_prompt="ours", metadata={"by": "us"}))
    Runs(runs.store).save(checkpoint("a", system_prompt="theirs", metadata={"by": "them"}))
    Runs(runs.store).save(checkpoint("a", system_prompt="theirs", metadata={"by": "them"}))
    runs.save(checkpoint("a", system_prompt="ours", metadata={"by": "us"}))
    assert runs.load("r").system_prompt == "ours"
    assert runs.load("r").metadata == {"by": "us"}


# --- failing ---


class Failing:
    """An engine whose appends fail: before the commit, or after it without an answer."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.mode = "works"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store.engine, name)

    def append(self, *args: Any, **options: Any) -> Any:
        mode, self.mode = self.mode, "works"
        if mode == "before":
            raise Unavailable("the disk is full")
        answer = self.store.engine.append(*args, **options)
        if mode == "after":
            raise Unavailable("the line broke", committed=None)
        return answer


def test_the_checkpoint_before_is_there_until_the_next_is(store: Store) -> None:
    engine = Failing(store)
    runs = Runs(Store(engine))  # type: ignore[arg-type]
    runs.save(checkpoint("a", iteration=1))
    engine.mode = "before"
    with pytest.raises(Unavailable):
        runs.save(checkpoint("x", iteration=2))
    assert (loaded(runs), runs.load("r").iteration) == (["a"], 1)
    runs.save(checkpoint("x", iteration=2))
    assert (loaded(runs), runs.load("r").iteration) == (["x"], 2)


def test_a_retry_after_an_unknown_outcome_writes_no_message_twice(store: Store) -> None:
    engine = Failing(store)
    runs = Runs(Store(engine))  # type: ignore[arg-type]
    runs.save(checkpoint("a"))
    engine.mode = "after"
    with pytest.raises(Unavailable):
        runs.save(checkpoint("a", "b"))
    runs.save(checkpoint("a", "b"))
    assert loaded(runs) == ["a", "b"]
    assert log(runs).count("user_message") == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("run_id", ""),
        ("run_id", None),
        ("iteration", -1),
        ("iteration", 1.5),
        ("input_tokens", -1),
        ("output_tokens", True),
        ("task_name", None),
        ("system_prompt", 5),
        ("metadata", []),
        ("messages", None),
        ("messages", [say("a"), {"content": "no role"}]),
        ("messages", [{"role": "user", "content": 5}]),
        ("messages", [5]),
        ("created_at", datetime(2020, 1, 1)),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(runs: Runs, field: str, value: Any) -> None:
    runs.save(checkpoint("a"))
    runs.delete("r")
    before = len(log_of_deleted(runs))
    with pytest.raises(InvalidInput) as caught:
        runs.save(checkpoint("a", **{field: value}))
    assert caught.value.field in (field, "message")
    assert len(log_of_deleted(runs)) == before


def log_of_deleted(runs: Runs) -> list[Any]:
    return list(runs.store.get("run:r", deleted=True).read())


def test_a_bad_message_is_named_with_its_place(runs: Runs) -> None:
    with pytest.raises(InvalidInput) as caught:
        runs.save(Checkpoint(run_id="r", messages=[*says("a", "b"), {"content": "x"}]))
    assert caught.value.path == "$[2].role"
    runs.save(checkpoint("a", "b"))
    with pytest.raises(InvalidInput) as caught:
        runs.save(Checkpoint(run_id="r", messages=[*says("a", "b"), {"content": "x"}]))
    assert caught.value.path == "$[2].role"
    assert loaded(runs) == ["a", "b"]


# --- ids ---


IDS = ["../evil", "a/b", "a:b", "a_b", "A_b", ".", "a ", "#", "x" * 600, "\ud800", "nul\0", "ü"]


def test_ids_are_never_paths_and_never_meet(runs: Runs) -> None:
    for run_id in IDS:
        runs.save(Checkpoint(run_id=run_id, messages=says(repr(run_id))))
    for run_id in IDS:
        assert loaded(runs, run_id) == [repr(run_id)]
    assert {info.run_id for info in runs.list().items} == set(IDS)
    runs.delete("../evil")
    assert len(runs.list().items) == len(IDS) - 1


def test_a_thread_that_is_not_a_run_is_not_taken_for_one(runs: Runs) -> None:
    mine = runs.store.create("run:r", facts={"facet": "mine"})
    mine.append("user_message", say("mine"))
    with pytest.raises(AlreadyExists):
        runs.save(checkpoint("a"))
    with pytest.raises(NotFound):
        runs.load("r")
    assert (runs.find("r"), runs.has("r"), runs.history("r")) == (None, False, [])
    with pytest.raises(AlreadyExists):
        runs.delete("r")
    assert runs.list().items == []
    assert len(runs.store.get("run:r").path()) == 1


# --- the list ---


def test_the_list_has_metadata_only_and_the_last_saved_first(runs: Runs) -> None:
    for run_id in "abc":
        runs.save(
            Checkpoint(
                run_id=run_id,
                task_name=f"task {run_id}",
                messages=says("1", "2"),
                input_tokens=5,
                metadata={"k": run_id},
            )
        )
    runs.save(Checkpoint(run_id="a", messages=says("1", "2"), iteration=7))
    page = runs.list(limit=2)
    rest = runs.list(limit=2, cursor=page.cursor)
    infos = [*page.items, *rest.items]
    assert [info.run_id for info in infos] == ["a", "c", "b"]
    assert (infos[0].iteration, infos[0].message_count) == (7, 2)
    assert (infos[1].task_name, infos[1].input_tokens) == ("task c", 5)
    assert infos[1].metadata == {"k": "c"}
    assert not hasattr(infos[0], "messages")


def test_listing_reads_no_message(store: Store) -> None:
    class Blind:
        """An engine that shows no entries."""

        def __getattr__(self, name: str) -> Any:
            assert name not in ("path", "read"), "a message was read"
            return getattr(store.engine, name)

    Runs(store).save(checkpoint("a"))
    blind = Runs(Store(Blind()))  # type: ignore[arg-type]
    assert blind.list().items[0].run_id == "r"
    assert blind.has("r")


@pytest.mark.parametrize("options", [{"limit": 0}, {"limit": 1001}, {"cursor": "x"}])
def test_a_bad_page_is_refused(runs: Runs, options: Any) -> None:
    with pytest.raises(InvalidInput):
        runs.list(**options)


# --- deleting ---


def test_a_deleted_run_is_gone_and_a_save_starts_afresh(runs: Runs, again: Any) -> None:
    first = runs.save(checkpoint("a", "b", system_prompt="old", metadata={"old": True}))
    again().delete("r")
    again().delete("r")
    assert not runs.has("r")
    assert runs.find("r") is None
    assert runs.list().items == []
    second = again().save(checkpoint("a", "c"))
    assert loaded(runs) == ["a", "c"]
    assert second.created_at > first.updated_at
    assert (runs.load("r").system_prompt, runs.load("r").metadata) == ("", {})
    assert [info.run_id for info in runs.list().items] == ["r"]
    assert [e.body["content"] for e in runs.store.get("run:r").path()] == ["a", "c"]


def test_a_run_that_was_purged_can_be_saved_again(runs: Runs) -> None:
    runs.save(checkpoint("a"))
    runs.store.purge("run:r")
    runs.save(checkpoint("a", "b"))
    assert loaded(runs) == ["a", "b"]


# --- earlier checkpoints ---


def test_every_checkpoint_of_a_run_can_still_be_loaded(runs: Runs) -> None:
    runs.save(checkpoint("a", iteration=1, system_prompt="p"))
    runs.save(checkpoint("a", "b", iteration=2, system_prompt="q"))
    runs.save(checkpoint("x", iteration=3, system_prompt="q"))
    runs.delete("r")
    runs.save(checkpoint("y", iteration=4))
    history = runs.history("r")
    assert [info.iteration for info in history] == [4, 3, 2, 1]
    found = [runs.load("r", revision=info.revision) for info in history]
    assert ["".join(m["content"] for m in c.messages) for c in found] == ["y", "x", "ab", "a"]
    assert [c.system_prompt for c in found] == ["", "q", "q", "p"]
    with pytest.raises(NotFound):
        runs.load("r", revision=1)


# --- many at once ---


def run_all(calls: list[Any]) -> list[BaseException]:
    errors: list[BaseException] = []

    def guarded(call: Any) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=guarded, args=(call,)) for call in calls]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return errors


@pytest.mark.parametrize("handles", [1, 8])
def test_savers_of_one_run_never_fail_and_never_mix(runs: Runs, handles: int) -> None:
    savers = [runs] + [Runs(runs.store) for _ in range(handles - 1)]

    def work(n: int) -> None:
        saver = savers[n % handles]
        for i in range(6):
            messages = says(f"{n}", *(f"{n}.{k}" for k in range(i)))
            fields = {"iteration": i, "task_name": f"{n}", "metadata": {"n": n}}
            saver.save(Checkpoint(run_id="r", messages=messages, **fields))

    assert run_all([lambda n=n: work(n) for n in range(8)]) == []
    last = runs.load("r")
    n, i = last.task_name, last.iteration
    assert [m["content"] for m in last.messages] == [n, *(f"{n}.{k}" for k in range(i))]
    assert last.metadata == {"n": int(n)}
    assert len(runs.history("r")) == 48
    assert runs.store.verify() == []


def test_savers_of_many_runs_do_not_get_in_each_others_way(runs: Runs) -> None:
    def work(n: int) -> None:
        for i in range(10):
            runs.save(Checkpoint(run_id=f"{n}", messages=says(*map(str, range(i)))))

    assert run_all([lambda n=n: work(n) for n in range(8)]) == []
    assert len(runs.list().items) == 8
    assert loaded(runs, "7") == list("012345678")


def test_forgetting_what_was_saved_loses_nothing(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clew.facets.runs.runs.REMEMBERED_RUNS", 2)
    for i in range(3):
        for n in range(5):
            runs.save(Checkpoint(run_id=f"{n}", messages=says(*map(str, range(i)))))
    assert all(loaded(runs, f"{n}") == ["0", "1"] for n in range(5))


# --- resuming ---


def test_a_run_is_resumed_where_it_was_saved(runs: Runs) -> None:
    with pytest.raises(ValueError, match="boom"), runs.resume_or_start("r", task_name="t") as run:
        assert (run.messages, run.iteration, run.resumed) == ([], 0, False)
        run.messages.append(say("a"))
        run.input_tokens += 7
        run.save(iteration=1, metadata={"k": 1}, system_prompt="p", output_tokens=3)
        run.messages.append(say("lost"))
        raise ValueError("boom")
    with Runs(runs.store).resume_or_start("r") as run:
        assert run.resumed
        assert (run.messages, run.iteration, run.task_name) == (says("a"), 1, "t")
        assert (run.input_tokens, run.output_tokens) == (7, 3)
        assert (run.metadata, run.system_prompt) == ({"k": 1}, "p")
        stored = run.save([*run.messages, say("b")], iteration=2)
        assert stored.iteration == 2
        run.done()
        assert loaded(runs) == ["a", "b"], "not before the block is left"
    assert not runs.has("r")


def test_leaving_without_done_keeps_the_checkpoint(runs: Runs) -> None:
    with runs.resume_or_start("r") as run:
        run.save(says("a"))
    assert loaded(runs) == ["a"]


def test_an_exception_after_done_keeps_the_checkpoint(runs: Runs) -> None:
    with pytest.raises(ValueError, match="late"), runs.resume_or_start("r") as run:
        run.save(says("a"))
        run.done()
        raise ValueError("late")
    assert loaded(runs) == ["a"]


def test_a_run_that_saved_nothing_leaves_nothing(runs: Runs) -> None:
    with runs.resume_or_start("r"):
        assert runs.list().items == []
        assert not runs.has("r")
    with pytest.raises(KeyboardInterrupt), runs.resume_or_start("r"):
        raise KeyboardInterrupt
    assert runs.store.list(archived=None).items == []
    runs.save(checkpoint("a"))
    assert loaded(runs) == ["a"]


def test_a_run_starts_afresh_after_it_was_done(runs: Runs) -> None:
    for _ in range(2):
        with runs.resume_or_start("r") as run:
            assert run.messages == []
            run.save(says("a"), metadata={"x": 1})
            run.done()
    assert len(runs.history("r")) == 2


def test_two_cannot_be_in_one_run(runs: Runs) -> None:
    other = Runs(runs.store)
    with runs.resume_or_start("r", owner="me") as run:
        run.save(says("a"))
        with pytest.raises(LeaseHeld) as caught, other.resume_or_start("r", owner="you"):
            pass
        assert caught.value.owner == "me"
        for refused in (
            lambda: other.save(checkpoint("x")),
            lambda: other.save(checkpoint("a")),
            lambda: runs.save(checkpoint("x")),
            lambda: other.delete("r"),
        ):
            with pytest.raises(LeaseHeld):
                refused()
        run.save(says("a", "b"))
    other.save(checkpoint("a", "b", "c"))
    assert loaded(runs) == ["a", "b", "c"]


def test_a_run_that_lost_its_lease_writes_no_more(runs: Runs) -> None:
    thread_id = "run:r"
    with pytest.raises(LeaseLost), runs.resume_or_start("r") as run:
        run.save(says("a"))
        runs.store.get(thread_id).leases.clear_expired(cutoff=datetime(2999, 1, 1, tzinfo=UTC))
        with runs.resume_or_start("r", owner="other") as theirs:
            assert theirs.messages == says("a")
            theirs.save(says("a", "theirs"))
        run.save(says("a", "b"))
    assert loaded(runs) == ["a", "theirs"]


def test_the_lease_is_kept_alive_while_the_run_is_at_work(runs: Runs) -> None:
    with runs.resume_or_start("r", ttl_seconds=60) as run:
        renewer = runs.store.renewer
        assert (run.lease.thread, run.lease.fence) in renewer._due
    assert not renewer._due
    assert runs.store.get("run:r", deleted=True).leases.active() is None


def test_a_run_is_used_in_a_with_statement(runs: Runs) -> None:
    run = runs.resume_or_start("r")
    with pytest.raises(RuntimeError):
        run.save(says("a"))
    assert "'r'" in repr(run)


# --- over instances ---


def test_runs_persist(tmp_path: Path) -> None:
    with clew.open(tmp_path / "threads.db") as store:
        Runs(store).save(checkpoint("a", "b", iteration=1))
    with clew.open(tmp_path / "threads.db") as store:
        assert loaded(Runs(store)) == ["a", "b"]
        Runs(store).save(checkpoint("a", "b", "c", iteration=2))
        assert log(Runs(store)).count("user_message") == 3
    with clew.open(tmp_path / "threads.db") as store:
        assert (loaded(Runs(store)), Runs(store).load("r").iteration) == (["a", "b", "c"], 2)
        assert store.verify() == []


def test_two_handles_on_one_file_take_turns(tmp_path: Path) -> None:
    with clew.open(tmp_path / "t.db") as one, clew.open(tmp_path / "t.db") as two:
        savers = [Runs(one), Runs(two)]

        def work(n: int) -> None:
            for i in range(10):
                savers[n % 2].save(checkpoint(*(f"{n}.{k}" for k in range(i)), task_name=str(n)))

        assert run_all([lambda n=n: work(n) for n in range(4)]) == []
        last = savers[0].load("r")
        assert [m["content"] for m in last.messages] == [
            f"{last.task_name}.{k}" for k in range(len(last.messages))
        ]
