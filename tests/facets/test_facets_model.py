"""The facets against plain lists: random steps, the same answers."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from clew.engines.memory import MemoryEngine
from clew.facets.conversations import Conversations
from clew.facets.runs import Checkpoint, Runs
from clew.facets.sessions import Sessions
from clew.store import Store

TEXTS = st.lists(st.sampled_from("abc"), max_size=5)


def says(texts: list[str]) -> list[Any]:
    return [{"role": "user", "content": text} for text in texts]


CONVERSATION_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from("abc")),
        st.tuples(st.just("set"), TEXTS),
        st.tuples(st.just("truncate"), st.integers(0, 6)),
        st.tuples(st.just("delete"), st.none()),
        st.tuples(st.just("uncompact"), st.none()),
    ),
    max_size=20,
)


@given(CONVERSATION_STEPS)
def test_a_conversation_is_a_list(steps: list[tuple[str, Any]]) -> None:
    store = Store(MemoryEngine())
    conversation = Conversations(store).get("k")
    model: list[str] = []
    before: list[list[str]] = []  # what each truncation can be undone to
    for step, value in steps:
        if step == "add":
            conversation.add("user", value)
            model.append(value)
            before = [[*texts, value] for texts in before]
        elif step == "set":
            conversation.set_history(says(value))
            model, before = list(value), []
        elif step == "truncate":
            conversation.truncate(value)
            if value < len(model):
                before.append(model)
                model = model[len(model) - value :]
        elif step == "delete":
            conversation.delete()
            model, before = [], []
        elif before:
            conversation.thread.uncompact()
            model = before.pop()
        assert conversation.history() == says(model)


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
