"""Declarations of what `mailmend delivery` does with recipients: look at them, hold them, let them go, end them."""

from typing import Final

import click

from mailmend.admin.delivery.entry_selection import EntrySelection, attributes_of, parse_attribute, parse_retries
from mailmend.admin.frame.command import Command, Shared, Values
from mailmend.admin.frame.kinds import Duration, ParsedValue
from mailmend.admin.frame.options import flag, option
from mailmend.admin.queue.options import AGE_MAX, DRY_RUN, QUEUE_ARGUMENT, YES, queue_settings, unless
from mailmend.admin.queue.request import PAGE_MAILS
from mailmend.delivery.mail.entries import EntryState
from mailmend.delivery.mail.queued import EntryField
from mailmend.mailqueue.rules.mails import DELAY_MAX
from mailmend.mailqueue.rules.positions import ListingPosition

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
    EntryField.REPLY: ("What it answered, like '421 *'", "TEXT"),
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


_WHICH: Final = Shared(
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
                "How often it was refused for now: 3, 3- or 3-10.",
                type=ParsedValue("range", lambda value: parse_retries(str(value))),
                metavar="RANGE",
            ),
            option("--older-than", "Only mails enqueued longer ago than this.", type=_AGE),
            option("--newer-than", "Only mails enqueued no longer ago than this.", type=_AGE),
        )
    },
    _selection,
)
_ABOUT: Final = "Conditions of different kinds must all hold; of the same kind one of them is enough."
_CHANGE_ABOUT: Final = f"""{_ABOUT} What is active (a server has it, or it is on its way to one) is left alone, and
    counted: look again when its attempt has ended."""
_AFTER_ABOUT: Final = """With --after-attempt it is ordered of active ones too: who is not delivered by the attempt that
    is under way, or comes next, is changed then by the server, in place of the next one, as long as that ends within a
    day; who is delivered stays so. `list` shows it. A later command on the same recipient counts in its place. With
    --json, `changed` is how many were changed now, `after_attempt` of how many it was ordered."""
_ALL: Final = flag("--all", "All of them: every recipient that is held or deferred.", "everything")
_WHY: Final = option("--why", "Why: shown to whoever finds them so.", required=True, metavar="TEXT")
_AFTER_ATTEMPT: Final = flag("--after-attempt", "Order it of active ones as well, for when their attempts have ended.")
_NO_KEEP: Final = flag("--no-keep", "Do not keep the removed mails in a file.")
_CHANGED: Final = "mailmend.admin.delivery.entries_document:changed_document"
_EXITS: Final = (
    "0 done, also where nothing was to be done; 2 wrong use; 3 some could not be changed (each is named); 4 cannot "
    "reach: what was changed stays changed, and the same again goes on."
)
_READS: Final = queue_settings(ledger=True)
_ENDS: Final = queue_settings(blobs=unless("dry_run"), ledger=True)

LIST: Final = Command(
    name="list",
    summary="List recipients: which state each is in, until when, and what was answered.",
    about=f"""{_ABOUT} Read from the tables. Active ones wait for a policy, or are being delivered: only their server
    knows.""",
    service="mailmend.admin.delivery.entries_service:list_entries",
    present="mailmend.admin.delivery.entries_document:entries_document",
    options=(
        QUEUE_ARGUMENT,
        option(
            "--limit",
            "At most so many mails: their recipients stay together.",
            type=click.IntRange(1, 100_000),
            default=PAGE_MAILS,
            metavar="N",
        ),
        option(
            "--after",
            "Go on behind an earlier page, whose end names this token.",
            type=ParsedValue("position", lambda value: ListingPosition.parse(str(value))),
            metavar="TOKEN",
        ),
    ),
    shared=(_WHICH, _READS),
    examples="""
        mailmend delivery list outgoing --domain example.org --retries 3-
        mailmend delivery list outgoing --in-state hold
        mailmend delivery list outgoing --reply '421 *' --older-than 1h --json""",
    exits="0 listed, 2 wrong use, 4 cannot reach.",
)

SHOW: Final = Command(
    name="show",
    summary="Show all that is known of one mail's recipients, or of one: also what was tried.",
    about="""What was tried is kept for a week: with which server, from which address, how far it came, its status. A
    mail that has left the queue is known by the id that it had first.""",
    service="mailmend.admin.delivery.entry_history:show_entry",
    present="mailmend.admin.delivery.entries_document:entry_document",
    options=(QUEUE_ARGUMENT, click.Argument(["id"], metavar="ID")),
    shared=(_READS,),
    examples="""
        mailmend delivery show outgoing 6e0ab5e0-8d1c-41f0-9a5e-0242ac120002
        mailmend delivery show outgoing 6e0ab5e0-8d1c-41f0-9a5e-0242ac120002:3
        mailmend delivery show outgoing 6e0ab5e0-8d1c-41f0-9a5e-0242ac120002 --json""",
    exits="0 shown, 2 wrong use or no such mail, 4 cannot reach.",
)

