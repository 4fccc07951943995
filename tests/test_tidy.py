"""The shape of the code: layers, sizes, and who may print or look at the environment."""

from __future__ import annotations

import ast
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

import clew

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "clew"
MODULES = sorted(SOURCE.rglob("*.py"))
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70

# Each layer may import itself and what stands before it.
LAYERS = [
    {"errors", "codec", "checks", "model", "hashes", "homes", "text", "lazy", "drafts"},
    {
        "engine",
        "state",
        "leasing",
        "carrying",
        "scaffolds",
        "copying",
        "whole",
        "salvage",
        "families",
        "rebuilding",
    },
    {"messages", "tokens", "repair", "budget", "window", "context", "compaction"},
    {
        "engines",
        "leases",
        "turn",
        "projecting",
        "tree",
        "thread",
        "store",
        "opening",
        "mending",
        "exporting",
        "cleaning",
        "doctoring",
    },
    {"_facets", "conversation", "runs", "sessions", "snapshots"},
    {"hops", "aio", "testing", ""},
    {"cli", "__main__"},
]


LOADED_ON_DEMAND = {
    "clew": {"clew.aio"},
    "clew.carrying": {"clew.snapshots.tree"},
    "clew.store": {
        "clew.conversation",
        "clew.runs",
        "clew.sessions",
        "clew.snapshots.catalogue",
        "clew.snapshots.rewind",
    },
    "clew.thread": {
        "clew.snapshots.facet",
        "clew.snapshots.forking",
        "clew.snapshots.model",
        "clew.snapshots.rewind",
    },
}


def layer_of(module: str) -> int:
    name = module.removeprefix("clew").removeprefix(".").split(".")[0]
    return next(n for n, names in enumerate(LAYERS) if name in names)


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "clew":
            names = {alias.name for alias in node.names}
            modules = {n for n in names if (SOURCE / f"{n}.py").exists() or (SOURCE / n).is_dir()}
            found |= {f"clew.{n}" for n in modules} | {"clew" for _ in names - modules}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return {name for name in found if name.split(".")[0] == "clew"}


def functions(path: Path) -> list[tuple[str, int]]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        (node.name, (node.end_lineno or 0) - node.lineno + 1)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, kinds)
    ]


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_go_down_the_layers_only(path: Path) -> None:
    mine = layer_of(module_name(path))
    for name in imports(path) - LOADED_ON_DEMAND.get(module_name(path), set()):
        assert layer_of(name) <= mine, f"{module_name(path)} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_modules_and_functions_stay_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MODULE_LINES_MAX
    for name, lines in functions(path):
        assert lines <= FUNCTION_LINES_MAX, f"{name} has {lines} lines"


def test_functions_are_short_at_the_median() -> None:
    assert statistics.median(n for path in MODULES for _, n in functions(path)) <= 10


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_only_the_command_line_prints_and_reads_the_environment(path: Path) -> None:
    name = module_name(path)
    if name.startswith("clew.cli"):
        return
    for node in ast.walk(ast.parse(path.read_text())):
        called = node.func if isinstance(node, ast.Call) else None
        assert not (isinstance(called, ast.Name) and called.id in ("print", "input")), name
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv"):
            assert name == "clew.homes", "only where a user's own things lie may depend on it"


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_nothing_is_rebuilt_from_stored_bytes_but_data(path: Path) -> None:
    names = {
        name.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import)
        for name in node.names
    }
    assert not names & {"pickle", "marshal", "shelve", "dill"}


def test_importing_clew_loads_no_optional_part() -> None:
    script = (
        "import sys, clew\n"
        "parts = ('anyio', 'trio', 'asyncio', 'apsw', 'backports.zstd', 'clew.aio', 'clew.cli',"
        " 'clew.testing')\n"
        "print([name for name in parts if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_the_public_names_are_these() -> None:
    assert sorted(clew.__all__) == clew.__all__
    assert clew.__all__ == [
        "AlreadyExists",
        "AsyncStore",
        "AsyncThread",
        "AsyncTurn",
        "ClewError",
        "Closed",
        "Conflict",
        "Corrupt",
        "Entry",
        "Fact",
        "FormatTooNew",
        "InvalidInput",
        "Lease",
        "LeaseHeld",
        "LeaseLost",
        "Move",
        "NotFound",
        "Page",
        "Problem",
        "Record",
        "Store",
        "Thread",
        "ThreadInfo",
        "TooLarge",
        "Turn",
        "Unavailable",
        "Unsupported",
        "draft",
        "open",
        "open_async",
        "open_engine",
    ]
    for name in clew.__all__:
        assert getattr(clew, name).__doc__, f"{name} has no docstring"


def test_every_kind_of_the_model_is_named() -> None:
    from clew.model import KINDS

    assert len(KINDS) == 18
