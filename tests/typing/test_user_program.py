"""The programs that `make lint` gives to the type checkers use every public name, and run."""

from __future__ import annotations

import ast
from functools import partial
from importlib.resources import files
from pathlib import Path
from types import ModuleType

import anyio
import async_user_program
import pytest
import user_program
from signatures import PAIRS, arguments, function, overloads, public

CLASSES = [
    *((sync, user_program) for sync, _ in PAIRS),
    *((other, async_user_program) for _, other in PAIRS),
]

each_class = pytest.mark.parametrize(
    ("kind", "program"), CLASSES, ids=[kind.__name__ for kind, _ in CLASSES]
)


def test_the_synchronous_program_runs(tmp_path: Path) -> None:
    user_program.main(tmp_path)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_asynchronous_program_runs(tmp_path: Path, backend: str) -> None:
    anyio.run(partial(async_user_program.main, tmp_path), backend=backend)


def test_the_package_says_that_it_is_typed() -> None:
    assert (files("clew") / "py.typed").is_file()


@each_class
def test_the_program_uses_every_public_name(kind: type, program: ModuleType) -> None:
    name, body = _function_for(kind, program)
    used = {node.attr for node in ast.walk(body) if _is_of(node, name)}
    assert public(kind) - used == set()


@each_class
def test_the_program_gives_every_argument(kind: type, program: ModuleType) -> None:
    name, body = _function_for(kind, program)
    given: dict[str, set[str]] = {}
    for call in ast.walk(body):
        if isinstance(call, ast.Call) and _is_of(call.func, name):
            by_place, _ = arguments(overloads(function(vars(kind)[call.func.attr]))[0])
            passed = [argument for argument, _ in by_place[: len(call.args)]]
            names = [each.arg for each in call.keywords if each.arg is not None]
            given.setdefault(call.func.attr, set()).update(passed, names)
    for method in given:
        for overload in overloads(function(vars(kind)[method])):
            by_place, by_name = arguments(overload)
            wanted = {argument for argument, _ in by_place} | set(by_name)
            missing = {argument for argument in wanted if not argument.startswith("**")}
            assert missing - given[method] == set(), method


def _function_for(kind: type, program: ModuleType) -> tuple[str, ast.AST]:
    """The function of a program that takes such an object first, and how it calls it."""
    assert program.__file__ is not None
    for node in ast.parse(Path(program.__file__).read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[:4] == "use_":
            first = node.args.args[0]
            if first.annotation is not None and ast.unparse(first.annotation) == kind.__name__:
                return first.arg, node
    raise AssertionError(f"no function uses {kind.__name__}")


def _is_of(node: ast.AST, name: str) -> bool:
    value = node.value if isinstance(node, ast.Attribute) else None
    return isinstance(value, ast.Name) and value.id == name
