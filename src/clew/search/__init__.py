"""Finding what was said, in every thread of a store.

Read `words` (what a word is), `documents` (what can be found of a record), `query` (what a person
types), `catch_up` (how the index follows the store), `searcher` (a search from end to end) and
`snippet` (what is shown of a hit). Where postings are kept is the engine's affair: see
`clew.core.text_index`.
"""
