"""The sessions facet: a document is saved without ever dropping what is stored."""

from __future__ import annotations

import re
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import clew
from clew import ClewError, Conflict, InvalidInput, LeaseHeld, NotFound, Unavailable
from clew.facets import _base
from clew.facets.sessions import Event, Session, Sessions
from clew.messages.neutral import Usage
from clew.store import Store

IMAGE = {
    "role": "user",
    "content": [
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
        }
    ],
}
RESULT = {
    "role": "user",
    "content": [{"type": "tool_result", "tool_use_id": "t", "content": "fine"}],
}


def say(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def texts(session: Session) -> list[str]:
    return [message["content"] for message in session.messages]


@pytest.fixture
def sessions(store: Store) -> Sessions:
    return Sessions(store)


@pytest.fixture
def session(sessions: Sessions, tmp_path: Path) -> Session:
    """A stored session with one exchange."""
    made = sessions.new("anthropic", "https://api", "sonnet", workspace=str(tmp_path), id="s")
    made.messages += [say("Fix the login"), say("Done", "assistant")]
    assert sessions.save(made)
    return made


# --- new ---


def test_a_new_session_is_not_stored(sessions: Sessions) -> None:
    made = sessions.new("v", "e", "m")
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{16}", made.id)
    assert (made.vendor, made.endpoint, made.model) == ("v", "e", "m")
    assert made.title == ""
    assert made.workspace == str(Path.cwd().resolve())
    assert made.created_at == made.updated_at
    assert made.created_at.tzinfo is UTC
    assert sessions.store.stats().threads == 0
    assert sessions.new().id != sessions.new().id


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([], False),
        ([say("hello")], True),
        ([say("  \n\t")], False),
        ([say("hello", "assistant")], False),
        ([say("hello", "system")], False),
        ([RESULT], False),
        ([IMAGE], True),
        ([{"role": "user", "content": [{"type": "text", "text": " "}]}], False),
        ([{"role": "user", "content": [{"type": "text", "text": "x"}]}], True),
        ([{"role": "tool", "tool_call_id": "c", "content": "x"}], False),
        ([{"role": "user", "content": []}], False),
        ([say("hello", "assistant"), say(" "), say("x")], True),
        ([{"role": "user", "parts": [{"inlineData": {"mimeType": "a/b", "data": ""}}]}], True),
        ([{"role": "user", "content": [{"type": "hologram", "data": "x"}]}], True),
    ],
)
def test_user_interaction(sessions: Sessions, messages: list[Any], expected: bool) -> None:
    made = sessions.new()
    made.messages = messages
    assert sessions.has_user_interaction(made) is expected
    assert made.has_user_interaction() is expected
    assert sessions.save(made) is expected
    assert (sessions.store.stats().threads == 1) is expected
    assert bool(sessions.list().items) is expected


# --- saving and loading ---


def test_every_field_comes_back(sessions: Sessions, tmp_path: Path) -> None:
    made = sessions.new("v", "e", "m", workspace=str(tmp_path), id="s")
    made.title = "Title"
    made.messages = [say("a"), {"role": "assistant", "content": "\ud83d", "extra": [1.0]}]
    made.events = [Event("e1", "stream", "delta", {"text": "x"}), Event("e2")]
    made.events_complete = True
    made.cost = {"usd": 0.5, "calls": [1, 2]}
    assert sessions.save(made)
    found = sessions.load("s")
    assert found == made
    assert found.updated_at >= found.created_at
    assert sessions.save(found)
    assert sessions.load("s") == made


def test_a_session_that_is_not_there_is_not_found(sessions: Sessions) -> None:
    for call in (
        lambda: sessions.load("nobody"),
        lambda: sessions.append_message("nobody", say("x")),
        lambda: sessions.append_event("nobody", Event("e")),
        lambda: sessions.append_checkpoint("nobody", [], 0),
        lambda: sessions.export_markdown("nobody"),
        lambda: sessions.set_title("nobody", "x"),
        lambda: sessions.restore("nobody"),
        lambda: sessions.thread("nobody"),
    ):
        with pytest.raises(NotFound) as caught:
            call()
        assert (caught.value.what, caught.value.id) == ("session", "nobody")
    sessions.delete("nobody")
    assert sessions.store.stats().threads == 0


