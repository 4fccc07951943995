"""A PostgreSQL of the benchmark's own, as durable as servers are by default; bare rows on it."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from servers.cluster import Cluster

# The servers that the tests start will do here as well.
sys.path.append(str(Path(__file__).parent.parent / "tests"))

SETTINGS = {
    "autovacuum_naptime": "1min",
    "checkpoint_timeout": "5min",
    "fsync": "on",
    "full_page_writes": "on",
    "max_wal_size": "1GB",
    "shared_buffers": "256MB",
}


@contextmanager
def server() -> Iterator[Cluster]:
    from servers.cluster import Cluster

    with Cluster(settings=SETTINGS) as cluster:
        yield cluster


def relaxed(dsn: str) -> str:
    """The same database for building: its commits do not wait for the disk."""
    return f"{dsn}{'&' if '?' in dsn else '?'}options=-csynchronous_commit%3Doff"


_WITH_HEAD = """
CREATE TABLE bare_head (no integer PRIMARY KEY, seq bigint NOT NULL) WITH (fillfactor = 50);
INSERT INTO bare_head VALUES (1, 0);
CREATE TABLE bare_journal (thread integer, seq bigint, body bytea, PRIMARY KEY (thread, seq));
CREATE FUNCTION bare_append(_at bigint, _body bytea) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  UPDATE bare_head SET seq = _at + 1 WHERE no = 1 AND seq = _at;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the head has moved';
  END IF;
  INSERT INTO bare_journal VALUES (1, _at + 1, _body);
  RETURN true;
END $$;
"""


class BareRows:
    """One row a commit through the same driver: nothing is checked, hashed or remembered."""

    def __init__(self, dsn: str) -> None:
        self._db = psycopg.connect(dsn, autocommit=True)
        self._db.execute(
            "CREATE TABLE bare (no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea)"
        )
        self._db.execute(_WITH_HEAD)
        self._cursor = self._db.cursor()

    def append_all(self, bodies: Iterable[bytes]) -> None:
        for body in bodies:
            self._cursor.execute("INSERT INTO bare (body) VALUES (%s)", (body,))

    def append_after(self, bodies: Iterable[bytes]) -> None:
        """The same, each on the head that the one before it left: what a journal needs at least."""
        (head,) = self._db.execute("SELECT seq FROM bare_head").fetchone() or (0,)
        for seq, body in enumerate(bodies, head):
            self._cursor.execute("SELECT bare_append(%s, %s)", (seq, body))

    def close(self) -> None:
        self._db.close()


def pgbench(cluster: Cluster, dsn: str, clients: int, seconds: int, body: bytes) -> float:
    """One-row commits a second, as PostgreSQL's own tool makes them."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "insert.sql"
        script.write_text(f"INSERT INTO bare (body) VALUES ('\\x{body.hex()}');\n")
        program = cluster.binaries.folder / "pgbench"
        command = [str(program), "-n", "-M", "prepared", "-c", str(clients), "-j", "2"]
        done = subprocess.run(
            [*command, "-T", str(seconds), "-f", str(script), dsn],
            check=True,
            capture_output=True,
            text=True,
        )
    found = re.search(r"tps = ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout
    return float(found[1])
