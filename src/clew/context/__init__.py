"""From a path to a provider's request. Pure: nothing here reads or writes a store.

`window` says which entries still speak after the last compaction, `project` makes the request from
them: `normalise` pairs calls with results, `budget` keeps the newest whole turns that fit, `tokens`
estimates. `compaction` decides where to cut, and builds the entry that stands for the rest.
"""
