"""clew erase removes bodies for good, and clew erased proves it, or names what is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_support import Run, say
from places import ADDRESSES

import clew
from clew.cli import _exits

WORD = "zanzibarkey"


@pytest.fixture(params=ADDRESSES)
def address(request: pytest.FixtureRequest) -> str:
    made = ADDRESSES[request.param](request)
    with clew.open(made) as store:
        thread = store.create("a-thread", title="about keys")
        thread.append_message({"role": "user", "content": f"my key is {WORD}"}, id="asked")
        say(thread, "It is valid.", "assistant")
        thread.append("compaction", {"summary": f"a key, {WORD}"}, id="summary")
    return made


def erase(run: Run, address: str, *more: str) -> Any:
    return run("erase", "a-thread", "asked", "--store", address, *more)


def receipt_at(path: Path, run: Run, address: str) -> Path:
    path.write_text(erase(run, address, "--yes", "--json").out)
    return path


def test_it_is_shown_first_and_asked_for(run: Run, address: str) -> None:
    shown = erase(run, address, "--dry-run")
    assert shown.code == _exits.OK
    assert "asked user_message" in shown.out
    assert WORD not in shown.out, "what must not be kept is not printed either"
    told = json.loads(erase(run, address, "--dry-run", "--json").out)
    assert (told["dry_run"], told["entries"]) == (True, ["asked"])
    refused = erase(run, address)
    assert refused.code == _exits.USAGE
    assert "--yes" in refused.err
    assert run("erased", address, "asked").code == _exits.DAMAGE


def test_it_says_what_was_erased_and_what_may_repeat_it(run: Run, address: str) -> None:
    done = erase(run, address, "--yes", "--reason", "a key")
    assert done.code == _exits.OK
    assert "erased: 1 entry" in done.out
    assert "may repeat it: entry summary of thread a-thread" in done.out
    assert "[erased" in run("show", address, "a-thread").out
    again = json.loads(erase(run, address, "--yes", "--json").out)["receipt"]
    once = json.loads(erase(run, address, "--yes", "--json").out)["receipt"]
    assert again["entries"] == once["entries"]
    assert [one["record"] for one in once["repeats"]] == ["summary"]


def test_what_is_not_there_cannot_be_erased(run: Run, address: str) -> None:
    found = run("erase", "a-thread", "nothing", "--store", address, "--yes")
    assert found.code == _exits.NOT_FOUND
    assert "nothing" in found.err
    assert run("erase", "no-thread", "asked", "--store", address, "--yes").code == _exits.NOT_FOUND


def test_an_entry_that_is_there_is_named(run: Run, address: str) -> None:
    found = run("erased", address, "asked")
    assert found.code == _exits.DAMAGE
    assert "an entry of that id has a body (a-thread asked)" in found.out
    told = json.loads(run("erased", address, "asked", "--json").out)
    assert told["clean"] is False
    assert told["traces"][0]["entry"] == "asked"


def test_a_receipt_proves_that_it_is_gone(run: Run, address: str, tmp_path: Path) -> None:
    path = receipt_at(tmp_path / "receipt.json", run, address)
    for what in (str(path), "asked", "an-id-that-never-was"):
        found = run("erased", address, what)
        assert (found.code, "nothing of it is here" in found.out) == (_exits.OK, True)
    told = json.loads(run("erased", address, str(path), "--json").out)
    assert (told["clean"], told["receipt_of"], told["ids"]) == (True, None, ["asked"])


def test_a_receipt_that_was_changed_is_noticed(run: Run, address: str, tmp_path: Path) -> None:
    path = receipt_at(tmp_path / "receipt.json", run, address)
    said = json.loads(path.read_text())
    said["receipt"]["entries"][0]["hash"] = "b3:" + "0" * 64
    path.write_text(json.dumps(said))
    found = run("erased", address, str(path))
    assert found.code == _exits.DAMAGE
    assert "another hash than the receipt says" in found.out
    for broken in ("", "[]", '{"receipt": 1}', json.dumps(said)[:-20]):
        path.write_text(broken)
        refused = run("erased", address, str(path))
        assert refused.code == _exits.USAGE, broken
        assert "receipt" in refused.err


def test_a_receipt_that_is_missing_proves_nothing(run: Run, address: str) -> None:
    found = run("erased", address, "no-receipt.json")
    assert found.code == _exits.USAGE
    assert "there is no file 'no-receipt.json'" in found.err


def test_a_receipt_of_another_store_is_told(run: Run, address: str, tmp_path: Path) -> None:
    path = receipt_at(tmp_path / "receipt.json", run, address)
    other = str(tmp_path / "other.db")
    with clew.open(other) as store:
        store.create("u").append_message({"role": "user", "content": f"my key is {WORD}"}, id="x")
    found = run("erased", other, str(path))
    assert found.code == _exits.DAMAGE
    assert "an entry has the same body (u x)" in found.out
    assert "the receipt is of another store" in found.out


def test_the_receipt_of_a_purge(run: Run, address: str, tmp_path: Path) -> None:
    path = tmp_path / "receipt.json"
    path.write_text(run("purge", address, "a-thread", "--yes", "--json").out)
    assert run("erased", address, str(path)).code == _exits.OK
    with clew.open(address) as store:
        store.create("a-thread")
    found = run("erased", address, str(path))
    assert found.code == _exits.DAMAGE
    assert "the thread itself is a-thread" in found.out
