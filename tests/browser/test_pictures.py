"""The pictures of the documentation, made anew: copy those that changed to docs/pictures."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from server.viewer_client import serving
from server.viewer_store import BEGAN, fill

import clew
from clew.interchange.export import export

# A name that may stand in a picture.
FOLDER = Path("/tmp/clew-pictures")
PICTURES = {
    "threads": "/",
    "conversation": "/thread?id=slug-accents",
    "tree": "/tree?id=slug-accents",
    "context": "/context?id=slug-accents",
    "compare": "/compare?id=slug-accents&other=slug-library",
    "files": "/files?id=slug-accents",
    "timeline": "/timeline?id=slug-accents",
    "health": "/health",
}
# What is counted behind the page, and belongs into its picture.
COMES_LATER = {"threads": ".used b", "health": "#growth svg"}


@pytest.fixture(scope="module")
def pictured() -> Iterator[str]:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    with clew.open(FOLDER / "threads.db", durability="relaxed") as store:
        fill(store, FOLDER)
        with serving(store) as address:
            yield address
    shutil.rmtree(FOLDER)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_of_each_view(new_tab: Any, pictured: str, shots: Path, name: str) -> None:
    theme = "dark" if name in ("context", "conversation") else "light"
    tab = new_tab(pictured, color_scheme=theme, viewport={"width": 1100, "height": 700})
    page = tab.open(PICTURES[name])
    page.wait_for_load_state("load")
    if name in COMES_LATER:
        page.locator(COMES_LATER[name]).first.wait_for()
    picture = shots / f"docs-{name}.png"
    page.screenshot(path=picture)
    assert picture.stat().st_size < 150 * 1024, "too heavy for the documentation"


def test_a_picture_of_the_page_that_is_shared(browser: Any, shots: Path) -> None:
    folder = FOLDER.with_name("clew-shared")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with clew.open(folder / "threads.db", durability="relaxed") as store:
        thread = fill(store, folder)
        said = {"role": "user", "content": "the key is AKIA" + "Z7Q2XJ5LKDN3PQRS"}
        thread.append_message(said, time=BEGAN + timedelta(minutes=10))
        done = export(thread, folder / "page.html", "html")
    page = browser.new_page(viewport={"width": 1280, "height": 500})
    page.goto(done.path.as_uri())
    picture = shots / "docs-share.png"
    page.screenshot(path=picture)
    assert picture.stat().st_size < 150 * 1024, "too heavy for the documentation"
    page.close()
    shutil.rmtree(folder)
