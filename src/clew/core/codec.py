"""Ids, hashes and JSON: how values become bytes, the same on every engine.

JSON is checked once, at the door. What passes comes back exactly; what would not is refused
with the place of the offending value, and nothing is written.
"""

from __future__ import annotations

import math
import os
import random
import threading
import time
from decimal import Decimal
from typing import Any

import msgspec
from blake3 import blake3

from clew.core.errors import Corrupt, InvalidInput, TooLarge
from clew.core.parts import loading

BODY_BYTES_MAX = 64 * 1024 * 1024
NESTING_MAX = 200
INT_MIN, INT_MAX = -(2**63), 2**64 - 1

_encode_into = msgspec.json.Encoder().encode_into
_pack_into = msgspec.msgpack.Encoder().encode_into
_decode_at_once = msgspec.json.Decoder().decode
_LARGE_BYTES = 1024 * 1024
_TEXT = frozenset({str})
REFUSALS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


# --- JSON -----------------------------------------------------------------------------------


def encode(value: Any, *, field: str = "body", limit: int = BODY_BYTES_MAX) -> bytes:
    """The canonical bytes of a JSON value; `bytes` are taken as raw JSON text.

    Compact, UTF-8, keys in the order given (providers' caches depend on it). Raises
    InvalidInput for anything that would not come back exactly, TooLarge over the limit.
    """
    if isinstance(value, bytes):
        return parse(value, field=field, limit=limit)
    try:
        data = _encode(value)
        if _is_plain(value) and len(data) <= limit:
            return data
        # MessagePack has 64-bit integers only: it refuses in C what would lose value.
        _pack_into(value, bytearray())
        # What comes back must be equal: a tuple, a key that is no text, a NaN would not be.
        exact = bool(_decode(data) == value)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        exact = False
    if not exact:
        data = _encode_with_care(value, field)
    if len(data) > limit:
        raise TooLarge(field, size=len(data), limit=limit)
    # Counting brackets is quick, and only a body with many of them can be nested too deeply.
    if data.count(b"[") + data.count(b"{") > NESTING_MAX:
        _check(value, field)
    return data


def _is_plain(value: Any) -> bool:
    """An object of texts alone, as most messages are: it cannot come back as anything else."""
    return (
        type(value) is dict
        and _TEXT.issuperset(map(type, value.values()))
        and (_TEXT.issuperset(map(type, value)))
    )


def _encode(value: Any) -> bytes:
    # Into a buffer of ours: `encode` of msgspec 0.22 does not notice when there is no memory to
    # let its own one grow, and goes on in it, which ends the process.
    buffer = bytearray()
    _encode_into(value, buffer)
    return bytes(buffer)


