"""Sessions that an agent refuses: what is wrong is named, and the copy is one that goes on."""

from __future__ import annotations

import base64
import json
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from handovers import PIXEL, bring
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import SAMPLES, needs_samples, sample_files, write_lines

import clew
from clew.core.errors import AlreadyExists, InvalidInput
from clew.interchange.mend import AGENTS, Mended, mend
from clew.interchange.mend.content import sides

Record = dict[str, Any]
ID = "00000000-0000-4000-8000-00000000000{}"


@pytest.fixture
def store() -> Iterator[clew.Store]:
    with clew.open("memory:") as opened:
        yield opened


def mended(path: Path, **options: Any) -> tuple[Mended, list[Record]]:
    """A file, mended. It is as it was, and the copy has no fault any more."""
    before = path.read_bytes()
    out = path.parent / "copy" / path.name
    out.parent.mkdir(exist_ok=True)
    done = mend(path, out, **options)
    assert path.read_bytes() == before
    assert mend(out, **options).findings == []
    return done, [json.loads(line) for line in out.read_text("utf-8").splitlines()]


def names(done: Mended) -> list[str]:
    return [finding.name for finding in done.findings]


# --- Claude Code ---


def user(n: int, content: Any, parent: int | None = None, **more: Any) -> Record:
    return _record(n, "user", {"role": "user", "content": content}, parent, more)


def reply(n: int, *blocks: Record, parent: int | None = None, **more: Any) -> Record:
    message = {"role": "assistant", "id": f"msg_{n}", "model": "m", "content": list(blocks)}
    return _record(n, "assistant", message, parent, more)


def _record(n: int, kind: str, message: Record, parent: int | None, more: Record) -> Record:
    before = n - 1 if parent is None else parent
    return {
        "type": kind,
        "uuid": ID.format(n),
        "parentUuid": ID.format(before) if before else None,
        "sessionId": ID.format(0),
        "timestamp": f"2026-01-01T00:00:0{n}.000Z",
        "cwd": "/w",
        "message": message,
        **more,
    }


def call(id: str = "toolu_1") -> Record:
    return {"type": "tool_use", "id": id, "name": "Bash", "input": {}}


def result(id: str = "toolu_1", said: Any = "done") -> Record:
    return {"type": "tool_result", "tool_use_id": id, "content": said}


def text(words: str = "Hello.") -> Record:
    return {"type": "text", "text": words}


