"""Engines around an engine: read-only, traced, faulty.

    store = Store(traced(open_engine("threads.db"), tell=print))

`clew.core.wrapper` says how they are made: `wrap` makes your own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from clew.core.engine import Engine
from clew.core.wrapper import Around, Call, read_only, wrap

__all__ = ["Around", "Call", "Fault", "Trace", "faulty", "read_only", "traced", "wrap"]

# --- traced ---------------------------------------------------------------------------------


class Trace(Struct, frozen=True):
    """An operation that has ended: how long it took, and the error that it raised, if any."""

    operation: str
    thread: str | None
    seconds: float
    error: BaseException | None


def traced(engine: Engine, tell: Callable[[Trace], None]) -> Engine:
    """An engine that tells of each operation when it has ended: for spans, metrics and logs.

    `tell` is called in the thread that made the call, after the operation, and must not raise.
    """

    @contextmanager
    def around(call: Call) -> Iterator[None]:
        begun, error = time.perf_counter(), None
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            tell(Trace(call.operation, call.thread, time.perf_counter() - begun, error))

    return wrap(engine, around)


# --- faulty ---------------------------------------------------------------------------------


class Fault(Struct, frozen=True):
    """An error for the next call of an operation, instead of it or (`after`) behind it.

    Behind it the work is done and only the answer is lost: give such an error `committed=None`,
    as an engine does whose server fell silent.
    """

    operation: str
    error: Exception
    after: bool = False


def faulty(engine: Engine, faults: list[Fault]) -> Engine:
    """An engine that raises the errors of a list: each once, at the next call of its operation.

    A fault that has struck is taken off the list; the test may add others at any time.
    """
    mutex = threading.Lock()

    def due(call: Call) -> Fault | None:
        with mutex:
            for fault in faults:
                if fault.operation == call.operation:
                    faults.remove(fault)
                    return fault
        return None

    @contextmanager
    def around(call: Call) -> Iterator[None]:
        fault = due(call)
        if fault is not None and not fault.after:
            raise fault.error
        yield
        if fault is not None:
            raise fault.error

    return wrap(engine, around)
