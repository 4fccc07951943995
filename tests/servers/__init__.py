"""The servers that tests start by themselves: PostgreSQL, a proxy, pgbouncer, Patroni."""
