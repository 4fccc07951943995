"""Waiting for the disk; in several threads where it is slow: syncs that meet share their work."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = 0.0025  # on a fast disk a few are sooner done than threads are started
_MANY = 4  # of which it is worth it
_HELPERS_MAX = 7


def each(work: Callable[[T], None], items: Sequence[T]) -> None:
    """Do it to every one, in any order. The first error ends it, and is raised."""
    left = deque(items)
    patient_until = time.perf_counter() + PATIENCE_SECONDS
    while left and (len(left) < _MANY or time.perf_counter() < patient_until):
        work(left.popleft())
    if left:
        _together(work, left)


def _together(work: Callable[[T], None], left: deque[T]) -> None:
    errors: list[BaseException] = []

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

    count = min(len(left) - 1, _HELPERS_MAX)
    helpers = [threading.Thread(target=help, daemon=True) for _ in range(count)]
    for helper in helpers:
        helper.start()
    help()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]
