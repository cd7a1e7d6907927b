"""Hooks: programs of the operator's own that decide as a mail comes in, before and after an attempt.

Each has a limit of time.

A hook is a function, or a coroutine function; the former runs in a thread, which goes on where it
takes too long. One that fails, or takes too long, decides nothing: before an attempt the recipient
comes again in five minutes, and no retry is counted; after it follows what would follow without a
hook; a mail that comes in is refused for now, so its client still has it. What it orders in
addition to its decision waits for nothing: the deliveries go on, whether the ledger answers or not.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, TypeVar

from mailmend.delivery.mail.attempts import SmtpReply
from mailmend.delivery.mail.entries import EntryEnd
from mailmend.delivery.mail.hooks import (
    AcceptMail,
    ArrivalDecision,
    BounceRecipient,
    DelayMail,
    DeleteRecipient,
    EndOfData,
    HoldRecipient,
    HookedArrival,
    HookedAttempt,
    HookedRecipient,
    HookOrder,
    HookResult,
    PostDecision,
    PostDelivery,
    PreDecision,
    PreDelivery,
    PutOffDelivery,
    RejectMail,
)
from mailmend.delivery.mail.reactions import ReplyReactions, automatic_order
from mailmend.delivery.policy.automation import CountedPlaces, TriggeredRule
from mailmend.delivery.policy.orders import AUTOMATIC_OWNER, HOOK_OWNER
from mailmend.delivery.policy.policy import PickupField
from mailmend.delivery.shared.orders import OwnersSaid
from mailmend.model.errors import MailmendError
from mailmend.model.instants import nanos_of
from mailmend.model.ports import Clock

FAILED_HOOK: Final = PutOffDelivery(timedelta(minutes=5), counts=False, reason="the hook before delivery failed")

_LOG: Final = logging.getLogger("mailmend.delivery")

FAILED_ARRIVAL: Final = RejectMail("451 4.3.0 the mail cannot be judged now; send it again later")

D = TypeVar("D", bound=PreDecision | PostDecision | ArrivalDecision)


def _heeded_by_nobody(_: Sequence[HookOrder], owner: str) -> None:
    _LOG.warning("what a hook or an automatic rule orders needs the ledger", extra={"owner": owner})


@dataclass(frozen=True, slots=True)
class DeliveryHooks:
    """The hooks of a server; None without a hook.

    Attributes:
        pre_name: of what people know it by; its orders are owned by it.
        post_name: the same for the post hook.
        arrival: asked behind the content of each mail that comes in.
        arrival_name: the same for it.
        heed: has the server heed what a hook orders, whose owner is the second argument.
        reactions: the classes of replies, and the automatic limits.
    """

    clock: Clock
    pre: PreDelivery | None = None
    post: PostDelivery | None = None
    pre_name: str = ""
    post_name: str = ""
    arrival: EndOfData | None = None
    arrival_name: str = ""
    limit: timedelta = timedelta(seconds=10)
    heed: Callable[[Sequence[HookOrder], str], None] = _heeded_by_nobody
    reactions: ReplyReactions = field(default_factory=ReplyReactions)
    _said: OwnersSaid = field(default_factory=OwnersSaid)

    def saw(
        self,
        reply: SmtpReply,
        values: Mapping[PickupField, str],
        counted: CountedPlaces,
    ) -> None:
        """Count a refusal of an attempt with these values, and order what it triggers.

        The journal does not have the attempt's end yet, so no error of an order ends the attempt.

        What has counted this pass of the recipient already does not count it again.
        """
        now = nanos_of(self.clock.monotonic())
        try:
            triggered = self.reactions.count(reply, values, now, counted)
        except Exception:  # noqa: BLE001 - the attempt ends as it would
            _LOG.exception("a refusal is not counted by automatic rules")
            return
        for each in triggered:
            self._order(each, reply)

    def _order(self, triggered: TriggeredRule, reply: SmtpReply) -> None:
        owner = AUTOMATIC_OWNER + triggered.rule.name
        try:
            self.heed([automatic_order(triggered, reply)], owner)
        except Exception as error:  # noqa: BLE001 - the attempt ends as it would
            if not self._said.is_new(owner, self.clock.monotonic()):
                return
            trace: Exception | None = error
            shown = {"owner": owner, "error": str(error)}
            if isinstance(error, MailmendError):
                trace = None
                shown["error"] = error.what
            _LOG.warning("an automatic rule orders nothing", extra=shown, exc_info=trace)

    async def before(self, recipient: HookedRecipient) -> HookResult[PreDecision]:
        """What the hook decides before an attempt; only where there is one."""
        assert self.pre is not None
        result = _result(await self._asked(self.pre, recipient))
        if isinstance(result.decision, PreDecision):
            return self._followed(result, self.pre_name)
        _log_failure(str(recipient.id), result.decision)
        return HookResult(FAILED_HOOK)

    async def after(self, attempt: HookedAttempt) -> HookResult[PostDecision]:
        """What the hook decides behind an attempt; only where there is one."""
        assert self.post is not None
        result = _result(await self._asked(self.post, attempt))
        decided = result.decision
        if isinstance(decided, PutOffDelivery | HoldRecipient | BounceRecipient | DeleteRecipient):
            why = _cannot_follow(attempt.end, decided)
            if not why:
                return self._followed(result, self.post_name)
            decided = why
        if decided is None:
            return self._followed(result, self.post_name)
        _log_failure(str(attempt.recipient.id), decided)
        return HookResult(None)

    async def arrived(self, mail: HookedArrival) -> HookResult[ArrivalDecision]:
        """What the hook decides behind the content of a mail that comes in; only where there is one."""
        assert self.arrival is not None
        result = _result(await self._asked(self.arrival, mail))
        if result.decision is None or isinstance(result.decision, AcceptMail | HoldRecipient | DelayMail | RejectMail):
            return self._followed(result, self.arrival_name)
        _log_failure(mail.id, result.decision)
        return HookResult(FAILED_ARRIVAL)

    def _followed(self, result: HookResult[D], name: str) -> HookResult[D]:
        if result.orders:
            try:
                self.heed(result.orders, HOOK_OWNER + name)
            except Exception:  # noqa: BLE001 - whatever a program of somebody else's calls an order
                shown = {"owner": HOOK_OWNER + name}
                _LOG.exception("what a hook orders is not heeded", extra=shown)
        return result

    async def _asked(self, hook: Callable[[Any], Any], seen: Any) -> object:
        """What it returns; a sentence where it fails."""
        asking = asyncio.ensure_future(_called(hook, seen))
        waiting = asyncio.ensure_future(self.clock.pause(self.limit.total_seconds()))
        try:
            await asyncio.wait((asking, waiting), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                return f"it took longer than {self.limit.total_seconds():g} s"
            return asking.result()
        except MailmendError as error:
            return f"it raised {type(error).__name__}: {error.what}"
        except Exception as error:  # noqa: BLE001 - whatever a program of somebody else's raises
            return f"it raised {type(error).__name__}"
        finally:
            for task in (asking, waiting):
                task.cancel()
            await asyncio.gather(asking, waiting, return_exceptions=True)


async def _called(hook: Callable[[Any], Any], seen: Any) -> object:
    if inspect.iscoroutinefunction(hook):
        return await hook(seen)
    decided = await asyncio.to_thread(hook, seen)
    if isinstance(decided, Awaitable):
        return await decided
    return decided


def _result(returned: Any) -> HookResult[Any]:
    if isinstance(returned, HookResult):
        return returned
    return HookResult(returned)


def _cannot_follow(end: EntryEnd, decision: PostDecision) -> str:
    """Why a decision comes too late; "" where it does not."""
    if end is EntryEnd.DELIVERED:
        return "the recipient has the mail already"
    if end is EntryEnd.EXPIRED and isinstance(decision, PutOffDelivery):
        return "the mail has expired"
    return ""


def _log_failure(mail: str, decided: object) -> None:
    why = f"it returned {type(decided).__name__}, which is no decision"
    if isinstance(decided, str):
        why = decided
    _LOG.warning("a hook decided nothing", extra={"mail": mail, "why": why})
