"""Materialised views of a live schema: which of them hold every row of their base. Pure."""

import re
from typing import Final

from mailmend.model.keyspace import View
from mailmend.model.names import name_of
from mailmend.model.table import is_plain_name

_AND: Final = re.compile(r"\sAND\s", re.IGNORECASE)
_NOT_NULL: Final = re.compile(r"(\S+)\s+IS\s+NOT\s+NULL", re.IGNORECASE)
"""What the condition of every view demands of the columns of its key."""


def other_conditions(view: View) -> list[str]:
    """What a view demands of a row other than a whole key, in CQL."""
    others = []
    for condition in _AND.split(view.where):
        found = _NOT_NULL.fullmatch(condition.strip())
        if found is None or name_of(found[1]) not in view.table.key_names:
            others.append(condition.strip())
    return others


def can_be_compared(view: View) -> bool:
    """Whether a view has a row for each row of its base that has a whole key."""
    return is_plain_name(view.spelling) and is_plain_name(view.base) and not other_conditions(view)
