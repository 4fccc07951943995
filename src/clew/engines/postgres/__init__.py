"""A store in PostgreSQL, for many machines. Needs `clew[postgres]`.

Reading tour: `engine` is the waist. `journal` plans an append on the head that `heads` remembers
and sends it as one statement, which the functions of sql/postgres.sql carry out if the head is
still that one. `connections` lends connections, repeats what may be repeated and ends by a
deadline; `wire` is one connection. `establishing` makes and recognises the schema, `serving` says
what an acknowledgement of this server means. `check` verifies: `moment` reads, `streams` go through
the tables side by side, `replay` compares. For the command line: `migrating` and `rls` change the
schema, `doctor` is for the doctor.
"""

from clew.engines.postgres.engine import PostgresEngine

__all__ = ["PostgresEngine"]
