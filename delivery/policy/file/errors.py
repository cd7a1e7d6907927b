"""The error of a policy file that cannot be used, with the place of each refused value. It needs no YAML."""

from collections.abc import Sequence
from typing import Final

from mailmend.model.errors import WrongUse
from mailmend.model.texts import Place

REFUSED_SHOWN: Final = 20
"""The largest number of refused values that an error shows."""

REFUSED_MAX: Final = 1_000
"""Refused values after which reading stops."""


class BadPolicyFile(WrongUse):
    """A policy file that cannot be used; the message says where, and what to write instead.

    Args:
        file: its name, as it was given.
        place: where.
        problem: what is wrong there.
        refused: the errors of several places, in the order of the file; the message shows the first of them.
    """

    def __init__(
        self, file: str, place: Place, problem: str, *, mend: str = "", refused: Sequence["BadPolicyFile"] = ()
    ) -> None:
        what = f"{file}, line {place.line}, column {place.column}: {problem}\n{place.pointed}"
        if refused:
            what = _shown(refused)
        super().__init__(what, mend=mend)
        self.file = file
        self.place = place
        self.problem = problem
        self.refused = tuple(refused)


def _shown(refused: Sequence[BadPolicyFile]) -> str:
    lines = [str(error) for error in refused[:REFUSED_SHOWN]]
    more = len(refused) - REFUSED_SHOWN
    if more > 0:
        stopped = ""
        if len(refused) >= REFUSED_MAX:
            stopped = "; the rest of the file was not read"
        lines.append(f"and {more} more{stopped}")
    return "\n".join(lines)
