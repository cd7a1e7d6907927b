"""Other tables of James than the messages', which a declaration describes: `--projections james`.

Only tables whose rows a rule can tell are here; `left_tables` names the others, with the reason.
Rights are the characters of the set in alphabetical order; groups, negative keys and special names
have no row. A mapping is kept by its type and value, next to a user (or *) at a domain. Source:
CassandraUserMailboxRightsDAO, CassandraACLDAOV2, MailRepository's keys DAO,
CassandraMappingsSourcesDAO, MappingSource and Mapping.Type, in James 3.8.1, 3.9.0 and 20bf8083
(August 2026).
"""

import json
from typing import Final

from mailmend.model.catalog.james_tables import ACL
from mailmend.model.errors import WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.projections.declarations import Declaration

JAMES: Final = "james"
"""The name of this declaration where a file is expected."""

_KINDS: Final = ("regex:", "domain:", "domainAlias:", "error:", "forward:", "group:", "alias:")
"""What James writes before a mapping of each type; an address has no prefix."""

JAMES_TEXT: Final = """
[truth.aclv2.mirror.UserMailboxACL]
renamed = { userName = "key", mailboxid = "id" }
computed = { rights = { joined_of = "rights" } }

[truth.aclv2.mirror.UserMailboxACL.when.key]
not = ["anybody", "anyone", "authenticated", "owner"]
starts_not = ["-", "$"]

[truth.mailRepositoryContentV2.mirror.mailRepositoryKeys]

[truth.rrt.mirror.mappings_sources.computed]
mapping_type = { prefix_of = "mapping", prefixes = @PREFIXES@ }
mapping_value = { rest_of = "mapping", prefixes = @PREFIXES@ }
source = { joined_columns = ["user", "domain"], separator = "@" }
""".replace("@PREFIXES@", json.dumps(_KINDS))


_OLD_ACL: Final = "acl"
FIRST_ACL_VERSION: Final = 10
"""The version in schemaversion since which James writes rights to aclv2, and not to acl."""


def in_keyspace(james: Declaration, live: Schema, version: int) -> Declaration:
    """What a keyspace has of the declaration. James's tables depend on the modules that it has.

    Args:
        james: the whole declaration.
        live: the keyspace.
        version: the greatest one in schemaversion; 0 without any.

    Raises:
        WrongUse: the keyspace has no such tables.
    """
    found = []
    for truth in james.truths:
        if truth.table == ACL.name and live.table(_OLD_ACL) and version < FIRST_ACL_VERSION:
            continue
        for projection in truth.projections:
            if live.table(truth.table) is not None and live.table(projection) is not None:
                found.append(truth.only(projection))
    if not found:
        tables = ", ".join(james.projections)
        mend = f"Name the keyspace of a James that has one of these tables: {tables}."
        raise WrongUse(f"the keyspace has no table that --projections {JAMES} declares", mend=mend)
    return Declaration(tuple(found))
