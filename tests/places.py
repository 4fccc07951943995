"""Where the engines under test keep their things."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import psycopg
import pytest
from msgspec.structs import replace
from servers.cluster import Cluster

from clew.core.engine import Engine
from clew.core.errors import ClewError
from clew.core.lease_rules import Instant
from clew.core.model import DEFAULT_NAMESPACE
from clew.core.wrapper import read_only
from clew.engines.files import FilesEngine
from clew.engines.files import pack as files_pack
from clew.engines.memory import MemoryEngine
from clew.engines.postgres import PostgresEngine
from clew.engines.sqlite import SQLiteEngine
from clew.engines.sqlite import pack as sqlite_pack


class MemoryPlace:
    """Two memory engines share nothing, so that this is all that namespaces have in common."""

    def __init__(self) -> None:
        self._opened: list[Engine] = []

    def open(self, *, namespace: str = DEFAULT_NAMESPACE) -> Engine:
        self._opened.append(MemoryEngine(namespace=namespace))
        return self._opened[-1]

    def reopen(self, engine: Engine) -> Engine:
        return engine

    def close(self) -> None:
        for engine in self._opened:
            engine.close()


class DurablePlace:
    """A place on disk: what was closed can be opened again."""

    engine: Callable[..., Engine]

    def __init__(self, folder: Path, clock: Callable[[], Instant] | None = None) -> None:
        self.path = folder / "threads"
        self._options = {} if clock is None else {"clock": clock}
        self._opened: list[Engine] = []

    def open(self, *, namespace: str = DEFAULT_NAMESPACE) -> Engine:
        engine = type(self).engine(self.path, namespace=namespace, **self._options)
        self._opened.append(engine)
        return engine

    def reopen(self, engine: Engine) -> Engine:
        namespace = engine.properties.namespace
        engine.close()
        return self.open(namespace=namespace)

    def look(self, engine: Engine) -> Engine:
        namespace = engine.properties.namespace
        made = type(self).engine(self.path, namespace=namespace, readonly=True, **self._options)
        self._opened.append(made)
        return read_only(made)

    def close(self) -> None:
        for engine in self._opened:
            engine.close()


class SQLitePlace(DurablePlace):
    engine = SQLiteEngine


class FilesPlace(DurablePlace):
    engine = FilesEngine


class PostgresPlace(DurablePlace):
    """A database of its own on the server that the tests share; `begin` says which one that is."""

    needs = ("postgres_places",)
    cluster: ClassVar[Cluster]
    template: ClassVar[str]

    def __init__(self, folder: Path, clock: Callable[[], Instant] | None = None) -> None:
        super().__init__(folder, clock)
        self._database = self.cluster.create_database(self.template)
        self.path = self.cluster.dsn(self._database)

    @classmethod
    def begin(cls, cluster: Cluster) -> None:
        """Make one store, to be copied for each test: that is twice as fast as making another."""
        cls.cluster, cls.template = cluster, cluster.create_database()
        PostgresEngine(cluster.dsn(cls.template)).close()

    @staticmethod
    def engine(address: str, clock: Callable[[], Instant] | None = None, **options: Any) -> Engine:
        made = PostgresEngine(address, **options)
        return made if clock is None else OnClock(made, address, clock)  # type: ignore[return-value]

    def close(self) -> None:
        super().close()
        self.cluster.drop_database(self._database)


class OnClock:
    """An engine whose server takes the time from a table, where it is written before each call."""

    def __init__(self, engine: Engine, address: str, clock: Callable[[], Instant]) -> None:
        self._engine, self._clock = engine, clock
        self._connection = psycopg.connect(address, autocommit=True)
        self._connection.execute("CREATE TABLE IF NOT EXISTS clock AS SELECT -1::bigint AS now_us")
        self._connection.execute(
            "CREATE OR REPLACE FUNCTION clew.now_us() RETURNS bigint LANGUAGE sql VOLATILE AS"
            " 'SELECT now_us FROM public.clock'"
        )
        self._set: int | None = None

    def __getattr__(self, name: str) -> Any:
        now_us = self._clock().wall_us
        if now_us != self._set:
            self._connection.execute("UPDATE clock SET now_us = %s", (now_us,))
            self._set = now_us
        return getattr(self._engine, name)

    def close(self) -> None:
        self._connection.close()
        self._engine.close()


PLACES = {
    "memory": lambda folder: MemoryPlace(),
    "sqlite": SQLitePlace,
    "files": FilesPlace,
    "postgres": PostgresPlace,
}

# Stores that several processes can share, not made yet.
ADDRESSES: dict[str, Callable[[pytest.FixtureRequest], str]] = {
    "sqlite": lambda request: f"sqlite:{request.getfixturevalue('tmp_path')}/threads",
    "files": lambda request: f"files:{request.getfixturevalue('tmp_path')}/threads",
    "postgres": lambda request: request.getfixturevalue("postgres_dsn"),
}


@contextmanager
def packed_eagerly() -> Iterator[None]:
    """Let a store make packs of one entry, and of what does not become smaller."""
    with (
        mock.patch.multiple(sqlite_pack, RUN_MIN=1, PART_MIN=1, WORTH=float("inf")),
        mock.patch.multiple(files_pack, BLOCK_BYTES=1, WORTH=float("inf")),
    ):
        yield


class PackedFilesPlace(FilesPlace):
    """A store of files in which every thread that is not leased is packed before each call."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        # Once, and not for each call: calls come from several threads.
        self._eagerly = ExitStack()
        self._eagerly.enter_context(packed_eagerly())

    def close(self) -> None:
        self._eagerly.close()
        super().close()

    @staticmethod
    def engine(path: Path, **options: Any) -> Engine:
        return PackedBetween(FilesEngine(path, **options))  # type: ignore[return-value]


class PackedBetween:
    """An engine that packs whatever it can before it does what it is asked to."""

    def __init__(self, engine: FilesEngine) -> None:
        self.wrapped = engine

    def __getattr__(self, name: str) -> Any:
        engine = self.wrapped
        if name == "properties":  # nothing is left over for a pack that a case asks for
            return replace(engine.properties, packs=False)
        if name not in ("close", "pack"):
            with suppress(ClewError):
                engine.pack(idle_seconds=-1e12)
        return getattr(engine, name)