def test_saving_writes_only_what_is_new(sessions: Sessions, session: Session) -> None:
    before = session_log(sessions)
    assert sessions.save(session)
    assert session_log(sessions) == before, "nothing new, nothing written"
    session.messages.append(say("more"))
    sessions.save(session)
    assert session_log(sessions)[len(before) :] == ["user_message"]
    loaded = sessions.load("s")
    loaded.messages.append(say("even more"))
    loaded.cost = 5
    sessions.save(loaded)
    assert session_log(sessions)[len(before) + 1 :] == ["user_message", "cost"]


def session_log(sessions: Sessions, id: str = "s") -> list[str]:
    records = sessions.thread(id).read()
    return [getattr(r, "kind", None) or getattr(r, "key", None) or "move" for r in records]


def test_metadata_alone_is_an_update_too(sessions: Sessions, session: Session) -> None:
    before = sessions.load("s").updated_at
    session.model = "opus"
    session.vendor = ""
    sessions.save(session)
    found = sessions.load("s")
    assert (found.model, found.vendor, found.endpoint) == ("opus", "", "https://api")
    assert found.updated_at > before
    assert session.updated_at == found.updated_at


def test_saving_never_drops_what_was_before_a_checkpoint(
    sessions: Sessions, session: Session
) -> None:
    for n in range(50):
        sessions.append_message(session, say(f"message {n}"))
    sessions.append_checkpoint("s", [say("summary")], 10)
    found = sessions.load("s")
    assert texts(found) == ["summary"]
    found.messages.append(say("after"))
    sessions.save(found)
    assert texts(sessions.load("s")) == ["summary", "after"]
    full = sessions.load("s", full=True)
    assert texts(full)[:3] == ["Fix the login", "Done", "message 0"]
    assert len(full.messages) == 53
    full.messages.append(say("from the full one"))
    sessions.save(full)
    assert texts(sessions.load("s")) == ["summary", "after", "from the full one"]


def test_a_session_without_user_text_left_is_not_deleted_by_a_save(
    sessions: Sessions, session: Session
) -> None:
    sessions.append_checkpoint("s", [say("summary", "system")], 10)
    found = sessions.load("s")
    assert not found.has_user_interaction()
    assert sessions.save(found) is True
    assert sessions.list().items[0].id == "s"
    session.messages.clear()
    assert sessions.save(session) is True
    assert len(sessions.load("s", full=True).messages) == 2


def test_an_edited_history_replaces_the_view_and_keeps_the_old_one(
    sessions: Sessions, session: Session
) -> None:
    session.messages[1] = say("Done differently", "assistant")
    session.messages.append(say("Thanks"))
    sessions.save(session)
    assert texts(sessions.load("s")) == ["Fix the login", "Done differently", "Thanks"]
    assert texts(sessions.load("s", full=True)) == [
        "Fix the login",
        "Done",
        "Done differently",
        "Thanks",
    ]
    session.messages.append(say("Bye"))
    sessions.save(session)
    assert texts(sessions.load("s")) == texts(session)


def test_a_history_that_was_compacted_by_hand_is_taken_as_such(
    sessions: Sessions, session: Session
) -> None:
    sessions.append_checkpoint(session, [say("summary")], 3)
    session.messages = [say("summary"), say("go on")]
    sessions.save(session)
    assert texts(sessions.load("s")) == ["summary", "go on"]
    assert texts(sessions.load("s", full=True)) == ["Fix the login", "Done", "go on"]


def test_a_message_that_was_taken_back_is_gone_from_the_view_only(
    sessions: Sessions, session: Session
) -> None:
    session.messages.pop()
    sessions.save(session)
    assert texts(sessions.load("s")) == ["Fix the login"]
    assert texts(sessions.load("s", full=True)) == ["Fix the login", "Done"]


def test_two_writers_keep_each_others_messages(sessions: Sessions, session: Session) -> None:
    other = Sessions(sessions.store).load("s")
    other.messages.append(say("theirs"))
    sessions.save(other)
    session.messages.append(say("ours"))
    sessions.save(session)
    assert texts(sessions.load("s")) == ["Fix the login", "Done", "theirs", "ours"]
    session.messages.append(say("ours again"))
    sessions.save(session)
    assert texts(sessions.load("s"))[2:] == ["theirs", "ours", "ours again"]


