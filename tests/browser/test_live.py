"""Pages that stay open: new entries, long threads, many threads, a server that comes and goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser.conftest import until
from event_streams import a_start, a_text, a_thinking
from server.viewer_client import serving
from server.viewer_store import BEGAN, call, fill_story, gives, says, text, user

import clew
from clew.store import Store


def at_end(page: Any) -> bool:
    found: bool = page.evaluate(
        "innerHeight + scrollY >= document.documentElement.scrollHeight - 150"
    )
    return found


def ready(page: Any) -> Any:
    page.wait_for_selector("html[data-ready]", state="attached")
    return page


def test_two_tabs_follow_a_thread_while_it_is_written(
    new_tab: Any, address: str, filled: Store
) -> None:
    thread = filled.create("live", title="Live")
    thread.append_message(user("Begin"))
    pages = [ready(new_tab(address).open("/thread?id=live")) for _ in range(2)]
    for page in pages:
        page.locator("#live").wait_for()
    thread.append_message(says(text("I look."), call("c1", "bash", command="ls")))
    for page in pages:
        page.get_by_text("no result").wait_for()
    thread.append_message(gives("c1", "README.md"))
    for page in pages:
        page.locator(".call.done").wait_for()
        assert page.locator(".card").count() == 2
    thread.append_message({"role": "assistant", "content": "There is a README."})
    for page in pages:
        page.get_by_text("There is a README.").wait_for()


def test_a_streamed_reply_grows_in_its_place_and_becomes_the_whole(tab: Any, filled: Store) -> None:
    thread = filled.create("streamed", title="Streamed")
    thread.append_message(user("Tell me a story."))
    page = ready(tab.open("/thread?id=streamed"))
    page.locator("#live").get_by_text("live", exact=True).wait_for()
    events = [
        a_start(),
        *a_thinking(0, "A story about a ball of thread."),
        *a_text(1, "Once upon a time there was a labyrinth."),
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}},
        {"type": "message_stop"},
    ]
    said = next(n for n, one in enumerate(events) if "text_delta" in str(one)) + 2
    with thread.streaming("anthropic", save_seconds=0) as reply:
        for event in events[:said]:
            reply.feed(event)
        page.get_by_text("Once upon").wait_for()
        page.locator(".card.assistant .chip.running").wait_for()
        page.locator(".card.assistant .thinking summary").click()
        page.locator(".card.assistant").focus()
        for event in events[said:-2]:
            reply.feed(event)
        page.get_by_text("there was a labyrinth.").wait_for()
        assert page.locator(".card").count() == 2, "one card, however often it was saved"
        assert page.get_by_text("ball of thread").is_visible(), "what was unfolded stays so"
        for event in events[-2:]:
            reply.feed(event)
    until(page, "document.querySelectorAll('.card.assistant .chip.running').length === 0")
    assert page.locator(".card.assistant").count() == 1
    assert page.locator(f"#e-{reply.id}").get_by_text("there was a labyrinth.").is_visible()
    until(page, "document.activeElement.matches('.card.assistant')")


def test_the_list_shows_a_new_thread_and_a_running_one(tab: Any, filled: Store) -> None:
    page = tab.open("/")
    page.locator("#live").wait_for()
    thread = filled.create("brand-new", title="Brand new")
    page.get_by_text("Brand new").wait_for()
    with thread.turn(owner="agent-1") as turn:
        turn.append_message(user("Hello"))
        page.locator("#t-brand-new .running").wait_for()


def test_ten_thousand_entries_open_at_the_end_and_scroll_to_the_beginning(tab: Any) -> None:
    page = ready(tab.open("/thread?id=long"))
    page.get_by_text("It is x1999.").wait_for()
    assert at_end(page)
    assert page.locator(".card").count() < 200
    page.keyboard.press("Home")
    page.get_by_text("Question 0:").wait_for()
    for _ in range(40):
        page.mouse.wheel(0, 4000)
        page.wait_for_timeout(30)
    until(page, "document.querySelectorAll('.card').length > 150")
    assert page.locator(".card").count() < 1500, "what is far away leaves the page"


@pytest.mark.parametrize("entry", ["e0-0", "e777-1", "e1999-3"])
def test_a_deep_link_opens_at_its_entry(tab: Any, entry: str) -> None:
    page = ready(tab.open(f"/thread?id=long&at={entry}"))
    card = page.locator(f"#e-{entry}")
    card.wait_for()
    page.wait_for_timeout(300)  # what is loaded around it must not push it away
    box = card.bounding_box()
    assert box is not None
    assert -20 <= box["y"] <= 880


def test_the_minimap_leads_to_the_middle(tab: Any) -> None:
    page = ready(tab.open("/thread?id=long"))
    page.locator("#minimap svg").wait_for()
    box = page.locator("#minimap").bounding_box()
    page.mouse.click(box["x"] + 5, box["y"] + box["height"] / 2)
    until(
        page,
        "[...document.querySelectorAll('.card.user')].some((one) => {"
        " const box = one.getBoundingClientRect();"
        " const n = Number((one.textContent.match(/Question (\\d+)/) || [])[1]);"
        " return box.top > 0 && box.top < innerHeight && n > 950 && n < 1050; })",
    )


def test_the_tree_forks_and_rewinds_with_the_plan_first_and_undo_after(
    new_tab: Any, tmp_path: Path
) -> None:
    with clew.open(tmp_path / "threads.db", durability="relaxed") as store:
        thread = fill_story(store, tmp_path)
        first = next(entry for entry in thread.path() if entry.kind == "user_message")
        fixed = (tmp_path / "project" / "slug.py").read_text()
        with serving(store) as address:
            tab = new_tab(address)
            page = tab.open("/tree?id=slug-accents")
            node = page.locator(f"[data-entry='{first.id}']")
            node.locator("summary").click()
            node.get_by_text("Rewind to before this").click()
            page.locator("#plan").get_by_text("slug.py").wait_for()
            page.locator("#plan").get_by_role("button", name="Rewind").click()
            page.locator("#done").wait_for()
            assert (tmp_path / "project" / "slug.py").read_text() != fixed
            page.locator("#done").get_by_role("button", name="Undo").click()
            page.get_by_text("The rewind was taken back.").wait_for()
            assert (tmp_path / "project" / "slug.py").read_text() == fixed
            node = page.locator(f"[data-entry='{first.id}']")
            node.locator("summary").click()
            node.get_by_role("button", name="Fork here").click()
            page.wait_for_url("**/thread?id=*")
            assert "forked from" in page.content()


def test_a_page_survives_a_restart_and_misses_nothing(new_tab: Any, tmp_path: Path) -> None:
    with clew.open(tmp_path / "threads.db", durability="relaxed") as store:
        thread = store.create("t", title="Restart", time=BEGAN)
        thread.append_message(user("One"))
        with serving(store) as address:
            tab = new_tab(address)
            page = ready(tab.open("/thread?id=t"))
            page.locator("#live").get_by_text("live", exact=True).wait_for()
        port = int(address.rpartition(":")[2])
        page.get_by_text("not connected").wait_for()
        thread.append_message({"role": "assistant", "content": "Said while nobody served"})
        with serving(store, port=port):
            page.get_by_text("Said while nobody served").wait_for()
        # One with another token is another server: the page says what to do.
        with serving(store, port=port, token="another"):
            page.get_by_text("open the link that it printed").wait_for()
        tab.complaints.clear()  # the browser complains of what was refused, as it should be


def test_a_hundred_thousand_threads_page_smoothly(new_tab: Any) -> None:
    with clew.open("memory:") as store:
        for n in range(100_000):
            store.create(f"t{n:06}")
        with serving(store) as address:
            tab = new_tab(address)
            page = tab.open("/?order=created")
            for _ in range(6):
                before = page.locator(".row").count()
                page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
                until(page, f"document.querySelectorAll('.row').length > {before}")
            page.locator("#q").fill("t000007")
            page.get_by_text("More threads").or_(page.locator("#t-t000007")).first.wait_for()
