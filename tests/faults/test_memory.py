"""A process that may have no more memory gets a MemoryError, and does not die of a large body."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_APPEND = """
import resource, sys
import clew
body = {"text": "x" * (30 << 20)} if sys.argv[3] == "text" else [str(n) for n in range(1 << 20)]
with clew.open(sys.argv[1]) as store:
    thread = store.create("t")
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (int(sys.argv[2]) << 20),) * 2)
    try:
        thread.append("event", body)
        print("appended")
    except (MemoryError, clew.ClewError) as error:
        print(type(error).__name__)
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
