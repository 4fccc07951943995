"""docs/explain/context.md names every repair, every rule and every number as the code has them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pages import DOCS, ROOT

from clew import messages
from clew.context import budget, compaction, cut, projection, tokens
from clew.context.window import MESSAGE_KINDS
from clew.core.model import KINDS
from clew.messages.anthropic.rules import CACHE_MARKS_MAX

PAGE = (DOCS / "explain" / "context.md").read_text("utf-8")
SAID = " ".join(PAGE.split())
SOURCE = ROOT / "src" / "clew"

# The calls that name a repair or a rule, and at which place.
REPAIRS = {"_report": 0, "Repair": 0, "lose": 0, "Loss": 0}
RULES = {"broken": 0, "Violation": 0, "holds": 1, "known": 2, "matches": 2}


def named(path: Path, calls: dict[str, int]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            place = calls.get(name)
            if place is not None and len(node.args) > place:
                given = node.args[place]
                if isinstance(given, ast.Constant) and isinstance(given.value, str):
                    yield given.value


def sources() -> list[Path]:
    return sorted([*SOURCE.glob("context/*.py"), *SOURCE.glob("messages/**/*.py")])


def rows(heading: str) -> list[list[str]]:
    """The rows of the tables under a heading, as cells."""
    part = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line.strip("| ") for line in part.splitlines() if line.startswith("| `")]
    return [re.split(r" ?\| ?", line) for line in lines]


def words(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def test_every_repair_is_explained_and_no_other() -> None:
    found = {code for path in sources() for code in named(path, REPAIRS)}
    assert found == {code for row in rows("Repairs") for code in words(row[0])}


def rules_of(format: str) -> set[str]:
    """The rules that the judge of a format has, and those that all of them share."""
    name = "plain.py" if format == "plain" else f"{format.replace('-', '_')}/rules.py"
    own = set(named(SOURCE / "messages" / name, RULES))
    shared = set(named(SOURCE / "messages" / "shared" / "rules.py", RULES))
    return own | shared - ({"duplicate_id"} if format == "gemini" else set())


@pytest.mark.parametrize("format", messages.FORMATS)
def test_every_rule_is_in_the_table(format: str) -> None:
    column = 2 + messages.FORMATS.index(format)
    table = [line for line in PAGE.splitlines() if line.startswith("| `") and line.count("|") == 8]
    marked, listed = set(), set()
    for line in table:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        listed |= set(words(cells[0]))
        if cells[column] == "x":
            rules = set(words(cells[0]))
            assert rules & rules_of(format), f"{format} has none of {rules}"
            marked |= rules
    assert rules_of(format) - marked == set()
    assert listed == {rule for name in messages.FORMATS for rule in rules_of(name)}


def test_numbers_are_those_of_the_code() -> None:
    assert f"every {tokens.ASCII_PER_TOKEN} ASCII characters" in SAID
    assert f"{tokens.PER_MESSAGE} for a message, {tokens.PER_CALL} for a call" in SAID
    assert f"{tokens.PER_MEDIA:,} for an image" in SAID
    assert f"cut to {projection.RESULT_CHARACTERS:,} characters" in SAID
    assert f"down to {budget.SHORTEST_CHARACTERS} characters" in SAID
    assert f"({cut.KEEP_TURNS} by default)" in SAID
    assert f"`summary_schema_version` | {compaction.SCHEMA_VERSION} |" in SAID
    assert CACHE_MARKS_MAX == 4
    assert "the last four" in SAID
    window = (DOCS / "howto" / "keep-a-long-thread-inside-the-window.md").read_text("utf-8")
    assert f"({cut.KEEP_USER_TOKENS} by default" in window


def test_every_field_of_a_compaction_is_explained() -> None:
    fields = set(compaction.compaction_body(None, first_kept=None, through="a"))
    assert fields == {word for row in rows("Compaction") for word in words(row[0])}


def test_every_kind_that_a_context_knows_is_in_its_table() -> None:
    told = {word for row in rows("The window") for word in words(row[0])}
    assert told <= KINDS
    assert told >= MESSAGE_KINDS


def test_every_format_and_purpose_is_in_its_table() -> None:
    assert [row[0].strip("`") for row in rows("Formats")] == list(messages.FORMATS)
    purposes = projection.Purpose.__args__  # type: ignore[attr-defined]
    assert [row[0].strip("`") for row in rows("Purposes")] == list(purposes)
