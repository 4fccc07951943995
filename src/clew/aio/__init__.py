"""The same names, asynchronous: `handles`, `facets` and `snapshots` have them, `hop` the way there.

Every class is a thin facade over the synchronous object of its name, which is at hand as `.sync`.
"""
