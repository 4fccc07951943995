"""Scripts in every field that is shown: none of them may arrive as markup.

The pages are read by a parser as a browser reads them: the only scripts are the viewer's own
files, no element has a handler, no link leads to a script, nothing is loaded from elsewhere.
"""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from server.viewer_client import client_of

import clew
from clew.server import render
from clew.store import Store

# Each names what it would do: set a mark on the window, which the tests in a browser look for.
CORPUS = [
    "<script>window.hit=1</script>",
    "</script><script>window.hit=1</script>",
    "<img src=x onerror=window.hit=1>",
    '"><svg onload=window.hit=1>',
    "' onmouseover='window.hit=1' x='",
    '" autofocus onfocus="window.hit=1" x="',
    "[link](javascript:window.hit=1)",
    "[link](JaVaScRiPt&#58;window.hit=1)",
    "[link](data:text/html;base64,PHNjcmlwdD53aW5kb3cuaGl0PTE8L3NjcmlwdD4=)",
    "![x](javascript:window.hit=1)",
    "![x](https://evil.example/pixel.png)",
    '![x](x"onerror=window.hit=1//)',
    "<iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.hit=1>",
    '<noscript><p title="</noscript><img src=x onerror=window.hit=1>">',
    '<a href="javascript:window.hit=1" id="help">x</a>',
    "```html\n</code></pre><script>window.hit=1</script>\n```",
    '```"><script>window.hit=1</script>\nx\n```',
    "<!--><script>window.hit=1</script>-->",
    "<![CDATA[<script>window.hit=1</script>]]>",
    "<style>@import 'https://evil.example/x.css';</style>",
    "<link rel=stylesheet href=https://evil.example/x.css>",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<base href=https://evil.example/>",
    "<form action=https://evil.example><button>x</button></form>",
    "<div hx-get='https://evil.example' hx-trigger='load'>x</div>",
    "<div data-hx-on:load='window.hit=1'>x</div>",
    "{{ 7*7 }}{% print 1 %}${window.hit=1}",
    "\u202e<script>window.hit=1</script>",
    "<scr\0ipt>window.hit=1</scr\0ipt>",
    "javascript:window.hit=1",
    "\x1b]8;;javascript:window.hit=1\x07x\x1b]8;;\x07",
]
HANDLERS = re.compile(r"^(on|hx-on|data-hx-on)", re.I)
LEADS = ("href", "src", "action", "formaction", "xlink:href", "hx-get", "hx-post")
GOOD = re.compile(r"(/$|/[^/\\]|#|\?|https?://|mailto:)")
OWN = re.compile(r"^/static/[a-z.]+$")


