"""What a call of a tool changes in a file, as the lines of a diff.

No tool is known by name: those of coding agents are told by the names of their arguments.
"""

from __future__ import annotations

import difflib
from typing import Any

from clew.messages.neutral import ToolCall

LINES_MAX = 4_000  # of two texts that are compared; of more, one goes and the other comes
# How tools of coding agents call the text that goes and the text that comes.
_REPLACED = (
    ("old_string", "new_string"),
    ("old_str", "new_str"),
    ("old_text", "new_text"),
    ("oldText", "newText"),
    ("search", "replace"),
)
_PATCHES = ("patch", "diff", "input", "unified_diff")
_PATCH_BEGINS = ("*** Begin Patch", "diff --git ", "--- ", "@@ ")
_WRITTEN = ("content", "file_text", "contents")
_PATHS = ("path", "file_path", "filename", "filePath")


def edit_lines(arguments: Any) -> list[str]:
    """What a call would change, as the lines of a diff; none if it does not look like an edit."""
    if not isinstance(arguments, dict):
        return []
    several = arguments.get("edits")
    found = [arguments, *(several if isinstance(several, list) else [])]
    lines = [line for one in found if isinstance(one, dict) for line in _replaced(one)]
    if lines:
        return lines
    for key in _PATCHES:
        text = arguments.get(key)
        if isinstance(text, str) and text.startswith(_PATCH_BEGINS):
            return _lines(text.rstrip("\n"))
    for key in _WRITTEN:
        text = arguments.get(key)
        if isinstance(text, str) and any(isinstance(arguments.get(name), str) for name in _PATHS):
            return [f"+{line}" for line in _lines(text.rstrip("\n"))]
    return []


def _replaced(edit: dict[str, Any]) -> list[str]:
    for old, new in _REPLACED:
        before, after = edit.get(old), edit.get(new)
        if isinstance(before, str) and isinstance(after, str):
            gone, come = _lines(before.strip("\n")), _lines(after.strip("\n"))
            if len(gone) + len(come) > LINES_MAX:  # to compare takes the square of that
                return [f"-{line}" for line in gone] + [f"+{line}" for line in come]
            found = difflib.unified_diff(gone, come, lineterm="", n=2)
            return [line for line in found if not line.startswith(("---", "+++", "@@"))]
    return []


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").split("\n")


def without_texts(call: ToolCall) -> ToolCall:
    """The arguments of an edit but for the texts, which are shown as a diff."""
    texts = {*(name for pair in _REPLACED for name in pair), *_PATCHES, *_WRITTEN, "edits"}
    kept = {key: value for key, value in call.arguments.items() if key not in texts}
    return ToolCall(call.id, call.name, kept)
