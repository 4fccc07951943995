"""Trees for tests: a dict that says what a folder holds, written to a disk and read from it."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from hypothesis import strategies as st

from clew.core.engine import Engine
from clew.snapshots.ignore import Rules
from clew.snapshots.manifest import Node, pack
from clew.snapshots.model import Snapshot
from clew.snapshots.scan import scan
from clew.snapshots.survey import Survey

# A file's bytes; ("x", bytes) if it is executable; ("link", target); None for a folder.
Spec = dict[str, "bytes | tuple[str, bytes | str] | None"]


def write(root: Path, spec: Spec) -> Path:
    """Make a folder hold just this."""
    root.mkdir(exist_ok=True)
    for name in os.listdir(root):
        path = root / name
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    add(root, spec)
    return root


def add(root: Path, spec: Spec) -> None:
    for name, value in spec.items():
        path = root / name
        if value is None:
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(value, tuple) and value[0] == "link":
            path.symlink_to(str(value[1]))
        else:
            path.write_bytes(value[1] if isinstance(value, tuple) else value)
            path.chmod(0o755 if isinstance(value, tuple) else 0o644)


def read(root: Path) -> Spec:
    """What a folder holds, in the same words; every folder is named."""
    found: Spec = {}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = Path(folder, name)
            key = str(path.relative_to(root))
            look = path.lstat()
            if stat.S_ISLNK(look.st_mode):
                found[key] = ("link", os.readlink(path))
            elif stat.S_ISDIR(look.st_mode):
                found[key] = None
            elif not stat.S_ISREG(look.st_mode):
                found[key] = ("special", "")
            else:
                data = path.read_bytes()
                found[key] = ("x", data) if look.st_mode & 0o100 else data
    return found


def whole(spec: Spec) -> Spec:
    """A spec with every folder named, as `read` gives it."""
    above: Spec = {str(up): None for name in spec for up in list(Path(name).parents)[:-1]}
    return above | spec


def look(root: Path, rules: Rules | None = None) -> Survey:
    return scan(os.path.realpath(root), rules or Rules())


def nodes(engine: Engine, spec: Spec) -> list[Node]:
    """Store the files and folders of a spec; the nodes of its top."""
    top: dict[str, Spec] = {}
    found: list[Node] = []
    for name, value in spec.items():
        first, slash, rest = name.partition("/")
        if slash:
            top.setdefault(first, {})[rest] = value
        elif value is None:
            top.setdefault(first, {})
        elif isinstance(value, tuple) and value[0] == "link":
            found.append(Node(first, "link", str(value[1])))
        else:
            data = value[1] if isinstance(value, tuple) else value
            assert isinstance(data, bytes)
            (ref,) = engine.put_blobs([data])
            kind = "executable" if isinstance(value, tuple) else "file"
            found.append(Node(first, kind, ref, len(data)))
    for name, below in top.items():
        inner = nodes(engine, below)
        (ref,) = engine.put_blobs([pack(inner)])
        found.append(Node(name, "folder", ref, sum(node.size for node in inner)))
    return found


def stored(engine: Engine, spec: Spec) -> str:
    """Store a tree; its hash."""
    return engine.put_blobs([pack(nodes(engine, spec))])[0]


def snapshot_of(tree: str, root: Path | str = "/", id: str = "s") -> Snapshot:
    return Snapshot(
        id=id,
        thread="t",
        at=None,
        tree=tree,
        root=str(root),
        time_us=0,
        files=0,
        size_bytes=0,
        new_bytes=0,
    )


# --- any trees at all ---

_NAMES = st.sampled_from(["a", "b", "c", "dé", "e f"])
_LEAVES = st.one_of(
    st.binary(max_size=6),
    st.binary(max_size=6).map(lambda data: ("x", data)),
    st.sampled_from(["a", "../a", "/nowhere", "b/c"]).map(lambda target: ("link", target)),
)
_TREES = st.recursive(
    st.dictionaries(_NAMES, _LEAVES, max_size=4),
    lambda below: st.dictionaries(_NAMES, st.one_of(_LEAVES, below), max_size=4),
    max_leaves=12,
)


def _flat(tree: dict[str, object], prefix: str = "") -> Spec:
    found: Spec = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            found[prefix + name] = None
            found |= _flat(value, f"{prefix}{name}/")
        else:
            found[prefix + name] = value  # type: ignore[assignment]
    return found


SPECS = _TREES.map(_flat)
