"""The statements of CQL, one class for each kind; a new kind is one class more, its grammar and its rendering."""

from model.schema.names import Name
from model.schema.statements.base import Drop, Effect, NamedStatement, Parsed, Span, Statement, apply_all
from model.schema.statements.columns import AddColumns, DropColumns, MaskColumn, RenameColumns
from model.schema.statements.data import Batch, Other, Truncate, WriteRows
from model.schema.statements.indexes import CreateIndex, DropIndex
from model.schema.statements.keyspaces import AlterKeyspace, CreateKeyspace, DropKeyspace, Use
from model.schema.statements.options import DropCompactStorage, SetOptions, SetViewOptions
from model.schema.statements.tables import CreateTable, DropTable
from model.schema.statements.user_types import AddField, CreateType, DropType, RenameFields
from model.schema.statements.views import CreateView, DropView
from model.schema.write_rules import WriteKind

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
