"""docs/howto/write-an-agent-loop.md runs against the strict checks of the providers."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from _pages import DOCS, assert_outputs
from providers.loops import PROVIDERS, FakeProvider
from providers.responses import Call, Said, sdk

PAGE = DOCS / "howto" / "write-an-agent-loop.md"
SCRIPT = (
    Said("one", "I look.", "Hm.", (Call("call_1", "read_file", {"path": "notes.txt"}),)),
    Said("two", "It says: buy milk.", "Fine."),
)


class Fakes:
    """The modules of the SDKs, with one method each: that which the page calls."""

    def __init__(self) -> None:
        self.providers: dict[str, FakeProvider] = {}

    def ask(self, format: str, request: dict[str, Any]) -> Any:
        provider = self.providers.setdefault(format, PROVIDERS[format]())
        provider.say = lambda number: SCRIPT[number - 1]  # type: ignore[method-assign]
        return sdk(format, provider.create(request))

    def modules(self) -> dict[str, ModuleType]:
        anthropic, openai, google = (ModuleType(name) for name in ("anthropic", "openai", "google"))
        genai = ModuleType("google.genai")
        messages = SimpleNamespace(create=lambda **request: self.ask("anthropic", request))
        anthropic.Anthropic = lambda: SimpleNamespace(messages=messages)  # type: ignore[attr-defined]
        responses = SimpleNamespace(create=lambda **request: self.ask("openai-responses", request))
        openai.OpenAI = lambda: SimpleNamespace(responses=responses)  # type: ignore[attr-defined]
        models = SimpleNamespace(generate_content=self._generate_content)
        genai.Client = lambda: SimpleNamespace(models=models)  # type: ignore[attr-defined]
        google.genai = genai  # type: ignore[attr-defined]
        return {"anthropic": anthropic, "openai": openai, "google": google, "google.genai": genai}

    def _generate_content(self, *, model: str, contents: Any, config: dict[str, Any]) -> Any:
        system = config["system_instruction"]
        return self.ask("gemini", {"contents": contents, "systemInstruction": system})


def test_the_loop_works_with_each_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fakes = Fakes()
    for name, module in fakes.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    namespace = assert_outputs(PAGE)
    namespace["store"].close()
    asked = {format: len(provider.requests) for format, provider in fakes.providers.items()}
    assert asked == {"anthropic": 2, "openai-responses": 2, "gemini": 2}
