"""All that is ordered for the deliveries of one mail keyspace's queues, and who delivers, as the ledger keeps it."""

from dataclasses import dataclass

from mailmend.delivery.ledger.conditions import LedgerConditions
from mailmend.delivery.ledger.intents import LedgerIntents
from mailmend.delivery.ledger.order_history import LedgerOrderHistory
from mailmend.delivery.ledger.policies import LedgerPolicies
from mailmend.delivery.ledger.servers import LedgerServers
from mailmend.delivery.ledger.suspensions import LedgerSuspensions
from mailmend.model.ports import AsyncTables


@dataclass(frozen=True, slots=True)
class LedgerOrders:
    """What is ordered for the queues of one mail keyspace.

    Args:
        tables: the ledger keyspace.
        keyspace: the name of the mail keyspace.
    """

    tables: AsyncTables
    keyspace: str

    @property
    def suspensions(self) -> LedgerSuspensions:
        return LedgerSuspensions(self.tables, self.keyspace)

    @property
    def conditions(self) -> LedgerConditions:
        return LedgerConditions(self.tables, self.keyspace)

    @property
    def history(self) -> LedgerOrderHistory:
        return LedgerOrderHistory(self.tables, self.keyspace)

    @property
    def intents(self) -> LedgerIntents:
        return LedgerIntents(self.tables, self.keyspace)

    @property
    def policies(self) -> LedgerPolicies:
        return LedgerPolicies(self.tables, self.keyspace)

    @property
    def servers(self) -> LedgerServers:
        return LedgerServers(self.tables, self.keyspace)
