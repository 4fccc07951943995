"""Namespaces as folders: each but the default one is a store of its own inside of the store's."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from clew.checks import check_namespace
from clew.engines.files import names
from clew.engines.files.disk import Disk
from clew.engines.files.place import MARKER, Place, prepare, read_marker
from clew.errors import ClewError, Unsupported
from clew.model import DEFAULT_NAMESPACE

ROOM = "namespaces"


def home(root: Path, namespace: str) -> Path:
    """The folder that a namespace has."""
    if namespace == DEFAULT_NAMESPACE:
        return root
    return root / ROOM / names.stem(namespace)


def enter(root: Path, namespace: str, disk: Disk, *, create: bool) -> list[Place]:
    """The place of a namespace, made if need be; behind it the one that it lies in, if any."""
    above = prepare(root, disk, create=create)
    if namespace == DEFAULT_NAMESPACE:
        return [above]
    folder = home(root, namespace)
    for part in (root / ROOM, folder):
        if os.path.lexists(part) and not stat.S_ISDIR(os.lstat(part).st_mode):
            raise Unsupported(f"{part} must be a folder, and no symbolic link")
    return [prepare(folder, disk, create=create, namespace=namespace), above]


def namespaces(root: Path) -> dict[str, Path]:
    """Every namespace with its folder, the default one first.

    The name stands in the marker. If that cannot be read, the folder's own name tells it.
    """
    found = {DEFAULT_NAMESPACE: root}
    try:
        folders = [path for path in (root / ROOM).iterdir() if _is_folder(path)]
    except OSError:
        return found
    for name, folder in sorted((_name_of(folder), folder) for folder in folders):
        found.setdefault(name, folder)
    return found


def _is_folder(path: Path) -> bool:
    if not names.is_stem(path.name) or not stat.S_ISDIR(os.lstat(path).st_mode):
        return False
    return (path / MARKER).exists() or (path / "threads").is_dir()


def _name_of(folder: Path) -> str:
    try:
        name = check_namespace(read_marker(folder / MARKER).namespace)
        if names.stem(name) == folder.name:
            return name
    except (ClewError, OSError):
        pass
    name = names.unescaped(folder.name)
    return name if names.stem(name) == folder.name else f"lost-{folder.name[-32:]}"
