"""Where the system keeps what belongs to a user: all of Clew that depends on the environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def data_folder() -> Path:
    """For what must not be lost."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "clew"
    return _base("XDG_DATA_HOME", ".local", "share") / "clew"


def cache_folder() -> Path | None:
    """For what can be made again; None for a user who has no home."""
    try:
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "clew"
        return _base("XDG_CACHE_HOME", ".cache") / "clew"
    except RuntimeError:
        return None


def _base(name: str, *usual: str) -> Path:
    if sys.platform == "win32":
        name, usual = "LOCALAPPDATA", ("AppData", "Local")
    given = os.environ.get(name)
    return Path(given) if given else Path.home().joinpath(*usual)
