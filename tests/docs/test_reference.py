"""The reference is what the docstrings say, complete, and up to date."""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from types import FunctionType, ModuleType
from typing import Any

import pytest
from _pages import DOCS

import clew
from clew import messages, store, thread, turn
from clew import turn as turn_
from clew.core import engine, model
from clew.facets.conversations import Conversation, Conversations
from clew.facets.runs import Run, Runs
from clew.facets.sessions import Session, Sessions
from clew.snapshots.facet import Snapshots
from clew.testing.cases import base


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGES: dict[str, str] = _load().pages()
REFERENCE = DOCS / "reference"

HANDLES = [store.Store, store.Blobs, thread.Thread, turn_.Leases, turn.Turn]
FACETS = [Conversations, Conversation, Runs, Run, Sessions, Session, Snapshots]
MEMBERS = (FunctionType, property, cached_property)
CONTRACTS = [engine.Engine, base.Place]


@pytest.mark.parametrize("name", PAGES)
def test_page_is_up_to_date(name: str) -> None:
    page = REFERENCE / name
    assert page.exists(), "run: make docs"
    assert page.read_text("utf-8") == PAGES[name], "run: make docs"


def test_every_name_in_a_heading_can_be_imported() -> None:
    named = re.findall(r"^#+ (clew(?:\.\w+)+)$", "\n".join(PAGES.values()), re.MULTILINE)
    assert named
    for name in named:
        module, _, last = name.rpartition(".")
        assert hasattr(importlib.import_module(module), last), name


def test_no_page_is_left_over() -> None:
    assert {page.name for page in REFERENCE.iterdir()} == set(PAGES), "run: make docs"


@pytest.mark.parametrize("name", clew.__all__)
def test_public_name_is_in_the_reference(name: str) -> None:
    headings = re.findall(r"^#+ (?:clew\.)?(\w+)$", "\n".join(PAGES.values()), re.MULTILINE)
    assert name in headings
    assert f"`{name}`" in PAGES["index.md"]


@pytest.mark.parametrize("name", clew.__all__)
def test_public_name_has_a_docstring(name: str) -> None:
    assert inspect.getdoc(getattr(clew, name))


def _functions() -> Iterator[tuple[str, Any]]:
    for kind in [*HANDLES, *FACETS, *CONTRACTS, *_data()]:
        for name, value in vars(kind).items():
            if not name.startswith("_") and inspect.isfunction(value):
                yield f"{kind.__name__}.{name}", value


def _data() -> list[type]:
    return [kind for kind in vars(model).values() if inspect.isclass(kind) and _ours(kind)]


def _ours(kind: type) -> bool:
    return kind.__module__ == "clew.core.model"


@pytest.mark.parametrize(("name", "function"), list(_functions()))
def test_public_function_has_a_docstring(name: str, function: Any) -> None:
    assert inspect.getdoc(function), f"{name} says nothing about itself"


@pytest.mark.parametrize("kind", HANDLES + FACETS + CONTRACTS, ids=lambda kind: kind.__name__)
def test_every_method_is_in_the_reference(kind: type) -> None:
    text = "\n".join(PAGES.values())
    for name, value in vars(kind).items():
        if not name.startswith("_") and isinstance(value, MEMBERS):
            assert re.search(rf"^#+ {kind.__name__}\.{name}$", text, re.MULTILINE)


@pytest.mark.parametrize("name", ["Entry.body", "Fact.value", "ThreadInfo.facts"])
def test_what_is_computed_is_in_the_reference(name: str) -> None:
    kind, _, field = name.partition(".")
    section = PAGES["model.md"].partition(f"### {kind}\n")[2].partition("\n##")[0]
    assert f"| `{field}` |" in section


@pytest.mark.parametrize("name", messages.__all__)
def test_every_name_of_the_messages_is_in_the_reference(name: str) -> None:
    # The names of the formats are data: the page lists them.
    assert name.isupper() or f"## clew.messages.{name}\n" in PAGES["messages.md"]


def test_every_error_tells_its_code_and_fields() -> None:
    page = PAGES["errors.md"]
    for name in clew.core.errors.__all__:
        kind = getattr(clew, name)
        assert f"`{kind.code}`" in page
        section = page.partition(f"## {name}\n")[2].partition("\n## ")[0]
        for field in inspect.get_annotations(kind):
            assert f"`{field}`" in section
