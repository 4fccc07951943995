"""Where in the virtual machine each engine has its store, and what must be there before it is.

What the machine shall do is data, which lies in its memory as a file: the address of the store, the
options to open it with, and the server that is started first, if the engine needs one.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faults.archive import Archive

if TYPE_CHECKING:
    from servers.binaries import Binaries

MEGABYTE = 1024 * 1024
# What Clew itself needs; a place may need more.
PACKAGES = ("apsw", "msgspec", "blake3", "pathspec", "backports", "typing_extensions")
CLIENT = ("psycopg", "psycopg_binary", "psycopg_pool")


class Missing(Exception):
    """Why there can be no virtual machine here, or not with this engine in it."""


@dataclass(frozen=True)
class Opening:
    """How the store is opened, for one meaning of an acknowledgement."""

    address: str
    options: Mapping[str, str]


@dataclass(frozen=True)
class Server:
    """What is started before the store can be opened, as the owner of its data."""

    command: list[str]
    data: str
    ready: str  # what its log says when it takes clients
    recovered: str  # what its log says if the power was cut
    often: str  # what it is asked to do all the time, while the writers write


@dataclass(frozen=True)
class Prepared:
    """What the disk holds before the first boot, and the server that works on it."""

    disk: Path | None = None
    server: Server | None = None


@contextmanager
def nothing(_: Archive) -> Iterator[Prepared]:
    """The engine makes its store itself."""
    yield Prepared()


@dataclass(frozen=True)
class Place:
    openings: Mapping[str, Opening]  # by the durability that the store must say it has
    packages: tuple[str, ...] = PACKAGES
    disk_bytes: int = 64 * MEGABYTE
    check: Callable[[], object] = lambda: None  # raises Missing
    prepare: Callable[[Archive], AbstractContextManager[Prepared]] = nothing

    def task(self, durability: str, writers: int, prepared: Prepared) -> dict[str, Any]:
        """What the first program in the machine is told."""
        server = prepared.server and asdict(prepared.server)
        opening = asdict(self.openings[durability])
        return opening | {"durability": durability, "writers": writers, "server": server}


# --- PostgreSQL: its server is made and started once here, and stopped; the machine goes on with it

# The defaults, which the servers of other tests do without, and a log that leaves the disk small.
SETTINGS = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}
SETTINGS |= {"min_wal_size": "32MB", "max_wal_size": "64MB"}
SOCKETS = "/tmp"
LOCALE = Path("/usr/lib/locale/C.utf8")  # of servers that have none built in
ADDRESS = f"postgresql:///postgres?host={SOCKETS}&user=postgres"


def find_server() -> Binaries:
    """The server that the tests use; Missing says why there is none."""
    without = [name for name in CLIENT if importlib.util.find_spec(name) is None]
    if without:
        raise Missing(f"{' and '.join(without)} cannot be imported: clew[test] has it")
    try:
        from servers.binaries import find_binaries

        return find_binaries()
    except (ImportError, RuntimeError) as reason:
        raise Missing(str(reason)) from reason


@contextmanager
def postgres(archive: Archive) -> Iterator[Prepared]:
    """A new cluster, stopped in order, and of the programs the one that serves it."""
    binaries = find_server()
    from servers.cluster import Cluster

    with Cluster(settings=SETTINGS, name="pg", binaries=binaries) as cluster:
        found: dict[str, str] = dict(cluster.sql("SELECT name, setting FROM pg_config"))
        cluster.stop()
        # It asks for the folder of its libraries; of these it loads one at most, and not the one
        # that compiles, with a compiler in it.
        program, language = binaries["postgres"], Path(found["PKGLIBDIR"]) / "plpgsql.so"
        for file in (program, language):
            archive.add_file(file, file)
        for folder in (Path(found["SHAREDIR"]) / "timezonesets", LOCALE):
            archive.add_tree(folder, folder)
        data = f"/disk/{cluster.data.name}"
        own = {"unix_socket_directories": SOCKETS, "listen_addresses": "", "port": "5432"}
        yield Prepared(
            disk=cluster.data.parent,
            server=Server(
                command=[str(program), "-D", data, *(f"--{k}={v}" for k, v in own.items())],
                data=data,
                ready="database system is ready to accept connections",
                recovered="automatic recovery in progress",
                # No machine lives until the first by itself, and cuts shall fall into them too.
                often="CHECKPOINT",
            ),
        )


PLACES = {
    "sqlite": Place({d: Opening("/disk/s.db", {"durability": d}) for d in ("full", "relaxed")}),
    "files": Place(
        {d: Opening("files:/disk/store", {"durability": d}) for d in ("full", "relaxed")}
    ),
    # Here it is the server that knows: it is asked for another one in the address.
    "postgres": Place(
        {
            "full": Opening(ADDRESS, {}),
            "relaxed": Opening(f"{ADDRESS}&options=-csynchronous_commit%3Doff", {}),
        },
        packages=PACKAGES + CLIENT,
        disk_bytes=192 * MEGABYTE,
        check=find_server,
        prepare=postgres,
    ),
}
