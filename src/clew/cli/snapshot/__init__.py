"""Files as they were, pinned to the messages of a thread."""

from __future__ import annotations

COMMANDS = {
    "blame": "the lines of a file, each with the entry that brought it",
    "diff": "what changed between two snapshots, or since one of them",
    "list": "the snapshots of a thread, newest first",
    "restore": "bring files back as a snapshot has them; the conversation stays",
    "show": "the files of a snapshot, or one of them",
    "take": "store the files of a folder as they are now",
}
