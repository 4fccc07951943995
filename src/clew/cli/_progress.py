"""A bar for work that takes its time: on standard error, only on a terminal, gone at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

DELAY_SECONDS = 0.5  # what is done sooner needs no bar
REDRAW_SECONDS = 0.1
_CELLS = 24


class Bar:
    """Call it with how much is done, and of how much. Without a stream it shows nothing."""

    def __init__(
        self,
        stream: TextIO | None,
        label: str,
        *,
        width: int = 80,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._label = label
        self._width = width
        self._clock = clock
        self._began = clock()
        self._drawn = self._began + DELAY_SECONDS - REDRAW_SECONDS
        self._shown = 0

    def __call__(self, done: int, total: int) -> None:
        now = self._clock()
        if self._stream is None or now - self._drawn < REDRAW_SECONDS:
            return
        self._drawn = now
        self._draw(line(self._label, done, total, now - self._began)[: self._width - 1])

    def _draw(self, text: str) -> None:
        assert self._stream is not None
        self._stream.write("\r" + text.ljust(self._shown))
        self._stream.flush()
        self._shown = len(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._shown and self._stream is not None:
            self._draw("")
            self._stream.write("\r")
            self._stream.flush()


def line(label: str, done: int, total: int, seconds: float) -> str:
    """`verify [####----] 1,234 of 5,000 (24 %), 12 s left`"""
    if total <= 0:
        return f"{label} {done:,}"
    share = min(done / total, 1.0)
    filled = int(share * _CELLS)
    bar = "#" * filled + "-" * (_CELLS - filled)
    text = f"{label} [{bar}] {done:,} of {total:,} ({int(share * 100)} %)"
    return f"{text}, {_span(seconds * (1 - share) / share)} left" if done else text


def _span(seconds: float) -> str:
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
