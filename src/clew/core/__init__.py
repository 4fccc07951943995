"""The core: the nouns as frozen data, the rules as pure functions, and the waist. No I/O.

`model` has the nouns, `errors` what can go wrong, `codec` JSON, digests and ids, `hashes` what a
hash covers, `lines` a record as a line of text. `drafts` checks what callers pass in. `engine` is
the waist, which every storage implements; `maintenance` is what it offers to tools that look after
a whole store. `reducer` and `lease_rules` are the rules that all engines share.
"""
