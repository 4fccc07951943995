"""The rows of a text index in SQLite: documents with their words, marks, and what finds them."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

import apsw

from clew.core.text_index import (
    EVERY,
    Addition,
    And,
    Candidate,
    Document,
    Filter,
    Known,
    Or,
    Query,
    Words,
)

# --- rows ---


def add(db: apsw.Connection, addition: Addition) -> None:
    sql = "SELECT no, birth, seq, hash FROM threads WHERE id = ?"
    row = db.execute(sql, (addition.thread,)).fetchone()
    if (None if row is None else Known(*row[1:])) != addition.before:
        return  # another process was first
    now = addition.now
    if row is None:
        db.execute(
            "INSERT INTO threads (id, birth, seq, hash) VALUES (?, ?, ?, ?)",
            (addition.thread, now.birth, now.seq, now.hash),
        )
        thread = db.last_insert_rowid()
    else:
        thread = row[0]
        db.execute("UPDATE threads SET seq = ?, hash = ? WHERE no = ?", (now.seq, now.hash, thread))
    for key, values in addition.marks.items():
        db.execute("DELETE FROM marks WHERE thread = ? AND key = ?", (thread, key))
        _add_marks(db, thread, [(key, value) for value in values])
    _add_marks(db, thread, addition.more_marks)
    for document in addition.documents:
        _add_document(db, thread, document)


def _add_marks(db: apsw.Connection, thread: int, marks: Collection[tuple[str, str]]) -> None:
    sql = "INSERT OR IGNORE INTO marks (key, value, thread) VALUES (?, ?, ?)"
    db.executemany(sql, [(key, value, thread) for key, value in marks])


def _add_document(db: apsw.Connection, thread: int, document: Document) -> None:
    if document.title:
        former = db.execute("SELECT no FROM documents WHERE thread = ? AND title", (thread,))
        _remove_documents(db, [no for (no,) in former])
    db.execute(
        "INSERT INTO documents (thread, seq, time_us, size, title) VALUES (?, ?, ?, ?, ?)",
        (thread, document.seq, document.time_us, document.size, int(document.title)),
    )
    no = db.last_insert_rowid()
    db.execute(
        "INSERT INTO words (rowid, c0, c1, c2, c3) VALUES (?, ?, ?, ?, ?)", (no, *document.columns)
    )


def _remove_documents(db: apsw.Connection, numbers: Sequence[int]) -> None:
    for no in numbers:
        db.execute("DELETE FROM words WHERE rowid = ?", (no,))
        db.execute("DELETE FROM documents WHERE no = ?", (no,))


def remove_thread(db: apsw.Connection, thread: int) -> None:
    rows = db.execute("SELECT no FROM documents WHERE thread = ?", (thread,))
    _remove_documents(db, [no for (no,) in rows])
    db.execute("DELETE FROM marks WHERE thread = ?", (thread,))
    db.execute("DELETE FROM threads WHERE no = ?", (thread,))


# --- queries ---


def expression(query: Query) -> tuple[str, list[bool]]:
    """A query as FTS5 spells it, and which of its phrases are leaves of it."""
    phrases: list[bool] = []

    def spell(part: Query, wanted: bool) -> str:
        match part:
            case Words(words, prefix, column):
                phrases.append(wanted)
                # A word has no quotes; they are doubled all the same, so that text stays text.
                inside = " ".join(words).replace('"', '""')
                return (
                    ("" if column is None else f"c{column} : ")
                    + f'"{inside}"'
                    + (" *" if prefix else "")
                )
            case And(parts, unwanted):
                if parts:
                    text = " AND ".join(spell(p, wanted) for p in parts)
                else:
                    text = spell(Words((EVERY,)), False)
                if unwanted:
                    text = f"({text}) NOT ({' OR '.join(spell(p, False) for p in unwanted)})"
                return f"({text})"
            case Or(parts):  # one way: there is no other query
                return f"({' OR '.join(spell(p, wanted) for p in parts)})"

    return spell(query, True), phrases


def where(db: apsw.Connection, filter: Filter) -> tuple[str, list[Any]]:
    """The conditions beside the words, each with AND before it."""
    of_mark = "(SELECT thread FROM marks WHERE key = ? AND value = ?)"
    clauses: list[str] = []
    bindings: list[Any] = []
    for mark in filter.marks:
        clauses.append(f"d.thread IN {of_mark}")
        bindings += mark
    for mark in filter.without:
        # Each condition costs a look at every match: one that says nothing is left out.
        if db.execute("SELECT 1 FROM marks WHERE key = ? AND value = ? LIMIT 1", mark).fetchone():
            clauses.append(f"d.thread NOT IN {of_mark}")
            bindings += mark
    if filter.threads is not None:
        chosen = "SELECT no FROM threads WHERE id IN (SELECT value FROM json_each(?))"
        clauses.append(f"d.thread IN ({chosen})")
        bindings.append(json.dumps(filter.threads))
    if filter.since_us is not None:
        clauses.append("d.time_us >= ?")
        bindings.append(filter.since_us)
    if filter.until_us is not None:
        clauses.append("d.time_us < ?")
        bindings.append(filter.until_us)
    return "".join(f" AND {clause}" for clause in clauses), bindings


def counts(api: apsw.FTS5ExtensionApi, *arguments: Any) -> str:
    """How often each phrase of a match stands in each column, as text that a row can hold."""
    places = (api.phrase_locations(phrase) for phrase in range(api.phrase_count))
    return ";".join(",".join(str(len(column)) for column in columns) for columns in places)


def candidate(row: tuple[Any, ...], positive: Sequence[bool]) -> Candidate:
    id, seq, time_us, size, title, counts = row
    wanted: tuple[tuple[int, ...], ...] = ()
    if counts is not None:
        found = [tuple(map(int, columns.split(","))) for columns in counts.split(";")]
        wanted = tuple(c for c, is_leaf in zip(found, positive, strict=True) if is_leaf)
    return Candidate(id, seq, time_us, size, bool(title), wanted)
