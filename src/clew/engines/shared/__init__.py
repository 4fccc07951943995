"""What engines share. An engine imports this and the core, and no other engine.

Reading tour: `group_commit` lets writers share a transaction and a sync, `durability` says what
that is worth; `compression` makes blobs of large bodies; `thread_list` puts pages of threads
together; `clock` measures leases. `audit` has the rules of verification, for all engines.
`process_fork` keeps open stores whole when the process forks. `migrations` finds the SQL files.
`tables` is a journal as SQLite tables, for the two engines that have them. For tools: `namespaces`
works on all namespaces of a store, `swap` puts a repaired store into its place, `file_system`
knows the disk.
"""
