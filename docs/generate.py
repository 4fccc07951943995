"""Writes docs/reference from the docstrings: `make docs`, or `python docs/generate.py`.

Only the standard library's `inspect` looks at the code, and nothing of the text depends on the
Python that runs this, so that a test can hold the files to it.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import is_dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, get_overloads

import clew
from clew import address, exchange, messages, record, store, stream, thread, turn, usage
from clew.aio import facets, handles
from clew.aio import turn as async_turn
from clew.aio.snapshots import AsyncSnapshots
from clew.context import compaction, normalise, projection, request
from clew.core import drafts, engine, errors, hashes, maintenance, model, options, removal
from clew.facets import conversations, runs, sessions
from clew.interchange import export
from clew.messages import neutral
from clew.record import recorder
from clew.snapshots import facet, ignore, manifest
from clew.snapshots import model as snapshots
from clew.testing import conformance, recorded, wrappers
from clew.testing.cases import base
from clew.upkeep import (
    backup,
    cleanup,
    copy,
    doctor,
    migrate,
    pack,
    repair,
    restore,
    scrub,
    verify,
)

FOLDER = Path(__file__).parent / "reference"
WIDTH = 100
PROPERTIES = (property, cached_property, model.cached)

MODEL = {
    "Records: what comes out": ["Record", "Entry", "Artifact", "Move", "Fact"],
    "Threads": ["ThreadInfo", "Title", "Origin", "Page", "Segment"],
    "Leases": ["Lease"],
    "Drafts: what goes in": ["EntryDraft", "MoveDraft", "FactDraft", "ThreadDraft", "ThreadQuery"],
    "Requests for leases": ["Acquire", "Renew", "Release", "Inspect", "ClearExpired"],
    "Reports": ["Properties", "Stats", "Problem"],
}
CONTEXTS = [
    (request, ["Context", "ContextReport", "ContextSegment"]),
    (normalise, ["OpenCall", "Repair"]),
    (compaction, ["Compacted"]),
    (exchange, ["Reply"]),
]
NEUTRAL = {
    "The neutral view": ["Message", "Part", "Text", "Thinking", "ToolCall", "ToolResult"],
    "More of it": ["Media", "Other", "Usage"],
    "What writing and validating give": ["Written", "Loss", "Violation"],
}
SNAPSHOTS = {
    "What there is": ["Snapshot", "LeftOut", "SnapshotStats"],
    "What changed": ["Difference", "Version"],
    "Rewinds": ["Rewound", "Restored", "Plan", "PlannedStep"],
}
USAGE_CALLS = ["usage_of", "line_of"]
USAGE = ["UsageReport", "UsageRow", "Used", "Tokens"]
WORKSPACES = ["current_workspace_path", "normalize_workspace_path", "workspace_identity"]


def main() -> None:
    made = pages()
    FOLDER.mkdir(exist_ok=True)
    for stale in sorted(set(FOLDER.glob("*.md")) - {FOLDER / name for name in made}):
        stale.unlink()
        print(f"removed {stale.relative_to(FOLDER.parent)}")
    for name, text in made.items():
        (FOLDER / name).write_text(text, "utf-8")
    print(f"wrote {len(made)} pages to {FOLDER.name}/")


def pages() -> dict[str, str]:
    """File name → text, the index first."""
    made = {
        "address.md": address_page(),
        "store.md": classes_page("The store", store, ["Store", "Blobs", "Relative"]),
        "thread.md": classes_page("The thread", thread, ["Thread", "Comparison"]),
        "turn.md": classes_page("The turn", turn, ["Turn"]),
        "stream.md": classes_page("Streamed replies", stream, ["StreamedReply"]),
        "leases.md": classes_page("Leases by hand", turn, ["Leases"]),
        "context.md": context_page(),
        "messages.md": messages_page(),
        "record.md": record_page(),
        "conversations.md": conversations_page(),
        "runs.md": runs_page(),
        "sessions.md": sessions_page(),
        "snapshots.md": snapshots_page(),
        "usage.md": usage_page(),
        "upkeep.md": upkeep_page(),
        "drafts.md": drafts_page(),
        "model.md": model_page(),
        "errors.md": errors_page(),
        "async.md": async_page(),
        "engine.md": engine_page(),
        "testing.md": testing_page(),
        "cli.md": cli_page(),
    }
    return {"index.md": index_page(made), **made}


# --- pages ----------------------------------------------------------------------------------


def index_page(made: dict[str, str]) -> str:
    lines = [
        "# Reference",
        _notice("`clew`"),
        "## Pages",
        "\n".join(
            f"- [{text.splitlines()[0].removeprefix('# ')}]({name})" for name, text in made.items()
        ),
        "## Public names",
        "What `clew` itself exports. The rest is reached through these.",
        _table(("name", "is"), [(_link(name, made), _summary(name)) for name in clew.__all__]),
    ]
    return _join(lines)


def address_page() -> str:
    calls = [
        ("clew.open", address.open),
        ("clew.open_engine", address.open_engine),
        ("clew.namespaces", address.namespaces),
        ("clew.address.maintenance", address.maintenance),
    ]
    return _join(["# Opening a store", _notice("address.py"), *_functions(calls)])


def drafts_page() -> str:
    shape = "The draft that comes out: [EntryDraft](model.md#entrydraft)."
    return _join(
        [
            "# Drafts",
            _notice("core/drafts.py"),
            *_functions([("clew.draft", drafts.draft), ("clew.stable_hash", hashes.stable_hash)]),
            shape,
        ]
    )


def classes_page(title: str, module: ModuleType, names: list[str]) -> str:
    parts = [f"# {title}", _notice(f"{module.__name__.rpartition('.')[2]}.py"), _doc(module)]
    for name in names:
        parts += _class(name, getattr(module, name))
    return _join(parts)


def model_page() -> str:
    parts = ["# Model", _notice("core/model.py"), _doc(model)]
    parts += ["Kinds of entries that have a meaning; any other is kept as it is:"]
    parts += [", ".join(f"`{kind}`" for kind in sorted(model.KINDS))]
    parts += ["Statuses of a `turn_marker`: " + ", ".join(f"`{s}`" for s in model.TURN_STATUSES)]
    for title, names in MODEL.items():
        parts.append(f"## {title}")
        for name in names:
            parts += _class(name, getattr(model, name), level=3)
    parts += ["## What is removed", _doc(removal)]
    for name in ("Purged", "Swept", "Erased", "Tombstone", "Receipt"):
        parts += _class(name, getattr(removal, name), level=3)
    return _join(parts)


def context_page() -> str:
    made = "[Thread.context](thread.md#threadcontext)"
    compacted = "[Thread.compact](thread.md#threadcompact)"
    parts = ["# Contexts", _notice("context/"), _doc(projection)]
    parts.append(f"They are made by {made} and {compacted}.")
    parts += _functions([("clew.context.project", projection.project)])
    for module, names in CONTEXTS:
        for name in names:
            parts += _class(name, getattr(module, name))
    return _join(parts)


def record_page() -> str:
    calls = [(f"clew.record.{name}", getattr(record, name)) for name in record.__all__]
    parts = ["# Recorded clients", _notice("record/"), _doc(record), _doc(recorder)]
    return _join([*parts, *_functions(calls)])


def messages_page() -> str:
    parts = ["# Messages", _notice("messages/"), _doc(messages)]
    parts.append("The formats: " + ", ".join(f"`{name}`" for name in messages.FORMATS) + ".")
    stored = ", ".join(f"`{name}`" for name in messages.FRAMEWORKS)
    parts.append(f"Those of what frameworks store: {stored}.")
    names = [name for name in messages.__all__ if not name.isupper()]
    parts += _functions((f"clew.messages.{name}", getattr(messages, name)) for name in names)
    for title, kinds in NEUTRAL.items():
        parts.append(f"## {title}")
        for name in kinds:
            parts += _class(name, getattr(neutral, name), level=3)
    return _join(parts)


def usage_page() -> str:
    made = "[Store.usage](store.md#storeusage)"
    parts = ["# Usage", _notice("usage/"), _doc(usage), f"Reports are made by {made}."]
    parts += _functions([(f"clew.usage.{name}", getattr(usage, name)) for name in USAGE_CALLS])
    for name in USAGE:
        parts += _class(name, getattr(usage, name))
    return _join(parts)


def conversations_page() -> str:
    names = ["Conversations", "Conversation", "ConversationInfo", "Reclaimed"]
    page = classes_page("Conversations", conversations, names)
    failure = [
        f"| `{name}` | {_code(type)} |" for name, type in _annotations(conversations.Failure)
    ]
    table = ["| field | type |", "| --- | --- |", *failure]
    return _join([page.rstrip(), "## Failure", _doc(conversations.Failure), "\n".join(table)])


def runs_page() -> str:
    parts = ["# Runs", _notice("facets/runs/"), _doc(runs)]
    for name in ("Runs", "Run", "Checkpoint", "CheckpointInfo"):
        parts += _class(name, getattr(runs, name))
    return _join(parts)


def sessions_page() -> str:
    parts = ["# Sessions", _notice("facets/sessions/"), _doc(sessions)]
    for name in ("Sessions", "Session", "SessionInfo", "Event"):
        parts += _class(name, getattr(sessions, name))
    names = ["has_user_interaction", "export_session_markdown", *WORKSPACES]
    parts += _functions((f"clew.facets.sessions.{name}", getattr(sessions, name)) for name in names)
    return _join(parts)


def snapshots_page() -> str:
    parts = ["# Snapshots", _notice("snapshots/"), _doc(facet)]
    ways = "[Thread.rewind](thread.md#threadrewind), [Thread.fork](thread.md#threadfork)"
    parts.append(f"Conversation and files together: {ways}.")
    parts += _class("Snapshots", facet.Snapshots)
    parts += _class("Rules", ignore.Rules)
    for name, words in (("folders", "DEFAULT_FOLDERS"), ("files", "DEFAULT_FILES")):
        named = ", ".join(f"`{word}`" for word in sorted(getattr(ignore, words)))
        parts.append(f"`{name}` by default (`clew.snapshots.ignore.{words}`): {named}.")
    for title, names in SNAPSHOTS.items():
        parts.append(f"## {title}")
        for name in names:
            parts += _class(name, getattr(snapshots, name), level=3)
    parts += _class("Node", manifest.Node)
    return _join(parts)


def upkeep_page() -> str:
    """One section for each command, under its verb."""
    parts = ["# Looking after stores", _notice("upkeep/")]
    sections: list[tuple[ModuleType, str | None, list[tuple[str, Any]], list[Any]]] = [
        (verify, "Store.verify", [("clew.upkeep.verify.verify", verify.verify)], ["VerifyReport"]),
        (scrub, None, [("clew.upkeep.scrub.scrub", scrub.scrub)], ["ScrubReport", "Scrubber"]),
        (repair, None, [("clew.repair", repair.repair)], ["RepairReport", "Lost", "LostBlob"]),
        (copy, "Store.copy_to", [], ["CopyReport", "CopiedThread"]),
        (
            cleanup,
            "Store.cleanup",
            [("clew.upkeep.cleanup.keeping", cleanup.keeping)],
            ["CleanupReport", "Skipped"],
        ),
        (pack, "Store.pack", [], ["Packer"]),
        (doctor, None, [("clew.upkeep.doctor.examine", doctor.examine)], ["Examination"]),
        (export, None, [("clew.interchange.export.export", export.export)], ["Exported", "Change"]),
        (backup, None, [("clew.upkeep.backup.backup", backup.backup)], ["BackupReport"]),
        (
            restore,
            None,
            [("clew.upkeep.restore.restore", restore.restore)],
            ["RestoreReport"],
        ),
        (migrate, None, [("clew.upkeep.migrate.migrate", migrate.migrate)], []),
    ]
    for module, method, calls, names in sections:
        verb = module.__name__.rpartition(".")[2]
        parts += [f"## {verb.capitalize()}", _doc(module)]
        page = {"scrub": "verify"}.get(verb, verb)
        parts.append(f"How to: [{page}](../howto/{page}.md).")
        if method is not None:
            anchor = method.replace(".", "").lower()
            parts.append(f"`{method}` is [with the store](store.md#{anchor}).")
        parts += _functions(calls, level=3)
        for name in names:
            parts += _class(name, getattr(module, name), level=3)
    return _join(parts)


def errors_page() -> str:
    parts = ["# Errors", _notice("core/errors.py"), _doc(errors)]
    kinds = [getattr(errors, name) for name in errors.__all__]
    rows = [
        (f"[{kind.__name__}](#{kind.__name__.lower()})", f"`{kind.code}`", _retryable(kind))
        for kind in kinds
    ]
    parts.append(_table(("error", "code", "retryable"), rows))
    for kind in kinds:
        parts += [f"## {kind.__name__}", _doc(kind)]
        own = [(f"`{name}`", _code(type)) for name, type in inspect.get_annotations(kind).items()]
        if own:
            parts.append(_table(("field", "type"), own))
    return _join(parts)


def async_page() -> str:
    parts = ["# Async", _notice("aio/"), _doc(handles)]
    parts += ["Needs the extra: `pip install 'clew[async]'`. Every name below does what its"]
    parts[-1] += " synchronous namesake does; only how it is called differs."
    parts += _functions([("clew.open_async", handles.open_async)])
    for kind, twin, page in (
        (handles.AsyncStore, store.Store, "store.md"),
        (handles.AsyncBlobs, store.Blobs, "store.md"),
        (handles.AsyncThread, thread.Thread, "thread.md"),
        (async_turn.AsyncLeases, turn.Leases, "leases.md"),
        (async_turn.AsyncTurn, turn.Turn, "turn.md"),
        (async_turn.AsyncStreamedReply, stream.StreamedReply, "stream.md"),
        (facets.AsyncConversations, conversations.Conversations, "conversations.md"),
        (facets.AsyncConversation, conversations.Conversation, "conversations.md"),
        (facets.AsyncRuns, runs.Runs, "runs.md"),
        (facets.AsyncRun, runs.Run, "runs.md"),
        (facets.AsyncSessions, sessions.Sessions, "sessions.md"),
        (AsyncSnapshots, facet.Snapshots, "snapshots.md"),
    ):
        rows = [
            (_asynchronously(member, value), _twin(twin, member, page))
            for member, value in _members(kind)
        ]
        parts += [f"## {kind.__name__}", _doc(kind), _table(("call", "see"), rows)]
    return _join(parts)


def engine_page() -> str:
    parts = ["# The waist", _notice("core/engine.py"), _doc(engine), "## Engine"]
    for name, member in _members(engine.Engine):
        parts += _member("Engine", name, member, level=3)
    parts += ["## Beside the waist", _doc(maintenance)]
    for name in ("Maintenance", "Examined", "Finding", "Migration", "Grant"):
        parts += _class(name, getattr(maintenance, name))
    return _join(parts)


def testing_page() -> str:
    parts = ["# Testing engines and agents", _notice("testing/"), _doc(conformance)]
    parts += _class("Place", base.Place)
    names = [f"- {case.__name__.replace('_', ' ')}" for case in conformance.CASES]
    parts += ["## The cases", "\n".join(names)]
    parts += ["## Wrappers", _doc(wrappers)]
    makers = ("read_only", "traced", "faulty", "wrap")
    calls = [(f"clew.testing.wrappers.{name}", getattr(wrappers, name)) for name in makers]
    parts += _functions(calls, level=3)
    for name in ("Trace", "Fault", "Call"):
        parts += _class(name, getattr(wrappers, name), level=3)
    parts += ["## Recorded threads", _doc(recorded)]
    parts += _functions([("clew.testing.replay", recorded.replay)], level=3)
    for name in ("Replay", "ReplayMismatch", "RecordedFailure"):
        parts += _class(name, getattr(recorded, name), level=3)
    return _join(parts)


# --- the command line -----------------------------------------------------------------------


def cli_page() -> str:
    from clew import cli
    from clew.cli import _arguments, _exits

    parts = ["# Command line", _notice("cli/"), "`clew` and `python -m clew` are the same."]
    parts.append(_table(("command", "does"), [(f"`{n}`", t) for n, t in cli.COMMANDS.items()]))
    for name in _commands(cli.COMMANDS):
        command = import_module(f"clew.cli.{name.replace(' ', '.')}")
        parser = _arguments.command_parser(name, command)
        parts += [f"## clew {name}", _doc(command), _arguments_table(parser)]
    codes = [(str(code), text) for code, text in _exits.MEANINGS.items()]
    parts += ["## Exit codes", _table(("code", "means"), codes)]
    return _join(parts)


def _commands(names: Iterable[str]) -> Iterator[str]:
    """Every command, and in place of a family those that are in it."""
    for name in names:
        family = getattr(import_module(f"clew.cli.{name}"), "COMMANDS", None)
        yield from [name] if family is None else [f"{name} {below}" for below in family]


def _arguments_table(parser: argparse.ArgumentParser) -> str:
    """From the actions themselves: how argparse lays out its help differs between Pythons."""
    rows = []
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or action.dest == "help":
            continue
        names = ", ".join(f"`{name}`" for name in action.option_strings)
        rows.append((" ".join(filter(None, [names, _metavar(action)])), action.help or ""))
    return _table(("argument", "does"), rows)


def _metavar(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    name = str(action.metavar or action.dest.upper())
    if action.choices is not None:
        name = "\\|".join(map(str, action.choices))
    return f"[`{name}`]" if action.nargs == "?" else f"`{name}`"


# --- classes and functions ------------------------------------------------------------------


def _functions(calls: Iterable[tuple[str, Callable[..., Any]]], *, level: int = 2) -> Iterator[str]:
    for name, call in calls:
        yield f"{'#' * level} {name}"
        yield _fenced(_signatures(call, name.rpartition(".")[2]))
        yield _doc(call)


def _class(name: str, kind: type, *, level: int = 2) -> Iterator[str]:
    yield f"{'#' * level} {name}"
    yield _doc(kind)
    fields = _fields(kind)
    if fields:
        yield _table(("field", "type", "default"), fields)
    rows = []
    for member, value in _members(kind):
        if fields and not inspect.isfunction(value):
            rows.append((f"`{member}`", _code(_returned(value)), _doc(value).replace("\n", " ")))
        else:
            yield from _member(name, member, value, level=level + 1)
    if rows:
        yield _table(("property", "type", ""), rows)


def _member(owner: str, name: str, member: Any, *, level: int) -> Iterator[str]:
    yield f"{'#' * level} {owner}.{name}"
    if inspect.isfunction(member):
        yield _fenced(_signatures(member, name))
    else:
        yield f"A property: `{_returned(member)}`."
    yield _doc(member)


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """The public functions and properties that a class defines itself, as they are written."""
    for name, value in vars(kind).items():
        if name.startswith("_"):
            continue
        value = value.__func__ if isinstance(value, staticmethod) else value
        if inspect.isfunction(value) or isinstance(value, PROPERTIES):
            yield name, value


def _function(member: Any) -> Any:
    """The function behind a property or a cached property."""
    if isinstance(member, property):
        return member.fget
    if isinstance(member, model.cached):
        return member._compute
    return member.func if isinstance(member, cached_property) else member


def _returned(member: Any) -> str:
    return str(_function(member).__annotations__.get("return", ""))


def _fields(kind: type) -> list[tuple[str, ...]]:
    """The fields of frozen data and of documents; other classes have none."""
    if not hasattr(kind, "__struct_fields__") and not is_dataclass(kind):
        return []
    types: dict[str, str] = {}
    for part in reversed(kind.__mro__):
        types |= inspect.get_annotations(part)
    rows = []
    for name, parameter in inspect.signature(kind).parameters.items():
        default = "" if parameter.default is parameter.empty else _code(_value(parameter.default))
        rows.append((f"`{name}`", _code(types[name]), default))
    return rows


def _annotations(kind: type) -> Iterator[tuple[str, str]]:
    for name, type in inspect.get_annotations(kind).items():
        yield name, str(type)


def _signatures(call: Callable[..., Any], name: str) -> str:
    return "\n\n".join(_signature(each, name) for each in get_overloads(call) or [call])


def _signature(call: Callable[..., Any], name: str) -> str:
    signature = inspect.signature(call)
    pieces = list(_parameters(signature.parameters.values()))
    told = signature.return_annotation is not signature.empty
    returned = f" -> {signature.return_annotation}" if told else ""
    start = "async def" if inspect.iscoroutinefunction(call) else "def"
    line = f"{start} {name}({', '.join(pieces)}){returned}"
    if len(line) <= WIDTH:
        return line
    inner = "".join(f"    {piece},\n" for piece in pieces)
    return f"{start} {name}(\n{inner}){returned}"


def _parameters(parameters: Iterable[inspect.Parameter]) -> Iterator[str]:
    keyword_only = False
    for each in _unpacked(parameters):
        if each.name == "self":
            continue
        if each.kind is each.VAR_POSITIONAL:
            keyword_only = True
        if each.kind is each.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            yield "*"
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        text = f"{stars}{each.name}"
        if each.annotation is not each.empty:
            text += f": {each.annotation}"
        if each.default is not each.empty:
            text += f" = {_value(each.default)}"
        yield text


def _unpacked(parameters: Iterable[inspect.Parameter]) -> Iterator[inspect.Parameter]:
    """A set of options as the options that are in it; what each is by default stands elsewhere."""
    for each in parameters:
        found = re.fullmatch(r"Unpack\[(\w+)\]", str(each.annotation))
        if found is None:
            yield each
            continue
        for name, type in getattr(options, found[1]).__annotations__.items():
            yield inspect.Parameter(
                name, each.KEYWORD_ONLY, default=..., annotation=type.__forward_arg__
            )


def _value(value: Any) -> str:
    if isinstance(value, frozenset) and value:
        return "frozenset({…})"  # its order is another one each time
    if value is ...:
        return "..."
    return value.__name__ if callable(value) and hasattr(value, "__name__") else repr(value)


def _retryable(kind: type[errors.ClewError]) -> str:
    given = inspect.signature(kind).parameters.get("retryable")
    if given is not None:
        return f"{'yes' if given.default else 'no'}, unless it says otherwise"
    return "yes" if kind.retryable else "no"


def _asynchronously(name: str, member: Any) -> str:
    returned = _returned(member)
    if inspect.isfunction(member):
        if returned.startswith("AsyncIterator"):
            return f"`async for … in {name}(…)`"
        if inspect.iscoroutinefunction(member):
            return f"`await {name}(…)`"
        block = name in ("turn", "resume_or_start")
        return f"`async with {name}(…)`" if block else f"`{name}(…)`"
    return f"`await {name}`" if returned.startswith("Awaitable") else f"`{name}`"


def _twin(kind: type, name: str, page: str) -> str:
    if not hasattr(kind, name):
        return ""
    return f"[{kind.__name__}.{name}]({page}#{_anchor(f'{kind.__name__}.{name}')})"


# --- text -----------------------------------------------------------------------------------


def _notice(source: str) -> str:
    return f"<!-- Written by docs/generate.py from the docstrings of {source}; do not edit. -->"


def _doc(thing: Any) -> str:
    """Its own docstring; a class must not show the one that it inherited."""
    owner = _function(thing)
    text = vars(owner).get("__doc__") if inspect.isclass(owner) else owner.__doc__
    return inspect.cleandoc(text or "")


def _summary(name: str) -> str:
    text = _doc(getattr(clew, name))
    first = text.split("\n\n")[0].replace("\n", " ")
    return re.split(r"(?<=\.)\s", first)[0]


def _link(name: str, made: dict[str, str]) -> str:
    for page, text in made.items():
        for heading in re.findall(r"^#{2,3} (.+)$", text, re.MULTILINE):
            if heading in (name, f"clew.{name}"):
                return f"[`{name}`]({page}#{_anchor(heading)})"
    raise LookupError(f"clew.{name} is on no page of the reference")


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|") if text else ""


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _fenced(text: str) -> str:
    return f"```python\n{text}\n```"


def _join(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


if __name__ == "__main__":
    main()
