"""What people order for a queue's deliveries, in the ledger: what its tables have in common.

Few rows are there at once, in one partition for each queue. One that has an end expires soon after it, so nothing has
to be deleted, and a server whose clock is late sees it to its end.
"""

from datetime import datetime, timedelta
from typing import Final

KEPT_AFTER_END: Final = timedelta(minutes=1)
"""How long a row outlives what it orders, which ends by the clocks of those who read it."""


def kept_seconds(ends_at: datetime | None, now: datetime) -> int | None:
    """The time to live of a row that is written now; None: it stays."""
    if ends_at is None:
        return None
    return max(1, -(-(ends_at - now + KEPT_AFTER_END) // timedelta(seconds=1)))
