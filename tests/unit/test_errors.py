"""Errors carry fields for programs, cross processes, and form one tree."""

from __future__ import annotations

import errno
import pickle
from datetime import UTC, datetime

import pytest

import clew
from clew.core import errors, parts

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
EXAMPLES = [
    errors.NotFound("thread", "t", deleted_at=NOW),
    errors.NotFound("entry", "e", erased_at=NOW),
    errors.AlreadyExists("thread", "t"),
    errors.Conflict("no", expected="a", actual=None),
    errors.LeaseHeld("t", owner="me", until=NOW),
    errors.LeaseLost("t", fence=1, current=2),
    errors.InvalidInput("body", "bad", path="$.a"),
    errors.TooLarge("body", size=2, limit=1),
    errors.Corrupt("blob b3:0", "flipped"),
    errors.Unsupported("no"),
    errors.FormatTooNew("x.db", found=2, known=1),
    errors.ReadOnly("x.db", operation="append"),
    errors.Unavailable("busy", committed=None),
    errors.Closed("closed"),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: error.code)
def test_an_error_crosses_a_process_boundary_whole(error: clew.ClewError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), copy.fields, copy.code) == (str(error), error.fields, error.code)
    assert (copy.retryable, copy.committed) == (error.retryable, error.committed)


def test_every_error_has_an_example_and_a_code_of_its_own() -> None:
    names = {name for name in errors.__all__ if name != "ClewError"}
    assert {type(error).__name__ for error in EXAMPLES} == names
    assert len({error.code for error in EXAMPLES}) == len(names)


def test_one_except_catches_everything() -> None:
    assert all(isinstance(error, clew.ClewError) for error in EXAMPLES)


def test_an_unknown_outcome_says_so() -> None:
    assert errors.Unavailable("lost", committed=None).committed is None
    assert errors.Unavailable("busy").committed is False


def test_a_message_that_quotes_something_huge_keeps_its_beginning_and_its_end() -> None:
    """What went wrong stands at the beginning, and what to do at the end."""
    long = "begin" + "x" * 10_000 + "end"
    text = errors.shortened(long)
    assert text.startswith("begin")
    assert text.endswith("end")
    assert len(text) == errors.MESSAGE_MAX + len(" … ")
    assert errors.shortened(long[: errors.MESSAGE_MAX]) == long[: errors.MESSAGE_MAX]
    assert errors.shortened(long[: errors.MESSAGE_MAX + 1]) != long[: errors.MESSAGE_MAX + 1]


def test_a_layer_that_cannot_be_loaded_now_is_unavailable_and_nothing_was_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when a process has as many files open as it may."""

    def fails(_: str) -> object:
        raise OSError(errno.EMFILE, "Too many open files")

    name = next(iter(parts.PARTS))
    assert parts.part(name).__name__ == name
    monkeypatch.setattr(parts, "import_module", fails)
    with pytest.raises(errors.Unavailable, match=r"nothing was done: .*Too many open files"):
        parts.part(name)
