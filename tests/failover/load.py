"""Worker processes that write while servers die, and what can be asked about their progress."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

from failover.ledger import Ack, Ledger
from failover.worker import Job
from servers.processes import private_folder, wait_until

import clew

WORKER = Path(__file__).with_name("worker.py")
WAIT_SECONDS = 180.0
IMPATIENT = "impatient"

THREADS = [f"thread {n}" for n in range(1, 6)]


class Load:
    """`with Load(address) as load:` makes the threads and lets everybody write.

    One of the processes gives up soon (`impatient_seconds`), so that there is something to be
    unsure of; the others leave it to the engine to get through. Another one only follows.
    """

    def __init__(
        self,
        address: str,
        *,
        impatient_seconds: float = 2.0,
        patient_seconds: float = 90.0,
        repeat_under_new_ids: bool = False,
    ) -> None:
        self.address = address
        self.folder = private_folder("load", memory=True)
        self.ledger = Ledger(self.folder / "logs")
        self._processes: list[subprocess.Popen[bytes]] = []
        patient = Job("", address, str(self.ledger.folder), THREADS, busy_seconds=patient_seconds)
        impatient = replace(patient, name=IMPATIENT, busy_seconds=impatient_seconds, writers=2)
        self._jobs = [
            replace(patient, name="patient", writers=2),
            replace(patient, name="alone"),
            replace(impatient, repeat_under_new_ids=repeat_under_new_ids),
            replace(patient, name="follower", follow=True),
        ]

    def __enter__(self) -> Self:
        try:
            self.ledger.folder.mkdir()
            with clew.open(self.address) as store:
                for id in THREADS:
                    store.create(id)
            self._processes = [self._start(job) for job in self._jobs]
            self.wait_for_acks(1)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, job: Job) -> subprocess.Popen[bytes]:
        paths = [str(Path(clew.__file__).parents[1]), *filter(None, sys.path)]
        return subprocess.Popen(
            [sys.executable, WORKER, job.to_json()],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for us
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        )

    @contextmanager
    def beside(self, job: Job) -> Iterator[None]:
        """Another writer, with an address of its own, that need not get through."""
        started = replace(job, folder=str(self.ledger.folder), threads=THREADS)
        process = self._start(started)
        try:
            self.wait_for_acks(3, writers=[f"{job.name}.0"])
            yield
        finally:
            process.kill()
            process.communicate()

    # --- progress ---

    def writers(self) -> list[str]:
        return [f"{j.name}.{n}" for j in self._jobs if not j.follow for n in range(j.writers)]

    def disappointed(self) -> list[str]:
        """Those who were to leave it to the engine to get through, and got errors instead."""
        patient = {who for who in self.writers() if not who.startswith(IMPATIENT)}
        seen = self.ledger.unavailable.items()
        return [f"{who} got {n} errors before its deadline" for who, n in seen if who in patient]

    def wait_for_acks(self, count: int, *, writers: Sequence[str] | None = None) -> None:
        """Until every one of these writers was acknowledged so many items more."""
        wanted = writers or self.writers()
        self._wait(lambda acks: not behind(wanted, acks, count), f"{count} for each of {wanted}")

    def wait_for_total(self, count: int) -> None:
        """Until so many more items were acknowledged, whoever wrote them."""
        self._wait(lambda acks: len(acks) >= count, f"{count} in all")

    def _wait(self, enough: Callable[[list[Ack]], bool], what: str) -> None:
        begun = len(self.ledger.catch_up().acks)

        def look() -> bool:
            self._check_alive()
            return enough(self.ledger.catch_up().acks[begun:])

        try:
            wait_until(look, f"acknowledgements, {what}", seconds=WAIT_SECONDS)
        except TimeoutError as error:
            for process in self._processes:
                process.send_signal(signal.SIGUSR1)  # they print where they are
            counts = Counter(ack.writer for ack in self.ledger.acks[begun:])
            raise TimeoutError(f"{error}: {dict(counts)}; {self.ledger.last_words()}") from None

    def _check_alive(self) -> None:
        for process in self._processes:
            if process.poll() is not None:
                raise RuntimeError(f"a worker ended by itself, with {process.returncode}")

    # --- the end ---

    def stop(self) -> None:
        """Let everybody finish what they are at."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(b"stop")
            process.stdin.close()
        for process in self._processes:
            process.wait(WAIT_SECONDS)
        self._processes.clear()
        self.ledger.catch_up()

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()
        self._processes.clear()
        shutil.rmtree(self.folder, ignore_errors=True)


def behind(writers: Iterable[str], acks: list[Ack], count: int) -> list[str]:
    counts = Counter(ack.writer for ack in acks)
    return [who for who in writers if counts[who] < count]
