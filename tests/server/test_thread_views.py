"""Tree, context, compare, files, timeline and health: what they show, and what they change."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from httpx import Client
from server.viewer_client import HERE, client_of
from server.viewer_store import FIXED, call, fill_long, fill_story, gives, says, text, user

import clew
from clew.core.errors import NotFound
from clew.server.timeline import stretches
from clew.server.tree import ROWS_MAX, draw
from clew.store import Store

VIEWS = ["/thread", "/tree", "/context", "/compare", "/files", "/timeline"]


def post(client: Client, route: str, **form: str) -> Any:
    return client.post(route, data=form, headers={"origin": HERE})


@pytest.mark.parametrize("route", VIEWS)
def test_every_view_of_a_thread_opens_on_every_engine(store: Store, route: str) -> None:
    client = client_of(store)
    thread = store.create("a/b #c?d")
    assert client.get(route, params={"id": thread.id}).status_code == 200
    thread.append_message(user("Hello"))
    thread.append_message(says(text("Hi"), call("c", "bash", command="ls")))
    thread.fork(id="fork").append_message(gives("c", "out"))
    for id in (thread.id, "fork"):
        answer = client.get(route, params={"id": id})
        assert answer.status_code == 200, answer.text
        assert "did not work" not in answer.text


# --- tree ---


def test_a_branch_that_was_left_is_drawn_beside_the_current_path(filled: Store) -> None:
    thread = filled.get("slug-accents")
    nodes, edges = draw(thread, thread.info, list(thread.entries()), True)
    assert len(nodes) == len(list(thread.entries()))
    assert len(edges) == len(nodes) - 1
    beside = [node for node in nodes if node.lane == 1]
    assert beside[0].text == "Thanks. A line for the changelog, please."
    assert not any(node.is_current for node in beside)
    assert ("the fix", "") in [mark for node in nodes for mark in node.marks]
    assert any(text.startswith("fork: With a library") for n in nodes for text, _ in n.marks)


def test_a_long_thread_is_drawn_with_its_runs_collapsed(store: Store) -> None:
    thread = fill_long(store, 1000)
    thread.label("e100-3", "here")
    thread.append_message(user("a branch"), parent="e50-3")
    thread.move("e199-4")
    nodes, _ = draw(thread, thread.info, list(thread.entries()), False)
    assert sum(max(1, node.hidden) for node in nodes) == 1001
    assert len(nodes) < 16
    assert "e100-3" in {node.entry.id for node in nodes if not node.hidden}
    html = client_of(store).get("/tree?id=long").text
    assert "Show every entry" in html
    assert len(client_of(store).get("/tree?id=long&all=1").text) > 2 * len(html)
    assert ROWS_MAX > 1001


def test_what_is_no_message_is_told_in_words_not_in_braces(store: Store) -> None:
    thread = store.create()
    thread.append("custom", {"type": "last-prompt", "prompt": "Say it again", "id": "a1"})
    thread.append("custom", {"parent": None, "attachment": {"type": "hook", "ok": True}})
    thread.append_message(says({"type": "thinking", "thinking": "Hm.", "signature": "x"}))
    thread.append("event", [1, None])
    nodes, _ = draw(thread, thread.info, list(thread.entries()), True)
    told = [node.text for node in nodes]
    assert told == ["last-prompt · Say it again", "hook", "(Hm.)", "[1,null]"]


def test_the_tree_offers_to_undo_only_what_can_be_undone(store: Store) -> None:
    client, thread = client_of(store), store.create("t")
    asked = thread.append_message(user("Hello"))
    assert "/tree/undo" not in client.get("/tree", params={"id": "t"}).text
    thread.rewind(asked.id, files=False)
    assert "/tree/undo" in client.get("/tree", params={"id": "t"}).text
    thread.undo_rewind()
    page = client.get("/tree", params={"id": "t"}).text
    assert "/tree/redo" in page
    assert "/tree/undo" not in page


def test_the_tree_goes_there_and_forks_there(filled: Store, client: Client) -> None:
    thread = filled.get("slug-accents")
    leaf, entry = thread.leaf, thread.path()[4].id
    stale = post(client, "/tree/move", id=thread.id, entry=entry, leaf=thread.path()[3].id)
    assert stale.status_code == 409, "an agent has gone on since the page was drawn"
    assert thread.leaf == leaf
    answer = post(client, "/tree/move", id=thread.id, entry=entry, leaf=str(leaf))
    assert answer.status_code == 303
    assert thread.leaf == entry
    made = post(client, "/tree/fork", id=thread.id, entry=entry)
    fork = filled.get(re.sub(r".*id=", "", made.headers["location"]))
    assert fork.leaf == entry
    assert post(client, "/tree/fork", id=thread.id, entry="missing").status_code == 404


def test_a_rewind_shows_its_plan_first_and_is_undone(tmp_path: Path) -> None:
    with clew.open(tmp_path / "threads.db", durability="relaxed") as store:
        thread = fill_story(store, tmp_path)
        client = client_of(store)
        first = next(entry for entry in thread.path() if entry.kind == "user_message")
        leaf, file = thread.leaf, tmp_path / "project" / "slug.py"
        plan = client.get("/tree/plan", params={"id": thread.id, "entry": first.id}).text
        assert "overwrite" in plan
        assert "slug.py" in plan
        assert (thread.leaf, file.read_text()) == (leaf, FIXED), "looking changes nothing"
        form = {"id": thread.id, "entry": first.id, "with_files": "1"}
        assert "done=rewound" in post(client, "/tree/rewind", **form).headers["location"]
        assert file.read_text() != FIXED
        assert first.id not in [entry.id for entry in thread.path()]
        assert "Undo" in client.get("/tree", params={"id": thread.id, "done": "rewound"}).text
        assert post(client, "/tree/undo", id=thread.id).status_code == 303
        assert file.read_text() == FIXED
        assert post(client, "/tree/redo", id=thread.id).status_code == 303
        assert post(client, "/tree/redo", id=thread.id).status_code == 400


def test_changes_that_no_snapshot_has_are_named_before_they_go(tmp_path: Path) -> None:
    with clew.open(tmp_path / "threads.db", durability="relaxed") as store:
        thread = fill_story(store, tmp_path)
        client = client_of(store)
        first = next(entry for entry in thread.path() if entry.kind == "user_message")
        file = tmp_path / "project" / "slug.py"
        file.write_text("mine\n")
        plan = client.get("/tree/plan", params={"id": thread.id, "entry": first.id}).text
        assert "overwrite them all the same" in plan
        form = {"id": thread.id, "entry": first.id, "with_files": "1"}
        assert post(client, "/tree/rewind", **form).status_code == 409
        assert file.read_text() == "mine\n"
        assert post(client, "/tree/rewind", **form, force="1").status_code == 303


def test_a_rewind_without_snapshots_is_about_the_conversation(store: Store) -> None:
    thread = store.create("plain")
    entry = thread.append_message(user("One"))
    client = client_of(store)
    assert "No files go with it" in client.get(f"/tree/plan?id=plain&entry={entry.id}").text
    assert post(client, "/tree/rewind", id="plain", entry=entry.id).status_code == 303
    assert thread.leaf is None


# --- context and compare ---


@pytest.mark.parametrize("format", ["", "openai-chat", "openai-responses", "gemini", "plain"])
def test_the_context_is_that_of_the_library(filled: Store, client: Client, format: str) -> None:
    thread = filled.get("slug-accents")
    wanted = thread.context(format or None)
    told = client.get("/context/raw", params={"id": thread.id, "format": format}).json()
    assert told["messages"] == wanted.messages
    html = client.get("/context", params={"id": thread.id, "format": format}).text
    assert f"in {len(wanted.messages)} messages" in html
    for repair in wanted.report.repairs:
        assert repair.code in html
    one = client.get("/context/message", params={"id": thread.id, "format": format, "index": "0"})
    assert one.status_code == 200
    far = client.get("/context/message", params={"id": thread.id, "format": format, "index": "99"})
    assert far.status_code == 404


def test_a_context_of_another_place_a_budget_and_a_compaction(store: Store) -> None:
    thread = store.create("t")
    for n in range(6):
        thread.append_message({"role": "user", "content": f"Question {n}"})
        thread.append_message({"role": "assistant", "content": f"Answer {n}"})
    client = client_of(store)
    whole = client.get("/context/raw?id=t").json()["messages"]
    assert len(client.get("/context/raw?id=t&budget=60").json()["messages"]) < len(whole)
    early = thread.path()[3].id
    assert len(client.get(f"/context/raw?id=t&leaf={early}").json()["messages"]) < len(whole)
    thread.compact(summary="They talked.", keep_turns=1)
    html = client.get("/context?id=t").text
    found = thread.compaction()
    assert found is not None
    assert f"stands for {len(found.stands_for)} entries before it" in html
    assert "stands for" not in client.get("/context?id=t&compacted=0").text
    assert client.get("/context?id=t&format=unknown").status_code == 400
    for budget in ("x", "10000000099", "1" * 5000):
        assert client.get(f"/context?id=t&budget={budget}").status_code == 400


def test_a_message_without_text_says_in_the_context_what_it_is(store: Store) -> None:
    thread = store.create("t")
    for part in ({"type": "thinking", "thinking": "", "signature": "x"}, text("Well.")):
        message = {"id": "m", "role": "assistant", "content": [part]}
        body = {"type": "assistant", "message": message}
        thread.append("assistant_message", body, format="claude-code")
    assert "(thinking)" in client_of(store).get("/context?id=t").text


def test_a_call_and_its_result_of_one_moment_took_no_time_that_is_known(store: Store) -> None:
    thread = store.create("t")
    parts = [
        {"type": "tool_use", "id": "c", "name": "ls", "input": {}},
        {"type": "tool_result", "tool_use_id": "c", "content": "a"},
    ]
    at = store.now()
    for n, part in enumerate(parts):
        message = {"role": ("assistant", "user")[n], "content": [part]}
        time = at + timedelta(microseconds=n)
        thread.append_message(message, format="anthropic", time=time)
    html = client_of(store).get("/thread?id=t").text
    assert "done" in html
    assert "0.0 ms" not in html


def test_two_threads_and_two_branches_are_compared(filled: Store, client: Client) -> None:
    html = client.get("/compare?id=slug-accents&other=slug-library").text
    assert "Shared up to" in html
    assert "Would a library" in html
    assert "no programmers" in html
    left, right = filled.get("slug-accents").leaves()
    html = client.get("/compare", params={"id": "slug-accents", "left": left, "right": right}).text
    assert "changelog, please" in html
    assert "nothing in common" in client.get("/compare?id=slug-accents&other=other-1").text
    assert client.get("/compare?id=slug-accents&other=missing").status_code == 404


# --- files, timeline, health ---


def test_files_are_shown_as_they_were_with_who_changed_them(filled: Store, client: Client) -> None:
    thread = filled.get("slug-accents")
    after, before = thread.snapshots.list()
    html = client.get("/files", params={"id": thread.id, "a": after.id}).text
    assert "modified" in html
    assert "README.md" in html
    query = {"id": thread.id, "a": before.id, "b": after.id, "path": "slug.py"}
    assert 'class="added"' in client.get("/files/diff", params=query).text
    query = {"id": thread.id, "snapshot": before.id, "path": "slug.py"}
    shown = client.get("/files/file", params=query).text
    assert "slugify" in shown
    assert "edit_file slug.py" in shown, "the entry that made the second version"
    kept = client.get("/files/file", params={**query, "keep": "1"})
    assert kept.headers["content-disposition"].startswith("attachment")
    assert b"NFKD" not in kept.content
    for path in ("../../etc/passwd", "/etc/passwd", "missing.py"):
        answer = client.get("/files/file", params={**query, "path": path})
        assert answer.status_code in (400, 404)
    with pytest.raises(NotFound):
        thread.snapshots.read(before, "missing.py")


def test_blame_leads_from_each_line_to_the_entry_that_brought_it(
    filled: Store, client: Client, tmp_path: Path
) -> None:
    thread = filled.get("slug-accents")
    after = thread.snapshots.list()[0]
    query = {"id": thread.id, "snapshot": after.id, "path": "slug.py"}
    assert "blame=1" in client.get("/files/file", params=query).text
    html = client.get("/files/file", params={**query, "blame": "1"}).text
    rows = re.findall(r"<tr.*?</tr>", html, re.DOTALL)
    assert len(rows) == FIXED.count("\n")
    assert ["there before" in rows[0], "edit_file slug.py" in rows[2]] == [True, True]
    brought = thread.snapshots.blame("slug.py", after)[2].version
    assert brought is not None
    assert f"at={brought.entry}" in rows[2]
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    (hostile / "a.py").write_text('"""\n<script>\r</script>\n"""\n\n\f\n\n')
    (hostile / "b.bin").write_bytes(b"\0")
    taken = thread.snapshots.take(hostile)
    query = {"id": thread.id, "snapshot": taken.id, "blame": "1"}
    html = client.get("/files/file", params={**query, "path": "a.py"}).text
    assert len(re.findall(r"<tr", html)) == 6
    assert "<script></script>" not in html
    assert "binary" in client.get("/files/file", params={**query, "path": "b.bin"}).text


def test_a_turn_is_as_long_as_what_was_done_for_it(filled: Store, client: Client) -> None:
    first, second = stretches(filled.get("slug-accents").path())
    assert (first.calls, second.calls) == (5, 0)
    assert first.tools == pytest.approx(9.6, abs=2)
    assert first.seconds > first.tools
    assert second.waited > 30
    assert first.output_tokens == 508
    assert "at work" in client.get("/timeline?id=slug-accents").text


def test_a_turn_counts_each_reply_once_however_many_records_tell_of_it(store: Store) -> None:
    thread = store.create()
    used = {"input_tokens": 5, "cache_read_input_tokens": 90, "output_tokens": 7}
    thread.append_message(user("Hello"))
    for content in (text("I look."), call("c", "bash", command="ls")):
        reply = {"id": "msg_1", "type": "message", "usage": used, **says(content)}
        thread.append_message(reply, format="anthropic")
    (turn,) = stretches(thread.path())
    assert (turn.input_tokens, turn.output_tokens) == (95, 7)


def test_verify_runs_and_says_that_all_is_whole(filled: Store) -> None:
    client = client_of(filled)
    assert "Verify everything" in client.get("/health").text
    assert post(client, "/health/verify").status_code == 200
    while "<progress" in (html := client.get("/health/progress").text):
        pass
    assert "All is whole" in html


def test_health_names_who_writes(store: Store) -> None:
    thread = store.create("busy")
    thread.append_message(user("x"))
    lease = thread.leases.acquire("worker-7")
    assert "worker-7" in client_of(store).get("/health").text
    thread.leases.release(lease)
    assert "worker-7" not in client_of(store).get("/health").text