def test_what_was_written_by_id_is_not_written_again(sessions: Sessions, session: Session) -> None:
    sessions.append_message("s", say("by id"))
    sessions.append_event("s", Event("e"))
    session.messages.append(say("by id"))
    session.events.append(Event("e"))
    sessions.save(session)
    found = sessions.load("s")
    assert texts(found) == ["Fix the login", "Done", "by id"]
    assert found.events == [Event("e")]


def test_a_document_made_by_hand_adds_to_what_is_stored(
    sessions: Sessions, session: Session
) -> None:
    remade = sessions.new("anthropic", "https://api", "sonnet", id="s")
    sessions.append_message(remade, say("again"))
    assert texts(sessions.load("s")) == ["Fix the login", "Done", "again"]
    same = Session("s", session.created_at, session.updated_at, messages=list(session.messages))
    same.messages += [say("again"), say("and again")]
    sessions.save(same)
    assert texts(sessions.load("s"))[2:] == ["again", "and again"]


def test_a_stale_title_does_not_replace_a_newer_one(sessions: Sessions, session: Session) -> None:
    sessions.set_title("s", "Named by a user")
    session.messages.append(say("x"))
    sessions.save(session)
    assert sessions.load("s").title == "Named by a user"


# --- appending ---


def test_appending_keeps_the_document_up_to_date(sessions: Sessions) -> None:
    made = sessions.new(id="s")
    assert sessions.append_message(made, say("Welcome", "assistant")).body["content"] == "Welcome"
    assert sessions.append_event(made, Event("e1")).kind == "event"
    assert (made.title, sessions.load("s")) == ("", made)
    entry = sessions.append_message(made, say("Hello there"))
    assert sessions.thread("s").get(entry.id).body == say("Hello there")
    assert made.title == "Hello there"
    found = sessions.load("s")
    assert found == made
    assert texts(found) == ["Welcome", "Hello there"]
    assert found.events == [Event("e1")]


def test_appending_by_id_touches_no_document(sessions: Sessions, session: Session) -> None:
    sessions.append_message("s", say("more"))
    assert texts(session) == ["Fix the login", "Done"]
    assert texts(sessions.load("s")) == ["Fix the login", "Done", "more"]


def test_appending_the_same_text_twice_is_two_messages(
    sessions: Sessions, session: Session
) -> None:
    other = sessions.load("s")
    sessions.append_message(other, say("ok"))
    sessions.append_message(session, say("ok"))
    sessions.append_message("s", say("ok"))
    assert texts(sessions.load("s")) == ["Fix the login", "Done", "ok", "ok", "ok"]


def test_a_failed_append_leaves_the_document_as_it_was(store: Store) -> None:
    class Failing:
        """The engine on a disk that is full at times."""

        full = False

        def __getattr__(self, name: str) -> Any:
            return getattr(store.engine, name)

        def append(self, *args: Any, **options: Any) -> Any:
            if self.full:
                raise Unavailable("the disk is full")
            return store.engine.append(*args, **options)

    engine = Failing()
    sessions = Sessions(Store(engine))  # type: ignore[arg-type]
    made = sessions.new(id="s")
    sessions.append_message(made, IMAGE)
    engine.full = True
    with pytest.raises(Unavailable):
        sessions.append_message(made, say("title"), usage={"input_tokens": 1}, model="m")
    with pytest.raises(Unavailable):
        sessions.append_event(made, Event("e"))
    assert (len(made.messages), made.events, made.title, made.usage) == (1, [], "", {})
    engine.full = False
    sessions.append_message(made, say("title"), usage={"input_tokens": 1}, model="m")
    assert sessions.load("s") == made
    assert made.usage == {"m": {"calls": 1, "input_tokens": 1}}
    assert sessions.list().items[0].title_source == "host"


