"""Strands' sessions: one contract for its own repository and for ours, and what ours adds."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from children import killed, said, start
from everywhere import assert_readable

pytest.importorskip("strands", reason="Strands is not installed")

from strands import Agent
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.multiagent import GraphBuilder
from strands.session.file_session_manager import FileSessionManager
from strands.session.repository_session_manager import RepositorySessionManager
from strands.session.session_repository import SessionRepository
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType
from strands_agent import Scripted, agent

import clew
from clew.adapters.strands import ClewSessionRepository, message_history


def message(number: int, text: str = "hello", role: Any = "user") -> SessionMessage:
    return SessionMessage.from_message({"role": role, "content": [{"text": text}]}, number)


def made(id: str = "a", **state: Any) -> SessionAgent:
    return SessionAgent(agent_id=id, state=state, conversation_manager_state={"__name__": "X"})


@pytest.fixture(params=["theirs", "sqlite", "postgres"])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SessionRepository]:
    """The repository that Strands ships, and ours, under one contract."""
    if request.param == "theirs":
        yield FileSessionManager("own", storage_dir=str(tmp_path / "sessions"))
        return
    from places import ADDRESSES

    ours = ClewSessionRepository(ADDRESSES[request.param](request))
    yield ours
    assert ours.store.verify() == []
    ours.close()


# --- the contract -----------------------------------------------------------------------------


def test_a_session_is_made_once_and_read_as_it_was(repository: SessionRepository) -> None:
    assert repository.read_session("s") is None
    session = Session(session_id="s", session_type=SessionType.AGENT)
    assert repository.create_session(session) == session
    assert repository.read_session("s") == session
    with pytest.raises(SessionException, match="already exists"):
        repository.create_session(session)


def test_an_agent_is_replaced_and_keeps_when_it_was_made(repository: SessionRepository) -> None:
    repository.create_session(Session("s", SessionType.AGENT))
    assert repository.read_agent("s", "a") is None
    with pytest.raises(SessionException, match="does not exist"):
        repository.update_agent("s", made())
    first = made(mood="good", data=b"\x00\xff")
    repository.create_agent("s", first)
    assert repository.read_agent("s", "a") == first
    assert repository.read_agent("s", "b") is None
    changed = made(mood="better")
    changed.created_at = "later"
    repository.update_agent("s", changed)
    found = repository.read_agent("s", "a")
    assert found is not None
    assert (found.state, found.created_at) == ({"mood": "better"}, first.created_at)


def test_messages_come_back_in_order_and_in_pages(repository: SessionRepository) -> None:
    repository.create_session(Session("s", SessionType.AGENT))
    repository.create_agent("s", made())
    assert repository.list_messages("s", "a") == []
    given = [message(n, f"{n}", "user" if n % 2 == 0 else "assistant") for n in range(60)]
    for one in given:
        repository.create_message("s", "a", one)
    assert repository.list_messages(session_id="s", agent_id="a") == given
    for limit, offset in ((None, 0), (None, 57), (2, 0), (2, 30), (5, 58), (0, 0), (3, 99)):
        end = None if limit is None else offset + limit
        assert repository.list_messages("s", "a", limit, offset) == given[offset:end]
    assert repository.read_message("s", "a", 17) == given[17]
    assert repository.read_message("s", "a", 99) is None
    with pytest.raises(SessionException):
        repository.list_messages("s", "nobody")


def test_agents_of_a_session_have_messages_of_their_own(repository: SessionRepository) -> None:
    repository.create_session(Session("s", SessionType.AGENT))
    repository.create_session(Session("t", SessionType.AGENT))
    for session, id in (("s", "a"), ("s", "b"), ("t", "a")):
        repository.create_agent(session, made(id))
        repository.create_message(session, id, message(0, f"{session} {id}"))
    for session, id in (("s", "a"), ("s", "b"), ("t", "a")):
        (found,) = repository.list_messages(session, id)
        assert found.message["content"] == [{"text": f"{session} {id}"}]


def test_a_redacted_message_says_something_else_from_then_on(repository: SessionRepository) -> None:
    repository.create_session(Session("s", SessionType.AGENT))
    repository.create_agent("s", made())
    given = [message(n, f"secret {n}") for n in range(3)]
    for one in given:
        repository.create_message("s", "a", one)
    with pytest.raises(SessionException):
        repository.update_message("s", "a", message(9))
    given[2].redact_message = {"role": "user", "content": [{"text": "redacted"}]}
    given[2].created_at = given[2].updated_at = "2026-01-01T00:00:00+00:00"
    before = repository.read_message("s", "a", 2)
    assert before is not None
    repository.update_message("s", "a", given[2])
    found = repository.list_messages("s", "a")
    assert [one.to_message()["content"][0]["text"] for one in found] == [
        *("secret 0", "secret 1", "redacted")
    ]
    assert found[2] == given[2]
    assert found[2].created_at == before.created_at
    repository.create_message("s", "a", message(3, "goes on"))
    assert len(repository.list_messages("s", "a", offset=1)) == 3


def test_bytes_come_back_as_bytes(repository: SessionRepository) -> None:
    repository.create_session(Session("s", SessionType.AGENT))
    repository.create_agent("s", made())
    picture = {"image": {"format": "png", "source": {"bytes": b"\x89PNG\xff"}}}
    one = SessionMessage.from_message({"role": "user", "content": [picture]}, 0)  # type: ignore
    repository.create_message("s", "a", one)
    assert repository.list_messages("s", "a") == [one]


def test_names_that_could_lead_elsewhere_are_refused(repository: SessionRepository) -> None:
    repository.create_session(Session("s", SessionType.AGENT))
    for wrong in ("a/b", "../s", "/etc/passwd"):
        with pytest.raises(ValueError, match="path separators"):
            repository.create_session(Session(wrong, SessionType.AGENT))
        with pytest.raises(ValueError, match="path separators"):
            repository.read_session(wrong)
        with pytest.raises(ValueError, match="path separators"):
            repository.create_agent("s", made(wrong))
    with pytest.raises(ValueError, match="must be an integer"):
        repository.read_message("s", "a", "0")  # type: ignore[arg-type]
    for odd in ("x') OR 1=1 --", "$[*]", "%", "ä ö"):
        assert repository.read_session(odd) is None
        repository.create_session(Session(odd, SessionType.AGENT))
        repository.create_agent(odd, made(odd))
        repository.create_message(odd, odd, message(0))
        assert len(repository.list_messages(odd, odd)) == 1


def test_an_agent_goes_on_with_its_session(repository: SessionRepository) -> None:
    first = agent(repository, "s")
    first.state.set("mood", "good")
    assert str(first("what is it?")).strip() == "the answer is 42"
    again = agent(repository, "s")
    assert again.messages == first.messages
    assert again.state.get("mood") == "good"
    again("and now?")
    roles = [one.message["role"] for one in repository.list_messages("s", "default")]
    assert roles == ["user", "assistant"] * 4


def test_what_a_window_has_dropped_is_not_loaded_again(repository: SessionRepository) -> None:
    window: Callable[[], Any] = lambda: SlidingWindowConversationManager(window_size=4)  # noqa: E731
    first = agent(repository, "s", conversation_manager=window())
    for n in range(4):
        first(f"{n}?")
    again = agent(repository, "s", conversation_manager=window())
    assert again.messages == first.messages
    assert len(again.messages) <= 4
    assert len(repository.list_messages("s", "default")) == 16


def test_a_graph_keeps_its_state(repository: SessionRepository) -> None:
    def graph() -> Any:
        builder = GraphBuilder()
        node = Agent(model=Scripted(), name="node", callback_handler=None)
        builder.add_node(node, "node")
        builder.set_graph_id("g")
        builder.set_session_manager(RepositorySessionManager("s", repository))
        return builder.build()

    first = graph()
    state = repository.read_multi_agent("s", "g")
    assert state is not None
    assert state["type"] == "graph"
    first.state.status = type(first.state.status)("failed")
    repository.update_multi_agent("s", first)
    state = repository.read_multi_agent("s", "g")
    assert state is not None
    assert state["status"] == "failed"
    assert repository.read_multi_agent("s", "other") is None
    graph()


def test_a_session_is_deleted_with_its_agents(repository: Any) -> None:
    repository.create_session(Session("s", SessionType.AGENT))
    for id in ("a", "b"):
        repository.create_agent("s", made(id))
    repository.delete_session("s")
    assert repository.read_session("s") is None
    with pytest.raises(SessionException):
        repository.delete_session("s")
    repository.create_session(Session("s", SessionType.AGENT))
    assert repository.read_agent("s", "a") is None
    assert repository.read_agent("s", "b") is None


# --- what ours adds ---------------------------------------------------------------------------


def test_two_that_go_on_with_one_session_do_not_overwrite_each_other(store: clew.Store) -> None:
    """With Strands' own repositories the second message of a number takes the first one's place."""
    ours = ClewSessionRepository(store)
    one = agent(ours, "s")
    one("what is it?")
    other = agent(ours, "s")
    one("and now?")
    with pytest.raises(SessionException, match="another writer"):
        other("and then?")
    assert len(ours.list_messages("s", "default")) == 8
    ours.create_message("s", "default", ours.list_messages("s", "default")[-1])  # a retry
    assert len(ours.list_messages("s", "default")) == 8


def test_a_session_is_readable_everywhere(
    store: clew.Store, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent(ClewSessionRepository(store), "s")("what is it?")
    kinds = [entry.kind for entry in store.get("s").path()]
    assert kinds == ["user_message", "tool_call", "tool_result", "assistant_message"]
    assert_readable(store, address, "s", says="the answer is 42", folder=tmp_path, capsys=capsys)
    assert store.get("s").context().format == "converse"
    assert [info.id for info in store.list(tag="strands").items] == ["s"]


def test_what_is_redacted_is_redacted_in_every_context(store: clew.Store) -> None:
    ours = ClewSessionRepository(store)
    ours.create_session(Session("s", SessionType.AGENT))
    ours.create_agent("s", made())
    secret = message(0, "my password")
    ours.create_message("s", "a", secret)
    secret.redact_message = {"role": "user", "content": [{"text": "redacted"}]}
    ours.update_message("s", "a", secret)
    for format in ("anthropic", "openai-chat", "converse"):
        assert "password" not in str(store.get("s").context(format).messages)
        assert "redacted" in str(store.get("s").context(format).messages)


def test_a_thread_of_the_core_is_a_session(store: clew.Store) -> None:
    thread = store.create("t")
    thread.append_message({"role": "system", "content": "be brief"})
    thread.append_message({"role": "user", "content": "what is it?"})
    call = {"type": "tool_use", "id": "c1", "name": "look_up", "input": {"key": "x"}}
    thread.append_message({"role": "assistant", "content": [call]}, format="anthropic")
    thread.append_results({"c1": "7"})
    thread.append_message({"role": "assistant", "content": "seven"})
    ours = ClewSessionRepository(store)
    resumed = agent(ours, "t")
    assert [one["role"] for one in resumed.messages] == ["user", "assistant", "user", "assistant"]
    assert str(resumed("and now?")).strip() == "the answer is 42"
    again = agent(ours, "t")
    assert [one["content"] for one in again.messages] == [
        one["content"] for one in resumed.messages
    ]
    thread.append_message({"role": "user", "content": "from elsewhere"})
    found = ours.list_messages("t", "default")
    assert found[-1].message["content"] == [{"text": "from elsewhere"}]
    assert [one.message_id for one in found] == list(range(9))
    assert [one["role"] for one in message_history(thread)] == ["user", "assistant"] * 4 + ["user"]


def test_a_run_that_was_killed_goes_on_in_another_process(address: str) -> None:
    killed(start("strands_agent.py", "begin", address))
    # The call has no result; Strands answers it itself when the agent goes on.
    roles, output = said(start("strands_agent.py", "resume", address))
    assert roles == "user assistant"
    assert output == "the answer is 42"
    with clew.open(address) as store:
        assert store.verify() == []


def test_an_owner_that_was_stopped_is_refused_when_it_wakes(address: str) -> None:
    sleeper = start("strands_agent.py", "stop", address)
    assert sleeper.stdout is not None
    assert sleeper.stdout.readline() == "stopped\n"
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)
    with clew.open(address) as store:
        ours = ClewSessionRepository(store, ownership="lease")
        taken = agent(ours, "s")
        deadline = time.monotonic() + 30
        while True:
            try:
                taken("and now?")
                break
            except clew.LeaseHeld:  # until the sleeper's lease is over
                assert time.monotonic() < deadline
                taken = agent(ours, "s")
        os.kill(sleeper.pid, signal.SIGCONT)
        (outcome,) = said(sleeper)
        assert outcome.startswith("refused")
        assert "LeaseLost" in outcome or "SessionException" in outcome
        roles = [one.message["role"] for one in ours.list_messages("s", "default")]
        assert roles == ["user", "assistant"] * 4
        assert store.verify() == []
        ours.close()


def test_wrong_input_is_refused_and_leaves_nothing(store: clew.Store) -> None:
    ours = ClewSessionRepository(store)
    with pytest.raises(SessionException, match="Session s does not exist"):
        ours.create_agent("s", made())
    with pytest.raises(SessionException, match="Agent a in session s does not exist"):
        ours.create_message("s", "a", message(0))
    store.create("t/b").append_message({"role": "user", "content": "not an agent's"})
    ours.create_session(Session("t", SessionType.AGENT))
    ours.create_agent("t", made("a"))
    assert ours.read_agent("t", "b") is None
    with pytest.raises(SessionException, match="Agent b in session t does not exist"):
        ours.create_agent("t", made("b"))
    for wrong in ("", None, 7):
        with pytest.raises(ValueError, match="session_id"):
            ours.read_session(wrong)  # type: ignore[arg-type]
    assert ours.read_session("x" * 600) is None
    ours.create_session(Session("s", SessionType.AGENT))
    ours.create_agent("s", made())
    for wrong in ({"role": "nobody", "content": []}, {"role": "user", "content": 7}, {}, "text"):
        with pytest.raises(clew.InvalidInput):
            ours.create_message("s", "a", SessionMessage(wrong, 0))  # type: ignore[arg-type]
    for wrong in (-1, True, "0"):
        with pytest.raises(ValueError, match="message_id"):
            ours.create_message("s", "a", message(wrong))  # type: ignore[arg-type]
    assert store.get("s").path() == []
    with pytest.raises(clew.InvalidInput, match="ownership"):
        ClewSessionRepository(store, ownership="mine")  # type: ignore[arg-type]
