"""ATIF, the Agent Trajectory Interchange Format: a thread and its sub-agents as one document.

A step is what the system or the user said, or one reply of the model with the results of the calls
that it made. What the format has no place for is counted among the changes; a result that answers
no call of the path is a step of the system's, with a warning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from clew import messages
from clew.context.bodies import read_compaction
from clew.context.window import MESSAGE_KINDS
from clew.core.codec import render
from clew.core.errors import InvalidInput
from clew.core.model import Entry, ThreadInfo, rfc3339
from clew.interchange.delivery import json_line, tools_of, written_tools
from clew.interchange.export import Writing
from clew.messages import replies
from clew.messages.neutral import Media, Message, Part, Text, Thinking, ToolCall, ToolResult, Usage
from clew.messages.shared.read import text
from clew.thread import Thread

VERSION = "ATIF-v1.7"  # what readers in the field take; 1.8 adds sounds
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
# Formats that store the items of a reply one by one, without saying of which reply each is.
_ITEMS = frozenset({"codex", "openai-responses"})
_UNMATCHED = "warning: a result that answers no call of this trajectory"

Step = dict[str, Any]


def write(thread: Thread, writing: Writing) -> Iterator[bytes]:
    """The path to the thread's leaf as a trajectory, with those of its sub-agents in it."""
    made = _trajectory(thread, writing, {thread.id})
    if made is None:
        reason = f"{thread.id!r} has no messages, and a trajectory needs a step"
        raise InvalidInput("thread", reason)
    yield json_line(made)


def _trajectory(thread: Thread, writing: Writing, seen: set[str]) -> dict[str, Any] | None:
    """A thread; None if it has no steps. `seen` are the threads that are in the document."""
    info = thread.info
    steps = _Steps(thread.id, writing)
    for entry in thread.path():
        steps.take(entry)
    steps.finish()
    if not steps.made:
        return None
    below = []
    for child in thread.store.threads(parent=thread.id, archived=None):
        if child.id not in seen:
            seen.add(child.id)
            made = _trajectory(Thread(thread.store, child.id), writing, seen)
            if made is None:
                writing.change("empty", f"sub-agent {child.id!r} has no messages: left out")
            else:
                below.append(made)
                steps.refer(child)
    found = {
        "schema_version": VERSION,
        "session_id": info.id,
        "trajectory_id": info.id,
        "agent": _agent(info, steps, writing),
        "steps": steps.made,
        "final_metrics": steps.totals(),
        "extra": _extra(info),
    }
    # The oldest first: that is how they were called.
    return {**found, "subagent_trajectories": below[::-1]} if below else found


def _agent(info: ThreadInfo, steps: _Steps, writing: Writing) -> dict[str, Any]:
    facts = info.facts
    version = facts.get("harness_version", facts.get("agent_version"))
    made = {
        "name": text(facts.get("harness")) or info.agent or "unknown",
        "version": version if isinstance(version, str) else "unknown",
    }
    models = [*steps.models(), text(facts.get("model"))]
    if models[0] is not None:
        made["model_name"] = models[0]
    tools = written_tools(tools_of(steps.tools, writing), "openai-chat")
    return {**made, "tool_definitions": tools} if tools else made


def _extra(info: ThreadInfo) -> dict[str, Any]:
    title = None if info.title is None else info.title.text
    told = {
        "thread": info.id,
        "parent": info.parent,
        "title": title,
        "workspace": info.workspace,
        "surface": info.facts.get("surface"),
        "created": rfc3339(info.created_at),
    }
    told = {key: value for key, value in told.items() if value is not None}
    return {"clew": told}


