"""One exchange with a model, stored: its whole reply, and what the tools gave that it called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct, UnsetType

from clew import tree
from clew.context.normalise import OpenCall
from clew.core import drafts
from clew.core.errors import InvalidInput
from clew.core.model import Entry, EntryDraft
from clew.messages.incoming import message_draft, result_body
from clew.messages.neutral import calls_of, text_of
from clew.messages.response import Response, read_response

if TYPE_CHECKING:
    from clew.core.options import EntryFields
    from clew.thread import Thread

Outputs = Mapping[str, Any] | Iterable[tuple[str | OpenCall, Any]]


class Reply(Struct, frozen=True, kw_only=True):
    """A reply of the model as it was stored: what it said, what it asks for, what it cost.

    `message` is None if the model said nothing. The body of `usage` has the model, the id of the
    response, why it stopped, and the tokens. `is_partial` says that its stream was broken off.
    """

    message: Entry | None
    usage: Entry
    calls: tuple[OpenCall, ...]
    text: str
    stop_reason: str | None
    is_partial: bool = False


def append_response(
    thread: Thread,
    response: Any,
    format: str | None,
    *,
    expect: str | UnsetType | None,
    fence: int | None,
    fields: EntryFields,
) -> Reply:
    """Append the message and the usage of a response, as one step."""
    found = read_response(response, format)
    batch = reply_drafts(found, thread.store.clock, fields)
    return reply_of(found, thread.append(batch, expect=expect, fence=fence))


def reply_drafts(
    found: Response, clock: Callable[[], int], fields: EntryFields
) -> list[EntryDraft]:
    """The message of a response, if the model said something, and its usage."""
    id = fields.get("id")
    batch = []
    about: dict[str, Any] = {**fields}
    if found.message is not None:
        batch.append(message_draft(found.message, found.format, clock=clock, **fields))
        about["parent"] = UNSET  # only the first is told where it goes
    about |= {"id": None if id is None else f"{id}.usage", "blobs": (), "meta": None}
    batch.append(drafts.draft("usage", found.note, format=found.format, clock=clock, **about))
    return batch


def reply_of(found: Response, written: Sequence[Entry], *, is_partial: bool = False) -> Reply:
    """A response as it was stored, by what `reply_drafts` gave."""
    *message, usage = written
    asked = [call for one in found.said for call in calls_of(one)]
    return Reply(
        message=message[0] if message else None,
        usage=usage,
        calls=tuple([OpenCall.of(call, message[0].id) for call in asked]),
        text="".join([text_of(one) for one in found.said]),
        stop_reason=found.stop_reason,
        is_partial=is_partial,
    )


def append_results(
    thread: Thread,
    outputs: Outputs,
    *,
    expect: str | UnsetType | None,
    fence: int | None,
    fields: EntryFields,
) -> list[Entry]:
    """Append what tools gave, a message for each call, as one step."""
    given = outputs.items() if isinstance(outputs, Mapping) else outputs
    by_id = [(call.id if isinstance(call, OpenCall) else call, output) for call, output in given]
    leaf = fields.get("parent", UNSET)
    known = tree.calls(thread, [id for id, _ in by_id], leaf)
    id = fields.get("id")
    about: dict[str, Any] = {**fields}
    batch = []
    for number, (call, output) in enumerate(by_id, 1):
        if call not in known:
            reason = f"{call!r} is not a call on the path of thread {thread.id!r}"
            raise InvalidInput("outputs", reason)
        body = result_body(call, known[call].name, output)
        about["id"] = None if id is None else f"{id}.{number}"
        batch.append(message_draft(body, clock=thread.store.clock, **about))
        about["parent"] = UNSET  # only the first is told where it goes
    return thread.append(batch, expect=expect, fence=fence) if batch else []
