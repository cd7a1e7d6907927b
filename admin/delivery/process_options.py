"""The option of `delivery serve` that has several processes share the work, and its help."""

from typing import Final

import click

from mailmend.admin.frame.options import option

PROCESSES_MAX: Final = 64

PROCESSES_ABOUT: Final = """

    --processes N begins N processes, since one process uses one core. They share the socket of
    --listen, and a process with time for it takes the next client. --concurrency,
    --domain-concurrency, --prefetch, --listen-connections and the bytes of mails in hand are of the
    whole server: each process has an equal part. --listen-connections-by-address is of each
    process. Each process is a server of its own among the queue's servers: the first has the name of
    --server, the others NAME-2, NAME-3 and so on, and they share limits as servers do. Process 1
    answers at the port of --http, process 2 at the next port, and so on: each one knows the mails in
    its own hands. --metrics-file gets the process's number before its suffix, and its samples get
    the label worker. Signals are for the parent, which is the process of the command: SIGTERM and
    SIGHUP reach all processes. A process that dies begins again after a second, or after longer
    pauses of up to a minute where it dies again; its mails come again at once. Where the parent
    dies, all processes stop. The exit code is the worst exit code of the processes.
"""


PROCESSES: Final = option(
    "--processes",
    "Processes that share the work: each has an equal part of the whole server's limits.",
    type=click.IntRange(1, PROCESSES_MAX),
    default=1,
    metavar="N",
)
