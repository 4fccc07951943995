"""Models that follow a script, behind the strict check of their provider.

`FakeProvider.create(request)` refuses what the provider would refuse and otherwise gives a reply
that follows from the seed and from how many came before: text, thinking, up to three calls. The
functions below it are what an agent's loop needs of a format: what of a reply to store, which
calls it holds, what to answer them with.
"""

from __future__ import annotations

import json
import random
from typing import Any, ClassVar

from providers import anthropic_api, gemini_api, openai_chat_api, openai_responses_api, responses
from providers.refusal import JSON
from providers.responses import Call, Said

FORMATS = ("anthropic", "openai-chat", "openai-responses", "gemini")
APIS: dict[str, Any] = {
    "anthropic": anthropic_api,
    "openai-chat": openai_chat_api,
    "openai-responses": openai_responses_api,
    "gemini": gemini_api,
}
REPLIES: dict[str, Any] = {
    "anthropic": responses.anthropic_message,
    "openai-chat": responses.chat_completion,
    "openai-responses": responses.response,
    "gemini": responses.gemini_response,
}
TOOLS = ("read_file", "search", "run")


class FakeProvider:
    """A provider with one model that answers every valid request.

    `seed` decides what is said, `replied` is how many replies came before, in another process;
    `calls_max` is how many calls a reply may have, and every reply of a number that `replies_max`
    divides has none, so that a loop ends. `model` is that of the provider's strict check.
    """

    format: ClassVar[str]

    def __init__(
        self,
        seed: int = 0,
        *,
        replied: int = 0,
        calls_max: int = 3,
        replies_max: int = 6,
        thinks: bool = True,
        model: Any = None,
    ) -> None:
        self.requests: list[JSON] = []  # those that were accepted
        self._api = APIS[self.format]
        self._model = model if model is not None else self._api.Model()
        self._seed = seed
        self._replied = replied
        self._calls_max = calls_max
        self._replies_max = replies_max
        self._thinks = thinks

    def create(self, request: JSON) -> JSON:
        """The reply to a request, or Refused."""
        self._api.check(request, self._model)
        self.requests.append(json.loads(json.dumps(request)))
        reply: JSON = REPLIES[self.format](self.say(self._replied + len(self.requests)))
        return reply

    def say(self, number: int) -> Said:
        """What the model says in its reply of this number. The same for the same seed."""
        chance = random.Random(f"{self.format} {self._seed} {number}")
        name = f"{self._seed:x}x{number}"
        many = chance.randint(0, self._calls_max) if number % self._replies_max else 0
        calls = tuple(
            Call(f"{_CALL_IDS[self.format]}{name}_{n}", chance.choice(TOOLS), _arguments(chance))
            for n in range(many)
        )
        thinking = f"Thought {name}." if self._thinks and chance.random() < 0.7 else None
        text = f"Reply {name}." if not calls or chance.random() < 0.5 else ""
        return Said(name, text, thinking, calls)


class FakeAnthropic(FakeProvider):
    format = "anthropic"


class FakeOpenAIChat(FakeProvider):
    format = "openai-chat"


class FakeOpenAIResponses(FakeProvider):
    format = "openai-responses"


class FakeGemini(FakeProvider):
    format = "gemini"


PROVIDERS: dict[str, type[FakeProvider]] = {
    kind.format: kind for kind in (FakeAnthropic, FakeOpenAIChat, FakeOpenAIResponses, FakeGemini)
}
_CALL_IDS = {
    "anthropic": "toolu_",
    "openai-chat": "call_",
    "openai-responses": "call_",
    "gemini": "call_",
}


def _arguments(chance: random.Random) -> JSON:
    return {"path": f"/tmp/{chance.randint(1, 9)}", "deep": {"n": [chance.randint(0, 9), None]}}


# --- what a loop needs of a format ------------------------------------------------------------


def request(format: str, messages: list[Any], system: Any = None, **more: Any) -> JSON:
    """The request that carries messages of a format."""
    if format == "anthropic":
        base: JSON = {"model": "claude-opus-4-6", "max_tokens": 1024, "messages": messages}
        return {**base, **({"system": system} if system else {}), **more}
    if format == "openai-chat":
        return {"model": "gpt-5.1", "messages": messages, **more}
    if format == "openai-responses":
        return {"model": "gpt-5.1", "input": messages, "store": False, **more}
    return {"contents": messages, **({"systemInstruction": system} if system else {}), **more}


def messages_of(format: str, reply: JSON) -> list[JSON]:
    """The messages of a reply, as they are stored and sent back."""
    if format == "anthropic":
        return [{"role": "assistant", "content": reply["content"]}]
    if format == "openai-chat":
        return [reply["choices"][0]["message"]]
    if format == "openai-responses":
        return list(reply["output"])
    return [reply["candidates"][0]["content"]]


def calls_of(format: str, reply: JSON) -> list[Call]:
    """The calls that a reply asks for."""
    return calls_in(format, messages_of(format, reply))


def calls_in(format: str, messages: list[Any]) -> list[Call]:
    """The calls in messages of a format."""
    found: list[Call] = []
    for message in messages:
        if format == "anthropic":
            blocks = message["content"] if isinstance(message["content"], list) else []
            used = [block for block in blocks if block["type"] == "tool_use"]
            found += [Call(block["id"], block["name"], block["input"]) for block in used]
        elif format == "openai-chat":
            for call in message.get("tool_calls", []):
                tool = call["function"]
                found.append(Call(call["id"], tool["name"], json.loads(tool["arguments"])))
        elif format == "openai-responses":
            if message.get("type") == "function_call":
                arguments = json.loads(message["arguments"])
                found.append(Call(message["call_id"], message["name"], arguments))
        else:
            wanted = [part["functionCall"] for part in message["parts"] if "functionCall" in part]
            found += [Call(call["id"], call["name"], call["args"]) for call in wanted]
    return found


def answered_in(format: str, messages: list[Any]) -> list[str]:
    """The ids of the calls that messages of a format answer."""
    found: list[str] = []
    for message in messages:
        if format == "anthropic":
            blocks = message["content"] if isinstance(message["content"], list) else []
            found += [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        elif format == "openai-chat":
            found += [message["tool_call_id"]] if message["role"] == "tool" else []
        elif format == "openai-responses":
            answer = message.get("type") == "function_call_output"
            found += [message["call_id"]] if answer else []
        else:
            parts = [part for part in message["parts"] if "functionResponse" in part]
            found += [part["functionResponse"]["id"] for part in parts]
    return found


def user(format: str, text: str) -> JSON:
    """What a user says."""
    if format == "openai-responses":
        content = [{"type": "input_text", "text": text}]
        return {"type": "message", "role": "user", "content": content}
    if format == "gemini":
        return {"role": "user", "parts": [{"text": text}]}
    return {"role": "user", "content": text}


def results(format: str, outputs: list[tuple[Call, str]]) -> list[JSON]:
    """The messages that answer calls."""
    if format == "anthropic":
        blocks = [
            {"type": "tool_result", "tool_use_id": call.id, "content": text}
            for call, text in outputs
        ]
        return [{"role": "user", "content": blocks}]
    if format == "openai-chat":
        return [
            {"role": "tool", "tool_call_id": call.id, "content": text} for call, text in outputs
        ]
    if format == "openai-responses":
        return [
            {"type": "function_call_output", "call_id": call.id, "output": text}
            for call, text in outputs
        ]
    parts = [
        {"functionResponse": {"id": call.id, "name": call.name, "response": {"output": text}}}
        for call, text in outputs
    ]
    return [{"role": "user", "parts": parts}]
