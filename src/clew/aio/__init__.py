"""The same names, asynchronous: `handles` has the classes, `hop` the way to a worker thread."""
