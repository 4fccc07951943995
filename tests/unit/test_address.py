"""An address leads to its engine, or to what has to be done first."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.address import maintenance, namespaces


@pytest.mark.parametrize("opening", [clew.open, maintenance, namespaces])
def test_a_missing_package_is_no_traceback(
    opening: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "clew.engines.postgres", None)
    with pytest.raises(clew.Unsupported, match=re.escape("pip install 'clew[postgres]'")):
        opening("postgresql://host/db")


SECRETS = [
    "mysql://u:secret@h/db",
    "MySQL://u:secret@h/db",
    "mysql://u:sec@secret@h/db",
    "redis://:secret@h",
    "mysql://h/db?user=u&password=secret",
    "mssql+odbc://h/db?Pwd=secret&x=1",
    "POSTGRES+PSYCOPG://u:secret@h/db",
    "postgresql://u:secret%zz@h/db",
    "postgresql://u:secret%@h/db",
    "postgresql://u:secret%00@h/db",
    "postgresql://u:sec@secret@h/db",
    "postgresql://u:x/secret@h/db",
    "postgresql://u:secret@[h/db",
    "postgresql://u:secret@h\u2100/db",
    "postgresql://u:secret@h/db?nonsense",
    "postgresql://u:secret@h/db?no_such_setting=1",
    "POSTGRESQL://u:secret%@h/db",
    "Postgres://u:secret@[h/db",
    " postgresql://u:secret@h/db",
    "postgres ql://u:secret@h/db",
    "postgresql:/u:secret@h/db",
    "postgresql:u:secret@h/db",
    "postgresql://u:secret\ud800@h/db",
    "sqlite://u:secret@h/db",
    "files://u:secret@h/db",
    "other:u:secret@h/db",
    "host=h dbname=db password=secret",
]


@pytest.mark.parametrize("opening", [clew.open, maintenance])
@pytest.mark.parametrize("address", SECRETS)
def test_a_password_shows_in_no_error(opening: Callable[[str], Any], address: str) -> None:
    with pytest.raises(clew.ClewError) as caught:
        opening(address)
    assert isinstance(caught.value, clew.Unsupported | clew.InvalidInput)
    seen: BaseException | None = caught.value
    while seen is not None:
        if not seen.__suppress_context__ or seen is caught.value:
            assert "secret" not in f"{seen} {seen!r} {vars(seen)}"
        seen = None if seen.__suppress_context__ else seen.__cause__ or seen.__context__


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("postgresql://u:p@h:1/db", "postgresql://h:1/db"),
        ("postgresql://h:1,i:2/db", "postgresql://h:1,i:2/db"),
        ("postgresql://h,i/db?port=5", "postgresql://h,i/db"),  # one port for both of them
        ("postgresql:///db?host=/tmp/x", "postgresql:///db"),
    ],
)
def test_a_place_names_hosts_and_nothing_to_log_in_with(address: str, told: str) -> None:
    assert pytest.importorskip("clew.engines.postgres.address").parse(address).place == told


def test_a_path_that_looks_like_a_database_is_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    clew.open("./host=h.db").close()
    assert (tmp_path / "host=h.db").is_file()


def test_a_scheme_in_capitals_is_the_same_scheme() -> None:
    with pytest.raises(clew.Unavailable) as caught:
        clew.open("POSTGRESQL://u:secret@127.0.0.1:1/db", busy_seconds=1)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("address", [":memory:", "sqlite::memory:", "sqlite:///:memory:"])
def test_memory_as_sqlite_calls_it_makes_no_file_of_that_name(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with clew.open(address) as one, clew.open(address) as other:
        one.create("mine")
        assert other.find("mine") is None
    assert list(tmp_path.iterdir()) == []
    with clew.open("./:memory:") as store:  # a file of that name, for who insists
        assert store.properties.processes
    assert {path.name for path in tmp_path.iterdir()} >= {":memory:"}
