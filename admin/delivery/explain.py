"""Declaration of `mailmend delivery explain`."""

from typing import Final

import click

from mailmend.admin.delivery.options import MAIL_FIELDS
from mailmend.admin.frame.command import Command, Shared
from mailmend.admin.frame.kinds import ParsedValue
from mailmend.admin.frame.options import FILE, option

_OF_A_MAIL: Final = Shared(
    "values",
    {
        "Of a mail that is not there": tuple(
            option(
                f"--{name.replace('_', '-')}",
                f"{text.partition(';')[0]}. [default: empty]"
                if name != "local_ip"
                else "Address that it is sent from; may be given again. [default: the server's]",
                type=ParsedValue("value", named.normal),
                multiple=name == "local_ip",
                metavar="VALUE",
            )
            for name, (named, text) in MAIL_FIELDS.items()
        )
    },
    lambda own, _others, _context: {
        name: value if isinstance(value, tuple) else (value,) for name, value in own.items() if value
    },
)

EXPLAIN: Final = Command(
    name="explain",
    summary="Say why a mail waits: on what, until when, and from which address it will go.",
    about="""Running servers are asked, over HTTP: those that `mailmend delivery serve --http` began. The one that has
    the mail tells at which stage each recipient is; which policies refuse it, as what they count it, with how many
    deliveries or from when; who suspended it; which of its addresses are left; and how many mails come before it. Where
    none has it, it is told what the queue knows: deferred until when, held by whom and why.

    Without ID it is told what would hold for a mail with these values now, as `mailmend policy explain` does of a file
    alone.""",
    service="mailmend.admin.delivery.explain_service:explain",
    present="mailmend.admin.delivery.explain_document:wait_document",
    options=(
        click.Argument(["id"], metavar="[ID]", required=False),
        option("--ask", "A server to ask; may be given again: give all of the queue.", multiple=True, metavar="URL"),
        option(
            "--token-file",
            "A file with a token that the server knows, and nothing else; or MAILMEND_TOKEN has it.",
            type=FILE,
            metavar="FILE",
        ),
        option(
            "--ask-tls-ca",
            "Certificates of the authorities that are trusted to know the server. [default: the system's]",
            type=FILE,
            metavar="FILE",
        ),
    ),
    shared=(_OF_A_MAIL,),
    examples="""
        mailmend delivery explain 6e0ab5e0-8d1c-41f0-9a5e-0242ac120002 --ask http://127.0.0.1:8000
        mailmend delivery explain 6e0ab5e0-8d1c-41f0-9a5e-0242ac120002:3 --ask https://mx1.example.org:8443 \\
            --ask https://mx2.example.org:8443 --token-file ~/.mailmend-token
        mailmend delivery explain --domain example.org --ask http://127.0.0.1:8000      what would hold for another""",
    exits="0 it was explained; 2 wrong use, no such mail, or the token would go in the clear; 3 some server did not "
    "answer, 4 none did, or none knows the token.",
)
