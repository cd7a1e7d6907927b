"""`mailmend delivery serve`: what is asked of a server of deliveries, and its run."""

import asyncio
import logging
import resource
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mailmend.admin.delivery.connections import (
    END_OF_DATA,
    POST_DELIVERY,
    PRE_DELIVERY,
    HopsBySources,
    hook_named,
    listener_of,
    made_attempts,
    made_orders,
    relay_of,
)
from mailmend.admin.delivery.desk import DeliveryDesk, work_by
from mailmend.admin.delivery.policies_in_force import PoliciesInForce
from mailmend.admin.delivery.serve_request import DeliveryFace, DeliveryRequest
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import owner_name
from mailmend.admin.frame.document import Document
from mailmend.admin.frame.event_loop import hangup_calls, stop_signal
from mailmend.admin.frame.whole_files import refuse_unwritable, write_text
from mailmend.admin.frame.workers import WorkerLink, Workers
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.delivery.mail.entries import EntryEnd
from mailmend.delivery.policy.counters import PolicyChanges
from mailmend.delivery.policy.engine import PickupEngine
from mailmend.delivery.policy.quotas import QuotaUsage
from mailmend.delivery.policy.shares import ServerShare
from mailmend.delivery.server.hooks import DeliveryHooks
from mailmend.delivery.server.serving import DeliveryServer
from mailmend.delivery.smtp.incoming.open_places import OpenPlace, open_places
from mailmend.delivery.smtp.incoming.users import ListenerUsers
from mailmend.mailqueue.concurrency import cancelled, paused
from mailmend.mailqueue.prometheus import metrics_text
from mailmend.mailqueue.queue import no_due_mails
from mailmend.model.errors import MailmendError, WrongUse
from mailmend.model.instants import instant_of
from mailmend.model.metrics import MetricSample, with_label
from mailmend.model.ports import Clock
from mailmend.repair.clock import SystemClock
from mailmend.repair.log_fields import heard

if TYPE_CHECKING:
    from mailmend.delivery.smtp.incoming.listener import ListenerTls, MailListener


def allow_open_files(wanted: int) -> int:
    """Raise the soft limit to at least this number, as far as the hard limit allows; the limit that holds then.

    A soft limit that is higher stays. An unlimited number counts as the wanted one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    if soft >= wanted:
        return soft
    target = wanted
    if hard != resource.RLIM_INFINITY:
        target = min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    except (OSError, ValueError):  # the system has a lower limit for all processes
        return soft
    return target


@dataclass(frozen=True, slots=True)
class DeliveryEnded:
    """The server was asked to stop, and has.

    Attributes:
        ended: how often a recipient's active time ended in each way.
        exit_code: the worst one of its processes.
    """

    request: DeliveryRequest
    ended: Mapping[EntryEnd, int]
    exit_code: int = 0


def served_document(result: DeliveryEnded) -> Document:
    sums = {end.name.lower(): result.ended.get(end, 0) for end in EntryEnd}
    counted = ", ".join(f"{result.ended.get(end, 0):,} {end.value}" for end in EntryEnd)
    remark = "Stopped on request; what was under way has ended."
    if result.exit_code:
        remark = f"Stopped; a process ended with exit code {result.exit_code}: its counts are missing."
    return Document(
        {
            "queue": result.request.queue,
            **result.request.home,
            "recipients": sums,
            "exit": result.exit_code,
        },
        (f"Recipients of {result.request.queue}: {counted}.",),
        exit=result.exit_code,
        remarks=(remark,),
    )


_LOG: Final = logging.getLogger("mailmend.delivery")


METRICS_EVERY: Final = timedelta(seconds=15)
_READY_EVERY: Final = timedelta(milliseconds=100)


@dataclass(frozen=True, slots=True)
class PreparedServer:
    """What a server has before it connects to anything; processes inherit it.

    Attributes:
        places: where all processes take mails; none: a process opens its own.
    """

    policies: PoliciesInForce
    tls: "ListenerTls | None"
    users: ListenerUsers | None
    pre: Callable[..., Any] | None
    post: Callable[..., Any] | None
    at_arrival: Callable[..., Any] | None
    places: tuple[OpenPlace, ...] = ()

    def renew(self) -> None:
        """Read the listener's certificate and users again."""
        _renew(self.tls, "the listener's certificate")
        _renew(self.users, "the listener's users")

    def reload(self, clock: Clock) -> None:
        """Read all of it again, for processes that begin later; running ones say what was wrong."""
        with suppress(MailmendError):
            self.policies.reload(lambda _: PolicyChanges(), instant_of(clock.micros()))
        for kept in (self.tls, self.users):
            with suppress(MailmendError):
                if kept:
                    kept.read_again()


