"""An address leads to its engine, or to what has to be done first."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

import clew
from clew.address import maintenance, namespaces


@pytest.mark.parametrize("opening", [clew.open, maintenance, namespaces])
def test_a_missing_package_is_no_traceback(
    opening: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "clew.engines.postgres", None)
    with pytest.raises(clew.Unsupported, match=re.escape("pip install 'clew[postgres]'")):
        opening("postgresql://host/db")
