"""A mail keyspace of any size, sound in every projection, written by Spark in a minute per million messages.

Every row follows from the message's number alone, so two populations of one size are equal.
"""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from cql.driver.contact import Contact
from model.catalog.mail import (
    APPLICABLE_FLAG,
    FIRST_UNSEEN,
    IMAP_UID,
    MAILBOX_COUNTERS,
    MAILBOX_RECENTS,
    MESSAGE_DELETED,
    MESSAGE_ID,
    MESSAGE_V3,
)
from model.schema.table import Table
from spark_repair.connector import contact_options

MESSAGES_PER_MAILBOX = 1_000
_BORN = 1_700_000_000  # seconds since 1970: the first message's date


def populate(session: SparkSession, contact: Contact, keyspace: str, messages: int) -> None:
    """Write so many messages and everything that follows from them."""
    truth = truths(session, messages)
    put = _Writer(session, contact, keyspace)
    put(truth, IMAP_UID)
    put(truth, MESSAGE_ID)
    put(truth.withColumn("bodycontent", sf.col("headercontent")), MESSAGE_V3)
    put(truth.where("not flagseen"), FIRST_UNSEEN)
    put(truth.where("flagdeleted"), MESSAGE_DELETED)
    put(truth.where("flagrecent").withColumn("recent_mesage_uid", sf.col("uid")), MAILBOX_RECENTS)
    labels = sf.array_distinct(sf.flatten(sf.collect_set("userflags"))).alias("userflags")
    put(truth.where("userflags is not null").groupBy("mailboxid").agg(labels), APPLICABLE_FLAG)
    unseen = sf.sum(sf.expr("cast(not flagseen as bigint)")).alias("unseen")
    put(truth.groupBy("mailboxid").agg(sf.count("*").alias("count"), unseen), MAILBOX_COUNTERS)


def truths(session: SparkSession, messages: int) -> DataFrame:
    """The rows of imapUidTable."""
    number = sf.col("id")
    uid = number % MESSAGES_PER_MAILBOX + 1
    date = sf.timestamp_seconds(sf.lit(_BORN) + number)
    labels = sf.array(sf.lit("$Forwarded"), sf.lit("Junk"))
    return session.range(0, messages, 1, 8).select(
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
        (number % 4 != 0).alias("flagseen"),
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
    """A version-1 UUID that follows from the number."""
    digits = sf.md5(sf.concat(sf.lit(kind), number.cast("string")))
    parts = ((1, 8, ""), (9, 4, ""), (14, 3, "1"), (18, 3, "8"), (21, 12, ""))
    return sf.concat_ws(
        "-", *(sf.concat(sf.lit(lead), sf.substring(digits, start, length)) for start, length, lead in parts)
    )
