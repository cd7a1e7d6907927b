"""Declared projections bound to a live schema: a family for each mirror, or what does not fit."""

from dataclasses import dataclass

from mailmend.model.errors import SchemaMismatch, WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.projections.declarations import Declaration, DeclaredMirror, DeclaredTruth
from mailmend.model.projections.family import Family
from mailmend.model.table import Column, Kind, Table
from mailmend.repair.declared_binding import Binder
from mailmend.repair.declared_conditions import Misfit


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


def proposed_mirror(live: Schema, truth: str, projection: str) -> Declaration:
    """The declaration of a mirror whose columns have the names of the truth's.

    Columns that only the projection has are left out, and static columns.

    Raises:
        WrongUse: a name is not a name of CQL.
    """
    left_out = []
    source = live.table(truth)
    copy = live.table(projection)
    if source is not None and copy is not None:
        for column in copy.regular:
            if not _is_comparable(column, source):
                left_out.append(column.spelling)
    mirror = DeclaredMirror(projection, left_out=tuple(left_out))
    return Declaration((DeclaredTruth(truth, (mirror,)),))


def _is_comparable(column: Column, truth: Table) -> bool:
    if column.name not in truth or column.kind is Kind.STATIC:
        return False
    return truth.column(column.name).kind is not Kind.STATIC
