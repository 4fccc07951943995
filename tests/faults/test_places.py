"""What the virtual machine is made of, without booting one: its files, its servers, its tasks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from faults import guest, machine, parts, torture
from faults.archive import Archive
from faults.places import CLIENT, PLACES, Missing, Prepared, Server, find_server
from faults.points import Outcome
from faults.stores import KINDS


def names_in(archive: bytes) -> list[str]:
    found: list[str] = []
    at = 0
    while not found or found[-1] != "TRAILER!!!":
        assert archive[at : at + 6] == b"070701"
        numbers = [int(archive[n : n + 8], 16) for n in range(at + 6, at + 110, 8)]
        size, length = numbers[6], numbers[11]
        found.append(archive[at + 110 : at + 110 + length - 1].decode())
        at = -(-(at + 110 + length) // 4) * 4
        at = -(-(at + size) // 4) * 4
    return found


def test_a_program_brings_its_libraries_and_a_package_those_of_its_wheel() -> None:
    archive = Archive()
    archive.add_file(Path(sys.executable).resolve(), Path("/python"))
    archive.add_package("psycopg_binary", Path("/site"))
    archive.add_package("no_such_package", Path("/site"))
    archive.add_libraries()
    names = names_in(archive.bytes())
    assert "python" in names
    assert any(re.search(r"/libc\.so", name) for name in names)
    assert any(re.match(r"site/psycopg_binary\.libs/libpq", name) for name in names)
    assert any(re.match(r"site/psycopg_binary-[^/]+\.dist-info/METADATA", name) for name in names)
    assert not any(".." in Path(name).parts for name in names)


def test_every_engine_has_a_place_for_both_durabilities() -> None:
    assert list(PLACES) == [*KINDS, torture.POSTGRES]
    for name, place in PLACES.items():
        for durability in ("full", "relaxed"):
            task = json.loads(json.dumps(place.task(durability, 3, Prepared())))
            assert task["durability"] == durability, name
            assert task["server"] is None
            # Either Clew is told, or the server is, in the address.
            told = task["options"].get("durability") or task["address"].endswith("off") * "relaxed"
            assert (told or "full") == durability


def test_a_machine_is_in_the_long_form_of_every_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "missing", lambda engine: None)
    slow = {*parts.SLOW_PARTS, *parts.SLOW_CONTROLS}
    for engine in PLACES:
        assert slow <= {name for name, *_ in torture.parts_of(engine, False)}
        assert not slow & {name for name, *_ in torture.parts_of(engine, True)}


def test_without_a_server_the_part_is_skipped_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check() -> None:
        raise Missing("there is no server")

    place = replace(PLACES["postgres"], check=check)
    monkeypatch.setitem(PLACES, "postgres", place)
    monkeypatch.setattr(machine, "find_kernel", lambda: machine.Kernel(Path("-"), Path("-")))
    found = list(torture.parts_of("postgres", False))
    assert not {name for name, *_ in found} & set(parts.SLOW_CONTROLS)
    (part,) = (part for name, part, _ in found if name in parts.SLOW_PARTS)
    outcome = Outcome()
    part(tmp_path / "store", outcome)
    assert outcome.notes == ["skipped: there is no server"]
    assert (outcome.points, outcome.failures) == (0, [])


def test_a_server_needs_its_binaries_and_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    from servers import binaries

    def absent() -> None:
        raise RuntimeError("no PostgreSQL server was found")

    with monkeypatch.context() as patch:
        patch.setattr(binaries, "find_binaries", absent)
        with pytest.raises(Missing, match="no PostgreSQL server was found"):
            find_server()
    find = "faults.places.importlib.util.find_spec"
    monkeypatch.setattr(find, lambda name: None if name == "psycopg_binary" else name)
    assert "psycopg_binary" in CLIENT
    with pytest.raises(Missing, match="psycopg_binary cannot be imported"):
        find_server()


START = """
import json, os, sys
from pathlib import Path
from faults import guest
guest.LOG = Path(sys.argv[2])
os.setgroups = lambda _: None  # for root alone
try:
    guest.start(json.loads(sys.argv[1]), int(sys.argv[3]))
    guest.tell("STARTED")
except RuntimeError as error:
    guest.tell(str(error))
"""


@pytest.mark.parametrize(
    ("script", "boot", "said"),
    [
        ("echo ready; exec sleep 5", 1, ["STARTED"]),
        ("echo recovered; echo ready; exec sleep 5", 2, ["STARTED"]),
        ("echo ready; exec sleep 5", 2, ["FAILED the server found nothing", "STARTED"]),
        ("echo no good >&2; exit 1", 1, ["the server ended: no good"]),
    ],
)
def test_the_machine_waits_for_its_server_and_notices_one_that_ends(
    tmp_path: Path, script: str, boot: int, said: list[str]
) -> None:
    server = Server(["/bin/sh", "-c", script], str(tmp_path), "ready", "recovered", "")
    told = json.dumps(asdict(server))
    command = [sys.executable, "-c", START, told, str(tmp_path / "log"), str(boot)]
    # In a process of its own, which forks and has no threads.
    environment = os.environ | {"PYTHONPATH": str(Path(guest.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    found = [line for line in done.stdout.splitlines() if line.startswith("@ ")]
    assert done.returncode == 0, done.stderr
    assert len(found) == len(said)
    assert all(line.startswith(f"@ {words}") for line, words in zip(found, said, strict=True))
