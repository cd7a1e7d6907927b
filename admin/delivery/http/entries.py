"""Routes of recipients: listed, shown, counted by what they have in common, and changed."""

import re
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from mailmend.admin.delivery import answers
from mailmend.admin.delivery.desk import DeliveryDesk, reactions_of
from mailmend.admin.delivery.entries import (
    EntriesRequest,
    GroupEntriesRequest,
    entries_document,
    entries_grouped,
    entries_page,
    groups_document,
)
from mailmend.admin.delivery.entry_changes import (
    ChangeEntriesRequest,
    changed_document,
    entries_changed,
)
from mailmend.admin.delivery.http.shared import ORDERS, READS_THROUGH, ServerDesk, command_model
from mailmend.admin.delivery.options import (
    EntrySelection,
    attributes_of,
    parse_attribute,
    parse_retries,
)
from mailmend.admin.delivery.show import ShowEntryRequest, entry_document, entry_shown
from mailmend.admin.frame.http.application import Operator, Reader, log_change
from mailmend.admin.frame.http.bodies import (
    DryRun,
    DurationText,
    ReasonText,
    StrictBody,
    answered,
    normal_at,
    responses,
)
from mailmend.admin.frame.values import plain
from mailmend.admin.queue.request import PAGE_MAILS
from mailmend.delivery.mail.entries import EntryAction, EntryField, EntryState
from mailmend.mailqueue.rules.mails import ListingPosition
from mailmend.model.durations import parse_duration

PAGE_MAX: Final = 1000
_VALUES_MAX: Final = 100
_ADDRESS: Final = re.compile(r"(?<![^\s\"@])[^\s\"@]+@[^\s\"]+")
_TOKEN: Final = r"^[wd]\.[0-9a-f]{1,11}\.[0-9a-f]{1,11}\.[0-9a-f]{32}$"  # noqa: S105 - of a page

ENTRIES: Final = APIRouter(tags=["recipients"])
Text = Annotated[str, Field(max_length=1000)]
Texts = Annotated[tuple[Text, ...], Field(max_length=_VALUES_MAX)]
Attributes = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[^=]+=", max_length=1000, examples=["campaign=spring"])], ...],
    Field(max_length=_VALUES_MAX),
]
RefusalsText = Annotated[str, Field(pattern=r"^[0-9]{1,6}(-([0-9]{1,6})?)?$", examples=["3-"])]


class SelectionBody(StrictBody):
    """Which recipients: of each condition one of its values, and all conditions. `*` stands for anything in texts."""

    id: Annotated[Texts, Field(description="Of mails, or of recipients as `MAIL:NUMBER`.")] = ()
    transport: Texts = ()
    job: Texts = ()
    tenant: Texts = ()
    grouping: Texts = ()
    sender: Annotated[Texts, Field(description="<> is the null sender.")] = ()
    sender_domain: Texts = ()
    recipient: Texts = ()
    domain: Texts = ()
    remote_mx: Annotated[Texts, Field(description="Name of the server that was tried last.")] = ()
    reply: Annotated[Texts, Field(description="Answer of the server, like `421 *`.")] = ()
    attribute: Attributes = ()
    in_state: Annotated[tuple[EntryState, ...], Field(max_length=3)] = ()
    retries: Annotated[
        RefusalsText | SkipJsonSchema[None], Field(description="How often refused for now: 3, 3- or 3-10.")
    ] = None
    older_than: Annotated[DurationText | SkipJsonSchema[None], Field(description="Mails enqueued before.")] = None
    newer_than: Annotated[DurationText | SkipJsonSchema[None], Field(description="Mails enqueued since.")] = None

    def selection(self, place: str = "query parameter ") -> EntrySelection:
        """The selection of a query, or of a body where the place is the JSON pointer to it.

        Raises:
            WrongUse: no recipient can have a text of it; the message says which.
        """
        texts = dict[EntryField, tuple[str, ...]]()
        for named in EntryField:
            name = named.value.replace("-", "_")
            wanted = list[str]()
            for number, text in enumerate(getattr(self, name)):
                pointer = f"{place}{name}/{number}"
                wanted.append(normal_at(pointer, named.wanted, text))
            if wanted:
                texts[named] = tuple(wanted)
        attributes = attributes_of(map(parse_attribute, self.attribute))
        retries: tuple[int, int | None] = (0, None)
        if self.retries:
            retries = parse_retries(self.retries)
        older_than = None
        if self.older_than:
            older_than = parse_duration(self.older_than)
        newer_than = None
        if self.newer_than:
            newer_than = parse_duration(self.newer_than)
        return EntrySelection(
            ids=self.id,
            texts=texts,
            attributes=attributes,
            states=self.in_state,
            retries=retries,
            older_than=older_than,
            newer_than=newer_than,
        )


