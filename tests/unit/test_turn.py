"""Turns: the lease is taken, every ending leaves its marker, nothing is swallowed."""

from __future__ import annotations

import time

import pytest

from clew import Conflict, InvalidInput, LeaseHeld, LeaseLost, draft
from clew.core.model import Renew
from clew.store import Store
from clew.thread import Thread


def statuses(thread: Thread) -> list[str]:
    return [e.body["status"] for e in thread.path() if e.kind == "turn_marker"]


def test_a_turn_marks_its_beginning_points_and_end(store: Store) -> None:
    thread = store.create()
    with thread.turn(owner="me", id="turn-1") as turn:
        call = turn.append("tool_call", {"n": 1})
        turn.append_message({"role": "assistant", "content": "x"})
        turn.save_point({"iteration": 1})
        assert thread.leases.active().owner == "me"
    assert statuses(thread) == ["started", "save_point", "completed"]
    assert {e.turn for e in thread.path()} == {"turn-1"}
    assert call.turn == "turn-1"
    assert thread.leases.active() is None
    assert thread.unfinished_turn() is None


def test_drafts_become_part_of_the_turn(store: Store) -> None:
    thread = store.create()
    with thread.turn(owner="me", id="turn-1") as turn:
        made = turn.append([draft("event", 1), draft("event", 2, turn="other")])
    assert [entry.turn for entry in made] == ["turn-1", "other"]


def test_what_does_not_go_with_drafts_is_refused_and_not_dropped(store: Store) -> None:
    thread = store.create()
    with thread.turn(owner="me") as turn:
        with pytest.raises(InvalidInput, match="give the drafts themselves"):
            turn.append([draft("event")], {"lost": True})  # type: ignore[call-overload]
        with pytest.raises(InvalidInput, match="give the drafts themselves"):
            turn.append([draft("event")], meta={"lost": True})  # type: ignore[call-overload]
        with pytest.raises(InvalidInput, match=r"drafts of clew.draft\(\)"):
            turn.append([{"role": "user"}])  # type: ignore[list-item]
    assert [entry.kind for entry in thread.path()] == ["turn_marker", "turn_marker"]


def test_an_exception_is_recorded_and_goes_on(store: Store) -> None:
    thread = store.create()
    with pytest.raises(ZeroDivisionError), thread.turn(owner="me"):
        raise ZeroDivisionError("division by zero")
    end = thread.path()[-1]
    assert end.body == {"status": "failed", "error": "ZeroDivisionError: division by zero"}
    assert thread.leases.active() is None


def test_ctrl_c_aborts(store: Store) -> None:
    thread = store.create()
    with pytest.raises(KeyboardInterrupt), thread.turn(owner="me"):
        raise KeyboardInterrupt
    assert thread.path()[-1].body == {"status": "aborted", "error": "KeyboardInterrupt"}


def test_a_turn_can_end_waiting_or_aborted(store: Store) -> None:
    thread = store.create()
    with thread.turn(owner="me") as turn:
        turn.wait_for("approval")
    with thread.turn(owner="me") as turn:
        turn.abort("user said stop")
    assert statuses(thread) == ["started", "waiting", "started", "aborted"]
    assert thread.path()[-1].body["reason"] == "user said stop"


def test_a_second_turn_is_told_who_holds_the_first(store: Store) -> None:
    thread = store.create()
    with thread.turn(owner="me"):
        with pytest.raises(LeaseHeld) as caught, thread.turn(owner="you"):
            pass
        assert caught.value.owner == "me"
    assert statuses(thread) == ["started", "completed"]


def test_waiting_for_the_lease_ends_with_it_or_with_the_patience(store: Store) -> None:
    thread = store.create()
    thread.leases.acquire("dead", ttl_seconds=0.1)
    mine = thread.turn(owner="me", wait_seconds=30)
    yours = thread.turn(owner="you", wait_seconds=0.05)
    with mine, pytest.raises(LeaseHeld), yours:
        pass
    with yours:
        pass


def test_a_turn_that_lost_its_lease_cannot_write_and_says_so(store: Store) -> None:
    thread = store.create()
    with pytest.raises(LeaseLost), thread.turn(owner="me") as turn:
        store.engine.lease(thread.id, _clear(turn.lease.created_us))
        with pytest.raises(LeaseLost):
            turn.append("tool_call", 1)
    assert statuses(thread) == ["started"]
    assert thread.unfinished_turn().body["status"] == "started"


def _clear(created_us: int) -> object:
    from clew.core.model import ClearExpired

    return ClearExpired(created_us + 1)


