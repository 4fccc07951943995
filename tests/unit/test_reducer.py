"""The reducer takes over what `plan` made, and nothing else."""

from __future__ import annotations

import pytest

import clew
from clew.core.errors import ClewError, NotFound
from clew.core.model import ThreadDraft
from clew.core.reducer import Head, ThreadState, plan


def test_a_record_out_of_its_turn_is_not_taken_over() -> None:
    drafts = [clew.draft("event", n, id=f"e{n}") for n in range(2)]
    first, second = plan(Head("t"), drafts, lambda id: None).new
    state = ThreadState(ThreadDraft(id="t", created_us=0))
    with pytest.raises(ClewError, match="does not follow"):
        state.apply(second)
    assert state.records == []
    state.apply(first)
    state.apply(second)
    assert [record.id for record in state.records] == ["e0", "e1"]


def test_a_fork_of_an_entry_that_is_not_there_is_none() -> None:
    with pytest.raises(NotFound):
        ThreadState(ThreadDraft(id="t", created_us=0)).span_to("nowhere")
