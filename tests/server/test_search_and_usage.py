"""Search as you type, and what it cost."""

from __future__ import annotations

import re

import pytest
from httpx import Client
from server.test_injection import CORPUS, wrong
from server.viewer_client import client_of
from server.viewer_store import user

from clew.server.search import pieces_of
from clew.store import Store


def test_a_hit_leads_to_its_entry(filled: Store, client: Client) -> None:
    html = client.get("/search/hits", params={"q": "brûlée", "role": "user"}).text
    place = re.search(r'class="title" href="([^"]+)"', html)
    assert place is not None
    page = client.get(place[1].replace("&amp;", "&")).text
    assert "Crème" in page
    assert "<mark>" in html
    assert "Type what you remember" in client.get("/search").text


def test_more_hits_follow_without_a_double(store: Store) -> None:
    thread = store.create("many")
    for n in range(70):
        thread.append_message(user(f"needle number {n}"))
    client = client_of(store)
    seen: list[str] = []
    place = "/search/hits?q=needle"
    while True:
        html = client.get(place).text
        seen += re.findall(r"at=([^\"&]+)\"", html)
        more = re.search(r'<a href="(/search/hits[^"]+)" hx-get', html)
        if more is None:
            break
        place = more[1].replace("&amp;", "&")
    assert len(seen) == len(set(seen)) == 70


@pytest.mark.parametrize("query", ['"', "(", "OR", "-", "*", "a OR OR b", "NEAR(", "\x00", "%"])
def test_there_is_no_wrong_query(client: Client, query: str) -> None:
    for exact in ("", "1"):
        answer = client.get("/search/hits", params={"q": query, "exact": exact})
        assert answer.status_code in (200, 400)
    assert client.get("/search/hits?q=a&days=x").status_code == 400


def test_snippets_and_names_stay_text(store: Store) -> None:
    for n, text in enumerate(CORPUS):
        plain = text.replace("\0", "")
        thread = store.create(f"t{n}", title=plain)
        thread.append_message(user("needle " + plain))
        body = {"model": plain, "input_tokens": 5, "output_tokens": 1}
        thread.append("usage", body, format="anthropic")
    client = client_of(store)
    assert wrong(client.get("/search?q=needle").text) == []
    for by in ("model", "thread", "workspace", "agent", "day"):
        assert wrong(client.get(f"/usage?by={by}&days=").text) == []


def test_pieces_are_the_snippet() -> None:
    assert pieces_of("a needle here", [(2, 8)]) == [
        ("a ", False),
        ("needle", True),
        (" here", False),
    ]
    assert pieces_of("needle", [(0, 6)]) == [("needle", True)]


def test_usage_is_that_of_the_library(filled: Store, client: Client) -> None:
    html = client.get("/usage?by=model&days=").text
    total = filled.usage(by="model").total
    assert f"{total.tokens.sent:,}" in html
    assert "claude-sonnet-4-5" in html
    assert client.get("/usage?by=nothing").status_code == 400
    for days in ("x", "0", "000001" + "9" * 5000):
        assert client.get(f"/usage?days={days}").status_code == 400
    assert "No model has answered" in client.get("/usage?by=day&days=1").text
