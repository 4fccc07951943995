"""PostgreSQL's errors as Clew's, in one place."""

from __future__ import annotations

import psycopg
from psycopg import errors as states

from clew.errors import ClewError, Corrupt, InvalidInput, TooLarge, Unavailable, Unsupported

# Conditions that our own functions raise; sql/postgres.sql says what they mean.
BLOB_MISSING, NO_SEGMENT, NOT_ON_PATH = "CL001", "CL003", "CL004"

READ_ONLY = "25006"  # the server was a primary, and is a standby now
_LOST_STATES = frozenset(("57P01", "57P02", "57P03", "57P05", "25P03"))
_AGAIN_STATES = frozenset(("40001", "40P01", "55P03"))
_BEFORE_ANYTHING = frozenset(("57P03", "53300", "53400", READ_ONLY))


def is_lost(error: BaseException) -> bool:
    """The connection is gone, or the server is going: what became of the command is unknown."""
    if isinstance(error, psycopg.InternalError):
        return error.sqlstate is None  # the client's own: what came does not fit what was asked
    if not isinstance(error, psycopg.OperationalError):
        return False
    state = error.sqlstate
    return state is None or state.startswith("08") or state in _LOST_STATES


def is_transient(error: BaseException) -> bool:
    """Trying again may help: others were in the way, or the server has changed its role."""
    if not isinstance(error, psycopg.Error):
        return False
    return is_lost(error) or error.sqlstate in _AGAIN_STATES | _BEFORE_ANYTHING


def leaves_doubt(error: BaseException) -> bool:
    """Whether what was sent may have been done all the same."""
    return is_lost(error) and getattr(error, "sqlstate", None) not in _BEFORE_ANYTHING


def text_of(error: BaseException) -> str:
    """The first line that PostgreSQL, or its client, has to say."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].removeprefix("connection failed: ") if lines else type(error).__name__


def translate(error: psycopg.Error, place: str) -> ClewError:
    """What a failed statement means. It has changed nothing, or the caller says otherwise."""
    text = text_of(error)
    match error:
        case states.InsufficientPrivilege():
            return Unsupported(
                f"{place}: the role may not do this ({text}); grant it the rights on Clew's schema"
            )
        case states.ReadOnlySqlTransaction():
            return Unavailable(_read_only(place))
        case states.DiskFull() | states.OutOfMemory() | states.ConfigurationLimitExceeded():
            return Unavailable(
                f"{place}: the server has no room left ({text}); nothing was written"
            )
        case (
            states.UndefinedTable()
            | states.UndefinedFunction()
            | states.UndefinedColumn()
            | states.InvalidSchemaName()
        ):
            return Unsupported(
                f"{place}: the schema is not the one this Clew knows ({text}); "
                "it may have been migrated or dropped: open the store again"
            )
        case states.ProgramLimitExceeded():
            return TooLarge("value", size=0, limit=0) if "bytes" not in text else _too_large(text)
        case states.DataCorrupted() | states.IndexCorrupted():
            return Corrupt(place, f"PostgreSQL says: {text}")
        case states.UntranslatableCharacter() | states.CharacterNotInRepertoire():
            return InvalidInput("text", text)
        case _ if error.sqlstate == NO_SEGMENT:
            return Corrupt(place, f"{text}; run clew verify")
        case _ if is_transient(error):
            return Unavailable(f"{place}: {text}")
        case _:
            return Unavailable(f"{place}: PostgreSQL failed: {text}", retryable=False)


def _too_large(text: str) -> ClewError:
    return Unavailable(f"a value is too large for PostgreSQL: {text}", retryable=False)


def _read_only(place: str) -> str:
    return (
        f"{place} is a read-only standby, or was made one; name all hosts in the address and add "
        "target_session_attrs=read-write, so that the primary is found"
    )
