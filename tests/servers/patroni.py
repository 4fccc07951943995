"""Three PostgreSQL servers that Patroni and etcd keep one leader among; for `make torture`."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import psycopg

from servers import processes
from servers.binaries import Binaries, find_binaries
from servers.cluster import ACCESS, SUPERUSER, dsn_of, forget_memory, run_sql
from servers.processes import wait_until

SCOPE = "clew"
START_SECONDS = 120

# The shortest times that Patroni allows: a dead leader is replaced after at most ttl.
TIMES = {"ttl": 20, "loop_wait": 1, "retry_timeout": 3, "primary_start_timeout": 0}


def why_not() -> str | None:
    """What is missing, if Patroni cannot be started here."""
    if importlib.util.find_spec("patroni") is None:
        return "PyPI's patroni is not installed: 'make torture' installs it"
    if shutil.which("etcd") is None:
        return "etcd is not installed: 'make torture' installs Debian's if it runs as root"
    if needs_rights() and shutil.which("setpriv") is None:
        return f"the servers' account cannot run {sys.executable}, and there is no setpriv"
    return None


def needs_rights() -> bool:
    """Whether Python or Patroni lie where the servers' account cannot enter."""
    spec = importlib.util.find_spec("patroni")
    assert spec is not None
    assert spec.origin is not None
    return not all(processes.can_enter(Path(p)) for p in (sys.executable, Path(spec.origin).parent))


