"""What does not belong into a snapshot: rules of the project's own, and of ours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from clew.codec import digest_fields

IGNORE_FILES = (".gitignore", ".clewignore")  # the later one has the last word
IGNORE_FILE_BYTES_MAX = 1024 * 1024

# Folders that a tool fills and can fill again. Projects name the rest in .gitignore.
DEFAULT_FOLDERS = frozenset(
    "node_modules bower_components jspm_packages .venv venv __pycache__ .mypy_cache .pytest_cache "
    ".ruff_cache .hypothesis .tox .nox .eggs .gradle .terraform .direnv .dart_tool .next .nuxt "
    ".svelte-kit .parcel-cache .turbo .yarn .pnpm-store .cache .hg .svn .jj .bzr".split()
)
DEFAULT_FILES = frozenset([".DS_Store", "Thumbs.db", "desktop.ini"])
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

    def leaves_out(self, path: str, name: str, *, folder: bool) -> bool:
        if name == ".git" or name.lower() == ".git":
            return True
        rules = self._rules
        if path in rules.store or name.startswith(TEMPORARY):
            return True
        if name in (rules.folders if folder else rules.files):
            return True
        if not folder and not rules.secrets and _is_secret(name):
            return True
        for start, spec in reversed(self._specs):
            relative = path[start:] + "/" if folder else path[start:]
            found = spec.check_file(relative).include
            if found is not None:
                return bool(found)
        return False


def _is_secret(name: str) -> bool:
    return name.startswith(".env") and (len(name) == 4 or name[4] in ".-_")


def _compile(lines: Iterable[str]) -> Any:
    import pathspec

    return pathspec.GitIgnoreSpec.from_lines(lines)
