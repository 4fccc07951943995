"""Manners: the store is the one that was named, errors are data when asked for, help is there."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest
from cli_support import Run, say

import clew
from clew.cli import COMMANDS, _arguments
from clew.cli._screen import pager_command
from clew.cli.help import _TEXTS

# --- which store ---


def test_every_way_to_name_a_store_leads_to_it(
    run: Run, store: clew.Store, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(store.create("t", title="Here"), "hello")
    other = tmp_path / "other.db"
    with clew.open(other) as there:
        there.create("t", title="There")
    for named in (["list", place], ["list", "--store", place], ["--no-color", "list", place]):
        assert "Here" in run(*named).out
    assert "Here" in run("show", "t", "--store", place).out
    assert "Here" in run("show", "--store", place, "t").out
    monkeypatch.setenv("CLEW_STORE", str(place))
    assert "Here" in run("list").out
    assert "Here" in run("show", "t").out
    assert "There" in run("list", other).out, "a store that is named comes before the environment"
    assert "There" in run("list", "--store", other).out
    assert "There" in run("show", other, "t").out
    twice = run("list", place, "--store", other)
    assert twice.code == 2
    assert "named twice" in twice.err
    monkeypatch.setenv("CLEW_STORE", "")
    assert run("list").code == 2, "an empty one says nothing"


def test_a_forgotten_thread_is_told_also_with_a_store_in_the_environment(
    run: Run, store: clew.Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEW_STORE", str(place))
    assert "say which thread of it" in run("show", place).err


@pytest.mark.parametrize("order", ["updated", "created"])
def test_pages_of_a_list_have_every_thread_once(
    run: Run, store: clew.Store, place: Path, order: str
) -> None:
    names = {f"t{n}" for n in range(7)}
    for name in sorted(names):
        store.create(name)
    options: list[str] = []
    seen: list[str] = []
    while len(seen) < 20:
        page = run("list", place, "--json", "--order", order, "--limit", 2, *options)
        seen += [json.loads(line)["id"] for line in page.lines]
        if "--cursor" not in page.err:
            break
        options = ["--cursor", page.err.split("--cursor ")[1].strip()]
    assert sorted(seen) == sorted(names)
    assert run("list", place, "--cursor", "no page gave this").code == 2


def test_fields_leave_what_was_asked_for(run: Run, store: clew.Store, place: Path) -> None:
    store.create("t", title="Here")
    found = run("list", place, "--json", "--fields", "title,id,colour")
    assert json.loads(found.out) == {
        "schema_version": 1,
        "title": "Here",
        "id": "t",
        "colour": None,
    }
    assert "--json" in run("list", place, "--fields", "id").err, "there are none to choose among"


def all_commands() -> list[str]:
    names = []
    for name in COMMANDS:
        module = import_module(f"clew.cli.{name}")
        below = getattr(module, "COMMANDS", None)
        names += [name] if below is None else [f"{name} {inner}" for inner in below]
    return names


PRINT_NO_DATA = {"demo", "completion", "help", "mcp", "serve", "view", "watch"}
NAME_THEIR_STORES = {"copy", "mend"}  # one has two, the other none


@pytest.mark.parametrize("name", all_commands())
def test_no_command_lacks_json_or_a_way_to_name_the_store(name: str) -> None:
    module = import_module(f"clew.cli.{name.replace(' ', '.')}")
    options = _arguments.command_parser(name, module)._option_string_actions
    assert "--json" in options or name in PRINT_NO_DATA
    assert "--store" in options or name in PRINT_NO_DATA | NAME_THEIR_STORES


def test_the_help_names_the_commands_that_take_no_store_first() -> None:
    without = set()
    for name in all_commands():
        module = import_module(f"clew.cli.{name.replace(' ', '.')}")
        named = {action.dest for action in _arguments.command_parser(name, module)._actions}
        if "store_option" in named and "store" not in named:
            without.add(name)
    told = (
        " ".join(_TEXTS["stores"].split()).partition("CLEW_STORE. In ")[2].partition(" other ")[0]
    )
    assert set(re.findall(r"\w+", told)) - {"and"} == without


def test_a_workspace_is_the_folder_that_is_meant(
    run: Run, store: clew.Store, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "app"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    say(store.create("here", workspace=str(folder)), "hello")
    store.create("named", workspace="app")
    for meant in (".", "./", "../app", "~/app", folder, f"{folder}/"):
        for command in ("list", "usage", "search"):
            options = ["--store", place, "--workspace", meant, "--json"]
            found = run(command, *(["hello"] if command == "search" else []), *options)
            assert found.code == 0
            if command != "usage":
                assert '"here"' in found.out, (command, meant)
                assert '"named"' not in found.out
    assert json.loads(run("list", place, "--workspace", "app", "--json").out)["id"] == "named"
    run("new", place, "--id", "new", "--workspace", ".")
    assert store.get("new").info.workspace == str(folder)


def test_the_fields_of_an_example_for_jq_are_there(
    run: Run, store: clew.Store, place: Path
) -> None:
    store.create("t", title="Here", tags=["bug"])
    told = re.search(r"select\(\.([a-z.]+) \|", _TEXTS["json"])
    assert told is not None
    value = json.loads(run("list", place, "--json").out)
    for name in told[1].split("."):
        value = value.get(name, {})
    assert value == ["bug"]


# --- threads and entries by name ---


def test_threads_are_found_by_when_they_were_used(run: Run, store: clew.Store, place: Path) -> None:
    for name in ("first", "second", "third"):
        say(store.create(title=name), name)
    store.create("@2", title="An id of that shape")
    store.create(title="away").set(archived=True)
    assert run("show", place, "@last").lines[0] == "An id of that shape"
    say(store.resolve("@2"), "x")
    assert run("show", place, "@1").lines[0] == "An id of that shape"
    assert run("show", place, "@3").lines[0] == "second"
    assert run("show", place, "@2").lines[0] == "An id of that shape", "an id comes before"
    listed = [json.loads(line)["title"] for line in run("list", place, "--json").lines]
    assert run("show", place, "@4").lines[0] == listed[3]
    missing = run("show", place, "@99")
    assert (missing.code, "@99" in missing.err) == (3, True)
    assert run("show", place, "@0").code == 3


def test_an_entry_is_found_by_number_label_and_beginning(
    run: Run, store: clew.Store, place: Path
) -> None:
    thread = store.create("t")
    entries = [say(thread, name) for name in ("one", "two", "three")]
    thread.label(entries[1].id, "the good one")
    for name in (entries[1].seq, entries[1].id, "the good one", entries[1].id[:-1]):
        assert run("show", place, "t", "--at", name).out.endswith("two\n"), name
    several = run("show", place, "t", "--at", entries[0].id[:4])
    assert (several.code, "names 3 entries" in several.err) == (2, True)
    assert run("show", place, "t", "--at", "nothing").code == 3


# --- errors as data ---


def test_errors_are_json_when_json_was_asked_for(run: Run, store: clew.Store, place: Path) -> None:
    store.create("same-1")
    store.create("same-2")
    cases = {
        ("show", place, "nobody"): (3, "not_found"),
        ("show", place, "same"): (2, "usage"),
        ("list", place / "nowhere.db"): (2, "usage"),
        ("list", "--frobnicate"): (2, "usage"),
        ("frobnicate",): (2, "usage"),
        ("list", "mysql://host/db"): (6, "unsupported"),
    }
    for arguments, (code, kind) in cases.items():
        failed = run(*arguments, "--json")
        assert (failed.code, failed.out) == (code, "")
        assert failed.err.count("\n") == 1
        value = json.loads(failed.err)
        assert value["schema_version"] == 1
        assert set(value["error"]) == {"code", "kind", "message", "hint", "retryable"}
        assert value["error"]["kind"] == kind
        plain = run(*arguments)
        assert plain.err == f"clew: {value['error']['message']}\n"


# --- bad stores ---


def test_every_bad_store_is_told_for_what_it_is(run: Run, tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no store at all " * 100)
    assert run("list", text).code in (6, 8)
    newer = tmp_path / "newer.db"
    with clew.open(newer) as store:
        store.create("t")
    import apsw

    database = apsw.Connection(str(newer))
    database.execute("PRAGMA user_version = 999")
    database.close()
    failed = run("list", newer)
    assert (failed.code, "upgrade Clew" in failed.err) == (6, True)
    for name in COMMANDS:
        if name in ("show", "tree", "tail", "fork", "delete", "purge", "archive", "restore"):
            missing = run(name, tmp_path / "no.db", "t")
            assert (missing.code, "there is no store at" in missing.err) == (2, True), name
    assert not (tmp_path / "no.db").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_store_that_may_not_be_written_is_looked_at(
    run: Run, store: clew.Store, place: Path
) -> None:
    say(store.create("t", title="Here"), "hello")
    store.close()
    place.chmod(0o400)
    place.parent.chmod(0o500)
    try:
        for command in ("show", "tree", "tail"):
            assert run(command, place, "t").code == 0
        assert run("stats", place).code == 0
        assert run("title", place, "t", "Other").code == 5
    finally:
        place.parent.chmod(0o700)


# --- help ---


def test_every_topic_is_in_the_help(run: Run) -> None:
    assert set(_TEXTS) | {"errors"} == set(_arguments.TOPICS)
    for topic in _arguments.TOPICS:
        assert topic in run("--help").out
        shown = run("help", topic)
        assert shown.code == 0
        assert shown.lines
    assert "usage: clew snapshot take" in run("help", "snapshot", "take").out
    assert "usage: clew snapshot COMMAND" in run("help", "snapshot").out
    for wrong in (["frobnicate"], ["snapshot", "frobnicate"], ["list", "more"]):
        failed = run("help", *wrong)
        assert (failed.code, "there is no help on" in failed.err) == (2, True)


def test_every_example_of_the_help_is_a_command_line_that_parses(run: Run) -> None:
    import shlex

    texts = [run("--help").out, *_TEXTS.values()]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    examples = [line for line in lines if line.startswith("clew ") and "  " in f"{line}  "]
    checked = 0
    for line in examples:
        command = line.split("  ")[0].split(" | ")[0]
        words = shlex.split(command)[1:]
        if not words or words[0] not in COMMANDS or "COMMAND" in words or "TOPIC" in words:
            continue
        module = import_module(f"clew.cli.{words[0]}")
        assert _arguments.parse(words[0], module, words[1:])
        checked += 1
    assert checked > 15


def test_without_a_command_the_store_is_told(run: Run) -> None:
    empty = run()
    assert empty.code == 0
    assert "clew demo" in empty.out
    assert "clew import" in empty.out
    with clew.open() as own:
        for n in range(7):
            say(own.create(title=f"Thread {n}"), "hello")
    told = run()
    assert told.code == 0
    assert told.lines[0].startswith("7 threads, 7 entries in ")
    assert [f"Thread {n}" in told.out for n in range(7)] == [False, False] + [True] * 5
    assert "clew show @last" in told.out


# --- the pager ---


def test_a_pager_is_what_the_environment_says() -> None:
    assert pager_command({"PAGER": "cat"}) is None
    assert pager_command({"PAGER": ""}) is None
    assert pager_command({"PAGER": "no-such-program-at-all"}) is None
    assert pager_command({"PAGER": "unbalanced '"}) is None
    assert pager_command({"PAGER": "sed -n 1,3p"}) == ["sed", "-n", "1,3p"]


def on_terminal(*arguments: object, pager: str) -> str:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    printed = bytearray()
    with subprocess.Popen(
        [sys.executable, "-m", "clew", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env=os.environ | {"PAGER": pager},
    ):
        os.close(theirs)
        with suppress(OSError):
            while piece := os.read(ours, 65536):
                printed += piece
    os.close(ours)
    return printed.decode()


def test_long_output_goes_through_the_pager_and_short_does_not(
    store: clew.Store, place: Path
) -> None:
    short, long = store.create("short"), store.create("long")
    say(short, "hello")
    say(long, "line\n" * 500)
    marker = "sed s/line/paged/"
    assert "paged" in on_terminal("show", place, "long", pager=marker)
    assert "hello" in on_terminal("show", place, "short", pager="sed s/hello/paged/")
    assert "\x1b" not in on_terminal("show", place, "long", pager=marker), "it may print the codes"
    assert on_terminal("show", place, "long", pager="head -n 2").count("\n") == 2


# --- completion ---


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command_and_option(run: Run, shell: str) -> None:
    script = run("completion", shell).out
    for name in COMMANDS:
        assert name in script
    for option in ("keep-turns", "older-than", "no-secrets", "deleted-before"):
        assert option in script


def test_completion_in_bash_completes(
    run: Run, store: clew.Store, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("thread-one")
    store.create("thread-two; rm -rf $(HOME)")
    script = tmp_path / "clew.bash"
    script.write_text(run("completion", "bash").out)

    def complete(*words: str) -> list[str]:
        line = " ".join(f"'{word}'" for word in words)
        program = (
            f'clew() {{ "{sys.executable}" -m clew "$@"; }}; source "{script}"; '
            f"COMP_WORDS=(clew {line}); COMP_CWORD={len(words)}; _clew; "
            'printf "%s\\n" "${COMPREPLY[@]}"'
        )
        environ = os.environ | {"CLEW_STORE": str(place)}
        done = subprocess.run(
            ["bash", "-c", program],
            env=environ,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        return done.stdout.split("\n")[:-1]

    assert complete("verif") == ["verify"]
    assert complete("list", "--unt") == ["--until"]
    assert complete("snapshot", "ta") == ["take"]
    assert complete("snapshot", "take", "--no-s") == ["--no-secrets"]
    assert [word for word in complete("show", "thread") if "." not in word] == ["thread-one"]


def test_an_id_that_a_shell_would_act_on_is_not_offered(
    run: Run, store: clew.Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEW_STORE", str(place))
    bad = ("$(reboot)", "a b", "`x`", "-rf", "x;y", "x'y", "x\ny", "*", "~root", "\x1b", "x>y")
    for id in ("good-1", *bad):
        store.create(id, title="\x1b[31mred\tblue")
    assert run("completion", "threads").lines == ["good-1"]
    assert run("completion", "threads", "--titles").out == "good-1 red blue\n"
    assert run("completion", "threads", "no").out == ""
    monkeypatch.setenv("CLEW_STORE", str(place / "nowhere"))
    silent = run("completion", "threads")
    assert (silent.code, silent.out, silent.err) == (0, "", "")


# --- what is loaded ---


@pytest.mark.parametrize("command", [["--help"], ["list"], ["tree", "t"], ["show", "t"]])
def test_no_command_loads_the_renderer_for_a_pipe(
    store: clew.Store, place: Path, command: list[str]
) -> None:
    say(store.create("t"), "# Title\n\n**bold**", role="assistant")
    program = (
        "import sys; from clew.cli import main; code = main(sys.argv[1:]); "
        "loaded = {name.split('.')[0] for name in sys.modules}; "
        "assert not loaded & {'rich', 'pygments', 'markdown_it', 'asyncio', 'anyio'}, loaded; "
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *command],
        env=os.environ | {"CLEW_STORE": str(place)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
