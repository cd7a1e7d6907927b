"""From tables to suspects: the native half of a check, as functions from DataFrames to DataFrames.

Only what a verdict needs leaves a scan: the key, a few bits, and a fingerprint of the compared
columns in canonical form. The fingerprint is two 64-bit hashes under different seeds: one alone
would hide a drift in some table of a billion rows every now and then, both together do not in any
that will ever be kept.

Three aggregations decide everything: by content (what is lost, what leaks), by place (the mirror
and every filter at once) and by group (`spark_repair.groups`). Suspects have one shape, whatever
they are of.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any
from uuid import UUID

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from mailmend.model.projections.conditions import (
    Condition,
    Either,
    Every,
    IsNull,
    Not,
    OneOf,
    RowCondition,
    StartsWith,
)
from mailmend.model.projections.content import Content
from mailmend.model.projections.family import Family, Filter
from mailmend.model.projections.partial_mirror import ExplodedMirror, PartialMirror
from mailmend.model.projections.places import may_be_undemanded
from mailmend.model.projections.projection import Mirror, Projection
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Column, OtherColumn, names_of
from mailmend.model.values import CellConstant
from mailmend.spark_repair.comparable import key_texts, plain_form
from mailmend.spark_repair.source import SHUFFLE_PARTS
from mailmend.spark_repair.transforms import rendered_each

# Columns of the keys of tables are next to these: no plain name of CQL has a blank.
ONE = "fingerprint one"
TWO = "fingerprint two"
BITS = "bits of row"
TRUTHS = "number of truths"
_TRUTH_KEY = "truth key"
_TRUTH_KEYS = "truth keys"
_JUDGED = "verdict on content"
_FOUND = "content found"
_SEEDS = (1, 2)


def canonical(column: Column, sources: Mapping[str, str]) -> Expression:
    """The cell in the form in which it is compared; must equal `model.table.canonical_value`.

    Args:
        column: the compared column.
        sources: the frame's own name for each column of the row that is compared.
    """
    cell = cell_of(sources[column.name])
    if column.is_set:
        return sf.sort_array(sf.coalesce(cell, sf.array().cast(f"array<{_element(column)}>")))
    form = plain_form(cell, column.type)
    match column.null_is:
        case None:
            return form
        case OtherColumn(other):
            return sf.coalesce(form, plain_form(cell_of(sources[other]), column.type))
        case constant:
            return sf.coalesce(form, plain_form(sf.lit(_constant(constant)), column.type))


def _element(column: Column) -> str:
    return {"text": "string", "int": "int", "bigint": "bigint"}.get(column.type[4:-1], "string")


def fingerprints(columns: Sequence[Column], sources: Mapping[str, str]) -> tuple[Expression, Expression]:
    """Two hashes of the compared columns, equal for equal rows.

    Spark's hash passes over nulls and runs the elements of arrays together, so which cells are null and how long
    each set is are hashed first; the flags travel as bits of the same number.
    """
    flags = []
    sizes = []
    plain = []
    for column in columns:
        form = canonical(column, sources)
        if isinstance(column.null_is, bool):
            flags.append(form)
        else:
            plain.append(form)
        if column.type.startswith("set<"):
            sizes.append(sf.size(form))
    shape = bits_of([*flags, *(form.isNull() for form in plain)])
    cells = [shape, *sizes, *plain]
    first_seed, second_seed = _SEEDS
    return sf.xxhash64(sf.lit(first_seed), *cells), sf.xxhash64(sf.lit(second_seed), *cells)


def bits_of(expressions: Iterable[Expression]) -> Expression:
    """Booleans as one number, the first as the lowest bit; null counts as false."""
    total = sf.lit(0).cast("long")
    for place, expression in enumerate(expressions):
        total = total + sf.when(expression, sf.lit(1 << place)).otherwise(sf.lit(0)).cast("long")
    return total


def holding(condition: RowCondition) -> Expression:  # noqa: PLR0911 - one for each kind
    """Whether a condition holds, never null; must equal its `holds`. UUIDs are text here."""
    match condition:
        case Condition(column, value):
            return sf.coalesce(cell_of(column), _literal(value=False)) == value
        case OneOf(column, values):
            constants = [_constant(value) for value in values]
            return sf.coalesce(cell_of(column).isin(constants), _literal(value=False))
        case IsNull(column, value):
            return cell_of(column).isNull() == value
        case StartsWith(column, beginnings):
            starts = [cell_of(column).startswith(beginning) for beginning in beginnings]
            return sf.coalesce(reduce(or_, starts), _literal(value=False))
        case Not(part):
            return ~holding(part)
        case Every(parts):
            return reduce(and_, map(holding, parts), _literal(value=True))
        case Either(parts):
            return reduce(or_, map(holding, parts), _literal(value=False))
        case _:
            raise NotImplementedError(type(condition).__name__)


def _literal(*, value: bool) -> Expression:
    return sf.lit(value)


def _constant(value: CellConstant) -> bool | int | str:
    if isinstance(value, UUID):
        return str(value)
    return value


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

    def holds(self, condition: RowCondition) -> int:
        return 2 + self.family.conditions.index(condition)

    def present(self, projection: Mirror | Filter) -> int:
        return 2 + len(self.family.conditions) + self._placed.index(projection)

    @property
    def says(self) -> int:
        """The bit of a place of which a truth row says what the mirror's row is."""
        return 2 + len(self.family.conditions) + len(self._placed)

    @property
    def differ(self) -> int:
        """The bit of a place of which two truth rows say something different."""
        return self.says + 1

    @property
    def _placed(self) -> tuple[Mirror | Filter, ...]:
        return (self.family.mirror, *self.family.filters)


