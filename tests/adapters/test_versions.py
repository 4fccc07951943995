"""A framework that is absent, or of another age, is named together with what to install."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from clew.adapters import _versions

ROOT = Path(__file__).parents[2]
REQUIRED = re.compile(
    r'^require\("([\w-]+)", extra="([\w-]+)", at_least="([\d.]+)", below="([\d.]+)"\)', re.MULTILINE
)


def test_extras_ask_for_the_releases_that_the_adapters_take() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    modules = (ROOT / "src" / "clew" / "adapters").rglob("*.py")
    required = [found for module in modules for found in REQUIRED.findall(module.read_text())]
    assert required
    for package, extra, at_least, below in required:
        assert f"{package}>={at_least},<{below}" in extras[extra]


def test_a_framework_that_is_not_installed_is_named() -> None:
    with pytest.raises(ImportError, match=r"needs nowhere-sdk: pip install 'clew\[nowhere\]'"):
        _versions.require("nowhere-sdk", extra="nowhere", at_least="1", below="2")


@pytest.mark.parametrize(
    ("found", "fits"),
    [("1.9.9", False), ("2.0", True), ("2.9.1rc1", True), ("3.0.0", False), ("10.1", False)],
)
def test_a_release_outside_of_what_was_tested_is_refused(
    found: str, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_versions, "version", lambda package: found)
    if fits:
        _versions.require("sdk", extra="sdk", at_least="2.0", below="3")
        return
    with pytest.raises(ImportError, match=f"sdk {found} is installed.*from 2.0 to below 3"):
        _versions.require("sdk", extra="sdk", at_least="2.0", below="3")
