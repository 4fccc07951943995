"""A store in PostgreSQL, for many machines. Needs `clew[postgres]`.

Reading tour: `engine` is the waist. `write` plans an append on the head that `lookup` remembers,
and sends it as one statement, which the functions of sql/postgres.sql carry out if the head is
still that one. `read` asks one statement for each answer; `rows` turns rows into records.
`address` is where a store is. `pool` lends connections, repeats what may be repeated and ends by a
deadline; `wire` is one connection. `schema` recognises a store, makes it, and brings it up to
date; `server` says what an acknowledgement of this server means. `blobs`, `leases` and `purge` are
what their names say; `listen` waits for appends. `verify` brings the rows to `shared.audit`;
`table_streams` reads them for it, all tables side by side, at one moment. For tools: `migrate` and
`rls` change the schema, `doctor` looks at the server.
"""

from clew.engines.postgres.engine import PostgresEngine

__all__ = ["PostgresEngine"]
