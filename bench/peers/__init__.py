"""Peers: the stores that agent frameworks ship, each through its own public interface.

One module a peer, imported only when it is measured, because each brings its framework along.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from bench.peers.contestant import Contestant
from bench.progress import say

_PEERS = (
    ("openai-agents", "openai_agents"),
    ("google-adk", "google_adk"),
    ("langgraph-checkpoint-sqlite", "langgraph"),
)


def contestants() -> Iterator[type[Contestant]]:
    """Every peer that is installed, at each of its settings; the others are named."""
    for package, module in _PEERS:
        say(f"importing {package}")
        try:
            peer = importlib.import_module(f"bench.peers.{module}")
        except ImportError as error:
            say(f"{package} is left out: {error}")
        else:
            yield from peer.SETTINGS
