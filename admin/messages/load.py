"""Declaration of load."""

from pathlib import Path
from typing import Final

import click

from mailmend.admin.frame.command import Command
from mailmend.admin.frame.options import CONNECTION, flag, option
from mailmend.admin.queue.options import MESSAGE_BLOBS

LOAD: Final = Command(
    name="load",
    summary="Read mbox, Maildir, .eml or .emlx files into a mailbox.",
    about="""Contents are kept where those of the keyspace's messages are, under ids like theirs: in its tables unless
    --blobs names another store. Where they are in neither, James has another store, and the load is refused until it is
    named. A malformed message is stored as it is, byte for byte; what cannot be stored is named. A load that was
    interrupted goes on where it stopped; one that was finished is refused, unless --again asks for a second copy.

    An mbox may have any line ends (LF, CRLF, CR, mixed) and no empty line between its messages. A line that begins with
    'From ' and may be read either way is named with its offset. A Content-Length that is right decides where a message
    ends (mboxcl2); one that is wrong is named. Every byte that was read is in a message, an envelope line or a
    separator; a load whose bytes do not add up fails. Flags, keywords and labels of Maildir, dovecot, Thunderbird,
    Apple Mail (.emlx) and Gmail (in the languages of its accounts) are kept; messages that Thunderbird or Apple Mail
    has deleted stay away.

    Empty files, packed files (gzip, zip and others), UTF-16 and files without any header field are no mail: a file that
    is named is refused before anything is stored; a file in a folder is named, and the others are stored. Sub-folders
    and other files are skipped by name, with the command that loads them. Arguments are UTF-8; others are refused.""",
    service="mailmend.admin.messages.load_service:load",
    present="mailmend.admin.local.tools_document:load_document",
    options=(
        click.Argument(["path"], type=click.Path(exists=True, path_type=Path)),
        option("--user", "Whose mailbox.", required=True, metavar="NAME"),
        option(
            "--mailbox", "Which mailbox: it is created if there is none; by its name.", required=True, metavar="NAME"
        ),
        flag("--again", "Once more what was done already: a second copy of all mail."),
    ),
    shared=(MESSAGE_BLOBS, CONNECTION),
    examples="""
        mailmend load archive.mbox --user ann --mailbox INBOX
        mailmend load ~/Maildir --user ann --mailbox Archive
        mailmend load letters/ --user ann --mailbox Letters     a folder of .eml files
        mailmend load letters/ --user ann --mailbox Letters --blobs file:///srv/mail-contents""",
    exits="0 every message is stored, 2 wrong use (not mail; loaded already), 3 some messages were refused, or "
    "sub-folders or files skipped (each is named; the rest is stored), or bytes of an mbox are in no message, or "
    "lag where nobody could take note of it; 3 or 4 when a disk is full or the cluster cannot be reached: "
    "the same command goes on from there.",
)
