"""Clients of the providers' SDKs whose requests go to a function in place of the network."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from clew.core.errors import Unsupported

# What a request is answered with: its format, its body, and whether it asks for a stream.
Answer = Callable[[str, Mapping[str, Any], bool], bytes]

_KEY = "none"  # the SDKs want one; no server sees it


def anthropic(answer: Answer, *, aio: bool) -> Any:
    sdk = _sdk("anthropic", "anthropic")
    kind = sdk.AsyncAnthropic if aio else sdk.Anthropic
    return kind(api_key=_KEY, max_retries=0, http_client=_http(_library(sdk), answer, aio=aio))


def openai(answer: Answer, *, aio: bool) -> Any:
    sdk = _sdk("openai", "openai")
    kind = sdk.AsyncOpenAI if aio else sdk.OpenAI
    return kind(api_key=_KEY, max_retries=0, http_client=_http(_library(sdk), answer, aio=aio))


def gemini(answer: Answer) -> Any:
    sdk = _sdk("google.genai", "google-genai")
    try:
        library = import_module("httpx2")
    except ImportError:
        library = import_module("httpx")
    options = sdk.types.HttpOptions(
        httpx_client=_http(library, answer, aio=False),
        httpx_async_client=_http(library, answer, aio=True),
    )
    return sdk.Client(api_key=_KEY, http_options=options)


def _sdk(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise Unsupported(f"the client needs the SDK: pip install {package}") from error


def _library(sdk: Any) -> Any:
    """The HTTP library that an SDK is built on: its own default client is one of that library."""
    for kind in sdk.DefaultHttpxClient.__mro__:
        name = kind.__module__.partition(".")[0]
        if name.startswith("httpx"):
            return import_module(name)
    raise Unsupported(f"this release of {sdk.__name__} cannot be replayed")


def _http(library: Any, answer: Answer, *, aio: bool) -> Any:
    def handle(request: Any) -> Any:
        format, is_streamed = _kind(request.url.path)
        body = json.loads(request.content)
        is_streamed = is_streamed or body.get("stream") is True
        content = answer(format, body, is_streamed)
        kind = "text/event-stream" if is_streamed else "application/json"
        return library.Response(200, content=content, headers={"content-type": kind})

    client = library.AsyncClient if aio else library.Client
    return client(transport=library.MockTransport(handle))


def _kind(path: str) -> tuple[str, bool]:
    """The format of an API by its address, and whether it is an address for streams."""
    for end, format in _ADDRESSES.items():
        if path.endswith(end):
            return format, end == ":streamGenerateContent"
    raise Unsupported(f"a request to {path!r} is none that a thread records")


_ADDRESSES = {
    "/messages": "anthropic",
    "/chat/completions": "openai-chat",
    "/responses": "openai-responses",
    ":generateContent": "gemini",
    ":streamGenerateContent": "gemini",
}
