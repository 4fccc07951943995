"""A journal as SQLite tables: a SQLite store is such tables, and so is the index of a files store.

`rows` turns rows into records and back, and finds one; `facts` keeps the latest values and what
lists filter by; `read` answers the reading half of the waist; `purge` finds what no fork needs any
more; `namespaces` are the numbers that tenants have in every statement.
"""
