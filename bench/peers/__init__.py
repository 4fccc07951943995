"""Peers: the stores that agent frameworks ship, each through its own public interface.

One module a peer, imported only when it is measured, because each brings its framework along.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator

from bench.peers.contestant import Contestant
from bench.progress import say

_PEERS = (
    ("openai-agents", "openai_agents"),
    ("google-adk", "google_adk"),
    ("langgraph-checkpoint-sqlite", "langgraph"),
)
_ON_POSTGRES = (
    ("openai-agents[sqlalchemy]", "openai_agents_postgres"),
    ("langgraph-checkpoint-postgres", "langgraph_postgres"),
)


def contestants() -> Iterator[type[Contestant]]:
    """Every peer that is installed, at each of its settings; the others are named."""
    yield from _imported(_PEERS)


def contestants_on_postgres() -> Iterator[type[Contestant]]:
    """Those that can be put on a PostgreSQL server; they take its address for a path."""
    yield from _imported(_ON_POSTGRES)


def _imported(peers: Iterable[tuple[str, str]]) -> Iterator[type[Contestant]]:
    for package, module in peers:
        say(f"importing {package}")
        try:
            peer = importlib.import_module(f"bench.peers.{module}")
        except ImportError as error:
            say(f"{package} is left out: {error}")
        else:
            yield from peer.SETTINGS
