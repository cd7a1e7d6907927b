"""The table of verdicts as native Spark columns, generated from the kinds of projections.

The symptoms of a row are booleans; their bits, in the order of the fields, are an index into a literal array of
verdicts. `tests/equivalence` shows every combination equal in Python and Spark.
"""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as sf

from model.projections.verdicts import Verdict


def verdict_column(verdicts: Mapping[Any, Verdict], symptoms: Mapping[str, Column]) -> Column:
    """The name of the verdict on a row.

    Args:
        verdicts: the `verdicts` of a kind; its keys are NamedTuples, in the order of
        their bits.
        symptoms: a boolean column, never null, for each field of those keys.
    """
    fields = next(iter(verdicts))._fields
    names = sf.array(*(sf.lit(verdict.value) for verdict in verdicts.values()))
    return sf.get(names, _index([symptoms[field] for field in fields]))


def _index(bits: list[Column]) -> Column:
    """The bits as a number, the first one lowest."""
    total = sf.lit(0)
    for place, bit in enumerate(bits):
        total = total + sf.when(bit, sf.lit(1 << place)).otherwise(sf.lit(0))
    return total
