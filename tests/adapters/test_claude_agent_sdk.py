"""Claude Agent SDK: its own conformance kit, and what it does not ask for."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("claude_agent_sdk", reason="needs clew[claude-agent-sdk]")

from claude_agent_sdk import (
    ClaudeAgentOptions,
    InMemorySessionStore,
    delete_session_via_store,
    fork_session_via_store,
    get_session_messages_from_store,
    get_subagent_messages_from_store,
    import_session_to_store,
    list_sessions_from_store,
    list_subagents_from_store,
    project_key_for_directory,
    rename_session_via_store,
    tag_session_via_store,
)
from claude_agent_sdk._internal.session_resume import materialize_resume_session
from claude_agent_sdk.testing import run_session_store_conformance
from claude_transcripts import SESSION, Record, Transcript, conversation, text
from docs._pages import DOCS, assert_outputs
from everywhere import assert_readable

import clew
from clew.adapters.claude_agent_sdk import ClewSessionStore, thread_id
from clew.interchange.intake import Intake
from clew.messages import validate

Run = Callable[..., Any]
PROJECT = project_key_for_directory(None)  # of the folder that the tests run in
KEY = {"project_key": PROJECT, "session_id": SESSION}


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs an asynchronous function, under each of the loops that the SDK runs under."""
    return lambda function, *args: anyio.run(function, *args, backend=request.param)


@pytest.fixture
def sessions(store: clew.Store) -> ClewSessionStore:
    return ClewSessionStore(store)


