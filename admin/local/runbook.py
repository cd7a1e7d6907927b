"""`mailmend runbook`: the pages of the operator's questions."""

from collections.abc import Sequence
from typing import Final

import click

from mailmend.admin.frame.command import Command, CommandGroup
from mailmend.admin.frame.completion import completed_runbooks
from mailmend.admin.frame.document import Document, Grid, Markdown
from mailmend.admin.frame.runbooks import RunbookPage
from mailmend.admin.frame.values import fields_json


def pages_document(found: Sequence[RunbookPage]) -> Document:
    rows = [(page.name, page.title) for page in found]
    json = {"runbooks": [fields_json(page, "name", "title") for page in found]}
    return Document(json, (Grid("Runbooks", ("name", "question"), rows), "Next: mailmend runbook show NAME"))


def page_document(page: RunbookPage) -> Document:
    return Document({"name": page.name, "title": page.title, "text": page.text}, (Markdown(page.text),))


RUNBOOK: Final = CommandGroup(
    name="runbook",
    summary="Pages for the operator's questions.",
    about="Each says: when, check, do, verify, undo.",
    commands=(
        Command(
            name="list",
            summary="List the pages.",
            service="mailmend.admin.frame.runbooks:pages",
            present="mailmend.admin.local.runbook:pages_document",
        ),
        Command(
            name="show",
            summary="Show a page; as Markdown where stdout is no terminal.",
            service="mailmend.admin.frame.runbooks:page_named",
            present="mailmend.admin.local.runbook:page_document",
            options=(click.Argument(["name"], shell_complete=completed_runbooks),),
        ),
    ),
    examples="""
        mailmend runbook list
        mailmend runbook show flags-differ""",
)
