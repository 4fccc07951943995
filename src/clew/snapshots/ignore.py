"""What does not belong into a snapshot: by the project's own ignore files, and by our rules."""

from __future__ import annotations

import re
import warnings
from collections.abc import Container, Iterable, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from clew.core.codec import digest_fields
from clew.core.errors import InvalidInput
from clew.core.parts import loading

IGNORE_FILES = (".gitignore", ".clewignore")  # the later one has the last word
IGNORE_FILE_BYTES_MAX = 1024 * 1024
_REMEMBERED_MAX = 64  # ignore files of usual length, ready to be asked
_LINES_MAX = 256
# What a pattern with many stars costs grows with their number as an exponent, and a tree may come
# from anywhere with its ignore files. No project needs more of them than these.
_STARS_MAX = 4

# Folders that a tool fills and can fill again. Projects name the rest in .gitignore.
DEFAULT_FOLDERS = frozenset(
    "node_modules bower_components jspm_packages .venv venv __pycache__ .mypy_cache .pytest_cache "
    ".ruff_cache .hypothesis .tox .nox .eggs .gradle .terraform .direnv .dart_tool .next .nuxt "
    ".svelte-kit .parcel-cache .turbo .yarn .pnpm-store .cache .hg .svn .jj .bzr".split()
)
DEFAULT_FILES = frozenset([".DS_Store", "Thumbs.db", "desktop.ini"])
_SECRET = re.compile(r"\.env(\Z|[._-])")  # `.env.local` and the like, but not `.environment`
TEMPORARY = ".clew-restore-"  # how the names of a restore that is under way begin
MAX_FILE_BYTES = 32 * 1024 * 1024
MAX_BYTES = 4 * 1024 * 1024 * 1024


class Rules(Struct, frozen=True, kw_only=True):
    """What a snapshot leaves out. `.git` never belongs into one, anywhere."""

    folders: frozenset[str] = DEFAULT_FOLDERS
    files: frozenset[str] = DEFAULT_FILES
    patterns: tuple[str, ...] = ()  # more of them, in the language of .gitignore
    gitignore: bool = True
    secrets: bool = False  # whether .env and its kin belong into a snapshot
    max_file_bytes: int = MAX_FILE_BYTES
    max_bytes: int = MAX_BYTES
    store: frozenset[str] = frozenset()  # where the store itself lies in the tree

    def matcher(self) -> Matcher:
        """For the top folder."""
        id = digest_fields(
            ",".join(sorted(self.folders)),
            ",".join(sorted(self.files)),
            "\n".join(self.patterns),
            int(self.gitignore),
            int(self.secrets),
            self.max_file_bytes,
            self.max_bytes,
            "\n".join(sorted(self.store)),
        )
        for pattern in self.patterns:
            if not is_pattern(pattern):
                raise InvalidInput("patterns", f"{pattern!r} is not a pattern of .gitignore")
        specs = ((0, _compile(self.patterns)),) if self.patterns else ()
        return Matcher(self, id, specs)


class Matcher:
    """The rules as they hold in one folder. `id` changes with every rule that reaches it."""

    def __init__(self, rules: Rules, id: str, specs: tuple[tuple[int, Any], ...]) -> None:
        self.id = id
        self._rules = rules
        self._specs = specs  # where each begins to count, in characters of a path

    def inside(self, folder: str, texts: Iterable[bytes]) -> Matcher:
        """The rules for a folder with ignore files of its own; `folder` ends with a slash."""
        texts = list(texts)
        if not texts or not self._rules.gitignore:
            return self
        lines = [line for text in texts for line in text.decode("utf-8", "replace").splitlines()]
        id = digest_fields(self.id, folder, "\n".join(lines).replace("\0", ""))
        return Matcher(self._rules, id, (*self._specs, (len(folder), _compile(lines))))

    def ignored(self, folder: str, names: Iterable[str], folders: Container[str]) -> frozenset[str]:
        """Those of the names in a folder that are left out; `folders` are the folders among them.

        A whole folder at a time: a tree has many names, and most of them are asked about.
        """
        out = (n for n in names if self._leaves_out(folder + n, n, folder=n in folders))
        return frozenset(out)

    def _leaves_out(self, path: str, name: str, *, folder: bool) -> bool:
        if name.lower() == ".git":
            return True
        rules = self._rules
        if path in rules.store or name.startswith(TEMPORARY):
            return True
        if name in (rules.folders if folder else rules.files):
            return True
        if not folder and not rules.secrets and _SECRET.match(name):
            return True
        # Rules of an inner folder go before those of the folders around it.
        for start, spec in reversed(self._specs):
            relative = path[start:] + "/" if folder else path[start:]
            found = spec.check_file(relative).include
            if found is not None:
                return bool(found)
        return False


def is_pattern(line: str) -> bool:
    """Whether a line of an ignore file can be understood. One that cannot ignores nothing."""
    segments = line.split("/")
    if max(segment.count("*") for segment in segments) > _STARS_MAX:
        return False
    return segments.count("**") <= _STARS_MAX and _spec([line]) is not None


def _compile(lines: Sequence[str]) -> Any:
    """Patterns, ready to be asked. The next look at a tree mostly finds the same ones again."""
    short = len(lines) <= _LINES_MAX
    return _remembered(tuple(lines)) if short else _compiled(list(lines))


@lru_cache(_REMEMBERED_MAX)
def _remembered(lines: tuple[str, ...]) -> Any:
    return _compiled(list(lines))


def _compiled(lines: list[str]) -> Any:
    # All at once is quicker; only if that fails is each line tried on its own.
    wild = any(line.count("*") > _STARS_MAX for line in lines)
    spec = None if wild else _spec(lines)
    return spec or _spec([line for line in lines if is_pattern(line)])


def _spec(lines: list[str]) -> Any:
    """The patterns, ready to be asked; None if there is one among them that cannot be."""
    with loading("pathspec"):
        import pathspec

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # brackets in them look strange to regular expressions
            return pathspec.GitIgnoreSpec.from_lines(lines)
    except (ValueError, re.error):
        return None
