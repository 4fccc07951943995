"""A run at work, under its lease."""

from __future__ import annotations

import os
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from clew import _facets
from clew._facets import Address
from clew.checks import check_name
from clew.errors import ClewError
from clew.model import Lease
from clew.runs.checkpoint import Checkpoint
from clew.thread import Thread

if TYPE_CHECKING:
    from clew.runs.facet import Runs


class Run:
    """A run at work: nobody else can resume or save it meanwhile.

    Change the attributes and `save`. Leaving the block after `done` deletes the checkpoint; an
    exception leaves it, and so does leaving without `done`. Entering raises LeaseHeld while
    somebody else is in the run.
    """

    def __init__(
        self,
        runs: Runs,
        at: Address,
        task_name: str | None,
        owner: str | None,
        ttl_seconds: float,
        format: str | None,
    ) -> None:
        self.run_id = at.key
        self.task_name = task_name or ""
        self.messages: list[Any] = []
        self.iteration = 0
        self.system_prompt = ""
        self.input_tokens = 0
        self.output_tokens = 0
        self.metadata: dict[str, Any] = {}
        self.resumed = False
        self._runs = runs
        self._thread = Thread(runs.store, at.thread)
        self._at = at
        self._given_name = task_name
        self._owner = check_name(owner or f"process {os.getpid()}", "owner")
        self._ttl_seconds = float(ttl_seconds)
        self._format = format
        self._lease: Lease | None = None
        self._done = False
        self._saved = False

    def __enter__(self) -> Self:
        store = self._runs.store
        if _facets.find_info(store, self._at) is None:
            _facets.ensure(store, self._at)
        self._lease = self._thread.leases.acquire(self._owner, ttl_seconds=self._ttl_seconds)
        try:
            self._resume()
        except BaseException:
            self._thread.leases.release(self._lease)
            raise
        store.renewer.add(self._lease, self._ttl_seconds)
        return self

    def _resume(self) -> None:
        checkpoint = self._runs.find(self.run_id)
        if checkpoint is None:
            return
        self.resumed = self._saved = True
        for name in ("messages", "iteration", "system_prompt", "metadata"):
            setattr(self, name, getattr(checkpoint, name))
        self.input_tokens = checkpoint.input_tokens
        self.output_tokens = checkpoint.output_tokens
        self.task_name = checkpoint.task_name if self._given_name is None else self._given_name

    def save(
        self,
        messages: list[Any] | None = None,
        *,
        iteration: int | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        system_prompt: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> Checkpoint:
        """Save the run as its attributes are; what is given here is set first.

        LeaseLost if the lease was lost: somebody else is in the run now. Nothing is written then.
        """
        given = {
            "messages": messages,
            "iteration": iteration,
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "system_prompt": system_prompt,
            "metadata": metadata,
        }
        for name, value in given.items():
            if value is not None:
                setattr(self, name, value)
        fields = {name: getattr(self, name) for name in ("run_id", "task_name", *given)}
        stored = self._runs.save_fenced(Checkpoint(**fields), self._format, self.lease.fence)
        self._saved = True
        return stored

    @property
    def lease(self) -> Lease:
        """The lease as it was taken."""
        if self._lease is None:
            raise RuntimeError("the run is not entered; use it in a with statement")
        return self._lease

    def done(self) -> None:
        """The run has succeeded: its checkpoint is deleted when the block is left."""
        self._done = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._runs.store.renewer.remove(self.lease)
        try:
            if (self._done and error is None) or not self._saved:
                self._runs.delete_fenced(self._at, self.lease.fence)
            self._thread.leases.release(self.lease)
        except ClewError as lost:
            if error is None:
                raise
            error.add_note(f"clew: the end of the run could not be written: {lost}")

    def __repr__(self) -> str:
        return f"<clew.Run {self.run_id!r} at iteration {self.iteration}>"
