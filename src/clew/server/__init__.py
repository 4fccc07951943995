"""The viewer: threads in a browser, served on this machine only.

Reading tour: `listen` binds a port and runs the server; `security` stands before every request;
`app` has the table of routes and turns errors into pages; `site` is what every page has at hand;
`events` tells open pages what is new. Each page is a module: `threads` (the list), `conversation`,
`tree`, `context` (with comparing), `files`, `timeline`, `search`, `usage`, `health`, `share`. What
entries look like is decided in `cards`, how text becomes markup in `render`, and `outline` keeps
the shape of long threads. `build` does what reads a whole store behind the pages, `growth` is one
such thing, and `stopwatch` tells what was slow. Nothing here knows an engine: all of it goes
through the handles of a store.
"""
