"""What a search finds, the same on every engine."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from clew.core.errors import InvalidInput
from clew.search.searcher import Hit, SearchPage
from clew.store import Store
from clew.thread import Thread


def call(name: str, arguments: str, text: str = "") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    tools = [{"id": "1", "type": "function", "function": function}]
    return {"role": "assistant", "content": text, "tool_calls": tools}


def fill(store: Store) -> Thread:
    thread = store.create(
        "login", title="Fix the Safari login", workspace="/work/app", tags=["bug"]
    )
    thread.append_message({"role": "user", "content": "The login is broken. Café déjà vu."})
    thread.append_message(call("read_file", '{"path": "src/auth/login.py"}', "Let me look."))
    result = "def get_user_name():\n    raise KeyError('session_token')"
    thread.append_message({"role": "tool", "tool_call_id": "1", "content": result})
    thread.append_message(
        {"role": "assistant", "content": "getUserName loses the token. 今天天气很好"}
    )
    other = store.create("weather", workspace="/work/other")
    other.append_message({"role": "user", "content": "Is the weather report broken, or the login?"})
    return thread


def found(page: SearchPage) -> list[tuple[str, int]]:
    return [(hit.thread, hit.seq) for hit in page.items]


def texts(page: SearchPage) -> list[str]:
    return [hit.snippet for hit in page.items]


QUERIES = {
    "login": 4,
    "LOGIN": 4,
    "login broken": 2,
    '"login is broken"': 1,
    '"broken login"': 0,
    "cafe deja": 1,
    "café": 1,
    "天气": 1,
    "气天": 0,
    "getUserName": 2,
    "get_user_name": 2,
    "getusername": 1,
    "user name": 2,
    "src/auth/login.py": 1,
    "auth/login": 1,
    "tok*": 2,
    "toke": 0,
    "weather OR keyerror": 2,
    "login -weather": 3,
    "login NOT weather": 3,
    "login AND (weather OR safari)": 2,
    "(login": 4,
    'login"': 4,
    "read_file": 1,
    "()": 0,
    "*": 0,
}


def test_words_phrases_prefixes_and_operators_find_what_they_say(store: Store) -> None:
    fill(store)
    totals = {}
    for query in QUERIES:
        page = store.search(query)
        totals[query] = 0 if page.relaxed else page.total
        assert page.relaxed or len(page.items) == page.total
    assert totals == QUERIES


def test_a_hit_names_the_entry_and_shows_where_it_matches(store: Store) -> None:
    thread = fill(store)
    (hit,) = store.search("session_token").items
    entry = thread.get(hit.entry or "")
    assert (hit.thread, hit.seq, hit.kind, hit.role) == ("login", entry.seq, "tool_result", "tool")
    assert hit.title == "Fix the Safari login"
    assert hit.time == entry.time
    assert [hit.snippet[start:end] for start, end in hit.matches] == ["session_token"]
    (hit,) = store.search("safari", kind="title").items
    assert (hit.entry, hit.kind) == (None, "title")


def test_a_query_without_all_words_gives_the_nearest_and_says_so(store: Store) -> None:
    fill(store)
    page = store.search("weather zebra forecast report")
    assert page.relaxed
    assert found(page)[0][0] == "weather"
    assert not store.search("zebra").items


def test_the_filters_leave_what_they_say(store: Store) -> None:
    thread = fill(store)
    assert {hit.thread for hit in store.search("login", workspace="/work/other").items} == {
        "weather"
    }
    assert {hit.thread for hit in store.search("login", tag="bug").items} == {"login"}
    assert {hit.role for hit in store.search("login", role="user").items} == {"user"}
    assert [hit.kind for hit in store.search("", tool="read_file").items] == ["tool_call"]
    assert [hit.kind for hit in store.search("", path="auth/login.py").items] == ["tool_call"]
    assert not store.search("", path="login/auth.py").items
    assert {hit.kind for hit in store.search("", kind="tool_result").items} == {"tool_result"}
    assert found(store.search("login", thread="weather")) == [("weather", 2)]
    assert len(found(store.search("login", thread=["weather", "login"]))) == 4
    user = next(entry for entry in thread.entries() if entry.kind == "user_message")
    since = store.search("", since=user.time)
    assert user.seq in [seq for id, seq in found(since) if id == "login"]
    until = store.search("", until=user.time)
    assert user.seq not in [seq for id, seq in found(until) if id == "login"]


def test_a_model_is_that_of_the_reply_or_of_the_thread(store: Store) -> None:
    thread = store.create("t")
    thread.append_message({"role": "user", "content": "one question"})
    reply = {"role": "assistant", "content": "one answer"}
    thread.append_message(reply, meta={"model": "small"})
    thread.append_message(reply, meta={"model": "large"})
    assert [hit.role for hit in store.search("one", model="small").items] == ["user", "assistant"]
    assert not store.search("one", model="other").items


def test_an_agent_is_a_fact_of_the_thread(store: Store) -> None:
    store.create("t", facts={"agent": "codex"}).append_message({"role": "user", "content": "hi"})
    assert found(store.search("hi", agent="codex"))
    assert not found(store.search("hi", agent="pi"))


def test_pages_give_each_hit_once_and_end(store: Store) -> None:
    thread = store.create("t")
    for n in range(47):
        thread.append_message({"role": "user", "content": f"needle number {n}"})
    seen: list[Hit] = []
    cursor = None
    while True:
        page = store.search("needle", limit=10, cursor=cursor)
        assert page.total == 47
        assert page.exact
        seen += page.items
        cursor = page.cursor
        assert page.more == (cursor is not None)
        if cursor is None:
            break
    assert len({hit.entry for hit in seen}) == len(seen) == 47


def test_a_substring_is_found_inside_of_words_and_across_them(store: Store) -> None:
    fill(store)
    assert found(store.search("ssion_tok", substring=True)) == [("login", 6)]
    assert found(store.search("ESSION", substring=True)) == [("login", 6)]
    assert found(store.search("raise KeyErr", substring=True)) == [("login", 6)]
    assert found(store.search("():\n", substring=True)) == [("login", 6)]
    assert not found(store.search("session token", substring=True))
    page = store.search("ogi", substring=True, limit=2)
    assert (len(page.items), page.exact, page.more) == (2, False, True)
    assert len(store.search("ogi", substring=True, cursor=page.cursor).items) == 2


def test_new_entries_are_found_at_once_and_deleted_threads_are_not(store: Store) -> None:
    thread = fill(store)
    assert not store.search("zebra").items
    thread.append_message({"role": "user", "content": "a zebra"})
    assert store.search("zebra").total == 1
    store.delete("login")
    assert not store.search("zebra").items
    assert store.search("zebra", deleted=True).total == 1
    store.restore("login")
    thread.set(archived=True)
    assert store.search("zebra").total == 1
    store.purge("login")
    assert not store.search("zebra", deleted=True).items
    store.create("login").append_message({"role": "user", "content": "another zebra"})
    assert texts(store.search("zebra")) == ["another zebra"]


def test_a_new_title_takes_the_place_of_the_former(store: Store) -> None:
    thread = store.create("t", title="Zebra")
    assert store.search("zebra").total == 1
    thread.set(title="Okapi")
    assert not store.search("zebra").items
    assert texts(store.search("okapi")) == ["Okapi"]
    thread.set(title=None)
    assert not store.search("okapi").items


def test_what_forks_share_is_found_once(store: Store) -> None:
    thread = fill(store)
    fork = thread.fork(id="fork")
    fork.append_message({"role": "user", "content": "in the fork: session_token"})
    assert sorted(found(store.search("session_token"))) == [("fork", 3), ("login", 6)]


def test_a_users_words_weigh_more_and_newer_ones_a_little(store: Store) -> None:
    thread = store.create("t")
    for role in ("assistant", "user", "user"):
        thread.append_message({"role": role, "content": "about the heron"})
    assert [seq for _, seq in found(store.search("heron"))] == [3, 2, 1]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "   ",
        '"',
        '""""',
        "((((((((",
        "))) OR ((",
        "OR OR OR",
        "NOT",
        "- - -",
        "-",
        "--json",
        "* ** ***",
        "c0:x {c1}:y ^z",
        "NEAR(a b, 3)",
        "a:b' OR 1=1 --",
        "'; DROP TABLE words; --",
        "\x00\x01\ud800",
        "\\' & | ! <-> :*",
        "é" * 3000,
        "(" * 5000,
        '"a ' * 2000,
        "x" * 100_000,
        "⁂ ⁂kind",
    ],
)
def test_a_hostile_query_is_text(store: Store, query: str) -> None:
    fill(store)
    store.search(query)
    store.search(query, substring=True)


