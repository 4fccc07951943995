"""Which sessions belong to a workspace."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from clew import _facets
from clew.model import ThreadInfo
from clew.sessions.document import info_of
from clew.sessions.workspace import (
    fact_name,
    identity_tag,
    normalize_workspace_path,
    workspace_identity,
)
from clew.store import Store

FACET = "session"


def found_in(store: Store, workspace: str | None, **options: Any) -> Iterator[ThreadInfo]:
    """The threads of a workspace's sessions, newest update first; None stands for all.

    Those of the folder, and those of the same place in the same repository whose own folder is
    gone: it was moved, or was a clone that is not there any more.
    """
    if workspace is None:
        return _facets.infos(store, FACET, **options)
    path = normalize_workspace_path(workspace)
    if not path:
        found = _facets.infos(store, FACET, **options)
        return (info for info in found if info.workspace is None)
    here = _facets.infos(store, FACET, workspace=fact_name(path), **options)
    tag = identity_tag(workspace_identity(path))
    if tag is None:
        return here
    same = _facets.infos(store, FACET, tag=tag, **options)
    return _merged(here, (info for info in same if _is_gone(info)))


def _merged(*sources: Iterator[ThreadInfo]) -> Iterator[ThreadInfo]:
    """Several lists as one, in their order, each thread once."""
    together = heapq.merge(*sources, key=lambda info: (-info.updated_us, info.id))
    return (next(same) for _, same in groupby(together, key=lambda info: info.id))


def _is_gone(info: ThreadInfo) -> bool:
    return not os.path.isdir(info_of(info).workspace)
