"""Keep bringing what agents write, as they write it, until it is stopped with Ctrl-C.

Without PATH it is everything that agents keep in your home folder. What an agent deletes later
stays in the store. It reads files only, brings them as `clew import` does, and may be stopped and
started at any time. One runs for a store at a time. With watchfiles (pip install watchfiles) the
system tells of changes; without it, everything is looked at once a minute (--every). In the
background the store is read once a week, at a hundredth of a core, and damage gets a line; and
what is cold is packed, as clew pack does, at another hundredth, unless it is a store of files.

--install writes a service for your user that does this from login on, and says how to start it.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import clew
from clew.address import place_of, placed, state_folder
from clew.cli import _exits
from clew.cli._arguments import add_namespace, add_redact_at_import, add_store_option, count
from clew.cli._screen import Screen
from clew.cli._stores import named
from clew.cli._text import plural
from clew.cli.verify import describe
from clew.core.codec import digest
from clew.core.errors import Unsupported
from clew.interchange import tree
from clew.interchange.registry import AGENTS
from clew.interchange.report import FileReport
from clew.interchange.watch import Watch, changes_of
from clew.upkeep.pack import Packer
from clew.upkeep.scrub import Scrubber, ScrubReport

_UNIT = """\
[Unit]
Description=Clew keeps the sessions of coding agents

[Service]
ExecStart={command}
Restart=on-failure
RestartSec=30
Nice=10

[Install]
WantedBy=default.target
"""
_PLIST = """\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0"><dict>
<key>Label</key><string>clew.watch</string>
<key>ProgramArguments</key><array>{arguments}</array>
<key>RunAtLoad</key><true/><key>KeepAlive</key><true/>
</dict></plist>
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", metavar="PATH", nargs="*", help="folders; default: your agents'")
    parser.add_argument("--agent", metavar="NAME", choices=AGENTS, help=", ".join(AGENTS))
    add_store_option(parser)
    add_namespace(parser, "the part of the store that is meant; default: default")
    add_redact_at_import(parser)
    parser.add_argument(
        "--every", metavar="SECONDS", type=count, default=60, help="look at everything so often"
    )
    parser.add_argument("--once", action="store_true", help="look at everything once, and end")
    parser.add_argument(
        "--no-scrub", action="store_true", help="do not read the store in the background"
    )
    parser.add_argument(
        "--no-pack", action="store_true", help="do not pack the store in the background"
    )
    parser.add_argument("--install", action="store_true", help="write a service for your user")


def run(options: argparse.Namespace, screen: Screen) -> int:
    if options.install:
        return _install(options, screen)

    def folders() -> list[Path]:
        if options.paths:
            return [Path(os.path.abspath(path)) for path in options.paths]
        return [one.place for one in tree.survey(Path.home(), os.environ, options.agent)]

    def tell(report: FileReport) -> None:
        if report.entries:
            told = f"  {plural(report.entries, 'entry')}  {report.thread}"
            screen.line((str(report.agent), "bold"), told)
        if not report.is_whole:
            reason = report.reason or "; ".join(report.places) or ", ".join(report.notes)
            screen.line(("left out: ", "bold"), f"{report.path}: {reason}")
        screen.flush()

    told: set[str] = set()

    def tell_damage(report: ScrubReport) -> None:
        for problem in report.problems:
            line = describe(problem)
            if line not in told:
                told.add(line)
                screen.line(("damaged: ", "bold red"), line, fit=False)
                screen.flush()

    with clew.open(options.store, **named(options.namespace)) as store, _alone(store):
        watch = Watch(store, folders, tell, agent=options.agent, redact=options.redact_at_import)
        if options.once:
            watch.run([None])
            return _exits.OK
        with (
            nullcontext() if options.no_scrub else Scrubber(options.store, tell_damage),
            nullcontext() if options.no_pack else Packer(options.store),
        ):
            watch.run(changes_of(folders, options.every))
    return _exits.OK


@contextmanager
def _alone(store: clew.Store) -> Iterator[None]:
    """One watch for a store at a time on this machine; the system ends it with the process."""
    state = state_folder()
    if state is None:
        raise _exits.UsageError("there is no home folder to note in that it runs: set HOME")
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    place = f"{store.properties.place}\n{store.properties.namespace}"
    path = state / f"watch-{digest(place.encode('utf-8', 'surrogateescape'))[3:19]}.lock"
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _exits.UsageError("another clew watch keeps this store up to date") from None
        yield


def _install(options: argparse.Namespace, screen: Screen) -> int:
    command = [sys.executable, "-m", "clew", "watch", *map(os.path.abspath, options.paths)]
    for name, value in (
        ("--agent", options.agent),
        ("--store", _from_anywhere(options.store)),
        ("--namespace", options.namespace),
        ("--every", str(options.every)),
    ):
        command += [] if value is None else [name, value]
    for name, given in (
        ("--redact-at-import", options.redact_at_import),
        ("--no-scrub", options.no_scrub),
        ("--no-pack", options.no_pack),
    ):
        command += [name] if given else []
    if sys.platform == "darwin":
        path = Path.home() / "Library" / "LaunchAgents" / "clew.watch.plist"
        inner = "".join(f"<string>{_escaped(word)}</string>" for word in command)
        text, start = _PLIST.format(arguments=inner), f"launchctl load {shlex.quote(str(path))}"
    else:
        base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        path = base / "systemd" / "user" / "clew-watch.service"
        words = " ".join(shlex.quote(word).replace("%", "%%") for word in command)
        text, start = _UNIT.format(command=words), "systemctl --user enable --now clew-watch"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    screen.line(("written ", "bold"), str(path))
    screen.line("start it with: ", start)
    return _exits.OK


def _from_anywhere(address: str | None) -> str | None:
    """The same store for a service, which is started in another folder."""
    if address is None:
        return None
    try:
        return placed(address, str(place_of(address)))
    except Unsupported:
        return address  # a server


def _escaped(word: str) -> str:
    return word.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
