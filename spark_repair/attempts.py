"""Recorded attempts, replayed by Spark: each group of attempts that can influence each other by one task.

Implements `delivery.policy.replay_sums.AttemptRecord`. Executors sort the attempts by group and time, on disk where
they must, and a replay reads them as it goes: in memory are only those that wait at once.
"""

import json
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from mailmend.delivery.ledger.attempts import COLUMNS, AttemptsWanted
from mailmend.delivery.policy.policies import PickupPolicies
from mailmend.delivery.policy.policy import CounterPolicy, PickupField
from mailmend.delivery.policy.replay_sums import DelayedValue, ReplaySums
from mailmend.delivery.policy.replaying import RecordedAttempt, groups_of, sources_of, values_of
from mailmend.delivery.policy.sub_queues import ActiveMail
from mailmend.mailqueue.rules.slices import millis_of
from mailmend.model.catalog.ledger import DELIVERY_ATTEMPT
from mailmend.model.ports import Progress
from mailmend.model.table import Row
from mailmend.repair.log_fields import with_command_log
from mailmend.spark_repair.failures import translated
from mailmend.spark_repair.jvm import release
from mailmend.spark_repair.pace import throttled
from mailmend.spark_repair.progress import rows_read, watched
from mailmend.spark_repair.source import Source

_TIMES: Final = ("readyat", "startedat", "endedat")
_READY, _STARTED, _ENDED = _TIMES
_GROUP = "grouped"
_ID = "id"
_ORDER: Final = (_GROUP, _READY, _STARTED, _ID)
_SUMMED: Final = ("attempts", "delayed", "never", "later")
_TEXTS: Final = (("field", pa.string()), ("value", pa.string()))
_NUMBERS: Final = tuple((name, pa.int64()) for name in (*_SUMMED, "latest"))
_RESULT_SCHEMA: Final = pa.schema([("sums", pa.binary()), *_TEXTS, *_NUMBERS])
_RESULT: Final = "sums binary, field string, value string, " + ", ".join(f"{name} long" for name, _ in _NUMBERS)
_VALUES_AT_ONCE: Final = 10_000


@dataclass(slots=True)
class SparkAttempts:
    """The wanted attempts, kept by the executors. Implements `delivery.policy.replay_sums.AttemptRecord`."""

    source: Source
    kept: DataFrame
    attempts: int
    incomplete: int
    lasting: int | None

    def replay(self, said: PickupPolicies, top: int) -> ReplaySums:
        with translated(self.source.contact, self.source.keyspace):
            grouping = groups_of(said, several_sources=self._several_sources)
            sent = PickupPolicies(said.policies, said.algorithm, said.suspensions, weights=dict(said.weights))
            replayed = self._sorted(grouping).mapInArrow(
                with_command_log(partial(_replayed, said=sent, lasting=self.lasting or 0, top=top)), _RESULT
            )
            kept = replayed.persist(StorageLevel.DISK_ONLY)
            try:
                return _added(kept, top)
            finally:
                release(self.source.session, kept)

    def close(self) -> None:
        release(self.source.session, self.kept)

    @property
    def rows(self) -> DataFrame:
        return self.kept.where(_is_whole())

    @property
    def _several_sources(self) -> bool:
        addresses = sf.array_distinct(sf.from_json("sources", "array<string>"))
        return bool(self.rows.where(sf.size(addresses) > 1).take(1))

    def _sorted(self, grouping: CounterPolicy) -> DataFrame:
        """Each group within one task, all its attempts in their order."""
        rows = self.rows.withColumn(_GROUP, sf.lit(""))
        if not grouping.fields:
            return rows.coalesce(1).sortWithinPartitions(*_ORDER)
        grouped = rows.mapInArrow(with_command_log(partial(_grouped, grouping=grouping)), rows.schema)
        return grouped.repartition(_GROUP).sortWithinPartitions(*_ORDER)


