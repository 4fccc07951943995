"""Snapshots: file trees pinned to entries, and rewinding to them.

Reading tour: `facet` is what `thread.snapshots` is, and `model` what it tells. A snapshot is taken
by `take`: `scan` looks at a tree (`scan_paths` at some paths of it) and makes a `survey`; `ignore`
says what does not belong, `stat_cache` remembers what has not changed; a folder is stored as a
`manifest`, and `catalogue` knows which snapshots there are. `tree` reads them again: for `diff`,
`history` and `blame`, and for `quota`, which bounds them. `point` says which one belongs to an
entry.
`rewind` moves conversation and files as one step, from top to bottom: `plan` says what is to be
done, `preflight` what is in the way of it, `intent` is the note of it, and `apply` does it, through
`dirfd`; `undo` takes it back. `checkout` writes a whole tree into a new folder.
"""
