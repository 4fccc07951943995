"""The numbered files of a schema: one that is misnamed or missing is told, and not passed over."""

from __future__ import annotations

from pathlib import Path

import pytest

from clew.engines.shared import migrations


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["0001_first", "0003_third"], "not numbered"),
        (["0002_second"], "not numbered"),
        (["0001-first"], "not named like"),
        (["1_first"], "not named like"),
    ],
)
def test_a_file_with_the_wrong_name_is_refused(tmp_path: Path, names: list[str], says: str) -> None:
    for name in names:
        (tmp_path / f"{name}.sql").write_text("SELECT 1;")
    with pytest.raises(RuntimeError, match=says):
        migrations._in_folder(tmp_path)


def test_they_are_found_in_their_order(tmp_path: Path) -> None:
    for name in ("0002_second", "0001_first"):
        (tmp_path / f"{name}.sql").write_text(f"SELECT '{name}';")
    found = migrations._in_folder(tmp_path)
    assert [(one.version, one.name) for one in found] == [(1, "first"), (2, "second")]