@pytest.mark.parametrize(
    "message", [{"content": "no role"}, {"role": "user", "content": 5}, "text", None]
)
def test_a_bad_message_is_refused(sessions: Sessions, session: Session, message: Any) -> None:
    for target in (session, "s", sessions.new()):
        with pytest.raises(InvalidInput):
            sessions.append_message(target, message)
    with pytest.raises(InvalidInput):
        sessions.append_checkpoint("s", [message], 0)
    session.messages.append(message)
    with pytest.raises(InvalidInput) as caught:
        sessions.save(session)
    assert caught.value.field == "messages"
    assert texts(sessions.load("s")) == ["Fix the login", "Done"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("title", None),
        ("vendor", 5),
        ("workspace", None),
        ("messages", None),
        ("events", None),
        ("events", ["x"]),
        ("events", [Event("e", data=object())]),
        ("cost", object()),
    ],
)
def test_a_bad_document_is_refused(
    sessions: Sessions, session: Session, field: str, value: Any
) -> None:
    session.messages.append(say("more"))
    setattr(session, field, value)
    with pytest.raises(InvalidInput):
        sessions.save(session)
    assert len(sessions.load("s").messages) == 2


def test_other_bad_input_is_refused(sessions: Sessions, session: Session) -> None:
    with pytest.raises(InvalidInput):
        sessions.append_checkpoint("s", [say("x")], -1)
    with pytest.raises(InvalidInput):
        sessions.append_checkpoint("s", "summary", 0)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        sessions.append_message("s", say("x"), usage={"input_tokens": -1})
    with pytest.raises(InvalidInput):
        sessions.append_message("s", say("x"), usage=5)  # type: ignore[arg-type]
    for target in (session, "s", sessions.new()):
        for event in ("event", Event("e", data=object())):
            with pytest.raises(InvalidInput):
                sessions.append_event(target, event)  # type: ignore[arg-type]
    assert session.events == []
    with pytest.raises(InvalidInput):
        sessions.load("")
    with pytest.raises(InvalidInput):
        sessions.cleanup_older_than(datetime(2020, 1, 1))
    assert len(sessions.load("s").messages) == 2


# --- checkpoints ---


def test_a_load_gives_the_checkpoint_and_what_came_after(
    sessions: Sessions, session: Session
) -> None:
    sessions.append_checkpoint(session, [say("one"), say("two", "assistant")], 100)
    assert texts(session) == ["Fix the login", "Done"], "the document stays as it is"
    sessions.append_message(session, say("after"))
    sessions.append_message("s", say("by id"))
    assert texts(sessions.load("s")) == ["one", "two", "after", "by id"]
    assert texts(sessions.load("s", full=True)) == ["Fix the login", "Done", "after", "by id"]


def test_the_last_checkpoint_wins(sessions: Sessions, session: Session) -> None:
    sessions.append_checkpoint("s", [say("first")], 1)
    sessions.append_message("s", say("between"))
    sessions.append_checkpoint("s", [say("second")], 1)
    assert texts(sessions.load("s")) == ["second"]


def test_an_empty_checkpoint_leaves_what_comes_after(sessions: Sessions, session: Session) -> None:
    sessions.append_checkpoint("s", [], 0)
    found = sessions.load("s")
    assert (found.messages, found.title, found.vendor) == ([], "Fix the login", "anthropic")
    sessions.append_message("s", say("after"))
    assert texts(sessions.load("s")) == ["after"]


def test_a_checkpoint_of_a_session_that_is_not_stored_stores_it(sessions: Sessions) -> None:
    made = sessions.new("v", id="s")
    sessions.append_checkpoint(made, [say("summary", "assistant")], 5)
    found = sessions.load("s")
    assert (texts(found), found.vendor) == (["summary"], "v")


def test_a_checkpoint_stores_what_was_not_stored_yet(sessions: Sessions, session: Session) -> None:
    session.messages.append(say("not saved yet"))
    sessions.append_checkpoint(session, [say("summary")], 5)
    assert texts(sessions.load("s", full=True))[-1] == "not saved yet"
    assert texts(sessions.load("s")) == ["summary"]


