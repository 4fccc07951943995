"""Mutants: a module with one small mistake in it, as a person makes one.

A comparison that is off by one or turned round, `and` for `or`, a condition reversed, a number or a
flag that is another, a step left out, a result not given. Texts of errors, annotations and what is
only logged are left alone: to change them breaks no promise.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
}


Change = Callable[[Any], object]


@dataclass(frozen=True)
class Mutant:
    line: int
    last: int  # of the statement that it is in, without the statements inside of that
    what: str
    in_function: bool  # in what runs when a function is called, not when the module is loaded
    text: str  # of its line
    _tree: ast.Module
    _node: ast.AST
    _change: Change

    @property
    def tree(self) -> ast.Module:
        """The module with the mistake, made when it is asked for: there are thousands of them.

        Whatever has no mistake stands in the line where it stood."""
        changed = copy.deepcopy(self._tree)
        pairs = zip(ast.walk(self._tree), ast.walk(changed), strict=True)
        self._change(next(there for here, there in pairs if here is self._node))
        return ast.fix_missing_locations(changed)


def mutants(source: str) -> list[Mutant]:
    """Every mutant of a module, in the order of its lines."""
    tree = ast.parse(source)
    places = _places(tree)
    lines = source.splitlines()
    found = [
        Mutant(line, last, what, called, lines[line - 1].strip(), tree, node, change)
        for node in _code(tree)
        for change, what in _changes(node)
        for line, (last, called) in [(node.lineno, places[node])]  # type: ignore[attr-defined]
    ]
    return sorted(found, key=lambda one: (one.line, one.what))


def _places(tree: ast.Module) -> dict[ast.AST, tuple[int, bool]]:
    """Of each node the last line of its statement (of a compound one, of its head), and whether it
    is in the body of a function."""
    places: dict[ast.AST, tuple[int, bool]] = {}

    def walk(node: ast.AST, end: int, called: bool) -> None:
        if isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            inside = getattr(node, "body", None)
            end = inside[0].lineno - 1 if inside else getattr(node, "end_lineno", end)
            end = max(end, getattr(node, "lineno", end))
        places[node] = end, called
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for name, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    walk(child, end, called or (function and name == "body"))

    walk(tree, 0, False)
    return places


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """What runs and can matter: no annotation, decorator, text of an error, log or assertion."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        if name == "keywords" and isinstance(node, ast.ClassDef):  # frozen=True: a declaration
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.Raise | ast.Assert):
                continue
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                continue
            if isinstance(child, ast.Expr) and _is_idle(child.value):
                continue
            yield child
            yield from _code(child)


def _is_idle(value: ast.expr) -> bool:
    """A docstring, a bare name, or a line of a log."""
    return not isinstance(value, ast.Call) or ast.unparse(value.func).startswith("_log.")


def _changes(node: ast.AST) -> Iterator[tuple[Change, str]]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in _COMPARISONS:
            other = _COMPARISONS[type(op)]
            yield (lambda n: n.ops.__setitem__(0, other())), f"{_name(op)} is {other.__name__}"
        case ast.BoolOp(op=op):
            other_op = ast.Or if isinstance(op, ast.And) else ast.And
            yield (lambda n: setattr(n, "op", other_op())), f"{_name(op)} is {other_op.__name__}"
        case ast.BinOp(op=op, left=left) if type(op) in _OPERATORS and not _is_text(left):
            other_bin = _OPERATORS[type(op)]
            yield (lambda n: setattr(n, "op", other_bin())), f"{_name(op)} is {other_bin.__name__}"
        case ast.UnaryOp(op=ast.Not()):
            yield (lambda n: _become(n, n.operand)), "not is left out"
        case ast.Constant(value=bool(value)):
            yield (lambda n: setattr(n, "value", not value)), f"{value} is {not value}"
        case ast.Constant(value=int(number)):
            yield (lambda n: setattr(n, "value", number + 1)), f"{number} is {number + 1}"
        case ast.If() | ast.While() | ast.IfExp():
            yield (lambda n: setattr(n, "test", ast.UnaryOp(ast.Not(), n.test))), "turned round"
        # None where False was given is no mistake: both are no to a caller that asks.
        case ast.Return(value=ast.expr() as given) if not _is_no(given):
            yield (lambda n: setattr(n, "value", ast.Constant(None))), "gives None"
        case ast.Expr(value=ast.Call()):
            yield (lambda n: setattr(n, "value", ast.Constant(None))), "the call is left out"
        case ast.AugAssign():
            yield _skip, "the sum is left out"
        case ast.Break():
            yield (lambda n: setattr(n, "__class__", ast.Continue)), "break is continue"
        case ast.Continue():
            yield (lambda n: setattr(n, "__class__", ast.Break)), "continue is break"


def _skip(node: ast.AST) -> None:
    node.__class__ = ast.Pass  # type: ignore[assignment]


def _become(node: ast.AST, other: ast.AST) -> None:
    node.__class__ = other.__class__  # type: ignore[assignment]
    node.__dict__ = dict(other.__dict__)


def _name(op: ast.AST) -> str:
    return type(op).__name__


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _is_no(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and (node.value is None or node.value is False)
