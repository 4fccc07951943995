"""What the figures were measured on: enough to judge them, nothing about whose machine it is."""

from __future__ import annotations

import os
import platform
import sqlite3
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from time import gmtime, strftime

import apsw

import clew
from bench.timing import seconds

_PACKAGES = ("apsw", "msgspec", "openai-agents", "google-adk", "langgraph-checkpoint-sqlite")


def describe(folder: Path) -> dict[str, object]:
    return {
        "date": strftime("%Y-%m-%d", gmtime()),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "sqlite_of_peers": sqlite3.sqlite_version,
        "sync_ms": round(_sync_seconds(folder) * 1e3, 3),
        "clew": clew.__version__,
        **{name: _version(name) for name in _PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _sync_seconds(folder: Path) -> float:
    """What appending 1 KB to a file and syncing it takes here."""
    with (folder / "sync").open("wb", buffering=0) as file:

        def write() -> None:
            file.write(b"x" * 1024)
            os.fsync(file.fileno())

        return median(seconds(write) for _ in range(100))
