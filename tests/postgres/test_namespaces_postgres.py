"""No statement on a table that namespaces share goes without the namespace."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from clew.engines import postgres
from clew.engines.shared import migrations

SHARED = ("threads", "records", "segments", "facts", "tags", "blobs", "blob_uses")
TOUCHES = re.compile(
    rf"\b(FROM|JOIN|INTO|UPDATE|TABLE|ONLY)\s+clew\.({'|'.join(SHARED)}|\{{\}})(?!\w)", re.I
)
BOUND = re.compile(r"\b(\w+\.)?_?space\b")
MODULES = sorted(Path(postgres.__file__).parent.glob("*.py"))

# Of the shape of the schema, not of anybody's rows.
SCHEMA = re.compile(r"^\s*(CREATE|ALTER|COMMENT|GRANT|REVOKE|DROP)\b", re.I)


def texts(module: Path) -> Iterator[tuple[str, str]]:
    """Every string of a module that touches a shared table, with the code that it stands in.

    A statement may be put together from parts: then the part that names the table and the part
    that names the namespace stand in one function, or in one assignment.
    """
    for node in ast.parse(module.read_text("utf-8")).body:
        places = node.body if isinstance(node, ast.ClassDef) else [node]
        for place in places:
            around = ast.unparse(_without_docstring(place))
            for part in ast.walk(place):
                text = _text(part)
                if text is not None and TOUCHES.search(text):
                    yield text, around


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = [v.value if isinstance(v, ast.Constant) else "{}" for v in node.values]
        return "".join(str(part) for part in parts)
    return None


def _without_docstring(node: ast.stmt) -> ast.stmt:
    if isinstance(node, ast.FunctionDef) and ast.get_docstring(node):
        node.body = node.body[1:] or [ast.Pass()]
    return node


def unbound(text: str) -> list[str]:
    """The statements of a text that touch a shared table and do not name a namespace."""
    found = [part for part in text.split(";") if TOUCHES.search(part)]
    return [part for part in found if not BOUND.search(part) and not SCHEMA.search(part)]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.stem)
def test_every_statement_of_the_engine_names_the_namespace(module: Path) -> None:
    missing = [
        text
        for text, around in texts(module)
        if unbound(text) and not re.search(r"space = %", around)
    ]
    assert missing == []


def test_every_statement_of_the_functions_names_the_namespace() -> None:
    text = re.sub(r"--.*", "", migrations.schema("postgres"))
    bodies = re.findall(r"CREATE FUNCTION.*?\$\$(.*?)\$\$", text, re.S)
    assert len(bodies) > 8
    assert [part for body in bodies for part in unbound(body)] == []


def test_every_key_and_index_begins_with_the_namespace() -> None:
    text = re.sub(r"--.*", "", migrations.schema("postgres"))
    for table in SHARED:
        definition = re.search(rf"CREATE TABLE clew\.{table} \((.*?)\n\)", text, re.S)
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
    assert sum(len(list(texts(module))) for module in MODULES) > 25
