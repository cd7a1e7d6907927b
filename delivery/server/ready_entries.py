"""A recipient that waits to be picked: its servers, our addresses, and the attempt that follows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from mailmend.delivery.mail.attempts import (
    DeliveryAttempt,
    JournalledAttempt,
    NextHop,
    NextHops,
)
from mailmend.delivery.mail.entries import DeliveryEntry
from mailmend.delivery.mail.hooks import TryDelivery
from mailmend.delivery.policy.engine import Picked
from mailmend.delivery.policy.policy import PickupField
from mailmend.delivery.policy.sub_queues import ActiveMail
from mailmend.delivery.server.held_mails import HeldMail
from mailmend.delivery.smtp.outgoing.addresses import SmartHost, ip_of
from mailmend.delivery.transports import (
    SendingSettings,
    SourceAddress,
    TlsLevel,
    TransportHop,
)


@dataclass(slots=True, eq=False)
class ReadyEntry:
    """An entry that waits to be picked.

    Attributes:
        entry: with the stage that it had when its servers were looked up.
        hops: the servers that take its mail; it is counted by the first of them.
        wanted: what the hook before delivery wants otherwise.
        sending: how mails of its transport are sent.
        counted: as what it waits in the engine.
        ready_at: since when it can be picked.
    """

    held: HeldMail
    entry: DeliveryEntry
    wanted: TryDelivery
    sending: SendingSettings
    hops: Sequence[NextHop] = ()
    counted: ActiveMail | None = None
    ready_at: datetime | None = None

    @property
    def sources(self) -> Sequence[SourceAddress]:
        return self.wanted.sources or self.sending.sources

    @property
    def next_hop(self) -> TransportHop | None:
        """The one server of its transport; None: the hook names another, or it has none."""
        if self.wanted.host:
            return None
        return self.sending.next_hop

    def known_hops(self, otherwise: NextHops) -> NextHops:
        """Who knows its servers: a hook names one, or its transport does."""
        if self.wanted.host:
            return SmartHost(self.wanted.host, self.wanted.port)
        if self.next_hop:
            return SmartHost(self.next_hop.host, self.next_hop.port)
        return otherwise

    @property
    def recipient(self) -> str:
        return self.wanted.recipient or self.entry.recipient

    @property
    def domain(self) -> str:
        return self.recipient.rpartition("@")[2].lower()

    def fields(self, custom: Iterable[PickupField] = ()) -> dict[PickupField, str]:
        """What policies count by, as far as it is known before a server is.

        Args:
            custom: the fields that the policies' file declares.
        """
        values = {
            **self.held.custom_values(custom),
            **self.held.mail.fields,
            **self.wanted.fields,
            PickupField.RECIPIENT_DOMAIN: self.domain,
        }
        return {pickup_field: pickup_field.of(value) for pickup_field, value in values.items()}

    def active(self, hop: NextHop, custom: Iterable[PickupField] = ()) -> ActiveMail:
        """The entry as the policies count it with this server."""
        values = self.fields(custom)
        values[PickupField.REMOTE_MX] = PickupField.REMOTE_MX.of(hop.host)
        values[PickupField.REMOTE_IP] = PickupField.REMOTE_IP.of(hop.address)
        name = self.held.name_of(self.entry.id.number)
        return ActiveMail(name, values, self.addresses_for(hop), self.held.mail.urgent)

    def addresses_for(self, hop: NextHop) -> tuple[str, ...]:
        """Our addresses of the family of the server's."""
        return tuple(source.address for source in self.sources if source.reaches(hop.address))

    def attempt(self, hop: NextHop, source: str) -> DeliveryAttempt:
        """The attempt to hand the mail to this server, from one of our addresses, as the hook wants it."""
        wanted = self.wanted
        mail = self.held.mail
        if wanted.sender:
            mail = replace(mail, sender=wanted.sender)
        entry = replace(self.entry, recipient=self.recipient)
        origin = next(address for address in self.sources if address.address == source)
        sending = self.sending
        tls = wanted.tls or sending.tls
        login = None
        if self.next_hop:
            login = self.next_hop.login
        if login and tls is not TlsLevel.VERIFIED and not ip_of(hop.address).is_loopback:
            tls = sending.login_tls
        return DeliveryAttempt(
            mail,
            (entry,),
            hop,
            origin,
            tls,
            sending.protocol,
            sending.timeouts,
            sending.reuse,
            login,
            sending.signer,
        )

    def recorded(self, attempt_id: UUID, begun: Picked, hop: NextHop, server: str) -> JournalledAttempt:
        """An attempt that begins, for the journal."""
        return JournalledAttempt(
            entry=self.entry.id,
            mail=self.held.dequeued.enqueue_id,
            id=attempt_id,
            fields={**begun.mail.values, PickupField.LOCAL_IP: begun.source},
            sources=begun.mail.sources,
            ready_at=self.ready_at,
            host=hop.host,
            content_bytes=len(self.held.dequeued.content),
            urgent=begun.mail.urgent,
            server=server,
        )
