"""The page of an export: each entry once, bounded, and whole in what it says is missing."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest
from damage import spoil
from server.test_injection import wrong
from server.viewer_store import png

import clew
from clew.interchange.export import Writing, start
from clew.server import share
from clew.store import Store


def page(thread: clew.Thread) -> tuple[str, Writing]:
    writing, pieces = start(thread, "html")
    return b"".join(pieces).decode(), writing


def test_every_branch_is_there_once_with_a_link_from_where_it_parts(store: Store) -> None:
    thread = store.create("t")
    first = thread.append_message({"role": "user", "content": "first"}, id="a")
    for name in ("left", "middle", "right"):
        thread.move(first.id)
        thread.append_message({"role": "user", "content": f"to the {name}"}, id=name)
    html, _ = page(thread)
    places = [html.index(f'id="e-{id}"') for id in ("a", "right", "left", "middle")]
    assert places == sorted(places)
    assert html.count('<a href="#b-1">') == html.count('id="b-1"') == 1
    assert html.count("<article") == 4


def test_what_is_too_large_is_left_out_and_named(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = base64.b64encode(png()).decode()
    monkeypatch.setattr(share, "PICTURES_CHARACTERS_MAX", len(data) * 3)
    thread = store.create("t")
    source = {"type": "base64", "media_type": "image/png", "data": data}
    images = [{"type": "image", "source": source} for _ in range(50)]
    thread.append_message({"role": "user", "content": images}, format="anthropic")
    use = {"type": "tool_use", "id": "c", "name": "cat", "input": {}}
    thread.append_message({"role": "assistant", "content": [use]}, format="anthropic")
    result = {"type": "tool_result", "tool_use_id": "c", "content": "x" * 1_000_000}
    thread.append_message({"role": "user", "content": [result]}, format="anthropic")
    html, writing = page(thread)
    assert html.count("<img ") == 3
    assert [one.name for one in writing.changes].count("picture") == 47
    assert "800,000 characters are left out" in html
    assert [one.text for one in writing.changes if one.name == "cut"] == [
        "800,000 characters of an output"
    ]


def test_damage_is_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    with clew.open(tmp_path / "a.db") as store:
        thread = store.create("t")
        thread.append_message({"role": "user", "content": "before"})
        bad = thread.append_message({"role": "user", "content": "lost"})
        thread.append_message({"role": "user", "content": "after"})
        spoil(tmp_path / "a.db", bad.id)
        html, writing = page(thread)
    assert "before" in html
    assert "after" in html
    assert "this entry is damaged" in html
    assert [one.entry for one in writing.changes] == [bad.id]


def test_control_characters_and_half_characters_do_no_harm(store: Store) -> None:
    thread = store.create("t", title="a\x1b[31mb")
    thread.append("user_message", {"role": "user", "content": "nul \0 \ud83d \x1b[2J \u202e end"})
    thread.append("custom", {"\0": "\ud83d\x00"})
    html, _ = page(thread)
    assert "\0" not in html
    assert "\x1b" not in html
    assert [one for one in wrong(html) if one not in ("style", "meta refresh", "script {}")] == []


def test_the_policy_has_the_hashes_of_what_is_in_the_page(store: Store) -> None:
    html, _ = page(store.create("t"))
    for tag in ("style", "script"):
        found = re.search(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        assert found is not None
        assert share._hash(found[1]).replace("+", "&#43;") in html.replace("+", "&#43;")
    assert "Nothing has been said yet" in html


def test_the_tree_at_the_side_has_prompts_and_branches_as_a_few_paths(store: Store) -> None:
    thread = store.create("t")
    for n in range(200):
        thread.append_message({"role": "user", "content": f"question {n}"}, id=f"q{n}")
        thread.append_message({"role": "assistant", "content": "answer"}, id=f"a{n}")
    thread.move("a50")
    thread.append_message({"role": "user", "content": "otherwise"}, id="other")
    html, _ = page(thread)
    side = html[html.index('<nav class="side"') : html.index("</nav>")]
    rows = re.findall(r'<li class="([^"]*)"><a href="#e-([^"]*)"', side)
    assert len(rows) == 200 + 3  # where it parts, and both of its ends
    assert [sort for sort, id in rows if id == "other"] == ["user current"]
    assert [sort for sort, id in rows if id == "q199"] == ["user"]
    assert side.count("<path ") <= 6
    assert 'data-origin="0" data-after="e-a50"' in html


def test_drafts_of_streamed_replies_are_no_branches(store: Store) -> None:
    thread = store.create("t")
    first = thread.append_message({"role": "user", "content": "go"})
    for n in range(5):
        meta = {"partial": "streaming", "stream": "s"}
        message = {"role": "assistant", "content": "wor" * n}
        thread.append_message(message, parent=first.id, meta=meta)
    thread.append_message({"role": "assistant", "content": "words"}, parent=first.id)
    html, writing = page(thread)
    assert html.count("<article") == 2
    assert [(one.name, one.text) for one in writing.changes] == [
        ("draft", "5 saved drafts of streamed replies: left out")
    ]
