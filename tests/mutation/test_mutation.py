"""What makes mutants makes mistakes that matter, one at a time, and of every sort."""

from __future__ import annotations

import ast

from mutation.mutants import mutants
from mutation.run import AREAS, TESTS, all_mutants, area, choose, names
from mutation.survivors import REASONS

SOURCE = '''
"""A docstring that is no code."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    LIMIT: int = 3


class Shape(Base, frozen=True):
    size: int = 1


def work(a: int, b: "Literal[5]", *, deep: bool = False) -> int | None:
    """Neither is this 7."""
    if a < b and not deep:
        raise ValueError(f"{a} is under 8")
    for n in range(a):
        if n == 2:
            continue
        a += n
        tell(a)
    _log.info("done %d", 9)
    return a + 1
'''


def test_each_mutant_is_one_mistake_and_runs() -> None:
    made = list(mutants(SOURCE))
    whats = [mutant.what for mutant in made]
    assert len({ast.unparse(mutant.tree) for mutant in made}) == len(made)
    for what in ("Lt is LtE", "And is Or", "not is left out", "turned round", "Eq is NotEq"):
        assert what in whats
    for what in ("continue is break", "the sum is left out", "the call is left out", "gives None"):
        assert what in whats
    assert "False is True" in whats, "a default is code"
    assert not {"3 is 4", "5 is 6", "7 is 8", "8 is 9", "9 is 10", "True is False"} & set(whats)
    for mutant in made:
        compile(mutant.tree, "mutant", "exec")


def test_every_module_has_tests_that_are_there() -> None:
    assert len(names()) > 20
    for name in names():
        assert area(name)
    for paths in AREAS.values():
        for path in paths:
            assert (TESTS / path).exists(), path


def test_every_reason_is_about_a_mutant_that_there_is() -> None:
    """A line that has changed may be one whose mutants can be noticed."""
    there = {(name, one.text, one.what) for name in names() for one in all_mutants(name)}
    assert [key for key in REASONS if key not in there] == []


def test_a_sample_is_the_same_for_the_same_seed_and_smaller_than_all() -> None:
    for name in names():
        first, again = choose(name, 25, 4), choose(name, 25, 4)
        told = [(one.line, one.what) for one in first]
        assert told == [(one.line, one.what) for one in again]
        assert len(told) == min(25, len(all_mutants(name)))


def test_what_runs_when_a_function_is_called_is_told_from_what_runs_on_import() -> None:
    inside = {mutant.what: mutant.in_function for mutant in mutants(SOURCE)}
    assert inside["Lt is LtE"]
    assert inside["gives None"]
    assert not inside["False is True"], "a default is made when the module is loaded"
