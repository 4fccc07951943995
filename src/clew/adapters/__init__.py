"""Adapters: a store behind the interface of a framework, one module each.

None is imported by the rest of Clew, and each needs its framework: `pip install 'clew[langgraph]'`.
What a framework stores becomes entries of a thread, its messages as messages, so that a thread
that was written through one adapter is read by the library, the command line and the others.
"""
