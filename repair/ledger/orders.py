"""All that is ordered for the deliveries of one mail keyspace's queues, and who delivers, as the ledger keeps it."""

from dataclasses import dataclass

from model.ports import AsyncTables
from repair.ledger.conditions import LedgerConditions
from repair.ledger.delivery_servers import LedgerServers
from repair.ledger.intents import LedgerIntents
from repair.ledger.order_history import LedgerOrderHistory
from repair.ledger.policies import LedgerPolicies
from repair.ledger.suspensions import LedgerSuspensions


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
