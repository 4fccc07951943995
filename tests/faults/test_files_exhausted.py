"""A process that has too many files open, a system without locks: errors of Clew's, and no harm."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import clew
from clew import Unavailable
from clew.engines.files.disk import Disk

LARGE = {"text": "long " * 40_000}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@contextmanager
def no_descriptors() -> Iterator[None]:
    """All descriptors of this process are in use; nothing is loaded anew either."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open("/dev/null", os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 1, limits[1]))
    try:
        while True:
            try:
                taken.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                break
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in taken:
            os.close(descriptor)


def test_too_many_open_files_is_an_error_that_passes(root: Path) -> None:
    with clew.open(f"files:{root}") as store:
        thread = store.create("t")
        thread.append("event", 0)
        thread.append("event", LARGE)
    with clew.open(f"files:{root}") as store:
        calls = {
            "path": lambda: store.get("t").path(),
            "list": lambda: list(store.threads()),
            "append": lambda: store.get("t").append("event", 1),
            "large": lambda: store.get("t").append("event", {"text": "another " * 40_000}),
            "create": lambda: store.create("u"),
            "put": lambda: store.blobs.put(b"blob"),
            "verify": store.verify,
            "purge": lambda: store.purge("t"),
            "open": lambda: clew.open(f"files:{root}"),
        }
        said: dict[str, object] = {}
        with no_descriptors():
            for name, call in calls.items():
                try:
                    said[name] = call()
                except Exception as error:
                    said[name] = error
        for name, error in said.items():
            assert isinstance(error, Unavailable), (name, error)
            # A blob may have its name already, which is not synced.
            assert error.committed is (None if name == "put" else False), name
        assert [entry.body for entry in store.get("t").path()] == [0, LARGE]
        store.get("t").append("event", 1)
        assert store.verify() == []


class NoFolders(Disk):
    """Has one descriptor too few, once, when a folder is to be synced."""

    missing = 0

    def sync_folder(self, path: str) -> None:
        if self.missing:
            self.missing -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        super().sync_folder(path)


def test_one_missing_descriptor_does_not_poison_a_handle(root: Path) -> None:
    disk = NoFolders()
    with clew.open(f"files:{root}", disk=disk) as store:
        thread = store.create("t")
        draft = clew.draft("event", LARGE)
        disk.missing = 1
        with pytest.raises(Unavailable) as caught:
            thread.append([draft])
        assert (caught.value.retryable, caught.value.committed) == (True, False)
        thread.append([draft])
        disk.missing = 1
        with pytest.raises(Unavailable) as caught:
            store.create("u")
        assert caught.value.committed is None, "its name is there, and may not last"
        assert [entry.body for entry in thread.path()] == [LARGE]
        assert store.verify() == []


def test_a_system_without_locks_is_an_error_that_passes(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with clew.open(f"files:{root}") as store:
        thread = store.create("t")

        def no_locks(*arguments: Any) -> None:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        with monkeypatch.context() as patched:
            patched.setattr(fcntl, "flock", no_locks)
            for call in (lambda: thread.append("event", 1), lambda: clew.open(f"files:{root}")):
                with pytest.raises(Unavailable) as caught:
                    call()
                assert (caught.value.retryable, caught.value.committed) == (True, False)
        thread.append("event", 1)


def test_a_folder_that_cannot_be_opened_now_is_no_wrong_folder(tmp_path: Path) -> None:
    with clew.open("memory:") as store:
        thread = store.create("t")
        thread.append_message({"role": "user", "content": "hello"}, format="anthropic")
        thread.snapshots.take(tmp_path)  # so that nothing is imported below
        with no_descriptors(), pytest.raises(Unavailable):
            thread.snapshots.take(tmp_path)
        thread.snapshots.take(tmp_path)
