"""Carrying out a plan in a working tree, so that at each moment every file is old or new.

First all new contents are written beside their places and made durable, under names of our own;
a full disk shows here, when nothing has changed yet. Then names are switched, each at once.
Contents are checked before (blobs by their hash and size) and what is there now is compared with
what the plan was made for, so that nothing is overwritten that nobody has kept.
"""

from __future__ import annotations

import _thread
import errno
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from clew.core.codec import digest
from clew.core.engine import Progress
from clew.core.errors import Conflict, Corrupt, Unavailable
from clew.snapshots.dirfd import Root, Signature, System
from clew.snapshots.ignore import TEMPORARY
from clew.snapshots.manifest import Node
from clew.snapshots.plan import Action, Work
from clew.snapshots.tree import Trees

_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)
_FEW = 64  # files that can all be open at once
_CHUNK = 256  # then progress is told

_Content = tuple[int, Action, Node]  # a file that gets contents: which action, and what


class Restoration:
    """One plan being carried out. `token` marks its temporary files."""

    def __init__(
        self,
        root: Root,
        trees: Trees,
        work: Work,
        token: str,
        progress: Progress | None = None,
    ) -> None:
        self._root = root
        self._system = root.system
        self._trees = trees
        self._actions = work.actions
        self._prefix = prefix_of(token)
        self._swapped = {a.path for a in work.actions if a.act == "create"}
        self._noted: dict[str, os.stat_result] = {}
        self._staged: dict[str, tuple[str, str]] = {}  # path → the folder and name of its contents
        self._folders: dict[str, str] = {}
        self._mutex = threading.Lock()
        self._waiting = Counter(a.path.rpartition("/")[0] for a in work.actions)  # steps in each
        self._unsynced: set[str] = set()
        self._left: set[str] = set()  # folders that something was moved out of
        self._progress = progress
        self._told = 0
        self.done = 0
        self.at = ""

    @property
    def total(self) -> int:
        return len(self._actions)

    # --- before anything changes ---

    def prepare(self) -> None:
        """Check everything that can be checked, and write all contents. Changes no file."""
        self._check_blobs()
        for action in self._actions:
            if action.old is not None and not action.old.is_folder and not _overwrites(action):
                with self._unless_gone(action), self._root.parent(action.path) as (folder, _):
                    self._note(action, action.old, folder)
        files = [(n, a, a.new) for n, a in enumerate(self._actions) if a.new and self._replaces(a)]
        if len(files) <= _FEW:
            self._stage_few(files)
        else:
            self._stage_many(files)

    def _check_blobs(self) -> None:
        """Whether all contents are there. Few are read as soon as they would be asked for."""
        wanted = [a.new for a in self._actions if a.new is not None and a.new.is_file]
        missing = self._trees.missing(n.ref for n in wanted) if len(wanted) > _FEW else set()
        for node in wanted:
            if node.ref in missing:
                raise Corrupt(f"blob {node.ref}", f"the contents of {node.name!r} are missing")

    @contextmanager
    def _unless_gone(self, action: Action) -> Iterator[None]:
        """The way to something that must be there may be another one now."""
        self.at = action.path
        try:
            yield
        except (Conflict, FileNotFoundError):
            raise _changed(action.path) from None

    def _note(self, action: Action, old: Node, folder: int) -> None:
        """What is there must be what the plan was made for."""
        found = self._root.is_same(folder, action.path.rpartition("/")[2], old)
        if found is None:
            raise _changed(action.path)
        self._noted[action.path] = found.look

    def _replaces(self, action: Action) -> bool:
        """Whether an action brings a file with contents of its own.

        A change of mode does as well if the file has other names: those are none of ours.
        """
        if action.new is None or not action.new.is_file:
            return False
        return action.act != "mode" or self._noted[action.path].st_nlink > 1

    def _folder_for(self, action: Action) -> str:
        """The innermost folder above something that is there already."""
        above = action.path.rpartition("/")[0]
        return above if _overwrites(action) else self._innermost(above)

    def _innermost(self, folder: str) -> str:
        found = self._folders.get(folder)
        if found is None:
            there = not folder or self._root.is_folder(folder)
            found = folder if there else self._innermost(folder.rpartition("/")[0])
            self._folders[folder] = found
        return found

    def _stage_many(self, files: Sequence[_Content]) -> None:
        """Some are written while others wait for the disk."""
        for _, action, _ in files:
            self._folder_for(action)
        for at in range(0, len(files), _CHUNK):
            chunk = files[at : at + _CHUNK]
            each(self._stage_one, chunk)
            self._tell(len(chunk))

    def _stage_one(self, item: _Content) -> None:
        descriptor = self._stage(*item)
        try:
            self._system.sync(descriptor)
        finally:
            os.close(descriptor)

    def _stage_few(self, files: Sequence[_Content]) -> None:
        """All are written, the disk begins with all of them, and then they are waited for."""
        opened: list[tuple[str, int]] = []
        try:
            for n, action, node in files:
                opened.append((action.path, self._stage(n, action, node)))
            for _, descriptor in opened:
                with suppress(OSError):  # it was only a hint
                    self._system.begin_sync(descriptor)
            each(self._sync, opened)
        finally:
            for _, descriptor in opened:
                os.close(descriptor)
        self._tell(len(files))

    def _sync(self, item: tuple[str, int]) -> None:
        self.at = item[0]
        self._system.sync(item[1])

    def _stage(self, n: int, action: Action, node: Node) -> int:
        """The descriptor of a new file that has all that it should, but may not be durable yet."""
        above, name = self._folder_for(action), f"{self._prefix}{n}"
        with self._unless_gone(action), self._root.folder(above) as folder:
            if _overwrites(action) and action.old is not None:
                self._note(action, action.old, folder)
            data = read(self._trees, node)
            old = self._noted[action.path] if action.old and action.old.is_file else None
            self._staged[action.path] = above, name
            mode = new_mode(node) if old is None else 0o600
            descriptor = self._system.create(name, folder, mode)
        try:
            write_all(self._system, descriptor, data)
            if old is not None:
                self._take_after(descriptor, old, node)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _tell(self, more: int) -> None:
        self._told += more
        if self._progress is not None:
            self._progress(self._told, self.total)

    def _take_after(self, descriptor: int, old: os.stat_result, node: Node) -> None:
        """Owner and permissions as they were, but for who may execute it."""
        mine = self._system.stat_open(descriptor)
        if (mine.st_uid, mine.st_gid) != (old.st_uid, old.st_gid):
            try:
                self._system.give(descriptor, old.st_uid, old.st_gid)
            except PermissionError:
                pass  # then it is ours, like any file that we make
        self._system.set_mode(descriptor, changed_mode(old.st_mode, node))

    # --- the change itself ---

    def apply(self) -> None:
        """Switch all names. What is done when it fails is counted in `done`.

        New contents of files do not depend on each other: several are switched at once.
        """
        files = [action for action in self._actions if self._replaces(action)]
        first = self._actions.index(files[0]) if files else self.total
        for action in self._actions[:first]:
            self._go(action)
        each(self._go, files)
        for action in self._actions[first:]:
            if not self._replaces(action):
                self._go(action)
        each(self._sync_folder, sorted(self._unsynced | self._left))

    def _go(self, action: Action) -> None:
        """One step; the last one in a folder makes it durable."""
        above = action.path.rpartition("/")[0]
        self._unsynced.add(above)
        try:
            with self._root.parent(action.path) as (folder, name):
                self._do(action, folder, name)
                if self._is_last_in(above):
                    self._system.sync(folder)
                    self._unsynced.discard(above)
        except BaseException:
            self.at = action.path
            raise
        if not self._replaces(action):
            self._tell(1)

    def _is_last_in(self, folder: str) -> bool:
        """A step in it is done; whether it was the last one."""
        with self._mutex:
            self.done += 1
            self._waiting[folder] -= 1
            return not self._waiting[folder]

    def _sync_folder(self, folder: str) -> None:
        self.at = folder
        try:
            with self._root.folder(folder) as descriptor:
                self._system.sync(descriptor)
        except (Conflict, FileNotFoundError):
            pass  # it is gone, or was never one of ours

    def _do(self, action: Action, folder: int, name: str) -> None:
        if action.act == "delete":
            self._delete(action, folder, name)
        elif action.node.is_folder:
            self._make_folder(action, folder, name)
        elif action.node.kind == "link":
            self._make_link(action, folder, name)
        elif action.path in self._staged:
            self._switch(action, folder, name)
        else:
            self._set_mode(action, folder, name)

    def _delete(self, action: Action, folder: int, name: str) -> None:
        if not action.node.is_folder:
            self._check(action, folder, name)
            self._system.unlink(name, folder)
            return
        try:
            self._system.remove_folder(name, folder)
        except OSError as error:
            # Something new is in it: then it stays, unless its place is needed.
            if error.errno not in _NOT_EMPTY or action.path in self._swapped:
                raise

    def _make_folder(self, action: Action, folder: int, name: str) -> None:
        try:
            self._system.make_folder(name, folder)
        except FileExistsError:
            found = self._root.find(folder, name)
            if found is None or found.kind != "folder":
                raise _changed(action.path) from None

    def _make_link(self, action: Action, folder: int, name: str) -> None:
        temporary = f"{self._prefix}{self.done}"
        self._staged[action.path] = action.path.rpartition("/")[0], temporary
        self._system.make_link(action.node.ref, temporary, folder)
        self._check(action, folder, name)
        self._system.rename(temporary, folder, name, folder)

    def _switch(self, action: Action, folder: int, name: str) -> None:
        self._check(action, folder, name)
        above, temporary = self._staged[action.path]
        if above == action.path.rpartition("/")[0]:
            self._system.rename(temporary, folder, name, folder)
            return
        with self._root.folder(above) as source:
            self._system.rename(temporary, source, name, folder)
        self._left.add(above)

    def _set_mode(self, action: Action, folder: int, name: str) -> None:
        descriptor = self._system.open_file(name, folder)
        try:
            look = self._system.stat_open(descriptor)
            noted = self._noted[action.path]
            if (look.st_ino, look.st_dev, look.st_nlink) != (noted.st_ino, noted.st_dev, 1):
                raise _changed(action.path)
            self._system.set_mode(descriptor, changed_mode(look.st_mode, action.node))
            self._system.sync(descriptor)
        finally:
            os.close(descriptor)

    def _check(self, action: Action, folder: int, name: str) -> None:
        """Just before a name is switched: it must still be what the plan was made for."""
        if action.act == "create":
            if self._root.find(folder, name) is not None:
                raise _changed(action.path)
            return
        found = self._root.find(folder, name)
        if found is not None and found.signature == _signature(self._noted[action.path]):
            return
        # Another name of the same file may have been switched before: then only times differ.
        if action.old is None or self._root.is_same(folder, name, action.old) is None:
            raise _changed(action.path)

    # --- afterwards ---

    def clean(self) -> bool:
        """Take away what was staged and is not needed. False if something may be left."""
        cleaned = True
        for above, name in self._staged.values():
            try:
                with self._root.folder(above) as folder:
                    self._system.unlink(name, folder)
            except FileNotFoundError:
                pass  # it is in its place, or was never made
            except (OSError, Conflict):
                cleaned = False
        return cleaned


