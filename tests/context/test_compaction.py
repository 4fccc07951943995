"""Compaction loses nothing: what is kept, what it stands for, what happens meanwhile, undoing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from context import dialogues as say

import clew
from clew import Conflict, InvalidInput, messages
from clew.context.tokens import count_message
from clew.store import Store
from clew.thread import Thread


def turn(thread: Thread, n: int, *, calls: int = 1) -> None:
    """A request, some exchanges, an answer."""
    thread.append_message({"role": "user", "content": f"question {n}"})
    for i in range(calls):
        body = say.calls("openai-chat", (f"c{n}.{i}", "run", {"n": n}))
        thread.append("tool_call", body, format="openai-chat")
        result = say.result("openai-chat", f"c{n}.{i}", f"output {n}.{i} " * 20)
        thread.append("tool_result", result, format="openai-chat")
    thread.append_message({"role": "assistant", "content": f"answer {n}"})


def grown(store: Store, turns: int = 5, **options: Any) -> Thread:
    thread = store.create()
    for n in range(turns):
        turn(thread, n, **options)
    return thread


def texts(thread: Thread, **options: Any) -> list[str]:
    return [str(m.get("content")) for m in thread.context("plain", **options).messages]


def test_a_summary_stands_for_all_but_the_newest_turns(store: Store) -> None:
    thread = grown(store)
    seen: list[Any] = []

    def summarize(given: list[Any]) -> str:
        seen.extend(given)
        return "they talked"

    entry = thread.compact(summarize, keep_turns=2, trigger="manual", reason="test")
    assert [m["content"] for m in seen if m["role"] == "user"] == [
        "question 0",
        "question 1",
        "question 2",
    ]
    shown = texts(thread)
    assert "they talked" in shown[0]
    assert shown[1] == "question 3"
    assert shown[-1] == "answer 4"
    body = entry.body
    assert (body["generation"], body["previous_compaction_id"]) == (1, None)
    assert (body["trigger"], body["reason"], body["phase"]) == ("manual", "test", "completed")
    assert body["tokens_before"] > body["tokens_after_estimate"] > 0
    assert thread.get(body["first_kept_entry_id"]).body["content"] == "question 3"
    assert thread.get(body["compacted_through_entry_id"]).body["content"] == "answer 2"


def test_the_users_words_are_preserved_as_far_as_they_fit(store: Store) -> None:
    thread = grown(store)
    thread.compact(lambda _: "S", keep_turns=1, keep_user_tokens=20)
    first = texts(thread)[0]
    assert "question 3" in first
    assert "question 0" not in first
    thread.uncompact()
    thread.compact(lambda _: "S", keep_turns=1, keep_user_tokens=0)
    assert "preserved_user_inputs" not in texts(thread)[0]


def test_a_report_says_what_the_summary_stands_for(store: Store) -> None:
    thread = grown(store)
    assert thread.compaction() is None
    thread.compact(lambda _: "first", keep_turns=3)
    thread.compact(lambda _: "second", keep_turns=1)
    found = thread.compaction()
    assert (found.summary, found.generation) == ("second", 2)
    said = [e.body.get("content") for e in found.stands_for if e.kind == "user_message"]
    assert said == ["question 2", "question 3"], "what the first one stood for is not in it"


def test_a_compaction_says_its_version_and_how_large_the_context_is_before_and_after(
    store: Store,
) -> None:
    thread = store.create()
    for n in range(4):
        thread.append_message({"role": "user", "content": f"question {n} " * 20}, id=f"q{n}")
        thread.append_message({"role": "assistant", "content": f"answer {n} " * 20}, id=f"a{n}")
    for _ in range(2):
        before = thread.context("plain").report.tokens
        entry = thread.compact(summary="what was said", keep_turns=1)
        assert entry is not None
        assert entry.body["summary_schema_version"] == 1
        assert entry.body["tokens_before"] == before
        assert entry.body["tokens_after_estimate"] == thread.context("plain").report.tokens
        thread.append_message({"role": "user", "content": "go on"})
        thread.append_message({"role": "assistant", "content": "yes"})


def test_a_summary_stands_for_the_entries_up_to_its_cut(store: Store) -> None:
    thread = store.create()
    for n in range(3):
        thread.append_message({"role": "user", "content": f"q{n}"}, id=f"q{n}")
        thread.append_message({"role": "assistant", "content": f"a{n}"}, id=f"a{n}")
    thread.compact(summary="S", keep_turns=1)
    found = thread.compaction()
    assert found is not None
    assert [entry.id for entry in found.stands_for] == ["q0", "a0", "q1", "a1"]


def test_the_last_compaction_wins_and_knows_the_one_before(store: Store) -> None:
    thread = grown(store)
    one = thread.compact(lambda _: "first", keep_turns=3)
    given: list[Any] = []
    two = thread.compact(lambda m: given.extend(m) or "second", keep_turns=1)
    assert two.body["previous_compaction_id"] == one.body["compaction_id"]
    assert two.body["generation"] == 2
    assert "first" in str(given[0]), "the old summary is part of what is summed up"
    assert "question 0" not in str(given[1:]), "what it stood for is not summed up again"
    shown = texts(thread)
    assert "second" in shown[0]
    assert "first" not in str(shown)


def test_nothing_is_deleted(store: Store) -> None:
    thread = grown(store)
    before = thread.context("plain").messages
    thread.compact(lambda _: "S", keep_turns=1)
    assert thread.context("plain", compacted=False).messages == before
    assert len(thread.path()) == 21


def test_uncompact_brings_back_what_was_there(store: Store) -> None:
    thread = grown(store)
    before = thread.context("plain").messages
    entry = thread.compact(lambda _: "S", keep_turns=1)
    assert thread.uncompact().id == entry.id
    assert thread.context("plain").messages == before
    assert thread.uncompact() is None


def test_uncompact_keeps_what_came_after(store: Store) -> None:
    thread = grown(store, 3)
    thread.compact(lambda _: "first", keep_turns=1)
    turn(thread, 3)
    thread.compact(lambda _: "second", keep_turns=1)
    turn(thread, 4)
    thread.uncompact()
    shown = texts(thread)
    assert "first" in shown[0], "the one before it is in force again"
    assert shown[-1] == "answer 4"
    assert "question 3" in shown
    thread.uncompact()
    assert texts(thread)[0] == "question 0"


def test_entries_appended_while_the_summary_is_made_survive(store: Store) -> None:
    thread = grown(store)

    def slow(_: list[Any]) -> str:
        turn(thread, 99)
        return "S"

    thread.compact(slow, keep_turns=1)
    shown = texts(thread)
    assert "question 4" in shown
    assert shown[-1] == "answer 99"
    thread.compact(slow, keep_turns=0)
    assert texts(thread)[-1] == "answer 99"


def test_a_thread_that_was_moved_meanwhile_is_a_conflict(store: Store) -> None:
    thread = grown(store)
    root = thread.path()[0].id

    def rewinding(_: list[Any]) -> str:
        thread.move(root)
        return "S"

    with pytest.raises(Conflict):
        thread.compact(rewinding, keep_turns=1)
    assert thread.leaf == root


@pytest.mark.parametrize("races", [1, 19, 20])
def test_an_append_that_was_faster_is_waited_for_and_not_for_ever(
    races: int, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = grown(store)
    append, lost = thread.append, []

    def raced(kind: str, *given: Any, **options: Any) -> Any:
        if kind == "compaction" and len(lost) < races:
            lost.append(kind)
            turn(store.get(thread.id), 100 + len(lost))
        return append(kind, *given, **options)

    monkeypatch.setattr(thread, "append", raced)
    if races == 20:
        with pytest.raises(Conflict):
            thread.compact(lambda _: "S", keep_turns=1)
    else:
        done = thread.compact(lambda _: "S", keep_turns=1)
        assert done is not None
        assert done.parent == thread.path(done.parent)[-1].id
        assert texts(thread)[-1] == f"answer {100 + races}"
    assert len(lost) == races


def test_two_who_compact_at_once_do_not_stack(store: Store) -> None:
    thread = grown(store)

    def meanwhile(_: list[Any]) -> str:
        thread.compact(lambda _: "the other's", keep_turns=1)
        return "mine"

    with pytest.raises(Conflict):
        thread.compact(meanwhile, keep_turns=1)
    assert "the other's" in texts(thread)[0]


def test_a_summary_that_is_yet_to_come_is_refused_whatever_it_is(store: Store) -> None:
    """Something to be awaited need not be a coroutine, which alone can be closed."""

    class Later:
        def __await__(self) -> Any:
            yield

    async def later() -> str:
        return "S"

    thread = grown(store)
    for summarize in (lambda _: Later(), lambda _: later()):
        with pytest.raises(InvalidInput, match="use AsyncThread"):
            thread.compact(summarize, keep_turns=1)
    assert thread.info.seq == store.get(thread.id).info.seq


@pytest.mark.parametrize("answer", [None, "", "  ", 5])
def test_a_summary_that_is_no_text_writes_nothing(store: Store, answer: Any) -> None:
    thread = grown(store)
    before = thread.info.seq
    with pytest.raises(InvalidInput, match="summarize"):
        thread.compact(lambda _: answer, keep_turns=1)
    assert thread.info.seq == before


def test_a_summary_that_fails_writes_nothing(store: Store) -> None:
    thread = grown(store)
    before = thread.info.seq

    def failing(_: list[Any]) -> str:
        raise ValueError("model timed out")

    with pytest.raises(ValueError, match="timed out"):
        thread.compact(failing, keep_turns=1)
    assert thread.info.seq == before


@pytest.mark.parametrize(
    "keep", [{"keep_turns": -1}, {"keep_tokens": -1}, {"keep_turns": 1, "keep_tokens": 1}]
)
def test_nonsense_is_refused(store: Store, keep: dict[str, int]) -> None:
    with pytest.raises(InvalidInput):
        grown(store).compact(lambda _: "S", **keep)


def test_a_boundary_of_ones_own_is_filled_in(store: Store) -> None:
    """Generation, window and the compaction before it are Clew's to know."""
    thread = grown(store, 6)
    asked = [entry for entry in thread.path() if entry.kind == "user_message"]
    through = asked[2].parent
    first = thread.compact(summary="The first two.", through=through)
    assert first is not None
    assert first.body["compacted_through_entry_id"] == through
    assert first.body["first_kept_entry_id"] == asked[2].id
    assert (first.body["generation"], first.body["previous_compaction_id"]) == (1, None)
    second = thread.compact(lambda _: "The first four.", through=asked[4].parent)
    assert second is not None
    assert second.body["generation"] == 2
    assert second.body["previous_compaction_id"] == first.body["compaction_id"]
    assert second.body["window_id"] == second.body["compaction_id"]
    assert "The first four." in str(thread.context("plain").messages[0])