def test_events_cost_and_usage_survive_a_checkpoint(sessions: Sessions, session: Session) -> None:
    sessions.append_event(session, Event("e1", "tunnel", "delta", [1]))
    session.cost = {"usd": 1}
    session.events_complete = True
    sessions.save(session)
    sessions.append_message(session, say("x"), usage={"input_tokens": 3}, model="m")
    sessions.append_checkpoint(session, [say("summary")], 5)
    sessions.append_event("s", Event("e2"))
    found = sessions.load("s")
    assert [event.event_id for event in found.events] == ["e1", "e2"]
    assert (found.cost, found.events_complete) == ({"usd": 1}, True)
    assert found.usage == {"m": {"calls": 1, "input_tokens": 3}}
    light = sessions.load("s", events=False)
    assert light.events == []
    light.messages.append(say("after"))
    sessions.save(light)
    assert len(sessions.load("s").events) == 2


def test_a_resume_reads_the_tail_only(store: Store) -> None:
    read: list[int] = []

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(store.engine, name)

        def path(self, *args: Any, **options: Any) -> Any:
            found = store.engine.path(*args, **options)
            read.append(len(found))
            return found

    made = Sessions(store).new(id="s")
    made.messages = [say(str(n)) for n in range(2000)]
    Sessions(store).save(made)
    Sessions(store).append_checkpoint("s", [say("summary")], 5)
    found = Sessions(Store(Counting())).load("s")  # type: ignore[arg-type]
    assert texts(found) == ["summary"]
    assert sum(read) <= 300


def test_the_context_of_the_thread_says_what_the_document_says(
    sessions: Sessions, session: Session
) -> None:
    sessions.append_checkpoint("s", [say("summary"), say("understood", "assistant")], 5)
    sessions.append_message("s", say("after"))
    context = sessions.thread("s").context("plain")
    assert [message["content"] for message in context.messages] == [
        "summary",
        "understood",
        "after",
    ]
    assert context.report.repairs == ()


def test_a_summary_that_the_thread_was_compacted_to_is_shown(
    sessions: Sessions, session: Session
) -> None:
    sessions.append_message(session, say("second"))
    sessions.append_message(session, say("third", "assistant"))
    sessions.thread("s").compact(lambda messages: "what was", keep_turns=1)
    found = sessions.load("s")
    assert "what was" in found.messages[0]["content"]
    assert texts(found)[1:] == ["second", "third"]
    found.messages.append(say("fourth"))
    sessions.save(found)
    assert texts(sessions.load("s", full=True)) == [
        "Fix the login",
        "Done",
        "second",
        "third",
        "fourth",
    ]


# --- usage ---


def test_usage_is_kept_per_call_and_summed_by_model(sessions: Sessions, session: Session) -> None:
    sessions.append_message(
        session, say("a", "assistant"), usage={"input_tokens": 10, "x": {"y": 1}}
    )
    sessions.append_message(
        "s", say("b", "assistant"), usage=Usage(input_tokens=5, output_tokens=2)
    )
    sessions.append_message(
        session, say("c", "assistant"), usage={"input_tokens": 1.5}, model="haiku"
    )
    found = sessions.load("s")
    assert found.usage["sonnet"]["input_tokens"] == 15
    assert found.usage["sonnet"]["output_tokens"] == 2
    assert found.usage["sonnet"]["calls"] == 2
    assert found.usage["haiku"] == {"calls": 1, "input_tokens": 1.5}
    assert sessions.list().items[0].usage == found.usage
    calls = [entry.body for entry in sessions.calls("s")]
    assert calls[0] == {"input_tokens": 10, "x": {"y": 1}, "model": "sonnet"}
    assert len(calls) == 3
    assert len(found.messages) == 5


def test_usage_before_the_first_save_is_not_lost(sessions: Sessions) -> None:
    made = sessions.new(model="m", id="s")
    sessions.append_message(made, say("Welcome", "assistant"), usage={"output_tokens": 4})
    assert made.usage == {"m": {"calls": 1, "output_tokens": 4}}
    sessions.append_message(made, say("Hello"))
    assert sessions.load("s").usage == made.usage == {"m": {"calls": 1, "output_tokens": 4}}


