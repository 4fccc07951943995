"""A thread that was written through an adapter, read by everything that is no adapter."""

from __future__ import annotations

from pathlib import Path

import pytest

import clew
from clew import messages
from clew.cli import main

FORMATS = ("anthropic", "openai-chat", "openai-responses", "gemini", "plain", "pydantic-ai")


def assert_readable(
    store: clew.Store,
    address: str,
    id: str,
    *,
    says: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """That providers' contexts, `clew show` and `clew export` have what the thread says."""
    thread = store.get(id)
    for format in FORMATS:
        context = thread.context(format)
        assert messages.validate(format, context.messages) == []
        assert says in str(context.messages), format
        repairs = {repair.code for repair in context.report.repairs}
        assert repairs <= {"user_added"}, context.report.repairs
    capsys.readouterr()
    assert main(["show", address, id]) == 0
    assert says in capsys.readouterr().out
    file = folder / "exported.jsonl"
    assert main(["export", address, id, "--out", str(file)]) == 0
    assert says in file.read_text()
    assert store.verify() == []
