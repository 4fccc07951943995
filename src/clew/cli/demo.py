"""Watch an agent get killed in the middle of a turn, resume, fork and rewind.

The agent follows a script, so no model is needed. The processes, the kill and the store are
real: what is shown is read back from the store. It takes about five seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import clew
from clew.cli import search, verify
from clew.cli._screen import Screen
from clew.cli._stores import short_id
from clew.cli._text import plural
from clew.cli.list import draw_threads
from clew.cli.tree import draw_entry, draw_tree
from clew.context.tokens import estimate
from clew.core.codec import new_id
from clew.core.errors import LeaseLost, Unavailable
from clew.core.model import Entry, Lease
from clew.store import Store
from clew.thread import Thread
from clew.upkeep.verify import VerifyReport
from clew.usage.model import line_of

LEASE_SECONDS = 1.0  # short, so that a dead agent is not waited for long
WAIT_SECONDS = 10.0
PACE_SECONDS = 0.15

_FORMAT = "openai-chat"
_MODEL = "gpt-5-mini"  # whose price the demo shows; none was asked


class Line(NamedTuple):
    """A line of the script: what the model says; with `tool`, what it calls and what that gives."""

    says: str
    tool: str | None = None
    arguments: dict[str, Any] | None = None
    gives: str = ""


Script = tuple[Line, ...]

_TESTS = {"path": "test_slug.py"}
_EDIT = {"path": "slug.py", "insert": "text = unicodedata.normalize('NFKD', text)"}
FIX: Script = (
    Line(
        "I run it first.",
        "run_tests",
        _TESTS,
        "FAILED: slugify('Crème brûlée') gave 'cr-me-br-l-e'",
    ),
    Line("Accented letters get lost.", "edit_file", _EDIT, "slug.py: 1 line inserted"),
    Line("And again.", "run_tests", _TESTS, "3 passed"),
    Line("Fixed: 'Crème brûlée' is 'creme-brulee' again."),
)
STALLED_STEP = 3  # where the first agent dies: the tests are called and have no result yet

STORE_NAME = "demo.db"
PROJECT_NAME = "project"
CHANGES = "CHANGES.md"
SILENCE_SECONDS_MAX = 8.0
_KIND_WIDTH = len("assistant_message")

REQUEST = "test_slugify fails since this morning. Can you fix it?"
ASIDE = "Would a library do this for us?"
ASIDE_ANSWER: Script = (Line("python-slugify would. But for one line of code?"),)
CHANGELOG = "Thanks. A line for the changelog, please."
FIRST_TRY: Script = (Line("Use NFKD normalization in slugify()."),)
SECOND_TRY: Script = (Line("Accents no longer break the links to your posts."),)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep",
        metavar="DIR",
        help=f"put the store, {STORE_NAME}, there (default: a new temporary folder)",
    )


def run(options: argparse.Namespace, screen: Screen) -> int:
    folder = Path(options.keep or tempfile.mkdtemp(prefix="clew-demo-"))
    with clew.open(folder / STORE_NAME) as store:
        screen.prose("The agent follows a script. The processes, the kill and the store are real.")
        demo = Demo(screen, store, folder / PROJECT_NAME)
        demo.be_killed()
        demo.resume()
        demo.fork()
        demo.rewind()
        demo.find()
        code = demo.look_back()
        _suggest(screen, store, demo.thread)
    return code


class Demo:
    """The story, act by act. Between acts it remembers the thread and the dead agent's lease."""

    def __init__(self, screen: Screen, store: Store, project: Path) -> None:
        self._screen = screen
        self._project = project
        self._store = store
        self.thread = store.create(title="test_slugify fails", workspace="slug")
        self._lease: Lease | None = None

    # --- the acts ---

    def be_killed(self) -> None:
        info = self.thread.info
        assert info.title is not None
        self._head(f"A new thread, {info.title.text!r}, and a request.")
        request = self._ask(self.thread, REQUEST)
        with _agent_process(self.thread, stall_at=STALLED_STEP) as process:
            self._head(f"An agent works on it in process {process.pid}. We follow what it writes.")
            self._follow(request.seq, lambda _: self._steps_taken() == STALLED_STEP)
            self._lease = self.thread.leases.active()
            process.kill()
            status = process.wait()
        self._head(f"Process {process.pid} is killed while the tests run ({_cause(status)}).")
        self._tell_what_is_left()

    def _tell_what_is_left(self) -> None:
        path, unfinished = self.thread.path(), self.thread.unfinished_turn()
        assert unfinished is not None
        last = [entry.kind for entry in path if entry.kind != "usage"][-1]
        self._say(
            f"Nothing it wrote is lost: {plural(len(path), 'entry')}, the last a {last} "
            f"without its result. The turn that began at {unfinished.seq} has no end."
        )
        lease = self.thread.leases.active()
        if lease is not None:
            rest = (lease.until - self._store.now()).total_seconds()
            self._say(f"The lease of {lease.owner} keeps others out for another {rest:.1f} s.")

    def resume(self) -> None:
        before = self.thread.info.seq
        with _agent_process(self.thread) as process:
            self._head(
                f"Another process, {process.pid}, resumes the thread when the lease is over."
            )
            started = self._follow(before, lambda entry: entry.kind == "turn_marker")
            lease = self.thread.leases.active()
            if lease is not None:
                self._say(f"{lease.owner} has the lease now, with a later fence.")
            self._follow(started.seq, lambda entry: entry.kind == "turn_marker")
            process.wait()
        self._write_late()

    def _write_late(self) -> None:
        """The dead agent's write, had it only been slow: its fence is over, so it is refused."""
        if self._lease is None:  # a machine so busy that the lease was over before the kill
            return
        try:
            self.thread.append("assistant_message", {}, fence=self._lease.fence)
        except LeaseLost as error:
            self._say(f"A late write of {self._lease.owner} is refused: {error.code}.")

    def fork(self) -> None:
        fork = self.thread.fork(title="Would a library do it?")
        name, shared = short_id(self._store, fork.id), plural(len(fork.path()), "entry")
        self._head(f"A fork, {name}: it shares {shared} by reference and goes its own way.")
        self._ask(fork, ASIDE)
        self._answer(fork, ASIDE_ANSWER)

    def rewind(self) -> None:
        self._head("Back in the first thread, the next request. This time files are at stake.")
        self._project.mkdir(exist_ok=True)
        self._write("")
        request = self._ask(self.thread, CHANGELOG)
        self.thread.snapshots.take(self._project)
        first = self._answer(self.thread, FIRST_TRY)
        self._write(FIRST_TRY[0].says)
        self.thread.snapshots.take(self._project)
        self._say(f"{CHANGES} has {self._read()!r} now.")
        self._go_back(request)
        second = self._answer(self.thread, SECOND_TRY)
        self._write(SECOND_TRY[0].says)
        self._compare(first, second)

    def _go_back(self, request: Entry) -> None:
        done = self.thread.rewind(request.id, at=True)
        assert done.files is not None
        stands = self.thread.get(self.thread.leaf or "")
        files = plural(len(done.files.plan.steps), "file")
        self._head(f"Rewind: the leaf goes back to {stands.seq}, and {files} with it.")
        self._say(f"{CHANGES} has {self._read()!r} again; undo_rewind would bring both back.")

    def _write(self, text: str) -> None:
        (self._project / CHANGES).write_text(text, "utf-8")

    def _read(self) -> str:
        return (self._project / CHANGES).read_text("utf-8")

    def _compare(self, first: Entry, second: Entry) -> None:
        found = self.thread.compare(first.id, second.id)
        assert found.common is not None
        self._head(f"Both answers are kept; they part after {found.common.seq}.")
        for sign, branch in (("-", found.left), ("+", found.right)):
            for entry in branch:
                if entry.kind == "assistant_message":
                    draw_entry(self._screen, entry, lead=sign, width=_KIND_WIDTH)

    def find(self) -> None:
        self._head("What was said is found in every thread, with the number to jump to.")
        for hit in self._store.search("accented letters", limit=2).items:
            search.draw(self._screen, self._store, hit)
        used = self._store.usage().total
        self._head("Each reply of the model is counted once, though a fork shares some of them.")
        told = f"{plural(used.replies, 'reply')}: {line_of(used)}"
        self._say(f"{told}; an estimate, as if {_MODEL} had answered in place of the script.")

    def look_back(self) -> int:
        self._head("The whole thread. The current path runs down the left.")
        draw_tree(self._screen, self.thread)
        self._head("The store: its threads, and a check of everything in it.")
        draw_threads(self._screen, self._store, list(self._store.threads(order="updated")))
        with self._screen.bar("verify") as bar:
            problems = self._store.verify(progress=bar)
        properties = self._store.properties
        report = VerifyReport(
            place=properties.place,
            namespaces=[properties.namespace],
            problems=problems,
            stats=self._store.stats(),
            repairs=True,
        )
        verify.draw(self._screen, report)
        return verify.code_of(report)

    # --- telling ---

    def _head(self, text: str) -> None:
        _pause(self._screen, 0.25)
        self._screen.line()
        self._screen.prose(text, "bold")

    def _say(self, text: str) -> None:
        self._screen.prose(text)

    # --- doing ---

    def _ask(self, thread: Thread, text: str) -> Entry:
        entry = thread.append_message({"role": "user", "content": text})
        self._draw(thread.get(entry.id))
        return entry

    def _answer(self, thread: Thread, script: Script) -> Entry:
        """Let the agent work in this process; show what it wrote, and give its last entry."""
        before = thread.info.seq
        work(thread, script)
        written = [entry for entry in thread.read(after=before) if isinstance(entry, Entry)]
        for entry in written:
            self._draw(entry)
        return written[-1]

    def _follow(self, after: int, done: Callable[[Entry], bool]) -> Entry:
        """Show entries as another process commits them, up to the one that is waited for."""
        for record in self.thread.follow(after=after, idle_seconds=SILENCE_SECONDS_MAX):
            if isinstance(record, Entry):
                self._draw(record)
                if done(record):
                    return record
        raise Unavailable(f"the agent wrote nothing for {SILENCE_SECONDS_MAX:.0f} seconds")

    def _steps_taken(self) -> int:
        return steps_taken(self.thread.path())

    def _draw(self, entry: Entry) -> None:
        draw_entry(self._screen, entry, width=_KIND_WIDTH)
        self._screen.flush()


