"""The error of a policy file. It needs no YAML."""

import shlex
from collections.abc import Sequence
from typing import Final

from mailmend.model.errors import WrongUse
from mailmend.model.texts import Place

REFUSED_SHOWN: Final = 20
"""The largest number of refused values that an error shows."""

REFUSED_MAX: Final = 1_000
"""Refused values after which reading stops."""

CUT: Final = "; the rest of the file was not read"
"""What is said behind a number of refused values where reading stopped."""


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

    @property
    def each(self) -> Sequence["BadPolicyFile"]:
        """The error of each place, in the order of the file."""
        return self.refused or (self,)

    @property
    def is_cut(self) -> bool:
        """Whether reading stopped before the end of the file, as too much of it is refused."""
        return len(self.refused) >= REFUSED_MAX

    @property
    def in_short(self) -> "BadPolicyFile":
        """The error of the first place alone; its last line counts the others, and names the command for them."""
        others = len(self.each) - 1
        if not others:
            return self
        first = self.each[0]
        counted = "1 more error"
        if others > 1:
            counted = f"{others:,} more errors"
        command = f"mailmend policy lint {shlex.quote(self.file)}"
        mend = f"The file has {counted}. To see all of them: {command}"
        if first.mend:
            mend = f"{first.mend}\n{mend}"
        return BadPolicyFile(first.file, first.place, first.problem, mend=mend)


def _shown(refused: Sequence[BadPolicyFile]) -> str:
    lines = [str(error) for error in refused[:REFUSED_SHOWN]]
    more = len(refused) - REFUSED_SHOWN
    if more > 0:
        stopped = ""
        if len(refused) >= REFUSED_MAX:
            stopped = CUT
        lines.append(f"and {more} more{stopped}")
    return "\n".join(lines)
