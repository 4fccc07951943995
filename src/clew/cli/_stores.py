"""Stores and threads as the command line names them."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypedDict

from msgspec.structs import replace

import clew
from clew.address import namespaces
from clew.cli._exits import UsageError
from clew.core.errors import InvalidInput, NotFound, ReadOnly
from clew.core.model import PAGE_MAX, Entry, ThreadQuery, decode_cursor
from clew.store import Store
from clew.thread import Thread

_AGE = re.compile(r"@(?:last|([1-9][0-9]{0,2}))")
SHORT_ID = 12  # ten characters of time, two of chance


def open_existing(address: str | None, namespace: str | None = None) -> Store:
    """The store at an address. One that is not there is an error: looking must not make it."""
    with existing(address):
        return clew.open(address, create=False, **named(namespace))


def open_to_look(address: str | None, namespace: str | None = None) -> Store:
    """The same for a command that only reads: a store that may not be written will do."""
    with existing(address):
        try:
            return clew.open(address, create=False, **named(namespace))
        except ReadOnly:
            return clew.open(address, readonly=True, **named(namespace))


class Named(TypedDict, total=False):
    namespace: str


def named(namespace: str | None) -> Named:
    """As an option for `clew.open`; what is not said is not passed on."""
    return {} if namespace is None else {"namespace": namespace}


@contextmanager
def existing(address: str | None) -> Iterator[None]:
    """What is not there is a mistake on the command line."""
    try:
        yield
    except NotFound as error:
        if error.what == "namespace":
            there = ", ".join(namespaces(address))
            text = f"there is no namespace {error.id!r} in this store; it has: {there}"
            raise UsageError(text) from None
        hint = "" if address is not None else " yet (clew new makes one, clew demo shows one)"
        raise UsageError(f"there is no store at {error.id}{hint}") from None


def refuse_lone_store(command: str, options: argparse.Namespace) -> None:
    """`clew show threads.db`: the THREAD was forgotten, which 'not found' would not say."""
    if not options.named_store and os.path.isfile(options.thread):
        name = options.thread
        raise UsageError(f"{name} is a file: say which thread of it, clew {command} {name} THREAD")


@contextmanager
def opened_thread(
    command: str, options: argparse.Namespace, *, look: bool = False, deleted: bool = False
) -> Iterator[Thread]:
    """The thread that a command line with STORE and THREAD names; `look`, to read it only."""
    refuse_lone_store(command, options)
    opening = open_to_look if look else open_existing
    with opening(options.store, options.namespace) as store:
        yield resolve(store, options.thread, deleted=deleted)


def command_line(command: str, options: argparse.Namespace, *words: str) -> str:
    """A command to paste into a shell, about the store that this one was about.

    An address of a server is left to the reader: it may have a password.
    """
    import shlex  # few command lines end with another one

    named = [options.store] if options.named_store else []
    store = ["STORE" if "://" in name else name for name in named]
    space = [] if options.namespace is None else ["--namespace", options.namespace]
    return shlex.join(["clew", command, *store, *words, *space])


# --- threads and entries as they are named --------------------------------------------------


def resolve(store: Store, name: str, *, deleted: bool = False) -> Thread:
    """A thread by its id, by the beginning of that, or as @last, @1, @2: by when it was used.

    @2 is the second one that `clew list` shows. An id that is spelled so comes before.
    """
    place = _AGE.fullmatch(name)
    if place is None or store.find(name) is not None:
        return store.resolve(name, deleted=deleted)
    number = int(place[1] or 1)
    page = store.list(order="updated", limit=min(number, PAGE_MAX)).items
    if len(page) < number:
        raise NotFound("thread", name)
    return store.get(page[number - 1].id)


def find_entry(thread: Thread, name: str) -> Entry:
    """An entry by its id, the number that is printed before it, its label, or its first letters."""
    try:
        return thread.get(name)
    except NotFound:
        pass
    labelled = [id for id, label in thread.labels.items() if label == name]
    entries = list(thread.path())
    on_path = {entry.id for entry in entries}
    entries += [entry for entry in thread.entries() if entry.id not in on_path]
    found = [entry for entry in entries if entry.id in labelled]
    if not found and name.isdecimal():
        # Numbers are those of the thread that an entry was written in: what a fork shares with
        # its origin may have the number of one of its own, which is the one that is meant.
        found = [entry for entry in entries if str(entry.seq) == name]
        found = [entry for entry in found if entry.thread == thread.id][:1] or found[:1]
    if not found:
        found = [entry for entry in entries if entry.id.startswith(name)]
    if len(found) > 1:
        raise UsageError(f"{name!r} names {len(found):,} entries; give more of the id")
    if not found:
        raise NotFound("entry", name)
    return found[0]


def find_place(store: Store, name: str) -> tuple[Thread, Entry | None]:
    """THREAD, or THREAD:ENTRY, cut at the last colon: an id may have one itself."""
    try:
        return resolve(store, name, deleted=True), None
    except NotFound:
        before, colon, after = name.rpartition(":")
        if not colon or not before or not after:
            raise
    thread = resolve(store, before, deleted=True)
    return thread, find_entry(thread, after)


def short_id(store: Store, id: str) -> str:
    """The beginning of a thread's id that `store.resolve` finds it by; all of a purged one's."""
    size = SHORT_ID
    while size < len(id):
        try:
            if store.resolve(id[:size], deleted=True).id == id:
                return id[:size]
            size += 1
        except InvalidInput as error:
            others = [other for other in error.fields["candidates"] if other != id]
            size = 1 + max(_common(id, other) for other in others)
        except NotFound:
            return id
    return id


def short_ids(store: Store, ids: Sequence[str]) -> dict[str, str]:
    """The same for many: those that begin alike are looked up together."""
    found: dict[str, str] = {}
    first, last = min(ids, default=""), max(ids, default="")
    # Where most of what begins so is asked for, all of it is read at once, however much it is.
    found |= _shortened(store, first[: _common(first, last)][:SHORT_ID], 2 * len(ids))
    for start in dict.fromkeys(id[:SHORT_ID] for id in ids if id not in found):
        found |= _shortened(store, start)
    return {id: found[id] if id in found else short_id(store, id) for id in ids}


_NEAR_MAX = 100  # threads that are looked at together


def _shortened(store: Store, start: str, most: int = 0) -> dict[str, str]:
    """The short ids of all threads whose ids begin so; none, if these are too many."""
    most = max(most, _NEAR_MAX)
    near: list[str] = []
    for gone in (False, True):
        query = ThreadQuery(
            prefix=start or None, archived=None, deleted=gone, limit=min(most, PAGE_MAX)
        )
        while True:
            page = store.engine.threads(query)
            near += [info.id for info in page.items]
            if page.cursor is None:
                break
            if len(near) >= most:
                return {}
            query = replace(query, cursor=decode_cursor(page.cursor))
    # Of all in order, those beside an id have the most in common with it.
    near.sort()
    beside = zip(["", *near], near, [*near[1:], ""], strict=False)
    sizes = {id: 1 + max(_common(id, before), _common(id, after)) for before, id, after in beside}
    return {id: id[: max(size, SHORT_ID)] for id, size in sizes.items()}


def _common(left: str, right: str) -> int:
    """How many characters two ids begin with in common."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(left), len(right)))
