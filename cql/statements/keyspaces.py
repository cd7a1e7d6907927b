"""CREATE, ALTER and DROP of KEYSPACE and TYPE, and USE."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from mailmend.cql.schema.risk import Before, Danger, Risk, always
from mailmend.cql.statements.base import Drop, Effect, NamedStatement, Statement
from mailmend.cql.statements.type_rules import (
    NATIVE_TYPES,
    field_problem,
    may_be_of_a_field,
    user_types_in,
    uses_type,
)
from mailmend.model.cql_types import names_in, normal_type
from mailmend.model.errors import SchemaRefused
from mailmend.model.keyspace import EMPTY, Schema, find, put
from mailmend.model.names import KEYSPACE_NAME, name_of, pairs_of
from mailmend.model.table import UserType, spellings, types_of

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
        if self.if_not_exists and before is not None:
            return before
        return _replication_of(self.options, before)


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
    if "replication" not in options:
        return before
    return pairs_of(options["replication"])


_NONE = "there is no such type"


_KEPT_NAMES = frozenset({"bitstring", "byte", "complex", "enum", "macaddr", "interval"})


def _is_kept(spelling: str) -> bool:
    """Whether no user type can have the name: native types (unless in quotes), and a few words."""
    quoted = spelling.startswith('"')
    return name_of(spelling) in _KEPT_NAMES or (not quoted and name_of(spelling) in NATIVE_TYPES)


@dataclass(frozen=True, slots=True)
class CreateType(NamedStatement):
    """CREATE TYPE."""

    type: UserType
    if_not_exists: bool = False
    verb = "CREATE TYPE"
    creates = "type"
    harmless = "A new type is not used yet."

    def apply(self, schema: Schema) -> Schema:
        if _is_kept(self.name.spelling):
            raise self.refused(f"{self.name.spelling} is a name that CQL keeps for itself")
        if find(schema.types, self.name.spelling) is not None:
            if self.if_not_exists:
                return schema
            raise self.refused("it exists already", mend="Add IF NOT EXISTS, or leave it out.")
        seen: set[str] = set()
        for field, kind in self.type.fields:
            if name_of(field) in seen:
                raise self.refused(f"it names the field {field} twice")
            seen.add(name_of(field))
            self.must(field_problem(schema, field, kind))
        return replace(schema, types=put(schema.types, self.type))

    def took_effect(self, live: Schema) -> Effect:
        found = find(live.types, self.name.spelling)
        if found is None:
            return Effect.NOT_APPLIED
        return Effect.alike(self.type.normal_fields == found.normal_fields)

    def needs(self) -> frozenset[str]:
        return user_types_in(self.type.field_types)


@dataclass(frozen=True, slots=True)
class AddField(NamedStatement):
    """ALTER TYPE ... ADD."""

    field: str
    type: str
    if_exists: bool = False
    if_not_exists: bool = False
    verb = "ALTER TYPE ADD"
    harmless = "Existing cells of the type read the new field as null."

    def apply(self, schema: Schema) -> Schema:
        found = find(schema.types, self.name.spelling)
        if found is None:
            if not self.if_exists:
                raise self.refused(_NONE)
            return schema
        # The server looks at the type itself first, then at the fields, then at what it names.
        if name_of(self.field) in _names(found) and may_be_of_a_field(self.type):
            if self.if_not_exists:
                return schema
            raise self.refused(f"it has a field {self.field} already", mend="Add IF NOT EXISTS after ADD.")
        self.must(field_problem(schema, self.field, self.type))
        if self._holds(schema, self.type):
            raise self.refused(f"the field {self.field} would hold the type itself")
        keyed = []
        for table in schema.tables:
            if any(self._holds(schema, key.type) for key in table.partition):
                keyed.append(table)
        if keyed:
            raise self.refused(f"it is in the partition key of {spellings(keyed)}")
        return replace(schema, types=put(schema.types, replace(found, fields=(*found.fields, (self.field, self.type)))))

    def _holds(self, schema: Schema, kind: str) -> bool:
        return uses_type(schema, kind, name_of(self.name.spelling))

    def took_effect(self, live: Schema) -> Effect:
        found = find(live.types, self.name.spelling)
        if found is None:
            return Effect.DIFFERENT
        there = dict(found.normal_fields).get(name_of(self.field))
        if there is None:
            return Effect.NOT_APPLIED
        return Effect.alike(there == normal_type(self.type))


@dataclass(frozen=True, slots=True)
class RenameFields(NamedStatement):
    """ALTER TYPE ... RENAME old TO new."""

    renames: tuple[tuple[str, str], ...]
    if_exists: bool = False
    fields_if_exist: bool = False
    verb = "ALTER TYPE RENAME"
    dangers = (Danger(Risk.BREAKING, "Clients that know the old field names of {name} fail from then on.", always),)

    def apply(self, schema: Schema) -> Schema:
        found = find(schema.types, self.name.spelling)
        if found is None:
            if not self.if_exists:
                raise self.refused(_NONE)
            return schema
        fields = list(found.fields)
        before = _names(found)
        for old, new in self.renames:
            if name_of(old) in before:
                place = before.index(name_of(old))
                _, kind = fields[place]
                fields[place] = (new, kind)
            elif not self.fields_if_exist:
                raise self.refused(f"it has no field {old}", mend=f"Its fields: {', '.join(before)}.")
        renamed = replace(found, fields=tuple(fields))
        names = _names(renamed)
        for name in names:
            if names.count(name) > 1:
                raise self.refused(f"it would have two fields {name}")
        return replace(schema, types=put(schema.types, renamed))

    def took_effect(self, live: Schema) -> Effect:
        found = find(live.types, self.name.spelling)
        if found is None:
            return Effect.DIFFERENT
        return Effect.of_renames(self.renames, _names(found))


@dataclass(frozen=True, slots=True)
class DropType(Drop):
    """DROP TYPE."""

    verb = "DROP TYPE"
    word = "TYPE"
    held_in = "types"
    dangers = (Danger(Risk.DATA_LOSS, "Cells of type {name} can no longer be read.", always),)

    def without(self, schema: Schema) -> Schema:
        name = name_of(self.name.spelling)

        def uses(kinds: Iterable[str]) -> bool:
            return any(name in names_in(kind) for kind in kinds)

        users = []
        for user_type in schema.types:
            if uses(user_type.field_types):
                users.append(f"the type {user_type.spelling}")
        for table in schema.tables:
            if uses(types_of(table.columns)):
                users.append(f"the table {table.spelling}")
        if users:
            raise self.refused(f"{', '.join(users)} still uses it", mend="Drop what uses it first.")
        return Drop.without(self, schema)


def _names(user_type: UserType) -> tuple[str, ...]:
    return tuple(name_of(field) for field, _ in user_type.fields)
