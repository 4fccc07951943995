"""Snapshots: file trees pinned to entries, and the way back to them.

Reading tour: `facet` is what `thread.snapshots` is; `take` stores a tree (`walk` looks at it,
`ignore` says what does not belong, `cache` knows what has not changed, `manifest` is what is
stored); `diff`, `history` and `quota` look at what is stored; `plan` and `restore` go back;
`rewind` moves conversation and files as one step.
"""
