"""What is imported late meets a process that may open no more files: Unavailable, and no harm.

Each case is a fresh process, as nearly everything has been imported in the one that runs the tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import clew

_TRY = """
import json, os, resource, sys
import clew

address, free, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
store = clew.open(address)
MESSAGE = {"role": "user", "parts": [{"text": "x"}]}
calls = {
    "path": lambda: store.get("t").path(),
    "surrogate": lambda: store.get("s").path()[0].body,
    "append a surrogate": lambda: store.get("s").append("event", "\\ud800"),
    "append raw": lambda: store.get("s").append("event", b'{"a": 1.50}'),
    "append large": lambda: store.get("s").append("event", "z" * 100_000),
    "put": lambda: store.blobs.put(b"x" * 10_000),
    "message": lambda: store.get("s").append_message(MESSAGE, format="gemini"),
    "context": lambda: store.get("m").context(),
    "compact": lambda: store.get("m").compact(summary="so far"),
    "compaction": lambda: store.get("m").compaction(),
    "uncompact": lambda: store.get("m").uncompact(),
    "recall": lambda: store.recall,
    "verify": lambda: store.verify(),
    "take": lambda: store.get("m").snapshots.take(folder),
    "runs": lambda: store.runs,
    "usage": lambda: store.usage(),
    "search": lambda: store.search("hello"),
    "namespaces": lambda: clew.namespaces(address),
    "a store of files": lambda: clew.open(f"files:{folder}/made"),
    "a store in a file": lambda: clew.open(f"{folder}/made.db"),
    "a store in memory": lambda: clew.open("memory:"),
    "to look": lambda: clew.open(address, readonly=True),
    "to look closely": lambda: clew.open(address, check_reads=True),
}


def outcomes():
    found = {}
    for name, call in calls.items():
        try:
            call()
            found[name] = "done"
        except clew.ClewError as error:
            found[name] = type(error).__name__
        except Exception as error:
            found[name] = repr(error)
    return found


limits = resource.getrlimit(resource.RLIMIT_NOFILE)
top = os.open("/dev/null", os.O_RDONLY)
taken = [top]
while taken[-1] <= top:  # those below are taken too
    taken.append(os.open("/dev/null", os.O_RDONLY))
resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 1 + free, limits[1]))
without = outcomes()
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
for descriptor in taken:
    os.close(descriptor)
print(json.dumps([without, outcomes(), len(store.verify())]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="descriptors are not limited there")
@pytest.mark.parametrize("free", [0, 2, 4])
@pytest.mark.parametrize("engine", ["sqlite", "files"])
def test_a_part_that_cannot_be_read_now_is_unavailable(
    engine: str, free: int, tmp_path: Path
) -> None:
    address = ("files:" if engine == "files" else "") + str(tmp_path / "threads")
    folder = tmp_path / "work"
    folder.mkdir()
    with clew.open(address) as store:
        store.create("t").append("event", "x" * 100_000)
        store.create("s").append("event", "\ud800")
        thread = store.create("m")
        for text in ("hello", "and"):
            thread.append_message({"role": "user", "content": text}, format="anthropic")
            reply = {"role": "assistant", "content": [{"type": "text", "text": "x"}]}
            thread.append_message(reply, format="anthropic")
    command = [sys.executable, "-c", _TRY, address, str(free), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    without, after, problems = json.loads(done.stdout)
    assert "Unavailable" in without.values()
    assert {"done", "Unavailable"} >= set(without.values()), without
    assert set(after.values()) == {"done"}, after
    assert problems == 0
