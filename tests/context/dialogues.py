"""Messages in every provider's shape, to build journals from."""

from __future__ import annotations

import json
from typing import Any

FORMATS = ["anthropic", "openai-chat", "openai-responses", "gemini", "plain"]


def user(format: str, text: str) -> Any:
    if format == "openai-responses":
        return {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": text}],
        }
    if format == "gemini":
        return {"role": "user", "parts": [{"text": text}]}
    return {"role": "user", "content": text}


def system(format: str, text: str) -> Any:
    return {"role": "system", "content": text}


def assistant(format: str, text: str) -> Any:
    if format == "openai-responses":
        content = [{"type": "output_text", "text": text, "annotations": []}]
        return {"type": "message", "role": "assistant", "content": content}
    if format == "gemini":
        return {"role": "model", "parts": [{"text": text}]}
    return {"role": "assistant", "content": text}


def thinking(format: str, text: str, signature: str | None) -> Any:
    if format == "anthropic":
        block = {"type": "thinking", "thinking": text}
        if signature is not None:
            block["signature"] = signature
        return {"role": "assistant", "content": [block]}
    if format == "openai-responses":
        summary = [{"type": "summary_text", "text": text}]
        return {
            "type": "reasoning",
            "id": "rs_1",
            "summary": summary,
            "encrypted_content": signature,
        }
    if format == "gemini":
        part = {"text": text, "thought": True}
        return {"role": "model", "parts": [part]}
    if format == "openai-chat":
        return {"role": "assistant", "content": None, "reasoning_content": text}
    return {"role": "assistant", "content": "", "reasoning": text}


def calls(format: str, *wanted: tuple[str, str, Any], text: str = "") -> Any:
    """An assistant message with calls of (id, name, arguments)."""
    if format == "anthropic":
        blocks = [{"type": "text", "text": text}] if text else []
        blocks += [{"type": "tool_use", "id": i, "name": n, "input": a} for i, n, a in wanted]
        return {"role": "assistant", "content": blocks}
    if format == "openai-responses":
        return [
            {"type": "function_call", "call_id": i, "name": n, "arguments": _json(a)}
            for i, n, a in wanted
        ]
    if format == "gemini":
        parts = [{"text": text}] if text else []
        parts += [{"functionCall": {"id": i, "name": n, "args": a}} for i, n, a in wanted]
        return {"role": "model", "parts": parts}
    if format == "openai-chat":
        made = [
            {"id": i, "type": "function", "function": {"name": n, "arguments": _json(a)}}
            for i, n, a in wanted
        ]
        return {"role": "assistant", "content": text or None, "tool_calls": made}
    made = [{"id": i, "name": n, "arguments": a} for i, n, a in wanted]
    return {"role": "assistant", "content": text, "tool_calls": made}


def result(format: str, id: str, text: str, *, name: str = "run", is_error: bool = False) -> Any:
    if format == "anthropic":
        block = {"type": "tool_result", "tool_use_id": id, "content": text, "is_error": is_error}
        return {"role": "user", "content": [block]}
    if format == "openai-responses":
        return {"type": "function_call_output", "call_id": id, "output": text}
    if format == "gemini":
        answer = {"id": id, "name": name, "response": {"error" if is_error else "result": text}}
        return {"role": "user", "parts": [{"functionResponse": answer}]}
    return {"role": "tool", "tool_call_id": id, "content": text}


def _json(value: Any) -> str:
    return json.dumps(value)
