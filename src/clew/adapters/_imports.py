"""What the import of another store's file tells when it is done."""

from __future__ import annotations

from msgspec import Struct, field


class Imported(Struct, kw_only=True):
    """What an import has done. It can be done again: then only what is new is written.

    `threads` counts those that the file was brought into, `entries` what was written of it now:
    items, events or checkpoints. `left` is what was left out, each with the reason.
    """

    threads: int = 0
    entries: int = 0
    left: list[str] = field(default_factory=list)
