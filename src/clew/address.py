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
from clew.core.errors import InvalidInput, NotFound, Unavailable, Unsupported
from clew.core.maintenance import Maintenance
from clew.core.parts import loading
from clew.engines.shared.swap import note_of, refuse_half_done
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
    (needs `clew[postgres]`). `memory:`, or `:memory:` as SQLite calls it: gone with the process.

    SQLite and files take `durability="full"` (every acknowledged append survives loss of power)
    or `"relaxed"` (faster on slow disks, survives only the death of the process), and
    `busy_seconds`, how long to wait for other processes that write. With `create=False` a store
    that is not there is NotFound, and nothing is made.

    `readonly=True` opens a store for looking only, also one that this process may not write: no
    file is made or touched, and every write is refused with ReadOnly. It says the same as a store
    that is open for writing. One that is not there is NotFound.

    `check_reads=True` checks every record against its hash on the way out, so that damage is
    Corrupt, with the place, and never a wrong answer; see `clew.core.checked_reads`.

    `namespace="acme"` opens a part of the store for itself: its threads and blobs are invisible to
    every other namespace, and theirs to it. Without it, the namespace is `default`.
    """
    return Store(open_engine(address, **options))


def open_engine(
    address: str | os.PathLike[str] | None = None, **options: Unpack[OpenOptions]
) -> Engine:
    """The engine behind an address, for tools that work on the waist itself."""
    engine, place = _recognise(address)
    if options.get("readonly") and options.get("create"):
        raise InvalidInput("create", "a store that is opened with readonly=True is not made")
    checks = options.pop("check_reads", False)
    match engine:
        case "postgres":
            found = _postgres(place, {**options})
        case "memory":
            found = _memory({**options})
        case "files":
            found = _files(Path(place), {**options})
        case _:
            found = _sqlite(Path(place), {**options})
    if checks:
        with loading("clew.core"):
            from clew.core.checked_reads import check_reads

        found = check_reads(found)
    if options.get("readonly"):
        with loading("clew.core"):
            from clew.core.wrapper import read_only

        return read_only(found)
    return found


def maintenance(address: str | os.PathLike[str] | None = None) -> Maintenance:
    """What looks after the store at an address as a whole; see `clew.core.maintenance`.

    It need not be possible to open the store: nothing is opened here, and nothing is made.
    Unsupported: a store in memory, which nothing but its own process can see.
    """
    engine, place = _recognise(address)
    match engine:
        case "postgres":
            with loading("clew.engines.postgres"), _postgres_installed():
                from clew.engines.postgres import doctor
            return doctor.PostgresMaintenance(place)
        case "memory":
            raise Unsupported(
                "a store in memory ends with its process: there is nothing to look after, to "
                "repair, or to bring up to date"
            )
        case "files":
            with loading("clew.engines.files"):
                from clew.engines.files.doctor import FilesMaintenance

            _refuse_strange(Path(place).absolute())
            return FilesMaintenance(place)
        case _:
            with loading("clew.engines.sqlite"):
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


def place_of(address: str | os.PathLike[str]) -> Path:
    """Where on disk the store at an address lies, or would lie.

    Unsupported: it lies on a server, or in memory.
    """
    engine, place = _recognise(address)
    if engine in ("postgres", "memory"):
        raise Unsupported("this address is no place on disk; clew copy writes to it")
    return Path(place).absolute()


def placed(address: str | os.PathLike[str], path: str) -> str:
    """The address of a store of the same kind at another place on disk."""
    return f"{_locate(address)[0]}:{path}"


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
    if address.removeprefix("sqlite:").removeprefix("///") == ":memory:":
        return "memory", "memory:"  # as SQLite calls it; a file of that name is ./:memory:
    if re.match(r"postgres(ql)?://", address, re.I):
        return "postgres", _legible(address)
    if _DATABASE.match(address):
        # A file or a folder would be made of it, with the password in its name.
        raise _unknown(address)
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
            raise _unknown(address)


# The address of a server that is not known, or misspelt, or written as libpq also takes it. A path
# that looks like one begins with ./ or /.
_DATABASE = re.compile(
    r"(?i)(?!(?:sqlite|files):///)[^./~].*?(?:\w://|\b(?:dbname|host|password)\s*=)"
)


def _unknown(address: str) -> Unsupported:
    known = "; ".join(_SCHEMES.values())
    shown = _without_secrets(address)
    told = f" A file of that name: ./{address}" if shown == address else ""
    return Unsupported(f"{shown!r} is not an address that Clew can open. Known are: {known}.{told}")


def _legible(address: str) -> str:
    try:
        address.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput("address", "has a character that is no text") from None
    return address


def _without_secrets(address: str) -> str:
    """An address for a message: databases that Clew does not know have passwords too."""
    shown = re.sub(r"(?s)(:/*)[^:/].*@", r"\1…@", address)
    return re.sub(r"(?i)([a-z_]*(?:pass|pwd|secret|token|key)[a-z_]*\s*=)[^&]*", r"\1…", shown)


# --- what lies at a path: every way in, and so every command, says the same about it ---

_NAMED_MAX = 3  # databases in a folder that are named, at most


def _recognise(address: str | os.PathLike[str] | None) -> tuple[str, str]:
    """As `_locate`. Unsupported: what lies there can be no store of that engine.

    Only names and kinds are looked at. A file is not opened: closing it again would drop the
    locks that SQLite has on it, if this process has it open.
    """
    engine, place = _locate(address)
    if engine not in ("sqlite", "files"):
        return engine, place
    path = Path(place).absolute()
    try:
        is_there, is_folder = path.exists(), path.is_dir()
    except OSError as error:
        text = f"{path} cannot be opened: {error.strerror}"
        raise Unavailable(text, retryable=False) from error
    if engine == "sqlite" and is_folder:
        raise Unsupported(_folder_text(path))
    if engine == "files" and is_there and not is_folder:
        ours = Path(f"{path}-lock").exists()  # Clew leaves one beside each of its SQLite files
        told = f"; as a SQLite file its address is {path}" if ours else ""
        raise Unsupported(f"{path} is a file, not a folder; a store of files is a folder{told}")
    return engine, place


def _folder_text(path: Path) -> str:
    if _is_marked(path):
        return f"{path} is a folder with a store of files; its address is files:{path}"
    try:
        names = sorted(os.listdir(path))
    except OSError as error:
        return f"{path} is a folder that cannot be read: {error.strerror}"
    databases = [str(path / name) for name in names if name.endswith((".db", ".sqlite"))]
    if databases:
        more = ", …" if len(databases) > _NAMED_MAX else ""
        return f"{path} is a folder; name the file in it: {', '.join(databases[:_NAMED_MAX])}{more}"
    empty = "a folder" if names else "an empty folder"
    return f"{path} is {empty}, and no store: that is a SQLite file, or a folder made as files:PATH"


def _is_marked(path: Path) -> bool:
    """Whether a folder says that it is a store of files."""
    with loading("clew.core"):
        from clew.core.lines import MARKER

    return (path / MARKER).exists()


def _refuse_strange(path: Path) -> None:
    """A folder that Clew made can be told by its marker, or by its threads if that was lost."""
    if note_of(path).exists():
        return  # a repair is to be finished, and knows what is where
    if path.is_dir() and not (_is_marked(path) or (path / "threads").is_dir()):
        raise NotFound("store", str(path))


# --- engines, loaded when they are asked for ---


_LOCAL = ("durability", "busy_seconds", "create", "namespace", "readonly")


def _sqlite(path: Path, options: dict[str, Any]) -> Engine:
    with loading("clew.engines.sqlite"):
        from clew.engines.sqlite import SQLiteEngine

    _check_options("sqlite", options, (*_LOCAL, "vfs"))
    refuse_half_done(path)
    return SQLiteEngine(path, **options)


def _files(path: Path, options: dict[str, Any]) -> Engine:
    with loading("clew.engines.files"):
        from clew.engines.files import FilesEngine

    _check_options("files", options, (*_LOCAL, "disk"))
    refuse_half_done(path)
    return FilesEngine(path, **options)


def _postgres(address: str, options: dict[str, Any]) -> Engine:
    with loading("clew.engines.postgres"), _postgres_installed():
        from clew.engines.postgres import PostgresEngine

    known = (
        *("busy_seconds", "connections", "create", "migrate"),
        *("namespace", "pooler", "readonly", "schema"),
    )
    _check_options("postgres", options, known)
    return PostgresEngine(address, **options)


def _memory(options: dict[str, Any]) -> Engine:
    with loading("clew.engines.memory"):
        from clew.engines.memory import MemoryEngine

    _check_options("memory", options, ("create", "namespace", "readonly"))
    options.pop("readonly", None)  # an empty one, to look at
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


def state_folder() -> Path | None:
    """For what this machine must remember, and no other one can; None for a user without a home."""
    try:
        if sys.platform == "darwin":
            return data_folder() / "state"
        return _base("XDG_STATE_HOME", ".local", "state") / "clew"
    except RuntimeError:
        return None


def cache_folder() -> Path | None:
    """For what can be made again; None for a user who has no home."""
    try:
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "clew"
        return _base("XDG_CACHE_HOME", ".cache") / "clew"
    except RuntimeError:
        return None


def make_folders(folder: Path) -> None:
    """Each one that is missing, for its owner alone; `mkdir` gives those in between other rights.

    Who may write in one of them may put others in the place of those below.
    """
    if not folder.is_dir():
        make_folders(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _base(name: str, *usual: str) -> Path:
    if sys.platform == "win32":
        name, usual = "LOCALAPPDATA", ("AppData", "Local")
    given = os.environ.get(name)
    return Path(given) if given else Path.home().joinpath(*usual)
