"""Generators of uids and modseqs that are behind the messages, found by Spark.

One aggregation by mailbox brings the numbers in use and the last numbers given together; only
mailboxes that look wrong leave the executors. They are looked at again one by one, as the
generators of the local engine.
"""

from collections.abc import Mapping
from functools import reduce
from itertools import islice
from operator import or_
from typing import Any
from uuid import UUID

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from mailmend.cql.driver.contact import Contact
from mailmend.model.catalog.mail import MESSAGE_COUNTER, MODSEQ
from mailmend.model.ids import MailboxId
from mailmend.model.projections.family import Family
from mailmend.model.table import Table
from mailmend.repair.clock import SystemClock
from mailmend.repair.mending.generators import SHOWN_MAX, BehindGenerator, Generators, Numbers, in_order
from mailmend.spark_repair.connector import Source
from mailmend.spark_repair.executor_pace import open_here
from mailmend.spark_repair.suspects import cell_of

_MAILBOX = "mailboxid"
"""The column of the truth and of the generators that names the mailbox."""

_IN_USE = {MESSAGE_COUNTER.name: "uid", MODSEQ.name: "modseq"}
"""The column of the truth with the numbers of each generator."""


def numbers_behind(
    source: Source, family: Family, truth: DataFrame, mirror_only: DataFrame
) -> dict[MailboxId, Numbers]:
    """The mailboxes that have a number which a generator did not give, at most `SHOWN_MAX`, with their numbers.

    Args:
        source: reads the generators, now: call this after the rows were read.
        family: the declarations; one without generators has no such mailbox.
        truth: the rows of the truth, with mailbox, uid and modseq.
        mirror_only: mailbox and uid of the mirror's rows that have no truth.
    """
    in_use = {name: number for name, number in _IN_USE.items() if number in truth.columns}
    generators = [table for counts in family.counts for table in counts.generators if table.name in in_use]
    if not generators:
        return {}
    sides = [truth.select(*map(cell_of, (_MAILBOX, *in_use.values()))), mirror_only]
    sides += [_last_numbers(source, table) for table in generators]
    rows = reduce(_united, sides)
    highest = [sf.max(cell_of(name)).alias(name) for name in rows.columns if name != _MAILBOX]
    behind = reduce(or_, (cell_of(in_use[table.name]) > _last_number(table) for table in generators))
    found = rows.groupBy(_MAILBOX).agg(*highest).where(behind).limit(SHOWN_MAX).collect()
    return {MailboxId(UUID(row[_MAILBOX])): _numbers_of(row.asDict()) for row in found}


def confirmed(
    contact: Contact, keyspace: str, family: Family, numbers: Mapping[MailboxId, Numbers]
) -> list[BehindGenerator]:
    """The generators of these mailboxes that a look of this process still shows behind; no look without mailboxes."""
    if not numbers:
        return []
    mail = open_here(contact).keyspace(keyspace)
    found = Generators(mail, family, SystemClock(), keyspace).behind(numbers)
    return in_order(list(islice(found, SHOWN_MAX)))


def _last_numbers(source: Source, generator: Table) -> DataFrame:
    """The mailbox, and the last number that the generator gave."""
    mailbox = generator.partition[0].name
    last = generator.regular[0].name
    return source.scan(generator, (mailbox, last)).select(
        cell_of(mailbox).alias(_MAILBOX), cell_of(last).alias(_last(generator))
    )


def _united(some: DataFrame, other: DataFrame) -> DataFrame:
    return some.unionByName(other, allowMissingColumns=True)


def _last(generator: Table) -> str:
    """A column's name that the truth has not: `modseq` is a table as well."""
    return f"last_{generator.name}"


def _last_number(generator: Table) -> Expression:
    return sf.coalesce(cell_of(_last(generator)), sf.lit(0).cast("long"))


def _numbers_of(row: Mapping[str, Any]) -> Numbers:
    return Numbers(row.get("uid") or 0, row.get("modseq") or 0)
