"""Whatever happened to a thread, the providers take its context, and what they took stays.

Random journals, written through the public interface as agents do it: replies of all four
providers with thinking and parallel calls, calls that were interrupted, replies of which only a
part was stored, ids used twice, results that come late or twice, forks, moves, compactions,
switches of provider. The strict fakes of the providers decide, not Clew's own rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import pytest
from amounts import amount
from hypothesis import given, settings
from providers import anthropic_api, gemini_api, loops, openai_responses_api
from providers.loops import APIS, FORMATS, PROVIDERS, REPLIES
from providers.refusal import JSON, Refused
from providers.responses import Call, Said

import clew
from clew.thread import Thread

QUICK = settings(max_examples=amount(20, 60))
THOROUGH = settings(max_examples=amount(67, 200))
every_format = pytest.mark.parametrize("format", FORMATS)


# --- journals ---------------------------------------------------------------------------------


@dataclass
class Agent:
    """Writes a thread as an agent's loop does, with all that can go wrong in one."""

    thread: Thread = field(default_factory=lambda: clew.open("memory:").create())
    calls: list[Call] = field(default_factory=list)  # all that were stored
    replies: int = 0
    sent: list[tuple[str, list[Any]]] = field(default_factory=list)  # what was replied to
    _waiting: set[str] = field(default_factory=set)  # the calls of the last reply
    _settled: bool = True  # it was answered: by the user, or by results for all of them

    def user(self, format: str, text: str) -> None:
        self._put(format, loops.user(format, text))
        self._settled = self._settled or bool(text.strip())

    def reply(
        self,
        format: str,
        thinks: bool = False,
        text: str = "Done.",
        ids: tuple[str, ...] = (),
        same: bool = False,
        cut: int = 0,
    ) -> None:
        """Ask the model, and store its reply: whole, or without its last `cut` pieces.

        Everything in a reply names it (~1~, ~2~, …), but for the arguments of `same` calls. An
        id that is "new" is one that no other call has. A model that is asked again although its
        last reply has no answer is asked by a loop that was resumed, and its turn leaves a mark:
        without one, nothing would tell two replies from two items of the same reply.
        """
        if not self._settled:
            self.marker(format)
        messages = self.thread.context(format).messages
        if messages:
            self.sent.append((format, messages))
        self.replies += 1
        mark = f"~{self.replies}~"
        calls = tuple(
            Call(
                f"call_{self.replies}_{n}" if id == "new" else id,
                # A name that the provider itself takes, and others do not.
                "a.b" if format == "gemini" and id.startswith("odd") else "run",
                {} if same else {"m": mark},
            )
            for n, id in enumerate(ids)
        )
        said = Said(
            f"r{self.replies}",
            f"{mark} {text}" if text else "",
            f"{mark} Hm." if thinks else None,
            calls,
        )
        kept = _cut(format, loops.messages_of(format, REPLIES[format](said)), cut)
        for message in kept:
            self._put(format, message)
        stored = json.dumps(kept)
        kept_calls = [call for call in calls if f'"{call.id}"' in stored]
        self.calls += kept_calls
        self._settled, self._waiting = False, {call.id for call in kept_calls}

    def result(self, format: str, which: int, text: str = "fine") -> None:
        """Answer a call: the newest for 0, or an older one, late or again."""
        if self.calls:
            call = self.calls[-1 - which % len(self.calls)]
            self._put(format, loops.results(format, [(call, text)])[0])
            self._settled = self._settled or self._waiting == {call.id}
            self._waiting.discard(call.id)

    def system(self, format: str, text: str) -> None:
        self.thread.append_message({"role": "system", "content": text})

    def picture(self, format: str, mime: str) -> None:
        # What a provider does not take, it was not given either.
        self._put(format, picture(format, "image/png" if format == "gemini" else mime))

    def partial(self, format: str) -> None:
        """A reply that was cut off before it said anything."""
        self._put(format, PARTIAL[format])

    def again(self, _: str) -> None:
        """The last message once more: the writer did not know that it was stored."""
        for entry in self.thread.path(limit=1):
            if entry.kind in ("user_message", "assistant_message", "tool_call", "tool_result"):
                self.thread.append(entry.kind, entry.body, format=entry.format)

    def repeat(self, _: str) -> None:
        """All that the assistant has said so far, once more."""
        for entry in self.thread.path():
            if entry.kind in ("assistant_message", "tool_call"):
                self.thread.append(entry.kind, entry.body, format=entry.format)

    def orphan(self, format: str) -> None:
        self._put(format, loops.results(format, [(Call("nobody_asked", "run"), "fine")])[0])

    def marker(self, _: str) -> None:
        """What a turn leaves that a crash has ended."""
        self.thread.append("turn_marker", {"status": "started", "owner": "worker"})

    def move(self, _: str, to: int) -> None:
        entries = list(self.thread.entries())
        if entries:
            self.thread.move(entries[to % len(entries)].id)
            self._settled = False

    def fork(self, _: str, at: int) -> None:
        entries = list(self.thread.entries())
        if entries:
            self.thread = self.thread.fork(at=entries[at % len(entries)].id)
            self._settled = False

    def compact(self, _: str, keep: int) -> None:
        self.thread.compact(lambda _: "what was said before", keep_turns=keep)
        self._settled = False

    def _put(self, format: str, message: JSON) -> None:
        try:
            self.thread.append_message(message, format=format)
        except clew.InvalidInput:
            # A result for a call that is not on the path: nothing but `append` takes it.
            assert loops.answered_in(format, [message])
            self.thread.append("tool_result", message, format=format)


