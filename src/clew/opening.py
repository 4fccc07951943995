"""Opening a store by its address."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from clew.engine import Engine
from clew.engines._swap import refuse_half_done
from clew.errors import InvalidInput, NotFound, Unsupported
from clew.store import Store

_SCHEMES = {
    "sqlite:": "sqlite:///path.db (or just path.db): a SQLite file",
    "files:": "files:path: a folder of JSONL files",
    "memory:": "memory: nothing outlives the process",
}


def open(address: str | os.PathLike[str] | None = None, **options: Any) -> Store:
    """Open a store, making it if it is not there.

    No address: the user's own default store. A path, or `sqlite:///path.db` (relative) and
    `sqlite:////path.db` (absolute): a SQLite file. `files:path`: a folder of JSONL files, one
    for each thread. `memory:`: gone with the process.

    SQLite and files take `durability="full"` (every acknowledged append survives loss of power)
    or `"relaxed"` (faster on slow disks, survives only the death of the process), and
    `busy_seconds`, how long to wait for other processes that write. With `create=False` a store
    that is not there is NotFound, and nothing is made.
    """
    return Store(open_engine(address, **options))


def open_engine(address: str | os.PathLike[str] | None = None, **options: Any) -> Engine:
    """The engine behind an address, for tools that work on the waist itself."""
    engine, path = locate(address)
    if path is None:
        return _memory(options)
    refuse_half_done(path)
    return (_files if engine == "files" else _sqlite)(path, options)


def locate(address: str | os.PathLike[str] | None) -> tuple[str, Path | None]:
    """The name of the engine behind an address, and where its store lies."""
    if address is None:
        return "sqlite", default_path()
    if not isinstance(address, str):
        return "sqlite", Path(address).expanduser()
    if not address:
        raise InvalidInput("address", "is empty; leave it out to open the default store")
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", address)  # two letters: C: is a drive
    if scheme is None:
        return "sqlite", Path(address).expanduser()
    rest = address[scheme.end() :]
    match scheme[0].lower():
        case "memory:" if not rest:
            return "memory", None
        case "sqlite:" | "files:" as name if rest.removeprefix("///"):
            return name[:-1], Path(rest.removeprefix("///")).expanduser()
        case _:
            known = "; ".join(_SCHEMES.values())
            raise Unsupported(
                f"{address!r} is not an address that Clew can open. Known are: {known}. "
                f"A file of that name: ./{address}"
            )


def default_path() -> Path:
    """The user's own store, where the system keeps such data."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "clew" / "threads.db"
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
        return Path(base) / "clew" / "threads.db"
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "clew" / "threads.db"


def _sqlite(path: Path, options: dict[str, Any]) -> Engine:
    from clew.engines.sqlite import SQLiteEngine

    _check_options("sqlite", options, ("durability", "busy_seconds", "create", "vfs"))
    return SQLiteEngine(path, **options)


def _files(path: Path, options: dict[str, Any]) -> Engine:
    from clew.engines.files import FilesEngine

    _check_options("files", options, ("durability", "busy_seconds", "create", "disk"))
    return FilesEngine(path, **options)


def _memory(options: dict[str, Any]) -> Engine:
    from clew.engines.memory import MemoryEngine

    _check_options("memory", options, ("create",))
    if not options.get("create", True):
        raise NotFound("store", "memory:")
    return MemoryEngine()


def _check_options(engine: str, options: dict[str, Any], known: tuple[str, ...]) -> None:
    for name in options:
        if name not in known:
            names = ", ".join(known) or "none"
            raise InvalidInput(name, f"is not an option of the {engine} engine (it has: {names})")
