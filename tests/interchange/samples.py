"""Real session files, which lie beside the checkout or nowhere; and how files are brought."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.interchange.intake import Intake
from clew.interchange.report import FileReport

_BESIDE = Path(__file__).parents[2].parent / "shared" / "samples"
_ABOVE = Path(__file__).parents[3].parent / "shared" / "samples"
SAMPLES = Path(os.environ.get("CLEW_SAMPLES") or (_BESIDE if _BESIDE.is_dir() else _ABOVE))

needs_samples = pytest.mark.skipif(
    not SAMPLES.is_dir(), reason="the sample sessions are not beside the checkout (CLEW_SAMPLES)"
)


def sample_files(*folders: str) -> list[Path]:
    found = [path for folder in folders for path in sorted((SAMPLES / folder).rglob("*"))]
    return [path for path in found if path.is_file() and "oracle" not in path.parts]


def write_lines(path: Path, records: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [_line(one) for one in records]
    path.write_text("".join(line + "\n" for line in lines), "utf-8")
    return path


def _line(record: Any) -> str:
    """As JavaScript writes it: characters as they are, halves of them escaped."""
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=False)
    return "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text)


def bring(store: clew.Store, path: Path, **options: Any) -> FileReport:
    """Bring a file that holds one session. Its values are accounted for, one by one."""
    (report,) = Intake(store, **options).bring(path)
    assert report.values == report.entries + report.known + report.skipped
    return report


def thread_of(store: clew.Store, report: FileReport) -> clew.Thread:
    assert report.thread is not None
    return store.get(report.thread)
