"""The shape of the code: what may import what, how things are called, how large they are.

The layers are the folders of src/clew, so a new module needs no word here.
"""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import clew

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "clew"
MODULES = sorted(SOURCE.rglob("*.py"))
MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
SMALL_LINES = 80
ROOMS = "engine rows write read blobs leases purge verify doctor repair".split()

# From the bottom to the top; each may import itself and what stands before it. "handles" are the
# files that lie in the root itself, "clew" is the package's face, which all of them hang on.
LAYERS = (
    ("core",),
    ("messages",),
    ("context",),
    ("engines",),
    ("handles",),
    ("facets", "snapshots"),
    ("upkeep",),
    ("aio",),
    ("search", "usage", "interchange", "adapters", "record", "testing"),
    ("clew",),
    ("server",),
    ("cli",),
)


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path): path for path in MODULES}


def layer_of(module: str) -> str:
    parts = module.split(".")
    if len(parts) == 1:
        return "clew"
    if parts[1] == "__main__":
        return "cli"
    return parts[1] if (SOURCE / parts[1]).is_dir() else "handles"


def rank(module: str) -> int:
    return next(n for n, names in enumerate(LAYERS) if layer_of(module) in names)


@dataclass(frozen=True)
class Facts:
    """What the rules ask about a module, gathered in one look at it."""

    lines: int
    says: str | None  # its docstring
    imports: frozenset[str]  # the modules of Clew, wherever in it
    outside: frozenset[str]  # the packages that are not Clew's
    functions: tuple[tuple[str, int], ...]  # with their lines
    prints: bool
    reads_environment: bool
    compares_engines: bool


