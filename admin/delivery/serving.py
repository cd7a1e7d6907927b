"""A server that delivers the mails of a queue, from its start to its end."""

import asyncio
import logging
import resource
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mailmend.admin.delivery.connections import POST_DELIVERY, PRE_DELIVERY, hook_named, listener_of, relay_of
from mailmend.admin.delivery.desk import DeliveryDesk
from mailmend.admin.delivery.policies_in_force import PoliciesInForce
from mailmend.admin.delivery.serve import DeliveryEnded, DeliveryFace, DeliveryRequest
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import owner_name
from mailmend.admin.frame.event_loop import hangup_calls, stop_signal
from mailmend.admin.frame.whole_files import refuse_unwritable, write_text
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.delivery.policy.engine import PickupEngine
from mailmend.delivery.policy.policies import PickupPolicies
from mailmend.delivery.policy.quotas import QuotaUsage
from mailmend.delivery.policy.shares import ServerShare
from mailmend.delivery.server.hooks import DeliveryHooks
from mailmend.delivery.server.serving import DeliveryServer
from mailmend.mailqueue.background import cancelled, paused
from mailmend.mailqueue.prometheus import metrics_text
from mailmend.mailqueue.queue import MailQueue, no_due_mails
from mailmend.model.errors import MailmendError
from mailmend.repair.log_fields import heard

if TYPE_CHECKING:
    from mailmend.delivery.smtp.incoming.listener import MailListener
    from mailmend.delivery.smtp.incoming.listener_tls import ListenerTls


