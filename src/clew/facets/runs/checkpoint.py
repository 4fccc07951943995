"""A checkpoint, the facts that it is stored as, and the batch that saves one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Self

from msgspec import Struct, field
from msgspec.structs import replace

from clew.core import drafts
from clew.core.errors import InvalidInput
from clew.core.model import Draft, Entry, Fact, Move, ThreadInfo, to_time, to_us
from clew.facets import _base
from clew.messages.incoming import message_drafts
from clew.store import Store
from clew.thread import Thread

FACET = "run"


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

    `created_at` is what you give, at every save; without one it is the time of the first save.
    `updated_at` is the time of the last save, whatever you give.
    """

    messages: list[Any] = field(default_factory=list)

    def replace(self, **changes: Any) -> Self:
        """The same checkpoint with other values, to be saved: `replace(iteration=3)`."""
        try:
            return replace(self, **changes)
        except TypeError as error:
            raise InvalidInput("checkpoint", str(error)) from None


class CheckpointInfo(_Metadata, frozen=True, kw_only=True):
    """A checkpoint without its messages. `revision` is known to `history` only.

    `thread` is the id of the thread behind it. `damaged` says what of it cannot be read, and None
    that all can; fields that cannot be read have the value of an empty checkpoint.
    """

    message_count: int = 0
    revision: int | None = None
    thread: str = ""
    damaged: str | None = None


def check(checkpoint: Checkpoint) -> None:
    """A checkpoint that can be stored, or InvalidInput that names the field."""
    for name in ("iteration", "input_tokens", "output_tokens"):
        _base.check_count(getattr(checkpoint, name), name)
    for name in ("task_name", "system_prompt"):
        if not isinstance(getattr(checkpoint, name), str):
            raise InvalidInput(name, "must be text")
    if not isinstance(checkpoint.metadata, dict):
        raise InvalidInput("metadata", "must be an object")
    if not isinstance(checkpoint.messages, list):
        raise InvalidInput("messages", f"must be a list, not {type(checkpoint.messages).__name__}")


# --- a checkpoint as facts --------------------------------------------------------------------


class _State(Struct):
    """The fact `checkpoint`: what every save changes."""

    task_name: str
    iteration: int
    input_tokens: int
    output_tokens: int
    created_us: _base.TimeUs
    updated_us: _base.TimeUs
    message_count: int


_SHAPES = {"checkpoint": _State, "system_prompt": str, "metadata": dict[str, Any]}


def facts_of(checkpoint: _Metadata, count: int, created_us: int, updated_us: int) -> dict[str, Any]:
    """The metadata as facts: the large and steady parts apart, so that they are written once."""
    # Last in the batch: `revisions` takes a save to be complete when it meets this one.
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


def is_saved(info: ThreadInfo) -> bool:
    """Whether a run has a checkpoint; a damaged one is one, too."""
    return "checkpoint" in info.fact_data or info.damaged is not None


def as_info(info: ThreadInfo) -> CheckpointInfo:
    """What the facts of a run's thread say."""
    values, damaged = _base.read_facts(info, _SHAPES)
    state = values.pop("checkpoint", None)
    found = CheckpointInfo(
        run_id=_base.key_of(info),
        created_at=info.created_at,
        updated_at=info.updated_at,
        thread=info.id,
        damaged=_base.damage_of(info, damaged),
        **values,
    )
    if state is None:
        return found
    return replace(
        found,
        task_name=state.task_name,
        iteration=state.iteration,
        input_tokens=state.input_tokens,
        output_tokens=state.output_tokens,
        created_at=to_time(state.created_us),
        updated_at=to_time(state.updated_us),
        message_count=state.message_count,
    )


def from_info(info: ThreadInfo, messages: list[Any]) -> Checkpoint:
    """A checkpoint with these messages. Corrupt if a fact that belongs to it is damaged."""
    found = as_info(info)
    _base.check_whole(
        f"run {found.run_id!r}",
        _base.read_facts(info, _SHAPES)[1],
        "`history` has the checkpoints before it; to save one makes it the run's checkpoint",
    )
    names = _Metadata.__struct_fields__
    return Checkpoint(**{name: getattr(found, name) for name in names}, messages=messages)


def messages_to(thread: Thread, leaf: str | None) -> list[Entry]:
    """The messages on the path to an entry."""
    return [entry for entry in thread.path(leaf) if _base.is_message(entry)]


class Revision(Struct, frozen=True):
    """One of the checkpoints that a run has had: the thread as it was, and the save's number."""

    info: ThreadInfo
    seq: int


