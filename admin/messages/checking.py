"""A check of messages, of all mail queues, or of both; what cannot be looked at is said, and hides nothing else."""

from dataclasses import replace
from functools import cache
from typing import Final

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster, open_cluster
from mailmend.admin.frame.extras import import_or_name_extra
from mailmend.admin.messages import mending_service as mending
from mailmend.admin.messages.mending_service import CheckRequest, MendingResult
from mailmend.model.errors import AccessDenied, ExitCode, MailmendError, MissingExtra, ResultUnwritten, WrongUse

_QUEUES: Final = "mailmend.admin.queue.cleanup"
"""A service whose libraries come with an extra of their own."""


def check(request: CheckRequest, caller: Caller) -> MendingResult:
    """What `mailmend check` looks at: messages, all queues, or both, as far as the keyspace has them."""
    if request.what not in {"all", "messages", "queues"}:
        raise WrongUse(f"{request.what!r} is not looked at here", mend="Say all, messages or queues.")
    with open_cluster(request.connection) as opened:
        if request.what == "queues":
            found: MendingResult = import_or_name_extra(_QUEUES).check_queues(request, caller, opened)
            return found
        if request.what == "messages" or not (opened.has_queues or request.pulsar):
            return mending.check(request, caller, opened)
        return _check_both(request, caller, opened)


def _check_both(request: CheckRequest, caller: Caller, opened: OpenCluster) -> MendingResult:
    """Messages, and queues while lags of messages are waited for: their delays pass at the same time."""

    @cache
    def queues() -> MendingResult | MailmendError:
        try:
            found: MendingResult = import_or_name_extra(_QUEUES).check_queues(request, caller, opened)
        except ResultUnwritten:
            raise
        except MailmendError as error:
            return error
        return found

    messages = mending.check(request, caller, opened, queues)
    found = queues()
    return _with_unseen(messages, found) if isinstance(found, MailmendError) else _joined(messages, found)


def _joined(messages: MendingResult, queues: MendingResult) -> MendingResult:
    """Both in one result: the fields of messages stay, those of queues come beside them."""
    one = messages.summary
    other = queues.summary
    summary = replace(
        one,
        scanned=one.scanned | other.scanned,
        findings=one.findings | other.findings,
        suspects=one.suspects + other.suspects,
        due=one.due + other.due,
        left=one.left + other.left,
        left_sample=one.left_sample.merged(other.left_sample),
        failed=one.failed + other.failed,
        seconds=one.seconds | other.seconds,
        unseen=" ".join(filter(None, (one.unseen, other.unseen))) or None,
        exit=max(one.exit, other.exit),
    )
    return replace(
        messages,
        summary=summary,
        examples=messages.examples + queues.examples,
        queues=queues.queues,
        topics=queues.topics,
    )


def _with_unseen(messages: MendingResult, error: MailmendError) -> MendingResult:
    nobody_meant_it = isinstance(error, MissingExtra | AccessDenied)
    one = messages.summary
    code = ExitCode.FINE if nobody_meant_it else ExitCode.PARTLY_FAILED
    unseen = " ".join(filter(None, (one.unseen, f"The mail queues were not looked at: {error.what}.")))
    return replace(messages, summary=replace(one, unseen=unseen, exit=max(one.exit, code)))
