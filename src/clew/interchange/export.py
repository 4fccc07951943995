"""Export: one thread as one file, in the form that its reader wants."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from clew.core.errors import AlreadyExists, InvalidInput, Unsupported
from clew.core.names import file_stem
from clew.thread import Thread

if TYPE_CHECKING:
    from clew.interchange.redaction.redactor import Redactor
    from clew.usage.model import Used


class Form(Struct, frozen=True):
    """A form by its name: the module that writes it, how its files end, and what it is.

    The module is one of this folder. Where a form needs a layer above, such as the viewer's, it is
    the whole name, and the layer is only loaded when the form is asked for.
    """

    module: str
    ending: str
    about: str
    is_for_people: bool = False  # then secrets are replaced unless one says otherwise


FORMS = {
    "clew": Form("clew_lines", ".jsonl", "every record, exactly; the default"),
    "bundle": Form("clew_lines", ".bundle.jsonl", "the same with all blobs; for another store"),
    "openai": Form("message_lists", ".json", "a request to OpenAI's Chat Completions"),
    "openai-responses": Form("message_lists", ".json", "a request to OpenAI's Responses"),
    "anthropic": Form("message_lists", ".json", "a request to Anthropic"),
    "gemini": Form("message_lists", ".json", "a request to Gemini"),
    "atif": Form("atif", ".atif.json", "a trajectory with its sub-agents, for evaluation"),
    "training": Form("examples", ".training.jsonl", "an example for each branch, for fine-tuning"),
    "claude-code": Form("claude_code_file", ".jsonl", "a session that Claude Code resumes"),
    "codex": Form("codex_file", ".jsonl", "a rollout that Codex resumes"),
    "pi": Form("pi_file", ".jsonl", "a session that pi goes on with"),
    "opencode": Form("opencode_file", ".json", "what `opencode import` takes"),
    "markdown": Form("markdown", ".md", "a transcript to read", is_for_people=True),
    "html": Form("clew.server.share", ".html", "a page to share", is_for_people=True),
}


THREAD_LEFT_OUT = "thread_left_out"  # the name of a change: a whole thread is not in the file


class Change(Struct, frozen=True):
    """Something that is not in the file as it is in the thread, and where."""

    name: str  # of the case: "secret", "thinking", "tool_name"
    entry: str | None
    text: str


class Writing:
    """One export under way, and what is not in it as it is in the thread.

    With a `redactor` the thread that is written is one without secrets, so that hashes are not the
    stored ones. What the thread only refers to, such as a blob, is left for the writer to look at.
    """

    def __init__(self, form: str, used: Used | None = None) -> None:
        self.form = form
        self._used = used
        self.redactor: Redactor | None = None
        self.changes: list[Change] = []

    def change(self, name: str, text: str, entry: str | None = None) -> None:
        self.changes.append(Change(name, entry, text))

    def used(self, thread: Thread) -> Used:
        """What the thread took and cost."""
        return thread.usage().total if self._used is None else self._used


class Writer(Protocol):
    """What a module has that writes a form."""

    def write(self, thread: Thread, writing: Writing) -> Iterator[bytes]:
        """The file, piece by piece."""
        ...


@cache
def writer_of(form: str) -> Writer:
    if form not in FORMS:
        raise InvalidInput("form", f"{form!r} is not one of {', '.join(FORMS)}")
    name = FORMS[form].module
    try:
        found: Writer = import_module(name if "." in name else f"clew.interchange.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "clew":
            raise
        raise Unsupported(
            f"the form {form} needs {error.name}: pip install 'clew[viewer]'"
        ) from None
    return found


class Exported(Struct, frozen=True, kw_only=True):
    """Where a thread was written to, how long that is, and what is not there as it was."""

    path: Path
    size: int
    changes: list[Change]


def start(
    thread: Thread,
    form: str,
    *,
    redact: bool | None = None,
    entropy: bool = False,
    used: Used | None = None,
) -> tuple[Writing, Iterator[bytes]]:
    """An export under way, and the pieces of its file; `changes` is whole after the last piece.

    `redact` replaces secrets; by default it does so in forms for people. `entropy` takes for a
    secret whatever looks random enough, too: it finds more, much of which is none. `used` is what
    the thread took, if that is known: each question costs a look at all threads of the store.
    """
    writer = writer_of(form)
    writing = _begun(form, redact, entropy, used)
    return writing, writer.write(_shown(thread, writing), writing)


def start_all(
    threads: Iterable[Thread], form: str, *, redact: bool | None = None, entropy: bool = False
) -> tuple[Writing, Iterator[bytes]]:
    """The same for many threads as one file: for forms whose lines speak for themselves.

    InvalidInput for another form. A thread that is damaged is left out: see THREAD_LEFT_OUT.
    """
    write_all = getattr(writer_of(form), "write_all", None)
    if write_all is None:
        raise InvalidInput("form", f"a file of the form {form} has one thread; write one for each")
    writing = _begun(form, redact, entropy)
    return writing, write_all((_shown(thread, writing) for thread in threads), writing)


def _begun(form: str, redact: bool | None, entropy: bool, used: Used | None = None) -> Writing:
    writing = Writing(form, used)
    if redact is True or (redact is None and FORMS[form].is_for_people):
        from clew.interchange.redaction.redactor import Redactor, Replaced

        def tell(one: Replaced) -> None:
            writing.change("secret", f"{one.rule} at {one.place}", one.entry)

        writing.redactor = Redactor(entropy=entropy, tell=tell)
    return writing


def _shown(thread: Thread, writing: Writing) -> Thread:
    """The thread as the export may show it."""
    if writing.redactor is None:
        return thread
    from clew.interchange.redaction.clean_store import clean_thread

    return clean_thread(thread, writing.redactor)


def export(
    thread: Thread,
    path: str | os.PathLike[str] | None = None,
    form: str = "clew",
    *,
    redact: bool | None = None,
    entropy: bool = False,
    used: Used | None = None,
) -> Exported:
    """Write a thread to a new file; without a path, named by the thread, in the current folder.

    `redact`, `entropy` and `used` are those of `start`. AlreadyExists: there is something at the
    path. When it raises, no file is left behind.
    """
    writing, pieces = start(thread, form, redact=redact, entropy=entropy, used=used)
    return _put(writing, pieces, Path(file_name(thread, form) if path is None else path))


def export_all(
    threads: Iterable[Thread],
    path: str | os.PathLike[str],
    form: str = "training",
    *,
    redact: bool | None = None,
    entropy: bool = False,
) -> Exported:
    """Write many threads to one new file, as `start_all` says; otherwise the same."""
    writing, pieces = start_all(threads, form, redact=redact, entropy=entropy)
    return _put(writing, pieces, Path(path))


def file_name(thread: Thread, form: str) -> str:
    """How the file of a thread is called, if the caller does not say otherwise."""
    return f"{file_stem(thread.id)}{FORMS[form].ending}"


def _put(writing: Writing, pieces: Iterator[bytes], target: Path) -> Exported:
    try:
        # Only a file that is not there yet, and for its owner alone: what it holds may be private.
        descriptor = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise AlreadyExists("file", str(target)) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            size = sum(map(file.write, pieces))
    except BaseException:
        target.unlink()
        raise
    return Exported(path=target, size=size, changes=writing.changes)
