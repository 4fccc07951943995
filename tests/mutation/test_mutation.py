"""What makes mutants makes mistakes that matter, one at a time, and of every sort."""

from __future__ import annotations

import ast

from mutation.mutants import mutants
from mutation.run import AREAS, TESTS, area, names

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
