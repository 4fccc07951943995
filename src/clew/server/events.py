"""What is new, told to open pages as server-sent events.

One thread of the operating system looks for all of them, and only while a page is open. An event
says how far something has come, and its id is that position. A page that lost its connection
names the last one that it has seen, and is told at once if there is more: no gap is possible,
because the page then asks for what lies behind its own last entry.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import threading
from collections.abc import AsyncIterator
from typing import Any

from clew.core.errors import NotFound
from clew.store import Store

LOOK_SECONDS = 0.25
LIST_SHARE = 0.1  # of the time at most goes into looking at the list of a large store
BEAT_SECONDS = 15.0  # a comment, so that a connection that is gone is noticed
KEPT_CHANGES = 1000
LIST = ""  # in place of a thread's id

Event = tuple[str, dict[str, Any]]


class Watch:
    """Looks at a store on behalf of every open page."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._epoch = secrets.token_hex(4)  # positions of the list mean nothing to another run
        self._lock = threading.Condition()
        self._pages: dict[str, set[_Page]] = {}
        self._seen: dict[str, str] = {}  # topic → the position that its pages were told of
        self._heads: dict[str, int] = {}
        self._changes: list[set[str]] = []
        self._dropped = 0
        self._closed = False
        self._running: threading.Thread | None = None

    # --- pages ---

    async def stream(self, topic: str, last: str | None) -> AsyncIterator[bytes]:
        """The events of a thread, or of the list, from the position `last` on."""
        page = _Page(asyncio.get_running_loop(), last)
        self._add(topic, page)
        try:
            yield b"retry: 1000\n\n"
            while True:
                event = await page.next(BEAT_SECONDS)
                if event is None:
                    return
                yield event
        finally:
            self._remove(topic, page)

    def close(self) -> None:
        """End every stream; the pages come back if there is a server again."""
        with self._lock:
            self._closed = True
            pages = [page for pages in self._pages.values() for page in pages]
            self._lock.notify()
        for page in pages:
            page.end()
        if self._running is not None:
            self._running.join()

    def _add(self, topic: str, page: _Page) -> None:
        with self._lock:
            if self._closed:
                page.end()
                return
            self._pages.setdefault(topic, set()).add(page)
            if self._running is None:
                self._running = threading.Thread(target=self._run, name="clew-watch", daemon=True)
                self._running.start()
            self._lock.notify()

    def _remove(self, topic: str, page: _Page) -> None:
        with self._lock:
            pages = self._pages.get(topic, set())
            pages.discard(page)
            if not pages:
                self._pages.pop(topic, None)
                self._seen.pop(topic, None)

    # --- looking ---

    def _run(self) -> None:
        pause = LOOK_SECONDS
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._closed or bool(self._pages))
                if self._closed:
                    return
                topics = list(self._pages)
            took = sum([self._look(topic) for topic in topics])
            pause = max(LOOK_SECONDS, took / LIST_SHARE)
            with self._lock:
                self._lock.wait_for(lambda: self._closed or self._is_asked(), timeout=pause)

    def _is_asked(self) -> bool:
        """Whether a page has just come, and was told nothing yet."""
        return any(page.told is None for pages in self._pages.values() for page in pages)

    def _look(self, topic: str) -> float:
        began = _now()
        try:
            position, event = self._list() if topic == LIST else self._thread(topic)
        except NotFound as error:
            position, event = "gone", {"gone": str(error)}
        except Exception:
            # A server that is away for a moment, say. The pages keep what they have, and the next
            # look tells them of everything that came meanwhile.
            logging.getLogger("clew").warning("the viewer could not look", exc_info=True)
            return _now() - began
        with self._lock:
            pages = list(self._pages.get(topic, ()))
        for page in pages:
            told = page.last if page.told is None else page.told
            if told != position:
                page.tell(position, self._since(told, event) if topic == LIST else event)
            else:
                page.told = position
        return _now() - began if topic == LIST else 0.0

    def _thread(self, id: str) -> tuple[str, dict[str, Any]]:
        info = self._store.get(id, deleted=True).info
        return str(info.seq), {"seq": info.seq, "leaf": info.leaf}

    def _list(self) -> tuple[str, dict[str, Any]]:
        heads = {head.thread: head.seq for head in self._store.engine.heads()}
        if heads != self._heads:
            changed = {id for id, seq in heads.items() if self._heads.get(id) != seq}
            self._changes.append(changed | (self._heads.keys() - heads.keys()))
            self._heads = heads
            if len(self._changes) > KEPT_CHANGES:
                self._changes.pop(0)
                self._dropped += 1
        return f"{self._epoch}.{self._dropped + len(self._changes)}", {"threads": len(heads)}

    def _since(self, told: str | None, event: dict[str, Any]) -> dict[str, Any]:
        """With the ids that changed since a position; without them where that is not known."""
        epoch, _, number = (told or "").partition(".")
        known = epoch == self._epoch and number.isdecimal() and len(number) < 19
        if not known or int(number) < self._dropped:
            return event
        ids = set().union(*self._changes[int(number) - self._dropped :])
        return event if len(ids) > 50 else {**event, "changed": sorted(ids)}


class _Page:
    """One open connection. `told` is the last position that it was told; None: not looked yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop, last: str | None) -> None:
        self._loop = loop
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.last = last
        self.told: str | None = None

    def tell(self, position: str, event: dict[str, Any]) -> None:
        self.told = position
        data = json.dumps(event)  # JSON has no line ends outside of its strings, nor inside
        self._put(f"id: {position}\nevent: news\ndata: {data}\n\n".encode())

    def end(self) -> None:
        self._put(None)

    def _put(self, item: bytes | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)
        except RuntimeError:
            pass  # the loop is closed, and the connection with it

    async def next(self, beat_seconds: float) -> bytes | None:
        try:
            return await asyncio.wait_for(self._queue.get(), beat_seconds)
        except TimeoutError:
            return b": still here\n\n"


def _now() -> float:
    import time

    return time.monotonic()
