"""From truth rows and the rows of groups to suspects: counters, numbers, bounds and sets, in Spark.

What truth rows demand of a group is added up by the group's key, and then compared with the group's
row: the same as `together` and `lacking` of each kind of group, which the local engine calls.
"""

from collections.abc import Iterable
from functools import reduce
from operator import and_

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from mailmend.model.projections.conditions import RowCondition
from mailmend.model.projections.family import Counts, Family, Union
from mailmend.model.projections.group import Group
from mailmend.model.projections.valued import Bound, Bounds, Numbers
from mailmend.spark_repair.suspects import (
    RowBits,
    agrees,
    bit,
    cell_of,
    demanding,
    key_of_truth,
    keys_as_in_truth,
    no_keys,
    suspects_of,
    verdict_column,
)

_FOUND = "group found"
_ELEMENT = "element demanded"
_ONE_KEY = "one key"
_TRUTH_KEYS = "truth keys"
_VERDICT = "verdict on group"


def _sure(name: str) -> str:
    """A name that no column of a server has, as all names here: it has a blank."""
    return f"sure {name}"


def _open(name: str) -> str:
    return f"open {name}"


def _held(name: str) -> str:
    return f"held {name}"


def groups_of(family: Family) -> tuple[Group, ...]:
    """The groups of a family that a scan compares."""
    return (*family.counts, *family.unions, *family.numbers, *family.bounds)


def group_suspects(family: Family, group: Group, truth: DataFrame, rows: DataFrame) -> DataFrame:
    """The groups whose row lacks what truth rows demand of it.

    Args:
        family: the declarations of one truth.
        group: a group of the family.
        truth: the compact truth (`truth_frame`), with the bit of lost contents.
        rows: the rows of the group's table.
    """
    match group:
        case Counts():
            return _counts_suspects(family, group, truth, rows)
        case Numbers():
            return _numbers_suspects(family, group, truth, rows)
        case Bounds():
            return _bounds_suspects(group, truth, rows)
        case Union():
            return _union_suspects(family, group, truth, rows)
        case _:
            raise NotImplementedError(type(group).__name__)


def _counts_suspects(family: Family, counts: Counts, truth: DataFrame, rows: DataFrame) -> DataFrame:
    """Groups whose counters are wrong, whether or not the doubtful truth rows are counted."""
    layout = RowBits(family)
    doubtful = bit(layout.torn) | bit(layout.lost)
    sums = []
    wanted = []
    within = []
    for counter, when in counts.counters:
        one = _counted(layout, when)
        sums.append(sf.sum(sf.when(doubtful, sf.lit(0)).otherwise(one)).alias(_sure(counter)))
        sums.append(sf.sum(sf.when(doubtful, one).otherwise(sf.lit(0))).alias(_open(counter)))
        least = _number(_sure(counter))
        value = _number(_held(counter))
        within.append((least <= value) & (value <= least + _number(_open(counter))))
        wanted.append(least.alias(counter))
    groups = _with_rows(counts, _added_up(counts, truth, sums), rows, "full_outer")
    return _judged(counts, groups, reduce(and_, within), no_keys(), sf.to_json(sf.struct(*wanted)))


def _numbers_suspects(family: Family, numbers: Numbers, truth: DataFrame, rows: DataFrame) -> DataFrame:
    """Groups with a number that differs from the number of truth rows, doubtful ones too."""
    layout = RowBits(family)
    sums = []
    wanted = []
    equal = []
    for name, when in numbers.counters:
        sums.append(sf.sum(_counted(layout, when)).alias(_sure(name)))
        number = _number(_sure(name))
        equal.append(number == _number(_held(name)))
        wanted.append(number.alias(name))
    groups = _with_rows(numbers, _added_up(numbers, truth, sums), rows, "full_outer")
    return _judged(numbers, groups, reduce(and_, equal), no_keys(), sf.to_json(sf.struct(*wanted)))


