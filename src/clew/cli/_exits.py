"""What the exit code says: one table over the codes of errors."""

from __future__ import annotations

from typing import Any

from clew.core.errors import ClewError, ReadOnly

OK = 0
DAMAGE = 1
USAGE = 2
NOT_FOUND = 3
CONFLICT = 4
UNAVAILABLE = 5
UNSUPPORTED = 6
MISSING_BLOBS = 7
UNREADABLE = 8
ATTENTION = 9
BUG = 70
OUTPUT = 74
INTERRUPTED = 130
BROKEN_PIPE = 141

MEANINGS = {
    OK: "done, and all is well",
    DAMAGE: "stored data is damaged; of erased: something is left",
    USAGE: "the command line is wrong, or names a store that is not there",
    NOT_FOUND: "there is no such thread or entry",
    CONFLICT: "another writer was first, or holds the lease",
    UNAVAILABLE: "the storage cannot answer now, or may not be written",
    UNSUPPORTED: "this Clew cannot open that store or address",
    MISSING_BLOBS: "blobs are missing, and nothing else is damaged",
    UNREADABLE: "the store cannot be read at all",
    ATTENTION: "the store works, but something has to be done about it",
    BUG: "a mistake in Clew itself",
    OUTPUT: "what the command had to say could not be written",
    INTERRUPTED: "interrupted with Ctrl-C",
    BROKEN_PIPE: "the reader of the output has closed it",
}

_CODES = {
    "corrupt": DAMAGE,
    "invalid_input": USAGE,
    "too_large": USAGE,
    "not_found": NOT_FOUND,
    "already_exists": CONFLICT,
    "conflict": CONFLICT,
    "lease_held": CONFLICT,
    "lease_lost": CONFLICT,
    "unavailable": UNAVAILABLE,
    "read_only": UNAVAILABLE,
    "closed": UNAVAILABLE,
    "unsupported": UNSUPPORTED,
    "format_too_new": UNSUPPORTED,
}


_KINDS = {
    DAMAGE: "damage",
    USAGE: "usage",
    NOT_FOUND: "not_found",
    CONFLICT: "conflict",
    UNAVAILABLE: "unavailable",
    UNSUPPORTED: "unsupported",
    BUG: "bug",
    OUTPUT: "output",
}
_HINTS = {
    "already_exists": "choose another id, or restore or purge the one that is there",
    "conflict": "read again, and decide",
    "corrupt": "clew verify names all that is damaged; clew repair makes a new store of the rest",
    "format_too_new": "upgrade Clew",
    "invalid_input": "clew help has examples",
    "lease_held": "wait until the other writer is done",
    "not_found": "clew list shows what there is, clew list --deleted what can be restored",
    "read_only": "commands that only look at a store work",
    "unavailable": "try again",
}


class UsageError(ClewError):
    """The command line is wrong. It has the code of invalid input, without a field's name."""

    code = "invalid_input"


class OutputError(Exception):
    """Standard output is closed, or does not take what is written to it."""


def code_of(error: Exception) -> int:
    if isinstance(error, ClewError):
        return _CODES.get(error.code, BUG)
    if isinstance(error, OutputError):
        return OUTPUT
    return UNAVAILABLE if isinstance(error, OSError | MemoryError) else BUG


def error_value(error: Exception) -> dict[str, Any]:
    """An error for a program: `code` says which it is, `kind` what the exit code says."""
    kind = _KINDS[code_of(error)]
    code = error.code if isinstance(error, ClewError) else kind
    value = {
        "code": code,
        "kind": kind,
        "message": describe(error),
        "hint": _HINTS.get(code),
        "retryable": isinstance(error, ClewError) and error.retryable,
    }
    return {"error": value}


def describe(error: Exception) -> str:
    """One line for the person who typed the command."""
    if isinstance(error, ReadOnly) and error.operation is None:
        refused = f"{error.place} may not be written ({error.reason}), and nothing was changed"
        return f"{refused}; commands that only look at it work"
    if isinstance(error, ClewError | OutputError):
        return str(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory for this; what was being read is too large"
    if isinstance(error, OSError):
        place = "" if error.filename is None else f"{error.filename}: "
        return f"{place}{error.strerror or error}"
    return f"a mistake in Clew itself, please report it: {type(error).__name__}: {error}"
