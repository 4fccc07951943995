"""A provider behind the real SDKs: answers requests from a script, over no network."""

from __future__ import annotations

import json
from typing import Any

import httpx2


class FakeProvider:
    """Gives the next reply to each request: JSON, or the events of a stream, or an error."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.requests: list[dict[str, Any]] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(json.loads(request.content))
        reply = self.replies.pop(0)
        if isinstance(reply, int):
            return httpx2.Response(reply, json={"error": {"message": "no", "type": "invalid"}})
        if isinstance(reply, list):
            content = "".join(_event(event) for event in reply)
            return httpx2.Response(
                200, content=content, headers={"content-type": "text/event-stream"}
            )
        return httpx2.Response(200, json=reply)

    def anthropic(self, *, aio: bool = False) -> Any:
        import anthropic

        kind = anthropic.AsyncAnthropic if aio else anthropic.Anthropic
        return kind(api_key="none", max_retries=0, http_client=self._http(aio))

    def openai(self, *, aio: bool = False) -> Any:
        import openai

        kind = openai.AsyncOpenAI if aio else openai.OpenAI
        return kind(api_key="none", max_retries=0, http_client=self._http(aio))

    def gemini(self) -> Any:
        from google import genai

        options = genai.types.HttpOptions(
            httpx_client=self._http(False), httpx_async_client=self._http(True)
        )
        return genai.Client(api_key="none", http_options=options)

    def _http(self, aio: bool) -> Any:
        kind = httpx2.AsyncClient if aio else httpx2.Client
        return kind(transport=httpx2.MockTransport(self))


def _event(event: Any) -> str:
    if event == "[DONE]":
        return "data: [DONE]\n\n"
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n"
