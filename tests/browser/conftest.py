"""A real browser, and a viewer that it looks at."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from server.viewer_client import TOKEN, serving
from server.viewer_store import fill, fill_long

import clew
from clew.store import Store

SHOTS = Path(__file__).parent / "shots"
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage"
).split()


def until(page: Any, expression: str) -> None:
    """Wait until something is true in a page; the policy forbids Playwright's own way to do it."""
    for _ in range(300):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"never true: {expression}")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("there is no chromium here; try: sudo apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=program, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="session", autouse=True)
def shots() -> Path:
    SHOTS.mkdir(exist_ok=True)
    return SHOTS


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("store")
    with clew.open(folder / "threads.db", durability="relaxed") as store:
        fill(store, folder)
        fill_long(store)
        yield store


@pytest.fixture(scope="module")
def address(filled: Store) -> Iterator[str]:
    with serving(filled) as found:
        yield found


class Tab:
    """A page of the browser that fails the test if a script fails or the policy is broken."""

    def __init__(self, context: Any, address: str) -> None:
        self.context = context
        self.address = address
        self.page = context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(f"{address}/?token={TOKEN}")

    def _heard(self, message: Any) -> None:
        # htmx calls it an error when a request makes way for the next one, as they do while typing.
        if message.type == "error" and not message.text.startswith(("htmx:after", "htmx:sendAb")):
            self.complaints.append(message.text)

    def open(self, place: str) -> Any:
        self.page.goto(self.address + place)
        return self.page


@pytest.fixture
def new_tab(browser: Any) -> Iterator[Any]:
    contexts: list[Any] = []
    tabs: list[Tab] = []

    def make(address: str, **options: Any) -> Tab:
        options.setdefault("viewport", {"width": 1280, "height": 900})
        contexts.append(browser.new_context(**options))
        contexts[-1].set_default_timeout(30_000)
        tabs.append(Tab(contexts[-1], address))
        return tabs[-1]

    yield make
    complaints = [text for tab in tabs for text in tab.complaints]
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def tab(new_tab: Any, address: str) -> Tab:
    made: Tab = new_tab(address)
    return made
