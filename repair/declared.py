"""Declared projections bound to a live schema: a family for each mirror, or what does not fit."""

from dataclasses import dataclass

from mailmend.model.errors import SchemaMismatch, WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.projections.declarations import (
    Declaration,
    DeclaredExplode,
    DeclaredMirror,
    DeclaredTruth,
    DeclaredView,
)
from mailmend.model.projections.family import Family
from mailmend.model.table import Column, Kind, Table
from mailmend.repair.declared_binding import Binder
from mailmend.repair.declared_conditions import Misfit
from mailmend.repair.declared_elements import has_elements


class DoesNotFit(SchemaMismatch):
    """A declaration that names what the keyspace does not have, or what cannot be compared."""

    def __init__(self, keyspace: str, misfits: tuple[Misfit, ...]) -> None:
        problems = "\n".join(map(str, misfits))
        what = f"the declaration does not fit keyspace {keyspace!r}:\n{problems}"
        WrongUse.__init__(self, what)
        self.keyspace = keyspace
        self.missing = tuple(misfit.problem for misfit in misfits)
        self.misfits = misfits


@dataclass(frozen=True, slots=True)
class BoundDeclaration:
    """The families of a declaration, and what of it does not fit."""

    families: tuple[Family, ...]
    misfits: tuple[Misfit, ...]


def declared_families(keyspace: str, declaration: Declaration, live: Schema) -> tuple[Family, ...]:
    """One family for each mirror, in the order of the declaration.

    Raises:
        DoesNotFit: it names what the keyspace lacks, or what cannot be compared.
    """
    found = bound_declaration(declaration, live)
    if found.misfits:
        raise DoesNotFit(keyspace, found.misfits)
    return found.families


def bound_declaration(declaration: Declaration, live: Schema) -> BoundDeclaration:
    binder = Binder(live)
    families: list[Family] = []
    for truth in declaration.truths:
        families.extend(binder.families(truth))
    return BoundDeclaration(tuple(families), tuple(binder.misfits.found))


def proposed_pair(live: Schema, truth: str, projection: str) -> Declaration:
    """The declaration of a table whose columns have the names of the truth's.

    It is a mirror, or a row for each element where one key column is named like a collection.
    Columns that only the projection has are left out, and static columns.

    Raises:
        WrongUse: a name is not a name of CQL.
    """
    if live.view(projection) is not None:
        return Declaration((DeclaredTruth(truth, views=(DeclaredView(projection),)),))
    source = live.table(truth)
    copy = live.table(projection)
    if source is None or copy is None:
        return Declaration((DeclaredTruth(truth, (DeclaredMirror(projection),)),))
    left_out = []
    for column in copy.regular:
        if not _is_comparable(column, source):
            left_out.append(column.spelling)
    found = _elements_in_key(source, copy)
    if found is None:
        mirror = DeclaredMirror(projection, left_out=tuple(left_out))
        return Declaration((DeclaredTruth(truth, (mirror,)),))
    collection, element = found
    exploded = DeclaredExplode(
        projection,
        left_out=tuple(left_out),
        column=collection.spelling,
        element=element.spelling,
    )
    return Declaration((DeclaredTruth(truth, explodes=(exploded,)),))


def _elements_in_key(truth: Table, copy: Table) -> tuple[Column, Column] | None:
    """A collection of the truth, and the key column of that name, which holds its elements."""
    for element in copy.key:
        if element.name in truth:
            continue
        for collection in truth.regular:
            if has_elements(collection, element):
                return collection, element
    return None


def _is_comparable(column: Column, truth: Table) -> bool:
    if column.name not in truth or column.kind is Kind.STATIC:
        return False
    return truth.column(column.name).kind is not Kind.STATIC
