"""Which recipients of a queue's mails are meant: as commands and callers over a network name them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import click

from mailmend.admin.frame.command import Shared, Values
from mailmend.admin.frame.kinds import Duration, ParsedValue
from mailmend.admin.frame.options import option
from mailmend.admin.queue.options import AGE_MAX
from mailmend.delivery.mail.entries import EntryState
from mailmend.delivery.mail.queued import EntryField, EntryFilter
from mailmend.model.errors import WrongUse

_RANGE: Final = re.compile(r"(\d{1,6})(-(\d{1,6})?)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySelection:
    """Which entries, relative to the time of the request; by default all. `retries`: least and greatest number."""

    ids: tuple[str, ...] = ()
    texts: Mapping[EntryField, tuple[str, ...]] = field(default_factory=dict)
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    states: tuple[EntryState, ...] = ()
    retries: tuple[int, int | None] = (0, None)
    older_than: timedelta | None = None
    newer_than: timedelta | None = None

    def at(self, now: datetime) -> EntryFilter:
        older_than_at = None
        if self.older_than:
            older_than_at = now - self.older_than
        newer_than_at = None
        if self.newer_than:
            newer_than_at = now - self.newer_than
        return EntryFilter(
            ids=frozenset(self.ids),
            texts=self.texts,
            attributes=self.attributes,
            states=frozenset(self.states),
            refusals_min=self.retries[0],
            refusals_max=self.retries[1],
            older_than_at=older_than_at,
            newer_than_at=newer_than_at,
        )


def parse_retries(text: str) -> tuple[int, int | None]:
    """How often at least, and at most: `3`, `3-` for three or more, `3-10`."""
    found = _RANGE.fullmatch(text)
    if not found:
        raise WrongUse(f"{text!r} is no range of numbers", mend="Write 3, 3- for three or more, or 3-10.")
    low = int(found[1])
    if not found[2]:
        return low, low
    if not found[3]:
        return low, None
    return low, int(found[3])


def parse_attribute(text: str) -> tuple[str, str]:
    """An attribute of a mail, and what it is to be: `campaign=spring`."""
    name, is_there, value = text.partition("=")
    if not name or not is_there:
        raise WrongUse(f"{text!r} is no attribute with a value", mend="Write it like campaign=spring.")
    return name, value


def attributes_of(pairs: Iterable[tuple[str, str]]) -> Mapping[str, tuple[str, ...]]:
    """By name, what each may be."""
    found = dict[str, tuple[str, ...]]()
    for name, value in pairs:
        found[name] = (*found.get(name, ()), value)
    return found


_AGE: Final = Duration(AGE_MAX, zero=False)
_TEXTS: Final = {
    EntryField.TRANSPORT: ("Transport of the mail, its attribute transportid", "NAME"),
    EntryField.JOB: ("Job of the mail, its attribute jobid", "NAME"),
    EntryField.TENANT: ("Tenant of the mail, its attribute tenantid", "NAME"),
    EntryField.GROUPING: ("Grouping of the mail, its attribute", "NAME"),
    EntryField.SENDER: ("Sender of the mail: in any case, <> is the null sender", "ADDRESS"),
    EntryField.SENDER_DOMAIN: ("Domain of the sender", "DOMAIN"),
    EntryField.RECIPIENT: ("Recipient of the mail: this one, in any case", "ADDRESS"),
    EntryField.DOMAIN: ("Domain of the recipient", "DOMAIN"),
    EntryField.REMOTE_MX: ("Name of the next server: the one that was tried last", "NAME"),
    EntryField.REPLY: ("Answer of the server, like '421 *'", "TEXT"),
}


def _selection(own: Values, _others: Values, _context: click.Context) -> EntrySelection:
    texts = {named: tuple(own[named.value.replace("-", "_")]) for named in _TEXTS}
    return EntrySelection(
        ids=tuple(own["ids"]),
        texts={named: some for named, some in texts.items() if some},
        attributes=attributes_of(own["attribute"]),
        states=tuple(EntryState(word) for word in own["in_state"]),
        retries=own["retries"] or (0, None),
        older_than=own["older_than"],
        newer_than=own["newer_than"],
    )


def _text_option(named: EntryField, text: str, kind: str) -> click.Option:
    return option(
        f"--{named.value}",
        f"{text}; * stands for anything; may be given again.",
        type=ParsedValue(named.value, lambda value: named.wanted(str(value))),
        multiple=True,
        metavar=kind,
    )


WHICH_RECIPIENTS: Final = Shared(
    "selection",
    {
        "Which recipients": (
            option(
                "--id",
                "Only this mail: or one recipient of it, as `list` names it; may be given again.",
                "ids",
                multiple=True,
                metavar="ID",
            ),
            *(_text_option(named, text, kind) for named, (text, kind) in _TEXTS.items()),
            option(
                "--attribute",
                "An attribute of the mail: * stands for anything; may be given again.",
                type=ParsedValue("attribute", lambda value: parse_attribute(str(value))),
                multiple=True,
                metavar="NAME=VALUE",
            ),
            option(
                "--in-state",
                "Held, deferred or active; may be given again.",
                type=click.Choice([state.value for state in EntryState]),
                multiple=True,
            ),
            option(
                "--retries",
                "Number of temporary refusals: 3, 3- or 3-10.",
                type=ParsedValue("range", lambda value: parse_retries(str(value))),
                metavar="RANGE",
            ),
            option("--older-than", "Only mails enqueued longer ago than this.", type=_AGE),
            option("--newer-than", "Only mails enqueued no longer ago than this.", type=_AGE),
        )
    },
    _selection,
)
CRITERIA: Final = "Conditions of different kinds must all hold; of the same kind one of them is enough."