def test_a_boundary_of_ones_own_must_be_one(store: Store) -> None:
    thread = store.create()
    turn(thread, 0, calls=2)
    call = next(entry for entry in thread.path() if entry.kind == "tool_call")
    with pytest.raises(InvalidInput, match="from its result"):
        thread.compact(summary="S", through=call.id)
    with pytest.raises(InvalidInput, match="through"):
        thread.compact(summary="S", through="nobody")
    with pytest.raises(InvalidInput, match="through"):
        thread.compact(summary="S", through=call.id, keep_turns=1)
    for both in ({}, {"summarize": lambda _: "S", "summary": "S"}):
        with pytest.raises(InvalidInput, match="either"):
            thread.compact(**both)
    assert thread.compaction() is None


def test_there_may_be_nothing_to_compact(store: Store) -> None:
    def never(_: list[Any]) -> str:
        raise AssertionError("it must not be called")

    assert store.create().compact(never, keep_turns=0) is None
    assert grown(store, 2).compact(never, keep_turns=2) is None
    assert grown(store, 2).compact(never, keep_tokens=10**6) is None


@pytest.mark.parametrize("keep_tokens", [1, 50, 100, 200, 400, 800])
def test_a_cut_inside_a_long_turn_keeps_pairs_and_the_request(
    store: Store, keep_tokens: int
) -> None:
    thread = store.create()
    turn(thread, 0, calls=12)
    entry = thread.compact(lambda _: "S", keep_tokens=keep_tokens)
    context = thread.context("openai-chat")
    assert messages.validate("openai-chat", context.messages) == []
    assert [r for r in context.report.repairs if r.code != "merged"] == []
    assert "question 0" in str(context.messages), "the request of the running turn is preserved"
    assert context.report.compaction == entry.id


