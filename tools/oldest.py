"""The oldest versions that pyproject.toml allows, one a line: what `make test-oldest` installs.

`python tools/oldest.py EXTRA …` prints those of the dependencies and of these extras, as
constraints for pip. A range that is not tried at its lower end is a guess.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def oldest(extras: list[str]) -> Iterator[str]:
    project = tomllib.loads(PROJECT.read_text("utf-8"))["project"]
    optional = project["optional-dependencies"]
    for wanted in [*project["dependencies"], *(one for name in extras for one in optional[name])]:
        if not wanted.startswith("clew["):  # an extra that brings others: name those as well
            yield re.sub(r"(\[.*\])?>=([^,;]+)[^;]*", r"==\2", wanted)


if __name__ == "__main__":
    print("\n".join(oldest(sys.argv[1:])))
