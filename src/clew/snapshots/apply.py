"""Carrying out a plan in a working tree, so that at each moment every file is old or new.

First all new contents are written beside their places and made durable, under names of our own;
a full disk shows here, when nothing has changed yet. Then names are switched, each at once.
Contents are checked before (blobs by their hash and size) and what is there now is compared with
what the plan was made for, so that nothing is overwritten that is not kept anywhere.
"""

from __future__ import annotations

import _thread
import errno
import os
import stat
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from clew.core.codec import digest
from clew.core.engine import Progress
from clew.core.errors import Conflict, Corrupt, Unavailable
from clew.snapshots.dirfd import Root
from clew.snapshots.ignore import TEMPORARY
from clew.snapshots.manifest import FILE_KINDS, Node
from clew.snapshots.plan import Action, Work
from clew.snapshots.tree import Trees

MANY = 6  # fewer are sooner done than a thread is started
_EACH_HAS = 3
_HELPERS_MAX = 7
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)
_FEW = 64  # files that can all be open at once
_CHUNK = 256  # then progress is told

T = TypeVar("T")
_Content = tuple[int, Action, Node]  # a file that gets contents: the action's number, and what


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
        self._coming = {a.path for a in work.actions if a.act == "create"}
        self._contents: list[_Content] = []
        self._noted: dict[str, os.stat_result] = {}
        self._staged: dict[str, tuple[str, str]] = {}  # path → the folder and name of its contents
        self._folders: dict[str, str] = {}
        self._mutex = threading.Lock()
        self._waiting = Counter(a.path.rpartition("/")[0] for a in work.actions)  # steps in each
        self._unsynced: set[str] = set()
        self._left: set[str] = set()  # folders that something was moved out of
        self._progress = progress
        self._told = 0
        self.total = len(work.actions)
        self.done = 0
        self.at = ""

    # --- before anything changes ---

    def prepare(self) -> None:
        """Check everything that can be checked, and write all contents. Changes no file."""
        with translated(f"nothing was changed in {self._root.path}"):
            wanted = [
                a.new for a in self._actions if a.new is not None and a.new.kind in FILE_KINDS
            ]
            # Many are asked for before the first is staged. Few are read as soon as that.
            missing = self._trees.missing(n.ref for n in wanted) if len(wanted) > _FEW else set()
            for node in wanted:
                if node.ref in missing:
                    raise Corrupt(f"blob {node.ref}", f"the contents of {node.name!r} are missing")
            for n, action in enumerate(self._actions):
                self._look_at(n, action)
            if len(self._contents) <= _FEW:
                self._stage_few()
            else:
                self._stage_many()

    def _look_at(self, n: int, action: Action) -> None:
        old, new = action.old, action.new
        file = new if new is not None and new.kind in FILE_KINDS else None
        # What gets new contents is looked at when they are staged: its folder is open then.
        later = file is not None and action.act == "overwrite"
        if old is not None and old.kind != "folder" and not later:
            with self._unless_gone(action), self._root.parent(action.path) as (folder, _):
                self._note(action, old, folder)
        # A file with other names, which are none of ours, gets no other mode in its place.
        if file is not None and (action.act != "mode" or self._noted[action.path].st_nlink > 1):
            self._contents.append((n, action, file))

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
        found = self._root.find_same(folder, action.path.rpartition("/")[2], old)
        if found is None:
            raise _changed(action.path)
        self._noted[action.path] = found

    def _stage_few(self) -> None:
        """All are written, the disk begins with all of them, and then they are waited for."""
        opened: list[tuple[str, int]] = []
        try:
            for item in self._contents:
                opened.append((item[1].path, self._stage(item)))
            for _, descriptor in opened:
                with suppress(OSError):  # it was only a hint
                    self._system.begin_sync(descriptor)
            each(self._sync, opened)
        finally:
            for _, descriptor in opened:
                os.close(descriptor)
        self._tell(len(opened))

    def _sync(self, item: tuple[str, int]) -> None:
        self.at = item[0]
        self._system.sync(item[1])

    def _stage_many(self) -> None:
        """Some are written while others wait for the disk."""
        for _, action, _ in self._contents:
            self._folder_for(action)  # in one thread, so that those below only look it up
        for at in range(0, len(self._contents), _CHUNK):
            chunk = self._contents[at : at + _CHUNK]
            each(self._stage_one, chunk)
            self._tell(len(chunk))

    def _stage_one(self, item: _Content) -> None:
        descriptor = self._stage(item)
        try:
            self._system.sync(descriptor)
        finally:
            os.close(descriptor)

    def _stage(self, item: _Content) -> int:
        """The descriptor of a new file that has all that it should, but may not be durable yet."""
        n, action, node = item
        above, name = self._folder_for(action), f"{self._prefix}{n}"
        with self._unless_gone(action), self._root.folder(above) as folder:
            old = action.old
            if old is not None and action.act == "overwrite":
                self._note(action, old, folder)
            like = self._noted[action.path] if old is not None and old.kind in FILE_KINDS else None
            data = self._trees.read(node)
            self._staged[action.path] = above, name
            mode = new_mode(node) if like is None else changed_mode(like.st_mode, node)
            return self._root.write_file(folder, name, data, mode, like)

    def _folder_for(self, action: Action) -> str:
        """The innermost folder above something that is there already."""
        above = action.path.rpartition("/")[0]
        return above if action.act == "overwrite" else self._innermost(above)

    def _innermost(self, folder: str) -> str:
        found = self._folders.get(folder)
        if found is None:
            there = not folder or self._root.is_folder(folder)
            found = folder if there else self._innermost(folder.rpartition("/")[0])
            self._folders[folder] = found
        return found

    def _tell(self, more: int) -> None:
        self._told += more
        if self._progress is not None:
            self._progress(self._told, self.total)

    # --- the change itself ---

    def apply(self) -> None:
        """Switch all names. What is done when it fails is counted in `done`.

        New contents of files do not depend on each other: several are switched at once, between
        what makes room for them and what comes after them.
        """
        numbers = {n for n, _, _ in self._contents}
        first = min(numbers, default=self.total)
        after = [a for n, a in enumerate(self._actions) if n > first and n not in numbers]
        with translated(f"restoring {self._root.path} failed"):
            for action in self._actions[:first]:
                self._go(action)
                self._tell(1)
            each(self._go, [action for _, action, _ in self._contents])  # told when staged
            for action in after:
                self._go(action)
                self._tell(1)
            each(self._sync_folder, sorted(self._unsynced | self._left))

    def _go(self, action: Action) -> None:
        """One step; the last one in a folder makes it durable."""
        above = action.path.rpartition("/")[0]
        self._unsynced.add(above)
        try:
            with self._root.parent(action.path) as (folder, name):
                self._do(action, folder, name)
                with self._mutex:
                    self.done += 1
                    self._waiting[above] -= 1
                    is_last = not self._waiting[above]
                if is_last:
                    self._system.sync(folder)
                    self._unsynced.discard(above)
        except BaseException:
            self.at = action.path
            raise

    def _sync_folder(self, folder: str) -> None:
        self.at = folder
        try:
            with self._root.folder(folder) as descriptor:
                self._system.sync(descriptor)
        except (Conflict, FileNotFoundError):
            pass  # it is gone, or was never one of ours

    def _do(self, action: Action, folder: int, name: str) -> None:
        system, new = self._system, action.new
        if new is None and action.node.kind == "folder":
            try:
                system.remove_folder(name, folder)
            except OSError as error:
                # Something new is in it: then it stays, unless its place is needed.
                if error.errno not in _NOT_EMPTY or action.path in self._coming:
                    raise
        elif new is None:
            self._check_still(action, folder, name)
            system.unlink(name, folder)
        elif new.kind == "folder":
            try:
                system.make_folder(name, folder)
            except FileExistsError:
                found = self._root.find(folder, name)
                if found is None or not stat.S_ISDIR(found.st_mode):
                    raise _changed(action.path) from None
        elif new.kind == "link":
            # A link cannot be changed in its place, only be replaced by another one.
            temporary = f"{self._prefix}{self.done}"
            self._staged[action.path] = action.path.rpartition("/")[0], temporary
            system.make_link(new.ref, temporary, folder)
            self._check_still(action, folder, name)
            system.rename(temporary, folder, name, folder)
        elif action.path in self._staged:
            self._check_still(action, folder, name)
            above, temporary = self._staged[action.path]
            if above == action.path.rpartition("/")[0]:
                system.rename(temporary, folder, name, folder)
                return
            with self._root.folder(above) as source:
                system.rename(temporary, source, name, folder)
            self._left.add(above)
        else:
            self._set_mode(action, new, folder, name)

    def _set_mode(self, action: Action, node: Node, folder: int, name: str) -> None:
        descriptor = self._system.open_file(name, folder)
        try:
            look = self._system.stat_open(descriptor)
            noted = self._noted[action.path]
            if (look.st_ino, look.st_dev, look.st_nlink) != (noted.st_ino, noted.st_dev, 1):
                raise _changed(action.path)
            self._system.set_mode(descriptor, changed_mode(look.st_mode, node))
            self._system.sync(descriptor)
        finally:
            os.close(descriptor)

    def _check_still(self, action: Action, folder: int, name: str) -> None:
        """Just before a name is switched: it must still be what the plan was made for."""
        seen = None if action.old is None else self._noted[action.path]
        if self._root.is_as_seen(folder, name, seen):
            return
        # Another name of the same file may have been switched before: then only times differ.
        if action.old is None or self._root.find_same(folder, name, action.old) is None:
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


