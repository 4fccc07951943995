"""Values and entries without their secrets. What is not for people stays as it is.

Ids, signatures, encrypted thinking, hashes and the bytes of pictures are left alone: a change would
break what hangs on them. What a tool was given is the user's own, so there no key is special. The
key that a text stands under is looked at with it, as `key="text"`, which is how the rules read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from clew.core.codec import decode, encode
from clew.core.errors import Corrupt
from clew.core.model import Entry
from clew.interchange.redaction.rules import Found, matcher

JSON_CHARACTERS_MAX = 4 * 1024 * 1024  # of a text that is looked at as JSON
_JSON_DEPTH = 4
_BASE64_LENGTH = 2000
_BASE64 = re.compile(r"[A-Za-z0-9+/_=\s-]*")
_KEPT = re.compile(
    r"(?:.*_)?(?:id|uuid|ids)|.*[a-z](?:Id|ID|Uuid|UUID|Ids)|.*[sS]ignature|.*[hH]ash|sha\d*|digest"
    r"|encrypted_?[cC]ontent|type|role|format|timestamp|media_type|mime_?[tT]ype"
)
_SECRET_KEY = re.compile(r"key|secret|token|client|access|cred|pass", re.I)
_FREE = frozenset(("input", "arguments", "args", "parameters"))  # what a tool was given
_MEDIA_TYPES = frozenset(("redacted_thinking", "reasoning.encrypted"))
_MIMES = ("media_type", "mimeType", "mime_type", "mime")


class Replaced(Struct, frozen=True):
    """A secret that was replaced: by which rule, in which entry, and where in its body."""

    rule: str
    entry: str | None
    place: str


class Redactor:
    """Replaces secrets. With `numbered`, one that comes again has the number that it had.

    Without, what comes out follows from the value alone, so that it can be made again.
    `tell` is told of each place once.
    """

    def __init__(
        self,
        *,
        numbered: bool = True,
        entropy: bool = False,
        tell: Callable[[Replaced], None] = lambda replaced: None,
    ) -> None:
        self._matcher = matcher(entropy)
        self._numbered = numbered
        self._tell = tell
        self._told: set[Replaced] = set()
        self._numbers: dict[tuple[str, bytes], int] = {}
        self._counts: dict[str, int] = {}

    def entry(self, entry: Entry) -> Entry:
        """An entry without its secrets; the same one, if it has none, or was erased."""
        if entry.tombstone is not None:
            return entry
        data = self._bytes(entry.data, entry.id, "body")
        meta = entry.meta_data
        if meta is not None:
            meta = self._bytes(meta, entry.id, "meta")
        if data is entry.data and meta is entry.meta_data:
            return entry
        return replace(entry, data=data, noted_digest=None, meta_data=meta)

    def fact(self, key: str, data: bytes) -> bytes:
        return self._bytes(data, None, f"fact {key}", key)

    def value(self, value: Any, entry: str | None = None, place: str = "", key: str = "") -> Any:
        """A JSON value without its secrets; the same one, if it has none."""
        looked = "\n".join(_texts(value, key))
        if not self._matcher.suspects(_to_bytes(looked)):
            return value
        return self._clean(value, key, _Place(entry, place))

    def _bytes(self, data: bytes, entry: str | None, place: str, key: str = "") -> bytes:
        try:
            value = decode(data)
        except Corrupt:  # it is a text then; that it is damaged is for the reader to tell
            text = data.decode("utf-8", "surrogateescape")
            return self._text(text, key, _Place(entry, place)).encode("utf-8", "surrogateescape")
        cleaned = self.value(value, entry, place, key)
        return data if cleaned is value else encode(cleaned)

    def _clean(self, value: Any, key: str, place: _Place) -> Any:
        if isinstance(value, str):
            return self._text(value, key, place)
        if isinstance(value, dict):
            made = {
                name: inner
                if place.is_kept(name, inner, value)
                else self._clean(inner, name, place.below(name, f".{name}"))
                for name, inner in value.items()
            }
            return made if any(made[name] is not value[name] for name in value) else value
        if isinstance(value, list):
            items = [
                self._clean(one, key, place.below(None, f"[{n}]")) for n, one in enumerate(value)
            ]
            return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
        return value

    def _text(self, text: str, key: str, place: _Place) -> str:
        inner = _as_json(text, place.depth)
        if inner is not None:
            cleaned = self._clean(inner, key, place.inside())
            return text if cleaned is inner else json.dumps(cleaned, ensure_ascii=False)
        before = _to_bytes(f'{key}="') if key else b""
        data = before + _to_bytes(text) + (b'"' if key else b"")
        end = len(data) - bool(key)
        found = [_clipped(one, len(before), end) for one in self._matcher.find(data)]
        found = [one for one in found if one.start < one.end]
        if not found:
            return text
        made, last = [], len(before)
        for one in found:
            made += [data[last : one.start], self._mark(one, data, place).encode()]
            last = one.end
        return b"".join([*made, data[last:end]]).decode("utf-8", "surrogatepass")

    def _mark(self, found: Found, data: bytes, place: _Place) -> str:
        """What stands in place of a secret."""
        replaced = Replaced(found.rule, place.entry, place.text)
        if replaced not in self._told:
            self._told.add(replaced)
            self._tell(replaced)
        if not self._numbered:
            return f"[redacted: {found.rule}]"
        secret = (found.rule, data[found.start : found.end])
        if secret not in self._numbers:
            self._counts[found.rule] = self._numbers[secret] = self._counts.get(found.rule, 0) + 1
        return f"[redacted: {found.rule} {self._numbers[secret]}]"


class _Place(Struct, frozen=True):
    """Where in an entry we are. `free`: in what a tool was given; `depth`: JSON within texts."""

    entry: str | None
    text: str
    free: bool = False
    depth: int = 0

    def below(self, key: str | None, step: str) -> _Place:
        if len(self.text) > 200:  # a place that deep is told by its beginning
            step = ""
        return _Place(self.entry, self.text + step, self.free or key in _FREE, self.depth)

    def inside(self) -> _Place:
        return _Place(self.entry, self.text, True, self.depth + 1)

    def is_kept(self, key: str, value: Any, owner: dict[str, Any]) -> bool:
        return isinstance(value, str) and not self.free and _is_kept(key, value, owner)


def _is_kept(key: str, value: str, owner: dict[str, Any]) -> bool:
    """Whether a text of a message is none for people, by its key and what stands beside it."""
    if _KEPT.fullmatch(key):
        return not _SECRET_KEY.search(key)
    if key == "data":
        return owner.get("type") in _MEDIA_TYPES or any(name in owner for name in _MIMES)
    return value.startswith("data:") and ";base64," in value[:100]


def _texts(value: Any, key: str = "", free: bool = False, depth: int = 0) -> Iterator[str]:
    """Every text that is looked at, each as a line with its key."""
    if isinstance(value, str):
        if (inner := _as_json(value, depth)) is not None:
            yield from _texts(inner, key, True, depth + 1)
        elif not _is_base64(value):
            yield f'{key}="{value}"' if key else value
    elif isinstance(value, dict):
        for name, one in value.items():
            if free or not isinstance(one, str) or not _is_kept(name, one, value):
                yield from _texts(one, name, free or name in _FREE, depth)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one, key, free, depth)


def _is_base64(text: str) -> bool:
    """Whether a text is bytes in disguise; no reader finds a secret there."""
    return len(text) >= _BASE64_LENGTH and _BASE64.fullmatch(text) is not None


def _as_json(text: str, depth: int) -> Any:
    """The object or list that a text is, as the arguments of a call often are; None if none."""
    if text[:1] not in ("{", "[") or depth >= _JSON_DEPTH or len(text) > JSON_CHARACTERS_MAX:
        return None
    if text[-1:] not in ("}", "]", "\n"):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, (dict, list)) else None


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _clipped(found: Found, start: int, end: int) -> Found:
    return Found(max(found.start, start), min(found.end, end), found.rule)
