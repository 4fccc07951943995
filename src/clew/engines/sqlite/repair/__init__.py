"""Repairing a SQLite store: `workshop` is alone with a copy, `salvage` reads what rows are left.

`pages` takes rows off raw pages where SQLite gives up, `remains` is one thread of what was found.
"""
