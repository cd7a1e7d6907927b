"""What a run looks at: the families of its projections, and how the next command names them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mailmend.model.catalog.mail import FAMILIES
from mailmend.model.projections.family import Family, projections_of
from mailmend.model.projections.projection import Projection


@dataclass(frozen=True, slots=True)
class RunScope:
    """The families of a run, and the words with which a person names them.

    Attributes:
        families: as they are bound to the keyspace, or as they are declared.
        is_mail: whether they are James's: then findings have mailboxes, owners and message ids.
        checked: what follows `mailmend check`.
        repair: what follows `mailmend` in a command that mends them; "" where a file comes first.
        before_repair: what a person does first in that case, in lines.
    """

    families: tuple[Family, ...] = FAMILIES
    is_mail: bool = True
    checked: str = "messages"
    repair: str = "repair messages"
    before_repair: Sequence[str] = ()
    projections: Mapping[str, Projection] = field(init=False, repr=False, compare=False)
    """By their names in findings."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "projections", projections_of(self.families))

    def is_only_reported(self, projection: str) -> bool:
        """Whether a repair leaves the inconsistencies of this projection."""
        found = self.projections.get(projection)
        return getattr(found, "report_only", False)


MAIL: Final = RunScope()
"""James's families, as the catalog declares them."""