@cache
def facts(path: Path) -> Facts:
    text = path.read_text()
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    functions = [n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return Facts(
        lines=len(text.splitlines()),
        says=ast.get_docstring(tree),
        imports=frozenset(_imports(tree)),
        outside=frozenset(_outside(nodes)),
        functions=tuple((n.name, (n.end_lineno or 0) - n.lineno + 1) for n in functions),
        prints=any(isinstance(f, ast.Name) and f.id in ("print", "input") for f in called),
        reads_environment=bool(attributes & {"environ", "getenv"}),
        compares_engines=any(map(_names_an_engine, nodes)),
    )


def _running(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING`, which never run: a type may look upwards."""
    yield tree
    if isinstance(tree, ast.If) and "TYPE_CHECKING" in ast.unparse(tree.test):
        return
    for child in ast.iter_child_nodes(tree):
        yield from _running(child)


def _imports(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in _running(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            full = {f"{node.module}.{alias.name}": node.module for alias in node.names}
            found |= {name if name in NAMES else module for name, module in full.items()}
    return {name for name in found if name in NAMES}


def _outside(nodes: list[ast.AST]) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found - {"clew", "__future__"}


def _names_an_engine(node: ast.AST) -> bool:
    """Whether it compares something with the name of an engine."""
    if not isinstance(node, ast.Compare):
        return False
    constants = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
    return bool(constants & {"memory", "sqlite", "files", "postgres"})


# --- layers ---


def test_imports_go_down_the_layers_only() -> None:
    upwards = [
        f"{mine} imports {name}"
        for mine, path in NAMES.items()
        for name in facts(path).imports
        if layer_of(name) != layer_of(mine) and rank(name) >= rank(mine)
    ]
    assert upwards == []


def test_every_folder_is_a_layer() -> None:
    assert {layer_of(name) for name in NAMES} <= {name for names in LAYERS for name in names}


def test_an_engine_imports_the_core_and_what_engines_share_and_no_other_engine() -> None:
    for mine, path in NAMES.items():
        if layer_of(mine) == "engines":
            for name in facts(path).imports:
                parts = name.split(".")
                fine = parts[1] == "core" or parts[2:3] in (["shared"], mine.split(".")[2:3])
                assert fine, f"{mine} imports {name}"


def test_nothing_above_the_waist_knows_an_engine() -> None:
    """But for the address, which is where the name of one becomes one."""
    for mine, path in NAMES.items():
        if rank(mine) > rank("clew.engines") and mine != "clew.address":
            found = facts(path)
            assert not [name for name in found.imports if layer_of(name) == "engines"], mine
            assert not found.compares_engines, f"{mine} compares the name of an engine"


# --- names ---

# Adjectives and nouns that are no form of a verb.
NOT_A_VERB = ("incoming",)


def test_modules_are_called_by_nouns_or_by_what_a_user_types() -> None:
    verbs = [path for path in MODULES if path.stem.endswith("ing")]
    assert [path for path in verbs if path.stem not in NOT_A_VERB] == []


def stem(word: str) -> str:
    """A word without the ending that makes it another form of the same one."""
    return re.sub(r"(ions?|ings?|ers?|ed|es|s|e)$", "", word.strip("_"))


TWO_COMMANDS = {"eras"}  # erase and erased are what a user types


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES}), ids=str)
def test_no_two_modules_of_a_folder_are_forms_of_one_word(folder: Path) -> None:
    names = [p.stem for p in folder.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()]
    forms = Counter(stem(name) for name in names if name != "__init__")
    assert {form for form, count in forms.items() if count > 1} - TWO_COMMANDS == set()


def test_the_same_room_has_the_same_name_in_every_engine() -> None:
    """No engine has a room under another form of its name, such as `reading` for `read`."""
    rooms = {stem(room): room for room in ROOMS}
    for name in ("sqlite", "files", "postgres"):
        found = {path.stem for path in (SOURCE / "engines" / name).iterdir()} - {"__init__"}
        assert {room for room in found if rooms.get(stem(room), room) != room} == set(), name
        # What two engines do with the same tables is in a room that both of them enter.
        tables = {path.stem for path in (SOURCE / "engines" / "shared" / "tables").iterdir()}
        assert {"engine", "blobs", "leases", "purge", "verify", "doctor"} <= found | tables


UPKEEP = "verify repair copy cleanup doctor migrate backup restore erase"
COMMANDS = dict.fromkeys(UPKEEP.split(), "upkeep") | {"export": "interchange"}


@pytest.mark.parametrize("verb", COMMANDS)
def test_a_command_has_a_module_and_a_page_of_its_name(verb: str) -> None:
    assert (SOURCE / "cli" / f"{verb}.py").exists()
    assert (SOURCE / COMMANDS[verb] / f"{verb}.py").exists()
    assert (ROOT / "docs" / "howto" / f"{verb}.md").exists()


# --- sizes ---


def test_modules_and_functions_can_be_read_whole() -> None:
    for mine, path in NAMES.items():
        assert facts(path).lines <= MODULE_LINES_MAX, mine
        for name, lines in facts(path).functions:
            assert lines <= FUNCTION_LINES_MAX, f"{name} of {mine} has {lines} lines"


def test_functions_are_short_at_the_median() -> None:
    assert statistics.median(n for path in MODULES for _, n in facts(path).functions) <= 10


def test_no_module_is_there_only_to_keep_another_one_short() -> None:
    """A small one that a single other one imports isolates something: a dependency, the system."""
    importers: dict[str, set[str]] = defaultdict(set)
    for name, path in NAMES.items():
        for imported in facts(path).imports:
            importers[imported].add(name)
    small = [
        name
        for name, path in NAMES.items()
        if len(importers[name]) == 1
        and path.name != "__init__.py"
        and not (
            layer_of(name) == "engines" and path.stem in ROOMS
        )  # small in one, large in others
        and facts(path).lines < SMALL_LINES
        and not isolates(path)
    ]
    assert small == []


def isolates(path: Path) -> bool:
    """Whether it imports something from outside that no module beside it does."""
    common = {"msgspec", "typing", "collections"}
    beside = [other for other in path.parent.glob("*.py") if other != path]
    return bool(facts(path).outside - common - {n for o in beside for n in facts(o).outside})


# --- habits ---


RUNS_OF_THEIR_OWN = ("adapters", "agents", "browser")  # see the Makefile


def test_no_two_test_modules_of_one_run_have_one_name() -> None:
    """The runner imports them by their names alone, and would not collect the second one."""
    tests = ROOT / "tests"
    names: Counter[tuple[str, str]] = Counter()
    for path in tests.rglob("test_*.py"):
        folder = path.relative_to(tests).parts[0]
        names[folder if folder in RUNS_OF_THEIR_OWN else "", path.name] += 1
    assert [name for name, count in names.items() if count > 1] == []


def test_only_the_command_line_prints_and_reads_the_environment() -> None:
    """But for the address: where a user's own store lies is for the environment to say."""
    for mine, path in NAMES.items():
        if layer_of(mine) != "cli":
            assert not facts(path).prints, mine
            assert not facts(path).reads_environment or mine == "clew.address", mine


def test_nothing_is_rebuilt_from_stored_bytes_but_data() -> None:
    for mine, path in NAMES.items():
        assert not facts(path).outside & {"pickle", "marshal", "shelve", "dill"}, mine


def test_every_module_says_what_it_is_for() -> None:
    for mine, path in NAMES.items():
        said = facts(path).says
        assert said, mine
        assert said.splitlines()[0].endswith((".", ":")), f"{mine}: a sentence"


def test_importing_clew_loads_no_optional_part() -> None:
    script = (
        "import sys, clew\n"
        "parts = ('anyio', 'trio', 'asyncio', 'apsw', 'backports.zstd', 'clew.aio', 'clew.cli',"
        " 'clew.testing', 'clew.upkeep', 'clew.facets', 'clew.snapshots', 'rich')\n"
        "print([name for name in parts if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_the_public_names_are_these() -> None:
    assert sorted(clew.__all__) == clew.__all__
    assert clew.__all__ == [
        "AlreadyExists",
        "Artifact",
        "AsyncConversations",
        "AsyncRuns",
        "AsyncSessions",
        "AsyncStore",
        "AsyncThread",
        "AsyncTurn",
        "ClewError",
        "Closed",
        "Conflict",
        "Conversations",
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
        "ReadOnly",
        "Record",
        "Runs",
        "Sessions",
        "Store",
        "Thread",
        "ThreadInfo",
        "TooLarge",
        "Turn",
        "Unavailable",
        "Unsupported",
        "draft",
        "namespaces",
        "open",
        "open_async",
        "open_engine",
        "repair",
        "stable_hash",
    ]
    for name in clew.__all__:
        assert getattr(clew, name).__doc__, f"{name} has no docstring"


def test_every_kind_of_the_model_is_named() -> None:
    from clew.core.model import KINDS

    assert len(KINDS) == 18
