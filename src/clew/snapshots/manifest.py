"""Manifests: what a folder holds, as a blob. A tree is the manifest of its top folder.

A manifest names the manifests of its sub-folders by their hash, so a folder in which nothing
changed is the same blob again. What is read from a store is checked before a name in it is used:
manifests may come from anywhere.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Any, Literal

from msgspec import Struct

from clew.core.codec import decode, encode
from clew.core.errors import Corrupt

VERSION = 1
NAME_BYTES_MAX = 255
MANIFEST_BYTES_MAX = 256 * 1024 * 1024
TARGET_BYTES_MAX = 4096

Kind = Literal["file", "executable", "link", "folder"]
_KINDS = ("file", "executable", "link", "folder")
FILE_KINDS = ("file", "executable")
# Nearly every name is one of these, and needs no closer look.
_ORDINARY = re.compile(r"(?!\.git)[A-Za-z0-9_][A-Za-z0-9_.-]{0,253}[A-Za-z0-9_]")


class Node(Struct, frozen=True, gc=False):
    """One name in a folder. `ref` is a blob's hash, or where a link leads."""

    name: str
    kind: Kind
    ref: str
    size: int = 0  # in bytes, of a file; of a folder: of all files in it

    @property
    def is_folder(self) -> bool:
        return self.kind == "folder"

    @property
    def is_file(self) -> bool:
        return self.kind in FILE_KINDS


def ordered(nodes: Iterable[Node]) -> list[Node]:
    """As a manifest has them: by the bytes of their names, which no locale changes."""
    return sorted(nodes, key=lambda node: sort_key(node.name))


def pack(nodes: Iterable[Node]) -> bytes:
    """The manifest's bytes: the same for the same folder, on every machine."""
    rows = [[node.kind, node.name, node.size, node.ref] for node in ordered(nodes)]
    return encode({"format": "clew.tree", "version": VERSION, "nodes": rows}, field="manifest")


def unpack(data: bytes, place: str) -> list[Node]:
    """The nodes of a manifest, every one checked. Corrupt, with its place, if one is not right."""
    value = decode(data)
    if not isinstance(value, dict) or value.get("format") != "clew.tree":
        raise Corrupt(place, "it is not a manifest")
    if value.get("version") != VERSION:
        raise Corrupt(place, f"it is a manifest of version {value.get('version')!r}")
    rows = value.get("nodes")
    if not isinstance(rows, list):
        raise Corrupt(place, "it has no nodes")
    nodes = [_node(row, place) for row in rows]
    # In order, so that one folder has one hash, and no name can be there twice.
    seen: dict[str, str] = {}
    last = b""
    for node in nodes:
        key = sort_key(node.name)
        if key <= last:
            raise Corrupt(place, f"{node.name!r} is there twice, or out of order")
        last = key
        other = seen.setdefault(folded(node.name), node.name)
        if other != node.name:
            text = f"{other!r} and {node.name!r} are one name on some file systems"
            raise Corrupt(place, text)
    return nodes


def _node(row: Any, place: str) -> Node:
    try:
        kind, name, size, ref = row
        node = Node(name, kind, ref, size)
        if kind not in _KINDS or type(size) is not int or not isinstance(ref, str):
            raise TypeError("a node is a kind, a name, a size and a reference")
        if not isinstance(name, str):
            raise TypeError("a name is text")
    except (TypeError, ValueError) as error:
        raise Corrupt(place, f"{row!r:.100} is not a node: {error}") from error
    # A name with a slash, or "..", would lead a restore out of its tree.
    problem = name_problem(node.name)
    if problem is not None:
        raise Corrupt(place, f"{node.name!r:.100} cannot be a name: {problem}")
    if node.size < 0:
        raise Corrupt(place, f"{node.name!r} has a negative size")
    if node.kind == "link":
        where = node.ref
        if not _is_writable(where) or "\0" in where or len(fs_bytes(where)) > TARGET_BYTES_MAX:
            raise Corrupt(place, f"{node.name!r} is a link to nowhere")
    elif not node.ref.startswith("b3:"):
        raise Corrupt(place, f"{node.name!r} refers to no blob")
    return node


def unfit(names: Iterable[str]) -> dict[str, Literal["collides", "name"]]:
    """Which names of a folder its manifest cannot have, and why; the first of two that are one
    name on some file systems may stay.
    """
    found: dict[str, Literal["collides", "name"]] = {}
    taken: set[str] = set()
    for name in names:
        fold = folded(name)
        if fold in taken:
            found[name] = "collides"
        elif name_problem(name) is not None:
            found[name] = "name"
        else:
            taken.add(fold)
    return found


def name_problem(name: str) -> str | None:
    """Why a name may not be written into a folder; None if it may."""
    if _ORDINARY.fullmatch(name):
        return None
    if name in ("", ".", ".."):
        return "it is no name"
    if "/" in name or "\0" in name:
        return "it has a slash or NUL"
    if not _is_writable(name):
        return "no file can have it"
    if len(fs_bytes(name)) > NAME_BYTES_MAX:
        return "it is too long"
    # Some file systems drop dots and spaces at the end of a name.
    if folded(name) == ".git" or folded(name).rstrip(". ") == ".git":
        return "it would be a repository"
    return None


def folded(name: str) -> str:
    """What a name becomes where case or Unicode form do not count."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


def _is_writable(name: str) -> bool:
    """Whether it stands for bytes: a lone surrogate may be none that came from a disk."""
    try:
        return bool(fs_bytes(name))
    except UnicodeEncodeError:
        return False


def fs_bytes(name: str) -> bytes:
    """A name as the file system has it: names need not be UTF-8."""
    return name.encode("utf-8", "surrogateescape")


def sort_key(name: str) -> bytes:
    try:
        return fs_bytes(name)
    except UnicodeEncodeError:  # a lone surrogate that stands for no byte
        return name.encode("utf-8", "surrogatepass")
