"""Looking after stores: one module for each command.

`verify`, `repair`, `copy`, `cleanup`, `doctor`, `migrate`. `transfer` carries records
from one store to another for copy and repair, `rebuild` makes a new store of what was salvaged.
"""
