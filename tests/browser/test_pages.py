"""Each page in a real browser: it looks as it should, nobody is kept out, keys work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser.conftest import until
from server.viewer_client import serving

import clew
from clew.store import Store

AXE = Path(__file__).parents[2] / ".venv/npm/node_modules/axe-core/axe.min.js"
PAGES = {
    "threads": "/",
    "conversation": "/thread?id=slug-accents",
    "tree": "/tree?id=slug-accents",
    "context": "/context?id=slug-accents",
    "compare": "/compare?id=slug-accents&other=slug-library",
    "files": "/files?id=slug-accents",
    "timeline": "/timeline?id=slug-accents",
    "search": "/search?q=accents",
    "usage": "/usage?by=model&days=",
    "health": "/health",
    "blame": "/files/file?id=slug-accents&path=slug.py&blame=1&snapshot=",
    "missing": "/thread?id=missing",
}


def settled(page: Any) -> Any:
    page.wait_for_load_state("load")
    page.evaluate("document.fonts.ready")
    return page


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_page_keeps_nobody_out(
    new_tab: Any, address: str, filled: Store, shots: Path, name: str, theme: str
) -> None:
    """Pictures at three widths, and axe-core's rules at the narrowest and the widest."""
    tab = new_tab(address, color_scheme=theme)
    newest = filled.get("slug-accents").snapshots.list()[0].id if name == "blame" else ""
    for width in (390, 820, 1280):
        tab.page.set_viewport_size({"width": width, "height": 900})
        page = settled(tab.open(PAGES[name] + newest))
        page.screenshot(path=shots / f"{name}-{width}-{theme}.png")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, "the page is wider than the screen"
        broken = page.evaluate(
            "[...document.querySelectorAll('.brand, .top nav a')]"
            ".filter((one) => one.getBoundingClientRect().height > 40).length"
        )
        assert broken == 0, "a word of the frame is broken"
        assert page.evaluate("document.querySelector('.top').offsetHeight") < 100
        if AXE.exists() and width != 820:
            page.evaluate(AXE.read_text("utf-8"))
            found = page.evaluate("axe.run().then((found) => found.violations)")
            assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found] == []
    if name == "missing":
        tab.complaints.clear()  # the browser complains of the 404 that was asked for


def test_what_is_short_is_not_cut_and_nothing_lies_over_another(
    new_tab: Any, tmp_path: Path
) -> None:
    """The name of a tool, the time of a reply that only calls, and the words of a table."""
    table = "| what | how |\n|---|---|\n| Package | " + "a long sentence " * 20 + "|"
    with clew.open(tmp_path / "threads.db") as store:
        thread = store.create("t")
        for n in range(2):
            part = {"type": "tool_use", "id": f"c{n}", "name": "Bash", "input": {"a": "x" * 400}}
            thread.append_message({"role": "assistant", "content": [part]}, format="anthropic")
        thread.append_message({"role": "assistant", "content": table})
        with serving(store) as address:
            tab = new_tab(address, viewport={"width": 500, "height": 900})
            page = settled(tab.open("/thread?id=t"))
            names = page.locator(".tool-name").all()
            assert [one.evaluate("(e) => e.scrollWidth > e.clientWidth") for one in names] == [
                False,
                False,
            ]
            for card in page.locator(".card:has(.call)").all():
                stamp, call = card.locator(".stamp").bounding_box(), card.locator(".call")
                assert stamp["y"] + stamp["height"] <= call.bounding_box()["y"]
            lines = """(cell) => {
                const range = document.createRange();
                range.selectNodeContents(cell);
                return range.getClientRects().length;
            }"""
            assert page.locator(".said td").first.evaluate(lines) == 1


def test_the_theme_is_switched_and_remembered(tab: Any) -> None:
    page = tab.open("/")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    after = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert before != after
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == after


def test_a_thread_is_found_opened_and_left_with_keys_alone(tab: Any) -> None:
    page = tab.open("/")
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("accents get")
    until(page, "document.querySelectorAll('.row').length === 1")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/thread?id=slug-accents")
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert "test_slugify" in page.evaluate("document.activeElement.textContent")
    page.keyboard.press("2")
    page.wait_for_url("**/tree?id=slug-accents")
    page.keyboard.press("g")
    page.wait_for_url(tab.address + "/")


def test_long_output_is_fetched_when_it_is_asked_for(tab: Any) -> None:
    page = settled(tab.open("/thread?id=slug-accents"))
    output = page.locator(".call").first
    assert "line 59" not in output.inner_text()
    output.locator(".fetch").click()
    until(page, "document.querySelector('.call').innerText.includes('line 59')")


def test_a_row_is_renamed_tagged_and_archived_in_place(tab: Any, filled: Store) -> None:
    page = settled(tab.open("/?q=payment"))
    row = page.locator(".row")
    row.locator("summary").click()
    row.get_by_role("button", name="Rename").click()
    page.locator(".edit input[name=title]").fill("A payment test that <b>fails</b> at times")
    page.keyboard.press("Enter")
    page.get_by_text("A payment test that <b>fails</b> at times").wait_for()
    title = filled.get("other-4").info.title
    assert title is not None
    assert title.text == "A payment test that <b>fails</b> at times"
    row.locator("summary").click()
    row.get_by_role("button", name="Archive").click()
    # It is marked in its place, and leaves this list with the next news.
    until(page, "document.querySelector('.row:not(.archived)') === null")
    assert filled.get("other-4").info.archived


