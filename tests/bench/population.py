"""A synthetic mail keyspace of any size, written by the connector from numbers: the same number, the same message.

Truth, mirror, filters, content, unions and counters agree with each other; `damage` then breaks places by number.
Everything is stamped an hour in the past, so that a repair may mend it at once.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import md5
from typing import Any
from uuid import UUID

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from cql.contact import Contact
from cql.session import Keyspace
from model.catalog import MESSAGE_ID
from model.operations import Change, Put, Remove, Write
from repair.decide import Verdict
from spark_repair.connector import contact_options

IN_MAILBOX = 1000
"""Messages of one mailbox."""

_BORN = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
_HOUR_MICROS = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Population:
    """So many messages, numbered from 0, in one keyspace."""

    spark: SparkSession
    contact: Contact
    keyspace: str
    messages: int

    def write(self) -> None:
        """Write every table."""
        at = time.time_ns() // 1000 - _HOUR_MICROS
        for table, rows in self._tables():
            options = {**contact_options(self.contact), "spark.cassandra.output.ignoreNulls": "true"}
            if table != "mailboxcounters":
                options["spark.cassandra.output.timestamp"] = str(at)
            writer = rows.write.format("org.apache.spark.sql.cassandra").options(**options)
            writer.options(keyspace=self.keyspace, table=table).mode("append").save()

    def _tables(self) -> Iterator[tuple[str, DataFrame]]:
        rows = self._messages()
        place = ("mailboxid", "uid")
        yield "imapuidtable", rows
        yield "messageidtable", rows
        dates = ("messageid", "internaldate", "bodystartoctet", "fullcontentoctets", "headercontent")
        yield "messagev3", rows.select(*dates, sf.col("headercontent").alias("bodycontent"))
        yield "firstunseen", rows.where(~sf.col("flagseen")).select(*place)
        yield "messagedeleted", rows.where("flagdeleted").select(*place)
        yield "mailboxrecents", rows.where("flagrecent").select("mailboxid", sf.col("uid").alias("recent_mesage_uid"))
        groups = rows.groupBy("mailboxid")
        flags = sf.array_distinct(sf.flatten(sf.collect_set("userflags")))
        yield "applicableflag", groups.agg(flags.alias("userflags")).where(sf.size("userflags") > 0)
        unseen = sf.sum((~sf.col("flagseen")).cast("bigint"))
        yield "mailboxcounters", groups.agg(sf.count("*").alias("count"), unseen.alias("unseen"))

    def _messages(self) -> DataFrame:
        number = sf.col("id")
        born = sf.timestamp_seconds(sf.lit(int(_BORN.timestamp())) + number)
        flags = {"answered": 11, "deleted": 50, "draft": 97, "flagged": 7, "recent": 20}
        return self.spark.range(0, self.messages, 1, 8).select(
            _uuid_column("m", number).alias("messageid"),
            _uuid_column("b", sf.floor(number / IN_MAILBOX)).alias("mailboxid"),
            (number % IN_MAILBOX + 1).alias("uid"),
            (number % IN_MAILBOX + 1).alias("modseq"),
            *((number % every == 0).alias(f"flag{name}") for name, every in flags.items()),
            (number % 4 != 0).alias("flagseen"),
            sf.when(number % 10 == 0, sf.array(sf.lit("$Forwarded"), sf.lit("Junk"))).alias("userflags"),
            born.alias("internaldate"),
            born.alias("save_date"),
            sf.lit(1234).alias("bodystartoctet"),
            (number % 100_000 + 2000).alias("fullcontentoctets"),
            sf.concat(sf.lit("1_1_"), sf.sha2(number.cast("string"), 256)).alias("headercontent"),
        )


def _uuid_column(kind: str, number: Column) -> Column:
    """A version-1 UUID made of a number, as `uuid_of` makes it."""
    digest = sf.md5(sf.concat(sf.lit(kind), number.cast("string")))
    parts = [(1, 8), (9, 4), (14, 3), (18, 3), (21, 12)]
    first, second, third, fourth, last = (sf.substring(digest, start, length) for start, length in parts)
    return sf.concat_ws("-", first, second, sf.concat(sf.lit("1"), third), sf.concat(sf.lit("8"), fourth), last)


def uuid_of(kind: str, number: int) -> UUID:
    """The message id ("m") or mailbox id ("b") of a number."""
    digest = md5(f"{kind}{number}".encode(), usedforsecurity=False).hexdigest()
    return UUID(f"{digest[:8]}{digest[8:12]}1{digest[13:16]}8{digest[17:20]}{digest[20:]}")


def place_of(number: int) -> tuple[UUID, int]:
    """Mailbox id and uid of a message."""
    return uuid_of("b", number // IN_MAILBOX), number % IN_MAILBOX + 1


def damage(mail: Keyspace, messages: int, places: int) -> dict[Verdict, int]:
    """Break that many places of the mirror, a third in each way; what a check must find."""
    at = time.time_ns() // 1000 - _HOUR_MICROS // 2
    step = messages // places
    kinds = (Verdict.PROJECT, Verdict.AMEND, Verdict.WITHDRAW)
    numbers = range(0, step * places, step)
    writes = [_broken(kinds[count % 3], number, at) for count, number in enumerate(numbers)]
    for error in mail.write_all(writes):
        if error is not None:
            raise error
    return {kind: len(range(count, places, 3)) for count, kind in enumerate(kinds)}


def _broken(verdict: Verdict, number: int, at: int) -> Write:
    mailbox, uid = place_of(number)
    match verdict:
        case Verdict.PROJECT:
            return Remove(MESSAGE_ID, (mailbox, uid), at=at)
        case Verdict.AMEND:
            return Change(MESSAGE_ID, (mailbox, uid), assign={"flaganswered": number % 11 != 0}, at=at)
        case _:
            row: dict[str, Any] = {"mailboxid": mailbox, "uid": uid + 1_000_000, "messageid": uuid_of("x", number)}
            return Put(MESSAGE_ID, row | {"modseq": 1, "internaldate": _BORN + timedelta(seconds=number)}, at=at)
