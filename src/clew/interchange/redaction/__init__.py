"""Redaction: secrets are replaced on the way out of a store, or on the way into it.

`rules` finds secrets in a text. `redactor` walks values and entries, and leaves alone what is not
for people. `clean_store` is a store that shows another one without its secrets.
"""
