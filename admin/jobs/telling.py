"""Who hears how a run of a job ended: a command that gets it on stdin, a web address that it is posted to.

Telling changes nothing of the run: a message that fails is a sentence in the log. Only the standard
library is used; no redirect is followed, and no message shows more of the address than its host, for the rest is often
a secret.
"""

import http.client
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from mailmend.admin.frame.environments import environment_of_others
from mailmend.admin.jobs.declaration import Tell, Telling
from mailmend.model.errors import CannotReach, MailmendError
from mailmend.model.instants import MICROS
from mailmend.model.ports import Clock
from mailmend.repair.retries import Retries, RetryPolicy

COMMAND_SECONDS: Final = 60
ANSWER_SECONDS: Final = 10
TELLING_SECONDS: Final = 180
"""For how many seconds a message to a web address is tried."""

_POLICY: Final = RetryPolicy(retries=5, wait_seconds_min=1, wait_seconds_max=30)
_LATER: Final = frozenset({408, 425, 429})


def is_wanted(tell: Tell, *, attention: bool) -> bool:
    return bool(tell.command or tell.webhook) and (attention or tell.on is Telling.ALWAYS)


def tell_all(tell: Tell, message: Mapping[str, Any], clock: Clock) -> Iterator[str]:
    """Tell every receiver, and say whom no message reached."""
    text = json.dumps(message)
    for address, send in ((tell.command, _run), (tell.webhook, _post)):
        try:
            if address:
                send(address, text, clock)
        except MailmendError as error:
            yield error.what


def _run(words: Any, text: str, _: Clock) -> None:
    try:
        ended = subprocess.run(  # noqa: S603 - the person's own command
            list(words), input=text, text=True, timeout=COMMAND_SECONDS, check=False, stdout=subprocess.DEVNULL,
            env=environment_of_others(os.environ),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise MailmendError(f"tell_command took longer than {COMMAND_SECONDS} s and was ended") from None
    except OSError as error:
        raise MailmendError(f"tell_command cannot be run: {error.strerror or error}") from error
    if ended.returncode:
        raise MailmendError(f"tell_command ended with {ended.returncode}")


def _post(url: Any, text: str, clock: Clock) -> None:
    parts = urlsplit(str(url))
    deadline = clock.micros() + TELLING_SECONDS * MICROS
    Retries(clock, _POLICY).call(lambda: _posted(parts, text), deadline)


def _posted(parts: SplitResult, text: str) -> None:
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=ANSWER_SECONDS)
    path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
    try:
        connection.request("POST", path, text.encode(), {"Content-Type": "application/json"})
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise CannotReach(f"tell_webhook at {parts.hostname} does not answer: {error}") from error
    finally:
        connection.close()
    if status in _LATER or status >= http.client.INTERNAL_SERVER_ERROR:
        raise CannotReach(f"tell_webhook at {parts.hostname} answers {status}")
    if not http.client.OK <= status < http.client.MULTIPLE_CHOICES:
        raise MailmendError(f"tell_webhook at {parts.hostname} answers {status}")