# --- titles ---


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Fix the login", "Fix the login"),
        ("  Fix\n\tthe   login ", "Fix the login"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 59 + "…"),
        ("word " * 20, "word word word word word word word word word word word word…"),
        ("e\u0301" * 50, "e\u0301" * 29 + "…"),
        ("👩‍👩‍👧" * 20, "👩‍👩‍👧" * 11 + "…"),
        ("🇩🇪" * 40, "🇩🇪" * 29 + "…"),
        ("中" * 100, "中" * 59 + "…"),
        ("half \ud83d", "half \ufffd"),
        ("\ud83d\ude00", "😀"),
        ("a\0b\x1b[0m", "ab[0m"),
    ],
)
def test_a_title_never_cuts_a_character(sessions: Sessions, text: str, title: str) -> None:
    made = sessions.new(id="s")
    sessions.append_message(made, say(text))
    assert made.title == sessions.load("s").title == title
    assert len(title) <= 60


def test_the_first_text_makes_the_title_and_a_later_one_does_not(sessions: Sessions) -> None:
    made = sessions.new(id="s")
    sessions.append_message(made, IMAGE)
    assert sessions.load("s").title == ""
    sessions.append_message("s", say("By id"))
    assert sessions.load("s").title == "By id"
    sessions.append_message(made, say("Later"))
    assert made.title == "By id"
    assert sessions.load("s").title == "By id"


def test_a_title_says_who_made_it(sessions: Sessions, session: Session) -> None:
    def title() -> tuple[str, str | None]:
        info = sessions.list().items[0]
        return info.title, info.title_source

    assert title() == ("Fix the login", "host")
    sessions.set_title("s", "By a model", source="provider")
    assert title() == ("By a model", "provider")
    sessions.set_title(session, "By a user")
    assert title() == ("By a user", "user")
    assert session.title == "By a user"
    session.title = "In the document"
    sessions.save(session)
    assert title() == ("In the document", "user")


# --- the list ---


def test_the_list_is_in_the_order_of_updates_and_in_pages(
    sessions: Sessions, tmp_path: Path
) -> None:
    for id in "abcde":
        made = sessions.new("v", "e", id, workspace=str(tmp_path), id=id)
        sessions.append_message(made, say(f"title of {id}"))
    sessions.append_message("b", say("again"))
    for workspace in (None, str(tmp_path)):
        page = sessions.list(workspace, limit=3)
        rest = sessions.list(workspace, limit=3, cursor=page.cursor)
        assert [info.id for info in page.items + rest.items] == ["b", "e", "d", "c", "a"]
        assert rest.cursor is None
    info = page.items[0]
    assert (info.title, info.vendor, info.endpoint, info.model) == ("title of b", "v", "e", "b")
    assert info.workspace == str(tmp_path.resolve())
    assert info.created_at < info.updated_at
    assert not hasattr(info, "messages")


def test_listing_deletes_and_reads_nothing(store: Store) -> None:
    class Blind:
        """An engine that shows no entries and takes no writes."""

        def __getattr__(self, name: str) -> Any:
            assert name not in ("path", "read", "append", "purge"), f"{name} was called"
            return getattr(store.engine, name)

    made = Sessions(store).new(id="image")
    Sessions(store).append_message(made, IMAGE)
    huge = Sessions(store).new(id="huge")
    data = {"type": "base64", "media_type": "image/png", "data": "A" * 11_000_000}
    Sessions(store).append_message(
        huge, {"role": "user", "content": [{"type": "image", "source": data}]}
    )
    blind = Sessions(Store(Blind()))  # type: ignore[arg-type]
    assert [info.id for info in blind.list().items] == ["huge", "image"]
    assert len(Sessions(store).load("huge").messages) == 1


def test_other_threads_are_no_sessions(sessions: Sessions, session: Session) -> None:
    sessions.store.create("plain", workspace=session.workspace)
    sessions.store.get("plain").fork()
    for workspace in (None, session.workspace):
        assert [info.id for info in sessions.list(workspace).items] == ["s"]


def test_archived_sessions_are_listed_on_request(sessions: Sessions, session: Session) -> None:
    sessions.thread("s").set(archived=True)
    assert sessions.list().items == []
    assert [info.id for info in sessions.list(archived=True).items] == ["s"]
    assert [info.id for info in sessions.list(archived=None).items] == ["s"]


