"""The page that is shared, opened as a file in a real browser, as those see it who get it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser.conftest import until
from browser.test_pages import AXE
from server.test_injection import CORPUS, fill_hostile
from server.viewer_store import fill, fill_long

import clew
from clew.interchange.export import export


@pytest.fixture
def opened(browser: Any) -> Iterator[Any]:
    """Open a file; everything that a page does beside showing itself is noted."""
    contexts = []

    def open(path: Path, **options: Any) -> tuple[Any, list[str]]:
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        noted: list[str] = []
        page.add_init_script(
            "addEventListener('securitypolicyviolation',"
            " (event) => { window.hit = 'policy: ' + event.violatedDirective; });"
        )
        page.on("request", lambda one: noted.append(one.url) if one.url[:5] != "file:" else None)
        page.on("dialog", lambda dialog: noted.append("dialog"))
        page.on("pageerror", lambda error: noted.append(str(error)))
        page.goto(path.as_uri())
        return page, noted

    yield open
    for context in contexts:
        context.close()


@pytest.mark.parametrize("policy", [True, False], ids=["policy", "no policy"])
def test_nothing_of_the_content_runs(opened: Any, tmp_path: Path, policy: bool) -> None:
    with clew.open(tmp_path / "threads.db", durability="relaxed") as store:
        for n, text in enumerate(CORPUS):
            folder = tmp_path / str(n)
            folder.mkdir()
            id = fill_hostile(store, folder, text, n)
            done = export(store.get(id), tmp_path / f"{n}.html", "html")
            if not policy:
                html = done.path.read_text()
                cut = re.sub(r"<meta http-equiv=[^>]*>", "", html, count=1)
                assert cut != html
                done.path.write_text(cut)
            page, noted = opened(done.path)
            page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
            page.mouse.move(300, 300)
            assert page.evaluate("window.hit") is None, text
            assert [one for one in noted if not one.startswith("data:image/")] == [], text


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("story")
    with clew.open(folder / "threads.db", durability="relaxed") as store:
        thread = fill(store, folder)
        thread.append_message({"role": "user", "content": "the key is AKIA" + "Z7Q2XJ5LKDN3PQRS"})
        return export(thread, folder / "story.html", "html").path


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_keeps_nobody_out(opened: Any, shots: Path, story: Path, theme: str) -> None:
    for width in (390, 820, 1280):
        page, noted = opened(
            story, color_scheme=theme, viewport={"width": width, "height": 900}, bypass_csp=True
        )
        page.screenshot(path=shots / f"document-{width}-{theme}.png")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, "the page is wider than the screen"
        if AXE.exists():
            page.evaluate(AXE.read_text("utf-8"))
            found = page.evaluate("axe.run().then((found) => found.violations)")
            assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found] == []
        assert noted == []


def test_the_page_is_searched_unfolded_and_switched(opened: Any, story: Path) -> None:
    page, noted = opened(story)
    page.keyboard.press("/")
    page.keyboard.type("E   line 59")
    until(page, "document.getElementById('hits').textContent === '1 of 1'")
    assert page.locator(".card.found .call[open]").count() == 1
    page.locator("#unfold").click()
    assert page.evaluate("[...document.querySelectorAll('main details')].every((one) => one.open)")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.locator(".way a").first.click()
    assert page.evaluate("location.hash").startswith("#b-")
    assert noted == []
    assert page.evaluate("window.hit") is None


def test_the_page_is_read_without_scripts(opened: Any, story: Path) -> None:
    page, _ = opened(story, java_script_enabled=False)
    text = page.locator("body").text_content()
    assert "Accents get lost in slugs" in text
    assert "Links to posts with accents" in text
    assert "A line for the changelog, please" in text, "another branch"
    assert not page.locator("#search").is_visible()
    page.locator(".side li a").nth(1).click()
    assert page.locator(".card:target").is_visible()


def test_paper_has_everything_and_no_frame(opened: Any, story: Path) -> None:
    page, _ = opened(story)
    page.emulate_media(media="print")
    assert not page.locator(".top").is_visible()
    assert not page.locator(".side").is_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".output").first.is_visible()


def test_a_page_of_thousands_of_entries_is_not_blank(opened: Any, tmp_path: Path) -> None:
    with clew.open(tmp_path / "threads.db", durability="relaxed") as store:
        path = export(fill_long(store, 2_000), tmp_path / "long.html", "html").path
    page, noted = opened(path)
    assert "Question 0" in page.locator(".card").first.inner_text()
    page.evaluate("location.hash = '#e-e399-0'")
    until(page, "document.querySelector('.card:target').getBoundingClientRect().top < innerHeight")
    assert "Question 399" in page.locator(".card:target").inner_text()
    assert noted == []


@pytest.fixture(scope="module")
def branching(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Branches of branches, and another root; ids are any text."""
    folder = tmp_path_factory.mktemp("branching")
    with clew.open(folder / "threads.db", durability="relaxed") as store:
        thread = store.create("t", title="Branches")

        def say(id: str, after: str | None) -> None:
            thread.move(after)
            thread.append_message({"role": "user", "content": f"said at {id}"}, id=id)

        for id, after in (
            *(("root", None), ("100%", "root"), ("old", "100%"), ("older", "old")),
            *(("inner", "100%"), ("inmost", "inner"), ("beside", "inner"), ("other", None)),
            *(("new", "root"), ("newest", "new")),
        ):
            say(id, after)
        return export(thread, folder / "branching.html", "html").path


