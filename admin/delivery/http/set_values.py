"""Routes of values of queued mails: set by an operator, and who set which."""

from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from mailmend.admin.delivery.http.entries import SelectionBody
from mailmend.admin.delivery.http.shared import ORDERS, READS_THROUGH, HistoryLimit, ServerDesk, command_model
from mailmend.admin.delivery.options import HISTORY_SHOWN
from mailmend.admin.delivery.set_values import (
    ListValueChangesRequest,
    SetValuesRequest,
    value_changes_listed,
    values_set,
)
from mailmend.admin.delivery.set_values_document import (
    SET_VALUES,
    VALUE_CHANGES,
    set_document,
    value_changes_document,
)
from mailmend.admin.frame.http.application import Operator, Reader, log_change
from mailmend.admin.frame.http.bodies import DryRun, ReasonText, StrictBody, answered, responses
from mailmend.delivery.mail.set_values import NAMES

VALUES: Final = APIRouter(tags=["recipients"])
_NAMES_MAX: Final = 100
ValueName = Annotated[str, Field(max_length=1000, examples=["transport", "attribute.campaign"])]
ValueText = Annotated[str, Field(max_length=1000)]


class SetValuesBody(StrictBody):
    """Which recipients, and which values; or which change is put back."""

    selection: SelectionBody = SelectionBody()
    everything: Annotated[bool, Field(description="All of the queue, without a selection.")] = False
    set: Annotated[
        dict[ValueName, ValueText],
        Field(
            default_factory=dict,
            max_length=_NAMES_MAX,
            description=f"By name: {', '.join(NAMES)}.",
        ),
    ]
    unset: Annotated[tuple[ValueName, ...], Field(max_length=_NAMES_MAX)] = ()
    undo: Annotated[
        UUID | SkipJsonSchema[None],
        Field(description="A change: its mails get the values from before it."),
    ] = None
    whole_mails: Annotated[
        bool, Field(description="Set values of a mail also where only some recipients are chosen.")
    ] = False
    why: Annotated[ReasonText, Field(description="Shown to operators, and recorded.")]
    dry_run: DryRun = False


@VALUES.post(
    "/entries/set",
    responses=responses(command_model(SET_VALUES), "What was set.", **ORDERS, **READS_THROUGH),
    summary="Set values of queued mails",
)
async def set_entries(
    desk: ServerDesk,
    by: Operator,
    request: Request,
    given: SetValuesBody,
) -> Response:
    """As `mailmend delivery set`: active ones are left alone, and counted."""
    asked = SetValuesRequest(
        settings=desk.settings,
        selection=given.selection.selection("/selection/"),
        everything=given.everything,
        values=tuple(given.set.items()),
        unset=given.unset,
        undo=given.undo,
        whole_mails=given.whole_mails,
        why=given.why,
        dry_run=given.dry_run,
    )
    result = await desk.read_through(values_set, asked, by)
    if not given.dry_run:
        log_change(
            request,
            "values of queued mails were set",
            change=str(result.change.id),
            names=", ".join(result.change.values),
            count=result.count,
            mails=result.mails,
            left=len(result.left),
            failed=len(result.failed),
        )
    return answered(set_document(result))


@VALUES.get(
    "/entries/changes",
    responses=responses(command_model(VALUE_CHANGES), "The changes, newest first."),
    summary="Who set values of queued mails",
)
async def changes(desk: ServerDesk, _: Reader, limit: HistoryLimit = HISTORY_SHOWN) -> Response:
    """As `mailmend delivery changes`."""
    request = ListValueChangesRequest(settings=desk.settings, limit=limit)
    return answered(value_changes_document(await desk.done(value_changes_listed, request)))
