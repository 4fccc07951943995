"""Commands that change threads: they do what they say, on every store, and nothing else."""

from __future__ import annotations

import argparse
import io
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_support import Result, Run, say

import clew
from clew.cli._stores import command_line
from clew.core.errors import NotFound

Give = Any


@pytest.fixture
def give(monkeypatch: pytest.MonkeyPatch, run: Run) -> Give:
    """Run a command with text or bytes on its standard input."""

    def call(text: str | bytes, *arguments: object) -> Result:
        data = text.encode() if isinstance(text, str) else text
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
        return run(*arguments)

    return call


def test_a_life_from_new_to_purge(run: Run, give: Give, place: Path) -> None:
    made = run(
        "new", place, "--title", "Login", "--tag", "bug", "--agent", "pi", "--workspace", "/w"
    )
    id = made.out.strip()
    assert made.code == 0
    with clew.open(place) as store:
        info = store.get(id).info
        assert info.title is not None
        assert (info.title.text, info.tags, info.workspace) == ("Login", ("bug",), "/w")
        assert info.facts["agent"] == "pi"
    assert give("hello\nthere\n", "append", place, id).code == 0
    assert "there" in run("show", place, id).out
    assert run("title", place, id, "Other").code == 0
    assert run("tag", "--store", place, id, "+x", "-bug", "y").out == "#x #y\n"
    assert run("tag", "--store", place, id).out == "#x #y\n"
    assert run("label", place, id, "5", "start").code == 0
    assert run("archive", place, id).code == 0
    assert run("list", place).out == "no threads\n"
    assert run("archive", place, id, "--undo").code == 0
    deleted = run("delete", place, id)
    assert "clew restore" in deleted.err
    assert run("list", place).out == "no threads\n"
    assert run("title", place, id, "x").code == 3
    assert run("restore", place, id).code == 0
    assert "is not deleted" in run("restore", place, id).out
    assert run("list", place).lines[0].endswith("Other  #x  #y")
    refused = run("purge", place, id)
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert run("purge", place, id, "--dry-run").code == 0
    assert run("purge", place, id, "--yes").code == 0
    assert run("purge", place, id, "--yes").code == 3
    assert run("list", place, "--deleted", "--all").out == "no threads\n"


def test_every_change_can_be_read_by_a_program(run: Run, give: Give, place: Path) -> None:
    id = json.loads(run("new", place, "--id", "t", "--json").out)["id"]
    entry = json.loads(give("hello", "append", place, id, "--json").out)
    assert (entry["kind"], entry["body"]["content"]) == ("user_message", "hello")
    seq = entry["seq"]
    commands = [
        ["title", place, id, "T"],
        ["label", place, id, seq, "L"],
        ["move", place, id, "@root"],
        ["move", place, id, "L"],
        ["fork", place, id, "--id", "f"],
        ["adopt", place, id, "f"],
        ["archive", place, id],
        ["delete", place, id, "--dry-run"],
        ["delete", place, id],
        ["restore", place, id],
        ["gc", place],
        ["gc", place, "--deleted-before", "1d", "--dry-run"],
        ["stats", place],
        ["purge", place, id, "--dry-run"],
        ["purge", place, id, "--yes"],
    ]
    for command in commands:
        done = run(*command, "--json")
        assert done.code == 0, (command, done.err)
        assert json.loads(done.out)["schema_version"] == 1
    tagged = run("tag", "f", "+a", "--store", place, "--json")
    assert json.loads(tagged.out)["facts"]["tags"] == ["a"]


# --- append ---


def test_messages_in_json_keep_their_kinds_and_are_one_step(
    give: Give, store: clew.Store, place: Path
) -> None:
    thread = store.create("t")
    use = {"type": "tool_use", "id": "c", "name": "run", "input": {}}
    lines = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "ok"}]},
    ]
    text = "\n".join(map(json.dumps, lines))
    assert give(text, "append", place, "t", "--json-in", "--format", "anthropic").code == 0
    kinds = ["user_message", "tool_call", "tool_result"]
    assert [entry.kind for entry in thread.path()] == kinds
    assert give(json.dumps(lines), "append", place, "t", "--json-in").code == 0
    assert [entry.kind for entry in thread.path()] == kinds * 2
    assert give('{"a":1}\n[2]\n', "append", place, "t", "--json-in", "--kind", "event").code == 0
    assert [entry.body for entry in thread.path(limit=2)] == [{"a": 1}, [2]]
    before = thread.info
    bad = {
        "not JSON": '{"role":"user","content":"x"}\n{oops\n',
        "no message": '{"role":"user","content":"x"}\n{"a":1}\n',
        "orphan": json.dumps(lines[2]).replace('"c"', '"nobody"'),
        "nothing": "",
        "an empty list": "[]",
        "deep": "[" * 100_000,
    }
    for case, text in bad.items():
        failed = give(text, "append", place, "t", "--json-in", "--format", "anthropic")
        assert failed.code == 2, case
        assert failed.err.count("\n") == 1
        assert thread.info == before, case
    assert give(b"\xff\xfe", "append", place, "t").code == 2
    assert give("x", "append", place, "t", "--json-in", "--role", "user").code == 2
    assert thread.info == before