def read_attempts(source: Source, wanted: AttemptsWanted, progress: Progress) -> SparkAttempts:
    """Read the whole table, of which the wanted rows are kept on the executors' disks."""
    progress.stage("read the attempts")
    looking = throttled(source.session, source.throttle)
    with translated(source.contact, source.keyspace), watched(rows_read(source.session), progress), looking:
        scanned = source.scan(DELIVERY_ATTEMPT, COLUMNS)
        source.size_shuffles([scanned])
        of_queue = scanned.where((sf.col("keyspacename") == wanted.keyspace) & (sf.col("queuename") == wanted.queue))
        rows = of_queue.select(
            sf.concat_ws(":", "firstmail", sf.col("number").cast("string"), "attempt").alias(_ID),
            "fields",
            "sources",
            "urgent",
            *(sf.unix_millis(name).alias(name) for name in _TIMES),
        ).where(_is_wanted(wanted))
        kept = rows.persist(StorageLevel.DISK_ONLY)
        lasted = sf.greatest(sf.col(_ENDED) - sf.col(_STARTED), sf.lit(0))
        (found,) = kept.select(
            sf.count(sf.when(_is_whole(), 1)).alias("attempts"),
            sf.count(sf.when(~_is_whole(), 1)).alias("incomplete"),
            sf.percentile(sf.when(_is_whole() & sf.col(_ENDED).isNotNull(), lasted), 0.5).alias("lasting"),
        ).collect()
        progress.stage("replay")
        lasting = found["lasting"]
        if lasting is not None:
            lasting = int(lasting)
        return SparkAttempts(source, kept, found["attempts"], found["incomplete"], lasting)


def _is_whole() -> Expression:
    return sf.col(_READY).isNotNull() & sf.col(_STARTED).isNotNull()


def _is_wanted(wanted: AttemptsWanted) -> Expression:
    """In the stretch of time, or of none that is known."""
    held = sf.lit(True)  # noqa: FBT003 - a literal of SQL
    if wanted.since:
        held &= sf.col(_READY) >= millis_of(wanted.since)
    if wanted.until:
        held &= sf.col(_READY) < millis_of(wanted.until)
    return held | ~_is_whole()


def _grouped(some: Iterable[pa.RecordBatch], *, grouping: CounterPolicy) -> Iterator[pa.RecordBatch]:
    """The rows, each with the name of its group."""
    for batch in some:
        names = []
        for fields in batch["fields"].to_pylist():
            names.append(json.dumps(grouping.key(values_of(fields))))
        yield batch.set_column(batch.schema.get_field_index(_GROUP), _GROUP, pa.array(names, pa.string()))


def _replayed(
    some: Iterable[pa.RecordBatch], *, said: PickupPolicies, lasting: int, top: int
) -> Iterator[pa.RecordBatch]:
    """What becomes of all groups of one task: a row of their sums, and one for each value of a field."""
    sums = ReplaySums()
    rows = chain.from_iterable(batch.to_pylist() for batch in some)
    for _, group in groupby(rows, key=itemgetter(_GROUP)):
        sums.replay(map(_attempt_of, group), said, lasting, top)
    values = sums.values
    sums.values = {}
    yield pa.RecordBatch.from_pylist([{"sums": pickle.dumps(sums)}], schema=_RESULT_SCHEMA)
    named = ({"field": field.value, "value": text, **asdict(found)} for (field, text), found in values.items())
    while part := list(islice(named, _VALUES_AT_ONCE)):
        yield pa.RecordBatch.from_pylist(part, schema=_RESULT_SCHEMA)


def _attempt_of(row: Row) -> RecordedAttempt:
    mail = ActiveMail(row[_ID], values_of(row["fields"]), sources_of(row["sources"]), bool(row["urgent"]))
    return RecordedAttempt(mail, row[_READY], row[_STARTED], row[_ENDED])


def _added(results: DataFrame, top: int) -> ReplaySums:
    """The sums of all tasks, with the most delayed values of each field alone."""
    found = ReplaySums()
    for row in results.where(sf.col("sums").isNotNull()).select("sums").collect():
        found.add(pickle.loads(row["sums"]), top)  # noqa: S301 - what our own tasks made
    sums = (sf.sum(name).alias(name) for name in _SUMMED)
    by_value = (
        results.where(sf.col("sums").isNull()).groupBy("field", "value").agg(*sums, sf.max("latest").alias("latest"))
    )
    place = sf.row_number().over(
        Window.partitionBy("field").orderBy(sf.desc("never"), sf.desc("later"), sf.desc("delayed"), "value")
    )
    for row in by_value.where("delayed > 0").withColumn("place", place).where(sf.col("place") <= top).collect():
        numbers = {name: row[name] for name in (*_SUMMED, "latest")}
        found.values[PickupField(row["field"]), row["value"]] = DelayedValue(**numbers)
    return found
