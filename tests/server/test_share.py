"""What is given to others: all of one thread, nothing else, and not for ever."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from httpx import Client
from server.test_injection import CORPUS, wrong
from server.viewer_client import HERE, client_of

from clew.store import Store


def link(client: Client, **form: str) -> str:
    answer = client.post("/share", data={"id": "slug-accents", **form}, headers={"origin": HERE})
    assert answer.status_code == 200
    found = re.search(r'value="(/shared[^"]+)"', answer.text)
    assert found is not None
    return found[1].replace("&amp;", "&")


def test_a_file_has_everything_inside_of_it(client: Client) -> None:
    answer = client.get("/share/file?id=slug-accents")
    html = answer.text
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "line 59" in html, "what the viewer cuts is whole here"
    assert "data:image/png;base64," in html
    assert html.count("<script") == 1, "our own, by its hash"
    assert not re.search(r'(?:src|href|action|hx-get)="(?:/|http)', html), "it leads nowhere"
    assert "Why is the build slow" not in html, "another thread"


def test_a_link_shows_one_thread_without_the_token_until_it_ends(filled: Store) -> None:
    client = client_of(filled)
    place = link(client, hours="2")
    stranger = client_of(filled, signed_in=False)
    stranger._transport = client._transport  # the same server
    assert "Accents get lost" in stranger.get(place).text
    assert "sandbox allow-scripts" in stranger.get(place).headers["content-security-policy"]
    for other in (
        "/thread?id=slug-accents",
        "/",
        "/static/clew.css",
        "/share/file?id=slug-accents",
    ):
        assert stranger.get(other).status_code == 403
    assert stranger.get("/shared?key=guess").status_code == 403
    assert stranger.post(place).status_code == 403
    assert stranger.get(place, headers={"host": "evil.example"}).status_code == 403
    clock = filled.clock
    filled.clock = lambda: clock() + int(timedelta(hours=2).total_seconds() * 1e6)
    assert stranger.get(place).status_code == 403
    assert "has ended" in stranger.get(place).text


@pytest.mark.parametrize("hours", ["0", "x", "-1", "99999999"])
def test_a_link_that_never_ends_is_not_made(client: Client, hours: str) -> None:
    form = {"id": "slug-accents", "hours": hours}
    assert client.post("/share", data=form, headers={"origin": HERE}).status_code == 400


def test_hostile_content_stays_text_in_the_file(store: Store) -> None:
    thread = store.create("hostile", title="".join(CORPUS).replace("\0", ""))
    for text in CORPUS:
        thread.append("user_message", {"role": "user", "content": text.replace("\0", "")})
    html = client_of(store).get("/share/file?id=hostile").text
    found = [one for one in wrong(html) if one not in ("style", "meta refresh", "script {}")]
    assert found == []
    assert html.count("<script>") == 1
    assert html.count("<style") == 1


@pytest.mark.parametrize("number", ["0", "x", "100000", "000001" + 20 * "9", 5000 * "1"])
def test_a_number_that_is_none_of_days_or_hours_is_refused(client: Client, number: str) -> None:
    for page in ("/", "/search?q=hello"):
        answer = client.get(page, params={"q": "hello", "days": number})
        assert answer.status_code == 400, page
    form = {"id": "slug-accents", "hours": number}
    assert client.post("/share", data=form, headers={"origin": HERE}).status_code == 400
