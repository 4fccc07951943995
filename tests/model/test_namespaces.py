"""Random programs in two namespaces of one store: each is as if it were alone.

The same operations run on a namespace and on a memory engine of its own, now in the one, now in
the other. What was done in one must never show in the other.
"""

from __future__ import annotations

import shutil

import hypothesis.strategies as st
import pytest
from amounts import amount
from hypothesis import settings
from hypothesis.stateful import invariant, rule
from model.test_model import EngineMatchesReducer
from places import FilesPlace, PostgresPlace, SQLitePlace

from clew.core.engine import Engine
from clew.engines.memory import MemoryEngine

NAMES = ("default", "acme")


class NamespacesMatchReducers(EngineMatchesReducer):
    def __init__(self) -> None:
        super().__init__()
        acme = self.place.open(namespace="acme")
        self.name = "default"
        self.pairs: dict[str, tuple[Engine, Engine]] = {
            "default": (self.engine, self.model),
            "acme": (acme, MemoryEngine(clock=self.clock)),
        }

    @rule(name=st.sampled_from(NAMES))
    def switch(self, name: str) -> None:
        self.pairs[self.name] = self.engine, self.model  # it may have been opened again
        self.name = name
        self.engine, self.model = self.pairs[name]

    @invariant()
    def everything_readable_is_equal(self) -> None:
        here = self.name
        for name in NAMES:
            self.switch(name)
            super().everything_readable_is_equal()
            self.both(lambda e: e.stats().threads)
            self.both(lambda e: e.stats().records)
        self.switch(here)

    def teardown(self) -> None:
        self.switch(self.name)
        problems = [problem for engine, _ in self.pairs.values() for problem in engine.check()]
        self.place.close()
        shutil.rmtree(self.folder)
        assert problems == []


class SQLiteNamespaces(NamespacesMatchReducers):
    place_kind = SQLitePlace


class FilesNamespaces(NamespacesMatchReducers):
    place_kind = FilesPlace


class PostgresNamespaces(NamespacesMatchReducers):
    place_kind = PostgresPlace


TestSQLite = SQLiteNamespaces.TestCase
TestFiles = FilesNamespaces.TestCase
TestSQLite.settings = settings(max_examples=amount(15, 200), stateful_step_count=40)
TestFiles.settings = settings(max_examples=amount(15, 200), stateful_step_count=40)


@pytest.mark.usefixtures("postgres_places")
class TestPostgres(PostgresNamespaces.TestCase):
    settings = settings(max_examples=amount(4, 50), stateful_step_count=40)
