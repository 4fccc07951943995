"""The glossary has every word, and the numbers that pages mention are those of the code."""

from __future__ import annotations

import inspect
import re
from typing import get_args

import pytest
from _pages import DOCS, ROOT, pages

import clew
from clew import store, thread, turn
from clew import turn as turn_
from clew.core import errors
from clew.core.model import KINDS, TURN_STATUSES
from clew.engines.files import engine as files_engine
from clew.engines.shared import group_commit
from clew.engines.sqlite import connections, engine
from clew.facets.conversations import Conversation, Conversations
from clew.facets.runs import Run, Runs
from clew.facets.sessions import Sessions
from clew.snapshots import catalogue, ignore, scan
from clew.snapshots.facet import Snapshots
from clew.snapshots.model import Reason

GLOSSARY = (DOCS / "glossary.md").read_text("utf-8")
WORDS = set(re.findall(r"^\| ([\w ]+) \|", GLOSSARY, re.MULTILINE))
HANDLES = [store.Store, store.Blobs, thread.Thread, turn_.Leases, turn.Turn]
FACETS = [Conversations, Conversation, Runs, Run, Sessions, Snapshots]


def _names() -> list[str]:
    return sorted(
        {name for kind in HANDLES + FACETS for name in vars(kind) if not name.startswith("_")}
    )


@pytest.mark.parametrize("name", _names())
def test_a_word_of_the_handles_is_in_the_glossary(name: str) -> None:
    """`set_title` is a way to set, `labels` are several of a label, what failed is a failure."""
    plain = "failure" if name == "failed" else name
    assert {plain, plain.split("_")[0], plain.removesuffix("s")} & WORDS


@pytest.mark.parametrize("name", sorted(set(clew.__all__) - set(errors.__all__)))
def test_a_public_name_is_in_the_glossary(name: str) -> None:
    """`Runs` are several of a run; what is asynchronous has the words of its namesake."""
    plain = name.removeprefix("Async").removesuffix("_async").removesuffix("_engine").lower()
    assert {plain, plain.removesuffix("info"), plain.removesuffix("s")} & WORDS


def test_no_word_is_explained_twice() -> None:
    for part in GLOSSARY.split("\n## ")[1:]:
        words = re.findall(r"^\| ([\w ]+) \|", part, re.MULTILINE)
        assert words == sorted(set(words), key=words.index)


def _said(page: str) -> str:
    return " ".join((DOCS / page).read_text("utf-8").split())


def test_numbers_in_the_pages_are_those_of_the_code() -> None:
    concurrency = _said("explain/concurrency.md")
    assert f"(up to {group_commit.BATCH_MAX})" in concurrency
    assert f"every {engine.POLL_SECONDS * 1000:.0f} ms" in concurrency
    assert files_engine.POLL_SECONDS == engine.POLL_SECONDS
    assert connections.FORK_WAIT_SECONDS == files_engine.FORK_WAIT_SECONDS == 5.0
    assert "after five seconds" in concurrency
    options = inspect.signature(engine.SQLiteEngine).parameters
    assert f"`busy_seconds` ({options['busy_seconds'].default:.0f} by default" in concurrency
    ttl = inspect.signature(turn.Turn).parameters["ttl_seconds"].default
    assert f"({ttl:.0f} seconds by default" in concurrency
    assert f"{ttl:.0f} by default" in _said("tutorial.md")


def test_numbers_about_snapshots_are_those_of_the_code() -> None:
    page = _said("explain/snapshots.md")
    assert f"over {ignore.MAX_FILE_BYTES // 1024**2} MB" in page
    assert f"more than {ignore.MAX_BYTES // 1024**3} GB" in page
    assert f"At most {catalogue.LEFT_OUT_MAX:,} are named" in page
    assert f"({scan._TICK_NS // 10**6} ms, or two seconds" in page
    assert (scan._COARSE_NS, scan.TRIES, ignore._STARS_MAX) == (2 * 10**9, 3, 4)
    assert f"`{ignore.TEMPORARY}`" in page
    for reason in get_args(Reason):
        assert reason == "ignored" or f"| `{reason}` |" in page


def test_every_status_and_kind_has_its_place() -> None:
    model = _said("explain/model.md")
    for status in TURN_STATUSES:
        assert f"`{status}`" in model
    reference = _said("reference/model.md")
    for kind in KINDS:
        assert f"`{kind}`" in reference


def test_spelling_is_british_or_neutral() -> None:
    american = re.compile(
        r"\b(behavior|color|favor|serializ|normaliz|recogniz|organiz|optimiz|analyz|cancel(ed|ing))",
        re.IGNORECASE,
    )
    for page in pages():
        code = r"`[^`]*`|^```.*?^```$|^#+ clew\.[\w.]+$"
        text = re.sub(code, "", page.read_text("utf-8"), flags=re.M | re.S)
        assert american.findall(text) == [], page.relative_to(ROOT)
