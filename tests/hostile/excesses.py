"""What a command must not do, done on purpose: the limits have to notice each of them."""

from __future__ import annotations

import signal


def takes_time() -> None:
    while True:
        pass


def takes_memory() -> None:
    bytearray(1 << 30)


def writes() -> None:
    for n in range(8):
        with open(f"part-{n}", "wb") as file:
            file.write(bytes(1 << 19))


def fails() -> None:
    raise KeyError("a mistake")


def waits() -> None:
    signal.pause()


def is_modest() -> None:
    with open("part", "wb") as file:
        file.write(bytes(1 << 10))
