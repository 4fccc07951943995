"""Workspaces: folders, and what they are when they have been moved."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from clew.core.codec import digest
from clew.core.errors import InvalidInput, TooLarge
from clew.core.names import check_name

_TAG = "clew:workspace:"
_CONFIG_BYTES_MAX = 1024 * 1024

_REMOTE = re.compile(r'\[\s*remote\s+"((?:[^"\\]|\\.)*)"\s*\](.*)', re.IGNORECASE)
_URL = re.compile(r"url\s*=\s*(.+)", re.IGNORECASE)
_WITH_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://(?:[^/@]*@)?([^/]*)/(.*)", re.IGNORECASE)
_LIKE_SCP = re.compile(r"(?:[^/@:]*@)?([^/:]{2,}):(.*)")


def current_workspace_path() -> str:
    """The folder that the process works in, normalised; empty if it is gone."""
    try:
        return normalize_workspace_path(os.getcwd())
    except OSError:
        return ""


def normalize_workspace_path(path: str | os.PathLike[str]) -> str:
    """A path as it is compared: trimmed, absolute, symbolic links followed. Empty stays empty."""
    trimmed = os.fspath(path).strip()
    if not trimmed:
        return ""
    if "\0" in trimmed:
        raise InvalidInput("workspace", "must not contain NUL")
    return os.path.realpath(trimmed)


def workspace_identity(path: str) -> str:
    """What a folder is, wherever it lies: its place inside of a repository with a remote.

    `git:<host>/<repository>//<folder>`, taken from the configuration of the repository, without
    user names or secrets; the path itself for all other folders.
    """
    normal = normalize_workspace_path(path)
    if not normal:
        return ""
    folder = Path(normal)
    for root in (folder, *folder.parents):
        dot_git = root / ".git"
        if dot_git.exists():
            remote = _remote(dot_git)
            inside = folder.relative_to(root).as_posix()
            return normal if remote is None else f"git:{remote}//{inside}"
    return normal


# --- how a thread knows its workspace -------------------------------------------------------


def workspace_facts(path: str, tags: Iterable[str]) -> dict[str, Any]:
    """The facts that sessions are listed by: the path, and a tag for what can be moved."""
    identity = workspace_identity(path)
    # The tags of the user stay; that of the folder before goes.
    others = [tag for tag in tags if not tag.startswith(_TAG)]
    name = fact_name(path)
    return {
        "workspace": name or None,
        "workspace_path": path if name != path else None,
        "workspace_id": identity or None,
        "tags": [*others, *([moved] if (moved := identity_tag(identity)) else [])],
    }


def fact_name(path: str) -> str:
    """A path as the engines can list by it: itself, or its hash."""
    try:
        return check_name(path, "workspace") if path else ""
    except (InvalidInput, TooLarge):
        return "#" + digest(path.encode("utf-8", "surrogatepass"))


def identity_tag(identity: str) -> str | None:
    """The tag that sessions are found by when their folder was moved; None if it cannot be."""
    if not identity.startswith("git:"):
        return None
    return _TAG + digest(identity.encode("utf-8", "surrogatepass"))


# --- the repository -------------------------------------------------------------------------


def _remote(dot_git: Path) -> str | None:
    """The address of origin, or else of the first remote there is."""
    try:
        text = _read(_config(dot_git))
    except (OSError, ValueError):
        return None
    urls = _remote_urls(text)
    found = urls.get("origin") or next(iter(urls.values()), None)
    return None if found is None else _plain_address(found)


def _config(dot_git: Path) -> Path:
    if dot_git.is_dir():
        return dot_git / "config"
    # A worktree or a submodule: a file that says where the repository is.
    named = _read(dot_git).strip().removeprefix("gitdir:").strip()
    home = dot_git.parent / named
    common = home / "commondir"
    if common.is_file():
        home = home / _read(common).strip()
    return home / "config"


def _read(path: Path) -> str:
    # Limited: the file belongs to a repository that is not trusted, and may be anything.
    with path.open("rb") as file:
        return file.read(_CONFIG_BYTES_MAX).decode("utf-8", "replace")


def _remote_urls(text: str) -> dict[str, str]:
    """Remote → its first url. What is not understood is passed over."""
    urls: dict[str, str] = {}
    remote: str | None = None
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            header = _REMOTE.match(line)
            remote = header[1] if header else None
            line = header[2].strip() if header else ""
        setting = _URL.match(line)
        if remote is not None and setting:
            value = re.split(r"\s[#;]", setting[1])[0].strip().strip('"')
            urls.setdefault(remote, value)
    return urls


def _plain_address(url: str) -> str | None:
    """host/path, the same for every way to reach it; None for an address relative to here."""
    found = _WITH_SCHEME.match(url) or _LIKE_SCP.match(url)
    if found:
        host, path = found[1].lower(), found[2]
    elif os.path.isabs(url):
        host, path = "", url
    else:
        return None
    path = path.strip("/").removesuffix(".git").strip("/")
    return f"{host}/{path}" if path else None
