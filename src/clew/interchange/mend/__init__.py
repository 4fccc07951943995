"""Mend: a copy of a session file that its agent refuses, such that it opens and goes on again.

The file itself is not touched. What was wrong is told finding by finding, with the line, and with
what was done about it in the copy. Records that are not concerned are copied as they are.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from clew.core.codec import encode
from clew.core.errors import AlreadyExists, InvalidInput
from clew.interchange.intake import HEAD_VALUES
from clew.interchange.mend.model import Finding, Mended, Session
from clew.interchange.reader import Head
from clew.interchange.registry import detect
from clew.interchange.values import Lines, open_values

__all__ = ["AGENTS", "Finding", "Mended", "mend"]

AGENTS = ("claude-code", "codex", "pi")


class _Mender(Protocol):
    def mend(self, session: Session) -> None:
        """Put right what is wrong with the records of a session, and note it."""
        ...


def mend(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    without_thinking: bool = False,
) -> Mended:
    """Look for what keeps an agent from going on with a session, and write a mended copy to `out`.

    Without `out` nothing is written. `without_thinking` leaves out all thinking, which helps where
    the provider says that it was changed: whether that is so cannot be seen in the file.
    InvalidInput: the file is no session of AGENTS. AlreadyExists: there is something at `out`.
    """
    source = Path(path)
    session = _read(source, without_thinking)
    # Not by its first bytes, as an import does: one picture may be larger than those.
    found = detect(Head(source, [node.record for node in session.nodes[:HEAD_VALUES]]))
    agent = None if found is None else found[1].agent
    if agent not in AGENTS:
        name = "of no agent that is known here" if agent is None else f"a session of {agent}"
        raise InvalidInput("path", f"{source} is {name}; {', '.join(AGENTS)} can be mended")
    mender: _Mender = import_module(f"clew.interchange.mend.{agent.replace('-', '_')}")
    mender.mend(session)
    if out is not None:
        _write(Path(out), [node.record for node in session.nodes])
    return Mended(
        path=source,
        out=None if out is None else Path(out),
        agent=agent,
        records=len(session.nodes),
        findings=sorted(session.findings, key=lambda finding: finding.line),
    )


# What is odd about lines, in the words of a finding: what is wrong, and what is done.
_ODD = {
    "torn": ("the last record is torn", "left out"),
    "not_json": ("there is something that is no record", "left out"),
    "glued": ("several records stand on one line", "each got a line of its own"),
    "invalid_utf8": ("there are bytes that are no UTF-8", "replaced"),
    "inexact": ("a record cannot be read exactly", "left out"),
    "too_long": ("a line is too long", "left out"),
}


def _read(path: Path, without_thinking: bool) -> Session:
    session = Session(path=path, without_thinking=without_thinking)

    def note(name: str, place: str) -> None:
        wrong, done = _ODD[name]
        session.note(name, lines.line + (name == "torn"), f"{wrong}: {place}", done)

    with open_values(path) as file:
        lines = Lines(file, note)
        for value in lines:
            if value.text:
                continue  # it was noted
            if isinstance(value.value, dict):
                session.add(_unicode(value.value), value.line)
            else:
                session.note("not_json", value.line, "a record is no object", "left out")
    return session


def _unicode(value: Any) -> Any:
    """The value without halves of characters, which no request can carry."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_unicode(item) for item in value]
    if isinstance(value, dict):
        return {_unicode(key): _unicode(item) for key, item in value.items()}
    return value


def _write(out: Path, records: list[Any]) -> None:
    try:
        descriptor = os.open(out, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise AlreadyExists("file", str(out)) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(encode(record) + b"\n" for record in records)
    except BaseException:
        out.unlink()
        raise
