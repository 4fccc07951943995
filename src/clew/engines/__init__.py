"""The engines: implementations of the waist (`core.engine`), one storage each.

Reading tour: `memory` is the whole waist in one file, by calling the rules of `core.reducer`
behind a lock. `sqlite`, `files` and `postgres` are folders with a tour of their own; the same room
has the same name in each of them:

- `engine` is the waist itself, and calls the others;
- `rows` turns what is stored into records and back;
- `write` and `read` are the two halves of the work (for files: `journal`, and `index`);
- `blobs`, `leases` and `purge` are what the waist calls so;
- `verify` reads everything and hands it to `shared.audit`;
- `doctor` and `repair/` are what tools ask for.

`shared` is what several of them have in common, `sql` are the schemas. An engine is imported when
a store of its kind is opened, and imports `core` and `shared`, never another engine.
"""