def _overwrites(action: Action) -> bool:
    """Whether new contents take the place of what is there."""
    return action.act == "overwrite" and action.new is not None and action.new.is_file


def _changed(path: str) -> Conflict:
    text = f"{path!r} was changed by somebody while it was about to be restored"
    return Conflict(text, expected=None, actual=path, files=(path,))


def _signature(look: os.stat_result) -> Signature:
    return (look.st_size, look.st_mtime_ns, look.st_ctime_ns, look.st_ino, look.st_mode)


def prefix_of(token: str) -> str:
    return f"{TEMPORARY}{digest(token.encode())[3:19]}-"


def clean_up(root: Root, token: str, folders: Iterable[str]) -> None:
    """Remove what an interrupted restoration left behind in these folders."""
    prefix = prefix_of(token)
    for path in ["", *folders]:
        if root.is_folder(path):
            with root.folder(path) as folder:
                for name in root.system.names(folder):
                    if name.startswith(prefix):
                        root.system.unlink(name, folder)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Errors of the system as errors of ours, with what had been done until then."""
    try:
        yield
    except OSError as error:
        name = error.strerror or type(error).__name__
        raise Unavailable(f"{what}: {name}", retryable=False, committed=None) from error


# --- waiting for the disk in several threads: syncs that meet share their work ---

T = TypeVar("T")

MANY = 6  # fewer are sooner done than a thread is started
_EACH_HAS = 3
_HELPERS_MAX = 7


def each(work: Callable[[T], None], items: Sequence[T]) -> None:
    """Do it to every one, in any order. The first error ends it, and is raised."""
    if len(items) < MANY:
        for item in items:
            work(item)
        return
    left, errors = deque(items), list[BaseException]()

    def help() -> None:
        while left and not errors:
            try:
                item = left.popleft()
            except IndexError:
                return  # somebody else has it
            try:
                work(item)
            except BaseException as error:
                errors.append(error)

    helpers: list[_thread.LockType] = []
    with suppress(RuntimeError):  # no more threads can be had: then fewer do it
        for _ in range(min(len(items) // _EACH_HAS, _HELPERS_MAX)):
            helpers.append(_start(help))
    help()
    for done in helpers:
        _wait_for(done, errors)
    if errors:
        raise errors[0]


def _wait_for(done: _thread.LockType, errors: list[BaseException]) -> None:
    """Also when we are interrupted: nobody may be at work any more when this is over."""
    while True:
        try:
            done.acquire()
            return
        except BaseException as error:
            errors.append(error)


def _start(work: Callable[[], None]) -> _thread.LockType:
    """A thread, and a lock that is free when it has ended.

    The bare kind: to wait until each one runs, as others do, takes longer than a sync.
    """
    done = _thread.allocate_lock()
    done.acquire()

    def run() -> None:
        try:
            work()
        finally:
            done.release()

    _thread.start_new_thread(run, ())
    return done


# --- what a stored file becomes on a disk: its bytes, checked, and its permissions ---


def new_mode(node: Node) -> int:
    return 0o755 if node.kind == "executable" else 0o644


def changed_mode(mode: int, node: Node) -> int:
    """The permissions that a file has, executable or not; never setuid and the like."""
    mode &= 0o777
    return mode | (mode & 0o444) >> 2 if node.kind == "executable" else mode & ~0o111


def read(trees: Trees, node: Node) -> bytes:
    """The contents of a file, checked: also against the size that its manifest tells."""
    data = trees.read(node)
    if len(data) != node.size:
        text = f"{node.name!r} should have {node.size:,} bytes, but has {len(data):,}"
        raise Corrupt(f"blob {node.ref}", text)
    return data


def write_all(system: System, descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[system.write(descriptor, left) :]