class Node:
    """One server and the Patroni that looks after it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder / name
        self.port = processes.free_port()
        self.rest_port = processes.free_port()
        self.keeper: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.folder.with_suffix(".log")

    @property
    def running(self) -> bool:
        return self.keeper is not None and self.keeper.poll() is None

    def leads(self) -> bool:
        """Whether it says that it holds the lock and takes writes; a frozen one says nothing."""
        try:
            url = f"http://127.0.0.1:{self.rest_port}/primary"
            with urllib.request.urlopen(url, timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def sql(self, query: str, *values: Any, database: str = "postgres") -> list[tuple[Any, ...]]:
        return run_sql(dsn_of([self], database), query, *values)


class Patroni:
    """`with Patroni() as group:` has a leader and a synchronous standby; it leaves nothing.

    `settings` are PostgreSQL's; fsync is on unless they say otherwise. `strict` stops writes
    when there is no standby left to wait for.
    """

    def __init__(
        self,
        *,
        nodes: int = 3,
        synchronous: bool = True,
        strict: bool = False,
        settings: Mapping[str, str] | None = None,
        binaries: Binaries | None = None,
    ) -> None:
        self.binaries = binaries or find_binaries()
        self.folder = processes.private_folder("patroni")
        self.nodes = [Node(f"node{number}", self.folder) for number in range(1, nodes + 1)]
        self._synchronous = synchronous
        self._strict = strict
        self._settings = dict(settings or {})
        self._etcd: subprocess.Popen[bytes] | None = None
        self._etcd_port = processes.free_port()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> Self:
        if reason := why_not():
            raise FileNotFoundError(reason)
        self._start_etcd()
        for node in self.nodes:
            self.start_node(node)
        self.wait_for_leader()
        self.wait_for_standbys(len(self.nodes) - 1)
        return self

    def start_node(self, node: Node) -> None:
        """Starts a node that never ran or was killed; it joins the others by itself."""
        node.folder.mkdir(exist_ok=True)
        processes.hand_over(node.folder)
        path = node.folder / "patroni.json"  # which is YAML, too
        path.write_text(json.dumps(self._configuration(node), indent=1))
        command = [sys.executable, "-m", "patroni", str(path)]
        node.keeper = processes.spawn(
            command,
            folder=node.folder,
            log=node.log,
            remove=self.folder,
            enters_all=needs_rights(),
        )

    def close(self) -> None:
        for keeper in (*(node.keeper for node in self.nodes), self._etcd):
            processes.end(keeper)
        for node in self.nodes:
            forget_memory(node.folder / "data")
        shutil.rmtree(self.folder, ignore_errors=True)

    def dsn(self, database: str = "postgres", user: str = SUPERUSER, **options: str) -> str:
        """All servers; the client looks for the one that takes writes."""
        chosen = {"target_session_attrs": "read-write", **options}
        return dsn_of(self.nodes, database, user, **chosen)

    # Who leads

    def leader(self) -> Node | None:
        return next((node for node in self.nodes if node.leads()), None)

    def wait_for_leader(self, *, other_than: Node | None = None) -> Node:
        """The leader, as soon as there is one."""
        found: list[Node] = []

        def look() -> bool:
            found[:] = [node for node in self.nodes if node is not other_than and node.leads()]
            return bool(found)

        self._wait(look, "a leader")
        return found[0]

    def wait_for_standbys(self, count: int) -> None:
        """Returns when so many standbys stream, one of them synchronous if that was asked for."""
        query = "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'"

        def look() -> bool:
            try:
                leader = self.leader()
                states = [row[0] for row in leader.sql(query)] if leader else []
            except psycopg.Error:
                return False
            return len(states) >= count and ("sync" in states or not self._synchronous)

        self._wait(look, f"{count} standbys stream")

    # Breaking

    def kill_leader(self) -> Node:
        """SIGKILL for the leader's server and its Patroni at once, as when the machine dies."""
        node = self.wait_for_leader()
        processes.end(node.keeper)
        return node

    def freeze_leader(self) -> Node:
        """SIGSTOP for the leader's server and its Patroni; `thaw` wakes it, deposed by then."""
        node = self.wait_for_leader()
        assert node.keeper is not None
        processes.freeze(*processes.kept_by(node.keeper))
        return node

    def thaw(self, node: Node) -> None:
        assert node.keeper is not None
        processes.thaw(*processes.kept_by(node.keeper))

    # Inside

    def _wait(self, look: Any, what: str) -> None:
        wait_until(look, what, seconds=START_SECONDS, every=0.1)

    def _start_etcd(self) -> None:
        here, peers = (
            f"http://127.0.0.1:{port}" for port in (self._etcd_port, processes.free_port())
        )
        command = [
            str(shutil.which("etcd")),
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={here}",
            f"--advertise-client-urls={here}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--enable-v2=false",
        ]
        log = self.folder / "etcd.log"
        self._etcd = processes.spawn(command, folder=self.folder, log=log, remove=self.folder)
        self._wait(lambda: healthy(f"{here}/health"), "etcd is healthy")

    def _configuration(self, node: Node) -> dict[str, Any]:
        address = f"127.0.0.1:{node.port}"
        rest = f"127.0.0.1:{node.rest_port}"
        user = {"username": SUPERUSER, "password": "unused"}
        return {
            "scope": SCOPE,
            "name": node.name,
            "restapi": {"listen": rest, "connect_address": rest},
            "etcd3": {"hosts": [f"127.0.0.1:{self._etcd_port}"]},
            "bootstrap": {
                "dcs": self._group_settings(),
                "initdb": [{"encoding": "UTF8"}, {"locale": "C.UTF-8"}, "data-checksums"],
            },
            "postgresql": {
                "listen": address,
                "connect_address": address,
                "bin_dir": str(self.binaries.folder),
                "data_dir": str(node.folder / "data"),
                "pgpass": str(node.folder / "pgpass"),
                "authentication": {"superuser": user, "replication": user, "rewind": user},
                "pg_hba": list(ACCESS),
                "parameters": {"unix_socket_directories": str(node.folder)},
            },
        }

    def _group_settings(self) -> dict[str, Any]:
        parameters = {
            "dynamic_shared_memory_type": "mmap",
            "max_connections": "100",
            "shared_buffers": "32MB",
            "wal_keep_size": "256MB",
            **self._settings,
        }
        return TIMES | {
            "synchronous_mode": self._synchronous,
            "synchronous_mode_strict": self._strict,
            "postgresql": {"use_pg_rewind": True, "parameters": parameters},
        }


def healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:
            return b"true" in answer.read()
    except OSError:
        return False
