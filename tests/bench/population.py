"""A mail keyspace of any size, written by Spark in a minute per million messages: sound, or worn as one of James was.

Every row follows from the message's number alone, so two populations of one size are equal. Run as a program it fills
a keyspace that stays: `python -m tests.bench.population HOST:PORT KEYSPACE MESSAGES [worn]`.
"""

import sys
from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from mailmend.cql.driver.session import Contact, connect
from mailmend.model.catalog.mail import (
    APPLICABLE_FLAG,
    FIRST_UNSEEN,
    IMAP_UID,
    MAILBOX_COUNTERS,
    MAILBOX_RECENTS,
    MESSAGE_DELETED,
    MESSAGE_ID,
    MESSAGE_V3,
)
from mailmend.model.table import Table
from mailmend.spark_repair.session import session_for_a_command
from mailmend.spark_repair.source import contact_options
from tests.support.james import create_james
from tests.support.keyspaces import dropped
from tests.support.spark import started_settings

MESSAGES_PER_MAILBOX = 1_000
_BORN = 1_700_000_000  # seconds since 1970: the first message's date

LEAKS: Final = 8_615
STRAYS: Final = 7
"""Wrong rows in each of the three filters: missing in firstUnseen, too many in the others."""
WRONG_COUNTERS: Final = 17
WORN: Final = {
    "messageV3": {"LEAK": LEAKS},
    "firstUnseen": {"PROJECT": STRAYS},
    "messageDeleted": {"WITHDRAW": STRAYS},
    "mailboxRecents": {"WITHDRAW": STRAYS},
    "mailboxCounters": {"AMEND": WRONG_COUNTERS},
}
"""What a check finds in a worn population: as much as was found where James 3.8.1 had written 206,943 messages."""


def populate(session: SparkSession, contact: Contact, keyspace: str, messages: int, *, worn: bool = False) -> None:
    """Write so many messages and everything that follows from them.

    A worn population has three messages in four unseen, as James's had, and the damages of `WORN`.
    """
    truth, put = truths(range(messages), session, unseen=worn), _Writer(session, contact, keyspace)
    content = truth.union(truths(range(messages, messages + LEAKS), session)) if worn else truth
    stray = sf.expr(f"id % {MESSAGES_PER_MAILBOX} = 1 and id < {STRAYS * MESSAGES_PER_MAILBOX}") & sf.lit(worn)
    put(truth, IMAP_UID)
    put(truth, MESSAGE_ID)
    put(content.withColumn("bodycontent", sf.col("headercontent")), MESSAGE_V3)
    put(truth.where(~sf.col("flagseen") & ~stray), FIRST_UNSEEN)
    put(truth.where(sf.col("flagdeleted") | stray), MESSAGE_DELETED)
    put(truth.where(sf.col("flagrecent") | stray).withColumn("recent_mesage_uid", sf.col("uid")), MAILBOX_RECENTS)
    labels = sf.array_distinct(sf.flatten(sf.collect_set("userflags"))).alias("userflags")
    put(truth.where("userflags is not null").groupBy("mailboxid").agg(labels), APPLICABLE_FLAG)
    unseen = sf.sum(sf.expr("cast(not flagseen as bigint)")).alias("unseen")
    wrong = (sf.min("id") < WRONG_COUNTERS * MESSAGES_PER_MAILBOX) & sf.lit(worn)
    count = (sf.count("*") + wrong.cast("bigint")).alias("count")
    put(truth.groupBy("mailboxid").agg(count, unseen), MAILBOX_COUNTERS)


def truths(numbers: range, session: SparkSession, *, unseen: bool = False) -> DataFrame:
    """The rows of imapUidTable, each with its number; one message in four is unseen, or three are."""
    number = sf.col("id")
    uid = number % MESSAGES_PER_MAILBOX + 1
    date = sf.timestamp_seconds(sf.lit(_BORN) + number)
    labels = sf.array(sf.lit("$Forwarded"), sf.lit("Junk"))
    return session.range(numbers.start, numbers.stop, 1, 8).select(
        number,
        _uuid("message", number).alias("messageid"),
        _uuid("message", number).alias("threadid"),
        _uuid("mailbox", sf.floor(number / MESSAGES_PER_MAILBOX)).alias("mailboxid"),
        uid.alias("uid"),
        uid.alias("modseq"),
        (number % 11 == 0).alias("flaganswered"),
        (number % 50 == 0).alias("flagdeleted"),
        sf.lit(False).alias("flagdraft"),
        (number % 7 == 0).alias("flagflagged"),
        (number % 20 == 0).alias("flagrecent"),
        ((number % 4 == 0) == sf.lit(unseen)).alias("flagseen"),
        sf.when(number % 10 == 0, labels).alias("userflags"),
        date.alias("internaldate"),
        date.alias("save_date"),
        sf.lit(1234).cast("int").alias("bodystartoctet"),
        (number % 100_000 + 2_000).alias("fullcontentoctets"),
        sf.concat(sf.lit("1_1_"), sf.sha2(number.cast("string"), 256)).alias("headercontent"),
    )


class _Writer:
    """Appends frames to tables, each with the columns that it has."""

    def __init__(self, session: SparkSession, contact: Contact, keyspace: str) -> None:
        self._options = {
            **contact_options(contact),
            "spark.cassandra.output.ignoreNulls": "true",
            "spark.cassandra.output.concurrent.writes": "32",
            "keyspace": keyspace,
        }
        session.conf.set("spark.sql.session.timeZone", "UTC")

    def __call__(self, frame: DataFrame, table: Table) -> None:
        columns = [name for name in table.names if name in frame.columns]
        writer = frame.select(*columns).write.format("org.apache.spark.sql.cassandra").options(**self._options)
        writer.option("table", table.name).mode("append").save()


def _uuid(kind: str, number: Column) -> Column:
    """A version-1 UUID of the year 2023 or so that follows from the number."""
    digits = sf.md5(sf.concat(sf.lit(kind), number.cast("string")))
    parts = ((1, 8, ""), (9, 4, ""), (14, 0, "11ed"), (18, 3, "8"), (21, 12, ""))
    return sf.concat_ws(
        "-", *(sf.concat(sf.lit(lead), sf.substring(digits, start, length)) for start, length, lead in parts)
    )


def main(arguments: Sequence[str]) -> None:
    """Fill a new keyspace that James's classes can work on as well as ours."""
    address, keyspace, messages, *worn = arguments
    host, _, port = address.rpartition(":")
    contact = Contact(hosts=(host,), port=int(port))
    with connect(contact) as cluster:
        dropped(cluster, (keyspace,))
        create_james(cluster, keyspace)
    with session_for_a_command(started_settings("local[2]")) as session:
        populate(session, contact, keyspace, int(messages), worn=bool(worn))


if __name__ == "__main__":
    main(sys.argv[1:])
