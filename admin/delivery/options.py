"""Options that several commands of deliveries share: which queue, which mails, and which recipients of them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import click
from click.core import ParameterSource

from mailmend.admin.frame.command import Command, Shared, Values
from mailmend.admin.frame.kinds import Duration, ParsedValue
from mailmend.admin.frame.options import flag, option
from mailmend.admin.queue.options import AGE_MAX, DRY_RUN, QUEUE_ARGUMENT, queue_settings
from mailmend.delivery.mail.entries import EntryField, EntryFilter, EntryState
from mailmend.delivery.policy.orders import OrderKind
from mailmend.delivery.policy.policy import PickupField
from mailmend.model.durations import format_duration
from mailmend.model.errors import WrongUse
from mailmend.model.instants import instant_before


def refuse_unnamed(others: Values, context: click.Context) -> None:
    """Without a name the queue is James's spool, whose mails are not ready to go out."""
    if not others["queue_named"] and context.get_parameter_source("queue") is ParameterSource.DEFAULT:
        raise WrongUse("it is not said which queue is delivered", mend=f"Name it: {context.command_path} outgoing")


OF_A_QUEUE: Final = queue_settings(ledger=True, check=refuse_unnamed)

MAIL_FIELDS: Final = {
    "transport": (PickupField.TRANSPORT_ID, "Transport of the mail, its attribute transportid"),
    "local_ip": (PickupField.LOCAL_IP, "Address that it is sent from; or a network; other addresses go on"),
    "remote_ip": (PickupField.REMOTE_IP, "Address of the next server; or a network"),
    "remote_mx": (PickupField.REMOTE_MX, "Name of the next server; *.example.org is every name below that"),
    "domain": (PickupField.RECIPIENT_DOMAIN, "Domain of the recipient; *.example.org is every domain below that"),
    "job": (PickupField.JOB_ID, "Job of the mail, its attribute jobid"),
    "grouping": (PickupField.GROUPING, "Grouping of the mail, its attribute"),
    "tenant": (PickupField.TENANT_ID, "Tenant of the mail, its attribute tenantid"),
}
"""Options by which mails are named: their fields, and what they mean; behind a semicolon, where many are named."""


READS_LEDGER: Final = queue_settings(ledger=True)

HISTORY_SHOWN: Final = 100
"""How many of the newest changes are listed by default."""

WHY: Final = option("--why", "Reason: shown to operators who find mails waiting.", required=True, metavar="TEXT")


def of_kind(kind: OrderKind) -> Shared:
    """The field `kind` of a request: the command itself says it, and no option does."""
    return Shared("kind", {}, lambda _own, _others, _context: kind)


def mail_option(name: str) -> click.Option:
    """The option that names a field of one mail; `name` is a key of `MAIL_FIELDS`."""
    named, text = MAIL_FIELDS[name]
    kind = ParsedValue("value", named.normal)
    if named is PickupField.LOCAL_IP:
        # A server has several addresses that it may send a mail from.
        about = "Address that it is sent from; may be given again. [default: the server's]"
        return option("--local-ip", about, type=kind, multiple=True, metavar="VALUE")
    about = f"{text.partition(';')[0]}. [default: empty]"
    return option(f"--{name.replace('_', '-')}", about, type=kind, metavar="VALUE")


def list_command(kind: OrderKind, *, summary: str, about: str, examples: str) -> Command:
    """The command that lists the orders of a kind, or their history."""
    return Command(
        name="list",
        summary=summary,
        about=about,
        service="mailmend.admin.delivery.orders:list_orders",
        present="mailmend.admin.delivery.orders_document:list_document",
        paged=True,
        options=(
            QUEUE_ARGUMENT,
            flag("--history", "What was made, renewed and removed in the last 30 days, by whom and why, newest first."),
            option(
                "--changes",
                "Maximum number of changes: with --history.",
                "limit",
                type=click.IntRange(1, 100_000),
                default=HISTORY_SHOWN,
                metavar="N",
            ),
        ),
        shared=(of_kind(kind), OF_A_QUEUE),
        examples=examples,
        exits="0 done, also where nothing is listed; 2 wrong use, 4 the cluster cannot be reached.",
    )


def remove_command(kind: OrderKind, *, summary: str, examples: str) -> Command:
    """The command that ends an order of a kind."""
    return Command(
        name="remove",
        summary=summary,
        service="mailmend.admin.delivery.orders:remove_order",
        present="mailmend.admin.delivery.orders_document:remove_document",
        options=(QUEUE_ARGUMENT, click.Argument(["id"], type=click.UUID, metavar="ID"), DRY_RUN),
        shared=(of_kind(kind), OF_A_QUEUE),
        examples=examples,
        exits=f"0 it is removed, 2 wrong use or no such {kind.value}, 4 the cluster cannot be reached.",
    )


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
        return EntryFilter(
            ids=frozenset(self.ids),
            texts=self.texts,
            attributes=self.attributes,
            states=frozenset(self.states),
            refusals_min=self.retries[0],
            refusals_max=self.retries[1],
            older_than_at=instant_before(now, self.older_than),
            newer_than_at=instant_before(now, self.newer_than),
        )

    @property
    def words(self) -> tuple[str, ...]:
        """The selection as its options are typed."""
        words = list[str]()
        for option_name, text in self._typed():
            words += (option_name, text)
        return tuple(words)

    def _typed(self) -> Iterator[tuple[str, str]]:
        for entry in self.ids:
            yield "--id", entry
        for named, texts in self.texts.items():
            for text in texts:
                yield f"--{named.value}", text
        for name, texts in self.attributes.items():
            for text in texts:
                yield "--attribute", f"{name}={text}"
        for state in self.states:
            yield "--in-state", state.value
        if self.retries != (0, None):
            yield "--retries", retries_text(self.retries)
        ages = {"--older-than": self.older_than, "--newer-than": self.newer_than}
        for option_name, age in ages.items():
            if age:
                yield option_name, format_duration(age)


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


def retries_text(retries: tuple[int, int | None]) -> str:
    """The text that `parse_retries` reads so."""
    least, most = retries
    if most is None:
        return f"{least}-"
    return f"{least}-{most}"


def parse_attribute(text: str) -> tuple[str, str]:
    """An attribute of a mail, and what it is to be: `campaign=spring`."""
    name, is_there, value = text.partition("=")
    if not name or not is_there:
        raise WrongUse(f"{text!r} is no attribute with a value", mend="Write it like campaign=spring.")
    return name, value


DECLARED_ATTRIBUTE: Final = option(
    "--attribute",
    "An attribute of the mail: the file declares it as a field; may be given again.",
    type=ParsedValue("attribute", lambda value: parse_attribute(str(value))),
    multiple=True,
    metavar="NAME=VALUE",
)


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
