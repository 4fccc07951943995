"""A folder of files with all its namespaces; see `clew.whole`."""

from __future__ import annotations

from pathlib import Path

from clew.engines.files import spaces
from clew.engines.files.engine import FilesEngine
from clew.whole import OneByOne


class FilesWhole(OneByOne):
    def __init__(self, path: Path) -> None:
        super().__init__(
            str(path.absolute()),
            lambda: spaces.namespaces(path.absolute()),
            lambda name: FilesEngine(path, create=False, namespace=name),
        )
