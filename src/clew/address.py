"""Opening a store by its address."""

from __future__ import annotations

import os
import re
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from clew.core.engine import Engine
from clew.core.errors import InvalidInput, NotFound, Unsupported
from clew.core.maintenance import Whole
from clew.engines.shared.namespaces import OneByOne
from clew.engines.shared.swap import refuse_half_done
from clew.store import Store

if TYPE_CHECKING:
    from clew.core.options import OpenOptions

_SCHEMES = {
    "sqlite:": "sqlite:///path.db (or just path.db): a SQLite file",
    "files:": "files:path: a folder of JSONL files",
    "postgresql:": "postgresql://user@host/database: a PostgreSQL database",
    "memory:": "memory: nothing outlives the process",
}


def open(address: str | os.PathLike[str] | None = None, **options: Unpack[OpenOptions]) -> Store:
    """Open a store, making it if it is not there.

    No address: the user's own default store. A path, or `sqlite:///path.db` (relative) and
    `sqlite:////path.db` (absolute): a SQLite file. `files:path`: a folder of JSONL files, one
    for each thread. `postgresql://user@host/database`: a PostgreSQL server, for many machines
    (needs `clew[postgres]`). `memory:`: gone with the process.

    SQLite and files take `durability="full"` (every acknowledged append survives loss of power)
    or `"relaxed"` (faster on slow disks, survives only the death of the process), and
    `busy_seconds`, how long to wait for other processes that write. With `create=False` a store
    that is not there is NotFound, and nothing is made.

    `namespace="acme"` opens a part of the store for itself: its threads and blobs are invisible to
    every other namespace, and theirs to it. Without it, the namespace is `default`.
    """
    return Store(open_engine(address, **options))


def open_engine(
    address: str | os.PathLike[str] | None = None, **options: Unpack[OpenOptions]
) -> Engine:
    """The engine behind an address, for tools that work on the waist itself."""
    if is_postgres(address):
        return _postgres(str(address), {**options})
    engine, path = locate(address)
    if path is None:
        return _memory({**options})
    refuse_half_done(path)
    return (_files if engine == "files" else _sqlite)(path, {**options})


def namespaces(address: str | os.PathLike[str] | None = None) -> list[str]:
    """Every namespace of a store, the default one first. For tools: a store sees only its own."""
    with closing(open_whole(address)) as whole:
        return whole.namespaces()


def open_whole(address: str | os.PathLike[str] | None = None) -> Whole:
    """A store with all its namespaces, for tools that look after it; NotFound if there is none."""
    if is_postgres(address):
        return _postgres_whole(str(address))
    engine, path = locate(address)
    if path is None:
        raise NotFound("store", "memory:")
    refuse_half_done(path)
    return (_files_whole if engine == "files" else _sqlite_whole)(path)


def is_postgres(address: object) -> bool:
    return isinstance(address, str) and bool(re.match(r"postgres(ql)?://", address, re.I))


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
    return data_folder() / "threads.db"


def _sqlite(path: Path, options: dict[str, Any]) -> Engine:
    from clew.engines.sqlite import SQLiteEngine

    _check_options("sqlite", options, ("durability", "busy_seconds", "create", "namespace", "vfs"))
    return SQLiteEngine(path, **options)


def _sqlite_whole(path: Path) -> Whole:
    from clew.engines.sqlite.doctor import SQLiteWhole

    return SQLiteWhole(path)


def _files(path: Path, options: dict[str, Any]) -> Engine:
    from clew.engines.files import FilesEngine

    _check_options("files", options, ("durability", "busy_seconds", "create", "namespace", "disk"))
    return FilesEngine(path, **options)


def _files_whole(path: Path) -> Whole:
    from clew.engines.files.doctor import FilesWhole

    return FilesWhole(path)


def _postgres(address: str, options: dict[str, Any]) -> Engine:
    try:
        from clew.engines.postgres import PostgresEngine
    except ImportError as error:
        raise missing_postgres(error) from error

    known = (
        *("busy_seconds", "connections", "create", "migrate"),
        *("namespace", "pooler", "schema"),
    )
    _check_options("postgres", options, known)
    return PostgresEngine(address, **options)


def missing_postgres(error: ImportError) -> Unsupported:
    return Unsupported(
        f"PostgreSQL needs packages that are not installed ({error.name}); "
        "install them: pip install 'clew[postgres]'"
    )


def _postgres_whole(address: str) -> Whole:
    try:
        from clew.engines.postgres import schema
        from clew.engines.postgres.address import parse
    except ImportError as error:
        raise missing_postgres(error) from error

    found = parse(address)

    def names() -> list[str]:
        with closing(schema.connect(found, patience_seconds=30.0)) as wire:
            return schema.namespaces(wire, found)

    def open(name: str) -> Engine:
        return _postgres(address, {"namespace": name, "create": False})

    return OneByOne(found.place, names, open)


def _memory(options: dict[str, Any]) -> Engine:
    from clew.engines.memory import MemoryEngine

    _check_options("memory", options, ("create", "namespace"))
    if not options.pop("create", True):
        raise NotFound("store", "memory:")
    return MemoryEngine(**options)


def _check_options(engine: str, options: dict[str, Any], known: tuple[str, ...]) -> None:
    for name in options:
        if name not in known:
            names = ", ".join(known) or "none"
            raise InvalidInput(name, f"is not an option of the {engine} engine (it has: {names})")


# --- where the system keeps what belongs to a user: all of Clew that depends on the environment ---


def data_folder() -> Path:
    """For what must not be lost."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "clew"
    return _base("XDG_DATA_HOME", ".local", "share") / "clew"


def cache_folder() -> Path | None:
    """For what can be made again; None for a user who has no home."""
    try:
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "clew"
        return _base("XDG_CACHE_HOME", ".cache") / "clew"
    except RuntimeError:
        return None


def _base(name: str, *usual: str) -> Path:
    if sys.platform == "win32":
        name, usual = "LOCALAPPDATA", ("AppData", "Local")
    given = os.environ.get(name)
    return Path(given) if given else Path.home().joinpath(*usual)