def allow_open_files(wanted: int) -> int:
    """Raise the soft limit to at least this number, as far as the hard limit allows; the limit that holds then.

    A soft limit that is higher stays. An unlimited number counts as the wanted one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    target = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    except (OSError, ValueError):  # the system has a lower limit for all processes
        return soft
    return target


_LOG: Final = logging.getLogger("mailmend.delivery")


METRICS_EVERY: Final = timedelta(seconds=15)


def serve(request: DeliveryRequest, caller: Caller) -> DeliveryEnded:
    """Deliver until SIGTERM or Ctrl-C; SIGHUP reads the policies again, and the certificate.

    Raises:
        BadPolicyFile: the policies cannot be used; the message says where.
        ServerNameTaken: another live server of the queue has the name; that takes a minute to be sure of.
        WrongUse: there is no such hook, the file of metrics cannot be written, mails cannot be taken at an
            address, or a certificate is missing or cannot be used.
        Delayed: the keyspace has no table for delayed mails, so nothing could be tried again.
        CannotReach: the cluster, the broker or the blob store, at the start; later they are waited for.
    """
    policies_in_force = PoliciesInForce(request.policies)
    allowed = allow_open_files(request.open_files)
    if allowed < request.open_files:
        caller.remark(
            f"The system allows {allowed} open files, and this server may need {request.open_files}: raise the limit "
            "(LimitNOFILE= of its unit, ulimit -n), or lower --concurrency. Attempts beyond the limit are made later."
        )
    if request.metrics:
        refuse_unwritable(request.metrics)
    tls = request.listening_tls()
    pre, post = hook_named(PRE_DELIVERY, request.pre_delivery), hook_named(POST_DELIVERY, request.post_delivery)

    async def served(connections: QueueConnections) -> DeliveryEnded:
        if not connections.can_delay:
            raise no_due_mails()
        settings = request.delivery()
        limits = policies_in_force.said
        policies_in_force.read_at = connections.now
        relay = relay_of(settings.reporter, request.smtp_tls_ca, request.mails_per_connection)
        connections = connections.with_ledger()
        async with connections.open() as queue:
            server = DeliveryServer(
                name=owner_name(),
                queue=queue,
                next_hops=request.next_hop or request.by_dns(connections.clock),
                relay=relay,
                engine=PickupEngine(limits.policies, limits.algorithm, share=ServerShare()),
                clock=connections.clock,
                settings=settings,
                hooks=DeliveryHooks(
                    clock=connections.clock,
                    pre=pre,
                    post=post,
                    pre_name=request.pre_delivery or "",
                    post_name=request.post_delivery or "",
                    limit=request.hook_limit,
                ),
                ledger=(orders := connections.orders()),
                servers=orders.servers,
                journal=connections.attempts(),
            )
            where = request.next_hop or "the servers of each domain"
            caller.remark(f"Delivering {request.queue} by {where} until SIGTERM or Ctrl-C.")
            server.limit(limits.policies, limits.suspensions, limits.weights)
            listener = _listener(queue, connections, request, limits, tls) if request.listen else None
            desk = DeliveryDesk(server=server, connections=connections, policies=policies_in_force, listener=listener)

            def reload() -> None:
                _reload(desk)
                _renew(tls)

            with stop_signal() as stop, heard("mailmend.delivery"), hangup_calls(reload):
                try:
                    await _listening(listener, caller)
                    await _until_stopped(desk, stop, _Metrics(desk, caller, request.metrics), request.face)
                finally:
                    await relay.close()
        return DeliveryEnded(request, server.ended)

    return with_queues(request.settings, served)


def _listener(
    queue: MailQueue,
    connections: QueueConnections,
    request: DeliveryRequest,
    limits: PickupPolicies,
    tls: "ListenerTls | None",
) -> "MailListener":
    listener = listener_of(queue, connections.clock, request.listening(), tls)
    listener.intake.rules = limits.incoming
    listener.intake.quotas.usage = QuotaUsage(limits.quotas)
    return listener


async def _listening(listener: "MailListener | None", caller: Caller) -> None:
    if listener:
        await listener.open()
        networks = ", ".join(map(str, listener.settings.relay_from))
        caller.remark(f"Taking mails at {', '.join(map(str, listener.places))} from {networks}.")


def _reload(desk: DeliveryDesk) -> None:
    try:
        desk.reload()
    except MailmendError as error:
        _LOG.error("the policies stay as they were", extra={"error": str(error)})


def _renew(tls: "ListenerTls | None") -> None:
    if tls:
        try:
            tls.read_again()
        except MailmendError as error:
            _LOG.error("the listener's certificate stays as it was", extra={"error": str(error)})
        else:
            _LOG.info("the listener's certificate was read again")


@dataclass(frozen=True, slots=True)
class _Metrics:
    """Writes what the server tells to a file, where one is named."""

    desk: DeliveryDesk
    caller: Caller
    file: Path | None

    async def keep_current(self, stop: asyncio.Event) -> None:
        """Write until a stop signal; after an error, try again at the next turn."""
        while self.file and not stop.is_set():
            await paused(self.desk.server.clock, METRICS_EVERY, stop)
            self.write()

    def write(self) -> None:
        try:
            if self.file:
                write_text(self.file, metrics_text(self.desk.samples()), masked=False)
        except MailmendError as error:
            self.caller.remark(f"{self.file} is not up to date: {error.what}")


async def _until_stopped(desk: DeliveryDesk, stop: asyncio.Event, metrics: _Metrics, face: DeliveryFace | None) -> None:
    """Beside the server runs what has to run beside a queue: due mails move, and slices are swept; mails come in.

    Whoever asks over a network is answered until the server has ended: that it ends is an answer too.
    """
    over = asyncio.Event()

    async def serving() -> None:
        try:
            await desk.server.serve(stop)
        finally:
            stop.set()
            over.set()

    async def answering(face: DeliveryFace) -> None:
        watching = asyncio.ensure_future(desk.parts.watch())
        try:
            await face(desk, over)
        finally:
            await cancelled([watching])

    async with asyncio.TaskGroup() as together:
        together.create_task(serving())
        together.create_task(desk.server.queue.maintain(stop))
        together.create_task(metrics.keep_current(stop))
        if desk.listener:
            together.create_task(desk.listener.serve(stop))
        if face:
            together.create_task(answering(face))
    metrics.write()
