"""Both sides have the same names, which take the same arguments and give the same types."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from signatures import PAIRS, arguments, function, overloads, plain, public, returned

from clew.address import open
from clew.aio import handles

each_pair = pytest.mark.parametrize(("sync", "other"), PAIRS, ids=lambda kind: kind.__name__)


@each_pair
def test_the_asynchronous_side_has_the_same_names(sync: type, other: type) -> None:
    assert public(other) == public(sync)


@each_pair
def test_the_asynchronous_side_takes_the_same_arguments(sync: type, other: type) -> None:
    for name, theirs, ours in methods(sync, other):
        assert len(overloads(theirs)) == len(overloads(ours)), name
        for there, here in zip(overloads(theirs), overloads(ours), strict=True):
            assert arguments(here) == arguments(there), name


def test_a_store_is_opened_with_the_same_arguments() -> None:
    assert arguments(handles.open_async) == arguments(open)


@each_pair
def test_the_asynchronous_side_gives_the_same_types(sync: type, other: type) -> None:
    for name, theirs, ours in methods(sync, other):
        for there, here in zip(overloads(theirs), overloads(ours), strict=True):
            assert plain(returned(here)) == returned(there), name


@each_pair
def test_the_asynchronous_side_has_the_same_defaults(sync: type, other: type) -> None:
    for name, theirs, ours in methods(sync, other):
        there = inspect.signature(theirs).parameters
        for given in inspect.signature(ours).parameters.values():
            if given.name in there and given.default is not given.empty:
                assert given.default == there[given.name].default, f"{name}({given.name})"


def methods(sync: type, other: type) -> list[tuple[str, Callable[..., Any], Callable[..., Any]]]:
    """The functions of both sides, also those behind a property."""
    names = sorted(set(vars(sync)) & public(other))
    return [(name, function(vars(sync)[name]), function(vars(other)[name])) for name in names]
