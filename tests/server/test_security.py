"""Who gets in: what a page of another site, another name or a guess must not reach."""

from __future__ import annotations

import pytest
from httpx import Client
from server.viewer_client import HERE, PORT, TOKEN, client_of

import clew
from clew.core.errors import InvalidInput
from clew.core.wrapper import read_only
from clew.server.app import CHANGING, LOOKING, STARTING
from clew.server.listen import bind
from clew.store import Store

OTHERS = ["/events", "/static/clew.css", "/nowhere"]
EVERY_ROUTE = [("GET", place) for place in [*LOOKING, *OTHERS]]
EVERY_ROUTE += [("POST", place) for place in CHANGING | STARTING]


@pytest.mark.parametrize(("method", "route"), EVERY_ROUTE)
def test_no_route_answers_without_the_token(filled: Store, method: str, route: str) -> None:
    stranger = client_of(filled, signed_in=False)
    for cookie in (None, "", "wrong", TOKEN + "x"):
        if cookie is not None:
            stranger.cookies.set(f"clew-{PORT}", cookie)
        answer = stranger.request(method, route, headers={"origin": HERE})
        assert answer.status_code == 403
        assert "link that clew printed" in answer.text


def test_the_token_of_the_link_becomes_a_strict_cookie_and_leaves_the_address(
    filled: Store,
) -> None:
    stranger = client_of(filled, signed_in=False)
    answer = stranger.get(f"/thread?id=slug-accents&token={TOKEN}&at=x")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/thread?id=slug-accents&at=x"
    cookie = answer.headers["set-cookie"].lower()
    assert "samesite=strict" in cookie
    assert "httponly" in cookie
    assert stranger.get("/").status_code == 200


@pytest.mark.parametrize("route", ["//evil.example/", "/\\evil.example/", "///evil.example"])
def test_the_welcome_leads_to_no_other_server(filled: Store, route: str) -> None:
    answer = client_of(filled, signed_in=False).get(f"{HERE}{route}?token={TOKEN}")
    assert answer.headers.get("location", "/").startswith("/")
    assert not answer.headers.get("location", "/").startswith(("//", "/\\"))


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        f"evil.example:{PORT}",
        "127.0.0.1",
        "127.0.0.1:1",
        f"127.0.0.1.evil.example:{PORT}",
        "",
    ],
)
def test_a_name_that_was_made_to_point_here_is_refused(client: Client, host: str) -> None:
    answer = client.get("/", headers={"host": host})
    assert answer.status_code == 403
    assert "not one of this viewer's own" in answer.text


@pytest.mark.parametrize("host", [f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"[::1]:{PORT}"])
def test_every_name_of_this_machine_is_taken(client: Client, host: str) -> None:
    assert client.get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": f"https://127.0.0.1:{PORT}"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "null"},
        {"origin": ""},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": ""},
    ],
)
def test_a_post_of_another_site_changes_nothing(
    filled: Store, client: Client, headers: dict[str, str]
) -> None:
    form = {"id": "slug-accents", "action": "delete"}
    answer = client.post("/threads/change", data=form, headers=headers)
    assert answer.status_code == 403
    assert "another site" in answer.text
    assert filled.get("slug-accents").info.deleted_at is None


def test_another_site_can_read_nothing(client: Client) -> None:
    for headers in ({"sec-fetch-site": "same-site"}, {"origin": "http://localhost:1"}):
        answer = client.get("/", headers=headers)
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers


def test_a_cookie_of_another_server_does_not_hide_ours(filled: Store) -> None:
    client = client_of(filled, signed_in=False)
    ours = f"clew-{PORT}={TOKEN}"
    for cookie in (f'a"=[; {ours}', f"clew-1=x; {ours}; ={{", f"{ours};;"):
        assert client.get("/", headers={"cookie": cookie}).status_code == 200
    for cookie in ("=", "clew-8000", f"x{ours}", f"clew-{PORT}=é"):
        answer = client.get("/", headers={"cookie": cookie.encode()})
        assert answer.status_code == 403


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_are_refused(client: Client, method: str) -> None:
    assert client.request(method, "/").status_code == 403


@pytest.mark.parametrize("route", list(CHANGING))
def test_looking_never_changes(client: Client, route: str) -> None:
    assert client.get(route, params={"id": "slug-accents"}).status_code in (404, 405)


@pytest.mark.parametrize("route", list(CHANGING))
def test_a_viewer_for_looking_changes_nothing(filled: Store, route: str) -> None:
    looking = client_of(Store(read_only(filled.engine)))
    before = filled.get("slug-accents").info.seq
    form = {"id": "slug-accents", "action": "archive", "entry": "x"}
    answer = looking.post(route, data=form, headers={"origin": HERE})
    assert answer.status_code == 403
    assert "read-only" in answer.text
    assert filled.get("slug-accents").info.seq == before
    assert "<form hx-post" not in looking.get("/").text


def test_every_page_forbids_scripts_that_are_not_its_own(client: Client) -> None:
    nonces = set()
    for place in ("/", "/thread?id=slug-accents", "/nowhere", "/thread?id=missing"):
        headers = client.get(place).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        nonces.add(policy)
    assert len(nonces) == 4, "a nonce is used once"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "example.com", ""])
def test_an_address_that_others_can_reach_is_not_listened_on(host: str) -> None:
    with pytest.raises(InvalidInput, match="host"):
        bind(host)


def test_a_file_outside_of_the_static_ones_is_not_served(client: Client) -> None:
    for name in (
        "../app.py",
        "..%2Fapp.py",
        "htmx.LICENSE",
        ".css",
        "nothing.js",
        "%2e%2e%2fapp.py",
    ):
        assert client.get(f"/static/{name}").status_code == 404


def test_a_form_that_is_too_large_is_refused(client: Client) -> None:
    form = {"id": "slug-accents", "action": "rename", "title": "x" * 300_000}
    answer = client.post("/threads/change", data=form, headers={"origin": HERE})
    assert answer.status_code == 413


def test_stored_bytes_are_never_shown_as_a_page(
    tmp_path: object, client: Client, filled: Store
) -> None:
    hash = filled.blobs.put(b"<script>alert(1)</script>")
    answer = client.get("/blob", params={"hash": hash})
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert client.get("/blob", params={"hash": "b3:" + "0" * 64}).status_code == 404
    assert isinstance(filled, clew.Store)
