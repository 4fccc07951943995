"""The content blocks of items of OpenAI's Responses API."""

from __future__ import annotations

from typing import Any

from clew.messages import _openai
from clew.messages._reading import optional, string
from clew.messages.neutral import Media, Other, Part, Text

NAME = "openai-responses"

Block = dict[str, Any]


def read_block(block: Block, item: Block | None = None) -> Part:
    """A block of a message item; or of a result, which keeps its blocks itself."""
    own: Any = {} if item is None else {"format": NAME, "raw": item}
    match string(block, "type"):
        case "input_text" | "output_text" | "text":
            return Text(string(block, "text"), **own)
        case "refusal":
            return Text(string(block, "refusal"), **own)
        case "input_image":
            return read_image(block, **own)
        case "input_file":
            return _read_file(block, **own)
    return Other(format=NAME, raw=item or block)


def read_image(block: Block, **own: Any) -> Part:
    url = optional(block, "image_url")
    if url is not None:
        return _openai.media_at(url, "image", **own)
    return Media(kind="image", file_id=string(block, "file_id"), **own)


def _read_file(block: Block, **own: Any) -> Part:
    filename = optional(block, "filename")
    url = optional(block, "file_url") or optional(block, "file_data")
    if url is not None:
        return _openai.media_at(url, "file", name=filename, **own)
    return Media(kind="file", file_id=string(block, "file_id"), name=filename, **own)


def write_block(part: Media) -> Block | None:
    """An image or a file, or None for what the API does not take."""
    if part.kind == "image":
        url = _openai.image_url(part)
        if url is not None:
            return {"type": "input_image", "image_url": url, "detail": "auto"}
        id = _openai.file_id(part)
        return None if id is None else {"type": "input_image", "file_id": id, "detail": "auto"}
    if part.kind == "audio":
        return None
    file = _openai.file_fields(part)
    if file is None and part.url is not None:
        file = {"file_url": part.url}
    return None if file is None else {"type": "input_file", **file}
