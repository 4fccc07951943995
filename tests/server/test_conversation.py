"""A thread as people read it: cards, runs, what is fetched on demand."""

from __future__ import annotations

import re

import pytest
from httpx import Client
from hypothesis import given
from hypothesis import strategies as st
from server.viewer_client import client_of
from server.viewer_store import call as call_
from server.viewer_store import fill_long, gives, says, text, user

from clew.core.model import Entry
from clew.server.cards import Call, cards
from clew.server.outline import RUN_ENTRIES_MAX, Outlines, outlined
from clew.store import Store


def story(client: Client) -> str:
    return client.get("/thread", params={"id": "slug-accents"}).text


def test_everything_that_was_said_is_there(client: Client) -> None:
    html = story(client)
    for words in (
        "<code>test_slugify</code> fails",
        "Thinking",
        "python -m pytest",
        "<strong>everything</strong>",
        "2 files of",
        "RateLimitError: 429",
        "turn completed after",
        "the fix",
        "5,120 in · 2,560 cached · 412 out",
    ):
        assert words in html, words
    assert "changelog, please" not in html, "a branch that was left"


def test_a_call_and_its_result_are_one_card_with_how_long_it_took(filled: Store) -> None:
    made = cards(filled.get("slug-accents").path())
    calls = [piece for card in made for piece in card.pieces if isinstance(piece, Call)]
    assert [call.name for call in calls] == "bash read_file bash edit_file screenshot".split()
    assert [call.state for call in calls] == ["failed", "done", "done", "done", "done"]
    assert calls[0].seconds == pytest.approx(7.2)
    assert calls[0].output_rest > 0
    assert [line.sort for line in calls[3].diff] == ["head", "added", "same"] or calls[3].diff
    assert len(calls[4].pictures) == 1
    assert not [card for card in made if card.sort == "tool"]


def test_a_call_without_a_result_and_a_result_without_a_call_are_shown(store: Store) -> None:
    thread = store.create()
    thread.append_message(says(text("I look."), call_("c1", "bash", command="ls")))
    thread.append("tool_result", gives("unknown", "lost"))
    states = [p.state for card in cards(thread.path()) for p in card.pieces if isinstance(p, Call)]
    assert states == ["open", "done"]


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({"path": "a", "old_str": "x", "new_str": "y"}, {"removed": "x", "added": "y"}),
        ({"edits": [{"oldText": "x", "newText": "y"}]}, {"removed": "x", "added": "y"}),
        (
            {"input": "*** Begin Patch\n*** Update File: a\n-x\n+y\n"},
            {"removed": "x", "added": "y"},
        ),
        ({"patch": "--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n"}, {"removed": "x", "added": "y"}),
    ],
)
def test_an_edit_is_shown_as_what_it_changes(
    store: Store, arguments: dict[str, object], lines: dict[str, str]
) -> None:
    thread = store.create()
    thread.append_message(says(call_("c", "edit", **arguments)))
    (piece,) = cards(thread.path())[0].pieces
    assert {line.sort: line.text for line in piece.diff if line.sort != "head"} == lines


def test_long_output_is_cut_and_fetched_whole_on_demand(client: Client) -> None:
    html = story(client)
    assert "line 59" not in html
    place = re.search(r'hx-get="(/thread/part[^"]+)"', html)
    assert place is not None
    whole = client.get(place[1].replace("&amp;", "&")).text
    assert "line 59" in whole
    kept = re.search(r'href="(/thread/media[^"]+)" download', html)
    assert kept is not None
    answer = client.get(kept[1].replace("&amp;", "&"))
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "line 59" in answer.text


def test_a_picture_is_shown_inert_and_other_media_is_only_given_to_keep(store: Store) -> None:
    thread = store.create("media")
    for kind in ("image/png", "image/svg+xml", "text/html"):
        source = {"type": "base64", "media_type": kind, "data": "PHN2Zz4="}
        thread.append(
            "user_message",
            {"role": "user", "content": [{"type": "image", "source": source}]},
            format="anthropic",
        )
    client = client_of(store)
    html = client.get("/thread?id=media").text
    assert html.count("<img") == 1
    for entry, inline in zip(thread.path(), (True, False, False), strict=True):
        headers = client.get(
            "/thread/media", params={"id": "media", "entry": entry.id, "place": "0"}
        ).headers
        assert ("content-disposition" not in headers) is inline
        assert headers["content-type"] == ("image/png" if inline else "application/octet-stream")
        assert "sandbox" in headers["content-security-policy"]


def test_an_entry_of_another_branch_opens_that_branch(filled: Store, client: Client) -> None:
    thread = filled.get("slug-accents")
    left = next(
        e
        for e in thread.entries()
        if e.body.get("content") == "Thanks. A line for the changelog, please."
    )
    html = client.get("/thread", params={"id": thread.id, "at": left.id}).text
    assert "another branch" in html
    assert "changelog, please" in html
    assert client.get("/thread", params={"id": thread.id, "at": "missing"}).status_code == 404


def test_a_long_thread_comes_in_runs_that_cover_it_whole(store: Store) -> None:
    thread = fill_long(store, 400)
    client = client_of(store)
    html = client.get("/thread?id=long").text
    runs = re.findall(r'data-to="([^"]+)" data-before="[^"]*" data-n="(\d+)"', html)
    assert sum(int(n) for _, n in runs) == 400
    assert html.count("<article") < 60
    seen = ""
    for last, n in runs:
        seen += client.get("/thread/entries", params={"id": "long", "to": last, "n": n}).text
    for n in range(80):
        assert f"Question {n}:" in seen
    assert "no result" not in seen, "a call was parted from its result"
    assert 'data-entry="e10-3"' in client.get("/thread?id=long&at=e10-3").text
    assert thread.info.seq == 401


