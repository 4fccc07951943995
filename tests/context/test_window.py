"""The window: where it begins, whatever a compaction says, and that a gap is told of."""

from __future__ import annotations

from typing import Any

import pytest

import clew
from clew import NotFound
from clew.context.window import GivenPath, Window, read_window
from clew.thread import Thread


def thread_of(*kinds: str) -> Thread:
    """An entry of each kind, whose id is its place and its kind."""
    thread = clew.open("memory:").create()
    for n, kind in enumerate(kinds):
        thread.append(kind, {"role": "user", "content": "x"}, id=f"{n} {kind}")
    return thread


def window_of(thread: Thread, **body: Any) -> Window:
    thread.append("compaction", {"summary": "S", **body})
    found = read_window(thread)
    given = read_window(GivenPath(thread.path()))
    assert given == found, "a path that was read already has the same window"
    return found


def ids(window: Window) -> list[str]:
    return [entry.id for entry in window.entries]


U, A, C, R, E = "user_message", "assistant_message", "tool_call", "tool_result", "event"


@pytest.mark.parametrize(
    ("kinds", "first"),
    [
        ([U, A, E, E], 1),
        ([U, A, U], 2),
        ([U, C, R, R, E], 0),
        ([U, A, C, C, R, R], 1),
        ([C, R], 0),
        ([A, C, R], 0),
        ([E, E, U, E], 2),
        ([U, E, E, E], 0),
        ([E, E, E], 0),
    ],
)
@pytest.mark.parametrize("says", [{}, {"first_kept_entry_id": "gone"}, {"first_kept_entry_id": 5}])
def test_a_compaction_that_does_not_say_where_it_cuts_keeps_the_last_exchange(
    kinds: list[str], first: int, says: dict[str, Any]
) -> None:
    """A call without its result would be refused by every provider."""
    thread = thread_of(*kinds)
    window = window_of(thread, **says)
    assert ids(window) == [f"{n} {kind}" for n, kind in enumerate(kinds)][first:]
    assert window.repaired


def test_a_cut_that_is_found_is_no_gap() -> None:
    kinds = [U, A, U, A]
    for says, kept in (
        ({"first_kept_entry_id": f"2 {U}"}, 2),
        ({"first_kept_entry_id": f"0 {U}"}, 0),
        ({"compacted_through_entry_id": f"2 {U}"}, 3),
        ({"kept_user_entry_ids": [f"0 {U}"]}, 4),
    ):
        window = window_of(thread_of(*kinds), **says)
        assert len(window.entries) == len(kinds) - kept
        assert not window.repaired


def test_a_compaction_that_came_without_what_it_stands_for_is_no_gap_either() -> None:
    thread = clew.open("memory:").create()
    thread.append("compaction", {"summary": "S", "first_kept_entry_id": "elsewhere"})
    thread.append(U, {"role": "user", "content": "x"}, id="after")
    window = read_window(thread)
    assert (ids(window), window.repaired) == (["after"], False)
    assert window.compaction is not None


def test_one_name_that_is_missing_does_not_hide_the_others() -> None:
    thread = thread_of(U, "system_message", U, A)
    users = ["gone", f"0 {U}", "x" * 5000, f"2 {U}"]
    window = window_of(
        thread, kept_user_entry_ids=users, carried_entry_ids=["gone", "1 system_message"]
    )
    assert [entry.id for entry in window.kept] == [f"0 {U}", f"2 {U}"]
    assert [entry.id for entry in window.carried] == ["1 system_message"]


def test_a_given_path_answers_as_a_thread_does() -> None:
    thread = thread_of(U, A, U, A)
    given = GivenPath(thread.path())
    for leaf in (None, f"0 {U}", f"2 {U}", f"3 {A}"):
        assert given.path(leaf) == thread.path(leaf)
        assert given.path(leaf, limit=1) == thread.path(leaf, limit=1)
    assert given.path(after=f"1 {A}") == thread.path(after=f"1 {A}")
    assert given.path(after=f"3 {A}") == []
    later = GivenPath(thread.path(after=f"1 {A}"))
    assert later.path(after=f"1 {A}") == later.path(), "it begins behind that one"
    for reader in (thread, given):
        with pytest.raises(NotFound):
            reader.path("unknown")
        with pytest.raises(NotFound):
            reader.path(after="unknown")
        with pytest.raises(NotFound):
            reader.get("unknown")
