"""Random requests to the viewer: a store that it changes is like one that the library changed.

Each form is sent for one store, and what it stands for is done through the library on another. Both
must have been refused alike, and both stores must hold the same. Every page of every thread opens,
and the contexts that it gives are those of the library.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import twin
from amounts import amount
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from server.viewer_client import HERE, client_of

import clew

THREADS = st.sampled_from(["t", "a/b #c?d"])
NUMBERS = st.integers(0, 8)
TITLES = st.sampled_from(["", "  ", "Fix it", "two  words\n", "<b>é\u202e"])
TAGS = st.sampled_from(["", "bug", "#bug, wip bug", "é <i>"])
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "<script>alert(1)</script> **Hello**"},
    {"role": "assistant", "content": [{"type": "text", "text": "Since when?"}]},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "1"}]},
]
BODIES = st.sampled_from([None, 5, "text", [], {}, {"type": "x"}, {"role": "user"}, {"content": 5}])
KINDS = ["custom", "tool_call", "tool_result", "usage", "compaction", "snapshot", "turn_marker"]
PAGES = ["/thread", "/tree", "/context", "/compare", "/files", "/timeline", "/thread/minimap"]
LISTS = ["/", "/threads/rows", "/?show=deleted", "/?show=all&q=fix", "/search?q=hello", "/usage"]
FORMATS = ["anthropic", "openai-chat", "openai-responses", "gemini", "plain"]
STATUS: dict[type[clew.ClewError], int] = {
    clew.InvalidInput: 400,
    clew.NotFound: 404,
    clew.Conflict: 409,
    clew.LeaseHeld: 409,
}


class Requests(RuleBasedStateMachine):
    """`ours` is changed by the viewer, `other` by the library."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.ours = clew.open(self.folder / "ours.db")
        self.other = clew.open(self.folder / "other.db")
        self.client = client_of(self.ours)

    def teardown(self) -> None:
        self.client.close()
        self.ours.close()
        self.other.close()
        shutil.rmtree(self.folder)

    def both(self, act: Callable[[], Any], route: str, **form: str) -> None:
        """Send the form for one store, do the same to the other: alike, or refused alike."""
        expected = 303
        try:
            act()
        except clew.ClewError as error:
            expected = STATUS[type(error)]
        answer = self.client.post(route, data=form, headers={"origin": HERE})
        assert answer.status_code == expected, (route, form, answer.text[-500:])

    def theirs(self, thread: str) -> clew.Thread:
        return self.other.get(thread, deleted=True)

    def entry(self, thread: str, number: int) -> tuple[str, str]:
        """An entry of a thread, as both stores know it; one that is not there for a high number."""
        found = []
        for store in (self.ours, self.other):
            known = store.find(thread)
            entries = [] if known is None else list(known.entries())
            found.append(entries[number].id if number < len(entries) else "no-such-entry")
        return found[0], found[1]

    @invariant()
    def both_hold_the_same(self) -> None:
        assert twin.state(self.ours) == twin.state(self.other)

    # --- what agents write meanwhile ---

    def write(self, thread: str, act: Callable[[clew.Thread], Any]) -> None:
        for store in (self.ours, self.other):
            known = store.find(thread)
            if known is None and thread not in {info.id for info in store.threads(deleted=True)}:
                known = store.create(thread)
            if known is not None:
                act(known)

    @rule(thread=THREADS, message=st.sampled_from(MESSAGES))
    def say(self, thread: str, message: dict[str, Any]) -> None:
        self.write(thread, lambda one: one.append_message(message))

    @rule(thread=THREADS, kind=st.sampled_from(KINDS), body=BODIES)
    def note(self, thread: str, kind: str, body: Any) -> None:
        self.write(thread, lambda one: one.append(kind, body))

    @rule(thread=THREADS)
    def compact(self, thread: str) -> None:
        self.write(thread, lambda one: one.compact(summary="In short.", keep_turns=1))

    # --- changing ---

    @rule(thread=THREADS, title=TITLES)
    def rename(self, thread: str, title: str) -> None:
        def act() -> None:
            words = " ".join(title.split())
            found = self.theirs(thread)
            if words:
                found.set_title(words, source="viewer")
            else:
                found.set(title=None)

        self.both(act, "/threads/change", id=thread, action="rename", title=title)

    @rule(thread=THREADS, tags=TAGS)
    def tag(self, thread: str, tags: str) -> None:
        def act() -> None:
            words = [word.lstrip("#") for word in tags.replace(",", " ").split()]
            self.theirs(thread).set(tags=list(dict.fromkeys(words)) or None)

        self.both(act, "/threads/change", id=thread, action="tags", tags=tags)

    @rule(thread=THREADS, action=st.sampled_from(["archive", "unarchive", "delete", "restore"]))
    def change(self, thread: str, action: str) -> None:
        def act() -> None:
            found = self.theirs(thread)
            if action in ("delete", "restore"):
                getattr(self.other, action)(found.id)
            else:
                found.set(archived=True if action == "archive" else None)

        self.both(act, "/threads/change", id=thread, action=action)

    @rule(thread=THREADS, number=NUMBERS, stale=st.booleans())
    def move(self, thread: str, number: int, stale: bool) -> None:
        """Seen with this leaf, or before what an agent has written since."""
        ours, theirs = self.entry(thread, number)
        known = self.ours.find(thread)
        leaf = (None if known is None else known.leaf) or ""

        def act() -> None:
            found = self.theirs(thread)
            found.move(theirs, expect="stale" if stale else found.leaf)

        self.both(act, "/tree/move", id=thread, entry=ours, leaf="stale" if stale else leaf)

    @rule(thread=THREADS, number=NUMBERS)
    def rewind(self, thread: str, number: int) -> None:
        ours, theirs = self.entry(thread, number)

        def act() -> None:
            found = self.theirs(thread)
            at = found.get(theirs).kind != "user_message"
            found.rewind(theirs, at=at, files=False)

        self.both(act, "/tree/rewind", id=thread, entry=ours)

    @rule(thread=THREADS, way=st.sampled_from(["undo", "redo"]))
    def take_back(self, thread: str, way: str) -> None:
        def act() -> None:
            found = self.theirs(thread)
            found.undo_rewind() if way == "undo" else found.redo_rewind()

        self.both(act, f"/tree/{way}", id=thread)

    # --- looking ---

    @rule(thread=THREADS, page=st.sampled_from(PAGES))
    def look(self, thread: str, page: str) -> None:
        answer = self.client.get(page, params={"id": thread})
        there = thread in {info.id for gone in (False, True) for info in self.everything(gone)}
        assert answer.status_code == (200 if there else 404), (page, answer.text[-500:])
        assert "<script>alert" not in answer.text

    def everything(self, deleted: bool) -> list[clew.ThreadInfo]:
        return list(self.ours.threads(archived=None, deleted=deleted))

    @rule(page=st.sampled_from(LISTS))
    def look_at_all(self, page: str) -> None:
        answer = self.client.get(page)
        assert answer.status_code == 200, (page, answer.text[-500:])
        assert "<script>alert" not in answer.text

    @rule(thread=THREADS, format=st.sampled_from(FORMATS), compacted=st.booleans())
    def context(self, thread: str, format: str, compacted: bool) -> None:
        asked = {"id": thread, "format": format, "compacted": "" if compacted else "0"}
        answer = self.client.get("/context/raw", params=asked)
        try:
            found = self.ours.get(thread, deleted=True).context(format, compacted=compacted)
        except clew.ClewError as error:
            assert answer.status_code == STATUS[type(error)]  # noqa: PT017
            return
        parts = {"system": found.system, "messages": found.messages, "tools": found.tools}
        said = {name: part for name, part in parts.items() if part is not None}
        assert answer.json() == json.loads(json.dumps(said))

    @rule(thread=THREADS, number=NUMBERS, page=st.sampled_from(PAGES[:3]))
    def look_at_an_entry(self, thread: str, number: int, page: str) -> None:
        name = {"/thread": "at", "/context": "leaf", "/tree": "entry"}[page]
        answer = self.client.get(page, params={"id": thread, name: self.entry(thread, number)[0]})
        assert answer.status_code in (200, 404), (page, answer.text[-500:])


Requests.TestCase.settings = settings(max_examples=amount(8, 200), stateful_step_count=30)
TestViewer = Requests.TestCase
