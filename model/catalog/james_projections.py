"""Other tables of James than the messages', which a declaration describes: `--projections james`.

Only tables whose rows a rule can tell are here; `left_tables` names the others, with the reason.
Rights are the characters of the set in alphabetical order; groups, negative keys and special names
have no row. A mapping is kept by its type and value, next to a user (or *) at a domain. POP3 has
one row for a message in a mailbox, however many uids it has there; a message from before James 3.7
may have no size in imapUidTable, and then its row is left as it is. JMAP's query view has a row for
each message in a mailbox that is not marked as deleted; null as its thread is the message itself.
Source: CassandraUserMailboxRightsDAO, CassandraACLDAOV2, MailRepository's keys DAO,
CassandraMappingsSourcesDAO, MappingSource, Mapping.Type, Pop3MetadataDataDefinition (in 3.8.1:
Pop3MetadataModule), PopulateMetadataStoreListener, MetaDataFixInconsistenciesService,
CassandraEmailQueryView and its definition, PopulateEmailQueryViewListener and
EmailQueryViewPopulator, in James 3.8.1, 3.9.0 and 20bf8083 (August 2026).
"""

import json
from collections.abc import Container
from dataclasses import replace
from typing import Final

from mailmend.model.catalog.james_tables import ACL, EMAIL_QUERY_VIEW
from mailmend.model.errors import WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.projections.declarations import Declaration, DeclaredMirror
from mailmend.model.table import Table

JAMES: Final = "james"
"""The name of this declaration where a file is expected."""

_KINDS: Final = ("regex:", "domain:", "domainAlias:", "error:", "forward:", "group:", "alias:")
"""What James writes before a mapping of each type; an address has no prefix."""

_DATED: Final = "the row has a date of the header: James's task populateEmailQueryView writes it"
"""Why a row that is missing in an older query view is left."""

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

[truth.imapUidTable.null_is]
threadId = { column = "messageId" }
flagDeleted = false

[truth.imapUidTable.mirror.pop3metadata]
renamed = { size = "fullContentOctets" }
needs = ["fullContentOctets"]

[truth.imapUidTable.mirror.email_query_view_received_at]
renamed = { receivedAt = "internalDate", thread_id = "threadId" }
when = { flagDeleted = false }
needs = ["internalDate"]
left_out = ["sentAt"]
only_reported = { PROJECT = "@DATED@" }
""".replace("@PREFIXES@", json.dumps(_KINDS)).replace("@DATED@", _DATED)


_OLD_ACL: Final = "acl"
FIRST_ACL_VERSION: Final = 10
"""The version in schemaversion since which James writes rights to aclv2, and not to acl."""

FILLED_ON_DEMAND: Final = (EMAIL_QUERY_VIEW.name,)
"""Tables that James has in any case, and fills only where its listener is turned on."""

_THREAD: Final = "thread_id"
"""A column of the query view since December 2025; up to then its rows have a date of a header."""


def in_keyspace(
    james: Declaration,
    live: Schema,
    version: int,
    empty: Container[str] = (),
) -> Declaration:
    """What a keyspace has of the declaration. James's tables depend on the modules that it has.

    Args:
        james: the whole declaration.
        live: the keyspace.
        version: the greatest one in schemaversion; 0 without any.
        empty: the names of the tables that James fills on demand, and that have no row.

    Raises:
        WrongUse: the keyspace has no such tables.
    """
    found = []
    for truth in james.truths:
        if truth.table == ACL.name and live.table(_OLD_ACL) and version < FIRST_ACL_VERSION:
            continue
        columns = live.table(truth.table)
        mirrors = []
        for mirror in truth.mirrors:
            table = live.table(mirror.table)
            if table is not None and mirror.table not in empty:
                mirrors.append(_in_table(mirror, table))
        if mirrors and columns is not None:
            null_is = tuple(pair for pair in truth.null_is if pair[0] in columns)
            found.append(replace(truth, mirrors=tuple(mirrors), null_is=null_is))
    if not found:
        tables = ", ".join(james.projections)
        mend = f"Name the keyspace of a James that has one of these tables: {tables}."
        raise WrongUse(f"the keyspace has no table that --projections {JAMES} declares", mend=mend)
    return Declaration(tuple(found))


def _in_table(mirror: DeclaredMirror, table: Table) -> DeclaredMirror:
    """The mirror with the columns that its table has.

    A query view without threads has a date of a header in each row, which no table of the mail has:
    a row that is missing there is only reported, and James's task writes it.
    """
    reported = mirror.only_reported
    if _THREAD in table:
        reported = ()
    return replace(
        mirror,
        renamed=tuple(pair for pair in mirror.renamed if pair[0] in table),
        left_out=tuple(name for name in mirror.left_out if name in table),
        only_reported=reported,
    )