def bit(place: int) -> Expression:
    return sf.col(BITS).bitwiseAND(sf.lit(1 << place)) != 0


def _sources(mirror: Mirror) -> dict[str, str]:
    theirs = mirror.truth_names
    names = names_of((*mirror.table.key, *mirror.compared))
    return {name: theirs.get(name, name) for name in names}


def unnested(mirror: Mirror, rows: DataFrame) -> DataFrame:
    """The rows that truth rows stand for; must equal `Mirror.unnested`."""
    if isinstance(mirror, PartialMirror):
        rows = rows.where(holding(mirror.only))
    if not isinstance(mirror, ExplodedMirror):
        return rows
    names = [name for name, _ in mirror.element_cells]
    others = [cell_of(name) for name in rows.columns if name not in names]
    collection = cell_of(mirror.collection)
    cells = [rendered_each(rule, collection).alias(name) for name, rule in mirror.element_cells]
    elements = sf.array_distinct(sf.arrays_zip(*map(cell_of, names)))
    return rows.select(*others, *cells).select(*others, sf.inline(elements))


def truth_frame(family: Family, rows: DataFrame, *, accept_torn: bool) -> DataFrame:
    """The compact truth: columns of keys, sets for unions, values for bounds, bits and fingerprint."""
    mirror = family.mirror
    rows = unnested(mirror, rows)
    kept = {*family.truth.partition_names, *(union.column for union in family.unions)}
    for bounds in family.bounds:
        kept.update(source for _, source in bounds.bounds)
    for projection in family.projections:
        kept.update(projection.key_sources)
    for numbering in family.numberings:
        kept.update(numbering.columns)
    torn = sf.lit(False)  # noqa: FBT003 - a literal of SQL
    if not accept_torn:
        torn = _lacks(mirror.required)
    held = [holding(when) for when in family.conditions]
    one, two = fingerprints(mirror.compared, _sources(mirror))
    if mirror.needs:
        says = ~_lacks(mirror.needs)
        one = sf.when(says, one)
        two = sf.when(says, two)
    return rows.select(
        *(cell_of(name) for name in family.truth.names if name in kept and name in rows.columns),
        bits_of([torn, sf.lit(False), *held]).alias(BITS),  # noqa: FBT003
        one.alias(ONE),
        two.alias(TWO),
    )


