"""What removed rows leave behind in a store's files: in the log, and in pages that they were in.

Both go after the transaction that removed the rows, and nothing undoes that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import apsw

from clew.core import residue
from clew.core.errors import ClewError, Unavailable
from clew.engines.sqlite.connections import Connections
from clew.engines.sqlite.view import ReadOnlyConnections

_READ_SECONDS = 0.1  # between two looks whether those who read have ended
_PAGES = 2000  # that writers wait for at a time: some hundredths of a second
_log = logging.getLogger("clew")


class Traces:
    """Those of one open store."""

    def __init__(self, connections: Connections | ReadOnlyConnections) -> None:
        self._connections = connections
        self._pace = residue.Pace()

    @property
    def are_left(self) -> bool:
        """Whether something was removed since the pages were wiped."""
        return self._pace.is_due

    def remove(self, *, always: bool = False) -> None:
        """Empty the log, and wipe the pages: `always`, or once in a while.

        Of rows that are removed one after the other the last ones wait for the next removal.
        """
        if self.empty_log():
            self._pace.wipe(self._wipe, always=always)
        else:
            self._pace.is_due = True

    def close(self) -> None:
        """Wipe the pages if that is due still, but wait for nobody."""
        if self._pace.is_due:
            try:
                self._empty_once(residue.find(*self._file), is_first=False)
            except (ClewError, apsw.Error) as error:
                _log.warning("%s: pages could not be wiped: %s", self._connections.path, error)

    def _wipe(self) -> bool:
        """Look for them without any lock, as that takes as long as the file is large."""
        try:
            found = residue.find(*self._file)
        except apsw.Error as error:
            _log.warning("%s: pages could not be wiped: %s", self._connections.path, error)
            return False
        parts = (found[n : n + _PAGES] for n in range(0, len(found), _PAGES))
        return all(map(self.empty_log, parts))  # other writers come in between

    @property
    def _file(self) -> tuple[str, str | None]:
        return self._connections.real_path, self._connections.vfs

    def empty_log(self, pages: Sequence[int] = ()) -> bool:
        """Bring the log back into the file and empty it: what was removed must not live on there.

        Who reads keeps it from being emptied. That is waited for, and no writer waits meanwhile.
        `pages` are wiped as well. False: others were in the way.
        """
        deadline = time.monotonic() + self._connections.busy_seconds
        is_first = True
        while True:
            try:
                done = self._empty_once(pages, is_first=is_first)
            except Unavailable:  # it cannot be opened again: the next call will say so
                return False
            if done or done is None:
                return bool(done)
            if time.monotonic() >= deadline:
                return False
            is_first = False
            time.sleep(_READ_SECONDS)

    def _empty_once(self, pages: Sequence[int], *, is_first: bool) -> bool | None:
        """None: the store is closed, which empties the log too; what was committed stays so."""
        connections = self._connections
        with connections.write_lock:
            if not connections.usable:  # no test: another thread closes it at this moment
                return None
            return connections.empty_log(wipe=is_first, pages=pages)