def clean_up(root: Root, token: str, folders: Iterable[str]) -> None:
    """Remove what an interrupted restoration left behind in these folders."""
    prefix = prefix_of(token)
    for path in ["", *folders]:
        if root.is_folder(path):
            with root.folder(path) as folder:
                for name in root.system.names(folder):
                    if name.startswith(prefix):
                        root.system.unlink(name, folder)


def prefix_of(token: str) -> str:
    """How the temporary files of one restoration begin: it must not remove those of another."""
    return f"{TEMPORARY}{digest(token.encode())[3:19]}-"


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Errors of the system as errors of ours, with what had been done until then."""
    try:
        yield
    except OSError as error:
        name = error.strerror or type(error).__name__
        raise Unavailable(f"{what}: {name}", retryable=False, committed=None) from error


def new_mode(node: Node) -> int:
    """The permissions of a file that was not there; a snapshot keeps no others."""
    return 0o755 if node.kind == "executable" else 0o644


def changed_mode(mode: int, node: Node) -> int:
    """The permissions that a file has, executable or not; never setuid and the like."""
    mode &= 0o777
    return mode | (mode & 0o444) >> 2 if node.kind == "executable" else mode & ~0o111


def _changed(path: str) -> Conflict:
    text = f"{path!r} was changed by another process while it was about to be restored"
    return Conflict(text, field="files", expected=None, actual=path, files=(path,))


# --- waiting for the disk in several threads: syncs that meet share their work ---


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
                return  # another thread has it
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
    """Also when we are interrupted: no thread may be at work any more when this is over."""
    while True:
        try:
            done.acquire()
            return
        except BaseException as error:
            errors.append(error)


def _start(work: Callable[[], None]) -> _thread.LockType:
    """A thread, and a lock that is free when it has ended.

    The bare kind: `threading.Thread` waits until each one runs, which takes longer than a sync.
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