def test_a_form_is_sent_in_place_however_soon_it_is_sent(tab: Any, filled: Store) -> None:
    """A form that htmx does not know yet would lead away from the list."""
    page = settled(tab.open("/?q=slow"))
    page.evaluate(
        "document.addEventListener('htmx:afterSwap', () => setTimeout("
        "() => document.querySelector('form.edit')?.requestSubmit()), { once: true })"
    )
    page.locator(".row summary").click()
    page.locator(".row").get_by_role("button", name="Tags").click()
    until(page, "document.querySelector('form.edit') === null")
    assert page.url == tab.address + "/?q=slow"


def test_news_that_come_while_a_menu_is_open_do_not_close_it(tab: Any, filled: Store) -> None:
    """The list is fetched before the menu is opened, and arrives after."""
    page = settled(tab.open("/?q=retry"))
    held: list[Any] = []

    def hold_the_first(route: Any) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route("**/threads/rows?*", hold_the_first)
    filled.get("other-2").set(status="waiting")
    while not held:
        page.wait_for_timeout(50)
    row = page.locator(".row")
    row.locator("summary").click()
    with page.expect_response("**/threads/rows?*"):
        held[0].continue_()
    row.get_by_role("button", name="Tags").click()
    page.locator(".edit input[name=tags]").fill("patient")
    page.keyboard.press("Enter")
    row.get_by_text("#patient").wait_for()
    row.get_by_text("waiting").wait_for()  # the news were only put off


def test_a_page_is_printed_without_its_frame(tab: Any) -> None:
    page = settled(tab.open("/thread?id=slug-accents"))
    page.emulate_media(media="print")
    assert not page.locator(".top").is_visible()
    assert page.locator(".card").first.is_visible()


def test_rows_get_tokens_and_cost_after_the_list_is_shown(tab: Any, filled: Store) -> None:
    page = settled(tab.open("/?q=accents"))
    page.locator("#t-slug-accents .used").get_by_text("$").wait_for()
    until(page, "document.querySelector('#t-slug-accents .used').title.includes(' in, ')")
    body = {"model": "claude-sonnet-4-5", "input_tokens": 4_000_000, "output_tokens": 10}
    before = page.evaluate("document.querySelector('#t-slug-accents .used').innerText")
    thread = filled.get("slug-accents")
    leaf = thread.leaf
    thread.append("usage", body, format="anthropic")
    until(page, f"document.querySelector('#t-slug-accents .used').innerText !== '{before}'")
    thread.move(leaf)


def test_blame_leads_to_the_entry_that_brought_a_line(tab: Any, filled: Store) -> None:
    after = filled.get("slug-accents").snapshots.list()[0]
    page = settled(tab.open(f"/files?id=slug-accents&a={after.id}"))
    page.locator(".files-list").get_by_text("slug.py").click()
    page.get_by_text("Who wrote each line").click()
    page.locator(".blame tr", has_text="NFKD").locator("a.by").click()
    page.locator(".card.found", has_text="edit_file").wait_for()


def test_files_and_contexts_unfold_what_they_name(tab: Any, filled: Store) -> None:
    after = filled.get("slug-accents").snapshots.list()[0]
    page = settled(tab.open(f"/files?id=slug-accents&a={after.id}"))
    page.locator(".change summary").first.click()
    page.locator(".change .added").first.wait_for()
    page = settled(tab.open("/context?id=slug-accents"))
    page.locator(".segments summary").nth(1).click()
    page.locator(".segments .code").first.wait_for()
    page.locator("select[name=format]").select_option("gemini")
    page.wait_for_url("**format=gemini**")


def test_the_head_of_a_difference_stands_on_one_line(tab: Any, filled: Store) -> None:
    after = filled.get("slug-accents").snapshots.list()[0]
    page = settled(tab.open(f"/files?id=slug-accents&a={after.id}"))
    page.locator(".change summary").first.click()
    head = page.locator(".change .diff tr", has_text="@@").first
    head.wait_for()
    line = page.locator(".change .diff tr.added").first
    assert head.bounding_box()["height"] < 2 * line.bounding_box()["height"]


def test_on_a_phone_a_day_is_not_broken_and_tabs_do_not_scroll_up(
    new_tab: Any, address: str
) -> None:
    tab = new_tab(address, viewport={"width": 390, "height": 844})
    page = settled(tab.open("/usage?by=day&days="))
    assert page.locator("tbody tr").first.bounding_box()["height"] < 40
    page = settled(tab.open("/tree?id=slug-accents"))
    scrolls = "(one) => one.scrollHeight > one.clientHeight && getComputedStyle(one).overflowY"
    assert page.locator(".tabs").evaluate(scrolls) in (False, "hidden")


def test_text_from_right_to_left_begins_at_the_right(new_tab: Any, tmp_path: Path) -> None:
    """By its own first letter, and so for each paragraph; code stays as it is."""
    with clew.open(tmp_path / "threads.db", durability="relaxed") as store:
        thread = store.create("t", title="שלום, world!")
        text = "שלום, world!\n\nHello, עולם!\n\n- שלום\n\n```\nשלום = 1\n```"
        thread.append_message({"role": "user", "content": text})
        with serving(store) as address:
            page = settled(new_tab(address).open("/thread?id=t"))
            gap = """(one) => {
                const text = document.createRange(), box = one.getBoundingClientRect()
                text.selectNodeContents(one)
                return box.right - text.getBoundingClientRect().right < 2
            }"""
            begins = page.locator("h1, .said p, .said li, .said pre").evaluate_all(
                f"(all) => all.map((one) => [one.tagName, ({gap})(one)])"
            )
            page.goto(f"{address}/")
            listed = page.locator(".row .title").evaluate(gap)
    assert begins == [["H1", True], ["P", True], ["P", False], ["LI", True], ["PRE", False]]
    assert listed


def test_the_store_is_proved_whole_with_a_bar_that_ends(tab: Any) -> None:
    page = settled(tab.open("/health"))
    page.get_by_role("button", name="Verify everything").click()
    page.get_by_text("All is whole").wait_for()
