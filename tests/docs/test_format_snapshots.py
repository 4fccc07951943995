"""What docs/format.md says about snapshots is what is written."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from _pages import DOCS
from blake3 import blake3

from clew.snapshots.ignore import Rules
from clew.snapshots.intent import Files, Intent
from clew.snapshots.manifest import MANIFEST_BYTES_MAX, NAME_BYTES_MAX, TARGET_BYTES_MAX
from clew.snapshots.tree import DEPTH_MAX
from clew.store import Store

TEXT = (DOCS / "format.md").read_text("utf-8")
SECTION = TEXT.partition("\n## Snapshots\n")[2].partition("\n## ")[0]
FIELDS = re.findall(r"^\| `(\w+)` \|", SECTION, re.MULTILINE)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "tree"
    (made / "d").mkdir(parents=True)
    (made / "a.txt").write_bytes(b"four")
    (made / "l").symlink_to("a.txt")
    return made


def test_the_fields_of_entry_and_fact_are_those_of_the_page(store: Store, root: Path) -> None:
    thread = store.create("t")
    taken = thread.snapshots.take(root, rules=Rules(secrets=True))
    body = thread.get(taken.id).body
    assert sorted([*body, "paths"]) == sorted(FIELDS)
    fact = thread.facts[f"snapshot.{taken.id}"]
    assert set(fact) == (set(body) - {"left_out"}) | {"time_us", "pinned"}
    assert {key: fact[key] for key in fact.keys() & body.keys()} == {
        key: body[key] for key in fact.keys() & body.keys()
    }
    (root / "a.txt").write_bytes(b"more")
    before = thread.snapshots.restore(taken, root, ["a.txt"], force=True).before
    assert before is not None
    assert sorted(thread.get(before).body) == sorted(FIELDS)
    assert thread.facts[f"snapshot.{before}"]["paths"] == ["a.txt"]
    assert "rules" not in thread.get(thread.snapshots.take(root, rules=Rules()).id).body
    row = next(line for line in SECTION.splitlines() if line.startswith("| `rules`"))
    assert set(re.findall(r"`(\w+)`", row)) == {"rules", *Rules.__struct_fields__}


def test_a_manifest_is_as_the_page_shows_it(store: Store, root: Path) -> None:
    taken = store.create("t").snapshots.take(root)

    def hash_of(data: bytes) -> str:
        return "b3:" + blake3(data).hexdigest()

    empty = b'{"format":"clew.tree","version":1,"nodes":[]}'
    (shown,) = re.findall(r"^```json\n(.*)\n```$", SECTION, re.MULTILINE)
    file, folder = hash_of(b"four"), hash_of(empty)
    top = shown.replace("b3:…", file, 1).replace("b3:…", folder, 1).encode()
    assert taken.tree == hash_of(top)
    assert store.blobs.get(taken.tree) == top
    assert store.blobs.get(folder) == empty


def test_the_notes_of_ways_back_have_the_fields_of_the_page(store: Store, root: Path) -> None:
    said = SECTION.partition("**Ways back.**")[2]
    for name in (*Intent.__struct_fields__, *Files.__struct_fields__):
        assert f"`{name}`" in said, name
    thread = store.create("t")
    thread.append_message({"role": "user", "content": "go"}, id="u1")
    thread.snapshots.take(root)
    (root / "a.txt").write_bytes(b"more")
    thread.snapshots.take(root)
    thread.rewind("u1")
    assert set(thread.facts["rewound"]) == set(Intent.__struct_fields__)
    assert thread.facts.get("rewinding") is None
    assert msgspec.convert(thread.facts["rewound"], Intent).what == "rewind"


def test_limits_are_those_of_the_code() -> None:
    assert f"1 to {NAME_BYTES_MAX} bytes" in SECTION
    assert f"1 to {TARGET_BYTES_MAX:,} bytes" in SECTION
    assert f"deeper than {DEPTH_MAX} folders" in SECTION
    assert MANIFEST_BYTES_MAX > 0
