"""viewer: pages of `clew serve`, as the server makes them, and as a browser shows them.

The server's own time is measured in its process, without a network. In the browser: a thread of
10,000 entries until something is painted, what its page takes in memory, and a jump to an entry.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any
from urllib.parse import urlencode

import clew
from bench.figures import Figure, megabytes, milliseconds
from bench.messages import FORMAT, messages
from bench.progress import say
from bench.timing import in_rounds, seconds
from bench.workshop import Workshop
from clew.messages.incoming import message_draft

_ROUNDS = 15
_PORT, _TOKEN = 8000, "bench"
_SHORT, _LONG = 200, 10_000
_FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage "
    "--enable-precise-memory-info"
).split()


def measure(workshop: Workshop) -> Iterable[Figure]:
    try:
        from clew.server.app import App
    except ImportError:
        say("clew[viewer] is not installed: left out")
        return
    store = workshop.open(durability="relaxed")
    for name, size in (("short", _SHORT), ("long", _LONG)):
        _fill(store, name, size)
    for n in range(2_000):
        store.create(f"thread-{n}", title=f"Thread {n}")
    app = App(store, token=_TOKEN, port=_PORT)
    yield from _pages(app, store)
    yield from _weight(app)
    yield from _browser(store)


def _fill(store: clew.Store, name: str, size: int) -> None:
    thread = store.create(name, title=name)
    drafts = [
        message_draft(body, FORMAT, id=f"{name}-{n}") for n, body in enumerate(messages(size))
    ]
    for begin in range(0, size, 1000):
        thread.append(drafts[begin : begin + 1000])


def _pages(app: Any, store: clew.Store) -> Iterable[Figure]:
    say("pages, on the server")
    while b"<progress" in _get(app, "/search/hits?q=function"):
        pass  # the first search builds the index, behind the pages
    middle = f"long-{_LONG // 2}"
    places = {
        f"a thread of {_SHORT} entries": ("/thread?id=short", 50),
        f"a thread of {_LONG:,} entries": ("/thread?id=long", None),
        f"a jump into {_LONG:,} entries": (f"/thread?id=long&at={middle}", 300),
        "a run of 40 entries": (f"/thread/entries?id=long&to={middle}&n=40", None),
        "the list of threads": ("/threads/rows?", None),
        "a word in 2,000 titles, as you type": ("/threads/rows?q=1999", 100),
        "a search, as you type": ("/search/hits?q=function+err*", 100),
        f"the tree of {_LONG:,} entries": ("/tree?id=long", None),
    }
    for name, (place, bar) in places.items():
        taken = in_rounds(_ROUNDS, lambda place=place: (seconds(lambda: _get(app, place)),))
        yield milliseconds(f"viewer: {name}", taken[0], at_most=bar)


def _get(app: Any, place: str) -> bytes:
    path, _, query = place.partition("?")
    headers = [
        (b"host", f"127.0.0.1:{_PORT}".encode()),
        (b"cookie", f"clew-{_PORT}={_TOKEN}".encode()),
    ]
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": query.encode(),
        "headers": headers,
        "http_version": "1.1",
        "root_path": "",
        "scheme": "http",
    }
    body = b""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        nonlocal body
        assert message.get("status", 200) == 200
        body += message.get("body", b"")

    asyncio.run(app(scope, receive, send))
    return body


def _weight(app: Any) -> Iterable[Figure]:
    """What a page brings that is not its content."""
    names = ["clew.css", "theme.js", "htmx.min.js", "clew.js", "conversation.js", "clew.svg"]
    size = sum(len(_get(app, f"/static/{name}")) for name in names)
    size += len(_get(app, "/threads/rows?q=nothing-has-this-name"))
    yield Figure("viewer: weight of a page without its content", size / 1024, "KB", 250)


# --- in a browser ---


def _browser(store: clew.Store) -> Iterable[Figure]:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        program = None
    if program is None:
        say("there is no chromium with playwright: the figures of a browser are left out")
        return
    say("pages, in a browser")
    with _served(store) as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=_FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{address}/?token={_TOKEN}")
        yield from _opened(page, address)
        browser.close()


def _opened(page: Any, address: str) -> Iterable[Figure]:
    painted: list[float] = []
    links: list[float] = []
    jumps: list[float] = []
    for n in range(_ROUNDS):
        page.goto(f"{address}/thread?id=long")
        page.wait_for_selector("html[data-ready]", state="attached")
        painted.append(page.evaluate(_FIRST_PAINT) / 1e3)
        entry = f"long-{(n + 1) * _LONG // (_ROUNDS + 2)}"
        begin = perf_counter()
        page.goto(
            f"{address}/thread?" + urlencode({"id": "long", "at": entry}), wait_until="commit"
        )
        page.wait_for_selector(".card.found")
        links.append(perf_counter() - begin)
        jumps.append(page.evaluate(_JUMP, (n / _ROUNDS + 0.5) % 1) / 1e3)
    name = f"viewer: {_LONG:,} entries in a browser"
    yield milliseconds(f"{name}, first paint", painted, at_most=1000)
    yield milliseconds(f"{name}, a jump to any entry", jumps, at_most=300)
    yield milliseconds(f"{name}, a link to an entry, with the page", links)
    page.goto(f"{address}/thread?id=long")
    page.wait_for_selector("html[data-ready]", state="attached")
    for _ in range(100):
        page.mouse.wheel(0, -3000)
        page.wait_for_timeout(20)
    used = page.evaluate("performance.memory.usedJSHeapSize") / 1e6
    yield megabytes(f"{name}, memory after scrolling", used, at_most=200)


_JUMP = """async (share) => {
  const begin = performance.now();
  await goToPlace(share);
  await nextFrame();
  return performance.now() - begin;
}"""
_FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


@contextmanager
def _served(store: clew.Store) -> Iterator[str]:
    from clew.server.app import App
    from clew.server.listen import Server, bind

    listener = bind()
    port = listener.getsockname()[1]
    server = Server(App(store, token=_TOKEN, port=port))
    listener.listen()
    runner = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    runner.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        runner.join()