def revisions(store: Store, info: ThreadInfo) -> Iterator[Revision]:
    """Every checkpoint that a run has had, oldest first. Reads its whole log."""
    facts: dict[str, bytes] = {}
    leaf = None if info.origin is None else info.origin.entry
    for record in Thread(store, info.id).read():
        if isinstance(record, Entry):
            leaf = record.id
        elif isinstance(record, Move):
            leaf = record.leaf
        elif isinstance(record, Fact):
            facts[record.key] = record.data
            # The last fact of a save, so all others are known and the leaf is that save's.
            if record.key == "checkpoint" and record.data != b"null":
                then = replace(
                    info, leaf=leaf, fact_data=dict(facts), lost_facts={}, unreadable=None
                )
                yield Revision(then, record.seq)


def forked_facts(store: Store, info: ThreadInfo, entry: str | None, now_us: int) -> dict[str, Any]:
    """The checkpoint of a fork: that of the last save on the path which the fork shares."""
    if not is_saved(info):
        return {}
    found = as_info(info)
    if entry == info.leaf and found.damaged is None:
        count = found.message_count
    else:
        path = Thread(store, info.id).path(entry)
        ids = {one.id for one in path}
        count = sum(map(_base.is_message, path))
        saves = [as_info(one.info) for one in revisions(store, info) if one.info.leaf in ids]
        whole = [save for save in saves if save.damaged is None]
        found = whole[-1] if whole else CheckpointInfo(run_id="", created_at=to_time(now_us))
    assert found.created_at is not None
    return facts_of(found, count, to_us(found.created_at), now_us)


# --- one save -------------------------------------------------------------------------------


class StoredRun(Struct, kw_only=True):
    """What is stored of a run, as far as this process knows: true while the leaf is this one."""

    thread: str
    leaf: str | None
    messages: list[Any] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    erased: dict[int, str] = field(default_factory=dict)  # by place: the hashes that they had
    facts: dict[str, Any] = field(default_factory=dict)
    created_us: int | None = None
    deleted: ThreadInfo | None = None


class RunSave:
    """What one save writes (`batch`), and what is stored after it.

    Every save leaves the thread on an entry that was not there before, so that an unchanged leaf
    means that no other process has saved.
    """

    def __init__(
        self, checkpoint: Checkpoint, stored: StoredRun, format: str | None, now_us: int
    ) -> None:
        common = _base.shared(stored.messages, checkpoint.messages, stored.erased)
        self._stored = stored
        self._common = common
        self._rest = checkpoint.messages[common:]
        new = message_drafts(self._rest, format, start=common, clock=lambda: now_us)
        marker = {"status": "save_point"}
        self._new = new or [drafts.draft("turn_marker", marker, clock=lambda: now_us)]
        if checkpoint.created_at is not None:
            created_us = to_us(checkpoint.created_at, "created_at")
        else:
            created_us = now_us if stored.created_us is None else stored.created_us
        self._created_us = created_us
        self._facts = facts_of(checkpoint, len(checkpoint.messages), created_us, now_us)
        known = stored.facts
        changed = {k: v for k, v in self._facts.items() if k not in known or known[k] != v}
        self.batch: list[Draft] = [
            *_way_back(stored, common, now_us),
            *self._new,
            *drafts.facts(changed, now_us),
        ]
        self.checkpoint = replace(
            checkpoint, created_at=to_time(created_us), updated_at=to_time(now_us)
        )

    def after(self) -> StoredRun:
        """What is stored once the batch is."""
        messages, ids = self._stored.messages, self._stored.ids
        if self._common < len(messages):
            messages, ids = messages[: self._common], ids[: self._common]
        # In place where nothing was dropped: a save must not cost more the longer a run gets.
        messages += _base.copied(self._rest)  # callers go on changing theirs
        ids += [draft.id for draft in self._new[: len(self._rest)]]
        facts = self._facts | {"metadata": _base.copied(self._facts["metadata"])}
        return StoredRun(
            thread=self._stored.thread,
            leaf=self._new[-1].id,
            messages=messages,
            ids=ids,
            erased={n: was for n, was in self._stored.erased.items() if n < self._common},
            facts=facts,
            created_us=self._created_us,
        )


def _way_back(stored: StoredRun, common: int, now_us: int) -> list[Draft]:
    """Go to where the messages begin to differ."""
    if stored.deleted is not None:
        return _base.revival(stored.deleted, now_us)
    if common == len(stored.messages):
        return []
    return [drafts.move(stored.ids[common - 1] if common else None, now_us)]
