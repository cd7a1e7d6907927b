"""Truth rows and contents are removed only when older than a day, when no write of them can be under way."""

from uuid import UUID

from mailmend.model.ids import micros_of
from mailmend.model.instants import MICROS
from mailmend.model.projections.reasons import Reason, Why
from mailmend.model.table import Key

DAY_MICROS = 24 * 3600 * MICROS
"""The least age of a truth row for quarantine, and of content for collection, in microseconds."""


def older_than_a_day(key: Key, now: int) -> bool:
    """Whether a version-1 UUID in the key is more than a day old."""
    born = born_at(key)
    return born is not None and born < now - DAY_MICROS


def born_at(key: Key) -> int | None:
    """When the youngest version-1 UUID of a key was made; None where it has none."""
    return max((micros_of(part) for part in key if isinstance(part, UUID) and part.version == 1), default=None)


def why_kept(key: Key, touched: int | None, now: int) -> Reason:
    """Why a row that may be removed stays: it is younger than a day, or lacks what its removal needs."""
    since = max((at for at in (born_at(key), touched) if at is not None), default=None)
    if since is not None and since < now - DAY_MICROS:
        return Reason(Why.NO_WHOLE_ROW)
    return Reason(Why.YOUNGER_THAN_A_DAY, again_at=None if since is None else since + DAY_MICROS)
