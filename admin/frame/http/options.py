"""Options of servers that answer over HTTP: where, whom, and with which certificate."""

import os
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import click

from mailmend.admin.frame.command import Shared, Values
from mailmend.admin.frame.extras import imported
from mailmend.admin.frame.http.access import parse_listening, read_tokens
from mailmend.admin.frame.options import FILE, option
from mailmend.model.errors import WrongUse

LIMITS_ABOUT: Final = (
    "It takes 200 connections, 100 of one address, and answers 100 calls at once, 50 of one address; silent connections"
    " give way to new ones. docs/delivery-http.md has all limits."
)


def http_face(where: str, api: str, about: str) -> Shared:
    """The request's `face`: what answers at a desk until an event; None without an address.

    Args:
        where: the option that says so.
        api: the place of what is answered.
        about: what its help says.
    """
    name = where.removeprefix("--")

    def face(own: Values, _others: Values, _context: click.Context) -> Callable[..., Any] | None:
        place = own[name]
        file = own["tokens_file"]
        certificate = own[f"{name}_tls_cert"]
        key = own[f"{name}_tls_key"]
        if place is None:
            if file or certificate or key:
                raise WrongUse(f"tokens and a certificate are for {where}", mend=f"Give {where} HOST:PORT too.")
            return None
        tokens = read_tokens(file, os.environ.get("MAILMEND_TOKENS"))
        listening = parse_listening(place, tokens, certificate, key, where)
        return partial(imported("mailmend.admin.frame.http.server:listen"), imported(api), listening)

    options = (
        option(where, f"{about} {LIMITS_ABOUT}", metavar="HOST:PORT"),
        option(
            "--tokens-file",
            "Who may ask: lines of NAME, role (read, or operate: repair is the same) and TOKEN, mode 600; or "
            "MAILMEND_TOKENS has them.",
            type=FILE,
            metavar="FILE",
        ),
        option(f"{where}-tls-cert", "Certificate of this server, with its chain.", type=FILE, metavar="FILE"),
        option(f"{where}-tls-key", "Private key of that certificate.", type=FILE, metavar="FILE"),
    )
    return Shared("face", {"HTTP": options}, face)
