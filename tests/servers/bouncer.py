"""pgbouncer before a server: many clients share few connections, and sessions mean nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self

import psycopg

from servers import processes
from servers.cluster import SUPERUSER, Listening, dsn_of
from servers.processes import wait_until

MISSING = "pgbouncer is not installed: 'make test' installs Debian's if it runs as root"
PORT_TRIES = 10


def find_pgbouncer() -> Path | None:
    """The program, also where it is not on the path of ordinary users."""
    found = shutil.which(
        "pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
    )
    return Path(found) if found else None


def version(program: Path) -> tuple[int, ...]:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return tuple(int(part) for part in said.stdout.split()[1].split(".")[:2])


class Bouncer:
    """A running pgbouncer; `with Bouncer(cluster) as bouncer:` leaves nothing behind.

    It is no more lenient than Debian's 1.18: clients may not send `options` when they connect,
    and prepared statements are not followed from connection to connection.
    """

    def __init__(
        self,
        server: Listening,
        *,
        pool_mode: Literal["transaction", "session", "statement"] = "transaction",
        pool_size: int = 20,
        users: Sequence[str] = (),
    ) -> None:
        self._server = server
        self._settings = {"pool_mode": pool_mode, "default_pool_size": str(pool_size)}
        self._users = (SUPERUSER, *users)
        self._keeper: subprocess.Popen[bytes] | None = None
        self._folder = processes.private_folder("bouncer")
        self.port = 0

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> Self:
        program = find_pgbouncer()
        if program is None:
            raise FileNotFoundError(MISSING)
        for _ in range(PORT_TRIES):
            self.port = processes.free_port()
            self._write_configuration(program)
            self._keeper = processes.spawn(
                [program, self._folder / "pgbouncer.ini"],
                folder=self._folder,
                log=self._folder / "out.log",
                remove=self._folder,
            )
            wait_until(lambda: self.answers() or not self.running, "pgbouncer answers")
            if self.running:
                return self
        raise RuntimeError(f"pgbouncer did not start: {(self._folder / 'out.log').read_text()}")

    @property
    def running(self) -> bool:
        return self._keeper is not None and self._keeper.poll() is None

    def answers(self) -> bool:
        try:
            psycopg.connect(self.dsn("pgbouncer"), connect_timeout=5).close()
        except psycopg.Error:
            return False
        return True

    def close(self) -> None:
        processes.end(self._keeper)
        shutil.rmtree(self._folder, ignore_errors=True)

    def dsn(self, database: str = "postgres", user: str = SUPERUSER, **options: str) -> str:
        return dsn_of([self], database, user, **options)

    def show(self, what: str) -> list[dict[str, object]]:
        """pgbouncer's own tables: pools, servers, clients, stats, …"""
        with psycopg.connect(self.dsn("pgbouncer"), autocommit=True) as connection:
            # The console knows only simple queries without parameters.
            cursor = psycopg.ClientCursor(connection).execute(f"SHOW {what}".encode())
            names = [column.name for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor]

    def _write_configuration(self, program: Path) -> None:
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": str(self.port),
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": str(self._folder / "users"),
            "admin_users": SUPERUSER,
            "max_client_conn": "1000",
            "server_login_retry": "0",  # a server that was away is asked again at once
            **({"max_prepared_statements": "0"} if version(program) >= (1, 21) else {}),
            **self._settings,
        }
        lines = [f"{name} = {value}\n" for name, value in settings.items()]
        databases = f"[databases]\n* = host=127.0.0.1 port={self._server.port}\n"
        (self._folder / "pgbouncer.ini").write_text(f"{databases}[pgbouncer]\n{''.join(lines)}")
        (self._folder / "users").write_text("".join(f'"{user}" ""\n' for user in self._users))
