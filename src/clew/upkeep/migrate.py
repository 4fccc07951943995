"""Migrate: bring a store's format up to date when its owner wants it, and not when it is opened."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing

from clew.address import maintenance
from clew.core.errors import Unsupported
from clew.core.maintenance import Grant, Migration


def migrate(
    address: str | os.PathLike[str] | None = None,
    *,
    dry_run: bool = False,
    rls: bool = False,
    grants: Sequence[Grant] = (),
) -> Migration:
    """Bring the store at an address up to date. A PostgreSQL store that is not there is made.

    `dry_run` changes nothing; the answer says how the store stands, and of PostgreSQL also which
    statements would be run. `rls` switches row-level security on, and stays on for tables that
    come later; each of `grants` lets a role use a namespace. InvalidInput: the engine has no roles.
    """
    with closing(maintenance(address)) as store:
        return store.migrate(dry_run=dry_run, rls=rls, grants=grants)


def refuse_older(address: str | os.PathLike[str] | None = None) -> None:
    """For tools that only look: opening an older store would bring it up to date."""
    state = migrate(address, dry_run=True)
    if 0 < state.found < state.known:
        raise Unsupported(
            f"{state.place} has format {state.found}, and this Clew needs {state.known}; "
            "run: clew migrate"
        )
