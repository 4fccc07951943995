"""What the strict fakes of the providers have in common: how they refuse, and what they mark.

A fake knows its own replies again. It stamps what a provider signs or encrypts (a signature of
thinking, a thought signature, encrypted reasoning), and the stamp says which reply it belongs to,
where it stood there, and what it signed. So a request that alters, moves or mixes signed content
is found out without any memory. What was not stamped here is taken as it is, as an opaque text.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn

JSON = dict[str, Any]


class Refused(Exception):
    """The provider would answer with status 400: the rule, where it is broken, and how."""

    def __init__(self, path: str, reason: str, rule: str) -> None:
        super().__init__(f"{path}: {reason} [{rule}]")
        self.path = path
        self.reason = reason
        self.rule = rule


def refuse(path: str, rule: str, reason: str) -> NoReturn:
    raise Refused(path, reason, rule)


# --- shapes -----------------------------------------------------------------------------------


def an_object(value: Any, path: str) -> JSON:
    if not isinstance(value, dict):
        refuse(path, "shape", f"an object is wanted, not {_named(value)}")
    return value


def a_list(value: Any, path: str, *, least: int = 0, most: int | None = None) -> list[Any]:
    if not isinstance(value, list):
        refuse(path, "shape", f"an array is wanted, not {_named(value)}")
    if len(value) < least:
        refuse(path, "too_short", f"at least {least} is wanted, not {len(value)}")
    if most is not None and len(value) > most:
        refuse(path, "too_long", f"at most {most} are allowed, not {len(value)}")
    return value


def a_text(value: Any, path: str, *, least: int = 0, most: int | None = None) -> str:
    if not isinstance(value, str):
        refuse(path, "shape", f"a string is wanted, not {_named(value)}")
    if len(value) < least:
        refuse(path, "too_short", f"at least {least} character is wanted")
    if most is not None and len(value) > most:
        refuse(path, "too_long", f"at most {most} characters are allowed, not {len(value)}")
    return value


def a_flag(value: Any, path: str) -> None:
    if not isinstance(value, bool):
        refuse(path, "shape", f"true or false is wanted, not {_named(value)}")


def one_of(value: Any, allowed: tuple[str, ...], path: str, rule: str) -> str:
    if not isinstance(value, str) or value not in allowed:
        refuse(path, rule, f"{value!r} is not one of {', '.join(allowed)}")
    return value


def matching(value: Any, pattern: str, path: str, rule: str) -> str:
    if not isinstance(value, str) or re.fullmatch(pattern, value) is None:
        refuse(path, rule, f"{value!r} does not match {pattern}")
    return value


def only_keys(value: JSON, allowed: set[str], path: str) -> None:
    extra = sorted(value.keys() - allowed)
    if extra:
        refuse(f"{path}.{extra[0]}", "unknown_field", "the API knows no such field here")


def base64_data(value: Any, path: str, *, bytes_max: int | None = None) -> bytes:
    text = a_text(value, path, least=1)
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        refuse(path, "base64", "this is not base64 (a data: prefix does not belong here)")
    if bytes_max is not None and len(data) > bytes_max:
        refuse(path, "too_large", f"at most {bytes_max} bytes are allowed, not {len(data)}")
    return data


def sendable(request: Any, path: str = "request") -> None:
    """A request travels as JSON in UTF-8: no NaN, no lone surrogates, only text as keys."""
    try:
        json.dumps(request, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        refuse(path, "json", str(error))


def _named(value: Any) -> str:
    return "null" if value is None else type(value).__name__


# --- stamps -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stamp:
    """What a fake signed: a piece of a reply, and its place in it."""

    reply: str
    index: int
    digest: str


def stamp(reply: str, index: int, signed: Any) -> str:
    """A signature, in base64 as those of the providers are."""
    return base64.b64encode(f"clew-fake|{reply}|{index}|{_digest(signed)}".encode()).decode()


def read_stamp(signature: Any) -> Stamp | None:
    """The stamp in a signature; None if it was not made here."""
    try:
        text = base64.b64decode(signature, validate=True).decode()
    except (TypeError, ValueError):
        return None
    fields = text.split("|")
    if len(fields) != 4 or fields[0] != "clew-fake":
        return None
    return Stamp(fields[1], int(fields[2]), fields[3])


def covers(found: Stamp, signed: Any) -> bool:
    return found.digest == _digest(signed)


def _digest(signed: Any) -> str:
    text = json.dumps(signed, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
