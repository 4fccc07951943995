"""What an acknowledged write survives, where the engine itself writes to this machine's disk."""

from __future__ import annotations

from typing import Literal

from clew.core.errors import InvalidInput

LocalDurability = Literal["full", "relaxed"]

ACKNOWLEDGED = {
    "full": "on this disk: survives the death of the process and loss of power",
    "relaxed": "handed to the system: survives the death of the process, not loss of power",
}


def check_durability(durability: LocalDurability) -> LocalDurability:
    if durability not in ACKNOWLEDGED:
        raise InvalidInput("durability", f"must be 'full' or 'relaxed', not {durability!r}")
    return durability
