"""Every command works on one namespace; those that look after a store on all of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_support import Run, say

import clew
from clew.address import namespaces


@pytest.fixture(params=["sqlite", "files"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store with a thread of one id in two namespaces."""
    made = f"{request.param}:{tmp_path / 'store'}"
    for name in ("default", "acme"):
        with clew.open(made, namespace=name) as store:
            say(store.create("t", title=f"of {name}"), f"needle of {name}")
    return made


def damage(address: str, old: bytes, new: bytes) -> None:
    place = Path(address.partition(":")[2])
    for file in [place] if place.is_file() else place.rglob("*.jsonl"):
        file.write_bytes(file.read_bytes().replace(old, new))


def path_of(address: str, namespace: str) -> list[str]:
    with clew.open(address, namespace=namespace, create=False) as store:
        return [entry.hash for entry in store.get("t").path()]


def test_a_command_sees_one_namespace(run: Run, address: str, tmp_path: Path) -> None:
    for name, options in (("default", []), ("acme", ["--namespace", "acme"])):
        assert f"of {name}" in run("list", address, *options).out
        shown = run("show", address, "t", "--path", *options)
        assert f"needle of {name}" in shown.out
        assert len(run("list", address, *options, "--json").lines) == 1
        file = tmp_path / f"{name}.jsonl"
        assert run("export", address, "t", "--out", file, *options).code == 0
        assert f"needle of {name}" in file.read_text()
    assert run("snapshot", "list", address, "t", "--namespace", "acme").out == "no snapshots\n"


def test_a_namespace_that_is_not_there_is_not_made(run: Run, address: str) -> None:
    for command in (["list", address], ["verify", address], ["copy", address, f"{address}-2"]):
        failed = run(*command, "--namespace", "nobody")
        assert failed.code == 2
        assert "'nobody'" in failed.err
        assert "default, acme" in failed.err
    assert namespaces(address) == ["default", "acme"]


def test_verify_reads_every_namespace(run: Run, address: str) -> None:
    whole = run("verify", address)
    assert whole.code == 0
    assert "read 2 threads" in whole.out
    assert "in 2 namespaces" in whole.out
    damage(address, b"needle of acme", b"needle of axme")
    damaged = run("verify", address)
    assert damaged.code == 1
    assert "namespace acme, thread t" in damaged.out
    report = json.loads(run("verify", address, "--json").out)
    assert report["namespaces"] == ["default", "acme"]
    assert report["problems"][0]["namespace"] == "acme"
    assert run("verify", address, "--namespace", "acme").code == 1
    mine = run("verify", address, "--namespace", "default")
    assert mine.code == 0
    assert "namespaces" not in mine.out


def test_repair_saves_every_namespace(run: Run, address: str) -> None:
    before = path_of(address, "default")
    damage(address, b"needle of acme", b"needle of axme")
    repaired = run("repair", address)
    assert repaired.code == 0
    assert "namespace acme, thread t" in repaired.out
    assert "saved 2 threads" in repaired.out
    assert path_of(address, "default") == before
    assert run("verify", address).code == 0
    assert run("repair", address, "--namespace", "acme").code == 2, "it has no such option"


def test_copy_takes_one_namespace_to_where_it_is_told(
    run: Run, address: str, tmp_path: Path
) -> None:
    target = str(tmp_path / "target.db")
    assert run("copy", address, target, "--namespace", "acme").code == 0
    assert path_of(target, "acme") == path_of(address, "acme")
    with clew.open(target) as store:
        assert list(store.threads()) == []
    assert run("copy", address, target, "--to-namespace", "mine").code == 0
    assert path_of(target, "mine") == path_of(address, "default")
    assert namespaces(target) == ["default", "acme", "mine"]


def test_copy_can_take_all_namespaces(run: Run, address: str, tmp_path: Path) -> None:
    target = f"files:{tmp_path / 'target'}"
    done = run("copy", address, target, "--all-namespaces")
    assert done.code == 0
    assert "namespace acme" in done.lines
    assert namespaces(target) == ["default", "acme"]
    for name in ("default", "acme"):
        assert path_of(target, name) == path_of(address, name)
    report = json.loads(run("copy", address, target, "--all-namespaces", "--json").out)
    assert report["complete"]
    assert [part["namespace"] for part in report["namespaces"]] == ["default", "acme"]
    assert [part["records"] for part in report["namespaces"]] == [0, 0]


def test_copy_inside_of_one_store_needs_another_namespace(run: Run, address: str) -> None:
    assert run("copy", address, address, "--to-namespace", "copy").code == 0
    assert path_of(address, "copy") == path_of(address, "default")
    assert run("verify", address).code == 0
    for options in (
        [],
        ["--namespace", "acme"],
        ["--namespace", "acme", "--to-namespace", "acme"],
        ["--to-namespace", "default"],
        ["--all-namespaces"],
        ["--all-namespaces", "--to-namespace", "x"],
    ):
        assert run("copy", address, address, *options).code == 2, options


def test_a_damaged_namespace_does_not_keep_the_others_from_being_copied(
    run: Run, address: str, tmp_path: Path
) -> None:
    damage(address, b"needle of default", b"needle of defaxlt")
    target = str(tmp_path / "target.db")
    assert run("copy", address, target, "--all-namespaces").code == 1
    assert path_of(target, "acme") == path_of(address, "acme")