def now(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The result of an asynchronous function, where the loop is not what a test is about."""

    async def call() -> Any:
        return await function(*args, **options)

    return anyio.run(call)


def thread_of(sessions: ClewSessionStore, key: Record = KEY) -> clew.Thread:
    return sessions.store.get(thread_id(key))


def said(thread: clew.Thread) -> list[Any]:
    """The messages as Anthropic would get them, but that it is not asked to go on."""
    return thread.context(purpose="display", format="anthropic").messages


def words(thread: clew.Thread) -> list[str]:
    return [message["content"][0].get("text") for message in said(thread)]


def test_the_conformance_kit_of_the_sdk_passes_whole(address: str, run: Run) -> None:
    made = itertools.count()
    opened: list[clew.Store] = []

    def make() -> ClewSessionStore:
        opened.append(clew.open(address, namespace=f"n{next(made)}"))
        return ClewSessionStore(opened[-1])

    try:
        run(run_session_store_conformance, make)
    finally:
        for store in opened:
            store.close()


# --- a record is written once ---


@pytest.mark.parametrize("cut", [2, 3, 6])
def test_a_repeated_batch_is_not_written_twice(
    sessions: ClewSessionStore, run: Run, cut: int
) -> None:
    records = conversation().records

    async def mirror() -> list[Record]:
        await sessions.append(KEY, records[:cut])
        await sessions.append(KEY, records[:cut])
        await sessions.append(KEY, records)
        await ClewSessionStore(sessions.store).append(KEY, records)  # of another process
        return await sessions.load(KEY)

    assert sorted(map(str, run(mirror))) == sorted(map(str, records))
    assert sessions.store.verify() == []


def test_what_another_writer_stored_in_the_middle_of_a_batch_is_passed_over(
    sessions: ClewSessionStore,
) -> None:
    records = conversation().records
    now(sessions.append, KEY, records[3:5])
    now(sessions.append, KEY, records)
    assert [one.get("uuid") for one in now(sessions.load, KEY)].count(records[3]["uuid"]) == 1
    assert len(now(sessions.load, KEY)) == len(records)


def test_a_record_without_a_uuid_is_appended_as_often_as_it_comes(
    sessions: ClewSessionStore,
) -> None:
    titles = [{"type": "custom-title", "customTitle": title} for title in "ABA"]
    for title in titles:
        now(sessions.append, KEY, [title])
    assert now(sessions.load, KEY) == titles
    now(sessions.append, KEY, [titles[0], titles[0]])
    assert len(now(sessions.load, KEY)) == 5


def test_of_two_records_with_one_uuid_the_first_stays_and_the_rest_of_the_batch_is_kept(
    sessions: ClewSessionStore,
) -> None:
    first, other, new = ({"type": "user", "uuid": name, "n": n} for n, name in enumerate("aab"))
    now(sessions.append, KEY, [first])
    now(sessions.append, KEY, [other, new])
    now(sessions.append, KEY, [{"type": "x", "uuid": "c"}, {"type": "y", "uuid": "c"}])
    assert now(sessions.load, KEY) == [first, new, {"type": "x", "uuid": "c"}]


def test_a_record_that_is_passed_over_says_nothing_of_its_session(
    sessions: ClewSessionStore,
) -> None:
    named = {"type": "custom-title", "uuid": "a", "customTitle": "Lighthouses"}
    now(sessions.append, KEY, [named, {**named, "customTitle": "passed over"}])
    (summary,) = now(sessions.list_session_summaries, PROJECT)
    assert summary["data"]["custom_title"] == "Lighthouses"
    title = thread_of(sessions).info.title
    assert title is not None
    assert title.text == "Lighthouses"


def test_two_writers_of_one_session_lose_nothing_of_each_other(store: clew.Store) -> None:
    one, other = ClewSessionStore(store), ClewSessionStore(store)
    now(one.append, KEY, [{"type": "custom-title", "customTitle": "first", "uuid": "a"}])
    now(other.append, KEY, [{"type": "tag", "tag": "red", "uuid": "b"}])
    now(one.append, KEY, [{"type": "x", "gitBranch": "dev", "uuid": "c"}])
    assert [record["uuid"] for record in now(one.load, KEY)] == ["a", "b", "c"]
    [summary] = now(other.list_session_summaries, PROJECT)
    kept = {"custom_title": "first", "tag": "red", "git_branch": "dev"}
    assert kept.items() <= summary["data"].items()


def test_many_tasks_append_to_one_session_and_all_is_there(
    sessions: ClewSessionStore, run: Run
) -> None:
    async def mirror() -> None:
        async with anyio.create_task_group() as group:
            for n in range(12):
                group.start_soon(sessions.append, KEY, [{"type": "x", "uuid": f"u{n}", "n": n}])

    run(mirror)
    assert sorted(one["n"] for one in now(sessions.load, KEY)) == list(range(12))


# --- records are entries of a thread ---


def test_messages_are_messages_to_every_provider(sessions: ClewSessionStore) -> None:
    records = conversation().records
    for record in records:  # as the SDK flushes eagerly
        now(sessions.append, KEY, [record])
    assert now(sessions.load, KEY) == records
    thread = thread_of(sessions)
    kinds = [entry.kind for entry in thread.path() if entry.kind != "custom"]
    replies = ["assistant_message", "tool_call", "tool_call"]
    assert kinds == ["user_message", *replies, "tool_result", "tool_result", "assistant_message"]
    for format in ("anthropic", "openai-chat"):
        assert validate(format, thread.context(format).messages) == []
    context = thread.context()
    assert context.format == "anthropic"
    assert [repair.code for repair in context.report.repairs] == ["user_added"]
    assert [message["role"] for message in said(thread)] == ["user", "assistant"] * 2
    assert said(thread)[1]["content"] == [
        block for record in records[3:6] for block in record["message"]["content"]
    ]


def test_everything_else_reads_the_thread(
    sessions: ClewSessionStore, address: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    now(sessions.append, KEY, conversation().records)
    assert_readable(
        sessions.store,
        address,
        thread_id(KEY),
        says="There is a.py.",
        folder=tmp_path,
        capsys=capsys,
    )


def test_the_thread_has_the_title_the_tag_and_the_folder_of_the_session(
    sessions: ClewSessionStore,
) -> None:
    made = conversation()
    made.aside("ai-title", aiTitle="Files")
    made.aside("custom-title", customTitle="My files")
    made.aside("ai-title", aiTitle="Other files")
    made.aside("tag", tag="red")
    for record in made.records:
        now(sessions.append, KEY, [record])
    info = thread_of(sessions).info
    assert (info.title.text, info.tags) == ("My files", ("red",))
    [listed] = sessions.store.list(workspace="/home/me/project").items
    assert listed.id == info.id


def test_a_question_that_is_asked_otherwise_is_a_branch(sessions: ClewSessionStore) -> None:
    made = Transcript()
    root = made.user("Hello")
    made.assistant(text("Hi"), id="m1")
    made.user("Wrong question")
    made.assistant(text("Wrong answer"), id="m2")
    made.user("Right question", parentUuid=made.records[1]["uuid"])
    now(sessions.append, KEY, made.records[:4])
    now(sessions.append, KEY, made.records[4:])
    thread = thread_of(sessions)
    assert now(sessions.load, KEY) == made.records, "the SDK gets all of it, in its order"
    assert words(thread) == ["Hello", "Hi", "Right question"]
    assert thread.children(made.records[1]["uuid"]) == [made.records[n]["uuid"] for n in (2, 4)]
    assert thread.path()[0].id == root


def test_a_compacted_session_goes_on_from_its_summary(sessions: ClewSessionStore) -> None:
    made = conversation()
    last = made.records[-2]["uuid"]
    made.linked("system", subtype="compact_boundary", parentUuid=None, logicalParentUuid=last)
    made.user("This session is being continued: a.py was found.", isCompactSummary=True)
    made.assistant(text("Go on."), id="msg_9")
    now(sessions.append, KEY, made.records)
    begin, then = words(thread_of(sessions))
    assert begin.startswith("This session is being continued")
    assert then == "Go on."
    assert now(sessions.load, KEY) == made.records


def test_the_records_of_a_sidechain_do_not_come_into_the_conversation(
    sessions: ClewSessionStore,
) -> None:
    made = Transcript()
    asked = made.user("Ask a sub-agent")
    made.user("I am the sub-agent's task", parentUuid=None, isSidechain=True)
    made.assistant(text("sub-agent's words"), id="m1", isSidechain=True)
    made.assistant(text("Done"), id="m2", parentUuid=asked)
    now(sessions.append, KEY, made.records)
    assert words(thread_of(sessions)) == ["Ask a sub-agent", "Done"]


def test_the_error_of_an_api_is_no_message_and_odd_records_are_kept(
    sessions: ClewSessionStore,
) -> None:
    made = Transcript()
    made.user("Hello")
    made.assistant(text("API Error: 529"), id="m1", isApiErrorMessage=True)
    made.records += [
        {"type": "user", "uuid": "odd", "parentUuid": "nowhere", "message": {"role": 7}},
        {"type": "user", "uuid": "self", "parentUuid": "self", "timestamp": "yesterday"},
        {"type": "assistant", "uuid": "old", "parentUuid": 5, "timestamp": "0001-01-01T00:00Z"},
        {"type": "lone", "uuid": "lone", "text": "\ud83d", "parentUuid": None},
    ]
    now(sessions.append, KEY, made.records)
    assert now(sessions.load, KEY) == made.records
    assert len(thread_of(sessions).context(leaf=made.records[1]["uuid"]).messages) == 1


def test_a_sub_agent_is_a_thread_that_works_for_the_session(sessions: ClewSessionStore) -> None:
    sub = {**KEY, "subpath": "subagents/agent-1"}
    deep = {**KEY, "subpath": "subagents/workflows/run-1/agent-2"}
    theirs = Transcript(sidechain=True)
    theirs.user("Find it")
    now(sessions.append, sub, theirs.records)  # before the session has a record of its own
    assert now(sessions.load, KEY) is None
    assert now(sessions.list_sessions, PROJECT) == []
    now(sessions.append, KEY, conversation().records)
    now(sessions.append, deep, theirs.records)
    # In the order in which they began.
    listed = now(sessions.list_subkeys, KEY)
    assert listed == ["subagents/agent-1", "subagents/workflows/run-1/agent-2"]
    children = sessions.store.list(parent=thread_id(KEY)).items
    assert {child.id for child in children} == {thread_id(sub), thread_id(deep)}
    assert sessions.store.get(thread_id(sub)).context().messages[0]["role"] == "user"


# --- the SDK's own functions ---


class Counting(ClewSessionStore):
    loads = 0

    async def load(self, key: Any) -> Any:
        self.loads += 1
        return await super().load(key)


def test_sessions_are_listed_without_reading_a_transcript(store: clew.Store, run: Run) -> None:
    sessions = Counting(store)

    async def use() -> Any:
        for n in range(3):
            session = str(uuid.UUID(int=n + 1))
            await sessions.append({**KEY, "session_id": session}, conversation(session).records)
            await rename_session_via_store(sessions, session, f"session {n}")
        await tag_session_via_store(sessions, session, "red")
        await sessions.append({"project_key": "other", "session_id": "s"}, [{"type": "x"}])
        return await list_sessions_from_store(sessions, limit=2)

    listed = run(use)
    assert [(one.summary, one.tag) for one in listed] == [("session 2", "red"), ("session 1", None)]
    assert listed[0].first_prompt == "Which files are there?"
    assert sessions.loads == 0


def test_the_functions_of_the_sdk_give_the_same_as_on_its_own_store(
    sessions: ClewSessionStore, run: Run
) -> None:
    def without_times(value: Any) -> Any:
        return [str(one).split("last_modified")[0] for one in value]

    async def use(store: Any) -> list[Any]:
        await store.append(KEY, conversation().records)
        sub = Transcript(sidechain=True)
        sub.user("Find it")
        await store.append({**KEY, "subpath": "subagents/agent-1"}, sub.records)
        await rename_session_via_store(store, SESSION, "Named")
        fork = (await fork_session_via_store(store, SESSION, title="Forked")).session_id
        seen = [
            without_times(await get_session_messages_from_store(store, SESSION)),
            [one.message for one in await get_session_messages_from_store(store, fork)],
            await list_subagents_from_store(store, SESSION),
            without_times(await get_subagent_messages_from_store(store, SESSION, "1")),
            sorted(one.summary for one in await list_sessions_from_store(store)),
        ]
        await delete_session_via_store(store, SESSION)
        return [*seen, [one.summary for one in await list_sessions_from_store(store)]]

    assert run(use, sessions) == run(use, InMemorySessionStore())


@pytest.mark.parametrize("times", [1, 2])
def test_a_folder_of_claude_code_is_imported_once_however_often(
    sessions: ClewSessionStore,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    times: int,
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    folder = tmp_path / "projects" / PROJECT
    agents = folder / SESSION / "subagents"
    agents.mkdir(parents=True)
    main, sub = conversation(), Transcript(sidechain=True)
    sub.user("Find it")
    for path, made in ((folder / f"{SESSION}.jsonl", main), (agents / "agent-1.jsonl", sub)):
        path.write_text("".join(json.dumps(record) + "\n" for record in made.records))

    async def use() -> Any:
        for n in range(times):
            await import_session_to_store(SESSION, sessions, batch_size=4 + n)
        return await sessions.load(KEY), await sessions.load(
            {**KEY, "subpath": "subagents/agent-1"}
        )

    loaded, loaded_sub = run(use)
    linked = [record for record in loaded if "uuid" in record]
    assert linked == [record for record in main.records if "uuid" in record]
    assert loaded_sub == sub.records


def test_a_session_is_resumed_from_the_store(
    sessions: ClewSessionStore, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    records = conversation().records

    async def resume() -> list[Record]:
        await sessions.append(KEY, records)
        options = ClaudeAgentOptions(session_store=sessions, continue_conversation=True)
        made = await materialize_resume_session(options)
        try:
            path = made.config_dir / "projects" / PROJECT / f"{made.resume_session_id}.jsonl"
            return [json.loads(line) for line in path.read_text().splitlines()]
        finally:
            await made.cleanup()

    assert run(resume) == records


# --- forks ---


def test_a_fork_shares_the_history_and_writes_none_of_it(
    sessions: ClewSessionStore, run: Run
) -> None:
    records = conversation().records

    async def fork() -> Any:
        await sessions.append(KEY, records)
        key = await sessions.fork(KEY, title="Another way")
        more = Transcript(key["session_id"])
        more.user("And hidden ones?", parentUuid=records[-2]["uuid"])
        await sessions.append(key, more.records)
        return key, await sessions.load(key), await list_sessions_from_store(sessions)

    key, loaded, listed = run(fork)
    thread = thread_of(sessions, key)
    own = [record for record in thread.read() if isinstance(record, clew.Entry)]
    assert len(own) == 2, "the title, and what was asked in it"
    assert {record["sessionId"] for record in loaded} == {key["session_id"]}
    assert [one.get("uuid") for one in loaded if "message" in one][:-1] == [
        one["uuid"] for one in records if "message" in one
    ]
    assert loaded[1]["forkedFrom"] == {"sessionId": SESSION, "messageUuid": records[1]["uuid"]}
    assert not [one for one in loaded if one["type"] == "file-history-snapshot"]
    assert thread.context().messages[-1]["content"][0]["text"] == "And hidden ones?"
    assert now(sessions.load, KEY) == records, "the source is as it was"
    assert {one.summary for one in listed} == {"Another way", "Which files are there?"}
    messages = now(get_session_messages_from_store, sessions, key["session_id"])
    assert [one.type for one in messages].count("user") == 4
    assert sessions.store.verify() == []


def test_a_fork_may_begin_at_any_record_and_outlives_its_source(store: clew.Store) -> None:
    sessions = ClewSessionStore(store, purge=True)
    made = conversation()
    now(sessions.append, KEY, made.records)
    key = now(sessions.fork, KEY, at=made.records[1]["uuid"], session_id=str(uuid.UUID(int=5)))
    now(sessions.delete, KEY)
    assert now(sessions.load, KEY) is None
    assert [one["type"] for one in now(sessions.load, key)] == ["mode", "user", "custom-title"]
    assert store.verify() == []
    with pytest.raises(clew.NotFound):
        now(sessions.fork, key, at="nowhere")
    with pytest.raises(clew.AlreadyExists):
        now(sessions.fork, key, session_id=key["session_id"])


def test_a_thread_that_others_wrote_goes_on_in_the_sdk(sessions: ClewSessionStore) -> None:
    thread = sessions.store.create(title="Elsewhere")
    thread.append_message({"role": "system", "content": "Be brief."})
    thread.append_message({"role": "user", "content": "What is in a.py?"})
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    thread.append_message({"role": "assistant", "content": None, "tool_calls": [call]})
    thread.append_results({"c1": "print()"})
    with pytest.raises(clew.InvalidInput):
        now(sessions.fork, thread.id)
    key = now(sessions.fork, thread.id, project_key=PROJECT)
    messages = now(get_session_messages_from_store, sessions, key["session_id"])
    assert messages == now(get_session_messages_from_store, sessions, key["session_id"])
    assert [one.type for one in messages] == ["user", "assistant", "user"]
    assert messages[1].message["content"][0]["type"] == "tool_use"
    made = Transcript(key["session_id"])
    made.assistant(text("It prints."), id="m1", parentUuid=messages[-1].uuid)
    now(sessions.append, key, made.records)
    messages = now(get_session_messages_from_store, sessions, key["session_id"])
    assert [one.type for one in messages] == ["user", "assistant", "user", "assistant"]
    context = thread_of(sessions, key).context("openai-chat")
    assert context.messages[-1]["content"] == "It prints."
    assert now(list_sessions_from_store, sessions)[0].summary == "Elsewhere (fork)"


# --- deleting ---


def test_a_deleted_session_can_be_brought_back(sessions: ClewSessionStore) -> None:
    sub = {**KEY, "subpath": "subagents/agent-1"}
    now(sessions.append, KEY, conversation().records)
    now(sessions.append, sub, [{"type": "x", "uuid": "s"}])
    now(sessions.delete, KEY)
    assert now(sessions.load, KEY) is None
    assert now(sessions.load, sub) is None
    sessions.store.restore(thread_id(KEY))
    assert now(sessions.load, KEY) == conversation().records
    assert now(sessions.list_sessions, PROJECT)[0]["session_id"] == SESSION


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_deleted_session_that_is_written_again_begins_anew(
    sessions: ClewSessionStore, elsewhere: bool
) -> None:
    records = conversation().records
    now(sessions.append, KEY, records)
    deleting = ClewSessionStore(sessions.store) if elsewhere else sessions
    now(deleting.delete, KEY)
    now(sessions.append, KEY, records[:2])
    assert now(sessions.load, KEY) == records[:2]
    now(deleting.delete, KEY)
    now(sessions.append, KEY, [{"type": "x", "uuid": "new"}])
    assert now(sessions.load, KEY) == [{"type": "x", "uuid": "new"}]
    [summary] = now(sessions.list_session_summaries, PROJECT)
    assert "first_prompt" not in summary["data"]


def test_two_writers_that_begin_a_deleted_session_anew_keep_what_both_write(
    store: clew.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one has seen the tombstone, and comes to remove it after the first has written."""
    one, other = ClewSessionStore(store), ClewSessionStore(store)
    now(one.append, KEY, conversation().records)
    now(one.delete, KEY)
    clear = ClewSessionStore._clear

    def late(self: ClewSessionStore, id: str) -> None:
        monkeypatch.undo()
        now(one.append, KEY, [{"type": "x", "uuid": "first"}])
        clear(self, id)

    monkeypatch.setattr(ClewSessionStore, "_clear", late)
    other._append(KEY, [{"type": "x", "uuid": "second"}])
    assert [record["uuid"] for record in now(one.load, KEY)] == ["first", "second"]


# --- bad input ---


@pytest.mark.parametrize(
    "key",
    [
        None,
        "key",
        {},
        {"project_key": PROJECT},
        {"project_key": 7, "session_id": "s"},
        {"project_key": "", "session_id": "s"},
        {"project_key": "p", "session_id": "s", "subpath": ""},
        {"project_key": "p", "session_id": "\0"},
        {"project_key": "p", "session_id": "\ud800"},
    ],
)
def test_a_key_that_is_none_is_refused(sessions: ClewSessionStore, key: Any) -> None:
    for method, args in (("append", ([{"type": "x"}],)), ("load", ()), ("delete", ())):
        with pytest.raises(clew.InvalidInput):
            now(getattr(sessions, method), key, *args)
    assert sessions.store.stats().threads == 0


@pytest.mark.parametrize("entries", [None, "x", {}, ["x"], [None], 7])
def test_entries_that_are_no_records_are_refused(sessions: ClewSessionStore, entries: Any) -> None:
    with pytest.raises(clew.InvalidInput):
        now(sessions.append, KEY, entries)
    assert sessions.store.stats().threads == 0


def test_a_value_that_json_cannot_hold_is_refused_and_the_batch_leaves_no_record(
    sessions: ClewSessionStore,
) -> None:
    records = conversation().records
    with pytest.raises(clew.InvalidInput):
        now(sessions.append, KEY, [*records, {"type": "x", "uuid": "bad", "n": float("nan")}])
    with pytest.raises(clew.InvalidInput):
        now(sessions.append, KEY, [{"type": "x", "uuid": "bad", "n": object()}])
    assert now(sessions.load, KEY) is None
    now(sessions.append, KEY, records)
    assert now(sessions.load, KEY) == records


HOSTILE = ["x') OR 1=1 --", "$[*]", "a/b", "%2F", "a%2Fb", "..", "proj%", "_", "p*", "\U0010ffff"]


def test_no_project_sees_the_sessions_of_another(sessions: ClewSessionStore) -> None:
    keys = [{"project_key": p, "session_id": s} for p in HOSTILE for s in HOSTILE]
    keys.append({"project_key": "a", "session_id": "b/c"})
    keys.append({"project_key": "a/b", "session_id": "c"})
    assert len({thread_id(key) for key in keys}) == len(keys)
    keys = keys[:: len(keys) // 12] + keys[-2:]
    for n, key in enumerate(keys):
        now(sessions.append, key, [{"type": "x", "n": n}])
    for n, key in enumerate(keys):
        assert now(sessions.load, key) == [{"type": "x", "n": n}]
        listed = [one["session_id"] for one in now(sessions.list_sessions, key["project_key"])]
        same = [k["session_id"] for k in keys if k["project_key"] == key["project_key"]]
        assert sorted(listed) == sorted(same)
    assert now(sessions.list_sessions, "x") == []


def test_constructor_tags_and_pickles_are_plain_data(sessions: ClewSessionStore) -> None:
    records = [
        {"type": "user", "uuid": "a", "py/object": "os.system", "__reduce__": ["x"]},
        {"type": "constructor", "uuid": "b", "lc": 2, "id": ["builtins", "eval"], "p": "gASVCg=="},
    ]
    now(sessions.append, KEY, records)
    assert now(ClewSessionStore(sessions.store).load, KEY) == records


def test_a_thread_of_another_program_is_neither_read_nor_written(
    sessions: ClewSessionStore,
) -> None:
    thread = sessions.store.create(thread_id(KEY))
    thread.append("user_message", "mine")
    for method, args in (("append", ([{"type": "x"}],)), ("load", ()), ("delete", ())):
        with pytest.raises(clew.AlreadyExists):
            now(getattr(sessions, method), KEY, *args)
    assert now(sessions.list_sessions, PROJECT) == []
    sessions.store.delete(thread.id)
    with pytest.raises(clew.AlreadyExists):
        now(sessions.append, KEY, [{"type": "x"}])
    assert [entry.body for entry in sessions.store.restore(thread.id).path()] == ["mine"]


def test_another_release_of_the_sdk_than_the_tested_ones_is_named() -> None:
    from clew.adapters._versions import require

    with pytest.raises(ImportError, match="claude-agent-sdk"):
        require("claude-agent-sdk", extra="claude-agent-sdk", at_least="90", below="91")


def test_the_page_runs_and_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    left = assert_outputs(DOCS / "howto" / "claude-agent-sdk.md")
    now(left["move_all"], None)
    left["sessions"].close()


# --- the same session, from its file ---


@pytest.mark.parametrize("eagerly", [True, False])
def test_a_session_that_came_through_the_sdk_is_not_doubled_by_its_file(
    sessions: ClewSessionStore, tmp_path: Path, eagerly: bool
) -> None:
    made = conversation()
    for batch in [[record] for record in made.records] if eagerly else [made.records]:
        now(sessions.append, KEY, batch)
    thread = thread_of(sessions)
    before = {entry.id: (entry.parent, entry.kind) for entry in thread.entries()}
    file = tmp_path / "projects" / PROJECT / f"{SESSION}.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("".join(json.dumps(record) + "\n" for record in made.records), "utf-8")
    [report] = Intake(sessions.store).bring(file)
    assert (report.thread, report.entries, report.known) == (thread.id, 0, len(made.records))
    made.user("And now?")
    with file.open("a") as more:
        more.write(json.dumps(made.records[-1]) + "\n")
    [report] = Intake(sessions.store).bring(file)
    assert report.entries == 1
    now(sessions.append, KEY, made.records[-1:])
    made.assistant(text("Nothing."), id="msg_9")
    now(sessions.append, KEY, made.records[-1:])
    assert now(sessions.load, KEY) == made.records
    after = {entry.id: (entry.parent, entry.kind) for entry in thread.entries()}
    assert before.items() < after.items()
    assert len(after) == len(made.records)


def test_a_session_from_its_file_is_the_thread_that_the_sdk_would_have_made(
    store: clew.Store, tmp_path: Path
) -> None:
    made = conversation()
    made.user("Other", parentUuid=made.records[1]["uuid"])
    file = tmp_path / "projects" / PROJECT / f"{SESSION}.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("".join(json.dumps(record) + "\n" for record in made.records), "utf-8")
    [report] = Intake(store).bring(file)
    live = ClewSessionStore("memory:")
    now(live.append, KEY, made.records)
    ours, theirs = store.get(str(report.thread)), thread_of(live)
    one, other = list(ours.entries()), list(theirs.entries())
    assert [(e.id, e.parent, e.kind, e.format, e.data) for e in one] == [
        (e.id, e.parent, e.kind, e.format, e.data) for e in other
    ]
    assert all(e.time == f.time for e, f in zip(one, other, strict=True) if "timestamp" in e.body)
    assert [e.time for e in one] == sorted(e.time for e in one)  # those without a time fit in
    assert now(ClewSessionStore(store).load, KEY) == made.records
    live.close()
