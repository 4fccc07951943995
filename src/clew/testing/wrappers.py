"""Engines around an engine: read-only, traced, faulty.

    store = Store(traced(open_engine("threads.db"), tell=print))

Each is the waist itself, so everything above works on it unchanged, and they can be stacked. An
operation goes through one context manager, whatever its name; so a wrapper is that context
manager, and nothing has to be added here when the waist gets another operation.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from clew.core.engine import Engine
from clew.core.errors import Unsupported
from clew.core.model import Inspect, Properties

# The operations of the waist, each with the name of its first parameter, if it has one.
_OPERATIONS = {
    name: next((p for p in inspect.signature(function).parameters if p != "self"), "")
    for name, function in vars(Engine).items()
    if inspect.isfunction(function) and not name.startswith("_")
}
_WRITES = frozenset(("create", "append", "lease", "put_blobs", "purge", "sweep"))


class Call(Struct, frozen=True):
    """An operation that is about to run: its name, its thread if it has one, its arguments."""

    operation: str
    thread: str | None
    arguments: tuple[Any, ...]
    options: dict[str, Any]


Around = Callable[[Call], AbstractContextManager[None]]


def wrap(engine: Engine, around: Around, properties: Properties | None = None) -> Engine:
    """An engine that runs each operation of another one inside of `around(call)`.

    `check` is inside of it until its last problem was asked for. `properties` go before those of
    the engine. `close` is an operation like any other.
    """
    return cast(Engine, _Wrapper(engine, around, properties))


class _Wrapper:
    def __init__(self, engine: Engine, around: Around, properties: Properties | None) -> None:
        self.wrapped = engine
        self._around = around
        self._properties = properties

    @property
    def properties(self) -> Properties:
        return self._properties or self.wrapped.properties

    def __getattr__(self, name: str) -> Any:
        # Only operations: what else an engine has is its own affair, and reached by `wrapped`.
        if name not in _OPERATIONS:
            raise AttributeError(f"the waist has no operation {name!r}")
        return partial(self._stream if name == "check" else self._run, name)

    def _run(self, name: str, *arguments: Any, **options: Any) -> Any:
        with self._around(_call(name, arguments, options)):
            return getattr(self.wrapped, name)(*arguments, **options)

    def _stream(self, name: str, *arguments: Any, **options: Any) -> Iterator[Any]:
        with self._around(_call(name, arguments, options)):
            yield from getattr(self.wrapped, name)(*arguments, **options)


def _call(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Call:
    parameter = _OPERATIONS[name]
    first = arguments[0] if arguments else options.get(parameter)
    thread = {"thread": first, "id": first, "draft": getattr(first, "id", None)}.get(parameter)
    return Call(name, thread, arguments, options)


# --- read-only ------------------------------------------------------------------------------


def read_only(engine: Engine) -> Engine:
    """An engine that refuses every write with Unsupported, and says so in its properties.

    To look at a lease is no write. The engine itself may still put its own index in order when
    threads are listed (see `Engine.threads`); that changes nothing that can be read.
    """
    properties = replace(
        engine.properties, read_only=True, acknowledged="nothing: the store is open read-only"
    )

    @contextmanager
    def around(call: Call) -> Iterator[None]:
        given = (*call.arguments, *call.options.values())
        looks = any(isinstance(value, Inspect) for value in given)
        if call.operation in _WRITES and not looks:
            raise Unsupported(
                f"{properties.place} is open read-only: {call.operation} was refused, and nothing "
                "was changed"
            )
        yield

    return wrap(engine, around, properties)


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