def _bounds_suspects(bounds: Bounds, truth: DataFrame, rows: DataFrame) -> DataFrame:
    """Groups with a value that is behind a truth row; null in a truth row demands nothing."""
    farthest = []
    reached = []
    for name, source in bounds.bounds:
        asked = cell_of(_sure(name))
        value = cell_of(_held(name))
        if bounds.bound is Bound.MAX:
            farthest.append(sf.max(cell_of(source)).alias(_sure(name)))
            reached.append(sf.coalesce(value >= asked, asked.isNull()))
        else:
            farthest.append(sf.min(cell_of(source)).alias(_sure(name)))
            reached.append(sf.coalesce(value <= asked, asked.isNull()))
    groups = _with_rows(bounds, _added_up(bounds, truth, farthest), rows, "left")
    return _judged(bounds, groups, reduce(and_, reached), no_keys())


def _union_suspects(family: Family, union: Union, truth: DataFrame, rows: DataFrame) -> DataFrame:
    """Groups whose set lacks an element of some truth row; one truth key for each missing element."""
    names = list(union.key_sources)
    carried = demanding(union, truth).select(
        *map(cell_of, names),
        sf.explode(cell_of(union.column)).alias(_ELEMENT),
        key_of_truth(family).alias(_ONE_KEY),
    )
    demanded = carried.groupBy(*names, _ELEMENT).agg(sf.min(_ONE_KEY).alias(_ONE_KEY))
    elements = sf.explode(cell_of(union.column)).alias(_ELEMENT)
    stored = rows.select(*keys_as_in_truth(union), elements)
    lacking = demanded.join(stored, [*names, _ELEMENT], "left_anti")
    missing = lacking.groupBy(*names).agg(
        sf.sort_array(sf.collect_set(_ELEMENT)).alias(_ELEMENT),
        sf.sort_array(sf.collect_set(_ONE_KEY)).alias(_TRUTH_KEYS),
    )
    groups = _with_rows(union, missing, rows, "left")
    wanted = sf.to_json(sf.struct(cell_of(_ELEMENT).alias(union.column)))
    return _judged(union, groups, _no(), cell_of(_TRUTH_KEYS), wanted)


def _counted(layout: RowBits, when: RowCondition | None) -> Expression:
    """What a truth row adds: 1 where the condition holds, else 0."""
    if when is None:
        return sf.lit(1).cast("long")
    return bit(layout.holds(when)).cast("long")


def _number(name: str) -> Expression:
    """A number of which null is 0."""
    return sf.coalesce(cell_of(name).cast("long"), sf.lit(0).cast("long"))


def _no() -> Expression:
    return sf.lit(False)  # noqa: FBT003 - a literal of SQL


def _added_up(group: Group, truth: DataFrame, demands: Iterable[Expression]) -> DataFrame:
    """What truth rows demand of each group, by the group's key."""
    return demanding(group, truth).groupBy(*group.key_sources).agg(*demands)


def _with_rows(group: Group, demanded: DataFrame, rows: DataFrame, how: str) -> DataFrame:
    """What is demanded of groups, next to what their rows hold.

    Args:
        group: the kind of both.
        demanded: a row for each group of which truth rows demand something.
        rows: the rows of the group's table.
        how: `left` leaves out groups that no truth row demands, `full_outer` keeps them.
    """
    held = [cell_of(name).alias(_held(name)) for name in sorted(group.own_columns)]
    found = sf.lit(True).alias(_FOUND)  # noqa: FBT003 - a literal of SQL
    stored = rows.select(*keys_as_in_truth(group), *held, found)
    return demanded.join(stored, list(group.key_sources), how)


def _judged(
    group: Group,
    groups: DataFrame,
    covered: Expression,
    truth_keys: Expression,
    wanted: Expression | None = None,
) -> DataFrame:
    symptoms = {"in_projection": cell_of(_FOUND).isNotNull(), "covered": covered}
    judged = groups.withColumn(_VERDICT, verdict_column(Group.verdicts, symptoms))
    wrong = judged.where(~agrees(_VERDICT))
    return suspects_of(wrong, group, cell_of(_VERDICT), truth_keys, wanted)