def visible(page: Any) -> list[str]:
    seen = "[...document.querySelectorAll('.card')].filter((card) => card.offsetParent)"
    found: list[str] = page.evaluate(f"{seen}.map((card) => card.dataset.entry)")
    return found


def test_the_path_to_each_leaf_is_read_by_itself(opened: Any, branching: Path) -> None:
    page, noted = opened(branching)
    assert visible(page) == ["root", "new", "newest"]
    names = page.locator("#path option").all_inner_texts()
    assert [name.split(":")[0] for name in names] == [
        *("Current path", "Branch 1", "Branch 2", "Branch 3", "Branch 4", "All branches")
    ]
    paths = []
    for number in range(5):
        page.select_option("#path", str(number))
        paths.append(visible(page))
    assert paths == [
        ["root", "new", "newest"],
        ["root", "100%", "old", "older"],
        ["root", "100%", "inner", "inmost"],
        ["root", "100%", "inner", "beside"],
        ["other"],
    ]
    page.select_option("#path", "all")
    assert len(visible(page)) == 10
    assert noted == []


def test_a_row_of_the_tree_and_a_hit_lead_to_their_path(opened: Any, branching: Path) -> None:
    page, noted = opened(branching)
    rows = page.locator(".side li")
    assert rows.count() == 10
    rows.filter(has_text="said at beside").locator("a").click()
    until(page, "document.getElementById('path').value === '3'")
    assert visible(page) == ["root", "100%", "inner", "beside"]
    assert page.locator(".side li.away").count() == 6
    page.keyboard.press("/")
    page.keyboard.type("said at older")
    until(page, "document.getElementById('hits').textContent === '1 of 1'")
    assert visible(page)[-1] == "older"
    page.locator(".way a", has_text="Branch 2").click()
    until(page, "document.getElementById('path').value === '2'")
    page.locator(".branch:not(.off) a", has_text="Back to the current path").last.click()
    until(page, "document.getElementById('path').value === '0'")
    assert noted == []


def test_without_scripts_all_branches_are_there(opened: Any, branching: Path) -> None:
    page, _ = opened(branching, java_script_enabled=False)
    for id in ("newest", "older", "inmost", "beside", "other"):
        assert page.get_by_text(f"said at {id}").last.is_visible()
    assert not page.locator("#path").is_visible()
