"""The statements of CQL, one class for each kind; a new kind is one class more, its grammar and its rendering."""

from mailmend.cql.statements.base import Drop, Effect, NamedStatement, Parsed, Span, Statement, apply_all
from mailmend.cql.statements.columns import AddColumns, DropColumns, MaskColumn, RenameColumns
from mailmend.cql.statements.data import Batch, Other, Truncate, WriteRows
from mailmend.cql.statements.indexes import CreateIndex, CreateView, DropIndex, DropView
from mailmend.cql.statements.keyspaces import (
    AddField,
    AlterKeyspace,
    CreateKeyspace,
    CreateType,
    DropKeyspace,
    DropType,
    RenameFields,
    Use,
)
from mailmend.cql.statements.tables import (
    CreateTable,
    DropCompactStorage,
    DropTable,
    SetOptions,
    SetViewOptions,
)
from mailmend.cql.statements.write_rules import WriteKind
from mailmend.model.names import Name

__all__ = [
    "AddColumns",
    "AddField",
    "AlterKeyspace",
    "Batch",
    "CreateIndex",
    "CreateKeyspace",
    "CreateTable",
    "CreateType",
    "CreateView",
    "Drop",
    "DropColumns",
    "DropCompactStorage",
    "DropIndex",
    "DropKeyspace",
    "DropTable",
    "DropType",
    "DropView",
    "Effect",
    "MaskColumn",
    "Name",
    "NamedStatement",
    "Other",
    "Parsed",
    "RenameColumns",
    "RenameFields",
    "SetOptions",
    "SetViewOptions",
    "Span",
    "Statement",
    "Truncate",
    "Use",
    "WriteKind",
    "WriteRows",
    "apply_all",
]
