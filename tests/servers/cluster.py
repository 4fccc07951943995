"""One PostgreSQL server of its own, which tests may stop, kill, freeze and replicate."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Protocol, Self
from urllib.parse import quote, urlencode

import psutil
import psycopg
from psycopg import sql as quoted

from servers import processes
from servers.binaries import Binaries, find_binaries
from servers.processes import wait_until

SUPERUSER = "postgres"
PORT_TRIES = 10

# Fast and small. A test of durability turns on what it tests: settings={"fsync": "on"}.
SETTINGS = {
    "autovacuum_naptime": "1h",
    "checkpoint_timeout": "1h",
    "dynamic_shared_memory_type": "mmap",  # nothing stays behind in /dev/shm after SIGKILL
    "fsync": "off",
    "full_page_writes": "off",
    "hot_standby_feedback": "on",
    "jit": "off",
    "listen_addresses": "127.0.0.1",
    "log_line_prefix": "%m [%p] %q%a ",
    "max_connections": "100",
    "max_wal_senders": "10",
    "max_wal_size": "256MB",
    "shared_buffers": "32MB",
    "wal_level": "replica",
    "wal_retrieve_retry_interval": "100ms",
}

# Everybody is trusted, but for the members of a role named with_password.
ACCESS = (
    "host all +with_password all scram-sha-256",
    "local all all trust",
    "host all all 127.0.0.1/32 trust",
    "local replication all trust",
    "host replication all 127.0.0.1/32 trust",
)


class Listening(Protocol):
    """Whatever takes clients on a port of this machine."""

    port: int


class Cluster:
    """A server and its data; `with Cluster() as cluster:` starts it and leaves nothing behind.

    `folder` holds the data if the servers' account can enter it (pytest's tmp_path cannot be
    entered when the tests run as root); otherwise, and for the socket, there is a private folder
    that goes with the server, in memory unless fsync is on. `settings` are lines of
    postgresql.conf over SETTINGS, `access` are lines of pg_hba.conf before ACCESS.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        access: Sequence[str] = (),
        name: str = "primary",
        binaries: Binaries | None = None,
    ) -> None:
        self.name = name
        self.binaries = binaries or find_binaries()
        self.settings = SETTINGS | dict(settings or {})
        in_memory = self.settings["fsync"] == "off"
        self.socket_folder = processes.private_folder("pg", memory=in_memory)
        self.data = self._home(folder) / f"{name}-data"
        self.log = self.data.with_name(f"{name}.log")
        self.port = 0
        self._access = (*access, *ACCESS)
        self._keeper: subprocess.Popen[bytes] | None = None
        self._standbys: list[Cluster] = []
        self._names = itertools.count(1)

    def _home(self, folder: Path | None) -> Path:
        if folder is None:
            return self.socket_folder
        folder.mkdir(parents=True, exist_ok=True)
        if not processes.can_enter(folder):
            return self.socket_folder
        home = folder.resolve() / f"{self.name}-server"
        home.mkdir()
        processes.hand_over(home)
        return home

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    # Starting and stopping

    def start(self) -> Self:
        """Starts the server, if it is not running, on the port it had; it answers on return."""
        if self.running:
            return self
        if not self.data.exists():
            self._initialise()
        tries = PORT_TRIES if self.port == 0 else 1
        for last in [False] * (tries - 1) + [True]:
            port, self.port = self.port, self.port or processes.free_port()
            self._write_configuration()
            said = self._said_bytes()
            self._keeper = self._spawn()
            wait_until(lambda: self._ready() or not self.running, f"{self.name} is ready")
            if self.running:
                return self
            if last or "could not bind" not in self.said(said):
                break
            self.port = port
        raise RuntimeError(f"{self.name} did not start: {self.said(said)}")

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Ends all connections and the server; `immediate` leaves it to be recovered."""
        if self.running:
            os.kill(self.pid, signal.SIGINT if mode == "fast" else signal.SIGQUIT)
            self._wait_for_end()

    def restart(self, mode: Literal["fast", "immediate"] = "fast") -> Self:
        self.stop(mode)
        return self.start()

    def kill(self) -> None:
        """SIGKILL for the postmaster and all backends at once, as when the machine dies."""
        if self.running:
            processes.end(self._keeper)

    def close(self) -> None:
        """Ends the server and its standbys and removes what they kept."""
        for standby in self._standbys:
            standby.close()
        processes.end(self._keeper)
        forget_memory(self.data)
        shutil.rmtree(self.data, ignore_errors=True)
        shutil.rmtree(self.socket_folder, ignore_errors=True)

    @property
    def running(self) -> bool:
        return self._keeper is not None and self._keeper.poll() is None

    @property
    def pid(self) -> int:
        """The postmaster's process id."""
        return int(self._pid_file()[0])

    def _initialise(self) -> None:
        processes.run(
            [
                self.binaries["initdb"],
                f"--pgdata={self.data}",
                f"--username={SUPERUSER}",
                "--auth=trust",
                "--data-checksums",
                "--encoding=UTF8",
                "--no-sync",
                *self._locale(),
            ],
            folder=self.data.parent,
            remove=self.socket_folder,
        )

    def _locale(self) -> list[str]:
        if self.binaries.major < 17:
            return ["--locale=C.UTF-8"]
        return ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]

    def _write_configuration(self) -> None:
        own = {"port": str(self.port), "unix_socket_directories": str(self.socket_folder)}
        lines = [f"{k} = {literal(v)}\n" for k, v in {**self.settings, **own}.items()]
        (self.data / "postgresql.conf").write_text("".join(lines))
        (self.data / "pg_hba.conf").write_text("".join(f"{line}\n" for line in self._access))

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = (self.binaries["postgres"], f"-D{self.data}")
        home = self.data.parent
        return processes.spawn(command, folder=home, log=self.log, remove=self.socket_folder)

    def _ready(self) -> bool:
        """The server says so in its file; an old file may be there from before a kill."""
        try:
            lines = self._pid_file()
            mine = self._keeper and psutil.Process(int(lines[0])).ppid() == self._keeper.pid
            return bool(mine) and lines[7].strip() == "ready"
        except (OSError, IndexError, psutil.NoSuchProcess):
            return False

    def _pid_file(self) -> list[str]:
        return (self.data / "postmaster.pid").read_text().splitlines()

    def _wait_for_end(self) -> None:
        assert self._keeper is not None
        self._keeper.wait(timeout=60)

    def _said_bytes(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0

    def said(self, after: int = 0) -> str:
        """The server's log, from this byte on."""
        with self.log.open("rb") as file:
            file.seek(after)
            return file.read().decode(errors="replace")

    # Breaking

    def freeze(self) -> None:
        """SIGSTOP for all of the server: connections stay open and nobody answers."""
        processes.freeze(self.pid)

    def thaw(self) -> None:
        processes.thaw(self.pid)

    def kill_backends(self, *, hard: bool = False, database: str | None = None) -> int:
        """Ends all clients' backends and tells how many there were.

        `hard` sends SIGKILL, after which the whole server drops everybody and recovers.
        """
        act = "pid" if hard else "pid, pg_terminate_backend(pid)"
        found = self.sql(
            f"SELECT {act} FROM pg_stat_activity WHERE backend_type = 'client backend'"
            " AND pid <> pg_backend_pid() AND datname = coalesce(%s, datname)",
            database,
        )
        for pid, *_ in found if hard else ():
            # The server may have ended the others already: it does when one of them is killed.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(found)

    # Talking

    def dsn(self, database: str = "postgres", user: str = SUPERUSER, **options: str) -> str:
        """The address of a database, over TCP; `options` are libpq's, such as a password."""
        return dsn_of([self], database, user, **options)

    def socket_dsn(self, database: str = "postgres", user: str = SUPERUSER) -> str:
        where = urlencode({"host": str(self.socket_folder), "port": self.port, "user": user})
        return f"postgresql:///{quote(database)}?{where}"

    def sql(
        self, query: str, *values: Any, database: str = "postgres", user: str = SUPERUSER
    ) -> list[tuple[Any, ...]]:
        """Runs one statement in a connection of its own, committed at once."""
        return run_sql(self.dsn(database, user), query, *values)

    def answers(self) -> bool:
        """Whether a connection can be had and used just now."""
        try:
            return self.sql("SELECT 1") == [(1,)]
        except psycopg.Error:
            return False

    @property
    def version(self) -> int:
        """As the server gives it: 150018 is 15.18."""
        return int(self.sql("SHOW server_version_num")[0][0])

    def create_database(self, template: str = "template1") -> str:
        """The name of a new database that looks like the template, which nobody may be using."""
        name = f"test_{os.getpid()}_{next(self._names)}"
        fast = "STRATEGY file_copy" if self.binaries.major >= 15 else ""
        self._execute(f"CREATE DATABASE {{}} TEMPLATE {{}} {fast}", name, template)
        return name

    def drop_database(self, name: str) -> None:
        """Removes a database, whoever is connected to it."""
        self._execute("DROP DATABASE {} WITH (FORCE)", name)

    def _execute(self, statement: str, *names: str) -> None:
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            parts = [quoted.Identifier(name).as_string(connection) for name in names]
            connection.execute(statement.format(*parts).encode())

    def configure(self, **settings: str) -> None:
        """Changes settings for now and later; those that need a restart wait for one."""
        self.settings |= settings
        self._write_configuration()
        before = self.sql("SELECT pg_conf_load_time()")
        os.kill(self.pid, signal.SIGHUP)
        wait_until(lambda: self.sql("SELECT pg_conf_load_time()") != before, "new settings")

    # Replication

    def standby(
        self, folder: Path | None = None, name: str = "standby", *, synchronous: bool = True
    ) -> Cluster:
        """A hot standby that streams from this server, and that it waits for if synchronous."""
        made = Cluster(folder, settings=self.settings, name=name, binaries=self.binaries)
        self._standbys.append(made)
        made.settings.pop("synchronous_standby_names", None)
        made._access = self._access
        made._copy(self)
        made.start()
        if synchronous:
            self.configure(synchronous_standby_names=name)
            self.sql("CHECKPOINT")  # whoever does this has read the settings before
        state = "sync" if synchronous else "async"
        wait_until(lambda: self._replication(name) == ("streaming", state), f"{name} is {state}")
        return made

    def _copy(self, primary: Cluster) -> None:
        """A base backup, with what is needed to follow the primary from there."""
        source = f"host={primary.socket_folder} port={primary.port} user={SUPERUSER}"
        processes.run(
            [
                self.binaries["pg_basebackup"],
                f"--pgdata={self.data}",
                f"--dbname={source} application_name={self.name}",
                "--checkpoint=fast",
                "--wal-method=stream",
                "--write-recovery-conf",
                "--no-sync",
            ],
            folder=self.data.parent,
            remove=self.socket_folder,
        )

    def _replication(self, name: str) -> tuple[str, str] | None:
        query = "SELECT state, sync_state FROM pg_stat_replication WHERE application_name = %s"
        found = self.sql(query, name)
        return (found[0][0], found[0][1]) if found else None

    def catch_up(self, primary: Cluster) -> None:
        """Returns when reads of this standby show all that the primary holds now."""
        position = primary.sql("SELECT pg_current_wal_insert_lsn()")[0][0]
        query = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        wait_until(lambda: self.sql(query, position) == [(True,)], f"{self.name} has caught up")

    def promote(self) -> None:
        """Makes a standby a primary that takes writes; it waits for nobody."""
        assert self.sql("SELECT pg_promote(true, 60)") == [(True,)]
        wait_until(lambda: self.sql("SELECT pg_is_in_recovery()") == [(False,)], "promotion")


def dsn_of(
    servers: Sequence[Listening], database: str = "postgres", user: str = SUPERUSER, **options: str
) -> str:
    """One address for several servers, for a client that looks for the one it needs."""
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    where = f"?{urlencode(options)}" if options else ""
    return f"postgresql://{quote(user)}@{hosts}/{quote(database)}{where}"


def run_sql(dsn: str, query: str, *values: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True, connect_timeout=30) as connection:
        cursor = connection.execute(query.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def forget_memory(data: Path) -> None:
    """A killed server leaves a few bytes of System V memory, which its next start removes."""
    try:
        identifier = (data / "postmaster.pid").read_text().splitlines()[6].split()[1]
    except (OSError, IndexError):
        return
    if tool := shutil.which("ipcrm"):
        subprocess.run([tool, "-m", identifier], capture_output=True, check=False)


def literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
