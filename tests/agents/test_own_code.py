"""Our files, opened by the agents themselves: `make test-agents` installs them.

Claude's Agent SDK, pi's session manager, Codex' server and opencode list what we wrote for them.
None of them is asked to call a model, and nothing leaves this machine.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from interchange.handovers import AGENTS, asked, bring, conversation, go_on, helped
from msgspec.structs import replace

import clew
from clew.interchange.mend import mend
from clew.interchange.resume import Resumed, resume

INSTALLED = Path(__file__).parents[2] / ".venv" / "agents" / "node_modules"
WAIT_SECONDS = 120
WORDS = [
    "Look at the picture in a.png, and say what is in it.",
    "I read it.",
    "It is one red pixel.",
]


@pytest.fixture
def store() -> Iterator[clew.Store]:
    with clew.open("memory:") as opened:
        yield opened


def program(name: str) -> Path:
    found = INSTALLED / ".bin" / name
    if not found.exists():
        pytest.skip(f"{name} is not installed; make test-agents does that, with npm")
    return found


def surroundings(home: Path) -> dict[str, str]:
    """An environment in which an agent finds nobody's own files, and asks nobody for news."""
    places = {f"XDG_{name}_HOME": str(home / name) for name in ("DATA", "CONFIG", "STATE", "CACHE")}
    quiet = (
        "OPENCODE_DISABLE_AUTOUPDATE OPENCODE_DISABLE_MODELS_FETCH OPENCODE_DISABLE_LSP_DOWNLOAD"
    )
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        **places,
        **dict.fromkeys(quiet.split(), "1"),
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "CODEX_HOME": str(home / ".codex"),
        "PI_CODING_AGENT_DIR": str(home / ".pi" / "agent"),
    }


def run(arguments: list[str], home: Path, folder: Path, given: str | None = None) -> str:
    done = subprocess.run(
        arguments, cwd=folder, env=surroundings(home), input=given, text=True, capture_output=True,
        timeout=WAIT_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- what each agent makes of a session: the texts of its messages ---


def claude_code(done: Resumed, home: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    sdk = pytest.importorskip("claude_agent_sdk", reason="needs claude-agent-sdk")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / ".claude"))
    listed = sdk.list_sessions(directory=done.workspace)
    assert done.session in [session.session_id for session in listed]
    found = []
    for one in sdk.get_session_messages(done.session, directory=done.workspace):
        said = one.message["content"]
        blocks = [{"type": "text", "text": said}] if isinstance(said, str) else said
        found += [block["text"] for block in blocks if block["type"] == "text"]
    return found


PI_SCRIPT = """
import { SessionManager } from "@earendil-works/pi-coding-agent";
const [file, cwd] = process.argv.slice(2);
const listed = await SessionManager.list(cwd);
const opened = SessionManager.open(file);
console.log(JSON.stringify({ listed: listed.map((one) => one.path),
  messages: opened.buildSessionContext().messages }));
"""


