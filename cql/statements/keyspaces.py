"""CREATE, ALTER and DROP KEYSPACE, and USE."""

from collections.abc import Mapping
from dataclasses import dataclass

from mailmend.cql.schema.risk import Before, Danger, Risk, always
from mailmend.cql.statements.base import Statement
from mailmend.model.errors import SchemaRefused
from mailmend.model.keyspace import EMPTY, Schema
from mailmend.model.names import KEYSPACE_NAME, name_of, pairs_of

_KEYSPACE = "the keyspace is an argument of the command, and its replication belongs to the cluster"


@dataclass(frozen=True, slots=True)
class KeyspaceStatement(Statement):
    """A statement about a keyspace as a whole."""

    keyspace: str

    @property
    def keyspace_named(self) -> str:
        return self.keyspace

    @property
    def subject(self) -> str:
        return self.keyspace


@dataclass(frozen=True, slots=True)
class CreateKeyspace(KeyspaceStatement):
    """CREATE KEYSPACE; `options` are literals, `replication` and `durable_writes` among them."""

    options: Mapping[str, str]
    if_not_exists: bool = False
    harmless = "A new keyspace is empty."
    unfit = f"{_KEYSPACE}: `mailmend schema apply --replication` creates it"

    def apply(self, schema: Schema) -> Schema:
        if not KEYSPACE_NAME.fullmatch(name_of(self.keyspace)):
            reason = "the name of a keyspace has 1 to 48 letters, digits and underscores, also in double quotes"
            raise SchemaRefused("CREATE KEYSPACE", self.keyspace, reason)
        return schema

    def replication(self, before: Mapping[str, str] | None) -> Mapping[str, str] | None:
        stands = self.if_not_exists and before is not None
        return before if stands else _replication_of(self.options, before)


@dataclass(frozen=True, slots=True)
class AlterKeyspace(KeyspaceStatement):
    """ALTER KEYSPACE."""

    options: Mapping[str, str]
    if_exists: bool = False
    harmless = "Only how commits are logged changes."
    unfit = f"{_KEYSPACE}: change it by hand, and repair afterwards"

    def replication(self, before: Mapping[str, str] | None) -> Mapping[str, str] | None:
        return _replication_of(self.options, before)

    def _changes_replication(self, _: Before) -> bool:
        return "replication" in self.options

    dangers = (
        Danger(
            Risk.STALE,
            "Replicas change at once, but rows do not move: reads of {name} may miss rows until "
            "every node has run nodetool repair (or rebuild, for a new data centre).",
            _changes_replication,
        ),
    )


@dataclass(frozen=True, slots=True)
class DropKeyspace(KeyspaceStatement):
    """DROP KEYSPACE."""

    if_exists: bool = False
    unfit = f"{_KEYSPACE}: drop it by hand: a merged branch must not be able to drop a keyspace"
    dangers = (Danger(Risk.DATA_LOSS, "Every table of {name} is gone; only a snapshot brings it back.", always),)

    def apply(self, schema: Schema) -> Schema:
        return EMPTY

    def replication(self, before: Mapping[str, str] | None) -> Mapping[str, str] | None:
        return None


@dataclass(frozen=True, slots=True)
class Use(KeyspaceStatement):
    """USE: names the keyspace of what follows."""

    harmless = "It only chooses the keyspace of the next statements."
    unfit = f"{_KEYSPACE}: write names without a keyspace"

    @property
    def keyspace_chosen(self) -> str:
        return self.keyspace


def _replication_of(options: Mapping[str, str], before: Mapping[str, str] | None) -> Mapping[str, str] | None:
    return pairs_of(options["replication"]) if "replication" in options else before