def test_the_first_exception_wins_over_a_lost_lease(store: Store) -> None:
    thread = store.create()
    with pytest.raises(ValueError, match="mine") as caught, thread.turn(owner="me") as turn:
        store.engine.lease(thread.id, _clear(turn.lease.created_us))
        raise ValueError("mine")
    assert "could not be written" in caught.value.__notes__[0]


def test_a_long_turn_is_renewed_in_the_background(store: Store) -> None:
    thread = store.create()
    with thread.turn(owner="me", ttl_seconds=3) as turn:
        first = turn.lease.until
        deadline = time.monotonic() + 60
        while thread.leases.active().until <= first:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        turn.append("tool_call", 1)


def test_renewal_ends_with_the_turn(store: Store) -> None:
    thread = store.create()
    with thread.turn(owner="me", ttl_seconds=5) as turn:
        fence = turn.lease.fence
    with pytest.raises(LeaseLost):
        store.engine.lease(thread.id, Renew(fence, 5))
    assert store.renewer._due == {}


def test_unfinished_turns_are_found_behind_a_long_tail(store: Store) -> None:
    thread = store.create()
    turn = thread.turn(owner="me").__enter__()
    for n in range(150):
        turn.append("event", n)
    assert thread.unfinished_turn().turn == turn.id
    turn.__exit__(None, None, None)
    assert thread.unfinished_turn() is None


def test_a_turn_is_entered_once(store: Store) -> None:
    turn = store.create().turn(owner="me")
    with turn:
        pass
    with pytest.raises(RuntimeError, match="one with statement"), turn:
        pass


def test_a_turn_outside_its_block_has_no_lease(store: Store) -> None:
    with pytest.raises(RuntimeError):
        store.create().turn(owner="me").append("event", 1)


# --- doing a step again in another turn ---


def test_a_step_that_is_done_again_in_another_turn_is_not_refused(store: Store) -> None:
    thread = store.create()
    message = {"role": "user", "content": "Go on."}
    with thread.turn(owner="one") as turn:
        stored = [
            turn.append("tool_call", {"n": 1}, id="a"),
            turn.append_message(message, id="b", meta={}),
            *turn.append([draft("usage", {"n": 2}, id="c")]),
        ]
        assert {entry.turn for entry in stored} == {turn.id}
    with thread.turn(owner="two") as turn:
        again = [
            turn.append("tool_call", {"n": 1}, id="a", meta={}),
            turn.append_message(message, id="b"),
            *turn.append([draft("usage", {"n": 2}, id="c")]),
        ]
    assert again == stored
    assert thread.append("tool_call", {"n": 1}, id="a") == stored[0], "or without a turn"
    assert [e.kind for e in thread.path()].count("tool_call") == 1


def test_a_turn_that_the_caller_says_counts(store: Store) -> None:
    thread = store.create()
    with thread.turn(owner="one") as turn:
        turn.append("event", 1, id="a")
        stored = turn.append("event", 2, id="b", turn="mine")
        assert stored.turn == "mine"
    with thread.turn(owner="two") as turn:
        for call in (
            lambda: turn.append("event", 1, id="a", turn=turn.id),
            lambda: turn.append([draft("event", 1, id="a", turn="other")]),
            lambda: turn.append("event", 2, id="b", turn=turn.id),
        ):
            with pytest.raises(Conflict) as caught:
                call()
            assert caught.value.field == "turn"
        assert turn.append("event", 2, id="b", turn="mine") == stored
        assert turn.append("event", 2, id="b") == stored


def test_where_a_turn_began_no_turn_is_unfinished(store: Store) -> None:
    """Before its first message is before its marker, or it would look interrupted there."""
    thread = store.create()
    with thread.turn(owner="me") as turn:
        turn.append_message({"role": "user", "content": "one"})
    with thread.turn(owner="me") as turn:
        asked = turn.append_message({"role": "user", "content": "two"})
        turn.append_message({"role": "assistant", "content": "yes"})
    fork = thread.fork(before=asked.id)
    assert fork.unfinished_turn() is None
    assert fork.path()[-1].body["status"] == "completed"
    thread.rewind(asked.id, files=False)
    assert thread.leaf == fork.leaf
    with thread.turn(owner="me") as turn:
        again = turn.append_message({"role": "user", "content": "three"})
        turn.rewind(again.id, files=False)
        turn.append_message({"role": "user", "content": "four"})
    path = thread.path()
    assert [entry.body["status"] for entry in path[-3:] if entry.kind == "turn_marker"] == [
        "started",
        "completed",
    ]
    assert path[-2].body["content"] == "four"
