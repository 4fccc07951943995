"""Waiting for the disk in several threads: syncs that meet share their work."""

from __future__ import annotations

import _thread
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

MANY = 6  # fewer are sooner done than a thread is started
_EACH_HAS = 3
_HELPERS_MAX = 7


def each(work: Callable[[T], None], items: Sequence[T]) -> None:
    """Do it to every one, in any order. The first error ends it, and is raised."""
    if len(items) < MANY:
        for item in items:
            work(item)
        return
    left, errors = deque(items), list[BaseException]()

    def help() -> None:
        while left and not errors:
            try:
                item = left.popleft()
            except IndexError:
                return  # somebody else has it
            try:
                work(item)
            except BaseException as error:
                errors.append(error)

    helpers: list[_thread.LockType] = []
    with suppress(RuntimeError):  # no more threads can be had: then fewer do it
        for _ in range(min(len(items) // _EACH_HAS, _HELPERS_MAX)):
            helpers.append(_start(help))
    help()
    for done in helpers:
        _wait_for(done, errors)
    if errors:
        raise errors[0]


def _wait_for(done: _thread.LockType, errors: list[BaseException]) -> None:
    """Also when we are interrupted: nobody may be at work any more when this is over."""
    while True:
        try:
            done.acquire()
            return
        except BaseException as error:
            errors.append(error)


def _start(work: Callable[[], None]) -> _thread.LockType:
    """A thread, and a lock that is free when it has ended.

    The bare kind: to wait until each one runs, as others do, takes longer than a sync.
    """
    done = _thread.allocate_lock()
    done.acquire()

    def run() -> None:
        try:
            work()
        finally:
            done.release()

    _thread.start_new_thread(run, ())
    return done
