"""The fault harness in its short form; `make torture` runs the long one.

Each part breaks a store in its own way and asks for the same three things: nothing that was
acknowledged is missing, verify sees what has changed, and a retry leads to one copy. The
controls do it to stores that are broken, and must find failures.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.operations import prepare
from faults.parts import CONTROL, CONTROLS, PARTS, SHORT
from faults.points import Outcome
from faults.stores import KINDS, Kind, load

from clew import Corrupt, FormatTooNew


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where that can be had: thousands of stores are made and thrown away."""
    shared = Path("/dev/shm")
    if not (shared.is_dir() and os.access(shared, os.W_OK)):
        yield tmp_path / "store"
        return
    made = Path(tempfile.mkdtemp(prefix="clew-faults-", dir=shared))
    yield made / "store"
    shutil.rmtree(made)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Iterator[Kind]:
    logging.disable(logging.WARNING)  # the files engine says what it sets aside
    yield KINDS[request.param]
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("part", PARTS)
def test_nothing_acknowledged_is_lost_and_nothing_damaged_is_missed(
    part: str, kind: Kind, folder: Path
) -> None:
    outcome = Outcome()
    PARTS[part](kind, folder, SHORT, outcome)
    assert outcome.failures == []
    assert outcome.points > 0


@pytest.mark.parametrize("control", CONTROLS)
def test_the_harness_finds_what_is_broken_on_purpose(
    control: str, kind: Kind, folder: Path
) -> None:
    outcome = Outcome()
    part, words = CONTROLS[control]
    part(kind, folder, CONTROL, outcome)
    assert any(words in failure for failure in outcome.failures)


# --- files of a newer Clew ---


def newer(file: Path) -> None:
    data = file.read_bytes()
    assert data.count(b'"version":1,') == 1
    file.write_bytes(data.replace(b'"version":1,', b'"version":9,'))


def test_a_newer_store_of_files_is_refused_and_left_alone(folder: Path) -> None:
    with KINDS["files"].open(folder) as engine:
        prepare(engine)
    newer(folder / "threads" / "clew.json")
    before = load(folder)
    with pytest.raises(FormatTooNew), KINDS["files"].open(folder):
        pass
    assert load(folder) == before


def test_a_newer_thread_is_refused_and_the_others_are_not(folder: Path) -> None:
    with KINDS["files"].open(folder) as engine:
        prepare(engine)
    file = folder / "threads" / "threads" / "p.jsonl"
    newer(file)
    before = file.read_bytes()
    with KINDS["files"].open(folder) as engine:
        for read in (engine.read, engine.path, engine.thread):
            with pytest.raises(FormatTooNew):
                read("p")
        with pytest.raises((FormatTooNew, Corrupt)):
            engine.purge("p")
        assert all("p.jsonl" in problem.message for problem in engine.check())
        assert [entry.id for entry in engine.path("f")][-1] == "f2"
    assert file.read_bytes() == before