def test_append_reads_a_file_and_minds_what_is_expected(
    run: Run, give: Give, store: clew.Store, place: Path, tmp_path: Path
) -> None:
    thread = store.create("t")
    first = say(thread, "one")
    file = tmp_path / "said.txt"
    file.write_text("from a file")
    assert run("append", place, "t", "--file", file, "--role", "assistant").code == 0
    assert thread.path()[-1].body == {"role": "assistant", "content": "from a file"}
    assert give("late", "append", place, "t", "--expect", first.id).code == 4
    assert run("append", place, "t", "--file", tmp_path / "missing").code == 2
    assert len(thread.path()) == 2


# --- fork, move, adopt ---


def test_a_fork_begins_where_it_is_told(run: Run, store: clew.Store, place: Path) -> None:
    thread = store.create("t")
    entries = [say(thread, name) for name in ("one", "two", "three")]
    at = run("fork", place, "t", "--at", entries[1].seq, "--title", "Try").out.strip()
    assert store.get(at).leaf == entries[1].id
    before = run("fork", place, "t", "--before", entries[1].id, "--id", "mine").out.strip()
    assert (before, store.get("mine").leaf) == ("mine", entries[0].id)
    assert run("fork", place, "t", "--id", "mine").code == 4
    assert run("fork", place, "t", "--at", "1", "--before", "2").code == 2
    moved = run("move", place, "t", entries[0].seq)
    assert f"clew move {place} t {entries[2].id} goes back" in moved.err
    assert thread.leaf == entries[0].id
    assert run("move", place, "t", "99").code == 3


@pytest.mark.parametrize("named", [True, False])
def test_a_command_that_takes_something_back_can_be_pasted(
    run: Run,
    give: Give,
    store: clew.Store,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    named: bool,
) -> None:
    if not named:
        monkeypatch.setenv("CLEW_STORE", str(place))
    where = [place] if named else []
    thread = store.create("with a space; and more")
    first, *_, last = (say(thread, role, role) for role in ("user", "assistant", "user"))

    def pasted(told: str) -> None:
        line = re.match("(clew .*) (?:goes|brings it|takes it) back", told)
        assert line is not None, told
        assert run(*shlex.split(line[1])[1:]).code == 0

    pasted(run("move", *where, thread.id, first.id).err)
    assert thread.leaf == last.id
    pasted(run("delete", *where, thread.id).err)
    assert store.find(thread.id) is not None
    say(fork := thread.fork(id="a fork"), "four")
    pasted(run("adopt", *where, thread.id, fork.id).err)
    assert thread.leaf == last.id
    pasted(give("They counted.", "compact", *where, thread.id, "--keep-turns", 1).err)
    assert thread.compaction() is None


def test_a_server_that_is_named_again_is_named_without_its_password() -> None:
    options = argparse.Namespace(
        store="postgresql://app:hunter2@db/agents", named_store=True, namespace="a b"
    )
    assert command_line("restore", options, "t") == "clew restore STORE t --namespace 'a b'"


def test_adopting_brings_the_fork_home_or_says_why_not(
    run: Run, store: clew.Store, place: Path
) -> None:
    thread = store.create("t")
    say(thread, "one")
    fork = thread.fork(id="f")
    say(fork, "two")
    assert "adopted 1 entry" in run("adopt", place, "t", "f").out
    assert "nothing to adopt" in run("adopt", place, "t", "f").out
    say(thread, "three")
    say(fork, "four")
    assert run("adopt", place, "t", "f").code == 4
    assert run("adopt", place, "t", "f", "--force").code == 0
    assert [entry.body["content"] for entry in thread.path()] == ["one", "two", "four"]
    assert run("adopt", place, "f", "t").code == 2


# --- compact ---


def long_thread(store: clew.Store) -> clew.Thread:
    thread = store.create("t")
    for n in range(6):
        say(thread, f"question {n}")
        say(thread, f"answer {n}", role="assistant")
    return thread


def test_a_summary_comes_from_a_pipe_a_file_or_a_command(
    run: Run, give: Give, store: clew.Store, place: Path, tmp_path: Path
) -> None:
    thread = long_thread(store)
    assert give("they talked", "compact", place, "t", "--keep-turns", 2).code == 0
    found = thread.compaction()
    assert found is not None
    assert found.summary == "they talked"
    assert run("compact", place, "t", "--undo").code == 0
    assert thread.compaction() is None
    assert "no compaction" in run("compact", place, "t", "--undo").out
    program = "import sys; print(sys.stdin.read().count('question'), 'questions')"
    command = shlex.join([sys.executable, "-c", program])
    assert run("compact", place, "t", "--with", command, "--keep-turns", 2).code == 0
    found = thread.compaction()
    assert found is not None
    assert found.summary == "4 questions"
    run("compact", place, "t", "--undo")
    file = tmp_path / "summary.txt"
    file.write_text("from a file")
    done = run("compact", place, "t", "--summary", file, "--keep-turns", 2, "--json")
    assert json.loads(done.out)["compaction"]["body"]["summary"] == "from a file"