# --- processes ------------------------------------------------------------------------------


@contextmanager
def _agent_process(thread: Thread, *, stall_at: int = 0) -> Iterator[subprocess.Popen[bytes]]:
    """A running agent; whatever happens here, it does not outlive the demo."""
    place = thread.store.properties.place
    command = [sys.executable, "-P", "-m", "clew.cli.demo", place, thread.id, str(stall_at)]
    # The child finds the very modules that we run, however they came on our path.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,  # Ctrl-C is for the demo, which then ends its agent
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _cause(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"exit code {status}"


def _pause(screen: Screen, seconds: float) -> None:
    screen.flush()
    time.sleep(seconds)


# --- what to try next -----------------------------------------------------------------------


def _suggest(screen: Screen, store: Store, thread: Thread) -> None:
    place = Path(store.properties.place)
    command, name = own_command(), shlex.quote(_relative(place))
    screen.line()
    screen.prose(f"The store lies in {place}. Look around in it:", "bold")
    for rest in (f"list {name}", f"show {name} {short_id(store, thread.id)}", f"verify {name}"):
        screen.line(f"  {command} {rest}", fit=False)


def own_command() -> str:
    """How this very Clew is called from the shell that the user is in."""
    script = Path(sys.executable).with_name("clew")
    found = shutil.which("clew")
    if not script.exists():
        return f"{shlex.quote(_relative(Path(sys.executable)))} -m clew"
    if found is not None and os.path.samefile(found, script):
        return "clew"
    return shlex.quote(_relative(script))


def _relative(path: Path) -> str:
    """From the current folder if it lies below it: shorter, and as people would type it."""
    try:
        text = str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
    # Neither a name that is looked for elsewhere, nor an option, nor an address.
    bare = "/" not in text or text.startswith("-") or ":" in text
    return f"./{text}" if bare else text


# --- the agent: a script in place of the model, all else as in a real one --------------------


def work(thread: Thread, script: Script, *, stall_at: int | None = None) -> None:
    """Do what is left to do in this thread, as one turn; first of all an unfinished one."""
    unfinished = thread.unfinished_turn()
    turn = thread.turn(
        owner=f"agent-{os.getpid()}",
        id=None if unfinished is None else unfinished.turn,
        ttl_seconds=LEASE_SECONDS,
        wait_seconds=WAIT_SECONDS,
    )
    with turn:
        while (message := _next_message(thread.path(), script, stall_at)) is not None:
            time.sleep(PACE_SECONDS)
            if message["role"] == "assistant":
                turn.append_response(_completion(thread, message), format=_FORMAT)
            else:
                turn.append_message(message, format=_FORMAT)


def steps_taken(path: list[Entry]) -> int:
    """How many steps the model took since it was last asked something."""
    taken = 0
    for entry in path:
        if entry.kind == "user_message":
            taken = 0
        elif entry.kind in ("tool_call", "assistant_message"):
            taken += 1
    return taken


def _next_message(path: list[Entry], script: Script, stall_at: int | None) -> dict[str, Any] | None:
    taken = steps_taken(path)
    if _awaits_result(path):
        if taken == stall_at:
            time.sleep(60)  # a tool that takes long: the demo kills this process here
        return _result(taken, script[taken - 1])
    return _reply(taken + 1, script[taken]) if taken < len(script) else None


def _awaits_result(path: list[Entry]) -> bool:
    messages = [entry for entry in path if entry.kind not in ("turn_marker", "usage")]
    return bool(messages) and messages[-1].kind == "tool_call"


def _reply(number: int, line: Line) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": line.says}
    if line.tool is not None:
        function = {"name": line.tool, "arguments": json.dumps(line.arguments)}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        message["tool_calls"] = [call]
    return message


def _completion(thread: Thread, message: dict[str, Any]) -> dict[str, Any]:
    """The reply as a provider gives it, with an estimate of what a model would have counted."""
    sent = estimate(json.dumps(thread.context(_FORMAT).messages))
    return {
        "id": f"chatcmpl-{new_id()}",
        "object": "chat.completion",
        "model": _MODEL,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": sent,
            "completion_tokens": estimate(json.dumps(message)),
            "total_tokens": sent + estimate(json.dumps(message)),
        },
    }


def _result(number: int, line: Line) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": line.gives}


def main(place: str, thread: str, stall_at: str = "0") -> None:
    """The process that the demo starts, kills, and starts again."""
    with clew.open(place) as store:
        work(store.get(thread), FIX, stall_at=int(stall_at))


if __name__ == "__main__":
    main(*sys.argv[1:])
