"""A port of this machine, and the server on it until it is told to end."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from types import MappingProxyType

import uvicorn

from clew.core.errors import InvalidInput, Unavailable
from clew.server.app import App
from clew.server.security import LOOPBACK, TOKEN, new_token
from clew.server.site import url
from clew.store import Store

END_SECONDS = 3  # what is being answered when the server ends may take so long


def bind(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """A listening socket of this machine's own; port 0 is any free one."""
    if host not in LOOPBACK:
        reason = f"{host!r} can be reached by others; the viewer only listens on {LOOPBACK[0]}"
        raise InvalidInput("host", reason)
    family = socket.AF_INET6 if host == "::1" else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise Unavailable(f"port {port} of {host} cannot be used: {error.strerror}") from None
    return made


class Server(uvicorn.Server):
    """uvicorn, which would wait for ever for the streams of open pages: they are ended first."""

    def __init__(self, app: App) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=END_SECONDS,
        )
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.close()
        await super().shutdown(sockets)


def serve(
    store: Store,
    listener: socket.socket,
    *,
    ready: Callable[[str], None],
    place: str = "/",
    query: Mapping[str, str] = MappingProxyType({}),
    token: str | None = None,
) -> None:
    """Serve a store until SIGINT or SIGTERM. `ready` gets the link to a page, with its token."""
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    token = token or new_token()
    host, port = listener.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    server = Server(App(store, token=token, port=port))
    listener.listen()
    ready(f"http://{name}:{port}" + url(place, **query, **{TOKEN: token}))
    try:
        asyncio.run(server.serve(sockets=[listener]))
    except KeyboardInterrupt:
        pass  # how it is ended; everything was closed before this came