def test_a_query_of_a_megabyte_is_cut_and_says_so(store: Store) -> None:
    fill(store)
    page = store.search("login " * 170_000)
    assert page.items
    assert any("long" in note for note in page.notes)


def test_wrong_arguments_are_told(store: Store) -> None:
    for arguments in (
        {"limit": 0},
        {"cursor": "x"},
        {"context": 0},
        {"since": datetime(2026, 1, 1)},
        {"role": ""},
        {"thread": 5},
    ):
        with pytest.raises(InvalidInput):
            store.search("x", **arguments)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        store.search(5)  # type: ignore[arg-type]
    assert store.search("x", since=datetime(2026, 1, 1, tzinfo=UTC)).total == 0


def test_a_very_long_entry_is_found_by_its_beginning_and_its_end(store: Store) -> None:
    thread = store.create("t")
    text = "heron " + "filler words here " * 20_000 + " okapi " + "more filler " * 100 + " zebra"
    thread.append_message({"role": "user", "content": text})
    assert store.search("heron").total == store.search("zebra okapi").total == 1
    middle = "heron " + "filler " * 50_000 + "okapi " + "filler " * 50_000
    thread.append_message({"role": "user", "content": middle})
    assert store.search("okapi").total == 1
    assert store.search("okap", substring=True).total == 2


def test_bodies_that_are_no_messages_are_found_by_their_texts(store: Store) -> None:
    thread = store.create("t")
    thread.append("custom", {"note": {"text": "the heron"}, "n": [4711]})
    thread.append("event", ["okapi", None, True])
    thread.append("user_message", {"role": "user"})
    assert store.search("heron 4711").total == 1
    assert store.search("okapi").total == 1
    assert not store.search("note").items
