"""Every system call that a restore makes, in one place, so that a test can make each one fail.

All of them name a file by a folder's descriptor and a name in it. Nothing here retries, catches
or decides.
"""

from __future__ import annotations

import os

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class System:
    """The real one."""

    # --- looking ---

    def open_root(self, path: str) -> int:
        """The top: the one name that the caller vouches for, links in it included."""
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def open_folder(self, name: str, folder: int) -> int:
        return os.open(name, FOLDER, dir_fd=folder)

    def open_file(self, name: str, folder: int) -> int:
        """For reading; never through a link, and never waiting for a pipe."""
        return os.open(name, _READ, dir_fd=folder)

    def stat(self, name: str, folder: int) -> os.stat_result:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)

    def stat_open(self, descriptor: int) -> os.stat_result:
        return os.fstat(descriptor)

    def names(self, folder: int) -> list[str]:
        return os.listdir(folder)

    def read(self, descriptor: int, size: int) -> bytes:
        return os.read(descriptor, size)

    def read_link(self, name: str, folder: int) -> str:
        return os.readlink(name, dir_fd=folder)

    # --- changing ---

    def create(self, name: str, folder: int, mode: int) -> int:
        """A new file; the system takes the umask off its mode."""
        return os.open(name, _CREATE, mode, dir_fd=folder)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        """Perhaps less than all of it."""
        return os.write(descriptor, data)

    def give(self, descriptor: int, owner: int, group: int) -> None:
        os.fchown(descriptor, owner, group)

    def set_mode(self, descriptor: int, mode: int) -> None:
        os.fchmod(descriptor, mode)

    def begin_sync(self, descriptor: int) -> None:
        """The disk may begin with what will be synced soon, and go on while we do."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def rename(self, name: str, folder: int, new_name: str, new_folder: int) -> None:
        os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder)

    def unlink(self, name: str, folder: int) -> None:
        os.unlink(name, dir_fd=folder)

    def make_folder(self, name: str, folder: int) -> None:
        os.mkdir(name, 0o755, dir_fd=folder)

    def remove_folder(self, name: str, folder: int) -> None:
        os.rmdir(name, dir_fd=folder)

    def make_link(self, target: str, name: str, folder: int) -> None:
        os.symlink(target, name, dir_fd=folder)


REAL = System()
