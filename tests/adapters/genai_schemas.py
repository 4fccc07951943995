"""What OpenTelemetry's conventions for generative AI publish of the shapes of messages.

Written down from gen-ai-input-messages.json, gen-ai-output-messages.json and
gen-ai-system-instructions.json of open-telemetry/semantic-conventions-genai (autumn 2026). There,
a part of an unknown type is valid whatever it holds; here a known type must hold what it must.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_MODALITY: Schema = {"enum": ["image", "video", "audio", "document"]}


def _part(type: str, required: dict[str, Schema], optional: dict[str, Schema]) -> Schema:
    return {
        "type": "object",
        "properties": {"type": {"const": type}, **required, **optional},
        "required": ["type", *required],
    }


_PARTS = [
    _part("text", {"content": _TEXT}, {}),
    _part("reasoning", {"content": _TEXT}, {}),
    _part("tool_call", {"name": _TEXT}, {"id": _TEXT, "arguments": {}}),
    _part("tool_call_response", {"response": {}}, {"id": _TEXT}),
    _part("blob", {"modality": _MODALITY, "content": _TEXT}, {"mime_type": _TEXT}),
    _part("file", {"modality": _MODALITY, "file_id": _TEXT}, {"mime_type": _TEXT}),
    _part("uri", {"modality": _MODALITY, "uri": _TEXT}, {"mime_type": _TEXT}),
    _part("compaction", {}, {"id": _TEXT, "content": _TEXT}),
]
_KNOWN = [part["properties"]["type"]["const"] for part in _PARTS]
_UNKNOWN: Schema = {
    "type": "object",
    "properties": {"type": {"type": "string", "not": {"enum": _KNOWN}}},
    "required": ["type"],
}

MESSAGES: Schema = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "role": {"enum": ["system", "user", "assistant", "tool"]},
            "parts": {"type": "array", "items": {"anyOf": [*_PARTS, _UNKNOWN]}},
            "name": _TEXT,
        },
        "required": ["role", "parts"],
    },
}

INSTRUCTIONS: Schema = {"type": "array", "items": {"anyOf": [_PARTS[0], _UNKNOWN]}}
