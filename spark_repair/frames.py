"""Compact DataFrames of a truth and its projections, generated from their declarations.

Only what a verdict needs leaves a scan: the key, a few bits, and a fingerprint of the compared columns in canonical
form. The fingerprint is two 64-bit hashes under different seeds: one alone would hide a drift in some table of a
billion rows every now and then, both together do not in any that will ever be kept.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from model.projections.family import Family
from model.projections.filters import Filter
from model.projections.mirror import Mirror
from model.projections.projection import Condition
from model.schema.table import Canonical, Column, Table

ONE, TWO, BITS, TRUTHS, TRUTH_ID = "fingerprint_one", "fingerprint_two", "bits", "truths", "truth_id"
_SEEDS = (1, 2)


def canonical(column: Column, sources: Mapping[str, str]) -> Expression:
    """The cell in the form in which it is compared; must equal `model.schema.table.canonical_value`.

    Args:
        column: the compared column.
        sources: the frame's own name for each column of the row that is compared.
    """
    cell = cell_of(sources[column.name])
    match column.canonical:
        case Canonical.PLAIN:
            return cell.cast("long") if column.type in ("int", "bigint", "smallint", "tinyint") else cell
        case Canonical.FLAG:
            return sf.coalesce(cell, sf.lit(False))  # noqa: FBT003 - a literal of SQL
        case Canonical.SET:
            return sf.sort_array(sf.coalesce(cell, sf.array().cast(f"array<{_element(column)}>")))
        case Canonical.NUMBER:
            return sf.coalesce(cell.cast("long"), sf.lit(0).cast("long"))
        case Canonical.THREAD:
            return sf.coalesce(cell, cell_of(sources["messageid"]))


def _element(column: Column) -> str:
    return {"text": "string", "int": "int", "bigint": "bigint"}.get(column.type[4:-1], "string")


def fingerprints(columns: Sequence[Column], sources: Mapping[str, str]) -> tuple[Expression, Expression]:
    """Two hashes of the compared columns, equal for equal rows.

    Spark's hash passes over nulls and runs the elements of arrays together, so which cells are null and how long
    each set is are hashed first; the flags travel as bits of the same number.
    """
    forms = {column.name: canonical(column, sources) for column in columns}
    flags = [forms[column.name] for column in columns if column.canonical is Canonical.FLAG]
    sets = [forms[column.name] for column in columns if column.canonical is Canonical.SET]
    plain = [forms[column.name] for column in columns if column.canonical is not Canonical.FLAG]
    shape = bits_of([*flags, *(form.isNull() for form in plain)])
    cells = [shape, *(sf.size(form) for form in sets), *plain]
    one, two = (sf.xxhash64(sf.lit(seed), *cells) for seed in _SEEDS)
    return one, two


def bits_of(expressions: Iterable[Expression]) -> Expression:
    """Booleans as one number, the first as the lowest bit; null counts as false."""
    total = sf.lit(0).cast("long")
    for place, expression in enumerate(expressions):
        total = total + sf.when(expression, sf.lit(1 << place)).otherwise(sf.lit(0)).cast("long")
    return total


def cell_of(name: str) -> Expression:
    """The column of exactly that name, dots included."""
    return sf.col(f"`{name}`")


@dataclass(frozen=True, slots=True)
class RowBits:
    """Which bit of a compact row tells what.

    The truth's rows bring the conditions that they satisfy, the projections' rows that they exist.
    """

    family: Family

    @property
    def torn(self) -> int:
        """The bit of a truth row that lacks what every insert writes."""
        return 0

    @property
    def lost(self) -> int:
        """The bit of a truth row whose content is missing."""
        return 1

    def holds(self, condition: Condition) -> int:
        return 2 + self.family.conditions.index(condition)

    def present(self, projection: Mirror | Filter) -> int:
        placed: tuple[Mirror | Filter, ...] = (self.family.mirror, *self.family.filters)
        return 2 + len(self.family.conditions) + placed.index(projection)


def bit(place: int) -> Expression:
    return sf.col(BITS).bitwiseAND(sf.lit(1 << place)) != 0


def columns_read(family: Family) -> dict[str, tuple[Table, tuple[str, ...]]]:
    """The tables that a check reads, by spelling, each with its columns in declared order."""
    read = {family.truth.spelling: (family.truth, family.truth_columns)}
    return read | {one.name: (one.table, one.read_columns) for one in family.projections}


def _sources(mirror: Mirror) -> dict[str, str]:
    theirs = mirror.truth_names
    return {column.name: theirs.get(column.name, column.name) for column in mirror.compared}


def truth_frame(family: Family, rows: DataFrame, *, accept_torn: bool) -> DataFrame:
    """The compact truth: the columns of keys, the sets for unions, bits and fingerprint."""
    mirror = family.mirror
    kept = {column.name for column in family.truth.partition} | {union.column for union in family.unions}
    kept |= {theirs for projection in family.projections for _, theirs in projection.key}
    torn = [sf.lit(False)] if accept_torn else [_lacks(mirror)]  # noqa: FBT003 - a literal of SQL
    held = [sf.coalesce(cell_of(when.column), sf.lit(False)) == when.value for when in family.conditions]  # noqa: FBT003
    one, two = fingerprints(mirror.compared, _sources(mirror))
    return rows.select(
        *(cell_of(name) for name in family.truth.names if name in kept),
        bits_of([*torn, sf.lit(False), *held]).alias(BITS),  # noqa: FBT003
        one.alias(ONE),
        two.alias(TWO),
    )


def _lacks(mirror: Mirror) -> Expression:
    lacking = sf.lit(False)  # noqa: FBT003 - a literal of SQL
    for name in mirror.required:
        lacking = lacking | cell_of(name).isNull()
    return lacking


def mirror_frame(family: Family, rows: DataFrame) -> DataFrame:
    """The compact mirror rows: key, bit and fingerprint."""
    mirror = family.mirror
    one, two = fingerprints(mirror.compared, {column.name: column.name for column in mirror.compared})
    return _placed(RowBits(family), mirror, rows, one, two)


def filter_frame(family: Family, filtered: Filter, rows: DataFrame) -> DataFrame:
    """A filter's compact rows: key and bit."""
    return _placed(RowBits(family), filtered, rows, sf.lit(0).cast("long"), sf.lit(0).cast("long"))


def _placed(
    layout: RowBits, projection: Mirror | Filter, rows: DataFrame, one: Expression, two: Expression
) -> DataFrame:
    return rows.select(
        *(cell_of(ours).alias(theirs) for ours, theirs in projection.key),
        sf.lit(0).alias(TRUTHS),
        sf.lit(1 << layout.present(projection)).cast("long").alias(BITS),
        one.alias(ONE),
        two.alias(TWO),
    )