def _cut(format: str, messages: list[JSON], cut: int) -> list[JSON]:
    """A reply of which the end was not stored: items, or blocks of its one message."""
    if not cut:
        return messages
    if format == "openai-responses":
        return messages[: max(1, len(messages) - cut)]
    [message] = messages
    if format == "openai-chat":
        words = {key: value for key, value in message.items() if key != "tool_calls"}
        return [words] if words["content"] else messages
    key = "content" if format == "anthropic" else "parts"
    return [{**message, key: message[key][: max(1, len(message[key]) - cut)]}]


PNG = "iVBORw0KGgo="
PARTIAL: dict[str, JSON] = {
    "anthropic": {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm"}]},
    "openai-chat": {"role": "assistant", "content": None},
    "openai-responses": {
        "type": "reasoning",
        "id": "rs_cut",
        "summary": [],
        "encrypted_content": "eA==",
    },
    "gemini": {"role": "model", "parts": [{"text": "", "thought": True}]},
}


def picture(format: str, mime: str) -> JSON:
    """A user's message with nothing but a picture."""
    url = f"data:{mime};base64,{PNG}"
    if format == "anthropic":
        source = {"type": "base64", "media_type": mime, "data": PNG}
        return {"role": "user", "content": [{"type": "image", "source": source}]}
    if format == "openai-chat":
        return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
    if format == "openai-responses":
        image = {"type": "input_image", "image_url": url, "detail": "auto"}
        return {"type": "message", "role": "user", "content": [image]}
    return {"role": "user", "parts": [{"inlineData": {"mimeType": mime, "data": PNG}}]}


Step = tuple[Any, ...]  # the name of a method, and what it gets


def play(journal: list[Step], after: Callable[[Agent], None] | None = None) -> Agent:
    agent = Agent()
    for name, *arguments in journal:
        getattr(agent, name)(*arguments)
        if after is not None:
            after(agent)
    return agent


TEXTS = st.sampled_from(["Hi.", "", " \n", "two\nlines ", "Grüße 😀", "x" * 300])
IDS = st.lists(st.sampled_from(["new", "new", "new", "call_a", "odd id/1"]), max_size=3)
STEPS: dict[str, list[Any]] = {
    "user": [TEXTS],
    "reply": [st.booleans(), st.sampled_from(["Done.", "So. ", ""]), IDS.map(tuple), st.booleans()],
    "result": [st.integers(0, 4), TEXTS],
    "system": [TEXTS],
    "picture": [st.sampled_from(["image/png", "image/png", "image/gif"])],
    "partial": [],
    "again": [],
    "orphan": [],
    "marker": [],
    "move": [st.integers(0, 30)],
    "fork": [st.integers(0, 30)],
    "compact": [st.integers(0, 2)],
}


def journals(*names: str, formats: tuple[str, ...] = FORMATS, cut: int = 0) -> Any:
    """Journals of these steps. `cut`: how much of a reply's end may be missing."""
    kinds = []
    for name in names:
        more = [st.integers(0, cut)] if name == "reply" else []
        kinds.append(st.tuples(st.just(name), st.sampled_from(formats), *STEPS[name], *more))
    return st.lists(st.one_of(kinds), min_size=1, max_size=14)


ALL = ("user", "reply", "reply", "result", "result", "orphan", "marker", "move", "fork", "compact")
ODD = (*ALL, "system", "picture", "partial", "again")
APPENDS = ("user", "reply", "reply", "result", "result", "marker")

# What the properties below are about, one at a time; the rest of the check looks away from it.
LENIENT: dict[str, Any] = {
    "anthropic": anthropic_api.Model(prefill=True, mixed=True),
    "openai-chat": None,
    "openai-responses": openai_responses_api.Model(mixed=True),
    "gemini": gemini_api.Model(prefill=True, signatures=False, mixed=True),
}


def refused(thread: Thread, format: str, model: Any = None, **more: Any) -> str:
    """Why the provider refuses the thread's context; empty if it takes it."""
    context = thread.context(format)
    if not context.messages:
        return ""
    request = loops.request(format, context.messages, context.system, **more)
    try:
        APIS[format].check(request, *([] if model is None else [model]))
    except Refused as found:
        return f"{found}: {json.dumps(request)}"
    return ""


# --- the context is well formed ----------------------------------------------------------------


@every_format
@settings(THOROUGH)
@given(journal=journals(*ALL, cut=2))
def test_every_context_is_well_formed(format: str, journal: list[Step]) -> None:
    """All rules but those that the properties below are about."""
    agent = play(journal)
    assert refused(agent.thread, format, LENIENT[format]) == ""


@every_format
@settings(THOROUGH)
@given(journal=journals(*ODD, cut=2))
def test_every_odd_context_is_well_formed_too(format: str, journal: list[Step]) -> None:
    """With system messages, pictures, replies that were cut off, and messages stored twice."""
    assert refused(play(journal).thread, format, LENIENT[format]) == ""


ODDITIES: dict[str, list[Step]] = {
    "a picture of a type that not all take": [("picture", "anthropic", "image/gif")],
    "a thought without words": [
        ("user", "gemini", "Hi."),
        ("partial", "gemini"),
        ("reply", "anthropic"),
    ],
    "an item stored twice": [
        ("user", "openai-responses", "Hi."),
        ("reply", "openai-responses"),
        ("again", ""),
    ],
    "an item stored twice, later": [
        ("user", "openai-responses", "Hi."),
        ("reply", "openai-responses", True, "So."),
        ("user", "openai-responses", "Well?"),
        ("repeat", "openai-responses"),
    ],
    "a system message behind a text that ends with a space": [
        ("user", "anthropic", "Hi."),
        ("reply", "anthropic", False, "So. "),
        ("system", "anthropic", "Be brief."),
    ],
}


@pytest.mark.parametrize("name", ODDITIES)
@every_format
def test_an_odd_context_is_taken(format: str, name: str) -> None:
    assert refused(play(ODDITIES[name]).thread, format, LENIENT[format]) == ""


@settings(QUICK)
@given(journal=journals("user", "reply", "reply", "result", formats=("anthropic",)))
def test_with_thinking_on_a_thread_of_anthropic_alone_is_taken(journal: list[Step]) -> None:
    """Where every reply has thought, as they do when it is on."""
    thought = [(*step[:2], True, *step[3:]) if step[0] == "reply" else step for step in journal]
    thread = play(thought).thread
    last = thread.context("anthropic").messages[-1:]
    if last and last[0]["role"] == "user":
        thinking = {"type": "enabled", "budget_tokens": 1024}
        assert refused(thread, "anthropic", LENIENT["anthropic"], thinking=thinking) == ""


# --- it ends with the user ---------------------------------------------------------------------


@every_format
@settings(THOROUGH)
@given(journal=journals(*ALL, "system", cut=2))
def test_every_context_ends_where_the_model_may_go_on(format: str, journal: list[Step]) -> None:
    models = {
        "anthropic": anthropic_api.Model(mixed=True),
        "gemini": gemini_api.Model(signatures=False, mixed=True),
    }
    assert refused(play(journal).thread, format, models.get(format, LENIENT[format])) == ""


@every_format
def test_a_request_after_a_crash_in_the_reply_ends_with_the_user(format: str) -> None:
    agent = play([("user", format, "Hi."), ("reply", format, False, "I look", ("new",), False, 1)])
    assert refused(agent.thread, format) == ""


# --- replies stay apart ------------------------------------------------------------------------


def replies_apart(format: str, messages: list[Any]) -> str:
    """Where two replies touch: in one message, or because the second one begins before the calls
    of the first have their results. Empty if nowhere."""
    waiting: dict[str, set[str]] = {}  # reply → its calls without a result
    for index, message in enumerate(messages):
        answered = set(loops.answered_in(format, [message]))
        for calls in waiting.values():
            calls -= answered
        if answered or message.get("role") in ("user", "tool", "system"):
            continue
        names = set(re.findall(r"~\d+~", json.dumps(message)))
        if len(names) > 1:
            return f"message {index} holds the replies {sorted(names)}: {message}"
        open_ = [name for name, calls in waiting.items() if calls and name not in names]
        if names and open_:
            return f"{names} at {index} speaks before the calls of {open_} have results"
        for name in names:
            ids = {call.id for call in loops.calls_in(format, [message])}
            waiting.setdefault(name, set()).update(ids)
    return ""


@every_format
@settings(THOROUGH)
@given(journal=journals(*ALL))
def test_two_replies_are_never_one_message(format: str, journal: list[Step]) -> None:
    messages = play(journal).thread.context(format).messages
    assert replies_apart(format, messages) == ""


@every_format
def test_the_reply_after_an_interrupted_call_is_a_message_of_its_own(format: str) -> None:
    agent = play(
        [
            ("user", format, "Hi."),
            ("reply", format, True, "I look.", ("new",)),
            ("reply", format, True, "I try again.", ("new",)),
            ("result", format, 0),
        ]
    )
    assert replies_apart(format, agent.thread.context(format).messages) == ""
    assert refused(agent.thread, format) == ""


@every_format
@settings(THOROUGH)
@given(journal=journals(*APPENDS))
def test_signed_content_is_never_mixed(format: str, journal: list[Step]) -> None:
    """As the test before, but by what the providers can tell themselves: their signatures."""
    models = {
        "anthropic": anthropic_api.Model(prefill=True),
        "gemini": gemini_api.Model(prefill=True, signatures=False),
    }
    assert refused(play(journal).thread, format, models.get(format)) == ""


# --- calls stay signed -------------------------------------------------------------------------


@settings(THOROUGH)
@given(journal=journals(*ALL))
def test_the_first_call_of_every_step_is_signed(journal: list[Step]) -> None:
    model = gemini_api.Model(prefill=True, mixed=True)
    assert refused(play(journal).thread, "gemini", model) == ""


def test_a_duplicate_call_does_not_lose_the_signature_of_the_next_one() -> None:
    agent = play(
        [
            ("user", "gemini", "Hi."),
            ("reply", "gemini", False, "", ("call_a",), True),
            ("user", "gemini", "Well?"),
            ("reply", "gemini", False, "", ("call_a", "new"), True),
            ("result", "gemini", 0),
            ("result", "gemini", 1),
        ]
    )
    assert refused(agent.thread, "gemini", gemini_api.Model(mixed=True)) == ""


# --- what was sent stays -----------------------------------------------------------------------


def prefix_kept(agent: Agent) -> str:
    """Whether each request that got a reply is the beginning of the context of today.

    Byte for byte, as JSON; only brackets may close later. Requests that got no reply do not
    count: the journal does not know of them.
    """
    for format, messages in agent.sent:
        before = json.dumps(messages).rstrip("]}")
        now = json.dumps(agent.thread.context(format).messages)
        if not now.startswith(before):
            return f"{format}: {before} is not how it begins any more: {now}"
    return ""


def keeps_prefix(agent: Agent) -> None:
    assert prefix_kept(agent) == ""


@every_format
@settings(THOROUGH)
@given(data=st.data())
def test_what_was_sent_stays_a_prefix(format: str, data: st.DataObject) -> None:
    """As long as nothing but appends happened, across interruptions and late results."""
    play(data.draw(journals(*APPENDS, formats=(format,))), after=keeps_prefix)


@every_format
@settings(THOROUGH)
@given(data=st.data())
def test_what_was_to_be_sent_stays_a_prefix(format: str, data: st.DataObject) -> None:
    """Also if the reply is not stored: wherever it was the model's turn, a request may be out."""

    def note(agent: Agent) -> None:
        context = agent.thread.context(format)
        if context.next == "model":
            agent.sent.append((format, context.messages))
        keeps_prefix(agent)

    play(data.draw(journals(*APPENDS, "system", "partial", cut=2)), after=note)


@every_format
def test_what_was_sent_stays_a_prefix_when_nothing_went_wrong(format: str) -> None:
    journal: list[Step] = []
    for _ in range(3):
        journal += [
            ("user", format, "Hi."),
            ("reply", format, True, "I look. ", ("new", "new")),
            ("result", format, 1),
            ("result", format, 0),
            ("reply", format, True, "", ("new",)),
            ("result", format, 0),
            ("reply", format, True, "Done."),
        ]
    agent = play(journal, after=keeps_prefix)
    assert len(agent.sent) == 9


INTERRUPTED: dict[str, list[tuple[Any, ...]]] = {
    "and tried again": [("reply", True, "I try again.", ("new",)), ("result", 0)],
    "and the user speaks": [("user", "Well?"), ("reply", True, "Done.")],
    "and the result comes late": [("reply", True, "I go on."), ("result", 0, "late")],
    "and the result comes late, after the user": [
        ("user", "Well?"),
        ("reply", True, "I go on."),
        ("user", "And?"),
        ("result", 0, "late"),
    ],
}


@pytest.mark.parametrize("name", INTERRUPTED)
@every_format
def test_what_was_sent_stays_a_prefix_when_a_call_was_interrupted(format: str, name: str) -> None:
    begin = [("user", format, "Hi."), ("reply", format, True, "I look.", ("new",))]
    rest = [(step, format, *more) for step, *more in INTERRUPTED[name]]
    play([*begin, *rest], after=keeps_prefix)


# --- a loop that is killed ----------------------------------------------------------------------


class Killed(Exception):
    """The process ended here."""


def run(thread: Thread, format: str, seed: int, appends: int) -> None:
    """An agent's loop that stores every message before it goes on, and is killed after some."""
    left = appends
    provider = PROVIDERS[format](seed, replied=len(thread.path()))  # more than there were: new ids

    def put(message: JSON) -> None:
        nonlocal left
        if not left:
            raise Killed
        left -= 1
        thread.append_message(message, format=format)

    if thread.leaf is None:
        put(loops.user(format, "Hi."))
    while True:
        context = thread.context(format)
        reply = provider.create(loops.request(format, context.messages, context.system))
        for message in loops.messages_of(format, reply):
            put(message)
        calls = loops.calls_of(format, reply)
        if not calls:
            return
        for call in calls:
            for message in loops.results(format, [(call, f"gave {call.id}")]):
                put(message)


def killed_and_resumed(format: str, seed: int, appends: int) -> None:
    """Killed after so many appends, then run again: it asks the model with what is there."""
    thread = clew.open("memory:").create()
    try:
        run(thread, format, seed, appends)
    except Killed:
        pass
    last = thread.path(limit=1)[0]
    thread.append("turn_marker", {"status": "started", "owner": "the next worker"})
    if last.kind == "assistant_message":
        thread.append_message(loops.user(format, "Go on."), format=format)
    run(thread, format, seed, 1000)


@every_format
def test_a_loop_that_was_killed_anywhere_can_go_on(format: str) -> None:
    for seed in range(4):
        for appends in range(1, 12):
            try:
                killed_and_resumed(format, seed, appends)
            except Refused as found:
                raise AssertionError(f"seed {seed}, after {appends} appends: {found}") from found
