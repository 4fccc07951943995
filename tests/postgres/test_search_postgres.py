"""The index of words on a server: made anew when asked, or when other rules have made it."""

from __future__ import annotations

import psycopg

import clew


def test_reindexing_and_another_version_make_it_anew(postgres_dsn: str) -> None:
    with clew.open(postgres_dsn) as store:
        store.create("t").append_message({"role": "user", "content": "the heron"})
        assert store.search("heron").total == 1
    assert clew.repair(postgres_dsn, reindex=True).notes
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("UPDATE clew.search_threads SET version = 77")
    with clew.open(postgres_dsn) as store:
        page = store.search("heron")
        assert page.total == 1
        assert any("another version" in note for note in page.notes)
        assert store.verify() == []
