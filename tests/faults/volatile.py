"""A disk that forgets: what was written since the last flush may be gone after a loss of power.

It is served to a virtual machine by the NBD protocol, on a socket. Until a flush, every sector of
every write is on its own: at a cut some have reached the disk and some have not, in any order.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import threading
from pathlib import Path

SECTOR = 512
_GREETING = b"NBDMAGIC" + b"IHAVEOPT"
_REPLY = 0x3E889045565A9
_REQUEST, _ANSWER = 0x25609513, 0x67446698
_READ, _WRITE, _DISCONNECT, _FLUSH = 0, 1, 2, 3
_FUA = 1
_EINVAL = 22
_EXPORT_NAME, _ABORT, _GO = 1, 2, 7
_ACK, _INFO, _UNSUPPORTED = 1, 3, 0x80000001
_FLAGS = 1 | 4 | 8  # it has flags, it takes flushes, and writes that are flushes themselves


class VolatileDisk:
    """Bytes that last, and sectors that do not yet. A disk that lies flushes nothing."""

    def __init__(self, data: bytes, *, lying: bool = False) -> None:
        self._lasting = bytearray(data)
        self._seen = bytearray(data)
        self._unflushed: list[tuple[int, bytes]] = []  # sectors, in the order of their writes
        self._lying = lying
        self._writes_left: int | None = None
        self.dead = threading.Event()  # it has no power, and answers nothing

    @property
    def size(self) -> int:
        return len(self._lasting)

    @property
    def unflushed(self) -> int:
        return len(self._unflushed)

    def read(self, at: int, length: int) -> bytes:
        return bytes(self._seen[at : at + length])

    def cut_after(self, writes: int) -> None:
        """Lose power by itself after so many more writes: in the middle of the next one.

        Nobody is told that this one was done, and of its sectors any may have reached the disk.
        """
        self._writes_left = writes

    def write(self, at: int, data: bytes, *, through: bool = False) -> None:
        if self.dead.is_set():
            return
        if self._writes_left == 0:
            self.dead.set()
            through = False  # the one in the middle of which the power went
        elif self._writes_left is not None:
            self._writes_left -= 1
        self._seen[at : at + len(data)] = data
        sectors = [(at + n, bytes(data[n : n + SECTOR])) for n in range(0, len(data), SECTOR)]
        if through and not self._lying:
            # It may not come after what is older and still to be written there.
            own = {place for place, _ in sectors}
            self._unflushed = [old for old in self._unflushed if old[0] not in own]
            self._store(sectors)
        else:
            self._unflushed += sectors

    def flush(self) -> None:
        if not self._lying:
            self._store(self._unflushed)
            self._unflushed = []

    def cut(self, chance: random.Random) -> int:
        """Lose power: of what was not flushed, each sector stays or is lost. How many were lost."""
        share = chance.choice((0.0, 0.1, 0.5, 0.9))
        kept = [one for one in self._unflushed if chance.random() < share]
        lost = len(self._unflushed) - len(kept)
        self._store(kept)
        self._unflushed = []
        self._seen = bytearray(self._lasting)
        self._writes_left = None
        self.dead.clear()
        return lost

    def _store(self, sectors: list[tuple[int, bytes]]) -> None:
        for at, data in sectors:
            self._lasting[at : at + len(data)] = data


class Server:
    """Serves a disk at a socket, to one client after the other. Use it as a context manager."""

    def __init__(self, disk: VolatileDisk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._listening = socket.socket(socket.AF_UNIX)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.idle = threading.Event()  # no client is there, and all that it asked for was done
        self.idle.set()

    def __enter__(self) -> Server:
        self._listening.bind(str(self._path))
        self._listening.listen(1)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()
        os.unlink(self._path)

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return  # closed
            self.idle.clear()
            try:
                with client, client.makefile("rwb") as stream:
                    if _greet(stream, self._disk.size):
                        self._answer(stream)
            except (OSError, EOFError):
                pass  # it was killed, and what was still to be said to it has no reader
            self.idle.set()

    def _answer(self, stream: object) -> None:
        disk = self._disk
        while True:
            magic, flags, kind, handle, at, length = struct.unpack(">IHHQQI", _take(stream, 28))
            data = _take(stream, length) if kind == _WRITE else b""
            error, answer = 0, b""
            if magic != _REQUEST or kind == _DISCONNECT:
                return
            if kind in (_READ, _WRITE) and at + length > disk.size:
                error = _EINVAL
            elif kind == _READ:
                answer = disk.read(at, length)
            elif kind == _WRITE:
                disk.write(at, data, through=bool(flags & _FUA))
            elif kind == _FLUSH:
                disk.flush()
            else:
                error = _EINVAL
            while disk.dead.is_set():
                _take(stream, 1)  # until the client is killed too
            _give(stream, struct.pack(">IIQ", _ANSWER, error, handle) + answer)


def _greet(stream: object, size: int) -> bool:
    """Agree on the only disk there is; False if the client wants none."""
    _give(stream, _GREETING + struct.pack(">H", 3))
    (client_flags,) = struct.unpack(">I", _take(stream, 4))
    while True:
        _, option, length = struct.unpack(">QII", _take(stream, 16))
        _take(stream, length)
        if option == _EXPORT_NAME:
            zeroes = b"" if client_flags & 2 else bytes(124)
            _give(stream, struct.pack(">QH", size, _FLAGS) + zeroes)
            return True
        if option == _GO:
            said = struct.pack(">HQH", 0, size, _FLAGS)
            _give(stream, struct.pack(">QIII", _REPLY, option, _INFO, len(said)) + said)
            _give(stream, struct.pack(">QIII", _REPLY, option, _ACK, 0))
            return True
        kind = _ACK if option == _ABORT else _UNSUPPORTED
        _give(stream, struct.pack(">QIII", _REPLY, option, kind, 0))
        if option == _ABORT:
            return False


def _take(stream: object, length: int) -> bytes:
    data: bytes = stream.read(length)  # type: ignore[attr-defined]
    if len(data) < length:
        raise EOFError
    return data


def _give(stream: object, data: bytes) -> None:
    stream.write(data)  # type: ignore[attr-defined]
    stream.flush()  # type: ignore[attr-defined]
