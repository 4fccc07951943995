"""LangGraph's own conformance kit: every capability, on every engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import anyio
import pytest

pytest.importorskip("langgraph.checkpoint.conformance", reason="langgraph is not installed")

from langgraph.checkpoint.conformance import checkpointer_test, validate

from clew.adapters.langgraph import ClewSaver


@pytest.mark.parametrize("ownership", [None, "lease"])
def test_every_capability_passes_whole(address: str, ownership: str | None) -> None:
    @checkpointer_test(name=f"ClewSaver {ownership}")
    async def savers() -> AsyncGenerator[ClewSaver, None]:
        async with ClewSaver(address, ownership=ownership) as saver:
            yield saver

    report = anyio.run(validate, savers)

    failures = {name: one.failures for name, one in report.results.items() if one.failures}
    assert failures == {}
    assert {name for name, one in report.results.items() if not one.passed} == set()
    assert report.passed_all()
