"""Every relative link in README and docs leads to a file, and to a heading that is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from _pages import ROOT, pages

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    """A page without its code blocks and code spans."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"(?<!\[)`[^`\n]*`(?!\])", "", text)


def anchors(page: Path) -> set[str]:
    """The names that headings get when the page is shown."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    found: list[str] = []
    for heading in re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        found.append(f"{name}-{found.count(name)}" if name in found else name)
    return set(found)


def links() -> list[tuple[Path, str]]:
    return [(page, link) for page in pages() for link in LINK.findall(prose(page))]


@pytest.mark.parametrize(
    ("page", "link"), links(), ids=lambda part: str(getattr(part, "name", part))
)
def test_link_leads_somewhere(page: Path, link: str) -> None:
    if re.match(r"[a-z]+:", link):
        assert link.startswith("https://"), "a link out of the project is an https one"
        return
    place, _, anchor = link.partition("#")
    target = (page.parent / place).resolve() if place else page
    assert target.is_relative_to(ROOT)
    assert target.exists(), f"{page.name} links to {link}"
    if target.is_dir():
        assert any(target.iterdir()), f"{link} is empty"
    if anchor:
        assert anchor in anchors(target), f"{page.name} links to {link}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    todo = [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        for link in LINK.findall(prose(page)):
            if not re.match(r"[a-z]+:", link):
                todo.append(
                    (page.parent / link.partition("#")[0]).resolve() if link[0] != "#" else page
                )
    assert set(pages()) - seen == set()