class EntriesQuery(SelectionBody):
    """A page of recipients."""

    limit: Annotated[int, Field(ge=1, le=PAGE_MAX, description="Mails: their recipients stay together.")] = PAGE_MAILS
    after: Annotated[
        Annotated[str, Field(pattern=_TOKEN)] | SkipJsonSchema[None],
        Field(description="Where the page before ended: its `next`."),
    ] = None


class GroupsQuery(SelectionBody):
    """Recipients, counted."""

    by: Annotated[tuple[EntryField, ...], Field(max_length=10, description="By what; else by domain.")] = ()


@ENTRIES.get(
    "/entries",
    responses=responses(command_model(answers.ENTRIES), "A page.", **READS_THROUGH),
    summary="List recipients, page by page",
)
async def entries(desk: ServerDesk, _: Reader, query: Annotated[EntriesQuery, Query()]) -> Response:
    """As `mailmend delivery list`: held, deferred and active ones."""
    after = None
    if query.after:
        after = ListingPosition.parse(query.after)
    request = EntriesRequest(settings=desk.settings, selection=query.selection(), limit=query.limit, after=after)
    return answered(entries_document(await desk.read_through(entries_page, request)))


@ENTRIES.get(
    "/entries/groups",
    responses=responses(command_model(answers.GROUPS), "The groups.", **READS_THROUGH),
    summary="Count recipients by what they have in common",
)
async def groups(desk: ServerDesk, _: Reader, query: Annotated[GroupsQuery, Query()]) -> Response:
    """As `mailmend delivery group`."""
    request = GroupEntriesRequest(settings=desk.settings, selection=query.selection(), by=query.by)
    return answered(groups_document(await desk.read_through(entries_grouped, request)))


@ENTRIES.get(
    "/entries/{id}",
    responses=responses(
        command_model(answers.SHOWN_ENTRIES), "Its recipients.", _404="There is no such mail.", **READS_THROUGH
    ),
    summary="Show a mail's recipients, or one",
)
async def entry(
    desk: ServerDesk,
    _: Reader,
    id: Annotated[str, Path(description="Of a mail, or `MAIL:NUMBER`.")],  # noqa: A002
) -> Response:
    """As `mailmend delivery show`."""
    classes = reactions_of(desk.server).classes
    request = ShowEntryRequest(settings=desk.settings, id=id, classes=classes)
    return answered(entry_document(await desk.read_through(entry_shown, request)))


class ChangeBody(StrictBody):
    """Which recipients; the ones whose attempts are under way are left alone."""

    selection: SelectionBody = SelectionBody()
    everything: Annotated[bool, Field(description="All of the queue, without a selection.")] = False
    dry_run: DryRun = False


AfterAttempt = Annotated[bool, Field(description="Order it also for after attempts that are under way.")]


class HoldBody(ChangeBody):
    """Hold them."""

    after_attempt: AfterAttempt = False

    why: Annotated[ReasonText, Field(description="Shown to operators who find the mails so.")]


class DeferBody(ChangeBody):
    """Move their next attempt."""

    after_attempt: AfterAttempt = False

    lasts: Annotated[DurationText, Field(alias="for", description="How long from now.")]


