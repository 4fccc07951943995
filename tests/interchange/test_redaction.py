"""Secrets do not leave a store by accident; what is no secret stays as it is."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from damage import spoil
from hypothesis import given
from hypothesis import strategies as st

import clew
from clew.cli import main
from clew.core.errors import Unsupported
from clew.interchange.export import FORMS, export, start
from clew.interchange.redaction import rules
from clew.interchange.redaction.redactor import Redactor, Replaced
from clew.interchange.redaction.rules import OVERLAP_BYTES, PIECE_BYTES, matcher, read_table
from clew.store import Store

# None of these was ever a key of anybody.
AWS = "AKIA" + "Z7Q2XJ5LKDN3PQRS"
GITHUB = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
PRIVATE = (
    "-----BEGIN RSA " + "PRIVATE KEY-----\n" + "MIIEpAIBAAKCAQEA7Zq\n" * 20 + "-----END RSA "
    "PRIVATE KEY-----"
)
HEX = "9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c"
PASSWORD = "Xk92!fjs8Qz"
SECRETS = [AWS, GITHUB, PRIVATE, HEX, PASSWORD]


def redact(value: Any, **options: Any) -> Any:
    return Redactor(**options).value(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"it is {AWS}, and {AWS}", "aws-access-token"),
        (f"export GH={GITHUB}\n", "github-pat"),
        (f"cat id_rsa\n{PRIVATE}\n", "private-key"),
        (f'api_key = "{HEX}"', "generic-api-key"),
        ("postgres://me:hunter22@db.example/x", "url-password"),
        (f'password: "{PASSWORD}"', "password"),
    ],
)
def test_a_secret_in_a_text_is_replaced_by_the_name_of_its_rule(text: str, expected: str) -> None:
    made = redact(text)
    assert f"[redacted: {expected} 1]" in made
    assert not any(secret in made for secret in [*SECRETS, "hunter22"])


@pytest.mark.parametrize(
    "text",
    [
        "the api key is in the keychain, the token expires in 3600 s",
        "aws_access_key_id = AKIAIOSFODNN7EXAMPLE",
        "https://user:password@example.com",
        "git commit 3b18e512dba79e4c8300dd08aeb37f8e728b8dad",
        "password = ${DB_PASSWORD}",
    ],
)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert redact(text) is text


def test_one_secret_has_one_number() -> None:
    other = "ghp_" + "a6C7e42F292c6912E7710c838347Ae178B4b"
    redactor = Redactor()
    assert redactor.value([GITHUB, other, GITHUB]) == [
        "[redacted: github-pat 1]",
        "[redacted: github-pat 2]",
        "[redacted: github-pat 1]",
    ]
    assert redactor.value({"a": other}) == {"a": "[redacted: github-pat 2]"}
    assert Redactor(numbered=False).value(GITHUB) == "[redacted: github-pat]"


def test_the_key_that_a_value_stands_under_tells_what_it_is() -> None:
    given = {"input": {"api_key": HEX, "password": PASSWORD, "path": "/etc/hosts", "n": 1}}
    assert redact(given) == {
        "input": {
            "api_key": "[redacted: generic-api-key 1]",
            "password": "[redacted: password 1]",
            "path": "/etc/hosts",
            "n": 1,
        }
    }


def test_arguments_that_are_json_in_a_text_stay_json() -> None:
    made = redact({"arguments": json.dumps({"token": GITHUB, "q": 'say "hi"', "ü": 1})})
    assert json.loads(made["arguments"]) == {
        "token": "[redacted: github-pat 1]",
        "q": 'say "hi"',
        "ü": 1,
    }
    nested = json.dumps({"output": json.dumps({"api_key": HEX})})
    assert HEX not in redact({"output": nested})["output"]


def test_ids_signatures_and_pictures_are_not_touched() -> None:
    data = base64.b64encode(f"{AWS} {GITHUB}".encode() * 200).decode()
    kept = {
        "id": GITHUB,
        "tool_use_id": AWS,
        "parentUuid": AWS,
        "signature": f"token={HEX}",
        "encrypted_content": f"secret={HEX}",
        "body_hash": f"key={HEX}",
        "source": {"type": "base64", "media_type": "image/png", "data": AWS},
        "image_url": {"url": f"data:image/png;base64,{data}{AWS}"},
        "thinking": {"type": "redacted_thinking", "data": AWS},
    }
    assert redact(kept) is kept
    # Yet in what a tool was given, every name is the user's own.
    assert AWS not in json.dumps(redact({"input": {"id": AWS, "data": AWS}}))
    assert AWS not in json.dumps(redact({"aws_access_key_id": AWS}))


def test_each_place_is_told_once_and_never_the_secret() -> None:
    told: list[Replaced] = []
    redactor = Redactor(tell=told.append)
    body = {"content": [{"type": "text", "text": f"{AWS} {AWS}"}, {"input": {"key": GITHUB}}]}
    for _ in range(2):
        redactor.value(body, "e1", "body")
    assert told == [
        Replaced("aws-access-token", "e1", "body.content[0].text"),
        Replaced("github-pat", "e1", "body.content[1].input.key"),
    ]


def test_a_secret_across_two_pieces_of_a_long_text_is_found() -> None:
    for place in (PIECE_BYTES - 10, PIECE_BYTES, PIECE_BYTES + OVERLAP_BYTES - 5, 3 * PIECE_BYTES):
        text = "é " * (place // 3) + f" {AWS} " + "x " * PIECE_BYTES
        made = redact(text)
        assert AWS not in made
        assert made.count("[redacted") == 1
        assert made.endswith("x ")


def test_entropy_is_an_option() -> None:
    text = "it said q8Zr2LxV0nTfW7yKpB3mJdHsGc4EaU1o"
    assert redact(text) is text
    assert "[redacted: high-entropy 1]" in redact(text, entropy=True)


@given(
    st.recursive(
        st.text() | st.integers() | st.none() | st.booleans(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    )
)
def test_what_has_no_secret_is_the_same_value(value: Any) -> None:
    assert redact(value) == value


@given(st.text(), st.text())
def test_a_secret_is_found_in_any_surroundings(before: str, after: str) -> None:
    made = redact({"content": f"{before} {AWS} {after}"})
    assert AWS not in made["content"]


def test_every_keyword_of_every_rule_is_noticed() -> None:
    """What looks for all of them at once must not forget one, however many there are."""
    found = matcher()
    words = {word: rule.id for rule in read_table().rules for word in rule.keywords}
    everything = " ".join(words).upper().encode()
    names = {found._rules[n].id for n in found._candidates(everything)}
    assert {rule.id for rule in read_table().rules} <= names
    for word in words:
        assert found._candidates(word.encode()), word


def test_the_table_says_where_it_is_from() -> None:
    table = read_table()
    assert table.source.startswith("gitleaks ")
    assert len(table.date) == 10
    assert len(table.rules) > 200
    assert "MIT" in (Path(rules.__file__).parent / "rules.LICENSE").read_text()


# --- threads --------------------------------------------------------------------------------


def fill(store: Store, id: str = "t") -> clew.Thread:
    thread = store.create(id, title=f"Use {GITHUB}", facts={"note": {"api_key": HEX}})
    first = thread.append_message({"role": "user", "content": f"my key is {AWS}"})
    use = {"type": "tool_use", "id": "c1", "name": "bash", "input": {"password": PASSWORD}}
    thread.append_message({"role": "assistant", "content": [use]}, format="anthropic")
    result = {"type": "tool_result", "tool_use_id": "c1", "content": f"ok\n{PRIVATE}"}
    thread.append_message({"role": "user", "content": [result]}, format="anthropic")
    thread.append_message({"role": "assistant", "content": f"I keep {AWS} to myself"})
    thread.append("custom", {"env": {"API_KEY": HEX}}, meta={"token": GITHUB})
    thread.label(first.id, f"with {AWS}")
    return thread


@pytest.mark.parametrize("form", FORMS)
def test_no_form_of_an_export_has_a_secret(store: Store, form: str, tmp_path: Path) -> None:
    thread = fill(store)
    done = export(thread, tmp_path / "out", form, redact=True)
    text = done.path.read_text()
    assert "[redacted: " in text
    for secret in SECRETS:
        assert secret not in text
        assert json.dumps(secret)[1:-1] not in text
        assert not any(secret in change.text for change in done.changes)
    assert {change.name for change in done.changes} >= {"secret"}
    assert done.size == len(text.encode())


def test_a_bundle_without_secrets_leaves_out_the_blobs_that_have_one(
    store: Store, tmp_path: Path
) -> None:
    thread = store.create("t")
    blobs = [store.blobs.put(f"key = {AWS}".encode()), store.blobs.put(b"harmless")]
    thread.append("event", "with blobs", blobs=blobs)
    done = export(thread, tmp_path / "out", "bundle", redact=True)
    text = done.path.read_text()
    assert AWS not in text
    assert "harmless" in text
    assert [change.name for change in done.changes] == ["secret", "blob"]


def test_forms_for_people_are_redacted_unless_one_says_otherwise(store: Store) -> None:
    thread = fill(store)
    for name in ("clew", *(name for name, form in FORMS.items() if form.is_for_people)):
        text = b"".join(start(thread, name)[1]).decode()
        assert (AWS in text) is (name == "clew")
        assert AWS in b"".join(start(thread, name, redact=False)[1]).decode()


def test_lines_without_secrets_are_a_thread_that_verifies(store: Store, tmp_path: Path) -> None:
    thread = fill(store, "lines")
    clew.open(f"files:{tmp_path}/to").close()
    export(thread, tmp_path / "to" / "threads" / "lines.jsonl", redact=True)
    with clew.open(f"files:{tmp_path}/to") as other:
        assert other.verify() == []
        assert [e.id for e in other.get("lines").path()] == [e.id for e in thread.path()]
        assert "[redacted" in str(other.get("lines").path()[0].body)
    assert AWS in str(thread.path()[0].body), "the store itself keeps what it has"


def test_the_counts_of_the_store_are_not_those_of_a_clean_copy(store: Store) -> None:
    thread = fill(store)
    thread.append("usage", {"model": "m", "input_tokens": 10, "output_tokens": 1})
    thread.set(workspace=f"/home/{GITHUB}")
    b"".join(start(thread, "markdown")[1])
    rows = store.usage(by="workspace").rows
    assert [row.key for row in rows if row.used.replies] == [f"/home/{GITHUB}"]


def test_a_missing_matcher_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    matcher.cache_clear()
    with pytest.raises(Unsupported, match=r"clew\[redact\]"):
        start(fill(store), "markdown")
    start(store.get("t"), "markdown", redact=False)


# --- the command ----------------------------------------------------------------------------


def test_the_command_says_what_it_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with clew.open(tmp_path / "a.db") as store:
        fill(store)
    place = str(tmp_path / "a.db")
    out = tmp_path / "a.md"
    assert main(["export", place, "t", "--as", "markdown", "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {"secret"} == {one["name"] for one in told["changes"]}
    assert any(one["text"] == "aws-access-token at body.content" for one in told["changes"])
    assert main(["export", place, "t", "--as", "markdown", "--out", "-"]) == 0
    printed = capsys.readouterr()
    assert AWS not in printed.out
    assert "replaced " in printed.err
    assert main(["export", place, "t", "--as", "markdown", "--no-redact", "--out", "-"]) == 0
    assert AWS in capsys.readouterr().out
    assert main(["export", place, "t", "--redact", "--out", "-"]) == 0
    assert AWS not in capsys.readouterr().out


# --- import ---------------------------------------------------------------------------------


def session(path: Path, *texts: str) -> None:
    with path.open("a") as file:
        for text in texts:
            file.write(json.dumps({"role": "user", "content": text}) + "\n")


def test_an_import_can_keep_secrets_out_of_the_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, place = tmp_path / "s.jsonl", str(tmp_path / "a.db")
    session(file, f"use {GITHUB} please", "and go on")
    command = ["import", str(file), "--store", place, "--redact-at-import"]
    assert main(command) == 0
    assert "replaced " in capsys.readouterr().out
    session(file, f"again {GITHUB}")
    assert main(command) == 0
    file.write_text(file.read_text() + "\n")
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["files"][0]["entries"] == 0
    with clew.open(place) as store:
        thread = store.get(next(iter(store.threads())).id)
        said = [entry.body["content"] for entry in thread.path()]
        assert said == [
            "use [redacted: github-pat] please",
            "and go on",
            "again [redacted: github-pat]",
        ]
        assert GITHUB not in str(thread.facts)
    assert not any(GITHUB.encode() in one.read_bytes() for one in tmp_path.glob("a.db*"))


def test_a_file_that_is_read_from_its_beginning_again_brings_nothing_twice(tmp_path: Path) -> None:
    from clew.interchange.intake import Intake

    file = tmp_path / "s.jsonl"
    session(file, f"use {GITHUB} please", "more")
    with clew.open("memory:") as store:
        first = Intake(store, redact=True).bring(file)[0]
        file.write_bytes(file.read_bytes().replace(b'"more"', b'"less"'))
        second = Intake(store, redact=True).bring(file)[0]
        assert (first.entries, second.entries, second.known) == (2, 1, 1)
        assert first.is_whole
        assert first.notes["redacted"] == 1


@pytest.mark.parametrize("form", ["clew", "bundle", "markdown", "html"])
def test_a_secret_in_a_damaged_entry_does_not_get_out_either(tmp_path: Path, form: str) -> None:
    with clew.open(tmp_path / "a.db") as store:
        thread = store.create("t")
        bad = thread.append_message({"role": "user", "content": "before it was damaged"})
        spoil(tmp_path / "a.db", bad.id, b'{"content":"\xff' + GITHUB.encode())
        writing, pieces = start(thread, form, redact=True)
        assert GITHUB.encode() not in b"".join(pieces)
    assert "secret" in [change.name for change in writing.changes]