def serve(request: DeliveryRequest, caller: Caller) -> DeliveryEnded:
    """Deliver until SIGTERM or Ctrl-C; SIGHUP reads policies, certificate and users again.

    Raises:
        BadPolicyFile: the policies cannot be used; the message says where.
        ServerNameTaken: another live server of the queue has the name; that takes a minute to be sure of.
        WrongUse: there is no such hook, the file of metrics cannot be written, mails cannot be taken at an
            address, a certificate is missing or cannot be used, or a process would have less than 1.
        Delayed: the keyspace has no table for delayed mails, so nothing could be tried again.
        CannotReach: the cluster, the broker or the blob store, at the start; later they are waited for.
    """
    if request.processes == 1:
        return _served(request, caller, _prepared(request))
    for number in range(1, request.processes + 1):
        metrics = request.of_worker(number).metrics
        if metrics:
            refuse_unwritable(metrics)
    prepared = _prepared(request)
    if request.listen:
        prepared = replace(prepared, places=open_places(request.listen))
    return _served_by_workers(request, caller, prepared)


def _prepared(request: DeliveryRequest) -> PreparedServer:
    policies = PoliciesInForce(request.policies, domain_concurrency=request.of_one_domain)
    tls = request.listening_tls()
    users = request.listening_users()
    pre = hook_named(PRE_DELIVERY, request.pre_delivery)
    post = hook_named(POST_DELIVERY, request.post_delivery)
    at_arrival = hook_named(END_OF_DATA, request.end_of_data)
    if at_arrival and not request.listen:
        mend = "Say where with --listen, or leave it out."
        raise WrongUse("no mail comes in that --end-of-data could see", mend=mend)
    return PreparedServer(policies, tls, users, pre, post, at_arrival)


def _served_by_workers(request: DeliveryRequest, caller: Caller, prepared: PreparedServer) -> DeliveryEnded:
    clock = SystemClock()

    def work(link: WorkerLink) -> Mapping[EntryEnd, int]:
        own = request.of_worker(link.number)
        prepared.policies.domain_concurrency = own.of_one_domain

        def remark(sentence: str) -> None:
            caller.remark(f"Worker {link.number}: {sentence}")

        return _served(own, replace(caller, remark=remark), prepared, link).ended

    def stopped() -> None:
        # Each process closes its own: once all have, clients are refused and do not wait in vain.
        for place in prepared.places:
            place.close()

    workers = Workers(
        count=request.processes,
        work=work,
        clock=clock,
        reload=lambda: prepared.reload(clock),
        stopped=stopped,
    )
    with heard("mailmend.processes"):
        exit_code = workers.run()
    ended = Counter[EntryEnd]()
    for result in workers.results:
        ended.update(result)
    return DeliveryEnded(request, ended, exit_code)