def test_the_latest_of_a_workspace(sessions: Sessions, tmp_path: Path) -> None:
    for id, folder in (("a", "one"), ("b", "two"), ("c", "one")):
        made = sessions.new(workspace=str(tmp_path / folder), id=id)
        sessions.append_message(made, say(id))
    assert sessions.latest(str(tmp_path / "one")).id == "c"
    assert sessions.latest(str(tmp_path / "two")).id == "b"
    assert sessions.latest(str(tmp_path / "three")) is None
    nowhere = sessions.new(workspace="", id="d")
    sessions.append_message(nowhere, say("d"))
    assert [info.id for info in sessions.list("").items] == ["d"]


# --- metadata first ---


def test_metadata_is_stored_before_messages_that_are_written_by_id(sessions: Sessions) -> None:
    made = sessions.new("v", "e", "m", id="s")
    assert sessions.ensure_meta(made) is False
    made.messages.append(say("Hello"))
    assert sessions.ensure_meta(made) is True
    assert sessions.ensure_meta(made) is True
    assert sessions.load("s").messages == []
    assert sessions.list().items == [], "nothing to be seen yet"
    sessions.append_message("s", say("Hello"))
    found = sessions.load("s")
    assert (texts(found), found.vendor, found.title) == (["Hello"], "v", "Hello")
    sessions.save(made)
    assert texts(sessions.load("s")) == ["Hello"], "not written twice"


# --- deleting ---


def test_a_deleted_session_can_be_restored(sessions: Sessions, session: Session) -> None:
    sessions.delete("s")
    sessions.delete("s")
    assert sessions.list().items == []
    with pytest.raises(NotFound) as caught:
        sessions.load("s")
    assert caught.value.deleted_at is not None
    with pytest.raises(NotFound):
        sessions.append_message("s", say("x"))
    sessions.restore("s")
    assert sessions.load("s") == session


def test_a_document_in_use_comes_back_when_it_is_saved(
    sessions: Sessions, session: Session
) -> None:
    sessions.delete("s")
    session.messages.append(say("still here"))
    sessions.save(session)
    assert texts(sessions.load("s")) == ["Fix the login", "Done", "still here"]
    sessions.store.purge("session:s")
    session.messages.append(say("all of it"))
    sessions.save(session)
    assert texts(sessions.load("s")) == texts(session)
    assert sessions.load("s").vendor == "anthropic"


@pytest.mark.parametrize("id", ["../victim", "/etc/passwd", "a/b", "x" * 600, "\ud800", "nul\0"])
def test_ids_are_never_paths(sessions: Sessions, session: Session, id: str) -> None:
    sessions.delete(id)
    made = sessions.new(id=id)
    sessions.append_message(made, say("hello"))
    assert sessions.load(id) == made
    assert {info.id for info in sessions.list().items} == {"s", id}
    sessions.delete(id)
    assert [info.id for info in sessions.list().items] == ["s"]


def test_cleaning_up_touches_only_what_is_old_and_at_rest(sessions: Sessions) -> None:
    for n in range(250):
        made = sessions.new(id=f"old {n}", workspace="/")
        sessions.append_message(made, say("x"))
    sessions.thread("old 7").set(archived=True)
    now = sessions.store.now()
    made = sessions.new(id="new")
    sessions.append_message(made, say("x"))
    with sessions.thread("old 3").turn(owner="me"):
        assert sessions.cleanup_older_than(now - timedelta(days=9)) == 0
    count = sessions.cleanup_older_than(now)
    assert count == 248, "not the archived one, nor the one that was at work just now"
    left = {info.id for info in sessions.list(archived=None).items}
    assert left == {"new", "old 3", "old 7"}
    assert sessions.cleanup_older_than(now) == 0
    before = sessions.store.get("session:old 5", deleted=True).info.updated_at
    sessions.restore("old 5")
    assert sessions.load("old 5").updated_at == before, "a restored session is as old as it was"


