"""A context that goes on from the last one is the very one that is made from nothing.

Random journals again, with a context after every step, by options that come and go; and a caller
who ruins everything that it was given.
"""

from __future__ import annotations

import json
import pickle
from copy import copy, deepcopy
from typing import Any

import hypothesis.strategies as st
import pytest
from context import dialogues as say
from context.test_validity import FORMATS, TEXTS, formats, steps, write
from hypothesis import given, settings
from msgspec import UNSET

import clew
from clew import messages
from clew.context.projection import Options, project_window
from clew.context.recall import Recall
from clew.context.request import Context
from clew.context.window import read_window
from clew.store import Store
from clew.thread import Thread

WRITTEN = [
    name
    for name in (*messages.FORMATS, *messages.FRAMEWORKS)
    if messages.request_format(name) == name
]


def marked(text: str) -> Any:
    """A message that was sent with marks for the cache, of which a request may have four."""
    block = {"type": "text", "text": text or "x", "cache_control": {"type": "ephemeral"}}
    return {"role": "user", "content": [block]}


def asked(thread: Thread, **given: Any) -> Context:
    """The context that the thread gives, once it is known to be the right one."""
    found = thread.context(**given)
    compacted = given.pop("compacted", True)
    window = read_window(thread, compacted=compacted)
    anew = project_window(window, Options(**given))
    assert found == anew
    assert found.report.tokens == anew.report.tokens
    assert json.loads(found.json()) == found.messages == json.loads(anew.json())
    return found


def ruin(value: Any) -> None:
    inner = value.values() if isinstance(value, dict) else value
    if isinstance(value, dict | list):
        for one in inner:
            ruin(one)
        value.clear()


def ruin_all(found: Context) -> None:
    for call in found.calls:
        ruin(call.arguments)
    for part in (found.messages, found.system, found.tools, found.model):
        ruin(part)


more = st.one_of(
    *[steps] * 4,
    st.tuples(st.just("marked"), st.just("anthropic"), TEXTS),
    st.tuples(st.just("model_change"), formats, st.just({"model": ["m"]})),
    st.tuples(st.just("active_tools_change"), formats, st.just([{"name": "t"}])),
    st.tuples(st.just("uncompact"), formats, st.none()),
)
options = st.fixed_dictionaries(
    {"format": st.sampled_from([None, *WRITTEN, "anthropic", "openai-chat"])},
    optional={
        "budget_tokens": st.sampled_from([40, 400]),
        "compacted": st.just(False),
        "system": st.just(False),
        "signal_tools": st.just(["run"]),
        "segments": st.just(True),
    },
)


def go_on(thread: Thread, step: tuple[str, str, Any]) -> Thread:
    kind, _, what = step
    if kind == "marked":
        thread.append("user_message", marked(what), format="anthropic")
    elif kind == "uncompact":
        thread.uncompact()
    elif kind.endswith("_change"):
        thread.append(kind, what)
    else:
        return write(thread, step)
    return thread


@settings(max_examples=120)
@given(st.lists(st.tuples(more, options), min_size=2, max_size=14))
def test_a_context_that_goes_on_is_the_one_made_from_nothing(
    journal: list[tuple[tuple[str, str, Any], dict[str, Any]]],
) -> None:
    thread = clew.open("memory:").create()
    for step, given_ in journal:
        thread = go_on(thread, step)
        for wanted in (given_, {"format": journal[0][1]["format"]}):
            ruin_all(asked(thread, **wanted))


LOOKING_BACK = ("move", "fork", "compact", "edit", "truncate", "uncompact")


@settings(max_examples=250)
@given(formats, st.lists(more.filter(lambda s: s[0] not in LOOKING_BACK), min_size=3, max_size=16))
def test_a_thread_that_only_grows_is_never_made_from_nothing_and_still_the_same(
    format: str, journal: list[tuple[str, str, Any]]
) -> None:
    """In one format, so that pieces of a reply, and neighbours, come together."""
    thread = clew.open("memory:").create()
    for kind, _, what in journal:
        thread = go_on(thread, (kind, format, what))
        ruin_all(asked(thread, format=format))


@pytest.mark.parametrize("asking", [None, "anthropic"])
@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("format", FORMATS)
def test_a_context_after_an_append_reads_what_is_new(
    format: str, is_compacted: bool, asking: str | None
) -> None:
    """And not the path again: that is what makes a loop over a long thread quick."""
    thread = clew.open("memory:").create()
    for number in range(20):
        thread.append("user_message", say.user(format, f"q{number}"), format=format)
        thread.append("assistant_message", say.assistant(format, f"a{number}"), format=format)
    if is_compacted:
        assert thread.compact(summary="so far", keep_turns=1) is not None
    thread.context(asking)
    read: list[int] = []
    path = thread.store.engine.path

    def counted(*given: Any, **also: Any) -> Any:
        found = path(*given, **also)
        read.append(len(found))
        return found

    thread.store.engine.path = counted  # type: ignore[method-assign]
    thread.append("user_message", say.user(format, "more"), format=format)
    assert "more" in thread.store.get(thread.id).context(asking).json().decode()
    assert sum(read) == 2, "the entry that it had come to, and the new one"