class Page(HTMLParser):
    """Collects what is wrong with a page."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "script" and not OWN.match(given.get("src", "")):
            self.wrong.append(f"script {given}")
        if tag in ("iframe", "object", "embed", "base", "style", "math", "frame", "template"):
            self.wrong.append(tag)
        if tag in ("img", "link", "form") and not all(
            given.get(name, "/").startswith("/") for name in ("src", "href", "action")
        ):
            self.wrong.append(f"{tag} {given}")
        if tag == "meta" and "http-equiv" in given:
            self.wrong.append("meta refresh")
        for name, value in given.items():
            if HANDLERS.match(name) or name == "style" or name == "srcdoc":
                self.wrong.append(f"{tag} {name}={value}")
            if name in LEADS and not GOOD.match(value):
                self.wrong.append(f"{tag} {name}={value}")
            if name.startswith("hx-") and value.startswith("http"):
                self.wrong.append(f"{tag} {name}={value}")


OWN_SCRIPT = (Path(clew.__file__).parent / "server" / "static" / "document.js").read_text("utf-8")


def wrong(html: str) -> list[str]:
    page = Page()
    page.feed(html)
    return page.wrong


def fill_hostile(store: Store, folder: Path, text: str, number: int = 0) -> str:
    """A thread with a text in every field that is shown; its id."""
    flat = text.replace("\0", "")
    names = folder / "names"
    names.mkdir(exist_ok=True)
    file = names / (flat.replace("/", "_").replace("\n", " ")[:60].strip() or "x")
    file.write_text(text)
    id = f"{flat[:100]}{number or ''}"
    thread = store.create(
        id,
        title=flat,
        tags=[flat[:100].strip()],
        workspace=flat[:100].strip(),
        facts={"agent": flat, "model": flat, "status": flat[:100].strip(), "other": {flat: flat}},
    )
    first = thread.append(
        "user_message", {"role": "user", "content": flat}, meta={flat: flat, "label": flat}
    )
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": flat, "signature": "s"},
        {"type": "text", "text": flat},
        {
            "type": "tool_use",
            "id": flat[:60] or "c",
            "name": flat,
            "input": {flat: flat, "path": flat, "old_str": flat, "new_str": flat + "x"},
        },
        {
            "type": "tool_use",
            "id": "c2",
            "name": flat,
            "input": {"file_path": flat, "content": flat},
        },
        {"type": flat, "x": flat},
    ]
    thread.append(
        "assistant_message",
        {"role": "assistant", "content": blocks, "model": flat},
        format="anthropic",
    )
    media = base64.b64encode(flat.encode("utf-8", "replace")).decode()
    result = [
        {"type": "text", "text": flat},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/svg+xml", "data": media},
        },
        {"type": "image", "source": {"type": "url", "url": flat}},
    ]
    thread.append(
        "tool_result",
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": flat[:60] or "c",
                    "content": result,
                    "is_error": True,
                }
            ],
        },
        format="anthropic",
    )
    thread.append("usage", {"model": flat, "input_tokens": 1})
    thread.append("run_failure", {"error": flat})
    thread.append("compaction", {"summary": flat})
    thread.append("turn_marker", {"status": "failed", "error": flat, "owner": flat}, turn="t")
    thread.append("branch_summary", {"summary": flat})
    thread.append(flat[:60].replace("\n", " ").strip() or "kind", {flat: flat})
    thread.append("custom", {"a": flat}, blobs=[store.blobs.put(flat.encode("utf-8", "replace"))])
    thread.label(first.id, flat)
    thread.snapshots.take(names, at=first.id, label=flat)
    cut = {"partial": flat, "stream": flat, "unfinished": [{"name": flat, "arguments": flat}]}
    said = {"role": "assistant", "content": flat}
    thread.append("assistant_message", said, meta=cut)
    file.write_text(text + "\n" + text)
    thread.snapshots.take(names, label=flat)
    thread.fork(title=flat)
    store.create(title=flat, parent=id)
    thread.leases.acquire(flat[:100].strip() or "x", ttl_seconds=3600)
    return id


def pages_of(client: httpx.Client, store: Store, id: str) -> list[tuple[str, str]]:
    thread = store.get(id)
    found = [("/", client.get("/").text), ("/health", client.get("/health").text)]
    for route in (
        "/thread",
        "/tree",
        "/context",
        "/compare",
        "/files",
        "/timeline",
        "/thread/minimap",
        "/threads/row",
    ):
        found.append((route, client.get(route, params={"id": id}).text))
    snapshot = thread.snapshots.list()[0]
    found.append(("edit", client.get("/threads/row", params={"id": id, "edit": "title"}).text))
    found.append(("tags", client.get("/threads/row", params={"id": id, "edit": "tags"}).text))
    found.append(("a", client.get("/files", params={"id": id, "a": snapshot.id}).text))
    for path, _ in thread.snapshots.files(snapshot):
        query = {"id": id, "snapshot": snapshot.id, "path": path}
        found.append(("file", client.get("/files/file", params=query).text))
        found.append(("blame", client.get("/files/file", params={**query, "blame": "1"}).text))
    for entry in thread.path():
        found.append(("plan", client.get("/tree/plan", params={"id": id, "entry": entry.id}).text))
    forks = store.list(origin=id).items
    found.append(("compare", client.get("/compare", params={"id": id, "other": forks[0].id}).text))
    found.append(("message", client.get("/context/message", params={"id": id, "index": "0"}).text))
    found.append(("missing", client.get("/thread", params={"id": "missing " + id}).text))
    for by in ("model", "workspace", "agent", "thread"):
        found.append(("usage", client.get("/usage", params={"by": by, "days": ""}).text))
    found.append(("search", client.get("/search", params={"q": id}).text))
    found.append(("hits", client.get("/search/hits", params={"role": "assistant"}).text))
    shared = client.get("/share/file", params={"id": id}).text.partition("<body")[2]
    own = f"<script>{OWN_SCRIPT}</script>"  # it has a hash in the policy of that page
    assert shared.count(own) == 1
    found.append(("shared", shared.replace(own, "")))
    for name in ("q", "tag", "workspace", "status", "agent", "model"):
        found.append((name, client.get("/", params={name: id}).text))
    return found


@pytest.mark.parametrize("text", CORPUS)
def test_no_field_becomes_markup(tmp_path: Path, text: str) -> None:
    with clew.open(tmp_path / "threads.db", durability="relaxed") as store:
        id = fill_hostile(store, tmp_path, text)
        for name, html in pages_of(client_of(store), store, id):
            assert wrong(html) == [], name


def test_the_parser_of_this_test_would_notice() -> None:
    noticed = [text for text in CORPUS if wrong(text)]
    assert len(noticed) > 15


@given(st.text(alphabet=st.sampled_from(list("<>\"'`&[](){}!#*_~|\\/:;= \n\tabjsx")), max_size=200))
def test_markdown_is_markup_of_a_few_harmless_sorts_only(text: str) -> None:
    assert wrong(str(render.markdown(text))) == []


@given(
    st.lists(
        st.sampled_from(
            ["a", "**", "`", "```", "\n", "- ", "1. ", "> ", "# ", "---", "==", "~~", "|", " "]
        ),
        max_size=20,
    ).map("".join)
)
def test_the_quick_way_through_markdown_leads_to_the_same(text: str) -> None:
    whole = render._sanitiser().clean(render._parser().render(render.clean(text)))
    assert str(render.markdown(text)) == whole


@given(st.text())
def test_any_text_is_rendered(text: str) -> None:
    assert wrong(str(render.markdown(text))) == []
    assert wrong(str(render.code(text, language="python"))) == []
    assert wrong(str(render.data({text: text}))) == []


def test_a_picture_of_another_server_is_a_link_and_not_loaded() -> None:
    html = render.markdown("![cat](https://example.com/cat.png)")
    assert "<img" not in html
    assert 'href="https://example.com/cat.png"' in html
    assert "noreferrer" in html
    assert "href" not in render.markdown("[x](/tree/undo) [y](//evil.example)")
