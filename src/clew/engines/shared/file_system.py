"""The file system that a store lies on: whether it may, what a sync means, the room left."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from clew.core.errors import Unavailable, Unsupported
from clew.core.maintenance import Examined

UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)
ROOM_BYTES_MIN = 256 * 1024**2

# WAL needs shared memory, which these file systems do not give to more than one host.
NETWORK_FILE_SYSTEMS = frozenset(
    "9p afs beegfs ceph cifs coda davfs fuse.ceph fuse.gcsfuse fuse.glusterfs fuse.rclone "
    "fuse.s3fs fuse.sshfs gfs2 glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2 orangefs smb3 smbfs "
    "wekafs".split()
)

# What is on these is in memory, or belongs to a container, whatever a sync says.
_FLEETING = {
    "tmpfs": "is memory: what is on it is gone when the machine stops",
    "ramfs": "is memory: what is on it is gone when the machine stops",
    "overlay": "is mostly a container's own: what is on it goes with the container",
}


def refuse_network(folder: Path, mounts: str | None = None) -> None:
    kind = file_system(folder, mounts)
    if kind in NETWORK_FILE_SYSTEMS:
        raise Unsupported(
            f"{folder} is on a network file system ({kind}), where SQLite's write-ahead log is not "
            "safe; put the store on a local disk"
        )


def file_system(folder: Path, mounts: str | None = None) -> str | None:
    """The type of the file system that holds a folder, where the system tells."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
        except OSError:
            return None
    target = os.path.realpath(folder)
    best, kind = -1, None
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        point = left.split(" ")[4].encode().decode("unicode_escape")  # spaces come as \040
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:
            best, kind = len(point), right.split(" ")[0]
    return kind


def may(path: str | os.PathLike[str], mode: int) -> bool:
    """Whether this process may use a file in a way, as far as the system tells without a try."""
    effective = os.access in os.supports_effective_ids
    return os.access(path, mode, effective_ids=effective)


def refusal(path: str | os.PathLike[str]) -> str:
    """Why it may not be written, in the system's own words."""
    read_only = hasattr(os, "statvfs") and os.statvfs(path).f_flag & os.ST_RDONLY
    return f"{path}: {os.strerror(errno.EROFS if read_only else errno.EACCES)}"


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. SQLite does this too, but ignores its failure."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        text = f"{folder} cannot be synced: {error.strerror}"
        raise Unavailable(text, retryable=False) from error


def examine_disk(found: Examined, folder: str, kind: str | None) -> None:
    """The file system that a store lies on, and the room on it."""
    found.read["file system"] = kind or "not known"
    if kind in _FLEETING:
        do = "keep the store on a disk, or on a volume that outlives the container"
        found.warn(f"the file system ({kind}) {_FLEETING[kind]}", do)
    room = os.statvfs(folder)
    free = room.f_bavail * room.f_frsize
    found.read["room left"] = f"{free / 1024**3:.1f} GB"
    if free < ROOM_BYTES_MIN:
        do = "make room; a full disk refuses appends, and loses none"
        found.warn(f"there are only {free // 1024**2:,} MB left on the disk", do)


def examine_rights(found: Examined, path: str) -> None:
    """Who else on this machine may read it."""
    mode = os.stat(path).st_mode & 0o777
    found.read["rights"] = f"{mode:04o}"
    if mode & 0o077:
        only_me = "700" if os.path.isdir(path) else "600"
        import shlex  # only this warning needs it

        do = f"run: chmod {only_me} {shlex.quote(path)}"
        found.warn(f"other users of this machine may use {path}", do)