def test_what_is_in_force_stays_in_force(store: Store) -> None:
    thread = store.create()
    thread.append_message({"role": "system", "content": "Be brief."})
    thread.append("active_tools_change", ["old"])
    thread.append("active_tools_change", ["run"])
    thread.append("model_change", {"model": "m-2"})
    for n in range(4):
        turn(thread, n)
    for _ in range(2):
        thread.compact(lambda _: "S", keep_turns=1)
        context = thread.context("anthropic")
        assert "Be brief." in str(context.system)
        assert (context.tools, context.model) == (["run"], {"model": "m-2"})
        turn(thread, 9)


def test_what_was_edited_out_does_not_come_back(store: Store) -> None:
    thread = grown(store, 4)
    secret = [e.id for e in thread.path() if e.kind == "user_message"][1]
    thread.append("context_edit", {"edit": "remove", "target": secret})
    given: list[Any] = []
    thread.compact(lambda m: given.extend(m) or "S", keep_turns=1)
    assert "question 1" not in str(given)
    assert "question 1" not in str(texts(thread))
    other = [e.id for e in thread.path() if e.kind == "user_message"][2]
    assert "question 2" in str(texts(thread))
    thread.append("context_edit", {"edit": "remove", "target": other})
    assert "question 2" not in str(texts(thread)), "also among the preserved inputs"


