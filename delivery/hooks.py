"""Hooks: programs of the operator's own that decide before and after an attempt, each within a limit of time.

A hook is a function, or a coroutine function; the former runs in a thread, which goes on where it takes too long. One
that fails, or takes too long, decides nothing: before an attempt the recipient comes again in five minutes, and no
retry is counted; after it follows what would follow without a hook.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from model.delivery.entries import EntryEnd, EntryId
from model.delivery.hooks import (
    BounceRecipient,
    DeleteRecipient,
    HoldRecipient,
    HookedAttempt,
    HookedRecipient,
    PostDecision,
    PostDelivery,
    PreDecision,
    PreDelivery,
    PutOffDelivery,
    TryDelivery,
)
from model.ports import Clock

FAILED_HOOK: Final = PutOffDelivery(timedelta(minutes=5), counts=False, reason="the hook before delivery failed")

_LOG: Final = logging.getLogger("mailmend.delivery")


@dataclass(frozen=True, slots=True)
class DeliveryHooks:
    """The hooks of a server; None where there is none."""

    clock: Clock
    pre: PreDelivery | None = None
    post: PostDelivery | None = None
    limit: timedelta = timedelta(seconds=10)

    async def before(self, recipient: HookedRecipient) -> PreDecision:
        if self.pre is None:
            return TryDelivery()
        decided = await self._asked(self.pre, recipient)
        if isinstance(decided, PreDecision):
            return decided
        _log_failure(recipient.id, decided)
        return FAILED_HOOK

    async def after(self, attempt: HookedAttempt) -> PostDecision:
        if self.post is None:
            return None
        decided = await self._asked(self.post, attempt)
        if isinstance(decided, PutOffDelivery | HoldRecipient | BounceRecipient | DeleteRecipient):
            if attempt.end is not EntryEnd.DELIVERED:
                return decided
            decided = "the recipient has the mail already"
        if decided is not None:
            _log_failure(attempt.recipient.id, decided)
        return None

    async def _asked(self, hook: Callable[[Any], Any], seen: Any) -> object:
        """What it decides; a sentence where it fails."""
        asking = asyncio.ensure_future(_called(hook, seen))
        waiting = asyncio.ensure_future(self.clock.pause(self.limit.total_seconds()))
        try:
            await asyncio.wait((asking, waiting), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                return f"it took longer than {self.limit.total_seconds():g} s"
            return asking.result()
        except Exception as error:  # noqa: BLE001 - whatever a program of somebody else's raises
            return f"it raised {type(error).__name__}"
        finally:
            for one in (asking, waiting):
                one.cancel()
            await asyncio.gather(asking, waiting, return_exceptions=True)


async def _called(hook: Callable[[Any], Any], seen: Any) -> object:
    if inspect.iscoroutinefunction(hook):
        return await hook(seen)
    decided = await asyncio.to_thread(hook, seen)
    return await decided if isinstance(decided, Awaitable) else decided


def _log_failure(entry: EntryId, decided: object) -> None:
    why = decided if isinstance(decided, str) else f"it returned {type(decided).__name__}, which is no decision"
    _LOG.warning("a hook decided nothing", extra={"mail": str(entry), "why": why})
