"""Random command lines: a store that they change is like one that the library changed.

Each command runs on one store, and what it is documented to do through the library on another.
Both must have been refused alike, by the exit code that the error stands for, and both stores must
hold the same. What a command prints with --json must be what the library says of that store.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import twin
from amounts import amount
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import clew
from clew.cli import main

THREADS = st.sampled_from(["t", "u", "tv"])
TITLES = st.sampled_from(["", " ", "Fix it", "two  words", "é\n\u202e", "-x"])
TAGS = st.lists(st.sampled_from(["+bug", "-bug", "wip", "-wip", "+é"]), max_size=3)
ENTRIES = st.integers(0, 12)
TEXTS = st.sampled_from(["hello", "two\nlines\n", "é \U0001f600", "a\u0000b", "\ufeffx", " ", ""])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
).filter(lambda value: not isinstance(value, float) or abs(value) != float("inf"))
MESSAGES = st.sampled_from(
    [
        {"role": "assistant", "content": "Since when?"},
        {"role": "user", "content": [{"type": "text", "text": "Monday"}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "1"}]},
        {"role": "nobody", "content": "x"},
        {"content": 5},
    ]
)
KINDS = st.sampled_from(["custom", "usage", "note", "user_message", "two words", ""])
LISTS: list[tuple[list[str], dict[str, Any]]] = [
    ([], {}),
    (["--all"], {"archived": None}),
    (["--deleted"], {"deleted": True}),
    (["--tag=bug"], {"tag": "bug"}),
    (["--roots"], {"roots": True}),
    (["--order=created"], {"order": "created"}),
    (["--parent=t", "--all"], {"parent": "t", "archived": None}),
]
FORMATS = ["anthropic", "openai-chat", "openai-responses", "gemini", "plain"]

# What docs/reference/cli.md says of each exit code, by the errors that it stands for.
CODES: dict[type[clew.ClewError], int] = {
    clew.InvalidInput: 2,
    clew.NotFound: 3,
    clew.AlreadyExists: 4,
    clew.Conflict: 4,
    clew.LeaseHeld: 4,
}


class CommandLines(RuleBasedStateMachine):
    """`ours` is changed by commands, `other` by the library."""

    kind = ""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.address = f"{self.kind}{self.folder}/ours"
        self.ours = clew.open(self.address)
        self.other = clew.open(f"{self.kind}{self.folder}/other")

    def teardown(self) -> None:
        self.ours.close()
        self.other.close()
        shutil.rmtree(self.folder)

    # --- both ways ---

    def command(self, name: str, *words: str, given: str = "") -> tuple[int, list[Any]]:
        """Its exit code, and each line of JSON that it printed."""
        out, err = io.StringIO(), io.StringIO()
        stdin = io.TextIOWrapper(io.BytesIO(given.encode("utf-8", "surrogatepass")))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.stdin", stdin)
            patch.setenv("CLEW_STORE", self.address)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main([name, "--json", *words])
        if code:
            error = json.loads(err.getvalue().splitlines()[-1])
            assert set(error["error"]) == {"code", "kind", "message", "hint", "retryable"}
            assert out.getvalue() == ""
        lines = [json.loads(line) for line in out.getvalue().splitlines()]
        assert all(line.pop("schema_version") == 1 for line in lines)
        return code, lines

    def both(self, act: Callable[[], Any], name: str, *words: str, given: str = "") -> list[Any]:
        """Run the command on one store, do the same on the other: alike, or refused alike."""
        expected = 0
        try:
            act()
        except clew.ClewError as error:
            expected = CODES[type(error)]
        code, lines = self.command(name, *words, given=given)
        assert code == expected, (name, words, code, expected)
        return lines

    def entry(self, thread: str, number: int) -> tuple[str, str]:
        """An entry of a thread, as both stores know it; one that is not there for a high number."""
        found = []
        for store in (self.ours, self.other):
            try:
                entries = list(store.get(thread, deleted=True).entries())
            except clew.NotFound:
                entries = []
            found.append(entries[number].id if number < len(entries) else "no-such-entry")
        return found[0], found[1]

    @invariant()
    def both_hold_the_same(self) -> None:
        assert twin.state(self.ours) == twin.state(self.other)

    # --- changing ---

    @rule(thread=THREADS, title=st.none() | TITLES, tags=TAGS, parent=st.none() | THREADS)
    def new(self, thread: str, title: str | None, tags: list[str], parent: str | None) -> None:
        words = [f"--id={thread}", *(f"--tag={tag}" for tag in tags)]
        words += [] if title is None else [f"--title={title}"]
        words += [] if parent is None else [f"--parent={parent}"]

        def act() -> None:
            above = parent and self.other.resolve(parent).id
            self.other.create(thread, title=title, tags=tags, parent=above)

        self.told_thread(self.both(act, "new", *words))

    @rule(thread=THREADS, text=TEXTS, expect=st.none() | ENTRIES)
    def append_text(self, thread: str, text: str, expect: int | None) -> None:
        words, seen = [thread], {}
        if expect is not None:
            ours, seen["expect"] = self.entry(thread, expect)
            words += ["--expect", ours]

        def act() -> None:
            found = self.other.resolve(thread)
            if not text.strip():
                raise clew.InvalidInput("text", "is empty")
            for entry in seen.values():
                found.get(entry)
            found.append_message({"role": "user", "content": text.removesuffix("\n")}, **seen)

        self.told_entries(self.both(act, "append", *words, given=text))

    @rule(thread=THREADS, message=MESSAGES, format=st.sampled_from(["anthropic", "plain"]))
    def append_message(self, thread: str, message: dict[str, Any], format: str) -> None:
        given = json.dumps(message)

        def act() -> None:
            self.other.resolve(thread).append_message(message, format=format)

        words = ["--json-in", "--format", format]
        self.told_entries(self.both(act, "append", thread, *words, given=given))

    @rule(thread=THREADS, values=st.lists(VALUES, min_size=1, max_size=2), kind=KINDS)
    def append_values(self, thread: str, values: list[Any], kind: str) -> None:
        def act() -> None:
            self.other.resolve(thread).append([clew.draft(kind, value) for value in values])

        words = ["--json-in", f"--kind={kind}"]
        self.told_entries(self.both(act, "append", thread, *words, given=json.dumps(values)))

    @rule(thread=THREADS, id=THREADS, where=st.sampled_from(["", "at", "before"]), number=ENTRIES)
    def fork(self, thread: str, id: str, where: str, number: int) -> None:
        ours, theirs = self.entry(thread, number)
        words = [thread, f"--id={id}", *([f"--{where}", ours] if where else [])]
        place: dict[str, Any] = {where: theirs} if where else {}

        def act() -> None:
            self.other.resolve(thread).fork(id=id, **place)

        self.told_thread(self.both(act, "fork", *words))

    @rule(thread=THREADS, fork=THREADS, force=st.booleans())
    def adopt(self, thread: str, fork: str, force: bool) -> None:
        def act() -> None:
            self.other.resolve(thread).adopt(self.other.resolve(fork), force=force)

        words = [thread, fork, *(["--force"] if force else [])]
        for line in self.both(act, "adopt", *words):
            self.told_entries(line["entries"])

    @rule(thread=THREADS, number=st.none() | ENTRIES)
    def move(self, thread: str, number: int | None) -> None:
        ours, theirs = ("@root", None) if number is None else self.entry(thread, number)

        def act() -> None:
            self.other.resolve(thread).move(theirs)

        self.told_thread(self.both(act, "move", thread, ours))

    @rule(thread=THREADS, title=TITLES)
    def title(self, thread: str, title: str) -> None:
        def act() -> None:
            found = self.other.resolve(thread)
            if title.strip():
                found.set_title(title, source="user")
            else:
                found.set(title=None)

        self.told_thread(self.both(act, "title", thread, "--", title))

    @rule(thread=THREADS, words=TAGS)
    def tag(self, thread: str, words: list[str]) -> None:
        def act() -> None:
            found = self.other.resolve(thread)
            tags = [*found.info.tags, *(word.removeprefix("+") for word in words if word[0] != "-")]
            gone = {word[1:] for word in words if word[0] == "-"}
            after = [tag for tag in dict.fromkeys(tags) if tag not in gone]
            if tuple(after) != found.info.tags:
                found.set(tags=after or None)

        self.told_thread(self.both(act, "tag", thread, *words))

    @rule(thread=THREADS, number=ENTRIES, name=st.sampled_from(["", "here", "3", "@root"]))
    def label(self, thread: str, number: int, name: str) -> None:
        ours, theirs = self.entry(thread, number)

        def act() -> None:
            found = self.other.resolve(thread)
            found.label(found.get(theirs).id, name or None)

        self.both(act, "label", thread, ours, name)

    @rule(thread=THREADS, undo=st.booleans())
    def archive(self, thread: str, undo: bool) -> None:
        def act() -> None:
            self.other.resolve(thread).set(archived=None if undo else True)

        self.told_thread(self.both(act, "archive", thread, *(["--undo"] if undo else [])))

    @rule(thread=THREADS)
    def delete(self, thread: str) -> None:
        def act() -> None:
            self.other.delete(self.other.resolve(thread).id)

        self.told_thread(self.both(act, "delete", thread))

    @rule(thread=THREADS)
    def restore(self, thread: str) -> None:
        def act() -> None:
            self.other.restore(self.other.resolve(thread, deleted=True).id)

        self.told_thread(self.both(act, "restore", thread))

    @rule(thread=THREADS)
    def purge(self, thread: str) -> None:
        def act() -> None:
            self.other.purge(self.other.resolve(thread, deleted=True).id)

        self.both(act, "purge", thread, "--yes")

    @rule(thread=THREADS, number=ENTRIES)
    def erase(self, thread: str, number: int) -> None:
        ours, theirs = self.entry(thread, number)

        def act() -> None:
            self.other.resolve(thread, deleted=True).erase(theirs)

        self.both(act, "erase", thread, ours, "--yes")

    @rule(thread=THREADS, turns=st.none() | st.integers(1, 3))
    def compact(self, thread: str, turns: int | None) -> None:
        def act() -> None:
            found = self.other.resolve(thread)
            found.compact(summary="In short.", keep_turns=turns, trigger="user")

        words = [] if turns is None else [f"--keep-turns={turns}"]
        self.both(act, "compact", thread, *words, given="In short.\n")

    @rule(thread=THREADS)
    def uncompact(self, thread: str) -> None:
        def act() -> None:
            self.other.resolve(thread).uncompact()

        self.both(act, "compact", thread, "--undo")

    @rule(thread=THREADS, begin=st.booleans())
    def lease(self, thread: str, begin: bool) -> None:
        """Another program takes the thread, or gives it back."""
        for store in (self.ours, self.other):
            with contextlib.suppress(clew.ClewError):
                leases = store.get(thread).leases
                held = leases.active()
                if begin and held is None:
                    leases.acquire("another", ttl_seconds=3600)
                elif not begin and held is not None:
                    leases.release(held)

    # --- looking ---

    @rule(filters=st.sampled_from(LISTS))
    def list(self, filters: tuple[list[str], dict[str, Any]]) -> None:
        words, asked = filters

        def look() -> list[str]:
            if "parent" in asked:
                self.ours.resolve(asked["parent"], deleted=True)
            found = self.ours.threads(**{"order": "updated", "archived": False, **asked})
            return [info.id for info in found]

        told = self.looked(look, "list", *words)
        if told is not None:
            assert [line["id"] for line in told[1]] == told[0]

    @rule(thread=THREADS, number=st.none() | ENTRIES)
    def show(self, thread: str, number: int | None) -> None:
        ours = None if number is None else self.entry(thread, number)[0]

        def look() -> list[str]:
            found = self.ours.resolve(thread, deleted=True)
            return [one.id for one in (found.path() if ours is None else found.path(ours))]

        lines = self.looked(look, "show", thread, *([] if ours is None else ["--at", ours]))
        if lines is not None:
            assert [line["id"] for line in lines[1]] == lines[0]
            self.told_entries(lines[1])

    @rule(thread=THREADS, format=st.sampled_from(FORMATS))
    def context(self, thread: str, format: str) -> None:
        def look() -> Any:
            found = self.ours.resolve(thread, deleted=True).context(format)
            return json.loads(json.dumps([found.messages, found.system, found.tools]))

        lines = self.looked(look, "show", thread, "--context", format)
        if lines is not None:
            (told,) = lines[1]
            assert [told["messages"], told["system"], told["tools"]] == lines[0]

    @rule(thread=THREADS, number=st.integers(1, 5))
    def tail(self, thread: str, number: int) -> None:
        def look() -> list[str]:
            found = self.ours.resolve(thread, deleted=True)
            return [one.id for one in list(found.read()) if isinstance(one, clew.Entry)][-number:]

        lines = self.looked(look, "tail", thread, "-n", str(number))
        if lines is not None:
            assert [line["id"] for line in lines[1]] == lines[0]

    @rule(a=THREADS, b=THREADS)
    def diff(self, a: str, b: str) -> None:
        def look() -> list[Any]:
            left, right = (self.ours.resolve(name, deleted=True) for name in (a, b))
            parted = self.ours.compare(left, right)
            common = None if parted.common is None else parted.common.id
            return [common, *([one.id for one in side] for side in (parted.left, parted.right))]

        lines = self.looked(look, "diff", a, b)
        if lines is not None:
            (told,) = lines[1]
            sides = ([one["id"] for one in told[side]] for side in ("left", "right"))
            assert [told["common"] and told["common"]["id"], *sides] == lines[0]

    @rule(word=st.sampled_from(["hello", "Since", "Monday", "nothing", "Fix"]))
    def search(self, word: str) -> None:
        code, lines = self.command("search", word)
        found = self.ours.search(word)
        hits = [(hit.thread, hit.entry) for hit in found.items]
        assert code == 0
        assert [(hit["thread"], hit["entry"]) for hit in lines[0]["hits"]] == hits
        assert lines[0]["total"] == found.total

    @rule()
    def stats(self) -> None:
        code, (told,) = self.command("stats")
        held = self.ours.stats()
        assert code == 0
        assert (told["threads"], told["entries"], told["records"], told["deleted"]) == (
            held.threads,
            held.entries,
            held.records,
            held.deleted,
        )

    @rule()
    def verify(self) -> None:
        code, (told,) = self.command("verify")
        assert (code, told["problems"]) == (0, [])

    def looked(self, look: Callable[[], Any], name: str, *words: str) -> tuple[Any, Any] | None:
        """What the library and the command say; None, if both have refused alike."""
        found, expected = None, 0
        try:
            found = look()
        except clew.ClewError as error:
            expected = CODES[type(error)]
        code, lines = self.command(name, *words)
        assert code == expected, (name, words)
        return None if code else (found, lines)

    # --- what is printed ---

    def told_thread(self, lines: list[Any]) -> None:
        for line in lines:
            info = self.ours.get(line["id"], deleted=True).info
            assert line["title"] == (None if info.title is None else info.title.text)
            assert (line["records"], line["leaf"], line["facts"]) == (
                info.seq,
                info.leaf,
                info.facts,
            )
            assert (line["deleted_at"] is None) == (info.deleted_at is None)

    def told_entries(self, lines: list[Any]) -> None:
        for line in lines:
            entry = self.ours.get(line["thread"], deleted=True).get(line["id"])
            assert (line["seq"], line["hash"], line["body"]) == (entry.seq, entry.hash, entry.body)
            assert (line["parent"], line["kind"]) == (entry.parent, entry.kind)


class OnFiles(CommandLines):
    kind = "files:"


AMOUNT = settings(max_examples=amount(8, 200), stateful_step_count=30)

CommandLines.TestCase.settings = AMOUNT
OnFiles.TestCase.settings = AMOUNT
TestSQLite = CommandLines.TestCase
TestFiles = OnFiles.TestCase
