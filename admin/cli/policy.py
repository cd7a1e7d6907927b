"""Declarations of `mailmend policy`."""

from typing import Final

import click

from admin.cli.command import Command, CommandGroup
from admin.cli.options import FILE

_FILE: Final = click.Argument(["file"], type=FILE, metavar="FILE")

LINT: Final = Command(
    name="lint",
    summary="Say what of a policy file is legal, and surely not meant.",
    about="""The file is read as `mailmend delivery serve --policies` reads it: what that would refuse is refused here,
    with line and column. Then it is said what would be taken although nobody can have meant it: conditions, defaults
    and rates that are never reached, values that no mail has, groups and lists without effect, and more; only what is
    certain. The rules, and why each matters: docs/lint.md. It asks no server, and needs mailmend[delivery].""",
    service="admin.services.policy:lint",
    present="admin.present.policy:lint_document",
    options=(_FILE,),
    examples="""
        mailmend policy lint policies.yaml
        mailmend policy lint policies.yaml --json     for a script""",
    exits="0 nothing was found, 1 something was, 2 the file cannot be read, or the server would refuse it.",
)

POLICY: Final = CommandGroup(
    name="policy",
    summary="Policy files of `delivery serve`: what they say, before a server reads them.",
    commands=(LINT,),
    examples="""
        mailmend policy lint policies.yaml""",
)