def test_what_is_kept_is_bounded() -> None:
    store = clew.open("memory:")
    recall = Recall(store.engine, size_bytes_max=10_000)
    threads = [store.create() for _ in range(8)]
    for thread in threads:
        thread.append("user_message", {"role": "user", "content": "x" * 2000})
        recall.context(thread, Options(), UNSET, compacted=True)
    assert 1 <= len(recall._kept) <= 4
    assert recall._size == sum(kept.size for kept in recall._kept.values()) <= 10_000
    threads[0].append("user_message", {"role": "user", "content": "x" * 20_000})
    recall.context(threads[0], Options(), UNSET, compacted=True)
    assert (recall._size, len(recall._kept)) == (0, 0), "one that is too large is not kept"


def test_what_is_kept_is_counted_as_it_grows_is_asked_for_again_and_is_forgotten() -> None:
    store = clew.open("memory:")
    recall = Recall(store.engine, size_bytes_max=10_000)
    thread, other = store.create("t"), store.create("o")

    def ask(which: Any) -> int:
        recall.context(which, Options(), UNSET, compacted=True)
        assert recall._size == sum(kept.size for kept in recall._kept.values())
        return recall._size

    thread.append("user_message", {"role": "user", "content": "x" * 2000})
    other.append("user_message", {"role": "user", "content": "y" * 2000})
    one = ask(thread)
    assert 2000 < one == ask(thread), "the same once more is not more"
    assert ask(other) == 2 * one
    thread.append("user_message", {"role": "user", "content": "x" * 2000})
    assert ask(thread) == 3 * one
    thread.append("user_message", {"role": "user", "content": "x" * 2000})
    assert ask(thread) == 3 * one, "the other one was asked for longer ago, and had to go"
    thread.append("user_message", {"role": "user", "content": "x" * 2000})
    assert ask(thread) == 0, "it has become too large"
    assert ask(other) == one
    recall.forget()
    assert (recall._size, len(recall._kept)) == (0, 0)
    exact = Recall(store.engine, size_bytes_max=one)
    exact.context(other, Options(), UNSET, compacted=True)
    assert exact._size == one, "it fits to the byte"


def test_of_two_who_ask_at_once_one_is_counted() -> None:
    store = clew.open("memory:")
    recall, thread = Recall(store.engine), store.create()
    thread.append("user_message", {"role": "user", "content": "q"})

    class Interrupted:
        """A thread that another one asks about, just when it is read."""

        id = thread.id

        def path(self, *given: Any, **also: Any) -> Any:
            recall.context(thread, Options(), UNSET, compacted=True)
            return thread.path(*given, **also)

        def get(self, entry: str) -> Any:
            return thread.get(entry)

    recall.context(Interrupted(), Options(), UNSET, compacted=True)
    (kept,) = recall._kept.values()
    assert recall._size == kept.size


@pytest.mark.parametrize("erased", ["own", "shared", "summary"])
def test_what_was_erased_through_another_handle_is_not_told_again(erased: str) -> None:
    """The other one has a recall of its own, as another process has."""
    store = clew.open("memory:")
    thread = store.create("t")
    thread.append_message({"role": "user", "content": "the secret of old"}, id="old")
    thread.append_message({"role": "assistant", "content": "yes"}, id="yes")
    thread.append_message({"role": "user", "content": "the shared secret"}, id="shared")
    body = {"summary": "the summed up secret", "first_kept_entry_id": "shared"}
    thread.append("compaction", body, id="summary")
    middle = store.fork("t", id="m")
    fork = store.fork("m", id="f")
    fork.append_message({"role": "user", "content": "the own secret"}, id="own")
    before = fork.context("plain").json().decode()
    assert before.count("secret") == 3
    Store(store.engine).erase("f" if erased == "own" else "t", [erased])
    after = fork.context("plain").json().decode()
    assert after.count("secret") == 2
    middle.append_message({"role": "user", "content": "elsewhere"})
    assert fork.context("plain").json().decode() == after


def test_what_a_compaction_named_and_was_missing_is_told_once_it_is_there() -> None:
    thread = clew.open("memory:").create()
    thread.append_message({"role": "user", "content": "q"}, id="q")
    for says in ({"kept_user_entry_ids": ["late", "q"]}, {"carried_entry_ids": ["late"]}):
        body = {"summary": "S", "compacted_through_entry_id": "q", **says}
        thread.append("compaction", body, id=f"c {next(iter(says))}")
        thread.append_message({"role": "user", "content": "and?"})
        assert "beside" not in asked(thread, format="plain").json().decode()
    leaf = thread.leaf
    thread.move("q")
    thread.append_message({"role": "user", "content": "beside"}, id="late")
    thread.move(leaf)
    thread.append_message({"role": "user", "content": "and now?"})
    assert "beside" in asked(thread, format="plain").json().decode()