def test_a_session_that_is_leased_or_written_meanwhile_is_not_cleaned_up(
    sessions: Sessions, session: Session
) -> None:
    thread = sessions.thread("s")
    lease = thread.leases.acquire("me")
    later = sessions.store.now() + timedelta(days=1)
    assert sessions.cleanup_older_than(later) == 0
    with pytest.raises(LeaseHeld):
        sessions.delete("s")
    with pytest.raises(LeaseHeld):
        sessions.append_message("s", say("x"))
    assert sessions.append_message("s", say("x"), fence=lease.fence)
    thread.leases.release(lease)
    stale = thread.info
    thread.append("user_message", say("just now"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_base, "infos", lambda *_, **__: iter([stale]))
        assert sessions.cleanup_older_than(later) == 0
    assert sessions.cleanup_older_than(later) == 1


# --- many at once ---


def run_all(calls: list[Any]) -> list[BaseException]:
    errors: list[BaseException] = []

    def guarded(call: Any) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=guarded, args=(call,)) for call in calls]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return errors


def test_many_writers_of_one_session_lose_nothing(sessions: Sessions, session: Session) -> None:
    def by_id(n: int) -> None:
        for i in range(5):
            sessions.append_message("s", say(f"{n}.{i}"), usage={"tokens": 1}, model="m")

    def by_document(n: int) -> None:
        document = sessions.load("s")
        for i in range(5):
            document.messages.append(say(f"{n}.{i}"))
            sessions.save(document)

    calls = [lambda n=n: by_id(n) for n in range(4)]
    calls += [lambda n=n: by_document(n) for n in range(4, 8)]
    assert run_all(calls) == []
    found = sessions.load("s")
    assert sorted(texts(found)[2:]) == [f"{n}.{i}" for n in range(8) for i in range(5)]
    assert found.usage == {"m": {"calls": 20, "tokens": 20}}
    assert sessions.store.verify() == []


def test_a_checkpoint_beside_appends_hides_none_of_them(
    sessions: Sessions, session: Session
) -> None:
    def append(n: int) -> None:
        for i in range(10):
            sessions.append_message("s", say(f"{n}.{i}"))

    def compact() -> None:
        for _ in range(5):
            found = sessions.load("s")
            sessions.append_checkpoint(found, found.messages, 1)

    assert run_all([compact, *[lambda n=n: append(n) for n in range(3)]]) == []
    everything = texts(sessions.load("s", full=True))
    assert len(everything) == 32
    assert sorted(texts(sessions.load("s"))) == sorted(everything)


def test_a_checkpoint_keeps_what_its_maker_has_not_seen(
    sessions: Sessions, session: Session
) -> None:
    sessions.append_message("s", say("theirs"))
    sessions.append_checkpoint(session, [say("summary")], 1)
    assert texts(sessions.load("s")) == ["summary", "theirs"]
    sessions.append_message(session, say("ours"))
    sessions.append_message("s", say("theirs too"))
    session.messages[0] = say("edited")
    sessions.save(session)
    view = texts(sessions.load("s"))
    assert view == ["theirs", "theirs too", "edited", "Done", "ours"]


def test_giving_up_says_so(sessions: Sessions, session: Session) -> None:
    class Busy:
        """An engine where somebody else is always first."""

        def __getattr__(self, name: str) -> Any:
            return getattr(sessions.store.engine, name)

        def append(self, *args: Any, **options: Any) -> Any:
            raise Conflict("somebody else was first", expected=None, actual="x")

    busy = Sessions(Store(Busy()))  # type: ignore[arg-type]
    session.messages.append(say("x"))
    with pytest.raises(ClewError):
        busy.save(session)


# --- over instances ---


def test_sessions_persist(tmp_path: Path) -> None:
    with clew.open(tmp_path / "threads.db") as store:
        made = Sessions(store).new("v", "e", "m", workspace=str(tmp_path), id="s")
        Sessions(store).append_message(made, say("Hello"))
        Sessions(store).append_event(made, Event("e"))
    with clew.open(tmp_path / "threads.db") as store:
        found = Sessions(store).load("s")
        assert found == made
        found.messages.append(say("More"))
        Sessions(store).save(found)
        Sessions(store).append_checkpoint("s", [say("summary")], 5)
    with clew.open(tmp_path / "threads.db") as store:
        assert texts(Sessions(store).load("s")) == ["summary"]
        assert texts(Sessions(store).load("s", full=True)) == ["Hello", "More"]
        assert Sessions(store).latest(str(tmp_path)).title == "Hello"
        assert store.verify() == []
