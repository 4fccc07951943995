"""What OpenAI's two formats share: data: addresses, sounds, usage."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from clew.messages.neutral import Media, Usage
from clew.messages.shared import media
from clew.messages.shared.read import Count, tokens, tokens_in

SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def media_at(url: str, kind: Any, *, name: str | None = None, **own: Any) -> Media:
    """Media at an address, which may hold the data itself."""
    held = media.split_data_url(url)
    if held is None:
        return Media(kind=kind, url=url, name=name, **own)
    return Media(kind=kind, mime=held[0], data=held[1], name=name, **own)


def image_url(part: Media) -> str | None:
    """The address of an image, or None if the API would not take it."""
    if part.data is not None:
        return media.data_url(part) if part.mime in media.IMAGES else None
    return part.url


def file_id(part: Media) -> str | None:
    """The id of a file at this provider; both formats know it."""
    return part.file_id if part.format in ("openai-chat", "openai-responses") else None


def file_fields(part: Media) -> dict[str, Any] | None:
    """A file that is sent along, or was sent; only PDF is taken by every model that takes files."""
    if part.data is not None and part.mime == media.PDF:
        return {"filename": part.name or "file.pdf", "file_data": media.data_url(part)}
    id = file_id(part)
    return None if id is None else {"file_id": id}


class CountsIn(Struct, gc=False, forbid_unknown_fields=True):
    """The details of what was sent, as they usually are."""

    cached_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    audio_tokens: Count | None = None
    text_tokens: Count | None = None
    image_tokens: Count | None = None


class CountsOut(Struct, gc=False, forbid_unknown_fields=True):
    """The details of what was made, as they usually are."""

    reasoning_tokens: Count | None = None
    audio_tokens: Count | None = None
    text_tokens: Count | None = None
    accepted_prediction_tokens: Count | None = None
    rejected_prediction_tokens: Count | None = None


def usual_usage(sent: int, sent_in: CountsIn | None, made: int, made_in: CountsOut | None) -> Usage:
    """The same as `read_usage` says of it."""
    cached = 0 if sent_in is None else sent_in.cached_tokens or 0
    written = 0 if sent_in is None else sent_in.cache_write_tokens or 0
    return Usage(
        input_tokens=max(sent - cached - written, 0),
        output_tokens=made,
        cache_read_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=0 if made_in is None else made_in.reasoning_tokens or 0,
    )


def read_usage(usage: Any, sent: str, made: str) -> Usage | None:
    """Usage with `sent` and `made` tokens; what came from the cache is counted apart."""
    if not isinstance(usage, dict):
        return None
    cached = tokens_in(usage, f"{sent}_details", "cached_tokens")
    written = tokens_in(usage, f"{sent}_details", "cache_write_tokens")
    return Usage(
        input_tokens=max(tokens(usage, sent) - cached - written, 0),
        output_tokens=tokens(usage, made),
        cache_read_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=tokens_in(usage, f"{made}_details", "reasoning_tokens"),
    )
