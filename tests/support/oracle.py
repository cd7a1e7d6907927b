"""What a check must find, worked out the slow and simple way: every row in dictionaries, every key judged by itself.

It shares nothing with the engines but the declarations and the second look's own judgement, so an
engine that joins, fingerprints and sums in its own clever way is held to it, suspect by suspect.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from mailmend.model.operations import Seen
from mailmend.model.projections.content import Content
from mailmend.model.projections.family import Counts, Family, Union
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.look import Look
from mailmend.model.projections.projection import Projection
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row

Rows = Mapping[str, Sequence[Row]]
"""The rows of each table, by the table's spelling."""


def expected_suspects(family: Family, rows: Rows, *, accept_torn: bool = False) -> Iterator[Suspect]:
    truths = rows.get(family.truth.spelling, ())
    contents = (
        {family.content.table.key_of(row) for row in rows.get(family.content.name, ())} if family.content else None
    )
    for projection in family.projections:
        projected = {projection.table.key_of(row): row for row in rows.get(projection.name, ())}
        claims: dict[Key, list[Row]] = {key: [] for key in projected}
        for truth in truths:
            key = projection.key_of(truth)
            if None not in key and (len(projection.table.partition) > 1 or key[0] not in {"", b""}):
                claims.setdefault(key, []).append(truth)
        for key, claiming in claims.items():
            yield from _judged(family, projection, key, claiming, projected.get(key), contents, accept_torn=accept_torn)


def _judged(  # noqa: PLR0917 - in the order in which they are found
    family: Family,
    projection: Projection,
    key: Key,
    truths: Sequence[Row],
    projected: Row | None,
    contents: set[Key] | None,
    *,
    accept_torn: bool,
) -> Iterator[Suspect]:
    doubtful = [row for row in truths if not _shown(family, row, contents, accept_torn=accept_torn)]
    counted = [row for row in truths if row not in doubtful] if isinstance(projection, Counts) else truths
    one = truths[:1]
    look = Look(
        Suspect(projection.name, key, Verdict.AMEND),
        family.mirror,
        family.content,
        projection,
        truths=tuple(map(Seen, counted)),
        projected=None if projected is None else Seen(projected),
        has_content=all(_has_content(family, row, contents) for row in one),
        whole=all(accept_torn or family.mirror.whole(row) for row in one),
        uncertain=tuple(map(Seen, doubtful)),
    )
    if (verdict := look.verdict) is not Verdict.AGREE:
        yield _suspect(family, projection, key, verdict, counted, projected or {})


def _has_content(family: Family, truth: Row, contents: set[Key] | None) -> bool:
    if contents is None or family.content is None:
        return True
    key = family.content.key_of(truth)
    return None in key or key in contents


def _shown(family: Family, truth: Row, contents: set[Key] | None, *, accept_torn: bool) -> bool:
    return _has_content(family, truth, contents) and (accept_torn or family.mirror.whole(truth))


def _suspect(  # noqa: PLR0917 - in the order in which they are found
    family: Family, projection: Projection, key: Key, verdict: Verdict, truths: Sequence[Row], projected: Row
) -> Suspect:
    match projection:
        case Counts(counters=counters):
            sums = {name: sum(projection.deltas_of(row)[name] for row in truths) for name, _ in counters}
            return Suspect(projection.name, key, verdict, (), sums)
        case Content():
            return Suspect(projection.name, key, verdict)
        case Union(column=column):
            missing = {element for row in truths for element in row.get(column) or ()} - set(
                projected.get(column) or ()
            )
            first = [_keys(family, [row for row in truths if one in (row.get(column) or ())])[0] for one in missing]
            return Suspect(projection.name, key, verdict, tuple(sorted(set(first))), {column: frozenset(missing)})
        case _:
            return Suspect(projection.name, key, verdict, _keys(family, truths))


def _keys(family: Family, truths: Iterable[Row]) -> tuple[Key, ...]:
    return tuple(sorted({family.truth.partition_of(row) for row in truths}))