def pi(done: Resumed, home: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    program("pi")
    script = INSTALLED.parent / "read_session.mjs"
    script.write_text(PI_SCRIPT, "utf-8")
    told = run(["node", str(script), str(done.path), done.workspace], home, Path(done.workspace))
    answer = json.loads(told.splitlines()[-1])
    assert str(done.path) in answer["listed"]
    found = []
    for message in answer["messages"]:
        said = message.get("content", [])
        blocks = [{"type": "text", "text": said}] if isinstance(said, str) else said
        if message["role"] in ("user", "assistant"):
            found += [block["text"] for block in blocks if block["type"] == "text"]
    return found


def codex(
    done: Resumed, home: Path, monkeypatch: pytest.MonkeyPatch, *, listed: bool = True
) -> list[str]:
    server = subprocess.Popen(
        [str(program("codex")), "app-server"], cwd=done.workspace, env=surroundings(home),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert server.stdin is not None
    assert server.stdout is not None
    sent, received = server.stdin, server.stdout

    def tell(message: dict[str, Any]) -> None:
        sent.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sent.flush()

    def ask(id: int, method: str, **params: Any) -> Any:
        tell({"id": id, "method": method, "params": params})
        for line in received:
            answer = json.loads(line)
            if answer.get("id") == id:
                assert "error" not in answer, answer
                return answer["result"]
        raise AssertionError(f"codex went away before it answered {method}")

    try:
        ask(0, "initialize", clientInfo={"name": "clew", "version": "1"})
        tell({"method": "initialized"})
        if listed:
            assert done.session in [thread["id"] for thread in ask(1, "thread/list")["data"]]
        ask(2, "thread/resume", threadId=done.session)
        thread = ask(3, "thread/read", threadId=done.session, includeTurns=True)["thread"]
    finally:
        server.kill()
        server.wait()
        sent.close()
        received.close()
    found = []
    for item in [item for turn in thread["turns"] for item in turn["items"]]:
        if item["type"] == "userMessage":
            found += [block["text"] for block in item["content"] if block["type"] == "text"]
        elif item["type"] == "agentMessage":
            found.append(item["text"])
    return found


def opencode(done: Resumed, home: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    folder, binary = Path(done.workspace), str(program("opencode"))
    assert done.session in run([binary, "import", str(done.path)], home, folder)
    assert done.session in run([binary, "session", "list"], home, folder)
    messages = exported(done, home)["messages"]
    parts = [part for message in messages for part in message["parts"]]
    return [part["text"] for part in parts if part["type"] == "text"]


def exported(done: Resumed, home: Path) -> Any:
    """A session of opencode, as it tells it itself."""
    folder, binary = Path(done.workspace), str(program("opencode"))
    out = home / "export.json"
    with out.open("w") as file:  # through a pipe it may lose its end
        subprocess.run(
            [binary, "export", done.session], cwd=folder, env=surroundings(home), stdout=file,
            stderr=subprocess.DEVNULL, timeout=WAIT_SECONDS, check=True,
        )  # fmt: skip
    return json.loads(out.read_text("utf-8"))


OWN = {"claude-code": claude_code, "codex": codex, "pi": pi, "opencode": opencode}


def carried(thread: clew.Thread, agent: str, home: Path) -> Resumed:
    folder = home / "work"
    folder.mkdir(exist_ok=True)
    return resume(thread, agent, workspace=folder, home=home, environ=surroundings(home))


@pytest.mark.parametrize("agent", AGENTS)
def test_the_agent_itself_opens_a_thread_that_was_written_for_it(
    agent: str, store: clew.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = carried(conversation(store), agent, tmp_path)
    assert OWN[agent](done, tmp_path, monkeypatch) == WORDS


@pytest.mark.parametrize("agent", AGENTS)
def test_the_agent_itself_opens_its_own_session_with_a_turn_of_another_agent(
    agent: str, store: clew.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with clew.open("memory:") as elsewhere:
        begun = carried(conversation(elsewhere), agent, tmp_path)
    thread = store.get(bring(store, begun.path).thread or "")
    other = "pi" if agent != "pi" else "codex"
    there = carried(thread, other, tmp_path)
    go_on(other, there.path)
    fork = store.get(bring(store, there.path).thread or "")
    back = carried(fork, agent, tmp_path)
    assert OWN[agent](back, tmp_path, monkeypatch) == [*WORDS, *asked(1)]


@pytest.mark.parametrize("agent", ["claude-code", "codex", "pi"])
def test_the_agent_itself_opens_a_mended_session(
    agent: str, store: clew.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = carried(conversation(store), agent, tmp_path)
    lines = done.path.read_bytes().splitlines(keepends=True)
    # The last line twice, two on one line, and half a line: as a process that died leaves it.
    broken = b"".join([*lines[:-2], lines[-2].rstrip(b"\n"), lines[-1], lines[1][:50]])
    done.path.write_bytes(broken)
    copy = tmp_path / "copy.jsonl"
    found = mend(done.path, copy)
    assert [finding.name for finding in found.findings] == ["glued", "torn"]
    os.replace(copy, done.path)
    assert OWN[agent](done, tmp_path, monkeypatch) == WORDS


# --- sub-agents ---


def test_claude_itself_finds_the_sub_agents_of_a_session(
    store: clew.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sdk = pytest.importorskip("claude_agent_sdk", reason="needs claude-agent-sdk")
    done = carried(helped(store), "claude-code", tmp_path)
    assert claude_code(done, tmp_path, monkeypatch) == WORDS
    names = [path.stem.removeprefix("agent-") for path in done.helpers]
    assert sorted(sdk.list_subagents(done.session, directory=done.workspace)) == sorted(names)
    first, *_ = sdk.get_subagent_messages(done.session, names[0], directory=done.workspace)
    assert first.message["content"] == "child, look at it"


def test_codex_itself_reads_the_rollout_of_a_sub_agent(
    store: clew.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = carried(helped(store), "codex", tmp_path)
    assert codex(done, tmp_path, monkeypatch) == WORDS
    child = replace(done, path=done.helpers[0], session=done.helpers[0].stem[-36:])
    words = codex(child, tmp_path, monkeypatch, listed=False)
    assert words == ["child, look at it", "Seen."]


def test_opencode_itself_knows_whom_a_sub_agent_works_for(
    store: clew.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = carried(helped(store), "opencode", tmp_path)
    for command in done.before:
        run([str(program(command[0])), *command[1:]], tmp_path, Path(done.workspace))
    child = replace(done, path=done.helpers[0], session=done.helpers[0].stem)
    found = exported(child, tmp_path)
    assert found["info"]["parentID"] == done.session
    assert [part["text"] for part in found["messages"][0]["parts"]] == ["child, look at it"]