def image(data: str = PIXEL, mime: str = "image/png") -> Record:
    return {"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}}


def png(width: int, height: int) -> str:
    raw = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + struct.pack(">II", width, height) + b"\0" * 9
    return base64.b64encode(raw).decode("ascii")


def claude(folder: Path, *records: Record) -> Path:
    return write_lines(folder / f"{ID.format(0)}.jsonl", records)


def api_error(n: int, words: str) -> Record:
    return reply(n, text(words), isApiErrorMessage=True)


CALLS = [user(1, "a"), reply(2, call()), user(3, [result()])]
FAULTS = [
    ("open_call", [user(1, "a"), reply(2, call()), user(3, "b")]),
    ("orphan_result", [user(1, "a"), user(2, [result()]), reply(3, text())]),
    ("duplicate_result", [*CALLS, user(4, [result()])]),
    ("empty_text", [user(1, "a"), reply(2, text(" "), text())]),
    ("empty_text", [user(1, ""), reply(2, text())]),
    ("image", [user(1, [text(), image("A" * (5 * 1024 * 1024 + 4))])]),
    ("image", [user(1, [text(), image(png(8001, 20))])]),
    ("image", [user(1, [text(), image("bm90IGEgcGljdHVyZQ==")])]),
    ("image", [user(1, "a"), reply(2, call()), user(3, [result(said=[image(png(9000, 2))])])]),
    ("image_type", [user(1, [text(), image(mime="image/jpeg")])]),
    ("thinking", [user(1, "a"), reply(2, {"type": "thinking", "thinking": "x"}, text())]),
    ("thinking", [user(1, "a"), reply(2, {"type": "thinking", "thinking": "x", "signature": "s"})]),
    ("duplicate_id", [user(1, "a"), reply(2, text()), reply(2, text("Other."))]),
    ("dangling_parent", [user(1, "a"), reply(2, text()), user(3, "b", parent=7)]),
    ("loop", [user(1, "a", parent=1), reply(2, text())]),
    ("loop", [user(1, "a", parent=3), reply(2, text()), user(3, "b")]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "records"), FAULTS)
def test_each_fault_of_a_claude_session_is_found_and_gone(
    name: str, records: list[Record], store: clew.Store, tmp_path: Path
) -> None:
    done, copy = mended(claude(tmp_path, *records))
    assert set(names(done)) == {name}
    assert done.agent == "claude-code"
    thread = store.get(bring(store, claude(tmp_path / "new", *copy)).thread or "")
    context = thread.context("anthropic")
    assert clew.messages.validate("anthropic", context.messages) == []
    # Nothing had to be repaired on the way: the file itself is good.
    assert {repair.code for repair in context.report.repairs} <= {"user_added"}


def test_an_open_call_is_answered_right_behind_it(tmp_path: Path) -> None:
    records = [user(1, "a"), reply(2, call("toolu_1")), user(3, "b"), reply(4, text())]
    _, copy = mended(claude(tmp_path, *records))
    assert [record["type"] for record in copy] == ["user", "assistant", "user", "user", "assistant"]
    answer = copy[2]
    assert answer["message"]["content"][0]["tool_use_id"] == "toolu_1"
    assert answer["message"]["content"][0]["is_error"] is True
    assert (answer["parentUuid"], copy[3]["parentUuid"]) == (copy[1]["uuid"], answer["uuid"])
    assert answer["sessionId"] == records[0]["sessionId"]


def test_parallel_calls_with_their_results_are_left_as_they_are(tmp_path: Path) -> None:
    records = [
        user(1, "a"),
        reply(2, call("toolu_1")),
        _record(3, "assistant", {**reply(2)["message"], "content": [call("toolu_2")]}, None, {}),
        user(4, [result("toolu_1")], parent=2),
        user(5, [result("toolu_2")], parent=3),
        reply(6, text()),
    ]  # fmt: skip
    done, copy = mended(claude(tmp_path, *records))
    assert done.findings == []
    assert copy == records


def test_two_calls_of_one_id_get_two_ids_with_their_results(tmp_path: Path) -> None:
    records = [*CALLS, reply(4, call()), user(5, [result()])]
    done, copy = mended(claude(tmp_path, *records))
    assert names(done) == ["duplicate_call"]
    new = copy[3]["message"]["content"][0]["id"]
    assert new != "toolu_1"
    assert copy[2]["message"]["content"][0]["tool_use_id"] == "toolu_1"
    assert copy[4]["message"]["content"][0]["tool_use_id"] == new


def test_many_images_must_be_smaller_than_one(tmp_path: Path) -> None:
    large = user(1, [text(), image(png(3000, 10))])
    assert mended(claude(tmp_path, large))[0].findings == []
    many = user(1, [text(), *[image()] * 21, image(png(3000, 10))])
    done, copy = mended(claude(tmp_path / "many", many))
    assert names(done) == ["image"]
    assert "3,000" in copy[0]["message"]["content"][-1]["text"]


def test_what_the_api_refused_last_goes_even_if_no_fault_can_be_seen(tmp_path: Path) -> None:
    thinking = {"type": "thinking", "thinking": "x", "signature": "signed"}
    records = [user(1, [text(), image()]), reply(2, thinking, text()), user(3, "b")]
    assert mended(claude(tmp_path / "0", *records))[0].findings == []
    told = "API Error: 400 messages.5.content.1: `thinking` or `redacted_thinking` blocks in"
    done, copy = mended(claude(tmp_path / "1", *records, api_error(4, told)))
    assert names(done) == ["thinking"]
    assert copy[1]["message"]["content"] == [text()]
    told = (
        "API Error: 400 At least one of the image dimensions exceed max allowed size: 8000 pixels"
    )
    assert names(mended(claude(tmp_path / "2", *records, api_error(4, told)))[0]) == ["image"]
    gone = [*records, api_error(4, told), user(5, "c"), reply(6, text())]
    assert mended(claude(tmp_path / "3", *gone))[0].findings == []  # it was answered since


def test_all_thinking_goes_if_that_is_wanted(tmp_path: Path) -> None:
    thinking = {"type": "thinking", "thinking": "x", "signature": "signed"}
    path = claude(tmp_path, user(1, "a"), reply(2, thinking, text()))
    assert mend(path).findings == []
    done, copy = mended(path, without_thinking=True)
    assert names(done) == ["thinking"]
    assert copy[1]["message"]["content"] == [text()]


def test_torn_and_glued_lines_are_put_right(tmp_path: Path) -> None:
    path = claude(tmp_path, user(1, "a"))
    whole = [json.dumps(record) for record in (reply(2, text()), user(3, "b"))]
    with path.open("a") as file:
        file.write("".join(whole) + "\nrubbish\n" + whole[0][:40])
    done, copy = mended(path)
    assert names(done) == ["glued", "not_json", "torn"]
    assert [finding.line for finding in done.findings] == [2, 3, 4]
    assert [record["uuid"] for record in copy] == [ID.format(n) for n in (1, 2, 3)]


# --- Codex ---


def item(**payload: Any) -> Record:
    return {"timestamp": "2026-01-01T00:00:00Z", "type": "response_item", "payload": payload}


def said(role: str, words: str) -> Record:
    kind = "output_text" if role == "assistant" else "input_text"
    return item(type="message", role=role, content=[{"type": kind, "text": words}])


META = {
    "timestamp": "2026-01-01T00:00:00Z",
    "type": "session_meta",
    "payload": {"id": ID.format(0), "cwd": "/w", "timestamp": "2026-01-01T00:00:00Z"},
}
FUNCTION = item(type="function_call", name="shell", arguments="{}", call_id="call_1")
NAMED = {**said("user", "a"), "payload": {**said("user", "a")["payload"], "id": "msg_1"}}
OUTPUT = item(type="function_call_output", call_id="call_1", output="done")


def codex(folder: Path, *records: Record) -> Path:
    return write_lines(folder / f"rollout-2026-01-01T00-00-00-{ID.format(0)}.jsonl", records)


@pytest.mark.parametrize(("name", "records"), [
    ("open_call", [META, said("user", "a"), FUNCTION, said("user", "b")]),
    ("orphan_result", [META, said("user", "a"), OUTPUT, said("assistant", "b")]),
    ("duplicate_result", [META, said("user", "a"), FUNCTION, OUTPUT, OUTPUT]),
    ("duplicate_id", [META, NAMED, NAMED]),
    ("image", [META, item(type="message", role="user", content=[
        {"type": "input_image", "image_url": "data:image/png;base64,REDACTED!"}])]),
    ("header", [said("user", "a"), META]),
    ("header", [said("user", "a"), said("assistant", "b")]),
])  # fmt: skip
def test_each_fault_of_a_rollout_is_found_and_gone(
    name: str, records: list[Record], store: clew.Store, tmp_path: Path
) -> None:
    done, copy = mended(codex(tmp_path, *records))
    assert names(done) == [name]
    assert copy[0]["type"] == "session_meta"
    assert not any(key.startswith("#") for record in copy for key in record)
    thread = store.get(bring(store, codex(tmp_path / "new", *copy)).thread or "")
    assert clew.messages.validate("openai-responses", thread.context().messages) == []


# --- pi ---


def pi(folder: Path, *messages: Record) -> Path:
    header = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-01T00:00:00Z"}
    lines = [
        {"type": "message", "id": f"{n:08}", "parentId": f"{n - 1:08}" if n > 1 else None,
         "timestamp": "2026-01-01T00:00:00Z", "message": message}
        for n, message in enumerate(messages, 1)
    ]  # fmt: skip
    return write_lines(folder / "2026_s.jsonl", [{**header, "cwd": "/w"}, *lines])


ASKED: Record = {"role": "user", "content": "a", "timestamp": 1}
CALLED: Record = {
    "role": "assistant", "api": "openai-completions", "provider": "p", "model": "m",
    "content": [{"type": "toolCall", "id": "c1", "name": "bash", "arguments": {}}],
    "stopReason": "toolUse", "timestamp": 1,
}  # fmt: skip
GIVEN: Record = {
    "role": "toolResult", "toolCallId": "c1", "toolName": "bash",
    "content": [{"type": "text", "text": "x"}], "isError": False, "timestamp": 1,
}  # fmt: skip


@pytest.mark.parametrize(("name", "messages"), [
    ("open_call", [ASKED, CALLED, ASKED]),
    ("orphan_result", [ASKED, GIVEN]),
    ("orphan_result", [ASKED, {**CALLED, "stopReason": "error"}, GIVEN, ASKED]),
    ("duplicate_result", [ASKED, CALLED, GIVEN, GIVEN]),
    ("empty_text", [{**ASKED, "content": [{"type": "text", "text": ""}]}]),
    ("image", [{**ASKED, "content": [
        {"type": "image", "mimeType": "image/png", "data": png(9000, 9)}]}]),
])  # fmt: skip
def test_each_fault_of_a_pi_session_is_found_and_gone(
    name: str, messages: list[Record], store: clew.Store, tmp_path: Path
) -> None:
    done, copy = mended(pi(tmp_path, *messages))
    assert names(done) == [name]
    (tmp_path / "new").mkdir()
    thread = store.get(bring(store, write_lines(tmp_path / "new/2026_s.jsonl", copy)).thread or "")
    assert clew.messages.validate("anthropic", thread.context("anthropic").messages) == []


def test_one_more_header_in_the_middle_of_a_pi_session_goes(tmp_path: Path) -> None:
    path = pi(tmp_path, ASKED)
    header = path.read_text("utf-8").splitlines()[0]
    path.write_text(path.read_text("utf-8") + header + "\n", "utf-8")
    done, copy = mended(path)
    assert names(done) == ["header"]
    assert [record["type"] for record in copy] == ["session", "message"]


# --- all of them ---


def test_what_is_no_session_or_is_there_already_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text('{"a":1}\n')
    with pytest.raises(InvalidInput, match="claude-code, codex, pi can be mended"):
        mend(other)
    path = claude(tmp_path, user(1, "a"))
    with pytest.raises(AlreadyExists):
        mend(path, other)
    assert other.read_text() == '{"a":1}\n'


@pytest.mark.parametrize(("raw", "wanted"), [
    (base64.b64decode(png(640, 480)), (640, 480)),
    (b"GIF89a" + struct.pack("<HH", 640, 480), (640, 480)),
    (b"\xff\xd8\xff\xe0\x00\x04\x00\x00\xff\xc0\x00\x11\x08" + struct.pack(">HH", 480, 640)
     + b"\0" * 9, (640, 480)),
    (b"RIFF\0\0\0\0WEBPVP8X" + b"\0" * 8 + b"\x7f\x02\x00\xdf\x01\x00", (640, 480)),
    (b"RIFF\0\0\0\0WEBPVP8 " + b"\0" * 10 + struct.pack("<HH", 640, 480), (640, 480)),
    (b"\x89PNG\r\n\x1a\n", (0, 0)),
    (b"\xff\xd8\xff", (0, 0)),
])  # fmt: skip
def test_the_sides_of_a_picture_are_seen_in_its_bytes(raw: bytes, wanted: tuple[int, int]) -> None:
    assert sides(raw) == wanted


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), faults=st.integers(1, 6))
def test_however_a_claude_session_was_broken_its_copy_is_whole(
    seed: int, faults: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chance = random.Random(seed)
    records = [user(1, "a"), reply(2, call("t1")), user(3, [result("t1")]), reply(4, call("t2")),
               user(5, [result("t2")]), reply(6, text()), user(7, "b")]  # fmt: skip
    for _ in range(faults):
        place = chance.randrange(len(records))
        match chance.randrange(4):
            case 0 if len(records) > 2:
                del records[place]
            case 1:
                records.insert(chance.randrange(len(records)), records[place])
            case 2:
                other = chance.choice(records)["uuid"]
                records[place] = {**records[place], "parentUuid": other}
            case _:
                message = {**records[place]["message"], "content": [text("")]}
                records[place] = {**records[place], "message": message}
    folder = tmp_path_factory.mktemp("broken")
    _, copy = mended(claude(folder, *records))
    with clew.open("memory:") as store:
        thread = store.get(bring(store, claude(folder / "new", *copy)).thread or "")
        context = thread.context("anthropic")
        assert clew.messages.validate("anthropic", context.messages) == []


@needs_samples
def test_real_sessions_are_mended_for_good(tmp_path: Path) -> None:
    folders = [path.name for path in SAMPLES.iterdir() if path.is_dir()]
    done = 0
    for file in sample_files(*folders):
        if file.suffix != ".jsonl":
            continue
        out = tmp_path / str(done) / file.name
        out.parent.mkdir()
        try:
            found = mend(file, out)
        except InvalidInput:
            out.parent.rmdir()
            continue
        done += 1
        left = mend(out).findings if found.records else []
        assert [one for one in left if one.name != "header"] == [], file
    assert done > 100
    assert set(AGENTS) == {"claude-code", "codex", "pi"}
