"""Suspensions by hand: mails that are not to be picked, whatever the policies say, until it ends or is removed.

Source: docs/design.md, "Pickup" (8).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from mailmend.delivery.policy.covering import pattern_text
from mailmend.delivery.policy.policy import (
    PatternTexts,
    PickupField,
    ValuePattern,
    field_named,
    kept_pattern,
    pattern_of,
)
from mailmend.model.errors import WrongUse
from mailmend.model.grammar import ascii_domain
from mailmend.model.ids import QueueName, micros_of
from mailmend.model.instants import instant_of

ORDER_MAX: Final = timedelta(days=365)
"""The longest time for which something may be ordered."""

HOOK_OWNER: Final = "hook "
"""What the owner of whatever a hook orders begins with, before the hook's name; no other owner begins with it."""

_NAMES: Final = ("#", "@")
"""What names of groups and lists begin with, which only a policy file has."""


@dataclass(frozen=True, slots=True)
class Suspension:
    """Mails whose values match in each field that is named; none named is every mail.

    Attributes:
        patterns: by field; one of a field's must match. One of the source address leaves the others to the mail.
        ends_at: in nanoseconds of the engine's clock; None: until it is removed.
    """

    id: str
    patterns: Mapping[PickupField, tuple[ValuePattern, ...]] = field(default_factory=dict)
    ends_at: int | None = None

    def holds(self, values: Mapping[PickupField, str]) -> bool:
        return all(any(value.matches(values.get(named, "")) for value in some) for named, some in self.patterns.items())


def normal_value(named: PickupField, text: str) -> str:
    """A value of a suspension as a policy file spells it, in the one spelling of what means the same.

    Raises:
        WrongUse: no mail can have it, or it names a group or a list.
    """
    if text.startswith(_NAMES):
        meant = f"Did you mean {text[1:]!r}?" if ascii_domain(text[1:]) else "Write values."
        raise WrongUse(f"{text!r} names a group or a list, which only a policy file has", mend=meant)
    return pattern_text(pattern_of(named, text))


def normal_values(values: PatternTexts) -> PatternTexts:
    """The same of all values, each once, by the names of their fields.

    Raises:
        WrongUse: an unknown field, or a value that is not valid.
    """
    return {
        name: tuple(dict.fromkeys(normal_value(field_named(name), text) for text in texts))
        for name, texts in values.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeSuspension:
    """A suspension that an operator or hook made for all servers of a queue.

    Attributes:
        id: its time is when it was made.
        values: by the name of their field; none is every mail.
        owner: who made it.
        ends_at: None: until it is removed.
        damage: why the ledger does not tell its values: it holds every mail then; "" where it tells them.
    """

    id: UUID
    queue: QueueName
    values: PatternTexts
    owner: str
    reason: str
    ends_at: datetime | None = None
    damage: str = ""

    def names_the_same(self, values: PatternTexts) -> bool:
        """Whether it is of the mails that these values name, in whatever order."""
        return {name: set(texts) for name, texts in self.values.items()} == {
            name: set(texts) for name, texts in values.items()
        }

    @property
    def made_at(self) -> datetime:
        return instant_of(micros_of(self.id))

    @property
    def is_of_hook(self) -> bool:
        return self.owner.startswith(HOOK_OWNER)

    def has_ended(self, now: datetime) -> bool:
        return self.ends_at is not None and self.ends_at <= now

    @property
    def unread(self) -> tuple[str, ...]:
        """Why fields of it cannot be read, such as an expression that an older version took; () where all can."""
        return self._read()[1]

    @property
    def holds_every_mail(self) -> bool:
        """Whether it names no mails, or cannot be read in any field."""
        return not self._read()[0]

    def suspension(self, ends_at: int | None) -> Suspension:
        """As the engine has it; `ends_at` is in nanoseconds of the engine's clock.

        A field that cannot be read matches every mail. The suspension then holds more mails than it names, because a
        mail that waits can still go, and a mail that went cannot come back.
        """
        return Suspension(str(self.id), self._read()[0], ends_at)

    def _read(self) -> tuple[Mapping[PickupField, tuple[ValuePattern, ...]], tuple[str, ...]]:
        """The patterns of each field that can be read, and why the other fields cannot."""
        patterns = dict[PickupField, tuple[ValuePattern, ...]]()
        unread = [self.damage] if self.damage else []
        for name, texts in self.values.items():
            try:
                named = field_named(name)
                patterns[named] = tuple(kept_pattern(named, text) for text in texts)
            except WrongUse as error:
                unread.append(error.what)
        return patterns, tuple(unread)
