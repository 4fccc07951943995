"""Only functions touch a table that namespaces share, and none of them without the namespace."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from clew.engines import postgres
from clew.engines.shared import migrations

SHARED = (
    *("threads", "records", "segments", "facts", "tags", "blobs", "blob_uses"),
    *("search_threads", "search_marks", "search_documents"),
)
TOUCHES = re.compile(
    rf"\b(FROM|JOIN|INTO|UPDATE|TABLE|ONLY)\s+clew\.({'|'.join(SHARED)}|\{{\}})(?![\w(])", re.I
)
BOUND = re.compile(r"\b(\w+\.)?_?space\b")
MODULES = sorted(Path(postgres.__file__).parent.glob("*.py"))

# Of the shape of the schema, not of anybody's rows.
SCHEMA = re.compile(r"^\s*(CREATE|ALTER|COMMENT|GRANT|REVOKE|DROP)\b", re.I)


def texts(source: str) -> Iterator[str]:
    """Every string of a module, those with values in them too."""
    for part in ast.walk(ast.parse(source)):
        text = _text(part)
        if text is not None:
            yield text


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = [v.value if isinstance(v, ast.Constant) else "{}" for v in node.values]
        return "".join(str(part) for part in parts)
    return None


def unbound(text: str) -> list[str]:
    """The statements of a text that touch a shared table and do not name a namespace."""
    found = [part for part in text.split(";") if TOUCHES.search(part)]
    return [part for part in found if not BOUND.search(part) and not SCHEMA.search(part)]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.stem)
def test_no_statement_of_the_engine_touches_a_shared_table_itself(module: Path) -> None:
    """A role of a tenant has no right on a table: what is asked is asked of a function."""
    assert [text for text in texts(module.read_text("utf-8")) if TOUCHES.search(text)] == []


@pytest.mark.parametrize("part", ["schema", "search"])
def test_every_statement_of_the_functions_names_the_namespace(part: str) -> None:
    text = migrations.schema("postgres")
    if part == "search":
        text = migrations.optional("postgres", "search")
    bodies = re.findall(
        r"CREATE (?:OR REPLACE )?FUNCTION.*?\$\$(.*?)\$\$", re.sub(r"--.*", "", text), re.S
    )
    assert len(bodies) > 8
    assert [found for body in bodies for found in unbound(body)] == []


def test_every_key_and_index_begins_with_the_namespace() -> None:
    text = re.sub(r"--.*", "", migrations.schema("postgres"))
    text += re.sub(r"--.*", "", migrations.optional("postgres", "search"))
    for table in SHARED:
        definition = re.search(
            rf"CREATE TABLE (?:IF NOT EXISTS )?clew\.{table} \((.*?)\n\)", text, re.S
        )
        assert definition, table
        assert re.search(r"PRIMARY KEY \(space, ", definition[1]), table
    indexes = re.findall(r"INDEX\s+(\w+)\s+ON clew\.(\w+) \((\w+)", text)
    assert len(indexes) > 8
    assert {(name, first) for name, table, first in indexes if first != "space"} == set()


def test_the_scan_finds_what_it_looks_for() -> None:
    """The control: statements that it must object to, and one that it must not."""
    assert unbound("SELECT 1 FROM clew.threads WHERE id = %s")
    assert unbound("SELECT 1 FROM clew.threads WHERE space = 1; DELETE FROM clew.tags")
    assert unbound("DELETE FROM clew.{} WHERE thread = %s")
    assert not unbound("SELECT 1 FROM clew.threads t WHERE t.space = %s")
    assert not unbound("SELECT count(*) FROM clew.namespaces")
    for source in ('a = "SELECT 1 FROM clew.threads"', 'f"DELETE FROM clew.{table} WHERE"'):
        assert [text for text in texts(source) if TOUCHES.search(text)]
    assert not TOUCHES.search("SELECT * FROM clew.{}(%s)")