def test_preserved_inputs_stay_preserved(store: Store) -> None:
    thread = grown(store, 3)
    thread.compact(lambda _: "first", keep_turns=1)
    turn(thread, 3)
    thread.compact(lambda _: "second", keep_turns=1)
    assert "question 0" in texts(thread)[0]


def test_an_unknown_note_is_refused_before_anybody_sums_up(store: Store) -> None:
    def never(_: list[Any]) -> str:
        raise AssertionError("it must not be called")

    with pytest.raises(InvalidInput, match="trigger"):
        grown(store).compact(never, keep_turns=1, nonsense=1)


@pytest.mark.parametrize("keep_tokens", [50, 100, 200, 400])
def test_messages_of_a_format_that_nobody_knows_keep_their_pairs(
    store: Store, keep_tokens: int
) -> None:
    thread = store.create()
    thread.append("user_message", {"role": "user", "content": "question"}, format="mine")
    for n in range(8):
        call = say.calls("openai-chat", (f"c{n}", "run", {}))
        result = say.result("openai-chat", f"c{n}", "output " * 20)
        thread.append("tool_call", call, format="mine")
        thread.append("tool_result", result, format="mine")
    assert thread.compact(lambda _: "S", keep_tokens=keep_tokens) is not None
    context = thread.context("openai-chat")
    assert context.report.repairs == ()
    assert messages.validate("openai-chat", context.messages) == []


def test_asynchronous_summaries_need_the_asynchronous_side(tmp_path: Path) -> None:
    async def summarize(given: list[Any]) -> str:
        await anyio.sleep(0)
        return f"{len(given)} messages"

    with clew.open(tmp_path / "a.db") as store:
        thread = grown(store)
        with pytest.raises(InvalidInput, match="AsyncThread"):
            thread.compact(summarize, keep_turns=1)

    async def story() -> None:
        async with await clew.open_async(tmp_path / "a.db") as opened:
            made = await opened.get(thread.id)
            await made.compact(summarize, keep_turns=1)
            assert (await made.compaction()).summary == "16 messages"
            await made.compact(lambda given: "sync", keep_turns=0)
            assert "sync" in str((await made.context("plain")).messages)
            await made.uncompact()
            assert "16 messages" in str((await made.context("plain")).messages)

    anyio.run(story)


# --- boundaries that were written by others ---


def compacted(store: Store, **fields: Any) -> Thread:
    thread = grown(store, 2)
    thread.append("compaction", {"summary": "S", **fields})
    return thread