class _Steps:
    """The steps of one trajectory, as its entries come."""

    def __init__(self, thread: str, writing: Writing) -> None:
        self.made: list[Step] = []
        self.tools: Any = None
        self._thread = thread
        self._writing = writing
        self._progress = replies.Progress()
        self._last: Step | None = None  # the last reply, which a usage entry is about
        self._is_open = False  # whether the next item may belong to it
        self._by_reply: dict[str, Step] = {}
        self._by_call: dict[str, Step] = {}
        self._used: dict[int, tuple[Step | None, Usage]] = {}  # by reply
        self._left: Counter[str] = Counter()

    # --- entries ---

    def take(self, entry: Entry) -> None:
        if entry.kind in MESSAGE_KINDS:
            self._take_message(entry)
        elif entry.kind == "compaction":
            found = read_compaction(entry)
            said = found.summary or render(found.messages or [])
            self._add(entry, "system", said, {"kind": entry.kind})
        elif entry.kind in ("branch_summary", "run_failure"):
            self._add(entry, "system", render(entry.body), {"kind": entry.kind})
        elif entry.kind == "active_tools_change":
            self.tools = entry.body
        elif entry.kind not in ("usage", "model_change"):
            self._left[entry.kind] += 1
        self._count(entry)

    def _count(self, entry: Entry) -> None:
        """The usage that an entry tells, for the reply that it is about."""
        told = replies.read(entry, self._progress)
        if entry.kind == "usage":
            self._is_open = False
        if told is None:
            return
        known = self._used.get(told.key)
        step = self._last if known is None else known[0]
        if told.usage is not None:
            self._used[told.key] = (step, told.usage)
        if told.model is not None and step is not None:
            step["model_name"] = told.model

    def _take_message(self, entry: Entry) -> None:
        found = messages.view(entry.format, entry.body)
        if not found:
            self._writing.change("unreadable", "it is told as the JSON that it is", entry.id)
            self._add(entry, "system", render(entry.body), {"kind": entry.kind})
        for message in found:
            if message.role == "assistant":
                self._take_reply(entry, message)
            else:
                self._take_input(entry, message)

    def _take_input(self, entry: Entry, message: Message) -> None:
        self._is_open = False
        said = [part for part in message.parts if not isinstance(part, ToolResult)]
        for part in message.parts:
            if isinstance(part, ToolResult):
                self._take_result(entry, part)
        if said:
            source = "user" if message.role == "user" else "system"
            self._add(entry, source, self._content(entry, said))

    def _take_result(self, entry: Entry, part: ToolResult) -> None:
        result: dict[str, Any] = {"source_call_id": part.call}
        result["content"] = self._content(entry, part.content)
        result["extra"] = {"entry": entry.id, "timestamp": rfc3339(entry.time)}
        if part.is_error:
            result["extra"]["is_error"] = True
        step = self._by_call.get(part.call)
        if step is None:
            # A reader looks for the call in the step of the result, so that only this names it.
            result |= {"source_call_id": None}
            result["extra"] |= {"unmatched_call_id": part.call, "tool": part.name}
            self._writing.change("unmatched_result", f"{_UNMATCHED}: {part.call}", entry.id)
            step = self._add(entry, "system", _UNMATCHED, {"warning": "unmatched_result"})
        step.setdefault("observation", {"results": []})["results"].append(result)

    def _take_reply(self, entry: Entry, message: Message) -> None:
        step = self._reply_of(entry)
        thought = [part.text for part in message.parts if isinstance(part, Thinking) and part.text]
        if thought:
            before = step.get("reasoning_content")
            step["reasoning_content"] = "\n".join([*([before] if before else []), *thought])
        said = [p for p in message.parts if not isinstance(p, Thinking | ToolCall | ToolResult)]
        step["message"] = _joined(step["message"], self._content(entry, said))
        for part in message.parts:
            if isinstance(part, ToolCall):
                step.setdefault("tool_calls", []).append(self._call(entry, part))
                self._by_call[part.id] = step
        for part in message.parts:
            if isinstance(part, ToolResult):
                self._take_result(entry, part)

    def _reply_of(self, entry: Entry) -> Step:
        """The step of the reply that an entry is, or is a piece of."""
        body = entry.body
        format = messages.known_format(entry.format, body)
        about = messages.teller(format)(body) if isinstance(body, dict) else None
        id = None if about is None else text(about.id)
        step = None if id is None or format in _ITEMS else self._by_reply.get(id)
        if step is None and format in _ITEMS and self._is_open:
            step = self._last
        if step is None:
            step = self._add(entry, "agent", "")
            model = text(about.model) if about is not None else None
            model = model or self._progress.model
            if model is not None:
                step["model_name"] = model
        else:
            step["extra"]["entries"].append(entry.id)
        if id is not None:
            self._by_reply[id] = step
        self._last, self._is_open = step, True
        return step

    def _call(self, entry: Entry, part: ToolCall) -> dict[str, Any]:
        arguments = part.arguments
        if not isinstance(arguments, dict):
            arguments = {"value": arguments if part.unparsed is None else part.unparsed}
            text = f"the arguments of call {part.id} are no object: they are its member 'value'"
            self._writing.change("arguments", text, entry.id)
        return {"tool_call_id": part.id, "function_name": part.name, "arguments": arguments}

    def _add(
        self, entry: Entry, source: str, message: Any, more: dict[str, Any] | None = None
    ) -> Step:
        step: Step = {
            "step_id": len(self.made) + 1,
            "timestamp": rfc3339(entry.time),
            "source": source,
            "message": message,
            "extra": {"entries": [entry.id], **(more or {})},
        }
        if entry.thread != self._thread:
            step["is_copied_context"] = True  # a fork shares it with its origin
        self.made.append(step)
        return step

    def _content(self, entry: Entry, parts: Iterable[Part]) -> str | list[dict[str, Any]]:
        """Text, or parts where there are pictures. Blocks that no other knows are told."""
        made: list[dict[str, Any]] = []
        for part in parts:
            source = _picture(part)
            if source is not None:
                made.append({"type": "image", "source": source})
            elif isinstance(part, Text):
                made.append({"type": "text", "text": part.text})
            else:
                name = part.kind if isinstance(part, Media) else type(part).__name__.lower()
                made.append({"type": "text", "text": f"[{name}]"})
                self._writing.change("block", f"ATIF has no place for a block: {name}", entry.id)
        if all(one["type"] == "text" for one in made):
            return "".join([one["text"] for one in made])
        return made

    # --- when all are there ---

    def finish(self) -> None:
        """Put the usage to the steps, and tell what is in none of them."""
        used: dict[int, list[Usage]] = {}
        for step, usage in self._used.values():
            if step is not None:
                used.setdefault(step["step_id"], []).append(usage)
        for number, usages in used.items():
            step = self.made[number - 1]
            step["metrics"] = _metrics(usages)
            if len(usages) > 1:
                step["llm_call_count"] = len(usages)
        for kind, count in self._left.items():
            self._writing.change("left_out", f"ATIF has no place for {kind}: {count} entries")

    def models(self) -> list[str]:
        return [step["model_name"] for step in self.made if "model_name" in step]

    def totals(self) -> dict[str, Any]:
        used = [usage for _, usage in self._used.values()]
        sums = _metrics(used)
        return {
            "total_prompt_tokens": sums["prompt_tokens"],
            "total_completion_tokens": sums["completion_tokens"],
            "total_cached_tokens": sums["cached_tokens"],
            "total_steps": len(self.made),
            "extra": {"replies": len(used), **sums["extra"]},
        }

    def refer(self, child: ThreadInfo) -> None:
        """Let the result of the call that a sub-agent worked for name its trajectory."""
        told = child.facts.get("tool_call")
        call = told if isinstance(told, str) else child.id.removeprefix(f"{self._thread}/")
        step = self._by_call.get(call, {})
        for result in step.get("observation", {}).get("results", ()):
            if result["source_call_id"] == call:
                result.setdefault("subagent_trajectory_ref", []).append({"trajectory_id": child.id})


def _joined(before: Any, more: Any) -> Any:
    """The content of two pieces of a reply."""
    if not before or not more:
        return before or more
    if isinstance(before, str) and isinstance(more, str):
        return before + "\n" + more
    return [*_parts(before), *_parts(more)]


def _parts(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _picture(part: Part) -> dict[str, str] | None:
    """Where a picture is, which may be an address that holds it."""
    if not isinstance(part, Media) or part.kind != "image" or part.mime not in _IMAGES:
        return None
    place = part.url if part.data is None else f"data:{part.mime};base64,{part.data}"
    return None if place is None else {"media_type": part.mime, "path": place}


def _metrics(used: Sequence[Usage]) -> dict[str, Any]:
    """What replies took. A prompt is all that was sent: also what the cache had, or was given."""
    sums = {name: sum(getattr(usage, name) for usage in used) for name in Usage.__struct_fields__}
    cached = sums["cache_read_tokens"]
    return {
        "prompt_tokens": sums["input_tokens"] + cached + sums["cache_write_tokens"],
        "completion_tokens": sums["output_tokens"],
        "cached_tokens": cached,
        "extra": {
            "cache_write_tokens": sums["cache_write_tokens"],
            "reasoning_tokens": sums["reasoning_tokens"],
        },
    }
