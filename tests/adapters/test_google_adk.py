"""What sessions of ADK have of being threads, and what must not happen to them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("google.adk", reason="google-adk is not installed")

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.session import Session
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types
from google_adk_support import WHO, ask, calls, changes, compacts, runner_of, says, texts

import clew
from clew import cli, messages
from clew.adapters.google_adk import ClewSessionService, import_sqlite
from clew.adapters.google_adk.events import kind_of
from clew.core.errors import InvalidInput
from clew.messages.incoming import kind_for

pytestmark = pytest.mark.anyio
ADK_THREAD = "adk:travel/ann/s"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def service(store: clew.Store) -> ClewSessionService:
    return ClewSessionService(store)


async def get(service: ClewSessionService, **config: Any) -> Session:
    found = await service.get_session(**WHO, session_id="s", config=GetSessionConfig(**config))
    assert found is not None
    return found


async def conversation(service: ClewSessionService, *words: str) -> Session:
    """A session in which the user and the guide take turns; each exchange is a run."""
    session = await service.create_session(**WHO, session_id="s", state={"begun": True})
    for number, word in enumerate(words):
        event = says(word, by="guide" if number % 2 else "user", run=f"run-{number // 2}")
        event.actions.state_delta = {"last": word, f"n{number}": number}
        await service.append_event(session, event)
    return session


# --- two writers ------------------------------------------------------------------------------


async def test_two_copies_read_at_one_moment_cannot_both_write(service: ClewSessionService) -> None:
    session = await conversation(service, "a")
    copies = [await get(service) for _ in range(8)]
    refused = []

    async def write(number: int, copy: Session) -> None:
        try:
            # The times of all of them are equal: times cannot tell who was first.
            event = says(f"from {number}", timestamp=session.last_update_time)
            await service.append_event(copy, event)
        except StaleSessionError:
            refused.append(number)

    async with anyio.create_task_group() as group:
        for number, copy in enumerate(copies):
            group.start_soon(write, number, copy)
    assert len(refused) == 7
    assert len((await get(service)).events) == 2
    assert all(len(copy.events) == 1 for number, copy in enumerate(copies) if number in refused)


async def test_a_session_that_lost_its_marker_is_still_told_apart(
    service: ClewSessionService,
) -> None:
    session = await conversation(service, "a", "b")
    through_json = Session.model_validate_json(session.model_dump_json())
    await service.append_event(through_json, says("c"))
    with pytest.raises(StaleSessionError):
        await service.append_event(
            Session.model_validate_json(session.model_dump_json()), says("d")
        )
    bare = Session(id="s", **WHO, last_update_time=1.0)
    with pytest.raises(StaleSessionError):
        await service.append_event(bare, says("e"))
    assert texts((await get(service)).events) == ["a", "b", "c"]
    with pytest.raises(SessionNotFoundError):
        await service.append_event(Session(id="none", **WHO), says("f"))


async def test_branches_of_a_run_that_share_a_session_all_write(
    service: ClewSessionService,
) -> None:
    session = await conversation(service, "a")
    async with anyio.create_task_group() as group:
        for n in range(12):
            group.start_soon(service.append_event, session, says(str(n)))
    kept = await get(service)
    assert len(kept.events) == 13
    assert kept == session, "in memory they stand in the order in which they were written"


async def test_the_same_event_again_is_written_once(service: ClewSessionService) -> None:
    session = await conversation(service, "a")
    before = session.model_copy(deep=True)
    event = says("b")
    event.actions.state_delta = {"k": 1, "app:k": 2}
    await service.append_event(session, event)
    await service.append_event(session, event)
    # The answer to the first attempt was lost, with what it did to the session in hand.
    await service.append_event(before, event.model_copy(deep=True))
    await service.append_event(session, says("c"))
    await service.append_event(session, event)
    kept = await get(service)
    assert texts(kept.events) == ["a", "b", "c"]
    assert kept == session
    assert texts(before.events) == ["a", "b"]
    with pytest.raises(AlreadyExistsError):
        await service.append_event(session, says("other", id=event.id))


async def test_sessions_that_change_shared_state_at_once_lose_no_key(
    service: ClewSessionService,
) -> None:
    async def run(n: int) -> None:
        session = await service.create_session(app_name="travel", user_id="ann", session_id=f"s{n}")
        for k in range(3):
            await service.append_event(
                session, changes(**{f"app__{n}.{k}": n, f"user__{n}.{k}": k})
            )

    async with anyio.create_task_group() as group:
        for n in range(8):
            group.start_soon(run, n)
    every = {f"{n}.{k}": (n, k) for n in range(8) for k in range(3)}
    assert await service.get_user_state(**WHO) == {key: k for key, (_, k) in every.items()}
    last = await service.create_session(app_name="travel", user_id="bob")
    assert last.state == {f"app:{key}": n for key, (n, _) in every.items()}


async def test_shared_state_that_a_crash_kept_from_being_written_is_not_lost(
    service: ClewSessionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(service, "_share", crash)
        with pytest.raises(KeyboardInterrupt):
            await service.create_session(**WHO, session_id="s", state={"app:a": 1, "user:b": 2})
    session = await get(service)
    assert session.state == {"app:a": 1, "user:b": 2}
    with monkeypatch.context() as patch:
        patch.setattr(service, "_share", crash)
        with pytest.raises(KeyboardInterrupt):
            await service.append_event(session, changes(app__a=10, own=3))
    other = await service.create_session(**WHO, session_id="other")
    await service.append_event(other, changes(user__b=20))
    assert (await get(service)).state == {"app:a": 10, "user:b": 20, "own": 3}
    assert (await get(service)).state == {"app:a": 10, "user:b": 20, "own": 3}


async def test_shared_state_does_not_go_back_when_an_old_session_is_looked_at(
    service: ClewSessionService, store: clew.Store, tmp_path: Path
) -> None:
    session = await service.create_session(**WHO, session_id="s", state={"app:a": 0})
    await service.append_event(session, changes(app__a=1))
    other = await service.create_session(**WHO, session_id="other")
    await service.append_event(other, changes(app__a=2))
    assert (await get(service)).state == {"app:a": 2}
    fork = await service.fork_session(**WHO, session_id="s")
    assert fork.state == {"app:a": 2}, "a fork repeats nothing that its events did to others"
    service.thread(**WHO, session_id="s").move(None)
    assert (await get(service)).state == {"app:a": 2}

    theirs = SqliteSessionService(str(tmp_path / "adk.db"))
    for number, id in enumerate(["first", "second"]):
        made = await theirs.create_session(app_name="other", user_id="ann", session_id=id)
        await theirs.append_event(made, changes(app__a=number))
    import_sqlite(tmp_path / "adk.db", store)
    first = await service.get_session(app_name="other", user_id="ann", session_id="first")
    assert first.state == {"app:a": 1}


async def test_a_session_made_anew_under_an_old_id_changes_shared_state_anew(
    service: ClewSessionService,
) -> None:
    for value in (1, 2, 1):
        session = await service.create_session(**WHO, session_id="s", state={"app:a": value})
        assert session.state["app:a"] == value
        event = Event(
            id="fixed", author="guide", actions=EventActions(state_delta={"user:b": value})
        )
        await service.append_event(session, event)
        assert await service.get_user_state(**WHO) == {"b": value}
        await service.delete_session(**WHO, session_id="s")


# --- costs ------------------------------------------------------------------------------------


async def test_an_event_writes_the_state_that_it_changes_and_no_more(
    service: ClewSessionService,
) -> None:
    large = {f"k{n}": "x" * 1000 for n in range(300)}
    session = await service.create_session(**WHO, session_id="s", state=large)
    thread = service.thread(**WHO, session_id="s")
    begun = thread.info.seq
    for n in range(30):
        await service.append_event(session, changes(**{f"k{n % 3}": n}))
    written = list(thread.read(after=begun))
    assert sum(len(record.data) for record in written) < 30 * 1000
    assert len(written) == 30 * 3, "an event, the key that it changes, and where the state stands"
    assert (await get(service, num_recent_events=0)).state == large | {"k0": 27, "k1": 28, "k2": 29}


async def test_the_newest_events_of_a_long_session_are_all_that_is_read(
    service: ClewSessionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await conversation(service)
    for n in range(300):
        event = says(str(n), timestamp=1_700_000_000.0 + n)
        event.actions.state_delta = {"n": n}
        await service.append_event(session, event)
    read: list[int] = []
    path = clew.Thread.path

    def counted(*args: Any, **options: Any) -> Any:
        found = path(*args, **options)
        read.append(len(found))
        return found

    monkeypatch.setattr(clew.Thread, "path", counted)
    assert len((await get(service, num_recent_events=10)).events) == 10
    assert sum(read) == 10
    read.clear()
    assert (await get(service, num_recent_events=0)).state == {"begun": True, "n": 299}
    assert sum(read) == 1
    read.clear()
    assert len((await get(service, after_timestamp=1_700_000_290.0)).events) == 10
    assert sum(read) <= 64
    read.clear()
    forked = await service.fork_session(**WHO, session_id="s", new_session_id="f")
    assert forked.state == {"begun": True, "n": 299}
    assert sum(read) == 1 + 300, "the point of the fork; then the session that is given"


# --- lists ------------------------------------------------------------------------------------


async def test_pages_of_sessions_begin_with_the_one_used_last(service: ClewSessionService) -> None:
    for n in range(7):
        session = await service.create_session(**WHO, session_id=f"s{n}", state={"user:x": 1})
        await service.append_event(session, says("Hi", timestamp=2e9 + n))
    seen: list[str] = []
    cursor = None
    while True:
        page = await service.list_page(**WHO, limit=3, cursor=cursor)
        seen += [session.id for session in page.sessions]
        assert all(session.state == {"user:x": 1} for session in page.sessions)
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == [f"s{n}" for n in reversed(range(7))]
    with pytest.raises(clew.InvalidInput):
        await service.list_page(**WHO, limit=0)
    with pytest.raises(clew.InvalidInput):
        await service.list_page(**WHO, cursor="x') OR 1=1 --")


async def test_sessions_of_a_list_share_nothing(service: ClewSessionService) -> None:
    for name in ("a", "b"):
        await service.create_session(**WHO, session_id=name, state={"user:seen": [1], "k": {}})
    first, second = (await service.list_sessions(app_name="travel")).sessions
    told = second.model_dump()
    assert Session.model_validate(told) == second  # it is one that ADK could have made
    first.state["user:seen"].append(2)
    first.state["new"] = 1
    first.events.append(says("hi"))
    first._storage_update_marker = "m"
    assert second.model_dump() == told
    assert second._storage_update_marker is None
    again = (await service.list_sessions(app_name="travel")).sessions
    assert [session.events for session in again] == [[], []]
    assert again[1].model_dump() == told


@pytest.mark.parametrize("role", ["user", "model", "system", "function", None, "", 5, ["user"]])
@pytest.mark.parametrize(
    "content",
    [
        {"parts": [{"text": "hi"}]},
        {"parts": [{"text": "hi"}, {"text": ""}]},
        {"parts": [{"text": "hi", "thought": True}]},
        {"parts": [{"text": None}]},
        {"parts": [{"text": 5}]},
        {"parts": [{"text": "hi"}, {}]},
        {"parts": [{"text": "hi"}, "hi"]},
        {"parts": [{"text": "hi"}, {"function_call": {"name": "f", "args": {}}}]},
        {"parts": [{"function_call": {"name": "f", "args": "{}", "id": "c"}}]},
        {"parts": [{"function_call": {"name": "f"}}, {"function_call": {"name": "g"}}]},
        {"parts": [{"function_call": {"name": ""}}]},
        {"parts": [{"function_call": {"name": "f", "id": 5}}]},
        {"parts": [{"function_call": None}]},
        {"parts": [{"function_call": "f"}]},
        {"parts": [{"functionCall": {"name": "f"}}]},
        {"parts": [{"function_call": {"name": "f"}, "thought_signature": "s"}]},
        {"parts": [{"function_response": {"name": "f", "response": {}}}]},
        {"parts": [{"function_response": {"name": "f", "response": 5, "id": None}}]},
        {"parts": [{"function_response": {"name": "f", "parts": [{"text": 5}]}}]},
        {"parts": [{"function_response": {"response": {}}}]},
        {"parts": [{"function_response": {"name": "f"}}, {"text": "hi"}]},
        {"parts": [{"function_response": {"name": "f"}}, {"function_call": {"name": "f"}}]},
        {"parts": []},
        {"parts": {"text": "hi"}},
        {"parts": [{"text": "hi"}], "candidates": []},
        {},
    ],
)
def test_the_kind_of_an_event_is_what_its_reader_says(role: Any, content: dict[str, Any]) -> None:
    """Whether a glance tells it or the reader."""
    for fields in ({}, {"usage_metadata": {"prompt_token_count": -1}}, {"usageMetadata": 5}):
        body = {"author": "guide", "content": {"role": role, **content}, **fields}
        try:
            told = kind_for(body, "adk")
        except InvalidInput:
            told = "event"
        assert kind_of(body) == told, body


@pytest.mark.parametrize("body", [None, [], "hi", {"content": []}, {"content": "hi"}])
def test_what_is_no_event_is_of_no_other_kind(body: Any) -> None:
    assert kind_of(body) == "event"


# --- rewinds, compactions, forks, moves -------------------------------------------------------


async def test_the_context_of_a_thread_shows_no_message_that_was_rewound(
    service: ClewSessionService,
) -> None:
    runner, _ = runner_of(service, calls("Rome"), "One.", calls("Oslo"), "Two.", "Three.")
    await service.create_session(**WHO, session_id="s")
    await ask(runner, "First?")
    second = await ask(runner, "Second?")
    await runner.rewind_async(
        user_id="ann", session_id="s", rewind_before_invocation_id=second[0].invocation_id
    )
    await ask(runner, "Third?")
    kept = await get(service)
    assert "Second?" in texts(kept.events), "a session keeps what was rewound, as ADK's own do"
    thread = service.thread(**WHO, session_id="s")
    context = thread.context("anthropic")
    assert messages.validate("anthropic", context.messages) == []
    told = json.dumps(context.messages)
    assert "Second?" not in told
    assert "Oslo" not in told
    assert [word for word in ("First?", "Rome", "One.", "Third?", "Three.") if word in told] == [
        *("First?", "Rome", "One.", "Third?", "Three.")
    ]


async def test_the_context_of_a_thread_shows_summaries_in_place_of_what_they_stand_for(
    service: ClewSessionService,
) -> None:
    session = await service.create_session(**WHO, session_id="s")
    for n in range(6):
        await service.append_event(
            session, says(f"word {n}", by="guide" if n % 2 else "user", timestamp=1.7e9 + n)
        )
    await service.append_event(session, compacts("S1", 1.7e9, 1.7e9 + 2))
    await service.append_event(session, compacts("S2", 1.7e9 + 2, 1.7e9 + 4))
    await service.append_event(session, says("Go on", timestamp=1.7e9 + 20))
    told = json.dumps(service.thread(**WHO, session_id="s").context("openai-chat").messages)
    assert [word in told for word in ("S1", "S2", "word 5", "Go on")] == [True] * 4
    assert not any(f"word {n}" in told for n in range(5))


async def test_a_fork_has_the_state_of_the_event_that_it_begins_at(
    service: ClewSessionService,
) -> None:
    session = await conversation(service, "a", "b", "c", "d")
    at = session.events[1].id
    fork = await service.fork_session(**WHO, session_id="s", at=at, new_session_id="f")
    assert texts(fork.events) == ["a", "b"]
    assert fork.state == {"begun": True, "last": "b", "n0": 0, "n1": 1}
    await service.append_event(fork, changes(last="other"))
    assert (await get(service)) == session
    again = await service.get_session(**WHO, session_id="f")
    assert again == fork
    assert again.state["last"] == "other"
    whole = await service.fork_session(**WHO, session_id="f")
    assert (whole.events, whole.state) == (fork.events, fork.state)
    with pytest.raises(AlreadyExistsError):
        await service.fork_session(**WHO, session_id="s", new_session_id="f")
    with pytest.raises(SessionNotFoundError):
        await service.fork_session(**WHO, session_id="none")
    with pytest.raises(clew.NotFound):
        await service.fork_session(**WHO, session_id="s", at="nothing")


async def test_a_leaf_that_others_moved_takes_the_state_with_it(
    service: ClewSessionService,
) -> None:
    session = await conversation(service, "a", "b", "c", "d")
    thread = service.thread(**WHO, session_id="s")
    thread.move(session.events[1].id)
    with pytest.raises(StaleSessionError):
        await service.append_event(session, says("too late"))
    back = await get(service)
    assert texts(back.events) == ["a", "b"]
    assert back.state == {"begun": True, "last": "b", "n0": 0, "n1": 1}
    assert (await service.list_sessions(**WHO)).sessions[0].state == back.state
    await service.append_event(back, changes(last="x"))
    assert (await get(service)) == back
    thread.move(None)
    empty = await get(service)
    assert (empty.events, empty.state) == ([], {"begun": True})
    await service.append_event(empty, says("anew"))
    assert texts((await get(service)).events) == ["anew"]


# --- what others write, and read --------------------------------------------------------------


async def test_a_thread_of_the_core_goes_on_as_a_session(
    service: ClewSessionService, store: clew.Store
) -> None:
    thread = store.create("core")
    thread.append_message({"role": "user", "content": "Where is Rome?"}, format="anthropic")
    block = {"type": "tool_use", "id": "t1", "name": "look_up", "input": {"city": "Rome"}}
    thread.append_message({"role": "assistant", "content": [block]}, format="anthropic")
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "Italy"}
    thread.append_message({"role": "user", "content": [result]}, format="anthropic")
    thread.append("usage", {"input_tokens": 3})
    thread.append_message({"role": "assistant", "content": "In Italy."}, format="anthropic")
    session = await service.adopt_thread("core", **WHO, session_id="s", agent="guide")
    assert [event.author for event in session.events] == ["user", "guide", "user", "guide"]
    assert session.events[1].get_function_calls()[0].args == {"city": "Rome"}
    assert await get(service) == session
    assert len((await get(service, num_recent_events=2)).events) == 2
    runner, model = runner_of(service, "You are welcome.")
    await ask(runner, "Thanks!")
    asked = [content.model_dump(mode="json", exclude_none=True) for content in model.asked[0]]
    assert messages.validate("gemini", asked) == []
    assert len(asked) == 5
    assert len(thread.path()) == 5, "the thread itself stays as it was"
    assert (await service.list_sessions(**WHO)).sessions[0].id == "s"


async def test_a_message_that_others_append_to_a_session_is_an_event_of_it(
    service: ClewSessionService,
) -> None:
    session = await conversation(service, "a", "b")
    thread = service.thread(**WHO, session_id="s")
    thread.append_message({"role": "user", "content": "from elsewhere"})
    with pytest.raises(StaleSessionError):
        await service.append_event(session, says("c"))
    fresh = await get(service)
    assert texts(fresh.events) == ["a", "b", "from elsewhere"]
    assert fresh.state == session.state
    await service.append_event(fresh, changes(last="c"))
    assert (await get(service)) == fresh


async def test_every_reader_of_clew_reads_a_session(
    service: ClewSessionService,
    store: clew.Store,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    runner, _ = runner_of(service, calls("Rome"), "Rome is in Italy.")
    await service.create_session(**WHO, session_id="s")
    await ask(runner, "Where is Rome?")
    thread = service.thread(**WHO, session_id="s")
    assert [entry.kind for entry in thread.path()] == [
        *("user_message", "tool_call", "tool_result", "assistant_message", "event")
    ]
    for format in ("anthropic", "openai-chat", "openai-responses", "gemini"):
        context = thread.context(format)
        assert messages.validate(format, context.messages) == []
        assert {repair.code for repair in context.report.repairs} <= {"user_added"}
        assert "Rome is in Italy." in json.dumps(context.messages)
    with clew.open(tmp_path / "copy.db") as copy:
        store.copy_to(copy)
    place = str(tmp_path / "copy.db")
    assert cli.main(["show", place, thread.id]) == 0
    assert "Where is Rome?" in capsys.readouterr().out
    exported = tmp_path / "thread.jsonl"
    assert cli.main(["export", place, thread.id, "--out", str(exported)]) == 0
    assert "the land of Rome" in exported.read_text("utf-8")
    assert store.verify() == []


async def test_an_entry_that_is_no_event_does_not_keep_a_session_from_being_read(
    service: ClewSessionService,
) -> None:
    session = await conversation(service, "a")
    thread = service.thread(**WHO, session_id="s")
    thread.append("event", {"author": 5, "actions": "none"}, format="adk")
    thread.append("event", "text", format="adk")
    fresh = await get(service)
    assert texts(fresh.events) == ["a"]
    assert fresh.state == session.state


async def test_a_store_that_is_open_for_looking_shows_sessions(tmp_path: Path) -> None:
    address = tmp_path / "store.db"
    made = ClewSessionService(str(address))
    session = await conversation(made, "a", "b")
    made.thread(**WHO, session_id="s").move(session.events[0].id)
    await made.close()
    with clew.open(address, readonly=True) as store:
        looking = ClewSessionService(store)
        found = await looking.get_session(**WHO, session_id="s")
        assert (texts(found.events), found.state["last"]) == (["a"], "a")
        with pytest.raises(clew.ReadOnly):
            await looking.append_event(found, says("c"))


def test_it_runs_under_trio(address: str) -> None:
    async def work() -> None:
        service = ClewSessionService(address)
        session = await conversation(service, "a", "b")
        assert await service.get_session(**WHO, session_id="s") == session
        await service.close()

    anyio.run(work, backend="trio")


# --- bad input --------------------------------------------------------------------------------


async def test_names_cannot_reach_the_sessions_of_others(service: ClewSessionService) -> None:
    pairs = [
        ("a", "b/c", "s"),
        ("a/b", "c", "s"),
        ("a", "b", "c/s"),
        ("a%2Fb", "c", "s"),
        ("a", "bb", "s"),
        ("a", "b%", "s"),
        ("a", "", "s"),
        ("", "a", "s"),
        ("a", "x') OR 1=1 --", "$[*]"),
        ("a", "_", "%"),
        ("a" * 600, "b", "s"),
        ("a" * 601, "b", "s"),
        ("ä€" * 200, "😀" * 300, "€" * 400),
    ]
    for number, (app, user, id) in enumerate(pairs):
        session = await service.create_session(
            app_name=app, user_id=user, session_id=id, state={"n": number, "user:u": number}
        )
        assert session.id == id
    for number, (app, user, id) in enumerate(pairs):
        found = await service.get_session(app_name=app, user_id=user, session_id=id)
        assert found.state == {"n": number, "user:u": number}
        listed = (await service.list_sessions(app_name=app, user_id=user)).sessions
        assert [session.state["n"] for session in listed] == [number]
    everything = (await service.list_sessions(app_name="a")).sessions
    assert {session.state["n"] for session in everything} == {0, 2, 4, 5, 6, 8, 9}


@pytest.mark.parametrize("name", ["a\0b", "\ud800", 7, None, b"s", ["s"]])
async def test_what_is_no_name_is_refused(service: ClewSessionService, name: Any) -> None:
    with pytest.raises((clew.InvalidInput, AttributeError, TypeError)):
        await service.create_session(app_name=name, user_id="u", session_id="s")
    with pytest.raises((clew.InvalidInput, AttributeError, TypeError)):
        await service.get_session(app_name="a", user_id="u", session_id=name)
    with pytest.raises((clew.InvalidInput, AttributeError, TypeError)):
        await service.list_sessions(app_name=name)


async def test_a_thread_that_only_has_the_name_of_a_session_is_none(
    service: ClewSessionService, store: clew.Store
) -> None:
    store.create(ADK_THREAD, facts={"adk": {"app": "other", "user": "ann", "session": "s"}})
    store.create("adk:travel/ann/x", facts={"adk": "text"})
    assert await service.get_session(**WHO, session_id="s") is None
    assert await service.get_session(**WHO, session_id="x") is None
    assert (await service.list_sessions(**WHO)).sessions == []
    await service.delete_session(**WHO, session_id="s")
    assert store.find(ADK_THREAD) is not None


@pytest.mark.parametrize(
    "value",
    [
        {"__reduce__": ["os.system", ["echo"]], "py/object": "os.system", "__class__": "x"},
        "gASVJgAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjAt0b3VjaCBwd25lZJSFlFKULg==",
        {"$[*]": {"x') OR 1=1 --": None}},
        {"lc": 2, "type": "constructor", "id": ["os", "system"]},
    ],
)
async def test_values_that_look_like_code_are_data(service: ClewSessionService, value: Any) -> None:
    session = await service.create_session(**WHO, session_id="s", state={"v": value})
    event = says("x", custom_metadata={"v": value})
    event.actions.state_delta = {"w": value, "x') OR 1=1 --": 1, "$[*]": 2, "label.x": 3}
    await service.append_event(session, event)
    assert await get(service) == session


async def test_values_that_are_no_json_are_told_or_spelt_out(service: ClewSessionService) -> None:
    session = await service.create_session(**WHO, session_id="s", state={"f": print})
    assert isinstance(session.state["f"], str)
    with pytest.raises(clew.InvalidInput):
        await service.append_event(session, changes(v=2**70))
    with pytest.raises(clew.InvalidInput):
        await service.append_event(session, says("x", id="a\0b"))
    for timestamp in (float("inf"), 1e300):
        with pytest.raises(clew.InvalidInput):
            await service.append_event(session, says("x", timestamp=timestamp))
    assert (await get(service)).events == []


async def test_half_a_character_comes_back(service: ClewSessionService) -> None:
    session = await service.create_session(**WHO, session_id="s", state={"half": "\udfff"})
    event = says("tool output \ud83d")
    event.actions.state_delta = {"more": ["\ud800"]}
    await service.append_event(session, event)
    assert await get(service) == session
    assert (await service.list_sessions(**WHO)).sessions[0].state == session.state


# --- moving over from ADK's own file ----------------------------------------------------------


@pytest.fixture
async def theirs(tmp_path: Path) -> SqliteSessionService:
    service = SqliteSessionService(str(tmp_path / "adk.db"))
    state = {"begun": 1, "app:a": 2, "user:b": 3}
    session = await service.create_session(**WHO, session_id="s", state=state)
    for n in range(5):
        event = says(str(n), timestamp=1.7e9 + n)
        event.actions.state_delta = {"n": n, "app:n": n}
        await service.append_event(session, event)
    await service.create_session(app_name="travel", user_id="bob", session_id="empty")
    return service


async def test_sessions_come_over_whole(
    theirs: SqliteSessionService, service: ClewSessionService, store: clew.Store, tmp_path: Path
) -> None:
    told: list[tuple[int, int]] = []
    report = import_sqlite(
        tmp_path / "adk.db", store, progress=lambda done, of: told.append((done, of))
    )
    assert (report.threads, report.entries, report.left) == (2, 5, [])
    assert told == [(1, 2), (2, 2)]
    session = await get(service)
    original = await theirs.get_session(**WHO, session_id="s")
    assert session.model_dump() == original.model_dump()
    assert await service.get_user_state(**WHO) == {"b": 3}
    there = (await theirs.list_sessions(app_name="travel")).sessions
    here = (await service.list_sessions(app_name="travel")).sessions
    assert [(one.id, one.state) for one in here] == [(one.id, one.state) for one in there]
    again = import_sqlite(tmp_path / "adk.db", store)
    assert (again.threads, again.entries) == (2, 0)
    # It goes on there for a while, and is brought over once more.
    original = await theirs.get_session(**WHO, session_id="s")
    await theirs.append_event(original, changes(n="last"))
    assert import_sqlite(tmp_path / "adk.db", store).entries == 1
    assert (await get(service)).state["n"] == "last"
    await service.append_event(await get(service), says("here"))
    assert store.verify() == []


async def test_what_cannot_be_read_of_a_file_is_named_and_the_rest_is_there(
    theirs: SqliteSessionService, service: ClewSessionService, store: clew.Store, tmp_path: Path
) -> None:
    with sqlite3.connect(tmp_path / "adk.db") as file:
        file.execute("UPDATE events SET event_data = '{\"id\": ' WHERE timestamp = 1.7e9 + 1")
        file.execute("UPDATE events SET event_data = '[1]' WHERE timestamp = 1.7e9 + 2")
        file.execute("UPDATE sessions SET state = 'x' WHERE id = 'empty'")
    report = import_sqlite(tmp_path / "adk.db", store)
    assert report.entries == 3
    assert len(report.left) == 3
    assert texts((await get(service)).events) == ["0", "3", "4"]


def _text(path: Path) -> None:
    path.write_text("This is no database at all, but a text that is long enough to be one." * 20)


def _other(path: Path) -> None:
    sqlite3.connect(path).execute("CREATE TABLE notes (text)")


def _old(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE sessions (id)")
        db.execute("CREATE TABLE events (id, actions BLOB)")
    db.close()


@pytest.mark.parametrize(
    ("make", "error", "told"),
    [
        (lambda path: None, clew.NotFound, "was not found"),
        (_text, clew.Unsupported, "is no file of ADK: file is not a database"),
        (_other, clew.Unsupported, "is no file of ADK: it has no table 'sessions'"),
        (_old, clew.Unsupported, "old tables, which hold pickles"),
    ],
)
def test_a_file_that_is_not_adks_is_refused(
    make: Callable[[Path], None],
    error: type[Exception],
    told: str,
    store: clew.Store,
    tmp_path: Path,
) -> None:
    make(tmp_path / "file.db")
    with pytest.raises(error, match=told):
        import_sqlite(tmp_path / "file.db", store)
    assert store.stats().threads == 0


async def test_a_file_of_the_database_service_comes_over(
    service: ClewSessionService, store: clew.Store, tmp_path: Path
) -> None:
    pytest.importorskip("sqlalchemy", reason="ADK's database service needs SQLAlchemy")
    from google.adk.sessions.database_session_service import DatabaseSessionService

    database = DatabaseSessionService(f"sqlite+aiosqlite:///{tmp_path / 'adk.db'}")
    session = await database.create_session(**WHO, session_id="s", state={"a": 1, "user:b": 2})
    content = types.Content(role="user", parts=[types.Part(text="Hello")])
    actions = EventActions(state_delta={"c": 3})
    await database.append_event(
        session, Event(author="user", invocation_id="r", content=content, actions=actions)
    )
    await database.close()
    report = import_sqlite(tmp_path / "adk.db", store)
    assert (report.threads, report.entries, report.left) == (1, 1, [])
    found = await get(service)
    assert (found.events, found.state) == (session.events, {"a": 1, "c": 3, "user:b": 2})