def test_a_request_whose_beginning_changes_is_written_anew() -> None:
    """A request may have four marks for the cache, so a fifth takes one from the beginning."""
    thread = clew.open("memory:").create()
    for number in range(8):
        thread.append("user_message", marked(f"q{number}"), format="anthropic")
        thread.append("assistant_message", say.assistant("anthropic", "yes"), format="anthropic")
        ruin_all(asked(thread, format="anthropic"))
        asked(thread, format="anthropic", budget_tokens=10_000)


@pytest.mark.parametrize("format", FORMATS)
def test_contexts_within_a_budget_and_without_one_do_not_disturb_each_other(format: str) -> None:
    thread = clew.open("memory:").create()
    for number in range(8):
        thread.append("user_message", say.user(format, f"q{number}" * 20), format=format)
        thread.append("assistant_message", say.assistant(format, f"a{number}"), format=format)
        for budget in (40, None, 80, None, 40):
            asked(thread, format=format, budget_tokens=budget)


def test_signals_that_cannot_be_compared_are_taken_all_the_same() -> None:
    thread = clew.open("memory:").create()
    call = say.calls("plain", ("c", "done", {"text": "ready"}))
    thread.append("tool_call", call, format="plain")
    for signals in ([["done"]], {"done": 1}, [["done"], "done"]):
        found = thread.context("plain", signal_tools=signals)  # type: ignore[arg-type]
        assert ("tool_calls" in found.json().decode()) == ("done" not in signals)


def test_json_of_an_earlier_context_does_not_tell_what_came_later() -> None:
    thread = clew.open("memory:").create()
    contexts = []
    for number in range(6):
        thread.append("user_message", {"role": "user", "content": f"q{number}"})
        thread.append("assistant_message", {"role": "assistant", "content": f"a{number}"})
        contexts.append(thread.context("openai-chat"))
    for context in (contexts[4], contexts[1], contexts[5], contexts[0], contexts[4]):
        assert json.loads(context.json()) == context.messages


def test_a_purged_thread_is_not_told_again_under_its_id() -> None:
    store = clew.open("memory:")
    thread = store.create("t")
    thread.append("user_message", {"role": "user", "content": "secret"}, id="one")
    thread.context()
    store.delete("t")
    store.purge("t")
    with pytest.raises(clew.NotFound):
        thread.context()
    store.create("t").append("user_message", {"role": "user", "content": "other"}, id="one")
    assert thread.context().messages == [{"role": "user", "content": "other"}]


@pytest.mark.parametrize("target", WRITTEN)
def test_what_the_host_says_behind_an_open_reply_is_told_once(target: str) -> None:
    """It stands behind the reply for now, and is written again when that is settled."""
    thread = clew.open("memory:").create()
    roles = ["system", "system", "user", "assistant", "system", "user", "assistant", "system"]
    for number, role in enumerate([*roles, "user", "assistant"]):
        text = f"{role} {number}"
        block = {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}
        content: Any = [block] if number < 2 else text
        thread.append(f"{role}_message", {"role": role, "content": content}, format="anthropic")
        ruin_all(asked(thread, format=target))
    told = thread.context(target)
    shown = json.dumps([told.system, told.messages])
    assert all(shown.count(f"system {number}") == 1 for number in (0, 1, 4, 7))


def test_a_context_that_was_copied_or_sent_elsewhere_has_its_messages() -> None:
    thread = clew.open("memory:").create()
    thread.append("user_message", {"role": "user", "content": "q"})
    found = thread.context()
    for other in (copy(found), deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert other == found
        assert json.loads(other.json()) == other.messages == [{"role": "user", "content": "q"}]


def test_json_follows_a_first_message_that_loses_its_mark_for_the_cache() -> None:
    """Anthropic takes four marks. A thread whose every message has one drops the oldest."""
    thread = clew.open("memory:").create()
    mark = {"cache_control": {"type": "ephemeral"}}
    dropped = []
    for n in range(8):
        asked = [{"type": "text", "text": f"question {n}", **mark}]
        answer = [{"type": "text", "text": f"{n}"}]
        for role, content in (("user", asked), ("assistant", answer)):
            thread.append_message({"role": role, "content": content})
            context = thread.context("anthropic")
            assert json.loads(context.json()) == context.messages
        dropped.append("cache_control" not in context.messages[0]["content"][0])
    assert dropped == [False] * 4 + [True] * 4


def test_a_fork_that_shares_nothing_but_a_summary_forgets_it_when_it_is_erased() -> None:
    store = clew.open("memory:")
    thread = store.create("t")
    thread.append_message({"role": "user", "content": "q"})
    summed_up = thread.compact(summary="the secret", keep_turns=0, keep_user_tokens=0)
    assert summed_up is not None
    fork = store.fork("t", id="f")
    fork.append_message({"role": "user", "content": "more"})
    assert "the secret" in fork.context("plain").json().decode()
    Store(store.engine).erase("t", [summed_up.id])  # by another handle
    assert "the secret" not in fork.context("plain").json().decode()
