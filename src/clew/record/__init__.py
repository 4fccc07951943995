"""Bare loops: clients of the providers' SDKs that write what they send and get into a thread.

    client = record_anthropic(anthropic.Anthropic(), store.create())

The client that comes back is used as before. Each request appends its new messages, the results
of tools among them, before it is sent, and the reply with its usage when it is there; `recorder`
says what counts as new. It may be asynchronous, and replies may be streamed. No SDK is loaded that
the program has not loaded itself.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from clew import messages
from clew.core.errors import InvalidInput, Unsupported
from clew.messages.sdk_objects import as_body, as_sent
from clew.messages.shared.stream import Accumulator
from clew.record.recorder import Recorder
from clew.thread import Thread
from clew.turn import Turn

if TYPE_CHECKING:
    from clew.aio.handles import AsyncThread
    from clew.aio.turn import AsyncTurn

__all__ = ["record_anthropic", "record_gemini", "record_openai"]

C = TypeVar("C")


def record_anthropic(client: C, thread: Thread | Turn | AsyncThread | AsyncTurn) -> C:
    """A client of the Anthropic SDK that records `messages`, and `beta.messages`, in a thread.

    `client` itself stays as it is, for calls that do not belong to the conversation. Give a turn
    in place of the thread to write under its lease.
    """
    recorder = Recorder(_sync(thread), "anthropic")
    _check_client(client, "Anthropic", "copy", "messages", "beta")

    def hook(copied: Any) -> None:
        for resource in (copied.messages, copied.beta.messages):
            _hook(resource, recorder, "/v1/messages", _messages_request)

    return _copied(client, hook)


def record_openai(client: C, thread: Thread | Turn | AsyncThread | AsyncTurn) -> C:
    """A client of the OpenAI SDK that records `chat.completions` and `responses` in a thread.

    `client` itself stays as it is. See `record_anthropic`.
    """
    target = _sync(thread)
    _check_client(client, "OpenAI", "copy", "chat", "responses")
    chat, responses = Recorder(target, "openai-chat"), Recorder(target, "openai-responses")

    def hook(copied: Any) -> None:
        _hook(copied.chat.completions, chat, "/chat/completions", _chat_request)
        _hook(copied.responses, responses, "/responses", _responses_request)

    return _copied(client, hook)


def record_gemini(client: C, thread: Thread | Turn | AsyncThread | AsyncTurn) -> C:
    """A client of the Google Gen AI SDK that records `models`, `chats` and `aio` in a thread.

    `client` itself stays as it is. Functions that the SDK calls by itself are recorded as well.
    """
    _check_client(client, "Google Gen AI", "models", "chats", "aio")
    return _Gemini(client, Recorder(_sync(thread), "gemini"))  # type: ignore[return-value]


def _check_client(client: Any, sdk: str, *parts: str) -> None:
    """InvalidInput for what is no client of an SDK: one of another SDK, or the class itself."""
    if isinstance(client, type) or not all(hasattr(client, part) for part in parts):
        raise InvalidInput("client", f"must be a client of the {sdk} SDK, not {client!r}")


def _sync(thread: Any) -> Thread | Turn:
    found = getattr(thread, "sync", thread)
    if not isinstance(found, Thread | Turn):
        raise InvalidInput("thread", f"must be a thread or a turn, not {thread!r}")
    return found


# --- Anthropic's and OpenAI's SDK: both send through `_post` of a resource --------------------

Begin = Callable[[Recorder, dict[str, Any]], "str | None"]


def _copied(client: C, hook: Callable[[Any], None]) -> C:
    """A client over the same connections, with resources of its own that are hooked.

    So are those of the copies that are made of it: `client.with_options(timeout=5)` is one.
    """
    copied: Any = client.copy()  # type: ignore[attr-defined]
    hook(copied)

    def copy_again(**options: Any) -> Any:
        return _copied(type(copied).copy(copied, **options), hook)

    copied.copy = copied.with_options = copy_again
    return copied  # type: ignore[no-any-return]


def _hook(resource: Any, recorder: Recorder, path: str, start: Begin) -> None:
    """Let what a resource sends to a path go through the recorder."""
    post = getattr(resource, "_post", None)
    if post is None:
        raise Unsupported(
            f"{type(resource).__name__} of this release of the SDK cannot be recorded"
        )

    def begin(to: str, options: dict[str, Any]) -> tuple[bool, str | None]:
        if to.partition("?")[0] != path:
            return False, None
        headers = (options.get("options") or {}).get("headers") or {}
        if any(name.lower() == "x-stainless-raw-response" for name in headers):
            raise InvalidInput("client", "raw responses cannot be recorded; nothing was sent")
        body = options["body"]
        # Messages may be given as an iterator, which can be read once only.
        for key in ("messages", "input"):
            if (
                key in body
                and not isinstance(body[key], str | list)
                and not _is_left_out(body[key])
            ):
                options["body"] = body = {**body, key: list(body[key])}
        return True, start(recorder, body)

    def send(to: str, **options: Any) -> Any:
        is_recorded, parent = begin(to, options)
        response = post(to, **options)
        if is_recorded and options.get("stream"):
            response._iterator = _gathered(response._iterator, recorder, parent)
        elif is_recorded:
            recorder.end(as_sent(response), parent)
        return response

    async def send_async(to: str, **options: Any) -> Any:
        from clew.aio.hop import hop

        is_recorded, parent = await hop(begin, to, options)
        response = await post(to, **options)
        if is_recorded and options.get("stream"):
            response._iterator = _gathered_async(response._iterator, recorder, parent)
        elif is_recorded:
            await hop(recorder.end, as_sent(response), parent)
        return response

    resource._post = send_async if inspect.iscoroutinefunction(post) else send


def _gathered(events: Iterator[Any], recorder: Recorder, parent: str | None) -> Iterator[Any]:
    """Events on their way to the caller; the reply is recorded before the last of them.

    A reply that was broken off is none.
    """
    gathered, is_recorded = messages.accumulator(recorder.format), False
    for event in events:
        gathered.add(event)
        if gathered.is_done and not is_recorded:
            is_recorded = _end(recorder, gathered, parent)
        yield event
    if not is_recorded:
        _end(recorder, gathered, parent)


async def _gathered_async(
    events: AsyncIterator[Any], recorder: Recorder, parent: str | None
) -> AsyncIterator[Any]:
    from clew.aio.hop import hop

    gathered, is_recorded = messages.accumulator(recorder.format), False
    async for event in events:
        gathered.add(event)
        if gathered.is_done and not is_recorded:
            is_recorded = await hop(_end, recorder, gathered, parent)
        yield event
    if not is_recorded:
        await hop(_end, recorder, gathered, parent)


def _end(recorder: Recorder, gathered: Accumulator, parent: str | None) -> bool:
    """Record a streamed reply that has come to its end."""
    found = gathered.so_far()
    if found is None or not (found.is_whole or gathered.is_done):
        return False
    recorder.end(found.response, parent)
    return True


def _messages_request(recorder: Recorder, body: dict[str, Any]) -> str | None:
    held = body.get("thread")  # by the provider, between the turns
    if isinstance(held, dict) and held.get("type") == "continue":
        after = held.get("previous_message_id")
        return recorder.begin(body["messages"], is_whole=False, after_response=after)
    return recorder.begin(body["messages"])


def _chat_request(recorder: Recorder, body: dict[str, Any]) -> str | None:
    if isinstance(body.get("n"), int) and body["n"] > 1:
        raise InvalidInput("n", "of several replies only one can be recorded; nothing was sent")
    return recorder.begin(body["messages"])


def _responses_request(recorder: Recorder, body: dict[str, Any]) -> str | None:
    if body.get("background") is True:
        raise InvalidInput("background", "a reply that comes later cannot be recorded")
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    after, elsewhere = body.get("previous_response_id"), body.get("conversation")
    return recorder.begin(
        [] if _is_left_out(items) else list(items or ()),
        is_whole=_is_left_out(after) and _is_left_out(elsewhere),
        after_response=after if isinstance(after, str) else None,
    )


def _is_left_out(value: Any) -> bool:
    """Whether an argument was not given, for which each SDK has objects of its own."""
    return value is None or type(value).__name__ in ("NotGiven", "Omit")


# --- Google's SDK ---------------------------------------------------------------------------


class _Gemini:
    """A client whose models are recorded; all the rest is the client's own."""

    def __init__(self, client: Any, recorder: Recorder, aio: bool = False) -> None:
        self._client = client
        self.models = _recorded_models(client.models, recorder, aio)
        if not aio:
            self.aio = _Gemini(client.aio, recorder, aio=True)

    @property
    def chats(self) -> Any:
        return type(self._client.chats)(modules=self.models)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def __enter__(self) -> _Gemini:
        self._client.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._client.__exit__(*error)

    async def __aenter__(self) -> _Gemini:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._client.__aexit__(*error)


