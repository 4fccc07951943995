"""Interchange: the sessions that agents keep in files of their own, as threads of a store.

One module for the format of each agent; `registry` knows them by name. `tree` walks folders,
`intake` brings a file, `values` reads it without losing anything, `ledger` remembers how far.
`export` writes a thread in one of several forms, with a module for each.
"""