def test_a_missing_boundary_is_found_anew_with_its_pairs_together(store: Store) -> None:
    for fields in ({"first_kept_entry_id": "nobody"}, {}, {"compacted_through_entry_id": "gone"}):
        thread = compacted(store, **fields)
        context = thread.context("openai-chat")
        assert "boundary_repaired" in {repair.code for repair in context.report.repairs}
        assert messages.validate("openai-chat", context.messages) == []
        assert context.messages[-1]["content"] == "answer 1"


def test_explicit_user_inputs_infer_no_tail(store: Store) -> None:
    thread = grown(store, 2)
    users = [e.id for e in thread.path() if e.kind == "user_message"]
    thread.append("compaction", {"summary": "S", "kept_user_entry_ids": users})
    shown = texts(thread)
    assert len(shown) == 1
    assert "question 0" in shown[0]
    assert "question 1" in shown[0]


def test_preserved_inputs_are_not_repeated_in_the_tail(store: Store) -> None:
    thread = grown(store, 2)
    users = [e.id for e in thread.path() if e.kind == "user_message"]
    body = {"summary": "S", "kept_user_entry_ids": users, "first_kept_entry_id": users[1]}
    thread.append("compaction", body)
    shown = texts(thread)
    assert "question 0" in shown[0]
    assert "question 1" not in shown[0]
    assert shown[1] == "question 1"


def test_an_empty_summary_leaves_the_tail_alone(store: Store) -> None:
    thread = grown(store, 2)
    users = [e.id for e in thread.path() if e.kind == "user_message"]
    thread.append("compaction", {"summary": "", "first_kept_entry_id": users[1]})
    assert texts(thread)[0] == "question 1"


def test_a_fork_before_the_compaction_does_not_have_it(store: Store) -> None:
    thread = grown(store, 3)
    entry = thread.compact(lambda _: "S", keep_turns=1)
    fork = thread.fork(before=entry.id)
    assert texts(fork)[0] == "question 0"
    assert "S" in texts(thread.fork(at=entry.id))[0]


# --- cost ---


@pytest.fixture(scope="module")
def rows_read(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], int]:
    """How many entries are read for the context of a thread compacted after so many."""

    def count(length: int) -> int:
        path = tmp_path_factory.mktemp("rows") / "a.db"
        with clew.open(path, durability="relaxed") as store:
            thread = store.create()
            for start in range(0, length, 1000):
                kinds = ("user_message", "assistant_message")
                thread.append(
                    [
                        clew.draft(kinds[n % 2], {"role": kinds[n % 2][:-8], "content": str(n)})
                        for n in range(start, start + 1000)
                    ]
                )
            leaf = thread.leaf
            body = {"summary": "S", "compacted_through_entry_id": leaf}
            thread.append("compaction", body)
            for n in range(100):
                turn(thread, n, calls=0)
            read = 0
            inner = store.engine.path

            def counting(*args: Any, **options: Any) -> Any:
                nonlocal read
                found = inner(*args, **options)
                read += len(found)
                return found

            store.engine.path = counting  # type: ignore[method-assign]
            context = thread.context("plain")
            assert len(context.messages) == 201
            return read

    return count


def test_resuming_reads_the_tail_however_long_the_history(
    rows_read: Callable[[int], int],
) -> None:
    assert rows_read(1_000) == rows_read(100_000) < 600


# --- a summariser that takes only so much at once ---


class Summariser:
    """Notes what it is asked; each text is as long as it is told to be."""

    def __init__(self, length: int = 20) -> None:
        self.asked: list[list[Any]] = []
        self.length = length

    def __call__(self, given: list[Any]) -> str:
        self.asked.append(given)
        return f"summary {len(self.asked)} " + "x" * self.length


def tokens(format: str, given: list[Any]) -> int:
    return sum(count_message(one) for body in given for one in messages.read(format, body))


