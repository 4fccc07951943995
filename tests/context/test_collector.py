"""Python's collector waits while a context is made, and whatever happens goes on after it."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest

import clew
from clew.context import collector
from clew.context.projection import Options, Projection
from clew.context.window import read_window
from clew.thread import Thread


@pytest.fixture(autouse=True)
def switched_on() -> Iterator[None]:
    assert gc.isenabled()
    yield
    gc.enable()


@pytest.fixture(scope="module")
def thread() -> Thread:
    thread = clew.open("memory:").create()
    for n in range(500):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        thread.append_message({"role": "assistant", "content": "", "tool_calls": [call]})
        thread.append_message({"role": "tool", "tool_call_id": f"c{n}", "content": "done"})
    return thread


@pytest.fixture
def runs() -> Iterator[list[int]]:
    """The collections since a test began, by their generations."""
    found: list[int] = []

    def note(phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            found.append(info["generation"])

    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)


def test_nothing_is_collected_while_a_long_thread_is_projected(
    thread: Thread, runs: list[int]
) -> None:
    window = read_window(thread)
    options = Options(format="openai-chat")
    Projection(window, options)  # loads what it needs
    gc.collect()
    runs.clear()
    projection = Projection(window, options)
    # The first thing that is made after it may set the collector off, which has waited so long.
    assert len(runs) <= 1
    context = projection.context(options)
    gc.collect()
    runs.clear()
    assert len(context.messages) == 1000
    assert len(runs) <= 1
    assert gc.isenabled()


def test_an_error_in_the_midst_switches_it_on_again() -> None:
    with pytest.raises(MemoryError), collector.paused():
        assert not gc.isenabled()
        raise MemoryError
    assert gc.isenabled()


def test_a_program_that_has_switched_it_off_keeps_it_off(thread: Thread) -> None:
    gc.disable()
    assert thread.context("openai-chat").messages
    assert not gc.isenabled()


def test_one_pause_within_another_ends_with_the_outer_one() -> None:
    with collector.paused():
        with collector.paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def in_a_child() -> bool:
    """Whether the collector is on in a process that is forked off here."""
    child = os.fork()
    if child == 0:
        os._exit(0 if gc.isenabled() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_is_forked_within_a_pause_collects() -> None:
    with collector.paused():
        assert in_a_child()
    gc.disable()
    assert not in_a_child()