def _served(
    request: DeliveryRequest,
    caller: Caller,
    prepared: PreparedServer,
    link: WorkerLink | None = None,
) -> DeliveryEnded:
    """The life of one process; `link` is a worker's."""
    _warn_of_few_files(allow_open_files(request.open_files), request.open_files, caller)
    if request.metrics:
        refuse_unwritable(request.metrics)
    policies_in_force = prepared.policies
    at_arrival = prepared.at_arrival

    async def served(connections: QueueConnections) -> DeliveryEnded:
        if not connections.can_delay:
            raise no_due_mails()
        settings = request.delivery()
        limits = policies_in_force.said
        policies_in_force.read_at = connections.now
        relay = relay_of(settings.reporter, request.smtp_tls_ca, request.mails_per_connection)
        connections = connections.with_ledger()
        by_dns = partial(request.by_dns, connections.clock)
        hops = HopsBySources(by_dns, request.all_sources(limits))
        async with connections.open() as queue:
            orders = made_orders(connections)
            hooks = DeliveryHooks(
                clock=connections.clock,
                pre=prepared.pre,
                post=prepared.post,
                arrival=at_arrival,
                pre_name=request.pre_delivery or "",
                post_name=request.post_delivery or "",
                arrival_name=request.end_of_data or "",
                limit=request.hook_limit,
            )
            server = DeliveryServer(
                name=owner_name(),
                queue=queue,
                next_hops=request.next_hop or hops,
                relay=relay,
                engine=PickupEngine(limits.policies, limits.algorithm, share=ServerShare()),
                clock=connections.clock,
                settings=settings,
                hooks=hooks,
                ledger=orders,
                servers=orders.servers,
                journal=made_attempts(connections),
            )
            where = request.next_hop or "the servers of each domain"
            caller.remark(f"Delivering {request.queue} by {where} until SIGTERM or Ctrl-C.")
            work_by(server, limits)
            listener = None
            if request.listen:
                listening = request.listening()
                clock = connections.clock
                listener = listener_of(queue, clock, listening, prepared.tls, prepared.users)
                listener.opened = prepared.places
                listener.intake.rules = limits.incoming
                listener.intake.quotas.usage = QuotaUsage(limits.quotas)
                if at_arrival and server.orders:
                    heeding = replace(hooks, heed=server.orders.apply_hook_orders)
                    listener.intake.hook = heeding.arrived
            desk = DeliveryDesk(
                server=server,
                connections=connections,
                policies=policies_in_force,
                listener=listener,
                know_sources=lambda limits: hops.know(request.all_sources(limits)),
            )
            if link:
                desk.tell_others = link.reloaded

            def reload() -> None:
                _reload(desk)
                prepared.renew()

            with stop_signal() as stop, heard("mailmend.delivery"), hangup_calls(reload):
                try:
                    await _listening(listener, caller)
                    metrics = _Metrics(desk, caller, request.metrics, request.worker)
                    await _until_stopped(desk, stop, metrics, request.face, link)
                finally:
                    await relay.close()
        return DeliveryEnded(request, server.ended)

    return with_queues(request.settings, served)


def _warn_of_few_files(allowed: int, wanted: int, caller: Caller) -> None:
    if allowed < wanted:
        caller.remark(
            f"The system allows {allowed} open files, and this server may need {wanted}: raise the limit "
            "(LimitNOFILE= of its unit, ulimit -n), or lower --concurrency. Attempts beyond the limit are made later."
        )


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


def _renew(kept: "ListenerTls | ListenerUsers | None", what: str) -> None:
    if kept:
        try:
            kept.read_again()
        except MailmendError as error:
            _LOG.error(f"{what} stays as it was", extra={"error": str(error)})
        else:
            _LOG.info(f"{what} was read again")


@dataclass(frozen=True, slots=True)
class _Metrics:
    """Writes what the server tells to a file, where one is named; a worker's samples have its number."""

    desk: DeliveryDesk
    caller: Caller
    file: Path | None
    worker: int | None = None

    async def keep_current(self, stop: asyncio.Event) -> None:
        """Write until a stop signal; after an error, try again at the next turn."""
        while self.file and not stop.is_set():
            await paused(self.desk.server.clock, METRICS_EVERY, stop)
            self.write()

    def _samples(self) -> Iterable[MetricSample]:
        samples = self.desk.samples()
        if self.worker is None:
            return samples
        return with_label(samples, "worker", str(self.worker))

    def write(self) -> None:
        try:
            if self.file:
                write_text(self.file, metrics_text(self._samples()), masked=False)
        except MailmendError as error:
            self.caller.remark(f"{self.file} is not up to date: {error.what}")


async def _until_stopped(
    desk: DeliveryDesk,
    stop: asyncio.Event,
    metrics: _Metrics,
    face: DeliveryFace | None,
    link: WorkerLink | None = None,
) -> None:
    """Run the server with the background tasks of its queue: due mails move, and slices are swept; mails come in.

    Callers over a network are answered until the server has ended: that it ends is an answer too.
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
        if link:
            together.create_task(_told_when_ready(desk, stop, link))
    metrics.write()


async def _told_when_ready(desk: DeliveryDesk, stop: asyncio.Event, link: WorkerLink) -> None:
    while not desk.server.is_ready and not stop.is_set():
        await paused(desk.server.clock, _READY_EVERY, stop)
    if desk.server.is_ready:
        link.ready()
