"""`mailmend delivery`: the group of its commands."""

from typing import Final

from mailmend.admin.delivery.entries import GROUP, LIST
from mailmend.admin.delivery.entry_changes import BOUNCE, DEFER, DELETE, HOLD, RELEASE, RETRY
from mailmend.admin.delivery.explain import EXPLAIN
from mailmend.admin.delivery.serve_options import SERVE
from mailmend.admin.delivery.servers import SERVERS
from mailmend.admin.delivery.show import SHOW
from mailmend.admin.frame.command import CommandGroup

ENTRY_COMMANDS: Final = (LIST, SHOW, GROUP, HOLD, RELEASE, RETRY, DEFER, BOUNCE, DELETE)


DELIVERY: Final = CommandGroup(
    name="delivery",
    summary="Deliver the mails of a queue to their recipients' servers.",
    about="""The queue is over RabbitMQ or Pulsar, as for `mailmend queue`. The ledger, which is in Cassandra with
    either broker, keeps the journal of attempts and the orders of people, by the names of keyspace and queue. A queue
    that moves keeps both; queues of one name in several namespaces of Pulsar need a --ledger-keyspace each. To hold
    mails back on all servers, use `mailmend suspend`.""",
    commands=(SERVE, EXPLAIN, SERVERS, *ENTRY_COMMANDS),
    examples="""
        mailmend delivery serve outgoing
        mailmend delivery serve outgoing --next-hop relay.example.org
        mailmend delivery serve outgoing --broker pulsar://pulsar.example.org --host cassandra.example.org
        mailmend delivery group outgoing                                 which domains wait
        mailmend delivery hold outgoing --tenant acme --why 'looks like spam'""",
)
