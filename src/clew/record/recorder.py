"""What a recorded client has to find out: which messages of a request are new, and where they go.

A request says the whole conversation again. What of it the thread has already is found by what
the messages say (who speaks, the words, the calls, the results, the media), not by how they are
spelled: a cache mark, a text in place of a list of blocks or thinking that was left out makes no
other message. System messages are looked at by themselves, since programs change them at will.

- A request that goes on from where the thread stands adds what is new. So does one that left out
  the oldest messages, or that was made from the thread's own context.
- One that shares its beginning with the thread and then says something else is a branch: the
  thread steps back to the last message in common, and goes on from there. So does a request that
  was sent once more, for another reply.
- One that shares nothing with a thread that holds messages is refused, before it is sent.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from clew import messages
from clew.context.normalise import CONTINUE
from clew.context.window import MESSAGE_KINDS
from clew.core.errors import Conflict
from clew.core.model import Entry
from clew.messages.incoming import message_draft
from clew.messages.likeness import key, spoken
from clew.messages.neutral import Message, Text
from clew.messages.sdk_objects import as_body
from clew.thread import Thread
from clew.turn import Turn


class _Said(Struct, frozen=True):
    """A part of a conversation: what it says, and which entry or which message it is from."""

    key: str
    source: Any


class Recorder:
    """Writes one conversation into a thread, for one client. Its calls may come from any thread."""

    def __init__(self, target: Thread | Turn, format: str) -> None:
        self._target = target  # a turn writes under its lease
        self._thread = target.thread if isinstance(target, Turn) else target
        self.format = format
        self._mutex = threading.Lock()
        # What the path says, as long as the thread stands where it stood.
        self._leaf: Any = UNSET
        self._known: list[_Said] = []
        self._systems: set[str] = set()

    # --- a request ---

    def begin(
        self, given: Sequence[Any], *, is_whole: bool = True, after_response: str | None = None
    ) -> str | None:
        """Append what a request says anew; the entry that its reply will follow.

        One that is not whole says nothing again, because the provider keeps what was before: all
        of it follows the leaf, or the response with an id. Conflict if the request does not belong
        to this thread; nothing is written then.
        """
        bodies = [as_body(message) for message in given]
        with self._mutex:
            self._catch_up()
            place, first = self._place(bodies) if is_whole else (UNSET, 0)
            if after_response is not None:
                place = self._after_response(after_response)
            batch = [
                message_draft(body, self.format, clock=self._thread.store.clock, once=True)
                for index, body in enumerate(bodies)
                if self._is_new(body, index >= first)
            ]
            if batch:
                if place is not UNSET:
                    batch[0] = replace(batch[0], parent=place)
                self._note(self._target.append(batch))
            elif place is not UNSET:
                self._target.move(place)
                self._leaf = UNSET
            return self._thread.leaf if self._leaf is UNSET else self._leaf

    def end(self, response: Any, parent: str | None) -> None:
        """Append a reply behind its request."""
        with self._mutex:
            self._catch_up()
            place = UNSET if parent == self._leaf else parent
            reply = self._target.append_response(response, format=self.format, parent=place)
            if place is not UNSET:
                self._leaf = UNSET  # another program wrote meanwhile: this is a branch beside it
                return
            self._note([reply.usage] if reply.message is None else [reply.message, reply.usage])

    def _is_new(self, body: Any, comes_after: bool) -> bool:
        """Whether a message is to be stored: if it comes after what is known, or is a system's."""
        found = self._view(body)
        if not found or any(message.role != "system" for message in found):
            return comes_after
        return not {key(m.role, part) for m in found for part in m.parts} <= self._systems

    # --- where a request belongs ---

    def _place(self, bodies: Sequence[Any]) -> tuple[Any, int]:
        """Behind which entry a request goes on (unset: the leaf), and its first new message."""
        asked = [
            _Said(said.key, index)
            for index, body in enumerate(bodies)
            for said in _parts(self._view(body), index)
        ]
        known = self._known
        shared = _common(known, asked)
        if shared == len(known) and _is_border(asked, shared):
            return UNSET, _first_after(asked, shared)
        for start in range(1, len(known)):  # without the oldest messages
            kept = len(known) - start
            begins = asked and known[start].key == asked[0].key and _is_border(known, start)
            if begins and _common(known[start:], asked) == kept and _is_border(asked, kept):
                return UNSET, _first_after(asked, kept)
        context = self._context()
        if context and _common(context, asked) == len(context) and _is_border(asked, len(context)):
            return UNSET, _first_after(asked, len(context))
        while shared and not (_is_border(asked, shared) and _is_border(known, shared)):
            shared -= 1
        if shared == 0:
            raise Conflict(
                f"the request shares no message with thread {self._thread.id!r}, which holds a "
                "conversation already; nothing was sent or written. Record it in a thread of its "
                "own, or send it by the client that is not recorded",
                expected=None if not known else known[0].source,
                actual=None,
                field="messages",
            )
        return known[shared - 1].source, _first_after(asked, shared)

    def _after_response(self, id: str) -> Any:
        """The usage entry of a response on the path; unset if the thread stands on it."""
        leaf, size = self._leaf, 64  # most often it is the last one
        while leaf is not None:
            path = self._thread.path(leaf, limit=size)
            for entry in reversed(path):
                if entry.kind == "usage" and entry.body.get("response_id") == id:
                    return UNSET if entry.id == self._leaf else entry.id
            leaf, size = path[0].parent, size * 4
        raise Conflict(
            f"the request goes on from response {id!r}, which is not in thread "
            f"{self._thread.id!r}; nothing was sent or written",
            expected=None,
            actual=id,
            field="previous_response_id",
        )

    def _context(self) -> list[_Said]:
        """What the thread itself would have sent: the way of those who resume from it."""
        sent = self._thread.context(self.format).messages
        found = [said for body in sent for said in _parts(self._view(body), None)]
        return found[:-1] if found and found[-1].key == _GO_ON else found

    # --- what the thread says ---

    def _catch_up(self) -> None:
        """Read the path, unless the thread stands where this recorder left it."""
        leaf = self._thread.leaf
        if leaf != self._leaf:
            self._known, self._systems = [], set()
            self._note(self._thread.path())
            self._leaf = leaf

    def _note(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._leaf = entry.id
            if entry.kind in MESSAGE_KINDS:
                found = messages.view(entry.format, entry.body)
                self._known += _parts(found, entry.id)
                told = [message for message in found if message.role == "system"]
                self._systems |= {key(m.role, part) for m in told for part in m.parts}

    def _view(self, body: Any) -> list[Message]:
        return messages.view(self.format, body)


# --- what is compared -----------------------------------------------------------------------


def _parts(found: Iterable[Message], source: Any) -> Iterator[_Said]:
    for message in found:
        if message.role != "system":
            for part in spoken(message):
                yield _Said(key(message.role, part), source)


def _common(left: Sequence[_Said], right: Sequence[_Said]) -> int:
    """How many parts two conversations have in common, from the beginning."""
    count = 0
    for one, other in zip(left, right, strict=False):
        if one.key != other.key:
            break
        count += 1
    return count


def _is_border(parts: Sequence[_Said], place: int) -> bool:
    """Whether a message ends before this place, and another one begins there, if any."""
    if place in (0, len(parts)):
        return True
    return bool(parts[place - 1].source != parts[place].source)


def _first_after(asked: Sequence[_Said], place: int) -> int:
    """The index of the first message that begins behind a place.

    A context may end with words that were put into the user's mouth, which nobody said.
    """
    if place == 0:
        return 0
    if asked[place:] and asked[place].key == _GO_ON and _is_border(asked, place + 1):
        place += 1
    return int(asked[place - 1].source) + 1


_GO_ON = key("user", Text(text=CONTINUE))
