"""From a path to a provider's request. Pure but for two modules, which are given a thread.

`window` reads which entries still speak after the last compaction, `projection` makes the request
from them: `normalise` pairs calls with results, `budget` keeps the newest whole turns that fit,
`tokens` estimates. `cut` plans what a compaction sums up; `compaction` builds, appends and undoes
its entry; `bodies` reads the entries of compactions and edits, whoever wrote them.
"""

from clew.context.projection import project

__all__ = ["project"]
