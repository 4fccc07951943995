"""A thread to hand over to agents, and what each agent writes when it goes on with a session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import clew
from clew.interchange.intake import Intake
from clew.interchange.report import FileReport

AGENTS = ("claude-code", "codex", "pi", "opencode")
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "Look at the picture in a.png, and say what is in it."},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "I have to read it.", "signature": "c2lnbmVk"},
            {"type": "text", "text": "I read it."},
            {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a.png"}},
            {"type": "tool_use", "id": "toolu_2", "name": "fs.stat", "input": {"path": "b"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "toolu_1",
                "content": [
                    {"type": "text", "text": "one pixel"},
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
                    },
                ],
            },
            {
                "type": "tool_result",
                "tool_use_id": "toolu_2",
                "content": "no such file",
                "is_error": True,
            },
        ],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "It is one red pixel."}]},
]


def conversation(store: clew.Store, id: str = "mine") -> clew.Thread:
    """A thread of a program of one's own, with calls, an error, a picture and thinking."""
    thread = store.create(id, title="A picture", workspace="/home/me/project")
    thread.set(model="claude-test")
    for message in MESSAGES:
        thread.append_message(message, format="anthropic")
    return thread


def helped(store: clew.Store) -> clew.Thread:
    """A thread with a sub-agent, and one that works for that one."""
    thread = conversation(store)
    for id, parent, call in (("child", "mine", "toolu_1"), ("grandchild", "child", None)):
        below = store.create(id, parent=parent, workspace="/home/me/project")
        below.set(agent_role="explorer")
        if call is not None:
            below.set(tool_call=call)
        below.append_message({"role": "user", "content": f"{id}, look at it"}, format="anthropic")
        below.append_message({"role": "assistant", "content": "Seen."}, format="anthropic")
    store.create("silent", parent="mine")
    return thread


def said(thread: clew.Thread) -> list[tuple[str, str]]:
    """Who said what, with calls and their results."""
    found = []
    for message in thread.context("openai-chat").messages:
        words = message.get("content") or ""
        if not isinstance(words, str):
            words = "".join(block.get("text", "") for block in words)
        calls = [call["function"]["arguments"] for call in message.get("tool_calls", ())]
        found.append((message["role"], words + "".join(calls)))
    return found


def bring(store: clew.Store, path: Path) -> FileReport:
    (report,) = Intake(store).bring(path)
    assert report.status in ("imported", "unchanged"), report
    return report


def go_on(agent: str, path: Path, number: int = 1) -> None:
    """Another turn, as the agent writes it at the end of its file."""
    {"claude-code": _claude, "codex": _codex, "pi": _pi, "opencode": _opencode}[agent](path, number)


def asked(number: int) -> tuple[str, str]:
    return f"And what else, {number}?", f"Nothing else, {number}."


def _add(path: Path, *records: Any) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def _claude(path: Path, number: int) -> None:
    last = [record for record in _lines(path) if "uuid" in record][-1]
    question, answer = asked(number)
    common = {"sessionId": path.stem, "cwd": last["cwd"], "isSidechain": False, "version": "9.9"}
    first, second = (f"00000000-0000-4000-8000-{number:04}0000000{n}" for n in (1, 2))
    message = {"role": "assistant", "id": f"msg_{number}", "model": "claude-new"}
    _add(
        path,
        {
            **common,
            "type": "user",
            "uuid": first,
            "parentUuid": last["uuid"],
            "timestamp": f"2030-01-01T00:00:0{number}.000Z",
            "message": {"role": "user", "content": question},
        },
        {
            **common,
            "type": "assistant",
            "uuid": second,
            "parentUuid": first,
            "timestamp": f"2030-01-01T00:00:0{number}.500Z",
            "message": {**message, "content": [{"type": "text", "text": answer}]},
        },
    )


def _codex(path: Path, number: int) -> None:
    question, answer = asked(number)
    time = f"2030-01-01T00:00:0{number}.000Z"

    def item(role: str, kind: str, text: str) -> dict[str, Any]:
        payload = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
        return {"timestamp": time, "type": "response_item", "payload": payload}

    event = {"type": "task_started", "turn_id": f"turn-{number}"}
    _add(
        path,
        {"timestamp": time, "type": "event_msg", "payload": event},
        item("user", "input_text", question),
        item("assistant", "output_text", answer),
    )


def _pi(path: Path, number: int) -> None:
    last, (question, answer) = _lines(path)[-1], asked(number)
    time = 1893456000000 + number
    first, second = f"{number:07x}a", f"{number:07x}b"
    reply = {"role": "assistant", "content": [{"type": "text", "text": answer}], "timestamp": time}
    reply |= {"api": "openai-completions", "provider": "x", "model": "y", "stopReason": "stop"}
    prompt = {"role": "user", "content": question, "timestamp": time}
    stamp = f"2030-01-01T00:00:0{number}.000Z"
    common = {"type": "message", "timestamp": stamp}
    _add(
        path,
        {**common, "id": first, "parentId": last["id"], "message": prompt},
        {**common, "id": second, "parentId": first, "message": reply},
    )


def _opencode(path: Path, number: int) -> None:
    document = json.loads(path.read_text("utf-8"))
    session, time = document["info"]["id"], {"created": 1893456000000 + number}
    for role, text in zip(("user", "assistant"), asked(number), strict=True):
        id = f"msg_fff{number}{role}"
        part = {"id": f"prt_fff{number}{role}", "type": "text", "text": text, "messageID": id}
        info = {"id": id, "sessionID": session, "role": role, "time": time, "modelID": "z"}
        document["messages"].append({"info": info, "parts": [part]})
    path.write_text(json.dumps(document), "utf-8")
