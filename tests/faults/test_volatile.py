"""The disk of the virtual machine forgets what was not flushed, and nothing else."""

from __future__ import annotations

import random
import socket
import struct
from pathlib import Path

import pytest
from faults.guest import look, write
from faults.machine import listen
from faults.volatile import SECTOR, Server, VolatileDisk

import clew

SIZE = 64 * SECTOR


def test_what_was_flushed_survives_every_cut_and_the_rest_is_lost_in_parts() -> None:
    fates = set()
    for seed in range(40):
        disk = VolatileDisk(bytes(SIZE))
        disk.write(0, b"a" * 4 * SECTOR)
        disk.flush()
        disk.write(2 * SECTOR, b"b" * 4 * SECTOR)
        assert disk.read(0, SIZE)[: 6 * SECTOR] == b"a" * 2 * SECTOR + b"b" * 4 * SECTOR
        lost = disk.cut(random.Random(seed))
        left = disk.read(0, SIZE)
        assert left[: 2 * SECTOR] == b"a" * 2 * SECTOR
        sectors = [left[at : at + SECTOR] for at in range(2 * SECTOR, 6 * SECTOR, SECTOR)]
        assert all(one in (b"a" * SECTOR, b"b" * SECTOR, bytes(SECTOR)) for one in sectors)
        assert lost == 4 - sum(one == b"b" * SECTOR for one in sectors)
        fates.add(lost)
    assert fates >= {0, 4}
    assert fates & {1, 2, 3}


def test_a_write_through_lasts_and_is_not_undone_by_an_older_one() -> None:
    for seed in range(20):
        disk = VolatileDisk(bytes(SIZE))
        disk.write(0, b"old" + bytes(SECTOR - 3))
        disk.write(0, b"new" + bytes(SECTOR - 3), through=True)
        disk.cut(random.Random(seed))
        assert disk.read(0, 3) == b"new"


def test_a_disk_that_lies_keeps_nothing_for_sure() -> None:
    disk = VolatileDisk(bytes(SIZE), lying=True)
    disk.write(0, b"a" * SIZE)
    disk.flush()
    assert disk.cut(random.Random(1)) > 0


def test_a_cut_falls_into_the_middle_of_a_write_and_nothing_more_is_written() -> None:
    torn = set()
    for seed in range(20):
        disk = VolatileDisk(bytes(SIZE))
        disk.cut_after(1)
        disk.write(0, b"a" * SECTOR, through=True)
        assert not disk.dead.is_set()
        disk.write(SECTOR, b"b" * 2 * SECTOR, through=True)
        assert disk.dead.is_set()
        disk.write(3 * SECTOR, b"c" * SECTOR, through=True)
        lost = disk.cut(random.Random(seed))
        assert not disk.dead.is_set()
        left = disk.read(0, SIZE)
        assert left[:SECTOR] == b"a" * SECTOR
        assert left[SECTOR:].strip(b"\0") in (b"b" * n * SECTOR for n in range(3))
        assert left.count(b"b") == (2 - lost) * SECTOR
        torn.add(lost)
    assert torn == {0, 1, 2}


def test_it_is_served_as_a_network_block_device(tmp_path: Path) -> None:
    disk = VolatileDisk(bytes(SIZE))
    with Server(disk, tmp_path / "s") as server, socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "s"))
        stream = client.makefile("rwb")

        def ask(
            kind: int, at: int = 0, data: bytes = b"", length: int = 0, flags: int = 0
        ) -> bytes:
            head = struct.pack(">IHHQQI", 0x25609513, flags, kind, 7, at, len(data) or length)
            stream.write(head + data)
            stream.flush()
            magic, error, handle = struct.unpack(">IIQ", stream.read(16))
            assert (magic, handle) == (0x67446698, 7)
            return b"error" if error else stream.read(length)

        assert stream.read(18) == b"NBDMAGICIHAVEOPT" + struct.pack(">H", 3)
        stream.write(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 7, 6) + bytes(6))
        stream.flush()
        assert struct.unpack(">QIII", stream.read(20))[1:] == (7, 3, 12)
        assert struct.unpack(">HQH", stream.read(12)) == (0, SIZE, 13)
        assert struct.unpack(">QIII", stream.read(20))[1:] == (7, 1, 0)
        ask(1, at=SECTOR, data=b"x" * SECTOR)
        assert ask(0, at=SECTOR, length=2 * SECTOR) == b"x" * SECTOR + bytes(SECTOR)
        assert disk.unflushed == 1
        ask(3)
        assert disk.unflushed == 0
        ask(1, data=b"y" * SECTOR, flags=1)
        assert disk.unflushed == 0
        assert ask(1, at=SIZE, data=b"z" * SECTOR) == b"error"
        stream.close()
        client.shutdown(socket.SHUT_RDWR)
        assert server.idle.wait(30)


def test_the_host_understands_what_the_machine_says(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cut(BaseException):
        pass

    from faults import guest

    tell = guest.tell

    def tell_and_cut(text: str) -> None:
        tell(text)
        if text == "ACK 1.0 12":
            raise Cut

    monkeypatch.setattr(guest, "tell", tell_and_cut)
    address = f"files:{tmp_path / 's'}"
    task = {"address": address, "options": {"durability": "relaxed"}, "writers": 1}
    task |= {"durability": "relaxed"}
    with pytest.raises(Cut):
        write(task, 1, 0)
    said = capfd.readouterr().out.splitlines()
    assert listen(iter(said), 5) == ({}, [], {"1.0": 5})
    with clew.open(address, durability="relaxed") as store:
        store.get("t0").append("event", {"n": 14}, id="r1-14")
    look(task | {"durability": "full"}, 2)
    found, failures, acked = listen(iter(capfd.readouterr().out.splitlines()), 1)
    assert (found, acked) == ({"1.0": 14}, {})
    assert "the durability is relaxed and should be full" in failures[0]
    assert "r1-14 comes after 12" in failures[1]
    assert "ended" in failures[2]
