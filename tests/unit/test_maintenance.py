"""What looks after a store is named by its engine, and works where the store cannot be opened."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from places import ADDRESSES

import clew
from clew.address import is_same_store, maintenance
from clew.core.engine import Engine
from clew.core.maintenance import Examined, maintenance_class
from clew.core.model import Properties
from clew.engines.memory import MemoryEngine
from clew.interchange.export import export
from clew.testing.wrappers import read_only
from clew.upkeep.doctor import examine
from clew.upkeep.migrate import migrate
from clew.upkeep.verify import verify


@pytest.fixture(params=ADDRESSES)
def address(request: pytest.FixtureRequest) -> str:
    return ADDRESSES[request.param](request)


def fill(address: str) -> None:
    for namespace, entries in (("default", 2), ("acme", 3)):
        with clew.open(address, namespace=namespace) as store:
            thread = store.create("t")
            for n in range(entries):
                thread.append("event", n)


def test_an_engine_names_what_an_address_makes(address: str) -> None:
    with clew.open(address) as store:
        named = maintenance_class(store.properties)
    with closing(maintenance(address)) as made:
        assert type(made) is named


def test_making_it_makes_no_store(address: str, tmp_path: Path) -> None:
    with closing(maintenance(address)) as made:
        with pytest.raises(clew.NotFound) as caught:
            made.namespaces()
        assert caught.value.what == "store"
        with pytest.raises(clew.NotFound):
            list(made.check())
    assert list(tmp_path.iterdir()) == []


def test_it_sees_all_namespaces_or_one(address: str) -> None:
    fill(address)
    with closing(maintenance(address)) as made:
        assert made.namespaces() == ["default", "acme"]
        assert [made.stats(namespace=name).entries for name in (None, "default", "acme")] == [
            5,
            2,
            3,
        ]
        for name in (None, "default", "acme"):
            assert list(made.check(namespace=name)) == []
        for ask in (made.stats, lambda namespace: list(made.check(namespace=namespace))):
            with pytest.raises(clew.NotFound) as caught:
                ask(namespace="other")
            assert caught.value.what == "namespace"
        made.close()
        made.close()


def test_a_store_in_memory_has_nothing_to_look_after() -> None:
    for call in (maintenance, clew.namespaces, clew.repair, verify, migrate):
        with pytest.raises(clew.Unsupported, match="ends with its process"):
            call("memory:")


class Told:
    """The least that a class for an engine of one's own has to have for the doctor."""

    @staticmethod
    def examine(engine: Engine) -> Examined:
        assert isinstance(engine, OwnEngine)
        return Examined(kind="a shoe box", format=7)


class OwnEngine(MemoryEngine):
    @property
    def properties(self) -> Properties:
        return replace(super().properties, engine="shoebox", maintenance=f"{__name__}:Told")


def test_an_engine_from_elsewhere_is_looked_after_like_ours() -> None:
    engine = OwnEngine()
    for opened in (engine, read_only(engine)):
        found = examine(clew.Store(opened))
        assert (found.kind, found.format) == ("a shoe box", 7)


def test_the_files_of_a_store_are_told(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real").mkdir()
    for address in (tmp_path / "link" / "a.db", f"files:{tmp_path}/link/b"):
        with clew.open(address) as store:
            store.create("t").append("event")
            own = store.properties.own_files
            real = {str(path) for path in (tmp_path / "real").iterdir()}
            assert real <= set(own)
        for path in (tmp_path / "real").glob("a.db*"):
            path.unlink()
    with clew.open("memory:") as store:
        assert store.properties.own_files == ()


# --- verify ---


def test_a_whole_store_is_reported_with_its_namespaces(address: str) -> None:
    fill(address)
    report = verify(address)
    assert (report.whole, report.readable) == (True, True)
    assert report.namespaces == ["default", "acme"]
    assert report.stats is not None
    assert report.stats.entries == 5
    one = verify(address, namespace="acme", quick=True)
    assert (one.namespaces, one.whole) == (["acme"], True)


def test_a_store_beyond_recognition_is_a_report_and_a_foreign_file_an_error(
    tmp_path: Path,
) -> None:
    path = tmp_path / "threads.db"
    clew.open(path).close()
    path.write_bytes(b"not a database at all\n" * 500)
    for namespace in (None, "default"):
        report = verify(path, namespace=namespace)
        assert (report.readable, report.repairs) == (False, True)
        assert [problem.code for problem in report.problems] == ["unreadable"]
    foreign = tmp_path / "notes.db"
    foreign.write_bytes(b"just some notes\n" * 500)
    with pytest.raises(clew.Unsupported):
        verify(foreign)


# --- export, and addresses ---


def test_an_export_that_fails_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with clew.open("memory:") as store:
        thread = store.create("A/b")
        thread.append("event")
        monkeypatch.chdir(tmp_path)
        assert export(thread).path == Path("%41%2fb.jsonl")
        with pytest.raises(clew.AlreadyExists):
            export(thread)

        def fail(*arguments: Any, **options: Any) -> Any:
            raise clew.Unavailable("the disk is gone")

        monkeypatch.setattr(store.engine, "read", fail)
        with pytest.raises(clew.Unavailable):
            export(thread, tmp_path / "other.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["%41%2fb.jsonl"]


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("a.db", "sqlite:///a.db", True),
        ("a.db", "./x/../a.db", True),
        ("a.db", "b.db", False),
        ("memory:", "memory:", False),
        ("postgresql://h/d", "postgresql://h/d", True),
        ("postgresql://h/d", "postgresql://h/e", False),
        ("postgresql://h/d", "a.db", False),
    ],
)
def test_two_addresses_of_one_store_are_known(left: str, right: str, same: bool) -> None:
    assert is_same_store(left, right) == same