def entry(n: int, kind: str) -> Entry:
    parent = f"e{n - 1}" if n else None
    return Entry("t", n, f"e{n}", n, b"%d" % n, parent, kind, b"{}", b"h")


KINDS = st.lists(st.sampled_from(["user_message", "assistant_message", "tool_result", "usage"]))


@given(KINDS, st.integers(0, 100))
def test_runs_cover_a_path_in_order_whatever_it_is_made_of(kinds: list[str], cut: int) -> None:
    path = [entry(n, kind) for n, kind in enumerate(kinds * 9)]
    # Read at once, or a part of it first and then the rest.
    for outline in (outlined(path), outlined(path[cut:], outlined(path[:cut]))):
        place = 0
        for run in outline.runs:
            assert (run.start, run.first) == (place, path[place].id)
            assert run.before == (path[place - 1].id if place else None)
            assert 0 < run.size <= RUN_ENTRIES_MAX
            place += run.size
            assert run.last == path[place - 1].id
        assert place == len(path) == len(outline)


def test_an_outline_follows_a_thread_wherever_it_goes(store: Store) -> None:
    thread = store.create("t")
    outlines = Outlines()
    assert outlines.get(thread).ids == []
    for n in range(90):
        thread.append("custom", {"n": n})
        if n % 7 == 0:
            assert outlines.get(thread).ids == [entry.id for entry in thread.path()]
    early = thread.path()[10].id
    assert len(outlines.get(thread, early)) == 11
    thread.move(early)
    thread.append("custom", {"n": "branch"})
    assert outlines.get(thread).ids == [entry.id for entry in thread.path()]
    store.purge("t")
    thread = store.create("t")
    thread.append("custom", {"n": "another"})
    assert outlines.get(thread).ids == [entry.id for entry in thread.path()]


def test_the_end_of_a_page_grows_by_what_is_new(store: Store) -> None:
    thread = store.create("live")
    first = thread.append_message(user("Hello"))
    client = client_of(store)
    thread.append_message(says(text("Hi"), call_("c", "bash", command="ls")))
    html = client.get("/thread/tail?id=live").text
    assert html.count("<article") == 2
    assert "no result" in html
    thread.append_message(gives("c", "file.txt"))
    html = client.get("/thread/tail", params={"id": "live", "after": first.id}).text
    assert html.count("<article") == 1
    assert "file.txt" in html
    thread.move(None)
    assert client.get("/thread/tail", params={"id": "live", "after": first.id}).status_code in (
        400,
        404,
        409,
    )


def test_a_conversation_is_copied_as_markdown(client: Client, filled: Store) -> None:
    whole = client.get("/thread/markdown?id=slug-accents").text
    assert whole.startswith("# Accents get lost in slugs\n")
    assert "**Tool Call:** `bash`" in whole
    one = filled.get("slug-accents").path()[2].id
    assert client.get(
        "/thread/markdown", params={"id": "slug-accents", "entry": one}
    ).text.startswith("## User")


def test_the_minimap_has_a_lane_for_a_sub_agent(client: Client) -> None:
    html = client.get("/thread/minimap?id=slug-accents").text
    assert 'data-thread="slug-docs"' in html
    assert 'class="user"' in html


def test_a_message_that_was_broken_off_says_so(store: Store) -> None:
    thread = store.create("partial")
    body = {"role": "assistant", "content": "It lists three"}
    thread.append("assistant_message", body, meta={"partial": "the <line> broke"})
    assert "not whole: the &lt;line&gt; broke" in client_of(store).get("/thread?id=partial").text


def test_what_cannot_be_read_is_shown_as_it_is(store: Store) -> None:
    thread = store.create("odd")
    thread.append("user_message", 42)
    thread.append("unknown_kind", {"a": ["b"]})
    thread.append("usage", [1, 2])
    thread.append("turn_marker", None)
    thread.append("compaction", {"summary": 7})
    thread.append("snapshot", {"files": "x"})
    assert client_of(store).get("/thread?id=odd").status_code == 200


def test_a_deleted_or_missing_thread(store: Store) -> None:
    store.create("gone")
    store.delete("gone")
    client = client_of(store)
    assert "deleted" in client.get("/thread?id=gone").text
    assert client.get("/thread?id=never").status_code == 404
    assert client.get("/thread").status_code == 400


def test_what_was_erased_says_so_and_nothing_else(store: Store) -> None:
    thread = store.create("t", title="keys")
    thread.append_message(user("my key is zanzibarkey"), id="a")
    thread.append_message(says(text("It is."), call_("c1", "bash", command="zanzibarkey")), id="b")
    thread.append("tool_result", gives("c1", "zanzibarkey"), id="c")
    client = client_of(store)
    pages = ("/thread", "/tree", "/context", "/context/raw", "/timeline", "/thread/markdown", "/")
    before = client.get("/thread", params={"id": "t"}).text
    assert "zanzibarkey" in before
    thread.erase("a", "b", "c")
    found = client.get("/thread", params={"id": "t"})
    assert found.status_code == 200
    assert found.text.count("erased on ") == 3
    assert "[erased]" in found.text
    for page in pages:
        shown = client.get(page, params={"id": "t"})
        assert (shown.status_code, "zanzibarkey" in shown.text) == (200, False), page