def _recorded_models(models: Any, recorder: Recorder, aio: bool) -> Any:
    """A copy of the models whose requests are recorded, one by one.

    `generate_content` sends several where it calls functions by itself, each with all before it.
    """
    one, streamed = (
        "_generate_content_with_continuation",
        "_generate_content_stream_with_continuation",
    )
    recorded = copy.copy(models)
    if not (hasattr(recorded, one) and hasattr(recorded, streamed)):
        raise Unsupported(f"{type(models).__name__} of this release of the SDK cannot be recorded")
    generate, generate_stream = getattr(recorded, one), getattr(recorded, streamed)

    def send(**request: Any) -> Any:
        parent = _gemini_request(recorder, request)
        response = generate(**request)
        recorder.end(as_body(response), parent)
        return response

    def send_stream(**request: Any) -> Iterator[Any]:
        parent = _gemini_request(recorder, request)
        yield from _gathered(generate_stream(**request), recorder, parent)

    async def send_async(**request: Any) -> Any:
        from clew.aio.hop import hop

        parent = await hop(_gemini_request, recorder, request)
        response = await generate(**request)
        await hop(recorder.end, as_body(response), parent)
        return response

    async def send_stream_async(**request: Any) -> AsyncIterator[Any]:
        from clew.aio.hop import hop

        parent = await hop(_gemini_request, recorder, request)
        events = generate_stream(**request)
        async for event in _gathered_async(events, recorder, parent):
            yield event

    setattr(recorded, one, send_async if aio else send)
    setattr(recorded, streamed, send_stream_async if aio else send_stream)
    return recorded


def _gemini_request(recorder: Recorder, request: dict[str, Any]) -> str | None:
    config = request.get("config")
    count = config.get("candidate_count") if isinstance(config, dict) else None
    count = getattr(config, "candidate_count", count)
    if isinstance(count, int) and count > 1:
        raise InvalidInput(
            "candidate_count", "of several replies only one can be recorded; nothing was sent"
        )
    # A text, a part, a content or a list of them: the SDK knows what they stand for.
    from google.genai._transformers import t_contents

    return recorder.begin(t_contents(request["contents"]))
