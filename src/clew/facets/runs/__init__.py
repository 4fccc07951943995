"""The runs facet: one checkpoint a run, replaced at each iteration, deleted on success.

    with Runs(store).resume_or_start("nightly", task_name="report") as run:
        while not finished:
            run.messages.append(ask_model(run.messages))
            run.iteration += 1
            run.save()
        run.done()

A save writes what is new, as one atomic step: after a crash the run has the checkpoint before or
the one after. Where messages differ from the stored ones, a new branch begins there.
"""

from __future__ import annotations

from clew.facets.runs.checkpoint import Checkpoint, CheckpointInfo
from clew.facets.runs.runs import Run, Runs

__all__ = ["Checkpoint", "CheckpointInfo", "Run", "Runs"]