class FinalBody(ChangeBody):
    """End them; a copy is kept."""

    after_attempt: AfterAttempt = False

    confirm: Annotated[bool, Field(description="Without it the call is refused with the count.")] = False
    no_keep: Annotated[bool, Field(description="Keep no copy.")] = False


class BounceBody(FinalBody):
    """End them with a report."""

    why: Annotated[ReasonText, Field(description="The sender reads it.")]


_CHANGED: Final = command_model(answers.CHANGED_ENTRIES)
_CHANGES: Final = responses(_CHANGED, "What was changed.", **ORDERS, **READS_THROUGH)
_ENDS: Final = responses(
    _CHANGED, "What was changed.", _409="Not confirmed: the message has the count.", **ORDERS, **READS_THROUGH
)


async def _changed(
    action: EntryAction, desk: DeliveryDesk, by: str, request: Request, given: ChangeBody, **more: Any
) -> Response:
    asked = ChangeEntriesRequest(
        settings=desk.settings,
        selection=given.selection.selection("/selection/"),
        everything=given.everything,
        dry_run=given.dry_run,
        **more,
    )
    result = await desk.read_through(partial(entries_changed, action), asked, by)
    if not given.dry_run:
        which = "everything"
        if not given.everything:
            which = _ADDRESS.sub("(address)", given.selection.model_dump_json(exclude_defaults=True))
        log_change(
            request,
            "recipients were changed",
            action=action.value,
            which=which,
            count=result.count,
            mails=result.mails,
            ordered=result.ordered,
            left=len(result.left),
            failed=len(result.failed),
            kept=plain(result.kept),
        )
    return answered(changed_document(result))


@ENTRIES.post("/entries/hold", responses=_CHANGES, summary="Hold recipients")
async def hold(desk: ServerDesk, by: Operator, request: Request, given: HoldBody) -> Response:
    """Until they are released; they do not expire."""
    return await _changed(EntryAction.HOLD, desk, by, request, given, why=given.why, after_attempt=given.after_attempt)


@ENTRIES.post("/entries/release", responses=_CHANGES, summary="Let held recipients be tried at once")
async def release(desk: ServerDesk, by: Operator, request: Request, given: ChangeBody) -> Response:
    """What is deferred stays so."""
    return await _changed(EntryAction.RELEASE, desk, by, request, given)


@ENTRIES.post("/entries/retry", responses=_CHANGES, summary="Let deferred recipients be tried at once")
async def retry(desk: ServerDesk, by: Operator, request: Request, given: ChangeBody) -> Response:
    """What is held stays so."""
    return await _changed(EntryAction.RETRY, desk, by, request, given)


@ENTRIES.post("/entries/defer", responses=_CHANGES, summary="Let recipients be tried later, or earlier")
async def defer(desk: ServerDesk, by: Operator, request: Request, given: DeferBody) -> Response:
    """Than their schedule says; one that is too old by then is given up then."""
    return await _changed(
        EntryAction.DEFER,
        desk,
        by,
        request,
        given,
        lasts=parse_duration(given.lasts),
        after_attempt=given.after_attempt,
    )


@ENTRIES.post("/entries/bounce", responses=_ENDS, summary="Give recipients up, and tell their senders")
async def bounce(desk: ServerDesk, by: Operator, request: Request, given: BounceBody) -> Response:
    """The next server that is free makes the reports; a copy is kept on this server's machine."""
    more = {"why": given.why, "yes": given.confirm, "no_keep": given.no_keep, "after_attempt": given.after_attempt}
    return await _changed(EntryAction.BOUNCE, desk, by, request, given, **more)


@ENTRIES.post("/entries/delete", responses=_ENDS, summary="Remove recipients, without a report")
async def delete(desk: ServerDesk, by: Operator, request: Request, given: FinalBody) -> Response:
    """A copy is kept on this server's machine."""
    more = {"yes": given.confirm, "no_keep": given.no_keep, "after_attempt": given.after_attempt}
    return await _changed(EntryAction.DELETE, desk, by, request, given, **more)
