"""The table of routes, and what becomes of errors.

Pages are plain functions that call the store, which may block: each runs in a worker thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl

import anyio.to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from clew.core.errors import ClewError, TooLarge
from clew.server import (
    context,
    conversation,
    files,
    health,
    search,
    share,
    threads,
    timeline,
    tree,
    usage,
)
from clew.server.events import LIST
from clew.server.render import clean
from clew.server.security import Gate
from clew.server.site import Ask, Site
from clew.store import Store

Page = Callable[[Ask], Response]

FORM_BYTES_MAX = 256 * 1024

LOOKING: dict[str, Page] = {
    "/": threads.page,
    "/threads/rows": threads.rows,
    "/threads/row": threads.row,
    "/thread": conversation.page,
    "/thread/entries": conversation.entries,
    "/thread/tail": conversation.tail,
    "/thread/part": conversation.part,
    "/thread/media": conversation.media,
    "/thread/markdown": conversation.markdown,
    "/thread/minimap": conversation.minimap,
    "/blob": conversation.blob,
    "/tree": tree.page,
    "/tree/plan": tree.plan,
    "/context": context.page,
    "/context/raw": context.raw,
    "/context/message": context.message,
    "/compare": context.compare,
    "/files": files.page,
    "/files/diff": files.diff,
    "/files/file": files.file,
    "/timeline": timeline.page,
    "/share/file": share.keep,
    "/search": search.page,
    "/search/hits": search.hits,
    "/usage": usage.page,
    "/health": health.page,
    "/health/progress": health.progress,
    "/health/growth": health.growth,
}
CHANGING: dict[str, Page] = {
    "/threads/change": threads.change,
    "/tree/move": tree.move,
    "/tree/fork": tree.fork,
    "/tree/rewind": tree.rewind,
    "/tree/undo": tree.undo,
    "/tree/redo": tree.redo,
}
# Posts that change nothing in the store: also a viewer for looking only takes them.
STARTING: dict[str, Page] = {
    "/health/verify": health.verify,
    "/share": share.make,
    "/threads/usage": threads.used,
}
# What is shown without the viewer's token. Each asks for a key of its own.
PUBLIC: dict[str, Page] = {"/shared": share.show}

_STATUS = {
    "not_found": 404,
    "invalid_input": 400,
    "too_large": 413,
    "conflict": 409,
    "already_exists": 409,
    "lease_held": 409,
    "lease_lost": 409,
    "read_only": 403,
    "unsupported": 422,
    "unavailable": 503,
    "closed": 503,
}
_STATIC = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class App:
    """The whole application: routes behind the gate. `close` ends the streams of open pages."""

    def __init__(self, store: Store, *, token: str, port: int, policy: bool = True) -> None:
        self._site = Site(store)
        routes = [Route(place, self._endpoint(page)) for place, page in (LOOKING | PUBLIC).items()]
        routes += [
            Route(place, self._endpoint(page, changes=place in CHANGING), methods=["POST"])
            for place, page in (CHANGING | STARTING).items()
        ]
        routes += [Route("/events", self._events), Route("/static/{name}", static)]
        inner = Starlette(routes=routes, exception_handlers={404: self._missing})
        self._gate = Gate(inner, token=token, port=port, policy=policy, public=frozenset(PUBLIC))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._gate(scope, receive, send)

    def close(self) -> None:
        self._site.close()

    def _endpoint(self, page: Page, *, changes: bool = False) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            try:
                ask = await self._ask(request)
            except ClewError as error:
                return failed(self._bare(request), error)
            return await anyio.to_thread.run_sync(answer, page, ask, changes)

        return endpoint

    async def _ask(self, request: Request) -> Ask:
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > FORM_BYTES_MAX:
                raise TooLarge("form", size=len(body), limit=FORM_BYTES_MAX)
        form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        return self._bare(request, form)

    def _bare(self, request: Request, form: dict[str, str] | None = None) -> Ask:
        return Ask(
            site=self._site,
            query=request.query_params,
            form=form or {},
            nonce=request.scope["clew.nonce"],
            is_partial="hx-request" in request.headers,
        )

    async def _events(self, request: Request) -> Response:
        given = request.headers.get("last-event-id") or request.query_params.get("after")
        stream = self._site.watch.stream(request.query_params.get("id", LIST), given)
        return StreamingResponse(stream, media_type="text/event-stream")

    async def _missing(self, request: Request, error: Exception) -> Response:
        return refusal(self._bare(request), 404, "There is no such page.")


def answer(page: Page, ask: Ask, changes: bool) -> Response:
    try:
        if changes:
            ask.writable()
        with ask.site.pages.measure(f"{page.__module__.rpartition('.')[2]} {page.__name__}"):
            return page(ask)
    except ClewError as error:
        return failed(ask, error)
    except Exception as error:
        logging.getLogger("clew").exception("the viewer failed")
        return refusal(ask, 500, f"A mistake in Clew itself: {type(error).__name__}")


def failed(ask: Ask, error: ClewError) -> Response:
    return refusal(ask, _STATUS.get(error.code, 500), str(error))


def refusal(ask: Ask, status: int, said: str) -> Response:
    """A page for a person; one sentence for a script, which shows it in a corner."""
    said = clean(said)
    if ask.is_partial:
        return PlainTextResponse(said, status)
    return ask.page("error.html", status, said=said)


async def static(request: Request) -> Response:
    """A file of the package, by its name alone."""
    name: str = request.path_params["name"]
    kind = next((kind for ending, kind in _STATIC.items() if name.endswith(ending)), None)
    found = resources.files("clew.server") / "static" / name
    if kind is None or "\\" in name or name.startswith(".") or not found.is_file():
        return Response("There is no such file.", 404)
    headers = {"cache-control": "private, max-age=3600"}
    return Response(found.read_bytes(), media_type=kind, headers=headers)
