"""A checkpoint, and the facts that it is stored as."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct, field

from clew import _facets
from clew.codec import decode
from clew.errors import InvalidInput
from clew.model import ThreadInfo, to_time


class _Metadata(Struct, frozen=True, kw_only=True):
    run_id: str
    task_name: str = ""
    iteration: int = 0
    system_prompt: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    created_at: datetime | None = None
    updated_at: datetime | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


class Checkpoint(_Metadata, frozen=True, kw_only=True):
    """A run's resumable state. `task_name` is empty for a run without a task.

    `created_at` is the time of the first save unless you give one; `updated_at` that of the last.
    """

    messages: list[Any] = field(default_factory=list)


class CheckpointInfo(_Metadata, frozen=True, kw_only=True):
    """A checkpoint without its messages. `revision` is known to `history` only."""

    message_count: int = 0
    revision: int | None = None


def check(checkpoint: Checkpoint) -> None:
    for name in ("iteration", "input_tokens", "output_tokens"):
        _facets.check_count(getattr(checkpoint, name), name)
    for name in ("task_name", "system_prompt"):
        if not isinstance(getattr(checkpoint, name), str):
            raise InvalidInput(name, "must be text")
    if not isinstance(checkpoint.metadata, dict):
        raise InvalidInput("metadata", "must be an object")
    if not isinstance(checkpoint.messages, list):
        raise InvalidInput("messages", f"must be a list, not {type(checkpoint.messages).__name__}")


def facts_of(
    checkpoint: Checkpoint, count: int, created_us: int, updated_us: int
) -> dict[str, Any]:
    """The metadata as facts: the large and steady parts apart, so that they are written once."""
    state = {
        "task_name": checkpoint.task_name,
        "iteration": checkpoint.iteration,
        "input_tokens": checkpoint.input_tokens,
        "output_tokens": checkpoint.output_tokens,
        "created_us": created_us,
        "updated_us": updated_us,
        "message_count": count,
    }
    return {
        "system_prompt": checkpoint.system_prompt,
        "metadata": checkpoint.metadata,
        "checkpoint": state,
    }


def metadata(run_id: str, facts: Mapping[str, bytes]) -> dict[str, Any]:
    state = decode(facts["checkpoint"])
    names = ("task_name", "iteration", "input_tokens", "output_tokens")
    return {
        "run_id": run_id,
        **{name: state[name] for name in names},
        "system_prompt": decode(facts["system_prompt"]),
        "metadata": decode(facts["metadata"]),
        "created_at": to_time(state["created_us"]),
        "updated_at": to_time(state["updated_us"]),
    }


def as_info(info: ThreadInfo) -> CheckpointInfo:
    count = info.facts["checkpoint"]["message_count"]
    return CheckpointInfo(**metadata(_facets.key_of(info), info.fact_data), message_count=count)
