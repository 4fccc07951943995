"""LlamaIndex: a chat store, for `ChatMemoryBuffer` and whatever else takes one.

A key's messages are the thread of that id. Adding one is an append, taking the last one away a
move of the leaf, and setting them all writes what differs from what is there: what was there
before stays in the thread, on a branch of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clew.adapters._versions import require

require("llama-index-core", extra="llama-index", at_least="0.14.25", below="0.15")

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms import ChatMessage
from llama_index.core.storage.chat_store.base import BaseChatStore

from clew.adapters._histories import Said, history, last_message
from clew.adapters._stores import AnyStore, open_store
from clew.aio.hop import hop
from clew.core import drafts
from clew.core.errors import Conflict
from clew.core.model import Draft, Entry, ThreadInfo
from clew.messages.incoming import message_draft
from clew.messages.llama_index import NAME as FORMAT
from clew.store import Store
from clew.thread import Thread

__all__ = ["ClewChatStore"]

TAG = "llama-index"  # keys that have messages; a key that was deleted has lost it


class ClewChatStore(BaseChatStore):
    """Messages by key, in a store or in the store at an address.

    Keys are ids of threads, so `get_messages` reads every thread of the store;
    `get_keys` gives those that were written here.
    """

    _store: Store = PrivateAttr()
    _opened_here: bool = PrivateAttr()

    def __init__(self, store: AnyStore, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._store, self._opened_here = open_store(store)

    @classmethod
    def class_name(cls) -> str:
        return "ClewChatStore"

    def close(self) -> None:
        """Close the store, if it was given as an address."""
        if self._opened_here:
            self._store.close()

    # --- the interface ---

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Replace the messages of a key. Conflict if another writer changes them meanwhile."""
        thread = self._made(key)
        info = thread.info
        self._replace(thread, info, self._said(thread, info), list(map(_body, messages)))

    def get_messages(self, key: str) -> list[ChatMessage]:
        thread = self._store.find(key)
        said = [] if thread is None else self._said(thread, thread.info)
        return [ChatMessage.model_validate(one.body) for one in said]

    def add_message(self, key: str, message: ChatMessage, idx: int | None = None) -> None:
        """Add a message at the end: one append. Before the end, what is behind is written anew."""
        thread = self._made(key)
        if idx is None:
            added: list[Draft] = [message_draft(_body(message), FORMAT)]
            thread.write(added + self._tagged(thread.info))
            return
        info = thread.info
        said = self._said(thread, info)
        wanted = [one.body for one in said]
        wanted.insert(idx, _body(message))
        self._replace(thread, info, said, wanted)

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Begin a key anew; None if there is none. `store.purge(key)` removes what was there."""
        thread = self._store.find(key)
        info = None if thread is None else thread.info
        if thread is None or info is None or (TAG not in info.tags and info.leaf is None):
            return None
        gone = [ChatMessage.model_validate(one.body) for one in self._said(thread, info)]
        now_us = self._store.clock()
        tags = [tag for tag in info.tags if tag != TAG]
        batch: list[Draft] = [drafts.move(None, now_us)]
        batch += drafts.facts({"tags": tags or None}, now_us)
        thread.write(batch, expect=info.leaf)
        return gone

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Take one message away; None if there is none at that place."""
        thread = self._store.find(key)
        if thread is None:
            return None
        info = thread.info
        said = self._said(thread, info)
        if not -len(said) <= idx < len(said):
            return None
        wanted = [one.body for one in said]
        gone = wanted.pop(idx)
        self._replace(thread, info, said, wanted)
        return ChatMessage.model_validate(gone)

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Take the last message away, by a move of the leaf; None if there is none."""
        thread = self._store.find(key)
        while thread is not None:
            info = thread.info
            last = last_message(thread, info.leaf)
            if last is None:
                return None
            if not _is_own(last):
                return self.delete_message(key, -1)
            try:
                thread.move(last.parent, expect=info.leaf)
            except Conflict:
                continue  # another one has come: then that is the last
            return ChatMessage.model_validate(last.body)
        return None

    def get_keys(self) -> list[str]:
        infos = list(self._store.threads(tag=TAG, archived=None))
        return [info.id for info in reversed(infos)]  # the oldest first

    async def aset_messages(self, key: str, messages: list[ChatMessage]) -> None:
        await hop(self.set_messages, key, messages)

    async def aget_messages(self, key: str) -> list[ChatMessage]:
        return await hop(self.get_messages, key)

    async def async_add_message(
        self, key: str, message: ChatMessage, idx: int | None = None
    ) -> None:
        await hop(self.add_message, key, message, idx)

    async def adelete_messages(self, key: str) -> list[ChatMessage] | None:
        return await hop(self.delete_messages, key)

    async def adelete_message(self, key: str, idx: int) -> ChatMessage | None:
        return await hop(self.delete_message, key, idx)

    async def adelete_last_message(self, key: str) -> ChatMessage | None:
        return await hop(self.delete_last_message, key)

    async def aget_keys(self) -> list[str]:
        return await hop(self.get_keys)

    # --- threads ---

    def _made(self, key: str) -> Thread:
        facts = {"adapter": FORMAT, "tags": [TAG]}
        return self._store.get_or_create(key, facts=facts)

    def _tagged(self, info: ThreadInfo) -> list[Draft]:
        """What lets a key be listed, if it is not."""
        if TAG in info.tags:
            return []
        return list(drafts.facts({"tags": [*info.tags, TAG]}, self._store.clock()))

    def _said(self, thread: Thread, info: ThreadInfo) -> list[Said]:
        """The messages of a key as it stands in `info`."""
        path = [] if info.leaf is None else thread.path(info.leaf)
        return history(path, FORMAT, _is_own)

    def _replace(
        self, thread: Thread, info: ThreadInfo, said: Sequence[Said], wanted: Sequence[Any]
    ) -> None:
        """Let `wanted` stand in place of what was said, from the first difference on."""
        shared = 0
        while shared < min(len(said), len(wanted)) and said[shared].body == wanted[shared]:
            shared += 1
        # Where others wrote, one entry is not one message: such a run is written anew as a whole.
        while 0 < shared < len(said) and said[shared].entry is said[shared - 1].entry is None:
            shared -= 1
        if shared < len(said):
            begin = said[shared - 1].after.id if shared else _before(said[0])
        else:
            begin = info.leaf
        batch: list[Draft] = [message_draft(body, FORMAT) for body in wanted[shared:]]
        if begin != info.leaf:
            batch.insert(0, drafts.move(begin, self._store.clock()))
        batch += self._tagged(info)
        if batch:
            thread.write(batch, expect=info.leaf)


def _before(first: Said) -> str | None:
    """Where a thread stood before a message; before the root for what others said at the start."""
    return None if first.entry is None else first.entry.parent


def _body(message: ChatMessage) -> Any:
    # Its fields may be of any type; what JSON cannot carry is refused, and nothing is written.
    return message.model_dump(mode="json")


def _is_own(entry: Entry) -> bool:
    return entry.format == FORMAT
