"""What a stored file becomes on a disk: its bytes, checked, and its permissions."""

from __future__ import annotations

from clew.errors import Corrupt
from clew.snapshots.manifest import Node
from clew.snapshots.system import System
from clew.snapshots.tree import Trees


def new_mode(node: Node) -> int:
    return 0o755 if node.kind == "executable" else 0o644


def changed_mode(mode: int, node: Node) -> int:
    """The permissions that a file has, executable or not; never setuid and the like."""
    mode &= 0o777
    return mode | (mode & 0o444) >> 2 if node.kind == "executable" else mode & ~0o111


def read(trees: Trees, node: Node) -> bytes:
    """The contents of a file, checked: also against the size that its manifest tells."""
    data = trees.read(node)
    if len(data) != node.size:
        text = f"{node.name!r} should have {node.size:,} bytes, but has {len(data):,}"
        raise Corrupt(f"blob {node.ref}", text)
    return data


def write_all(system: System, descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[system.write(descriptor, left) :]
