"""What the rules of incoming in a policy file make of a mail, for `mailmend policy explain`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import click

from mailmend.admin.frame.command import Shared, Values
from mailmend.admin.frame.document import Grid, Part
from mailmend.admin.frame.kinds import ParsedValue
from mailmend.admin.frame.options import option
from mailmend.admin.frame.values import printable
from mailmend.delivery.policy.incoming import (
    IncomingField,
    IncomingOutcome,
    MatchedKey,
    outcome_of,
    reject_before_header,
    rules_that_hold,
)
from mailmend.delivery.policy.policies import DocumentPath, PickupPolicies
from mailmend.model.errors import WrongUse
from mailmend.model.texts import Place

RulePlaces = Mapping[DocumentPath, Place]
"""Where the file has what is spoken of."""


@dataclass(frozen=True, slots=True)
class ArrivalRequest:
    """A mail as it comes in, for one recipient: what is not there is empty."""

    values: Mapping[MatchedKey, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ArrivalExplanation:
    """What rules make of a mail as it comes in.

    Attributes:
        rules: the numbers of the rules that hold, from 0, up to one that stops.
        at_once: whether a recipient is refused before the mail itself has come.
    """

    rules: tuple[int, ...]
    outcome: IncomingOutcome
    at_once: bool


def explain_arrival(said: PickupPolicies, request: ArrivalRequest, now: datetime) -> ArrivalExplanation:
    """By the functions of the listener; `now` is what an expiry counts from."""
    values = dict(request.values)
    for named, derived in (
        (IncomingField.SENDER, IncomingField.SENDER_DOMAIN),
        (IncomingField.RECIPIENT, IncomingField.RECIPIENT_DOMAIN),
    ):
        values[derived, ""] = derived.of(values.get((named, ""), "").rpartition("@")[2])
    rules = said.incoming
    numbers = tuple(number for number, _, _ in rules_that_hold(rules, values))
    outcome = outcome_of(rules, values, now)
    return ArrivalExplanation(numbers, outcome, bool(reject_before_header(rules, values)))


def arrival_paths(found: ArrivalExplanation | None) -> Iterator[DocumentPath]:
    """The places of the rules that hold."""
    if found:
        for number in found.rules:
            yield "incoming", number


def arrival_json(found: ArrivalExplanation | None, places: RulePlaces) -> dict[str, Any] | None:
    """None where nothing was said of how the mail comes in."""
    if found is None:
        return None
    outcome = found.outcome
    rules = list[dict[str, int]]()
    for number in found.rules:
        rules.append({"rule": number + 1, "line": places["incoming", number].line})
    return {
        "rules": rules,
        "set": dict(outcome.attributes),
        "remove": sorted(outcome.removes),
        "hold": outcome.hold or None,
        "delay_seconds": outcome.delay.total_seconds(),
        "reject": outcome.reject or None,
        "refused_at_once": found.at_once,
        "unusable": list(outcome.unusable),
    }


def arrival_parts(found: ArrivalExplanation | None, places: RulePlaces) -> Iterator[Part]:
    if found is None:
        return
    rows = [(f"{number + 1}, line {places['incoming', number].line}",) for number in found.rules]
    if rows:
        yield Grid("Rules of incoming that hold", ("rule",), rows)
    outcome = found.outcome
    for name, value in outcome.attributes:
        yield printable(f"As it comes in it gets {name}: {value}.")
    for name in outcome.unusable:
        yield printable(f"What {name} would be set to cannot be its value; it is not set.")
    if outcome.removes:
        yield f"Header fields that are taken out: {', '.join(sorted(outcome.removes))}."
    if outcome.reject:
        when = "behind the mail"
        if found.at_once:
            when = "at RCPT"
        yield printable(f"The client is refused {when}: {outcome.reject}")
    elif outcome.hold:
        yield printable(f"It is held: {outcome.hold}.")
    elif outcome.delay:
        yield f"It is delivered {outcome.delay.total_seconds():g} s later."


_SAID: Final = {
    "client": (IncomingField.CLIENT, "Address of the client that hands the mail over"),
    "client_helo": (IncomingField.HELO, "Name by which that client greets"),
    "client_user": (IncomingField.USER, "User as whom that client logged in"),
    "sender": (IncomingField.SENDER, "Sender of the mail"),
    "recipient": (IncomingField.RECIPIENT, "Recipient of the mail"),
}


def _header(value: Any) -> tuple[str, str]:
    name, is_there, text = str(value).partition("=")
    if not name or not is_there:
        mend = "Write it like X-Job=daily."
        raise WrongUse(f"{value!r} is no header field with a value", mend=mend)
    return name.lower(), text


def _build(own: Values, _others: Values, _context: click.Context) -> ArrivalRequest | None:
    values = dict[MatchedKey, str]()
    for name, (named, _) in _SAID.items():
        if own[name] is not None:
            values[named, ""] = own[name]
    for name, text in own["header"]:
        values[IncomingField.HEADER, name] = text
    if not values:
        return None
    return ArrivalRequest(values)


def _said_option(name: str) -> click.Option:
    named, about = _SAID[name]
    return option(
        f"--{name.replace('_', '-')}",
        f"{about}. [default: empty]",
        type=ParsedValue("value", named.normal),
        metavar="VALUE",
    )


ARRIVAL: Final = Shared(
    "arrival",
    {
        "How it comes in, for the rules of incoming": (
            *map(_said_option, _SAID),
            option(
                "--header",
                "A field of its header; may be given again.",
                type=ParsedValue("field", _header),
                multiple=True,
                metavar="NAME=VALUE",
            ),
        )
    },
    _build,
)
