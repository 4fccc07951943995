"""Records of Claude Code: the lines of its transcripts, as its files and its Agent SDK have them.

A record of type "user" or "assistant" holds a message of Anthropic's API and is read as that
message. Records of all other types (titles, tags, attachments, snapshots of files, …) are no
messages, and neither is what Claude Code tells the user in the model's name when the API fails.

Records form a tree by `parentUuid`, which is not quite the conversation: a reply of the model is
written as a record for each block, and the result of each call hangs on the record of its call,
so that of parallel calls only one lies on the way from the end to the beginning. `Chain` knows.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from clew.core.codec import digest
from clew.core.errors import InvalidInput
from clew.messages.anthropic import read as anthropic
from clew.messages.incoming import kind_for
from clew.messages.neutral import About, Message, Usage
from clew.messages.shared.read import Malformed, checked

__all__ = [
    "NAME",
    "PROVIDER",
    "Beside",
    "Chain",
    "Usual",
    "about",
    "is_message",
    "kind_of",
    "read",
    "read_compaction",
    "read_usage",
    "time_of",
    "title_of",
]

NAME = "claude-code"
PROVIDER = "anthropic"  # in whose format a request is written

Record = dict[str, Any]


def is_message(record: Any) -> bool:
    """Whether a record is a part of the conversation with the model."""
    return (
        isinstance(record, dict)
        and record.get("type") in ("user", "assistant")
        and isinstance(record.get("message"), dict)
        and record.get("isApiErrorMessage") is not True
    )


@checked
def read(body: Any) -> list[Message]:
    """The neutral view of the message that a record holds."""
    if not is_message(body):
        raise Malformed("is not a record of Claude Code that holds a message")
    try:
        return anthropic.read(_plain(body["message"]))
    except InvalidInput as error:
        raise Malformed(error.fields["reason"], f".message{(error.path or '$')[1:]}") from None


def about(body: Record) -> About:
    """What a record tells of the call that it is a piece of."""
    return anthropic.about(body["message"]) if is_message(body) else About()


class Usual(Struct, gc=False, rename="camel"):
    """What nearly every record of a reply tells of its call; see `clew.messages.usage.in_data`."""

    type: Literal["user", "assistant"]
    message: anthropic.Usual
    is_api_error_message: None = None

    @property
    def id(self) -> str | None:
        return self.message.id

    @property
    def model(self) -> str | None:
        return self.message.model

    def tokens(self) -> Usage:
        return self.message.tokens()


def _plain(message: Record) -> Record:
    """A message as a request may hold it.

    Without references to tools, which only a request that searches tools may hold, and without the
    note that another model has taken over.
    """
    content = message.get("content")
    if not isinstance(content, list) or not any(map(_is_special, content)):
        return message
    blocks = [
        {**block, "content": [_reference(inner) for inner in block["content"]]}
        if _is_special(block)
        else block
        for block in content
        if not isinstance(block, dict) or block.get("type") != "fallback"
    ]
    return {**message, "content": blocks}


def _is_special(block: Any) -> bool:
    if not isinstance(block, dict):
        return False
    content = block.get("content")
    return block.get("type") == "fallback" or (
        isinstance(content, list)
        and any(isinstance(one, dict) and one.get("type") == "tool_reference" for one in content)
    )


def _reference(block: Any) -> Any:
    if not isinstance(block, dict) or block.get("type") != "tool_reference":
        return block
    return {"type": "text", "text": f"[the tool {block.get('tool_name')} can be called now]"}


def read_usage(usage: Any) -> Usage | None:
    """The tokens of a response. Each record of one response tells them anew: count the last."""
    return anthropic.read_usage(usage)


def is_boundary(record: Record) -> bool:
    """Whether a record says that the history was compacted: what follows it begins anew."""
    return record.get("type") == "system" and record.get("subtype") == "compact_boundary"


def read_compaction(body: Any, parent: str | None) -> dict[str, Any]:
    """A boundary as the body of a compaction: it keeps nothing, and the summary follows it."""
    return {"compaction_id": body.get("uuid"), "compacted_through_entry_id": parent}


def kind_of(record: Record) -> str:
    """The kind of entry that a record becomes, whichever way it comes."""
    if is_message(record):
        # A message that cannot be read is kept like any other record.
        try:
            return kind_for(record, NAME)
        except InvalidInput:
            return "custom"
    return "compaction" if is_boundary(record) else "custom"


def time_of(record: Record) -> datetime | None:
    """When a record says that it was made; None if it does not, or cannot be understood."""
    try:
        time = datetime.fromisoformat(record["timestamp"])
    except (KeyError, TypeError, ValueError):
        return None
    return time if time.tzinfo is not None and 1 < time.year < 9999 else None


def title_of(record: Record) -> tuple[str, str] | None:
    """The title that a record gives the session, and who made it: the user, or the model."""
    for key, source in (("customTitle", "host"), ("aiTitle", "model")):
        title = record.get(key)
        if isinstance(title, str) and title:
            return title, source
    return None


class Beside:
    """Ids for records that have none: their place beside a record that has one, and what they say.

    So the same record gets the same id, whether it comes from a file or through the SDK.
    """

    def __init__(self) -> None:
        self._repeated: dict[str, int] = {}

    def name(self, anchor: str, data: bytes) -> str:
        """`anchor` ends with "+" if the record stands behind the one of that id, else with "-"."""
        name = anchor + digest(data)[3:19]
        count = self._repeated[name] = self._repeated.get(name, 0) + 1
        return name if count == 1 else f"{name}.{count}"


def reply_of(record: Record) -> str | None:
    """The id of the response that an assistant record is a piece of."""
    message = record.get("message")
    id = message.get("id") if isinstance(message, dict) else None
    return id if record.get("type") == "assistant" and isinstance(id, str) else None


class Chain:
    """The end of a conversation, as its records arrive: on which record does the next one hang?

    Given every record in the order of the transcript, it tells the ordinary case, where a record
    goes on from the one before it, from a true branch: the user went back and asked otherwise, a
    sub-agent's records stand between, or the history was compacted and begins anew.
    """

    def __init__(self) -> None:
        self._tail: str | None = None
        # The last reply of the model: its id, its records with their results, the results alone.
        self._reply: str | None = None
        self._step: set[str] = set()
        self._results: set[str] = set()

    def take(
        self, record: Record, known: Callable[[str], bool] = lambda uuid: False
    ) -> str | UnsetType | None:
        """Go on from a record. The parent of its entry: UNSET is the end as it was.

        `known` is asked whether there is a record to branch off from. What hangs on a record that
        is not there, or not yet, goes on from the end; so does what is not in the tree.
        """
        parent = record.get("parentUuid", False)
        uuid = record.get("uuid")
        if is_boundary(record) and parent is None:
            # Its summary stands for what came before it, which it hangs on.
            before = record.get("logicalParentUuid")
            parent = before if isinstance(before, str) and known(before) else self._tail
        if not isinstance(uuid, str) or not (parent is None or isinstance(parent, str)):
            return UNSET
        is_result, reply = _is_result(record), reply_of(record)
        of_reply = reply is not None and reply == self._reply
        goes_on = (
            parent == self._tail
            or parent in self._results
            or (parent in self._step and (is_result or of_reply))
            or (parent is not None and not known(parent))
        )
        if goes_on and (is_result or of_reply):
            self._step.add(uuid)
            if is_result:
                self._results.add(uuid)
        elif not goes_on or record.get("type") in ("user", "assistant"):
            self._reply, self._step, self._results = reply, {uuid}, set()
        self._tail = uuid
        return UNSET if goes_on else parent


def _is_result(record: Record) -> bool:
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return (
        record.get("type") == "user"
        and isinstance(content, list)
        and any(isinstance(block, dict) and block.get("type") == "tool_result" for block in content)
    )
