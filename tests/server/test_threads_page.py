"""The list: what is found, how it goes on, what is done to a thread in place."""

from __future__ import annotations

import re
from typing import Any

import pytest
from httpx import Client
from server.viewer_client import HERE, client_of

from clew.server.threads import PAGE_ROWS
from clew.store import Store


def titles(html: str) -> list[str]:
    return re.findall(r'<a class="title[^>]*>([^<]*)</a>', html)


def change(client: Client, **form: str) -> Any:
    headers = {"origin": HERE, "hx-request": "true"}
    return client.post("/threads/change", data=form, headers=headers)


def test_the_list_has_every_thread_with_its_relatives_below_it(client: Client) -> None:
    html = client.get("/").text
    assert titles(html)[:3] == [
        "Accents get lost in slugs",
        "With a library instead",
        "Look for other places",
    ]
    assert html.count("depth-1") == 2
    assert "Draft of the release notes" not in html, "archived"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"tag": "python", "q": "LIBRARY"}, ["With a library instead"]),
        (
            {"workspace": "~/code/slug", "agent": "cod"},
            ["Accents get lost in slugs", "With a library instead"],
        ),
        ({"show": "archived"}, ["Draft of the release notes"]),
        ({"q": "untitled"}, ["Untitled thread"]),
        ({"q": "no such words"}, []),
        ({"days": "1"}, []),
        ({"model": "sonnet", "q": "accents"}, ["Accents get lost in slugs"]),
        ({"status": "blocked"}, ["Upgrade to Python 3.13"]),
    ],
)
def test_filters_leave_what_they_name(
    client: Client, filled: Store, query: dict[str, str], found: list[str]
) -> None:
    filled.get("other-3").set(status="blocked")
    assert titles(client.get("/threads/rows", params=query).text) == found


def test_a_word_that_is_in_no_title_leads_to_the_search_of_what_was_said(client: Client) -> None:
    """The box looks at titles; a reader who wanted the words must not take it for the answer."""
    found = client.get("/threads/rows", params={"q": "<no> title & that"}).text
    assert 'href="/search?q=%3Cno%3E+title+%26+that"' in found
    assert "/search?q" not in client.get("/threads/rows", params={"tag": "none"}).text


def test_pages_follow_each_other_without_a_gap_or_a_double(store: Store) -> None:
    client = client_of(store)
    ids = [store.create(f"thread-{n:03}").id for n in range(2 * PAGE_ROWS + 7)]
    for query in ("", "q=thread-"):
        seen: list[str] = []
        place = f"/threads/rows?{query}"
        while True:
            html = client.get(place).text
            seen += re.findall(r'data-thread="([^"]+)"', html)
            more = re.search(r'<a href="([^"]+)" hx-get', html)
            if more is None:
                break
            place = more[1].replace("&amp;", "&")
        assert sorted(seen) == ids


def test_a_thread_is_renamed_tagged_archived_deleted_and_restored(store: Store) -> None:
    client = client_of(store)
    thread = store.create("a/b?c#d & <e>", title="Old")
    assert "New name" in change(client, id=thread.id, action="rename", title=" New  name ").text
    assert thread.info.title is not None
    assert thread.info.title.text == "New name"
    change(client, id=thread.id, action="tags", tags="#one, two one")
    assert thread.info.tags == ("one", "two")
    change(client, id=thread.id, action="archive")
    assert thread.info.archived
    change(client, id=thread.id, action="unarchive")
    assert not thread.info.archived
    assert "Restore" in change(client, id=thread.id, action="delete").text
    assert thread.info.deleted_at is not None
    assert titles(client.get("/threads/rows?show=deleted").text) == ["New name"]
    change(client, id=thread.id, action="restore")
    assert thread.info.deleted_at is None
    change(client, id=thread.id, action="rename", title="")
    assert thread.info.title is None
    assert change(client, id=thread.id, action="purge").status_code == 400
    assert change(client, id="missing", action="archive").status_code == 404


def test_two_threads_that_name_each_other_are_both_shown(store: Store) -> None:
    client = client_of(store)
    store.create("one")
    store.create("two", parent="one")
    store.fork("two", id="three", parent="two")
    html = client.get("/").text
    assert len(titles(html)) == 3
    assert "depth-2" in html


def test_a_running_thread_says_so(store: Store) -> None:
    thread = store.create("busy", time=store.now(), updated_at=store.now())
    lease = thread.leases.acquire("an <agent>")
    html = client_of(store).get("/").text
    assert 'title="an &lt;agent&gt;">running' in html
    thread.leases.release(lease)


@pytest.mark.parametrize(
    "query", ["cursor=x", "days=x", "days=999999999", "cursor=99999999999999999999.x"]
)
def test_an_address_that_makes_no_sense_is_the_askers_mistake(client: Client, query: str) -> None:
    assert client.get(f"/threads/rows?{query}").status_code == 400
