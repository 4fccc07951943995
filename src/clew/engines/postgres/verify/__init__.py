"""Verifying a store in PostgreSQL, at one moment, while others write.

`check` is the order of the work, `streams` reads the tables side by side, `replay` judges them.
"""
