"""What the source is like as a place to live in: its sizes, its comments, the ways through it.

`python bench/house.py [ROOT]` prints a table, without judging, of the tree it stands in or of the
one at ROOT. Most of it is read off the text of src/clew. The last part makes real calls, through
public names alone, and counts how often each of them goes over to another file: every such switch
is one more file to open for a reader who follows the call.
"""

from __future__ import annotations

import ast
import gc
import io
import re
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import resolve_name
from pathlib import Path
from statistics import median, quantiles
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import clew

Row = tuple[str, str]

SMALL_MODULE_LINES = 80
LONG_FUNCTION_LINES = 70
VAGUE_WORDS = ("somebody", "nobody", "whoever")
# Orders to tools, and the rules between sections: neither says why.
PRAGMA = re.compile(r"#\s*(noqa|type:|pragma|mypy:|ruff:|fmt:|---)")

# One turn of an agent, with a tool. Nothing is left open, so a context needs no repair.
MESSAGES = (
    {"role": "user", "content": "The login is broken."},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "log", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "403"}]},
    {"role": "assistant", "content": "The token has expired."},
)
THREADS, FILES = 5, 4


@dataclass(frozen=True)
class Module:
    path: Path
    name: str
    text: str
    lines: int
    tree: ast.Module


def read_modules(source: Path) -> Iterator[Module]:
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text()
        yield Module(path, name, text, len(text.splitlines()), ast.parse(text))


def about_modules(modules: list[Module], source: Path) -> Iterator[Row]:
    lines = [module.lines for module in modules]
    largest = max(modules, key=lambda module: module.lines)
    names = {module.name for module in modules}
    importers = Counter(name for module in modules for name in imports(module, names))
    alone = [module.lines for module in modules if importers[module.name] == 1]
    yield "lines", f"{sum(lines):,}"
    yield "modules", f"{len(lines)}"
    yield "  median lines", f"{median(lines):g}"
    yield f"  under {SMALL_MODULE_LINES} lines", f"{sum(n < SMALL_MODULE_LINES for n in lines)}"
    yield "  largest", f"{largest.lines} ({largest.path.relative_to(source)})"
    yield "modules with one importer", f"{len(alone)}"
    yield f"  under {SMALL_MODULE_LINES} lines", f"{sum(n < SMALL_MODULE_LINES for n in alone)}"


def imports(module: Module, names: set[str]) -> set[str]:
    """Which of `names` this module imports anywhere, in functions and for types as well.

    A package's `__init__` goes by the package's name, and to import something below it is not to
    import it. What is loaded by a string (commands, formats) has no importer in this sense, nor
    has `__main__`, so they are never modules with exactly one.
    """
    is_package = module.path.name == "__init__.py"
    package = module.name if is_package else module.name.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            origin = resolve_name("." * node.level + (node.module or ""), package)
            below = {f"{origin}.{alias.name}" for alias in node.names}
            found |= {name if name in names else origin for name in below}
    return found & names - {module.name}


