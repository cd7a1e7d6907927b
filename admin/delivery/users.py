"""`mailmend delivery user`: a line of a users file, for clients that log in at a listener."""

import sys
from dataclasses import dataclass
from getpass import getpass
from typing import Final

import click

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Verbatim
from mailmend.admin.frame.terminal import somebody_types
from mailmend.delivery.smtp.incoming.users import PASSWORD_BYTES_MAX, check_user, user_line
from mailmend.model.errors import ExitCode, WrongUse


@dataclass(frozen=True, slots=True)
class UserRequest:
    """Whose password is read."""

    name: str


@dataclass(frozen=True, slots=True)
class UserLine:
    """A line of a users file: it has the password as a hash alone."""

    request: UserRequest
    line: str


def make_user(request: UserRequest, _: Caller) -> UserLine:
    """Hash the password on standard input.

    Raises:
        WrongUse: the name or the password cannot be one.
    """
    check_user(request.name)
    return UserLine(request, user_line(request.name, _password()))


def _password() -> bytes:
    """One line of standard input; on a terminal it is asked for twice, and not shown."""
    if not somebody_types():
        line = sys.stdin.buffer.read(PASSWORD_BYTES_MAX + 3)
        return line.removesuffix(b"\n").removesuffix(b"\r")
    password = getpass("Password: ")
    if getpass("Again: ") != password:
        raise WrongUse("the passwords differ", mend="Type the same password twice.")
    return password.encode()


def user_document(result: UserLine) -> Document:
    json = {"name": result.request.name, "line": result.line, "exit": int(ExitCode.FINE)}
    return Document(json, (Verbatim(f"{result.line}\n"),))


USER: Final = Command(
    name="user",
    summary="Make a line for the users file of a listener, with a hashed password.",
    about="""The password is one line of standard input, or asked for on a terminal; it is in no
    argument and no log. The line has a hash of it by scrypt, in the form of passlib, with a salt of
    its own. Append it to the file of `delivery serve --listen-users`, which no other user of the
    machine may read, and send SIGHUP to the server. The name is what the client logs in with; rules
    of `incoming` know it as `user`.""",
    service="mailmend.admin.delivery.users:make_user",
    present="mailmend.admin.delivery.users:user_document",
    options=(click.Argument(["name"], metavar="NAME"),),
    examples="""
        mailmend delivery user ann@example.org >> users
        mailmend delivery user ann@example.org < password >> users""",
    exits="0 the line was printed; 2 the name or the password cannot be one.",
)