@pytest.mark.parametrize("format", ["anthropic", "openai-chat", "openai-responses", "gemini"])
@pytest.mark.parametrize("max_tokens", [256, 400, 1000, 100_000])
def test_a_summary_is_asked_for_in_pieces_that_lose_nothing(
    store: Store, format: str, max_tokens: int
) -> None:
    thread = grown(store, turns=12, calls=3)
    asks = Summariser()
    entry = thread.compact(asks, keep_turns=2, max_tokens=max_tokens, format=format)
    pieces = [one for one in asks.asked if "<summary part=" not in str(one)]
    assert all(tokens(format, piece) <= max_tokens for piece in asks.asked)
    assert len(pieces) > 1 or max_tokens == 100_000
    for piece in pieces:
        # The summariser's own request comes last.
        wrong = [one for one in messages.validate(format, piece) if one.rule != "last_user"]
        assert wrong == []
    said = "".join(map(str, pieces))
    for n in range(10):
        assert said.count(f"question {n}'") == 1
        assert f"answer {n}'" in said
        for i in range(3):
            assert f"output {n}.{i} " in said
    assert entry is not None
    assert entry.body["summary"].startswith(f"summary {len(asks.asked)} ")


def test_summaries_that_are_too_long_themselves_still_become_one(store: Store) -> None:
    thread = grown(store, turns=20, calls=2)
    asks = Summariser(length=50_000)
    entry = thread.compact(asks, keep_turns=1, max_tokens=256)
    assert entry is not None
    assert len(asks.asked) < 100
    assert "characters left out" in str(asks.asked[-1])
    assert str(asks.asked[-1]).count("<summary part=") == 2


def test_an_exchange_that_is_too_large_alone_is_cut_in_its_middle(store: Store) -> None:
    thread = store.create()
    thread.append_message({"role": "user", "content": "Write it. " + "please " * 3000})
    large = {"path": "a.txt", "content": ["line " * 20_000], "mode": 7}
    thread.append(
        "tool_call", say.calls("openai-chat", ("c", "write", large)), format="openai-chat"
    )
    thread.append(
        "tool_result", say.result("openai-chat", "c", "done " * 9000), format="openai-chat"
    )
    asks = Summariser()
    thread.compact(asks, keep_turns=0, max_tokens=1000, format="openai-chat")
    assert all(tokens("openai-chat", piece) <= 1000 for piece in asks.asked)
    assert all(messages.validate("openai-chat", piece) == [] for piece in asks.asked)
    said = str(asks.asked[:-1])
    assert "a.txt" in said
    assert said.count("characters left out") == 3


def test_what_a_tool_gave_is_shortened_for_the_summary(store: Store) -> None:
    thread = store.create()
    thread.append_message({"role": "user", "content": "?"})
    thread.append("tool_call", say.calls("openai-chat", ("c", "run", {})), format="openai-chat")
    output = "begin" + "x" * 20_000 + "end"
    thread.append("tool_result", say.result("openai-chat", "c", output), format="openai-chat")
    asks = Summariser()
    thread.compact(asks, keep_turns=0, format="openai-chat")
    told = next(m["content"] for m in asks.asked[0] if m["role"] == "tool")
    assert told.startswith("begin")
    assert told.endswith("end")
    assert len(told) < 4100
    assert "characters left out" in told


def test_an_asynchronous_summariser_is_asked_in_pieces_as_well(tmp_path: Path) -> None:
    asks = Summariser()

    async def summarize(given: list[Any]) -> str:
        return asks(given)

    async def main() -> None:
        async with await clew.open_async("memory:") as store:
            thread = await store.create()
            await anyio.to_thread.run_sync(lambda: [turn(thread.sync, n) for n in range(9)])
            entry = await thread.compact(summarize, keep_turns=1, max_tokens=300)
            assert entry is not None
            assert len(asks.asked) > 2

    anyio.run(main)


def test_a_bound_that_no_piece_can_keep_is_refused(store: Store) -> None:
    thread = grown(store)
    for wrong in (0, 255, -1, 1.5, "many"):
        with pytest.raises(InvalidInput, match="max_tokens"):
            thread.compact(Summariser(), max_tokens=wrong)  # type: ignore[arg-type]
    asks = Summariser()
    with pytest.raises(InvalidInput, match="must return text"):
        thread.compact(lambda given: asks(given)[:0], max_tokens=300)
    assert len(asks.asked) == 1
    assert thread.compaction() is None
