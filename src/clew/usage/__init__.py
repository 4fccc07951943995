"""What the replies of models took and cost, each counted once.

Reading tour: `report` answers `store.usage()`; `cache` keeps what was counted, and reads on from
there; `replies` says which entries tell of which reply; `prices` is what tokens cost.
"""

from clew.usage.model import Tokens, UsageReport, UsageRow, Used, line_of
from clew.usage.report import usage_of

__all__ = ["Tokens", "UsageReport", "UsageRow", "Used", "line_of", "usage_of"]
