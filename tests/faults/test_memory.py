"""A process that may have no more memory gets a MemoryError, and does not die of a large body."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import clew

_APPEND = """
import resource, sys
import clew
body = {"text": "x" * (30 << 20)} if sys.argv[3] == "text" else [str(n) for n in range(1 << 20)]
with clew.open(sys.argv[1]) as store:
    thread = store.create("t")
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    most = used + (int(sys.argv[2]) << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    try:
        thread.append("event", body)
        print("appended")
    except (MemoryError, clew.ClewError) as error:
        print(type(error).__name__)
    finally:  # what measures the tests has something to write at the end, too
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
@pytest.mark.parametrize("shape", ["text", "list"])
@pytest.mark.parametrize("more_mb", [1, 15, 40, 62, 70, 200])
def test_a_large_body_without_memory_for_it_does_not_end_the_process(
    tmp_path: Path, more_mb: int, shape: str
) -> None:
    command = [sys.executable, "-c", _APPEND, str(tmp_path / "threads.db"), str(more_mb), shape]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("appended", "MemoryError", "Unavailable")
    assert more_mb < 200 or done.stdout.strip() == "appended"


_READ = """
import resource, sys
import clew
with clew.open(sys.argv[1], check_reads=True) as store:
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    most = used + (int(sys.argv[2]) << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    try:
        print(len(store.get("t").path()[0].body["text"]))
    except (MemoryError, clew.Unavailable) as error:
        print(type(error).__name__)
    finally:  # what measures the tests has something to write at the end, too
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
@pytest.mark.parametrize("engine", ["sqlite", "files"])
@pytest.mark.parametrize("more_mb", [2, 20, 40, 64, 200])
def test_a_large_body_is_not_called_damaged_because_it_cannot_be_held(
    tmp_path: Path, engine: str, more_mb: int
) -> None:
    address = ("files:" if engine == "files" else "") + str(tmp_path / "threads")
    with clew.open(address) as store:
        store.create("t").append("event", {"text": "x" * (30 << 20)})
    command = [sys.executable, "-c", _READ, address, str(more_mb)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in (str(30 << 20), "MemoryError", "Unavailable")
    assert more_mb < 200 or done.stdout.strip() == str(30 << 20)


@pytest.mark.parametrize(
    "said", ["Allocation error : not enough memory", "Unable to create ZSTD_DCtx instance."]
)
def test_what_zstd_says_of_no_memory_is_no_damage(
    tmp_path: Path, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clew.engines.shared import compression

    def starved() -> None:
        raise compression._zstd().ZstdError(said)

    with clew.open(tmp_path / "threads.db") as store:
        hash = store.blobs.put(b"blob" * 100_000)
        with monkeypatch.context() as patch:
            patch.setattr(compression._zstd(), "ZstdDecompressor", starved)
            with pytest.raises(MemoryError, match=said):
                store.blobs.get(hash)
        assert store.blobs.get(hash) == b"blob" * 100_000


def test_no_memory_to_unpack_a_thread_does_not_let_repair_drop_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clew.engines.shared import compression

    def starved() -> None:
        raise MemoryError

    address = f"files:{tmp_path / 'threads'}"
    with clew.open(address) as store:
        store.create("t").append([clew.draft("event", "words " * 200) for _ in range(20)])
        assert store.engine.pack(idle_seconds=0).packs == 1
    packed = tmp_path / "threads" / "threads" / "t.jsonl.zst"
    damaged = packed.read_bytes()[:-20]  # without its table, so that its frames are looked for
    packed.write_bytes(damaged)
    with monkeypatch.context() as patch:
        patch.setattr(compression._zstd(), "ZstdDecompressor", starved)
        with pytest.raises(MemoryError):
            clew.repair(address)
    assert packed.read_bytes() == damaged
    clew.repair(address)
    with clew.open(address) as store:
        assert len(store.get("t").path()) == 20


@pytest.mark.parametrize("engine", ["sqlite", "files", "memory"])
def test_no_memory_to_unpack_a_blob_leaves_it_as_it_is(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clew.engines.shared import compression

    class Starved:
        def decompress(self, data: bytes, max_length: int) -> bytes:
            raise MemoryError

    address = {"sqlite": "", "files": "files:", "memory": "memory:"}[engine]
    with clew.open(address + (str(tmp_path / "threads") if engine != "memory" else "")) as store:
        hash = store.blobs.put(b"blob" * 100_000)
        store.create("t").append("event", "x" * 100_000)
        if engine != "memory":  # which keeps them as they are
            with monkeypatch.context() as patch:
                patch.setattr(compression._zstd(), "ZstdDecompressor", Starved)
                for call in (
                    lambda: store.blobs.get(hash),
                    lambda: store.get("t").path()[0].body,
                    lambda: store.verify(),
                ):
                    with pytest.raises(MemoryError):
                        call()
        assert store.verify() == []
        assert store.blobs.get(hash) == b"blob" * 100_000
