"""The error of a policy file. It needs no YAML."""

import shlex
from typing import Final

from mailmend.model.file_forms import BadFile

REFUSED_MAX: Final = 1_000
"""Refused values after which reading stops."""

CUT: Final = "; the rest of the file was not read"
"""What is said behind a number of refused values where reading stopped."""


class BadPolicyFile(BadFile):
    """A policy file that cannot be used."""

    def _shown(self) -> list[str]:
        *lines, last = super()._shown()
        if self.is_cut:
            last += CUT
        return [*lines, last]

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
