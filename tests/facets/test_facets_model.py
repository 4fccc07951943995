"""The facets against plain lists: random steps, the same answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from clew import Conflict, Corrupt
from clew.engines.memory import MemoryEngine
from clew.facets.conversations import Conversations
from clew.facets.runs import Checkpoint, Runs
from clew.facets.sessions import Sessions
from clew.store import Store

TEXTS = st.lists(st.sampled_from("abc"), max_size=5)


def says(texts: list[str]) -> list[Any]:
    return [{"role": "user", "content": text} for text in texts]


KEYS = st.sampled_from("kl")
CONVERSATION_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), KEYS, st.sampled_from("abc")),
        st.tuples(st.just("set"), KEYS, TEXTS),
        st.tuples(st.just("extend"), KEYS, TEXTS),
        st.tuples(st.just("set beside add"), KEYS, TEXTS),
        st.tuples(st.just("expect beside add"), KEYS, TEXTS),
        st.tuples(st.just("truncate"), KEYS, st.integers(0, 6)),
        st.tuples(st.just("delete"), KEYS, st.none()),
        st.tuples(st.just("uncompact"), KEYS, st.none()),
        st.tuples(st.just("fork"), KEYS, st.integers(0, 6)),
        st.tuples(st.just("clone"), KEYS, st.none()),
        st.tuples(st.just("compact storage"), KEYS, st.booleans()),
    ),
    max_size=25,
)


class Beside(MemoryEngine):
    """An engine that lets another writer in before the next append."""

    writer: Callable[[], object] | None = None

    def append(self, *args: Any, **options: Any) -> Any:
        writer, self.writer = self.writer, None
        if writer is not None:
            writer()
        return super().append(*args, **options)


class Talks:
    """Conversations, and what they are expected to show."""

    def __init__(self) -> None:
        self.engine = Beside()
        self.store = Store(self.engine)
        self.facet = Conversations(self.store)
        self.shown: dict[str, list[str]] = {"k": [], "l": []}
        self.undo: dict[str, list[list[str]]] = {"k": [], "l": []}  # of each truncation in force
        self.names = dict(zip("kl", "kl", strict=True))  # where a fork has taken the place

    def do(self, step: str, name: str, value: Any) -> None:
        talk, model = self.facet.get(self.names[name]), self.shown[name]
        if step == "add":
            talk.add("user", value)
            self.show(name, [*model, value], [[*texts, value] for texts in self.undo[name]])
        elif step in ("set", "extend"):
            given = value if step == "set" else [*model, *value]
            talk.set_history(says(given))
            keeps = given[: len(model)] == model
            new = given[len(model) :]
            self.show(name, given, [[*t, *new] for t in self.undo[name]] if keeps else None)
        elif step == "set beside add":
            self.engine.writer = lambda: talk.add("user", "beside")
            talk.set_history(says(value))
            came = self.engine.writer is None
            self.engine.writer = None
            self.show(
                name, value, None if came or value[: len(model)] != model else self.undo[name]
            )
            assert not came or "beside" in self.stored(name), "out of sight, but not lost"
        elif step == "expect beside add":
            leaf = talk.leaf
            talk.add("user", "beside")
            try:
                talk.set_history(says(value), expect=leaf)
            except Conflict:
                added = [[*texts, "beside"] for texts in self.undo[name]]
                self.show(name, [*model, "beside"], added)
            else:
                raise AssertionError("nothing said that a message came in between")
        elif step == "truncate":
            talk.truncate(value)
            if value < len(model):
                self.undo[name].append(model)
                self.shown[name] = model[len(model) - value :]
        elif step == "delete":
            talk.delete()
            self.show(name, [], None)
        elif step == "uncompact" and self.undo[name]:
            talk.thread.uncompact()
            self.shown[name] = self.undo[name].pop()
        elif step in ("fork", "clone") and self.store.find(f"conversation:{self.names[name]}"):
            entries = talk.entries()
            at = entries[value].id if step == "fork" and value < len(entries) else None
            fork = talk.fork(at=at)
            # Before a truncation, a fork shows what was shown there.
            expected = model if at is None else model[: value + 1]
            assert fork.history()[-len(expected) or len(model) :] == says(expected)
            if step == "clone":  # and the work goes on there
                self.names[name] = fork.key
        elif step == "compact storage" and talk.compact_storage(drop_branches=value).entries:
            self.show(name, model, None)

    def show(self, name: str, texts: list[str], undo: list[list[str]] | None) -> None:
        self.shown[name], self.undo[name] = list(texts), undo or []

    def stored(self, name: str) -> set[str]:
        thread = self.facet.get(self.names[name]).thread
        return {e.body["content"] for e in thread.entries() if e.kind == "user_message"}


@given(CONVERSATION_STEPS)
def test_a_conversation_is_a_list(steps: list[tuple[str, str, Any]]) -> None:
    talks = Talks()
    for step in steps:
        talks.do(*step)
        for name, model in talks.shown.items():
            assert talks.facet.get(talks.names[name]).history() == says(model)


@given(st.lists(TEXTS, max_size=8))
def test_histories_with_ids_are_stored_once(histories: list[list[str]]) -> None:
    """A message is the same if its id is: then each is stored once for each beginning it has."""
    conversation = Conversations(Store(MemoryEngine())).get("k")
    seen: set[str] = set()
    for texts in histories:
        ids = ["".join(texts[: n + 1]) for n in range(len(texts))]
        conversation.set_history(says(texts), ids=ids)
        seen |= set(ids)
        assert [entry.id for entry in conversation.entries()] == ids
        assert conversation.history() == says(texts)
    stored = [] if not histories else list(conversation.thread.entries())
    assert sorted(entry.id for entry in stored) == sorted(seen)


@given(st.lists(st.tuples(TEXTS, st.integers(0, 2), st.booleans()), max_size=12))
def test_a_run_is_what_was_saved_last(saves: list[tuple[list[str], int, bool]]) -> None:
    store = Store(MemoryEngine())
    savers = [Runs(store), Runs(store), Runs(store)]
    for number, (texts, saver, deleted) in enumerate(saves):
        if deleted:
            savers[saver - 1].delete("r")
            assert savers[saver].find("r") is None
        metadata = {"n": len(texts)}
        savers[saver].save(
            Checkpoint(run_id="r", messages=says(texts), iteration=number, metadata=metadata)
        )
        for other in savers:
            found = other.load("r")
            assert (found.messages, found.iteration) == (says(texts), number)
            assert found.metadata == metadata
    revisions = savers[0].history("r")
    assert len(revisions) == len(saves)
    for info, (texts, _, _) in zip(revisions, reversed(saves), strict=True):
        assert savers[0].load("r", revision=info.revision).messages == says(texts)


SESSION_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from("abc")),
        st.tuples(st.just("by id"), st.sampled_from("abc")),
        st.tuples(st.just("extend"), TEXTS),
        st.tuples(st.just("edit"), st.tuples(st.integers(0, 4), st.sampled_from("abc"))),
        st.tuples(st.just("checkpoint"), TEXTS),
        st.tuples(st.just("reload"), st.booleans()),
        st.tuples(st.just("delete"), st.none()),
    ),
    max_size=15,
)


@given(SESSION_STEPS)
def test_a_session_shows_the_document_and_keeps_everything(steps: list[tuple[str, Any]]) -> None:
    sessions = Sessions(Store(MemoryEngine()))
    document = sessions.new(id="s", workspace="")
    sessions.append_message(document, says(["start"])[0])
    written = ["start"]  # every message that was ever stored, in its order
    for step, value in steps:
        if step == "append":
            sessions.append_message(document, says([value])[0])
            written.append(value)
        elif step == "by id":
            sessions.append_message("s", says([value])[0])
            written.append(value)
            document = sessions.load("s")
        elif step == "extend":
            document.messages += says(value)
            sessions.save(document)
            written += value
        elif step == "edit" and value[0] < len(document.messages):
            document.messages[value[0]] = {"role": "user", "content": value[1]}
            sessions.save(document)
        elif step == "checkpoint":
            sessions.append_checkpoint(document, says(value), 1)
            assert sessions.load("s").messages == says(value)
            document = sessions.load("s")
        elif step == "reload":
            document = sessions.load("s", events=value)
        elif step == "delete":
            sessions.delete("s")
            sessions.restore("s")
        if step != "edit":
            assert sessions.load("s").messages == document.messages
        full = [message["content"] for message in sessions.load("s", full=True).messages]
        if step == "edit":
            written, before = full, written
            assert full[: len(before)] == before, "an edit adds, it does not replace"
        assert full == written
        assert sessions.load("s").messages == document.messages


# --- damage of one fact, and forks ---

BAD_VALUES = st.sampled_from([b'{"oo', b"7", b"[1]", b"true", b"\xff"])
# A step's number chooses among the items that there are.
DAMAGE_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 5), st.sampled_from("abc")),
        st.tuples(st.just("fork"), st.integers(0, 5), st.booleans()),
        st.tuples(st.just("damage"), st.integers(0, 5), st.tuples(st.integers(0, 3), BAD_VALUES)),
        st.tuples(st.just("delete"), st.integers(0, 5), st.none()),
    ),
    max_size=15,
)


def damage(store: Store, thread: str, keys: tuple[str, ...], n: int, data: bytes) -> None:
    facts = store.engine._threads[thread].facts  # type: ignore[attr-defined]
    key = keys[n % len(keys)]
    facts[key] = replace(facts[key], data=data)


@given(DAMAGE_STEPS)
def test_damage_and_forks_of_runs_touch_no_other_run(steps: list[tuple[str, int, Any]]) -> None:
    store = Store(MemoryEngine())
    Runs(store).save(Checkpoint(run_id="r", messages=says(["start"]), metadata={"a": 1}))
    model: dict[str, list[str] | None] = {"r": ["start"]}  # None: damaged
    texts = {"r": ["start"]}
    for step, number, value in steps:
        if not model:
            break
        runs = Runs(store)  # what a process remembers is another test's
        id = sorted(model)[number % len(model)]
        if step == "write":
            texts[id] = [*texts[id], value]
            runs.save(Checkpoint(run_id=id, messages=says(texts[id]), metadata={"a": len(texts)}))
            model[id] = texts[id]
        elif step == "fork":
            thread = runs.thread(id)
            made = runs.fork(id).run_id if value else runs.load(thread.fork().id).run_id
            texts[made] = model[made] = texts[id]
        elif step == "damage":
            damage(store, runs.thread(id).id, ("checkpoint", "metadata", "system_prompt"), *value)
            model[id] = None
        else:
            runs.delete(id)
            del model[id]
        assert {i.run_id: i.damaged is None for i in runs.all()} == {
            id: told is not None for id, told in model.items()
        }
        assert {i.run_id for i in runs.list(limit=1000).items} == model.keys()
        for id, told in model.items():
            if told is None:
                with pytest.raises(Corrupt):
                    runs.load(id)
            else:
                assert runs.load(id).messages == says(told)


@given(DAMAGE_STEPS)
def test_damage_and_forks_of_sessions_touch_no_other_session(
    steps: list[tuple[str, int, Any]],
) -> None:
    store = Store(MemoryEngine())
    sessions = store.sessions
    made = sessions.new("vendor", model="m", id="s", workspace="/w")
    sessions.append_message(made, says(["start"])[0], usage={"input_tokens": 1})
    model = {"s": ["start"]}
    broken: set[str] = set()
    for step, number, value in steps:
        if not model:
            break
        id = sorted(model)[number % len(model)]
        if step == "write" and id not in broken:
            sessions.append_message(id, says([value])[0], usage={"input_tokens": 1})
            model[id] = [*model[id], value]
        elif step == "write":  # what is set anew is whole
            sessions.thread(id).set(vendor="v", model="m", usage=None, title="mended")
            broken.discard(id)
        elif step == "fork" and id not in broken:
            fork = sessions.fork(id) if value else sessions.load(sessions.thread(id).fork().id)
            assert fork.usage == sessions.load(id).usage
            model[fork.id] = model[id]
        elif step == "damage" and id not in broken:
            sessions.set_title(id, "a title")
            sessions.thread(id).set(usage={})
            damage(store, sessions.thread(id).id, ("title", "vendor", "model", "usage"), *value)
            broken.add(id)
        elif step == "delete":
            sessions.delete(id)
            del model[id]
            broken.discard(id)
        infos = {info.id: info.damaged is not None for info in sessions.all()}
        assert infos == {id: id in broken for id in model}
        for id, told in model.items():
            if id in broken:
                with pytest.raises(Corrupt):
                    sessions.load(id)
            else:
                assert sessions.load(id).messages == says(told)
