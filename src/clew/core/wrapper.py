"""An engine around an engine: `wrap` makes one of a context manager, and `read_only` is one.

Each is the waist itself, so everything above works on it unchanged, and they can be stacked. An
operation goes through one context manager, whatever its name; so a wrapper is that context
manager, and nothing has to be added here when the waist gets another operation.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from clew.core.engine import Engine
from clew.core.errors import ReadOnly
from clew.core.model import Inspect, Properties

# The operations of the waist, each with the name of its first parameter, if it has one.
OPERATIONS = {
    name: next((p for p in inspect.signature(function).parameters if p != "self"), "")
    for name, function in vars(Engine).items()
    if inspect.isfunction(function) and not name.startswith("_")
}
_WRITES = frozenset(
    ("create", "append", "lease", "put_blobs", "renew_blobs", "purge", "erase", "sweep", "pack")
)


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
        if name not in OPERATIONS:
            raise AttributeError(f"the waist has no operation {name!r}")
        return partial(self._stream if name == "check" else self._run, name)

    def _run(self, name: str, *arguments: Any, **options: Any) -> Any:
        with self._around(_call(name, arguments, options)):
            return getattr(self.wrapped, name)(*arguments, **options)

    def _stream(self, name: str, *arguments: Any, **options: Any) -> Iterator[Any]:
        with self._around(_call(name, arguments, options)):
            yield from getattr(self.wrapped, name)(*arguments, **options)


def _call(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Call:
    parameter = OPERATIONS[name]
    first = arguments[0] if arguments else options.get(parameter)
    thread = {"thread": first, "id": first, "draft": getattr(first, "id", None)}.get(parameter)
    return Call(name, thread, arguments, options)


def read_only(engine: Engine) -> Engine:
    """An engine that refuses every write with ReadOnly, and says so in its properties.

    To look at a lease is no write. The engine itself may still put its own index in order when
    threads are listed (see `Engine.threads`); that changes nothing that can be read. Caches about
    the store lie elsewhere.
    """
    properties = replace(
        engine.properties,
        read_only=True,
        acknowledged="nothing: the store is open read-only",
    )

    @contextmanager
    def around(call: Call) -> Iterator[None]:
        given = (*call.arguments, *call.options.values())
        looks = any(isinstance(value, Inspect) for value in given)
        if call.operation in _WRITES and not looks:
            raise ReadOnly(properties.place, operation=call.operation)
        yield

    return wrap(engine, around, properties)