def _lacks(names: Iterable[str]) -> Expression:
    lacking = sf.lit(False)  # noqa: FBT003 - a literal of SQL
    for name in names:
        lacking = lacking | cell_of(name).isNull()
    return lacking


def placed_frame(family: Family, projection: Mirror | Filter, rows: DataFrame) -> DataFrame:
    """The compact rows of a projection that has one at each place: key, bit, and a fingerprint of what is compared."""
    layout = RowBits(family)
    compared = projection.compared
    one = sf.lit(0).cast("long")
    two = one
    if compared is not None:
        names = names_of((*projection.table.key, *compared))
        one, two = fingerprints(compared, {name: name for name in names})
    return rows.select(
        *keys_as_in_truth(projection),
        sf.lit(0).alias(TRUTHS),
        sf.lit(1 << layout.present(projection)).cast("long").alias(BITS),
        one.alias(ONE),
        two.alias(TWO),
    )


PROJECTION = "projection"
VERDICT = "verdict"
KEY = "key"
TRUTH_KEYS = "truth_keys"
WANTED = "wanted"
_IN_TRUTH = 0
_IN_CONTENT = 1


def contents(content: Content, truth: DataFrame, rows: DataFrame) -> DataFrame:
    """Contents without a truth (leaks) or a truth without contents (lost): one row each, with the two bits."""
    names = list(content.key_sources)
    needing = demanding(content, truth)
    claimed = needing.select(*map(cell_of, names), sf.lit(1 << _IN_TRUTH).alias(BITS))
    stored = rows.select(*keys_as_in_truth(content), sf.lit(1 << _IN_CONTENT).alias(BITS))
    sides = together(claimed.unionByName(stored), names).groupBy(*names).agg(sf.bit_or(BITS).alias(BITS))
    return sides.where(cell_of(BITS) != sf.lit(3))


def demanding(projection: Projection, truth: DataFrame) -> DataFrame:
    """The truth rows that demand a row of the projection; must equal `Projection.is_demanded_by`."""
    if not may_be_undemanded(projection):
        return truth
    named = set(projection.key_sources)
    demanded = truth
    for name in projection.truth.names:
        if name in named:
            demanded = demanded.where(cell_of(name).isNotNull())
    lone = projection.table.lone_partition
    if lone is not None:
        demanded = demanded.where(sf.length(cell_of(dict(projection.key)[lone])) > 0)
    return demanded


def keys_as_in_truth(projection: Projection) -> list[Expression]:
    """The columns of a projection's key, under the names of the truth's columns, in the key's order."""
    return [cell_of(ours).alias(theirs) for ours, theirs in projection.key]


