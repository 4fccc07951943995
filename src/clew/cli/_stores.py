"""Stores and threads as the command line names them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypedDict

import clew
from clew.address import namespaces
from clew.cli._exits import UsageError
from clew.core.errors import InvalidInput, NotFound, ReadOnly
from clew.store import Store
from clew.thread import Thread

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
        hint = "" if address is not None else " yet (clew demo makes one elsewhere, to look at)"
        raise UsageError(f"there is no store at {error.id}{hint}") from None


def refuse_lone_store(command: str, options: argparse.Namespace) -> None:
    """`clew show threads.db`: the THREAD was forgotten, which 'not found' would not say."""
    if options.store is None and os.path.isfile(options.thread):
        name = options.thread
        raise UsageError(f"{name} is a file: say which thread of it, clew {command} {name} THREAD")


@contextmanager
def opened_thread(
    command: str, options: argparse.Namespace, *, look: bool = False
) -> Iterator[Thread]:
    """The thread that a command line with STORE and THREAD names; `look`, to read it only."""
    refuse_lone_store(command, options)
    opening = open_to_look if look else open_existing
    with opening(options.store, options.namespace) as store:
        yield store.resolve(options.thread)


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


def _common(left: str, right: str) -> int:
    """How many characters two ids begin with in common."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(left), len(right)))
