"""The names of LangGraph's threads, namespaces and checkpoints in a store."""

from __future__ import annotations

from typing import Any, TypeAlias
from uuid import UUID

from clew.core.codec import digest
from clew.core.errors import InvalidInput
from clew.core.names import ID_BYTES_MAX

Json: TypeAlias = Any

FACT = "langgraph"
OWN_THREADS = "langgraph:"  # how the names of threads begin that LangGraph does not know


def thread_name(thread_id: str, namespace: str) -> str:
    """The Clew thread of a LangGraph thread, or of a namespace (a subgraph) in it."""
    if not namespace:
        if thread_id.startswith(OWN_THREADS):
            reason = f"{thread_id!r} begins like the names of threads of the adapter's own"
            raise InvalidInput("thread_id", reason)
        return thread_id
    # With the length of what could hold any character, no two pairs have the same name.
    return own_name("subgraph", f"{len(thread_id)}:{thread_id}:{namespace}")


def own_name(purpose: str, about: str) -> str:
    name = f"{OWN_THREADS}{purpose}:{about}"
    bytes = name.encode("utf-8", "surrogatepass")
    return name if len(bytes) <= ID_BYTES_MAX else f"{OWN_THREADS}{purpose}:{digest(bytes)[3:]}"


def entry_name(checkpoint_id: str) -> str:
    """The id of a checkpoint's entry: its own, if that is one that LangGraph makes."""
    try:
        if str(UUID(checkpoint_id)) == checkpoint_id:
            return checkpoint_id
    except ValueError:
        pass
    return "checkpoint-" + digest(checkpoint_id.encode("utf-8", "surrogatepass"))[3:35]


def facts_of(thread_id: str, namespace: str) -> dict[str, Json]:
    return {"adapter": "langgraph", FACT: {"thread_id": thread_id, "checkpoint_ns": namespace}}


def again(name: str) -> str:
    """The name of the next version of a checkpoint that is put once more."""
    first, _, number = name.partition("~")
    return f"{first}~{int(number or 0) + 1}"
