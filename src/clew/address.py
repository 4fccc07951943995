"""An address becomes an engine, a Store, or the maintenance of a store.

The only module above the waist that knows engines by name.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from clew.core.engine import Engine
from clew.core.errors import InvalidInput, NotFound, Unsupported
from clew.core.maintenance import Maintenance
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
    engine, place = _locate(address)
    match engine:
        case "postgres":
            return _postgres(place, {**options})
        case "memory":
            return _memory({**options})
        case "files":
            return _files(Path(place), {**options})
        case _:
            return _sqlite(Path(place), {**options})


def maintenance(address: str | os.PathLike[str] | None = None) -> Maintenance:
    """What looks after the store at an address as a whole; see `clew.core.maintenance`.

    It need not be possible to open the store: nothing is opened here, and nothing is made.
    Unsupported: a store in memory, which nothing but its own process can see.
    """
    engine, place = _locate(address)
    match engine:
        case "postgres":
            with _postgres_installed():
                from clew.engines.postgres import doctor
            return doctor.PostgresMaintenance(place)
        case "memory":
            raise Unsupported(
                "a store in memory ends with its process: there is nothing to look after, to "
                "repair, or to bring up to date"
            )
        case "files":
            from clew.engines.files.doctor import FilesMaintenance

            return FilesMaintenance(place)
        case _:
            from clew.engines.sqlite.doctor import SQLiteMaintenance

            return SQLiteMaintenance(place)


def namespaces(address: str | os.PathLike[str] | None = None) -> list[str]:
    """Every namespace of a store, the default one first. For tools: a store sees only its own."""
    with closing(maintenance(address)) as store:
        return store.namespaces()


def is_same_store(left: str, right: str) -> bool:
    """Whether two addresses lead to the same store, as far as they themselves can tell."""
    (engine, place), (other, there) = _locate(left), _locate(right)
    if "postgres" in (engine, other):
        return left == right
    # Two stores in memory have nothing in common but their address.
    return "memory" not in (engine, other) and Path(place).resolve() == Path(there).resolve()


def default_path() -> Path:
    """The user's own store, where the system keeps such data."""
    return data_folder() / "threads.db"


def _locate(address: str | os.PathLike[str] | None) -> tuple[str, str]:
    """The name of the engine behind an address, and where its store lies: a path, or a server."""
    if address is None:
        return "sqlite", str(default_path())
    if not isinstance(address, str):
        return "sqlite", str(Path(address).expanduser())
    if not address:
        raise InvalidInput("address", "is empty; leave it out to open the default store")
    if re.match(r"postgres(ql)?://", address, re.I):
        return "postgres", address
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", address)  # two letters: C: is a drive
    if scheme is None:
        return "sqlite", str(Path(address).expanduser())
    rest = address[scheme.end() :]
    match scheme[0].lower():
        case "memory:" if not rest:
            return "memory", "memory:"
        case "sqlite:" | "files:" as name if rest.removeprefix("///"):
            return name[:-1], str(Path(rest.removeprefix("///")).expanduser())
        case _:
            known = "; ".join(_SCHEMES.values())
            raise Unsupported(
                f"{address!r} is not an address that Clew can open. Known are: {known}. "
                f"A file of that name: ./{address}"
            )


# --- engines, loaded when they are asked for ---


def _sqlite(path: Path, options: dict[str, Any]) -> Engine:
    from clew.engines.sqlite import SQLiteEngine

    _check_options("sqlite", options, ("durability", "busy_seconds", "create", "namespace", "vfs"))
    refuse_half_done(path)
    return SQLiteEngine(path, **options)


def _files(path: Path, options: dict[str, Any]) -> Engine:
    from clew.engines.files import FilesEngine

    _check_options("files", options, ("durability", "busy_seconds", "create", "namespace", "disk"))
    refuse_half_done(path)
    return FilesEngine(path, **options)


def _postgres(address: str, options: dict[str, Any]) -> Engine:
    with _postgres_installed():
        from clew.engines.postgres import PostgresEngine

    known = (
        *("busy_seconds", "connections", "create", "migrate"),
        *("namespace", "pooler", "schema"),
    )
    _check_options("postgres", options, known)
    return PostgresEngine(address, **options)


def _memory(options: dict[str, Any]) -> Engine:
    from clew.engines.memory import MemoryEngine

    _check_options("memory", options, ("create", "namespace"))
    if not options.pop("create", True):
        raise NotFound("store", "memory:")
    return MemoryEngine(**options)


@contextmanager
def _postgres_installed() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise Unsupported(
            f"PostgreSQL needs packages that are not installed ({error.name}); "
            "install them: pip install 'clew[postgres]'"
        ) from error


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
