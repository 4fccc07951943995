"""What docs/howto/postgres.md says is true on a server: its programs, its SQL, its commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from _pages import DOCS, assert_outputs, blocks
from servers.cluster import Cluster

import clew
from clew.cli import main

PAGE = DOCS / "howto" / "postgres.md"
HOST = "db.example"
ROLES = ("app", "owner", "acme_app", "globex_app")


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    """One of its own: the page makes roles and a database."""
    with Cluster(name="page") as cluster:
        yield cluster


def statements(containing: str) -> list[str]:
    (block,) = [b for b in blocks(PAGE) if b.language == "sql" and containing in b.text]
    return [line.partition("--")[0].strip() for line in block.text.splitlines()]


def run(address: str, lines: list[str]) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        for line in lines:
            connection.execute(line.encode())


def test_the_page_runs_from_an_empty_server_on(
    server: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(server.dsn(), statements("CREATE DATABASE agents"))
    here = f"127.0.0.1:{server.port}"
    copy = tmp_path / PAGE.name
    copy.write_text(PAGE.read_text("utf-8").replace(HOST, here), "utf-8")
    assert_outputs(copy)
    run(server.dsn("agents", "app"), statements("GRANT USAGE ON SCHEMA clew TO app"))


def commands() -> Iterator[tuple[str, list[str]]]:
    """Each command that the page shows, with what it shows of its output."""
    for block in blocks(PAGE):
        if block.language == "console":
            for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                command, *shown = part.splitlines()
                yield command, shown


def test_the_commands_do_what_the_page_shows(
    server: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for role in ROLES[1:]:
        server.sql(f"CREATE ROLE {role} LOGIN")
    database = server.create_database()
    there = f"postgresql://127.0.0.1:{server.port}/{database}"
    for command, shown in commands():
        words = command.partition(" >")[0].split()[1:]
        main([re.sub(r"postgresql://\w+@[^ ]+", server.dsn(database), word) for word in words])
        said = capsys.readouterr().out.replace(there, f"postgresql://{HOST}/agents").splitlines()
        if shown and "…" not in shown[-1]:
            assert [line.strip() for line in said] == [line.strip() for line in shown], command
    run(server.dsn(database), statements("clew.grant_namespace("))


def test_every_option_of_the_engine_is_on_the_page() -> None:
    text = PAGE.read_text("utf-8")
    with pytest.raises(clew.InvalidInput) as caught:
        clew.open("postgresql://nowhere", no_such_option=True)
    for name in re.findall(r"\w+", str(caught.value).partition("it has: ")[2]):
        assert f"`{name}=" in text, name