def test_a_summary_that_fails_leaves_nothing(
    run: Run, give: Give, store: clew.Store, place: Path
) -> None:
    thread = long_thread(store)
    before = thread.info
    for command in ("false", "true", "no-such-program-at-all", "unbalanced '"):
        failed = run("compact", place, "t", "--with", command, "--keep-turns", 2)
        assert (failed.code, "nothing was written" in failed.err) == (2, True), command
    assert give("  \n", "compact", place, "t").code == 2
    assert thread.info == before
    assert run("compact", place, "t", "--with", "x", "--undo").code == 2


# --- gc, backup ---


def test_gc_removes_what_was_deleted_and_what_nothing_needs(
    run: Run, store: clew.Store, place: Path
) -> None:
    say(store.create("kept"), "hello")
    say(store.create("gone"), "hello")
    store.delete("gone")
    assert run("gc", place).code == 0
    assert store.get("gone", deleted=True)
    assert run("gc", place, "--deleted-before", "1d", "--yes").code == 0
    assert store.get("gone", deleted=True), "it was deleted just now"
    assert "gone" in run("gc", place, "--deleted-before", "0m", "--dry-run").out
    assert run("gc", place, "--deleted-before", "0m").code == 2, "a pipe is not asked"
    assert run("gc", place, "--deleted-before", "0m", "--yes").code == 0
    with pytest.raises(NotFound):
        store.get("gone", deleted=True)
    assert run("gc", place, "--dry-run").code == 2
    assert store.get("kept")


@pytest.mark.parametrize("kind", ["{}", "files:{}"])
def test_a_backup_is_whole_or_not_there(
    run: Run, store: clew.Store, place: Path, tmp_path: Path, kind: str
) -> None:
    thread = store.create("t", title="Here")
    say(thread, "hello " * 5000)
    thread.fork(id="f")
    store.delete(store.create("gone").id)
    with clew.open(place, namespace="acme") as other:
        say(other.create("o"), "hello")
    folder = tmp_path / "backups"
    folder.mkdir()
    target = kind.format(folder / "copy")
    done = json.loads(run("backup", place, target, "--json").out)
    assert (done["threads"], done["verified"], done["namespaces"]) == (4, True, ["default", "acme"])
    assert [path.name for path in folder.iterdir()] == ["copy"]
    assert run("verify", target).code == 0
    with clew.open(target) as copied:
        assert [entry.hash for entry in copied.get("t").path()] == [e.hash for e in thread.path()]
        assert copied.get("gone", deleted=True)
    again = run("backup", place, target)
    assert (again.code, "0 records new" in again.out) == (0, True)
    assert run("backup", place, "memory:").code == 6
    assert run("backup", place / "no.db", folder / "x").code == 2
    assert run("backup", place, folder / "no" / "copy").code == 5


def test_a_backup_of_a_damaged_store_leaves_nothing(
    run: Run, store: clew.Store, place: Path, tmp_path: Path
) -> None:
    import apsw

    say(store.create("t"), "hello")
    store.close()
    database = apsw.Connection(str(place))
    database.execute("UPDATE records SET body = CAST('[]' AS BLOB) WHERE type = 0")
    database.close()
    target = tmp_path / "copy.db"
    assert run("backup", place, target).code == 1
    assert not [path for path in tmp_path.iterdir() if "copy" in path.name]


def test_a_thread_that_another_process_writes_is_not_changed(
    run: Run, give: Give, store: clew.Store, place: Path
) -> None:
    thread = store.create("t")
    entry = say(thread, "one")
    say(thread, "two")
    thread.leases.acquire(owner="agent", ttl_seconds=60)
    before = thread.info
    for failed in (
        give("x", "append", place, "t"),
        run("move", place, "t", entry.seq),
    ):
        assert (failed.code, "leased by 'agent'" in failed.err) == (4, True)
    assert thread.info == before
    assert run("title", place, "t", "still").code == 0, "facts are free"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('{"a": 1, "a": 2}', "standard input: key 'a' appears twice"),
        ('{"a": 1}\n{"b": 1, "b": 2}\n', "line 2: key 'b' appears twice"),
        ('{"a": 1.00000000000000000001}', "would lose value"),
        ('{"a": 1}\n{"b": \n', "line 2: not JSON"),
    ],
)
def test_json_that_would_not_be_stored_as_it_was_given_is_refused(
    run: Run, give: Give, store: clew.Store, place: Path, given: str, said: str
) -> None:
    store.create("t")
    refused = give(given, "append", place, "t", "--json-in", "--kind", "custom")
    assert refused.code == 2
    assert said in refused.err
    assert "nothing was written" in refused.err
    assert store.get("t").path() == []
