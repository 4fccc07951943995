"""The viewer called without a network, or served for real on a port."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from clew.server.app import App
from clew.server.listen import Server, bind
from clew.store import Store

PORT = 8000
TOKEN = "a-token-of-the-tests"
HERE = f"http://127.0.0.1:{PORT}"


class InProcess(httpx.BaseTransport):
    """Each request in an event loop of its own."""

    def __init__(self, app: App) -> None:
        self._app = app

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        async def call() -> httpx.Response:
            inner = httpx.Request(
                request.method, request.url, headers=request.headers, content=request.read()
            )
            answer = await httpx.ASGITransport(self._app).handle_async_request(inner)
            body = await answer.aread()
            return httpx.Response(answer.status_code, headers=answer.headers, content=body)

        return asyncio.run(call())


def client_of(store: Store, *, signed_in: bool = True, policy: bool = True) -> httpx.Client:
    app = App(store, token=TOKEN, port=PORT, policy=policy)
    client = httpx.Client(transport=InProcess(app), base_url=HERE)
    if signed_in:
        client.cookies.set(f"clew-{PORT}", TOKEN)
        client.headers["sec-fetch-site"] = "same-origin"
    return client


@contextmanager
def serving(
    store: Store, *, port: int = 0, token: str = TOKEN, policy: bool = True
) -> Iterator[str]:
    """A real server on a real port; its address."""
    listener = bind(port=port)
    app = App(store, token=token, port=listener.getsockname()[1], policy=policy)
    server = Server(app)
    listener.listen()
    runner = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    runner.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        runner.join(timeout=120)
        assert not runner.is_alive(), "the server did not end"
