"""What stands before every request: who asks, from where, and what its answer may do.

A page of another site can make a browser send requests here, and a name of another site can be
made to point to this machine. So a request has to bring the token, name this server as its host,
and, if it comes from a page, come from a page of this server.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

TOKEN = "token"  # noqa: S105 - the name of the parameter
LOOPBACK = ("127.0.0.1", "localhost", "::1")
SAFE_METHODS = ("GET", "HEAD")

_SENTENCES = {
    "host": "This address is not one of this viewer's own.",
    "token": "This page needs the link that clew printed when it started. Open that one.",
    "origin": "This request comes from a page of another site, and was refused.",
    "method": "This viewer only takes GET and POST.",
}


def new_token() -> str:
    return secrets.token_urlsafe(32)


class Gate:
    """Wraps the application. Everything that is refused gets 403 and a plain sentence."""

    def __init__(
        self,
        app: App,
        *,
        token: str,
        port: int,
        policy: bool = True,
        public: frozenset[str] = frozenset(),
    ) -> None:
        self._app = app
        self._public = public
        self._token = token.encode()
        self._cookie = f"clew-{port}"  # cookies know no ports: each server needs a name of its own
        self._hosts = frozenset(
            f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name in LOOPBACK
        )
        self._policy = policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = _headers(scope)
        given = dict(parse_qsl(scope["query_string"].decode("latin-1"))).get(TOKEN)
        if headers.get("host", "") not in self._hosts:
            await _refuse(send, "host")
        elif given is not None and scope["method"] == "GET" and self._is_token(given):
            await self._welcome(scope, send)
        elif scope["path"] in self._public and scope["method"] == "GET":
            await self._pass(scope, receive, send)
        elif not self._is_token(_cookie(headers, self._cookie)):
            await _refuse(send, "token")
        elif scope["method"] not in (*SAFE_METHODS, "POST"):
            await _refuse(send, "method")
        elif not self._is_from_here(headers, scope["method"]):
            await _refuse(send, "origin")
        else:
            await self._pass(scope, receive, send)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        nonce = scope["clew.nonce"] = secrets.token_urlsafe(16)
        await self._app(scope, receive, self._guarded(send, nonce))

    def _is_token(self, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(given.encode(), self._token)

    def _is_from_here(self, headers: dict[str, str], method: str) -> bool:
        """Whether a page of this server asks, or the person at the browser itself."""
        origin = headers.get("origin")
        if origin is not None:
            parts = urlsplit(origin)
            return parts.scheme == "http" and parts.netloc == headers["host"]
        site = headers.get("sec-fetch-site")
        if method not in SAFE_METHODS:
            return site == "same-origin"  # a browser that says neither is not known to us
        return site in (None, "same-origin", "none")

    async def _welcome(self, scope: Scope, send: Send) -> None:
        """The token of the link becomes a cookie, and goes from the address."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        rest = urlencode([(key, value) for key, value in query if key != TOKEN])
        # One slash at its beginning: two would name another server.
        place = "/" + scope["path"].lstrip("/\\") + (f"?{rest}" if rest else "")
        cookie = f"{self._cookie}={self._token.decode()}; Path=/; HttpOnly; SameSite=Strict"
        await _answer(
            send, 303, b"", [("location", _ascii(place)), ("set-cookie", cookie), *_PLAIN]
        )

    def _guarded(self, send: Send, nonce: str) -> Send:
        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                there = {name for name, _ in message["headers"]}
                wanted = [*_PLAIN, *([("content-security-policy", _policy(nonce))])]
                if not self._policy:
                    wanted = _PLAIN
                message["headers"] = [
                    *message["headers"],
                    *(pair for pair in _encoded(wanted) if pair[0] not in there),
                ]
            await send(message)

        return guarded


def _policy(nonce: str) -> str:
    return (
        "default-src 'none'; "
        f"script-src 'self' 'nonce-{nonce}'; style-src 'self' 'nonce-{nonce}'; "
        "img-src 'self'; connect-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    )


_PLAIN = [
    ("x-content-type-options", "nosniff"),
    # Nothing for other sites. "no-referrer" would take the origin from our own forms as well.
    ("referrer-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cache-control", "no-store"),
]


def _ascii(place: str) -> str:
    from urllib.parse import quote

    return quote(place, safe="/?&=%+:,;@~-._")


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _cookie(headers: dict[str, str], name: str) -> str | None:
    """By hand: a foreign cookie that is not well-formed must not hide ours."""
    for one in headers.get("cookie", "").split(";"):
        key, _, value = one.strip().partition("=")
        if key == name:
            return value
    return None


async def _refuse(send: Send, why: str) -> None:
    text = _SENTENCES[why].encode()
    await _answer(send, 403, text, [("content-type", "text/plain; charset=utf-8"), *_PLAIN])


async def _answer(send: Send, status: int, body: bytes, headers: list[tuple[str, str]]) -> None:
    size = ("content-length", str(len(body)))
    await send(
        {"type": "http.response.start", "status": status, "headers": _encoded([*headers, size])}
    )
    await send({"type": "http.response.body", "body": body})


def _encoded(headers: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
