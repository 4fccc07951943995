"""Which releases of a framework an adapter was tested with."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version


def require(package: str, *, extra: str, at_least: str, below: str) -> None:
    """ImportError unless a package is installed in a release that the adapter was tested with."""
    install = f"pip install 'clew[{extra}]'"
    try:
        found = version(package)
    except PackageNotFoundError:
        raise ImportError(f"this adapter needs {package}: {install}", name=package) from None
    if not _numbers(at_least) <= _numbers(found) < _numbers(below):
        raise ImportError(
            f"{package} {found} is installed, and this adapter was tested with {package} "
            f"from {at_least} to below {below}: {install}",
            name=package,
        )


def _numbers(text: str) -> tuple[int, ...]:
    """The release of a version as numbers; what is written behind them (rc1, .post2) is left."""
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in found.group().split(".")) if found else ()
