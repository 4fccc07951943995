"""The conversation facet: messages under a key, for agent loops that want no more than that.

    conversation = Conversations(store).get("telegram:123")
    conversation.add("user", "Hello")
    conversation.history()

A key is any non-empty string, and no two keys share anything. Every write is durable when it
returns. `truncate` and `set_history` remove nothing, they change what `history` shows; only
`compact_storage` removes.
"""

from __future__ import annotations

from clew.facets.conversations.conversations import (
    Conversation,
    ConversationInfo,
    Conversations,
    Failure,
    Failures,
    Messages,
)
from clew.facets.conversations.storage import Reclaimed

__all__ = [
    "Conversation",
    "ConversationInfo",
    "Conversations",
    "Failure",
    "Failures",
    "Messages",
    "Reclaimed",
]