def _decode(data: bytes) -> Any:
    if len(data) >= _LARGE_BYTES:
        # msgspec 0.22 writes text without a look whether there was memory for it, which ends the
        # process. So about as much as the values will need is asked for first, and given back: if
        # it is not there, this is a MemoryError.
        bytearray(len(data) + 64 * (data.count(b'"') // 2 + data.count(b",")))
    return _decode_at_once(data)


def parse(raw: bytes | str, *, field: str = "body", limit: int = BODY_BYTES_MAX) -> bytes:
    """The canonical bytes of raw JSON text. Duplicate keys and lossy numbers are refused."""
    return parse_value(raw, field=field, limit=limit)[0]


def parse_value(
    raw: bytes | str, *, field: str = "body", limit: int = BODY_BYTES_MAX
) -> tuple[bytes, Any]:
    """The same, with the value: for those who look at what they are about to store."""
    data = raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else bytes(raw)
    if len(data) > limit:
        raise TooLarge(field, size=len(data), limit=limit)
    try:
        value = _decode(data)
        if _encode(value) == data:  # canonical already: nothing can have been lost
            _pack_into(value, bytearray())  # but for what has more than 64 bits
            if data.count(b"[") + data.count(b"{") > NESTING_MAX:
                _check(value, field)
            return data, value
    except (ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        pass
    value = _parse_with_care(data, field)
    return encode(value, field=field, limit=limit), value


def decode(data: bytes) -> Any:
    """The value of canonical bytes."""
    try:
        # Nearly all are small, and a call less is felt where thousands are decoded.
        return _decode_at_once(data) if len(data) < _LARGE_BYTES else _decode(data)
    except REFUSALS:
        # The fast decoder refuses lone surrogates, which are legitimate tool output.
        try:
            return _json().loads(data)
        except (ValueError, RecursionError) as error:
            raise Corrupt("stored JSON", str(error)) from error


def decode_unicode(data: bytes) -> Any:
    """The value of canonical bytes without a lone surrogate; others raise one of `REFUSALS`."""
    return _decode_at_once(data) if len(data) < _LARGE_BYTES else _decode(data)


def render(value: Any) -> str:
    """JSON text of a value that was decoded here, to be shown or measured; nothing is checked."""
    return render_bytes(value).decode("utf-8")


def render_bytes(value: Any) -> bytes:
    """The same, as bytes."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        text: str = _json().dumps(value)
        return text.encode("ascii")


def legible(text: str) -> str:
    """A text as every database carries it: with ? for a lone surrogate, and for a NUL."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "?")


def _encode_with_care(value: Any, field: str) -> bytes:
    """The slow road: find what is wrong and name its place, or encode lone surrogates."""
    json = _json()
    _check(value, field)
    try:
        return _encode(value)
    except (UnicodeEncodeError, TypeError):
        # Two surrogates side by side are one character in JSON: join them, then look again, so
        # that a value has one spelling however its text was put together.
        joined = json.loads(json.dumps(value))
    try:
        return _encode(joined)
    except UnicodeEncodeError:
        text: str = json.dumps(joined, separators=(",", ":"))
        return text.encode("ascii")


def _json() -> Any:
    with loading("json"):  # most programs never need the slow roads
        import json
    return json


def _check(value: Any, field: str) -> None:
    """Raise InvalidInput at the first value that JSON cannot carry exactly."""
    # With a list of its own instead of recursion, which a deep value would exhaust.
    todo: list[tuple[Any, str, int]] = [(value, "$", 0)]
    while todo:
        item, path, depth = todo.pop()
        if isinstance(item, dict):
            _check_depth(depth, field, path)
            for key, child in item.items():
                if not isinstance(key, str):
                    raise InvalidInput(field, f"key {key!r} is not a string", path=path)
                todo.append((child, f"{path}.{key}", depth + 1))
        elif isinstance(item, (list, tuple)):
            _check_depth(depth, field, path)
            todo.extend((child, f"{path}[{i}]", depth + 1) for i, child in enumerate(item))
        else:
            _check_scalar(item, field, path)


def _check_depth(depth: int, field: str, path: str) -> None:
    if depth >= NESTING_MAX:
        short = path if len(path) <= 60 else path[:60] + "…"
        raise InvalidInput(field, f"nested deeper than {NESTING_MAX} levels", path=short)


def _check_scalar(item: Any, field: str, path: str) -> None:
    if item is None or isinstance(item, (str, bool)):
        return
    if isinstance(item, int):
        if not INT_MIN <= item <= INT_MAX:
            raise InvalidInput(field, "integer does not fit in 64 bits", path=path)
    elif isinstance(item, float):
        if not math.isfinite(item):
            raise InvalidInput(field, f"{item} is not a JSON number", path=path)
    else:
        raise InvalidInput(field, f"{type(item).__name__} is not a JSON value", path=path)


def _parse_with_care(data: bytes, field: str) -> Any:
    json = _json()
    try:
        text = data.decode("utf-8", "surrogatepass")
        return json.loads(
            text,
            object_pairs_hook=lambda pairs: _unique(pairs, field),
            parse_int=lambda digits: _exact_int(digits, field),
            parse_float=lambda digits: _exact_float(digits, field),
            parse_constant=lambda name: _refuse(field, f"{name} is not a JSON number"),
        )
    except InvalidInput:
        raise
    except RecursionError:
        raise InvalidInput(field, f"nested deeper than {NESTING_MAX} levels") from None
    except ValueError as error:
        raise InvalidInput(field, f"not JSON: {error}") from None


def _refuse(field: str, reason: str) -> Any:
    raise InvalidInput(field, reason)


def _unique(pairs: list[tuple[str, Any]], field: str) -> dict[str, Any]:
    # Parsers disagree on which of two equal keys counts, so neither is chosen here.
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise InvalidInput(field, f"key {twice!r} appears twice in one object")
    return value


def _exact_int(digits: str, field: str) -> int:
    if len(digits) > 20:  # also keeps a megabyte of digits from being multiplied out
        raise InvalidInput(field, "integer does not fit in 64 bits")
    return int(digits)


def _exact_float(digits: str, field: str) -> float:
    value = float(digits)
    if len(digits) > 400 or not math.isfinite(value) or Decimal(repr(value)) != Decimal(digits):
        raise InvalidInput(field, f"number {digits[:40]} would lose value as a double")
    return value


# --- hashes ---------------------------------------------------------------------------------


def digest(data: bytes) -> str:
    """The content hash of bytes, with the algorithm as prefix."""
    return "b3:" + blake3(data).hexdigest()


def digest_fields(*fields: str | int | None) -> str:
    """The hash over a record's fields, joined by NUL, which no field can contain."""
    text = "\0".join(["" if field is None else str(field) for field in fields])
    return digest(text.encode("utf-8"))


def to_hash(data: bytes) -> str:
    """A hash as text; where there are many, engines keep its bytes, which are half as long."""
    return "b3:" + data.hex()


def to_bytes(hash: str) -> bytes:
    """The bytes of a hash; of a text that is none, bytes that no hash has."""
    try:
        data = bytes.fromhex(hash[3:])  # takes capitals and blanks too, which no hash has
    except ValueError:
        data = b""
    return data if to_hash(data) == hash else hash.encode("utf-8", "surrogatepass")


# --- ids ------------------------------------------------------------------------------------

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's: sorts like the number, no i l o u
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]


class _Ids:
    """Mints 128-bit ids: 48 bits of milliseconds, then 80 random bits that grow within one.

    The random bits need not be secret, only unlike those of any other process, so they come from
    a generator of our own, seeded by the system: that is faster than asking the system each time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bits = random.Random(os.urandom(32)).getrandbits
        self._last = 0
        self._time = (-1, "")  # the milliseconds last seen, and how they are written

    def mint(self) -> str:
        """A fresh id of 26 characters that sorts by the time it was minted."""
        now = (time.time_ns() // 1_000_000) << 80
        with self._lock:
            if now > self._last:
                self._last = now | self._bits(79)
            else:
                self._last += 1 + self._bits(32)
            number = self._last
        milliseconds, text = self._time
        if milliseconds != number >> 80:
            milliseconds = number >> 80
            text = "".join([_PAIRS[milliseconds >> shift & 1023] for shift in (40, 30, 20, 10, 0)])
            self._time = (milliseconds, text)
        # Written out: an id is minted for every append.
        a, b = _PAIRS[number >> 70 & 1023], _PAIRS[number >> 60 & 1023]
        c, d = _PAIRS[number >> 50 & 1023], _PAIRS[number >> 40 & 1023]
        e, f = _PAIRS[number >> 30 & 1023], _PAIRS[number >> 20 & 1023]
        return f"{text}{a}{b}{c}{d}{e}{f}{_PAIRS[number >> 10 & 1023]}{_PAIRS[number & 1023]}"


_ids = _Ids()
new_id = _ids.mint

# A forked child must not go on counting from its parent's last id.
if hasattr(os, "register_at_fork"):  # one way: Windows has no fork
    os.register_at_fork(after_in_child=_ids.__init__)  # type: ignore[misc]