def about_functions(modules: list[Module]) -> Iterator[Row]:
    """A function goes from its `def` to its end; those within others are counted as well.

    A private helper, `_so`, is used once when its module speaks of it in one other place only.
    Names are counted, not meanings: two methods of one name in a module are both used twice.
    """
    lengths: list[int] = []
    once = 0
    for module in modules:
        nodes = list(ast.walk(module.tree))
        functions = [n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        used = Counter(n.id for n in nodes if isinstance(n, ast.Name))
        used.update(n.attr for n in nodes if isinstance(n, ast.Attribute))
        lengths += [(n.end_lineno or n.lineno) - n.lineno + 1 for n in functions]
        once += sum(used[n.name] == 1 for n in functions if re.match("_[^_]", n.name))
    long = sum(length > LONG_FUNCTION_LINES for length in lengths)
    yield "functions", f"{len(lengths):,}"
    yield "  median lines", f"{median(lengths):g}"
    yield "  90th percentile", f"{quantiles(lengths, n=10)[-1]:g}"
    yield f"  over {LONG_FUNCTION_LINES} lines", f"{long / len(lengths):.1%}"
    yield "  private helpers used once", f"{once / len(lengths):.1%}"


def about_comments(modules: list[Module]) -> Iterator[Row]:
    """Docstrings say what and are left out; so are marks that only a tool reads."""
    alone = behind = 0
    for module in modules:
        for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
            if token.type == tokenize.COMMENT and not PRAGMA.match(token.string):
                on_its_own = token.line.lstrip().startswith("#")
                alone, behind = alone + on_its_own, behind + (not on_its_own)
    lines = sum(module.lines for module in modules)
    yield "lines that are a comment", f"{alone / lines:.1%}"
    yield "lines that end in a comment", f"{behind / lines:.1%}"


def about_words(root: Path) -> Iterator[Row]:
    files = [*root.glob("src/**/*"), *root.glob("docs/**/*"), *root.glob("*.md")]
    text = "\n".join(file.read_text() for file in files if file.suffix in (".py", ".sql", ".md"))
    found = re.findall("|".join(VAGUE_WORDS), text, re.IGNORECASE)
    yield f"{', '.join(VAGUE_WORDS)} in source and docs", f"{len(found)}"


def about_walks(root: Path, source: Path) -> Iterator[Row]:
    # Before anything that is installed: the tree that was read is the one that runs.
    sys.path[:0] = [str(root / "src"), str(root / "tests")]
    import clew

    assert Path(clew.__file__).parent == source, f"{clew.__file__} is not of {root}"
    yield "file switches of one call (files it crosses)", ""
    with tempfile.TemporaryDirectory() as name, postgres() as dsn:
        folder = Path(name)
        places = {"SQLite": f"{folder}/a.db", "files": f"files:{folder}/a", "PostgreSQL": dsn}
        for engine, address in places.items():
            figure = "–"
            if address:
                with clew.open(address) as store:
                    append = conversation(store).append_message
                    figure = walk(source, partial(append, MESSAGES[0]))
            yield f"  append, {engine}", figure
        # The first round does what is done once: imports on demand, tables kept in memory.
        for number in ("first", "second"):
            figures = [(what, walk(source, call)) for what, call in calls(folder / number)]
        yield from figures


@contextmanager
def postgres() -> Iterator[str]:
    """The address of a database of our own; empty where no server can be started."""
    with ExitStack() as stack:
        dsn = ""
        with suppress(ImportError, OSError, RuntimeError):
            from servers.cluster import Cluster  # the one that the tests start

            cluster = stack.enter_context(Cluster())
            dsn = cluster.dsn(cluster.create_database())
        yield dsn


def calls(folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Each call when its store, of a few short threads and a small folder, is ready for it."""
    import clew

    project = folder / "project"
    project.mkdir(parents=True)
    with clew.open(folder / "store.db") as store:
        thread, *_ = [conversation(store) for _ in range(THREADS)]
        yield "  context", lambda: thread.context("anthropic")
        yield "  verify", store.verify
        yield "  fork", thread.fork
        thread, asked = store.create(), []
        for text in ("old", "new"):
            for number in range(FILES):
                (project / f"{number}.txt").write_text(text)
            asked.append(thread.append_message(MESSAGES[0]).id)
            thread.snapshots.take(project)
            thread.append_message(MESSAGES[-1])
        yield "  rewind", lambda: thread.rewind(asked[0])


def conversation(store: clew.Store) -> clew.Thread:
    thread = store.create(title="Fix the login")
    for message in MESSAGES:
        thread.append_message(message)
    return thread


def walk(source: Path, call: Callable[[], object]) -> str:
    """How often a function is called from another file of the source; how many files there are.

    Each call comes back, so returns are not counted again. What stands between two functions of
    the source, such as contextlib, is looked through. Other threads are not watched.
    """
    inside = f"{source}/"
    switches = 0
    crossed: set[str] = set()

    def notice(frame: FrameType, event: str, _: object) -> None:
        nonlocal switches
        file, caller = frame.f_code.co_filename, frame.f_back
        if event == "call" and file.startswith(inside):
            while caller is not None and not caller.f_code.co_filename.startswith(inside):
                caller = caller.f_back
            switches += caller is None or caller.f_code.co_filename != file
            crossed.add(file)

    gc.disable()  # garbage of earlier calls would be closed in the middle of this one
    sys.setprofile(notice)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return f"{switches} ({len(crossed)})"


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    source = root / "src" / "clew"
    modules = list(read_modules(source))
    rows = [*about_modules(modules, source), *about_functions(modules), *about_comments(modules)]
    rows += [*about_words(root), *about_walks(root, source)]
    width = max(len(what) for what, _ in rows)
    for what, figure in rows:
        print(f"{what:<{width}}  {figure}".rstrip())


if __name__ == "__main__":
    main()