GROUP: Final = Command(
    name="group",
    summary="Count recipients by domain, or by what is named.",
    about=_ABOUT,
    service="mailmend.admin.delivery.entries_service:group_entries",
    present="mailmend.admin.delivery.entries_document:groups_document",
    options=(
        QUEUE_ARGUMENT,
        option(
            "--by",
            "By what; may be given again. [default: domain]",
            type=click.Choice(list(EntryField), case_sensitive=False),
            multiple=True,
            metavar="FIELD",
        ),
    ),
    shared=(_WHICH, _READS),
    examples="""
        mailmend delivery group outgoing                                 which domains wait
        mailmend delivery group outgoing --by reply --domain example.org --in-state defer
        mailmend delivery group outgoing --by tenant --by transport""",
    exits="0 counted, 2 wrong use, 4 cannot reach.",
)

HOLD: Final = Command(
    name="hold",
    summary="Hold deferred recipients until they are released; they do not expire.",
    about=f"""{_CHANGE_ABOUT} Mails that come later are not held: for those, `mailmend suspend`.

    {_AFTER_ABOUT}""",
    service="mailmend.admin.delivery.entry_changes:hold",
    present=_CHANGED,
    options=(QUEUE_ARGUMENT, _ALL, _WHY, _AFTER_ATTEMPT, DRY_RUN),
    shared=(_WHICH, _READS),
    examples="""
        mailmend delivery hold outgoing --tenant acme --why 'looks like spam; ticket 12' --dry-run
        mailmend delivery hold outgoing --sender-domain example.org --why 'ticket 12'
        mailmend delivery hold outgoing --job spring --why 'ticket 12' --after-attempt         active ones too""",
    exits=_EXITS,
)

RELEASE: Final = Command(
    name="release",
    summary="Let held recipients be tried at once.",
    about=_CHANGE_ABOUT,
    service="mailmend.admin.delivery.entry_changes:release",
    present=_CHANGED,
    options=(QUEUE_ARGUMENT, _ALL, DRY_RUN),
    shared=(_WHICH, _READS),
    examples="""
        mailmend delivery release outgoing --tenant acme
        mailmend delivery release outgoing --id 6e0ab5e0-8d1c-41f0-9a5e-0242ac120002:3""",
    exits=_EXITS,
)

RETRY: Final = Command(
    name="retry",
    summary="Let deferred recipients be tried at once.",
    about=f"{_CHANGE_ABOUT} What is held stays so.",
    service="mailmend.admin.delivery.entry_changes:retry",
    present=_CHANGED,
    options=(QUEUE_ARGUMENT, _ALL, DRY_RUN),
    shared=(_WHICH, _READS),
    examples="""
        mailmend delivery retry outgoing --domain example.org           they say that they are back""",
    exits=_EXITS,
)

DEFER: Final = Command(
    name="defer",
    summary="Let deferred recipients be tried later, or earlier, than their schedule says.",
    about=f"""{_CHANGE_ABOUT} What is held stays so. One that is too old by then is given up then; one whose mail names
    its own expiry is deferred no longer than that.

    {_AFTER_ABOUT}""",
    service="mailmend.admin.delivery.entry_changes:defer",
    present=_CHANGED,
    options=(
        QUEUE_ARGUMENT,
        _ALL,
        option("--for", "How long: from now.", "lasts", type=Duration(DELAY_MAX, zero=False), required=True),
        _AFTER_ATTEMPT,
        DRY_RUN,
    ),
    shared=(_WHICH, _READS),
    examples="""
        mailmend delivery defer outgoing --domain example.org --for 2h""",
    exits=_EXITS,
)

BOUNCE: Final = Command(
    name="bounce",
    summary="Give recipients up that are held or deferred, and tell their senders; asks, and keeps a copy.",
    about=f"""{_CHANGE_ABOUT} The next server that is free makes the reports, with --why as the reason: until then
    `list` shows them. `mailmend queue restore` puts back what is in the copy.

    {_AFTER_ABOUT} The copy has all of them, also who is delivered after all.""",
    service="mailmend.admin.delivery.entry_changes:bounce",
    present=_CHANGED,
    options=(
        QUEUE_ARGUMENT,
        _ALL,
        option("--why", "Why: the sender reads it.", required=True, metavar="TEXT"),
        _AFTER_ATTEMPT,
        DRY_RUN,
        YES,
        _NO_KEEP,
    ),
    shared=(_WHICH, _ENDS),
    examples="""
        mailmend delivery bounce outgoing --domain exmaple.org --why 'there is no such domain' --dry-run""",
    exits=_EXITS,
)

DELETE: Final = Command(
    name="delete",
    summary="Remove recipients that are held or deferred, and tell nobody; asks, and keeps a copy.",
    about=f"""{_CHANGE_ABOUT} `mailmend queue restore` puts back what is in the copy.

    {_AFTER_ABOUT} The copy has all of them, also who is delivered after all.""",
    service="mailmend.admin.delivery.entry_changes:delete",
    present=_CHANGED,
    options=(QUEUE_ARGUMENT, _ALL, _AFTER_ATTEMPT, DRY_RUN, YES, _NO_KEEP),
    shared=(_WHICH, _ENDS),
    examples="""
        mailmend delivery delete outgoing --job 2026-11-newsletter --dry-run
        mailmend delivery delete outgoing --in-state hold --tenant acme --yes""",
    exits=_EXITS,
)

ENTRY_COMMANDS: Final = (LIST, SHOW, GROUP, HOLD, RELEASE, RETRY, DEFER, BOUNCE, DELETE)
