"""show, tail, diff and stats: a transcript leaves nothing out without saying so."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from cli_support import Run, say
from hypothesis import given
from hypothesis import strategies as st

import clew
from clew.cli._markdown import rendered
from clew.cli._screen import Screen
from clew.cli._text import cells
from clew.cli.show import draw_transcript
from clew.messages.edits import edit_lines


def shown(thread: clew.Thread, *, width: int | None = 80, full: bool = False) -> str:
    """A transcript as a terminal of that width gets it, without colours; None: as a pipe does."""
    out = io.StringIO()
    draw_transcript(Screen(out, io.StringIO(), width=width), thread, thread.path(), full=full)
    return out.getvalue()


def talk(thread: clew.Thread, *, output: str = "fine", error: bool = False) -> None:
    say(thread, "please")
    use = {"type": "tool_use", "id": "c1", "name": "run", "input": {"command": "ls"}}
    thinking = {"type": "thinking", "thinking": "one\ntwo\nsecret three", "signature": "s"}
    parts = [thinking, {"type": "text", "text": "I **look**."}, use]
    thread.append_message({"role": "assistant", "content": parts}, format="anthropic")
    result = {"type": "tool_result", "tool_use_id": "c1", "content": output, "is_error": error}
    thread.append_message({"role": "user", "content": [result]}, format="anthropic")
    say(thread, "Done.", role="assistant")


def test_a_call_and_its_result_are_one_block(store: clew.Store) -> None:
    thread = store.create()
    talk(thread, output="a.py\nb.py")
    text = shown(thread)
    block = text[text.index("● run") :].split("\n")
    assert block[:3] == ['● run(command="ls")', "   │ a.py", "   │ b.py"]
    assert text.count(" you  ") == 1, "the message that only carried the result is not told again"
    assert "I look." in text, "Markdown is rendered"
    assert "secret three" in text
    assert "thinking, 3 lines" in text


def test_what_a_terminal_gets_shortened_says_how_to_see_it(store: clew.Store) -> None:
    thread = store.create()
    talk(thread, output="\n".join(f"line {n}" for n in range(100)))
    short = shown(thread)
    assert "line 7\n" in short
    assert "line 8\n" not in short
    assert "… 92 more lines, --full shows them" in short
    for whole in (shown(thread, full=True), shown(thread, width=None)):
        assert "line 99\n" in whole
        assert "secret three\n" in whole
        assert "…" not in whole


def test_errors_lost_results_and_orphans_are_told(store: clew.Store) -> None:
    thread = store.create()
    talk(thread, output="no such file", error=True)
    assert "│ error: no such file" in shown(thread)
    use = {"type": "tool_use", "id": "c2", "name": "slow", "input": {}}
    thread.append_message({"role": "assistant", "content": [use]}, format="anthropic")
    assert "└ no result" in shown(thread)
    orphan = store.create()
    result = {"type": "tool_result", "tool_use_id": "gone", "content": "late"}
    orphan.append("tool_result", {"role": "user", "content": [result]}, format="anthropic")
    assert "result of gone" in shown(orphan)
    assert "│ late" in shown(orphan)


def test_other_entries_are_shown_and_bookkeeping_only_when_asked_for(store: clew.Store) -> None:
    thread = store.create()
    with thread.turn(owner="me") as turn:
        turn.append_message({"role": "user", "content": "hello"})
        turn.append("usage", {"input_tokens": 7})
    thread.append("run_failure", {"error": "boom"})
    thread.append("a kind of yours", {"x": 1})
    thread.compact(summary="what was said", keep_turns=1) or thread.append(
        "compaction", {"summary": "S"}
    )
    text, full = shown(thread), shown(thread, full=True)
    assert "boom" in text
    assert 'a kind of yours: {"x":1}' in text
    assert "compaction" in text
    assert "7 tokens in" not in text
    assert "7 tokens in" in full
    assert "completed" in full


def test_a_record_that_is_no_message_is_a_line_until_all_is_asked_for(store: clew.Store) -> None:
    thread = store.create()
    listing = {"type": "attachment", "attachment": {"type": "tools", "names": ["grep"] * 500}}
    thread.append("custom", listing)
    assert "custom: attachment · tools\n" in shown(thread, width=None)
    assert "grep" not in shown(thread)
    assert shown(thread, width=None, full=True).count("grep") == 500


def test_images_are_named_and_their_bytes_are_not_shown(store: clew.Store) -> None:
    thread = store.create()
    source = {"type": "base64", "media_type": "image/png", "data": "aGVsbG8=" * 1000}
    thread.append_message(
        {"role": "user", "content": [{"type": "image", "source": source}]}, format="anthropic"
    )
    for text in (shown(thread), shown(thread, full=True), shown(thread, width=None)):
        assert "[image, image/png, 5.9 KB]" in text
        assert "aGVsbG8" not in text


EDITS: dict[str, tuple[Any, list[str]]] = {
    "claude": (
        {"file_path": "a", "old_string": "x\ny\n", "new_string": "x\nz\n"},
        [" x", "-y", "+z"],
    ),
    "editor": ({"path": "a", "old_str": "y", "new_str": "z"}, ["-y", "+z"]),
    "several": (
        {"edits": [{"old_string": "a", "new_string": "b"}, {"oldText": "c", "newText": "d"}, 7]},
        ["-a", "+b", "-c", "+d"],
    ),
    "patch": (
        {"input": "*** Begin Patch\n-old\n+new\n"},
        ["*** Begin Patch", "-old", "+new"],
    ),
    "new file": ({"path": "a", "content": "one\ntwo\n"}, ["+one", "+two"]),
    "not an edit": ({"content": "just text"}, []),
    "a search": ({"input": "query"}, []),
    "strange": ({"old_string": 7, "new_string": None, "edits": "x"}, []),
    "no object": ([1, 2], []),
}


@pytest.mark.parametrize("case", EDITS)
def test_edits_of_every_shape_become_diffs(case: str) -> None:
    arguments, lines = EDITS[case]
    assert edit_lines(arguments) == lines


def test_colours_mark_what_an_edit_adds_and_removes(store: clew.Store) -> None:
    thread = store.create()
    edit = {"file_path": "a.py", "old_string": "old", "new_string": "new"}
    use = {"type": "tool_use", "id": "c", "name": "Edit", "input": edit}
    thread.append_message({"role": "assistant", "content": [use]}, format="anthropic")
    out = io.StringIO()
    screen = Screen(out, io.StringIO(), width=80, colour=True)
    draw_transcript(screen, thread, thread.path(), full=False)
    assert "\x1b[31m-old\x1b[0m" in out.getvalue()
    assert "\x1b[32m+new\x1b[0m" in out.getvalue()


# --- Markdown ---


@given(st.text(st.characters(codec="utf-8"), max_size=200), st.integers(20, 100))
def test_no_markdown_fails_or_brings_a_control_sequence(text: str, width: int) -> None:
    lines = rendered("# " + text + "\n\n`x`\n\n" + text, width)
    joined = "".join(part for line in lines for part, _ in line)
    assert "\x1b" not in joined
    out = io.StringIO()
    screen = Screen(out, io.StringIO(), width=width, colour=False)
    for line in lines:
        screen.line(*line, fit=False)
    assert "\x1b" not in out.getvalue()


def test_markdown_is_rendered_for_terminals_and_wrapped(store: clew.Store) -> None:
    text = "# Title\n\nSome **bold** and `code` " + "word " * 40 + "\n\n- one\n- two\n"
    text += "\n```python\nx = 1  # why\n```\n\n[a link](http://example.com)\n"
    lines = rendered(text, 40)
    plain = ["".join(part for part, _ in line) for line in lines]
    assert plain[0].strip() == "Title"
    assert max(map(cells, plain)) <= 40
    assert "**" not in "".join(plain)
    assert any("• one" in line for line in plain)
    assert any("x = 1" in line for line in plain)
    assert any("http://example.com" in line for line in plain)
    assert any(style for line in lines for _, style in line)


def test_a_link_in_stored_markdown_is_no_control_sequence(store: clew.Store) -> None:
    thread = store.create()
    say(thread, "[x](http://evil/\x1b]8;;http://worse\x07) `\x1b[2J` **\x9b31m**", role="assistant")
    out = io.StringIO()
    screen = Screen(out, io.StringIO(), width=80, colour=True)
    draw_transcript(screen, thread, thread.path(), full=False)
    without = out.getvalue()
    for code in ("\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[1;32m", "\x1b[1;34m", "\x1b[4;34m"):
        without = without.replace(code, "")
    assert "]8;;" not in without
    assert "\x1b[2J" not in without
    assert "\x9b" not in without


# --- the ways to show a thread ---


def test_the_context_is_the_request_of_the_provider(
    run: Run, store: clew.Store, place: Path
) -> None:
    thread = store.create("t")
    talk(thread)
    use = {"type": "tool_use", "id": "c2", "name": "slow", "input": {}}
    thread.append_message({"role": "assistant", "content": [use]}, format="anthropic")
    say(thread, "never mind")
    for format in (None, "openai-chat", "gemini"):
        words = ["--context"] if format is None else ["--context", format]
        value = json.loads(run("show", place, "t", *words).out)
        context = thread.context(format)
        assert value["messages"] == context.messages
        assert (value["format"], value["tokens"]) == (context.format, context.report.tokens)
        assert len(value["repairs"]) == len(context.report.repairs) > 0
    assert json.loads(run("show", "--context", "t", "--store", place).out)["format"] == "anthropic"
    wrong = run("show", place, "t", "--context", "morse")
    assert (wrong.code, "is no format" in wrong.err) == (2, True)
    out = io.StringIO()
    from clew.cli.show import _show_context

    options = type("O", (), {"context": "", "json": False, "full": False})()
    _show_context(Screen(out, io.StringIO(), width=100), thread, thread.leaf, options)  # type: ignore[arg-type]
    assert "repaired" in out.getvalue()
    assert "%)" in out.getvalue()
    assert "█" in out.getvalue()


def test_raw_gives_the_bodies_as_they_are_stored(run: Run, store: clew.Store, place: Path) -> None:
    body = {"text": "\x1b[31m\u009b\u202e\u2028é\ud800", "n": 2**63, "f": 1.5, "z": None}
    thread = store.create("t")
    thread.append("custom", body)
    thread.append("event", [1, "two"])
    raw = run("show", place, "t", "--raw")
    assert [json.loads(line) for line in raw.lines] == [body, [1, "two"]]
    assert "\x1b" not in raw.out
    entries = [json.loads(line) for line in run("show", place, "t", "--json").lines]
    assert [entry["body"] for entry in entries] == [body, [1, "two"]]
    assert run("show", place, "t", "--raw", "--path").code == 2


def test_an_empty_thread_and_one_before_its_root_are_shown(
    run: Run, store: clew.Store, place: Path
) -> None:
    thread = store.create("t")
    assert "nothing is said yet" in run("show", place, "t").out
    say(thread, "hello")
    thread.move(None)
    assert "nothing is said yet" in run("show", place, "t").out
    assert run("tail", place, "t").out == ""
    assert run("show", place, "t", "--raw").out == ""


# --- diff, tail, stats ---


def test_a_diff_tells_the_common_prefix_and_both_sides(
    run: Run, store: clew.Store, place: Path
) -> None:
    thread = store.create("t")
    shared = say(thread, "shared")
    fork = thread.fork(id="f")
    say(thread, "same")
    say(thread, "ours")
    say(fork, "same")
    say(fork, "theirs")
    lines = run("diff", place, "t", "f").lines
    assert lines[0].startswith(f"the same up to {shared.seq}: ")
    assert [line[:1] for line in lines[4:]] == ["=", "<", ">"]
    value = json.loads(run("diff", place, "t", "f", "--json").out)
    assert value["common"]["id"] == shared.id
    assert [len(value[side]) for side in ("left", "right")] == [2, 2]
    at = json.loads(run("diff", place, f"t:{shared.seq}", "t", "--json").out)
    assert (len(at["left"]), len(at["right"])) == (0, 2)
    assert "no difference" in run("diff", place, "t", "t").out
    say(store.create("a:b"), "other")
    assert "they share no entry" in run("diff", place, "a:b", "t").out
    assert run("diff", place, "t", "nobody").code == 3
    assert run("diff", place, "t", "t:99").code == 3


def test_tail_gives_the_newest(run: Run, store: clew.Store, place: Path) -> None:
    thread = store.create("t")
    for n in range(20):
        say(thread, f"message {n}")
    lines = run("tail", place, "t", "-n", "3").lines
    assert [line.rsplit(" ", 1)[1] for line in lines] == ["17", "18", "19"]
    values = [json.loads(line) for line in run("tail", place, "t", "--json").lines]
    assert len(values) == 10
    assert values[-1]["body"]["content"] == "message 19"


def test_stats_count_by_agent_and_workspace(run: Run, store: clew.Store, place: Path) -> None:
    for n in range(3):
        say(store.create(facts={"agent": "pi"}, workspace=f"/w{n % 2}\x1b[2J"), "hello")
    store.create()
    value = json.loads(run("stats", place, "--json").out)
    assert (value["threads"], value["entries"], value["agent"]) == (4, 3, {"pi": 3, "": 1})
    assert sorted(value["workspace"].values()) == [1, 1, 2]
    text = run("stats", place).out
    assert "by agent" in text
    assert "\x1b" not in text


def broken_off(store: clew.Store) -> clew.Thread:
    """A reply whose stream ended inside of a call, with what the provider said about it."""
    thread = store.create("t")
    say(thread, "please")
    start = {"id": "m", "type": "message", "role": "assistant", "model": "c", "content": []}
    call = {"type": "tool_use", "id": "c1", "name": "run\x1b[2J", "input": {}}
    with (
        pytest.raises(TimeoutError),
        thread.streaming("anthropic", save_seconds=3600) as reply,
    ):
        for event in (
            {"type": "message_start", "message": start},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}},
            delta(0, {"type": "text_delta", "text": "I will"}),
            {"type": "content_block_stop", "index": 0},
            {"type": "content_block_start", "index": 1, "content_block": call},
            delta(1, {"type": "input_json_delta", "partial_json": '{"comm'}),
        ):
            reply.feed(event)
        raise TimeoutError("the line went dead \x1b]0;title\x07")
    return thread


def delta(index: int, given: dict[str, str]) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": given}


def test_a_reply_that_was_broken_off_is_not_shown_as_if_it_were_whole(store: clew.Store) -> None:
    thread = broken_off(store)
    for text in (shown(thread), shown(thread, width=40), shown(thread, width=None)):
        assert "assistant [partial]  " in text
        assert "(broken off: TimeoutError" in text
        assert ", cut off before its" in text
        assert "\x1b" not in text
    say(thread, "go on")
    assert shown(thread).count("[partial]") == 1


def test_partial_replies_are_marked_in_every_list_of_entries(store: clew.Store, run: Run) -> None:
    thread = broken_off(store)
    place = str(store.properties.place)
    for command in (("tail",), ("tree",), ("show",), ("show", "--path")):
        out = run(*command, place, "t").out
        assert out.count("[partial") == 1, command
    values = [json.loads(line) for line in run("show", place, "t", "--json").out.splitlines()]
    told = {value["kind"]: value["partial"] for value in values if "kind" in value}
    assert told["user_message"] is None
    assert told["assistant_message"].startswith("TimeoutError: the line went dead")
    assert thread.path()[1].meta["partial"] == told["assistant_message"]
