"""Snapshots: file trees pinned to entries, and the way back to them.

Reading tour: `facet` is what `thread.snapshots` is; `taking` takes one (`walk` looks at a tree,
`partial` at some paths of it, `ignore` says what does not belong, `cache` knows what has not
changed, `take` stores the rest, `manifest` is what is stored, `catalogue` which ones there are);
`diff` and `looking` look at what is stored, `quota` bounds it; `plan` says what a way back would
do, `restore` does it, and `rewind` moves conversation and files as one step, of which `going` is
the order and `intent` the note.
"""