def together(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """Rows of one key moved into one part, before they are aggregated.

    Keys are nearly unique within each scan: aggregating there first, as Spark would, only builds one more hash table.
    """
    return rows.repartition(shuffle_parts(rows), *map(cell_of, names))


def shuffle_parts(rows: DataFrame) -> int:
    return int(rows.sparkSession.conf.get(SHUFFLE_PARTS) or "1")


def content_suspects(content: Content, alone: DataFrame) -> DataFrame:
    symptoms = {"in_truth": bit(_IN_TRUTH), "in_projection": bit(_IN_CONTENT)}
    judged = alone.withColumn(_JUDGED, verdict_column(Content.verdicts, symptoms))
    return suspects_of(judged.where(~agrees(_JUDGED)), content, cell_of(_JUDGED), no_keys())


def lost(alone: DataFrame) -> DataFrame:
    """The contents that a truth row needs and that are missing."""
    return alone.where(~bit(_IN_CONTENT))


def mark_lost(family: Family, truth: DataFrame, lost: DataFrame) -> DataFrame:
    """The truth with the bit set on each row whose content is lost."""
    assert family.content is not None
    names = list(family.content.key_sources)
    found = lost.select(*map(cell_of, names), sf.lit(True).alias(_FOUND))  # noqa: FBT003 - a literal of SQL
    marked = cell_of(BITS).bitwiseOR(sf.when(cell_of(_FOUND), sf.lit(1 << RowBits(family).lost)).otherwise(sf.lit(0)))
    return truth.join(found, names, "left").withColumn(BITS, marked).drop(_FOUND)


def place_of(projection: Mirror | Filter, family: Family) -> tuple[str, ...]:
    """The truth's columns that name a place of the projection, in the truth's own order."""
    theirs = set(projection.key_sources)
    return tuple(name for name in family.truth.names if name in theirs)


def places(
    projections: Sequence[Mirror | Filter], family: Family, truth: DataFrame, projected: Sequence[DataFrame]
) -> DataFrame:
    """What is known of each place: one row, from one aggregation of truth and projections together."""
    first, *_ = projections
    place = place_of(first, family)
    claims = demanding(first, truth).select(*map(cell_of, place), sf.lit(1).alias(TRUTHS), BITS, ONE, TWO)
    if family.mirror in projections and family.mirror.claims.are_compared:
        claims = _compared(family, claims, place)
    sides = together(reduce(DataFrame.unionByName, projected, claims), place)
    return sides.groupBy(*place).agg(
        sf.sum(TRUTHS).alias(TRUTHS),
        sf.bit_or(BITS).alias(BITS),
        sf.bit_xor(ONE).alias(ONE),
        sf.bit_xor(TWO).alias(TWO),
    )


def _compared(family: Family, claims: DataFrame, place: Sequence[str]) -> DataFrame:
    """One claim for each place; must equal what `repair.joins.parts.PlaceRows` says of it."""
    layout = RowBits(family)
    one = sf.min(ONE)
    two = sf.min(TWO)
    differ = (one != sf.max(ONE)) | (two != sf.max(TWO))
    says = sf.when(one.isNotNull(), sf.lit(1 << layout.says)).otherwise(sf.lit(0))
    differs = sf.when(differ, sf.lit(1 << layout.differ)).otherwise(sf.lit(0))
    bits = sf.bit_or(BITS).bitwiseOR(says).bitwiseOR(differs)
    by_place = together(claims, place).groupBy(*place)
    return by_place.agg(
        sf.sum(TRUTHS).alias(TRUTHS),
        bits.alias(BITS),
        one.alias(ONE),
        two.alias(TWO),
    )


def place_suspects(family: Family, projections: Sequence[Mirror | Filter], known: DataFrame) -> DataFrame:
    """The places where some projection does not agree, with one verdict column per projection."""
    layout = RowBits(family)
    judged = known
    differ = []
    for projection in projections:
        judged = judged.withColumn(_verdict_of(projection), _place_verdict(layout, projection))
        differ.append(~agrees(_verdict_of(projection)))
    return judged.where(reduce(or_, differ)).drop(TRUTHS, BITS, ONE, TWO)


def mirror_only(family: Family, wrong: DataFrame) -> DataFrame:
    """The suspect places that the mirror has and no truth, by their key alone."""
    place = place_of(family.mirror, family)
    without_truth = cell_of(_verdict_of(family.mirror)) == Verdict.WITHDRAW.value
    return wrong.where(without_truth).select(*map(cell_of, place))


def _place_verdict(layout: RowBits, projection: Mirror | Filter) -> Expression:
    wanted = sf.lit(True)  # noqa: FBT003 - a literal of SQL
    if projection.when is not None:
        wanted = bit(layout.holds(projection.when))
    symptoms = {
        "in_truth": cell_of(TRUTHS) > 0,
        "clash": cell_of(TRUTHS) > 1,
        "in_projection": bit(layout.present(projection)),
        "has_content": ~bit(layout.lost),
        "whole": ~bit(layout.torn),
        "rows_agree": (cell_of(ONE) == 0) & (cell_of(TWO) == 0),
        "wanted": wanted,
        "says": _literal(value=True),
    }
    if isinstance(projection, Mirror) and projection.claims.are_compared:
        symptoms |= {"clash": bit(layout.differ), "says": bit(layout.says)}
    return verdict_column(projection.verdicts, symptoms)


def _verdict_of(projection: Projection) -> str:
    return f"verdict on {projection.name}"


def agrees(column: str) -> Expression:
    return cell_of(column) == Verdict.AGREE.value


def without_truth_keys(wrong: DataFrame) -> DataFrame:
    """Suspect places without the keys of truth rows, which are not asked for."""
    return wrong.withColumn(_TRUTH_KEYS, no_keys())


def with_truth_keys(
    family: Family, projections: Sequence[Mirror | Filter], wrong: DataFrame, truth: DataFrame
) -> DataFrame:
    """Suspect places with the partition keys of every truth row that claims them."""
    place = place_of(projections[0], family)
    claims = truth.select(*map(cell_of, place), key_of_truth(family).alias(_TRUTH_KEY))
    here = wrong.select(*map(cell_of, place))
    known = sf.sort_array(sf.collect_set(_TRUTH_KEY)).alias(_TRUTH_KEYS)
    keys = claims.join(here, list(place)).groupBy(*place).agg(known)
    found = sf.coalesce(cell_of(_TRUTH_KEYS), no_keys())
    return wrong.join(keys, list(place), "left").withColumn(_TRUTH_KEYS, found)


def no_keys() -> Expression:
    return sf.array().cast("array<array<string>>")


def key_of_truth(family: Family) -> Expression:
    return key_texts((column.name, column) for column in family.truth.partition)


def spread(projections: Sequence[Mirror | Filter], wrong: DataFrame) -> DataFrame:
    """One suspect for each projection that does not agree at a place."""
    each = sf.array(*map(_suspect_of, projections))
    nothing = sf.lit(None).cast("string").alias(WANTED)
    found = wrong.select(sf.inline(each), cell_of(_TRUTH_KEYS).alias(TRUTH_KEYS), nothing)
    return found.where(~agrees(VERDICT))


def _suspect_of(projection: Mirror | Filter) -> Expression:
    verdict = cell_of(_verdict_of(projection)).alias(VERDICT)
    return sf.struct(sf.lit(projection.name).alias(PROJECTION), verdict, _key(projection).alias(KEY))


def _key(projection: Projection) -> Expression:
    theirs = dict(projection.key)
    return key_texts((theirs[column.name], column) for column in projection.table.key)


def suspects_of(
    rows: DataFrame, projection: Projection, verdict: Expression, keys: Expression, wanted: Expression | None = None
) -> DataFrame:
    """Suspects in their common columns; keys are text, in the order of the projection's primary key."""
    if wanted is None:
        wanted = sf.lit(None).cast("string")
    return rows.select(
        sf.lit(projection.name).alias(PROJECTION),
        verdict.alias(VERDICT),
        _key(projection).alias(KEY),
        keys.alias(TRUTH_KEYS),
        wanted.alias(WANTED),
    )


def verdict_column(verdicts: Mapping[Any, Verdict], symptoms: Mapping[str, Expression]) -> Expression:
    """The name of the verdict on a row.

    Args:
        verdicts: the `verdicts` of a kind; its keys are NamedTuples, in the order of their bits.
        symptoms: a boolean column, never null, for each field of those keys at least.
    """
    fields = next(iter(verdicts))._fields
    names = sf.array(*(sf.lit(verdict.value) for verdict in verdicts.values()))
    return sf.get(names, bits_of([symptoms[field] for field in fields]))
