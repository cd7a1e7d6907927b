"""Which INSERT, UPDATE and DELETE a server accepts, as far as a text and a schema show. Pure.

Source: the answers of Cassandra 4.1 and 5.0, which a test compares with this module.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from mailmend.cql.statements.base import CellChange, CellOperator, Compared, LeftSide
from mailmend.cql.statements.json_values import json_problem
from mailmend.cql.statements.literals import LiteralForm, parse_literal, value_problem
from mailmend.cql.statements.type_rules import NATIVE_TYPES, is_user_type
from mailmend.model.cql_types import CqlType, parse_type
from mailmend.model.keyspace import Schema, find
from mailmend.model.names import spelled
from mailmend.model.table import COMPACT_STORAGE, Column, Kind, Table, names_of, types_of

if TYPE_CHECKING:
    from mailmend.cql.statements.data import WriteRows


_COLLECTIONS = frozenset({"list", "set", "map"})
_SLICES = frozenset({"<", "<=", ">", ">="})
_LISTS_OF_VALUES = frozenset({"IN", "NOT IN", "BETWEEN"})
_BIGINT_LEAST = -(2**63)


def change_problem(schema: Schema, column: Column, change: CellChange) -> str:
    """Why the server refuses the change of the column's cells; "" where nothing shows that it would."""
    problem = ""
    if column.type.startswith("'"):
        return ""  # a Java class without a name in CQL: only the server knows what it holds
    if change.element:
        problem = _element_problem(schema, column, change)
    elif change.field_name:
        problem = _field_problem(schema, column, change)
    elif change.operator is not CellOperator.SET and change.operator is not CellOperator.DELETE:
        problem = _sum_problem(schema, column, change)
    return problem and f"{column.spelling}: {problem}"


def _element_problem(schema: Schema, column: Column, change: CellChange) -> str:
    """Why c[element] cannot be set or deleted."""
    kind = parse_type(column.type)
    deletes = change.operator is CellOperator.DELETE
    if kind.name not in _COLLECTIONS:
        return f"{column.type} has no elements that can be changed alone"
    if kind.name == "set" and not deletes:
        return "the elements of a set cannot be set: add them with + or take them away with -"
    if parse_literal(change.element).form is LiteralForm.NULL:
        return "null is neither an index nor a key"
    problem = value_problem(schema, _key_type(kind), change.element)
    if not problem and _is_negative(change.element) and kind.name == "list":
        problem = f"{change.element} is no index of a list"
    if problem or deletes:
        return problem
    return value_problem(schema, str(kind.arguments[-1]), change.value)


def _key_type(kind: CqlType) -> str:
    """The type of the value between the brackets after a collection."""
    if kind.name == "list":
        return "int"
    return str(kind.arguments[0])


def _is_negative(text: str) -> bool:
    literal = parse_literal(text)
    return literal.form is LiteralForm.INTEGER and int(literal.text) < 0


def _field_problem(schema: Schema, column: Column, change: CellChange) -> str:
    """Why c.field cannot be set or deleted."""
    kind = parse_type(column.type)
    if not is_user_type(kind):
        return f"{column.type} has no fields that can be changed alone"
    return _value_of_field_problem(schema, kind, change.field_name, change.value)


def _value_of_field_problem(schema: Schema, kind: CqlType, field: str, value: str) -> str:
    user_type = find(schema.types, kind.name)
    if user_type is None:
        return ""
    fields = dict(user_type.normal_fields)
    if field not in fields:
        return f"the user type {kind} has no field {field}"
    return value_problem(schema, fields[field], value)


def _sum_problem(schema: Schema, column: Column, change: CellChange) -> str:
    """Why nothing can be added to the column, or taken from it."""
    kind = parse_type(column.type)
    if change.operator is CellOperator.PREPEND and kind.name != "list":
        return f"only a list takes new elements in front, and this is {column.type}"
    if column.is_counter:
        return _count_problem(schema, change)
    if kind.name not in _COLLECTIONS:
        return f"only counters, and collections that are not frozen, take + and -, and this is {column.type}"
    if kind.name == "map" and change.operator is CellOperator.SUBTRACT:
        return value_problem(schema, f"set<{kind.arguments[0]}>", change.value)
    return value_problem(schema, column.type, change.value)


def _count_problem(schema: Schema, change: CellChange) -> str:
    value = parse_literal(change.value)
    if value.form is LiteralForm.NULL:
        return "a counter cannot be increased or decreased by null"
    least = value.form is LiteralForm.INTEGER and int(value.text) == _BIGINT_LEAST
    if least and change.operator is CellOperator.SUBTRACT:
        return f"a counter cannot be decreased by {value.text}"
    return value_problem(schema, "counter", change.value)


def condition_problem(schema: Schema, column: Column, relation: Compared) -> str:
    """Why the server refuses a condition of IF on the column; "" where nothing shows that it would."""
    if relation.operator in {"LIKE", "IS NOT NULL"}:
        return f"no IF has {relation.operator}"
    kind = parse_type(column.type)
    if kind.name.startswith("'"):
        return ""
    bare = kind
    if kind.name == "frozen":
        bare = kind.arguments[0]
    problem = ""
    if "CONTAINS" in relation.operator:
        problem = _contains_problem(schema, bare, relation)
    elif relation.element:
        problem = _index_problem(kind, relation.element) or _compared_element_problem(schema, bare, relation)
    elif relation.field_name:
        problem = _compared_field_problem(schema, bare, relation)
    elif relation.operator in _SLICES:
        problem = _slice_problem(kind, relation)
    return problem and f"{column.spelling}: {problem}"


def _contains_problem(schema: Schema, kind: CqlType, relation: Compared) -> str:
    if kind.name not in _COLLECTIONS:
        return f"CONTAINS is for collections, and this is {kind}"
    if relation.operator.endswith("KEY"):
        if kind.name != "map":
            return f"CONTAINS KEY is for maps, and this is {kind}"
        return value_problem(schema, str(kind.arguments[0]), relation.value)
    return value_problem(schema, str(kind.arguments[-1]), relation.value)


def _index_problem(kind: CqlType, element: str) -> str:
    """Why the text between the brackets is no index or key; servers let frozen lists pass with a negative index."""
    if parse_literal(element).form is LiteralForm.NULL:
        return "null is neither an index nor a key"
    if kind.name == "list" and _is_negative(element):
        return f"{element} is no index of a list"
    return ""


def _compared_element_problem(schema: Schema, kind: CqlType, relation: Compared) -> str:
    if kind.name not in {"list", "map"}:
        return f"{kind} has no elements that can be compared"
    problem = value_problem(schema, _key_type(kind), relation.element)
    return problem or _compared_value_problem(schema, str(kind.arguments[-1]), relation)


def _compared_field_problem(schema: Schema, kind: CqlType, relation: Compared) -> str:
    if kind.name in NATIVE_TYPES or not is_user_type(kind):
        return f"{kind} has no fields"
    user_type = find(schema.types, kind.name)
    if user_type is None:
        return ""
    fields = dict(user_type.normal_fields)
    if relation.field_name not in fields:
        return f"the user type {kind} has no field {relation.field_name}"
    return _compared_value_problem(schema, fields[relation.field_name], relation)


def _compared_value_problem(schema: Schema, kind: str, relation: Compared) -> str:
    """Why a value of a condition is not of the type that it is compared with."""
    if relation.operator not in _LISTS_OF_VALUES:
        return value_problem(schema, kind, relation.value)
    count = len(parse_literal(relation.value).parts)
    if not count:
        return ""
    return value_problem(schema, f"tuple<{','.join([kind] * count)}>", relation.value)


def _slice_problem(kind: CqlType, relation: Compared) -> str:
    if parse_literal(relation.value).form is LiteralForm.NULL:
        return f"null cannot be compared by {relation.operator}"
    if kind.name == "duration":
        return "durations have no order"
    return ""


TTL_MAX = 630_720_000
"""The greatest time to live that Cassandra takes: twenty years, in seconds."""

_EXACT = frozenset({"=", "IN"})
_NEVER = frozenset({"!=", "LIKE", "IS NOT NULL", "CONTAINS", "CONTAINS KEY"})
_LOWER_BOUNDS = frozenset({">", ">="})
_UPPER_BOUNDS = frozenset({"<", "<="})


class WriteKind(Enum):
    """The kinds of data statements; the value is CQL's word."""

    INSERT = "INSERT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


def write_problem(write: "WriteRows", schema: Schema, table: Table) -> str:
    """Why the server refuses the write; "" where nothing shows that it would."""
    for name in write.columns:
        if name not in table:
            return f"the table has no column {spelled(name)}"
    return (
        _amount_problem(write)
        or _counter_problem(write, table)
        or _column_problem(write, table)
        or _where_problem(write, table)
        or _if_problem(write, table)
        or _value_problem(write, schema, table)
    )


def _amount_problem(write: "WriteRows") -> str:
    """Why its TTL or TIMESTAMP is refused."""
    if write.conditional and write.timestamp is not None:
        return "a write with IF gets its timestamp from the server"
    if write.ttl is not None and write.change is WriteKind.DELETE:
        return "a DELETE has no TTL"
    ttl = parse_literal(write.ttl or "")
    if ttl.form is LiteralForm.INTEGER and not 0 <= int(ttl.text) <= TTL_MAX:
        return f"its TTL must be from 0 to {TTL_MAX} seconds, not {ttl.text}"
    stamp = parse_literal(write.timestamp or "")
    if stamp.form is LiteralForm.INTEGER and abs(int(stamp.text)) >= 2**63:
        return f"its TIMESTAMP must be from {1 - 2**63} to {2**63 - 1}, not {stamp.text}"
    return ""


def _counter_problem(write: "WriteRows", table: Table) -> str:
    if not table.has_counters:
        return ""
    if write.change is WriteKind.INSERT:
        return "counters are written by UPDATE alone"
    if write.timestamp is not None or write.ttl is not None:
        return "counters take neither a TIMESTAMP nor a TTL"
    if write.conditional:
        return "counters take no IF"
    return ""


def _column_problem(write: "WriteRows", table: Table) -> str:
    """Why it cannot write or delete these columns."""
    written = list(map(table.column, write.columns))
    if write.change is WriteKind.INSERT:
        return _insert_problem(write, table, written)
    for column in written:
        if column.in_key and write.change is WriteKind.UPDATE:
            return f"{column.spelling} is part of the key, which no UPDATE sets"
        if column.in_key:
            return f"{column.spelling} is part of the key, which is deleted only with its row"
    return ""


def _insert_problem(write: "WriteRows", table: Table, written: Sequence[Column]) -> str:
    if write.json is not None:
        return _json_key_problem(write.json, table)
    if not written or COMPACT_STORAGE in table.options:
        return ""
    needed = table.key
    if _all_static(column for column in written if not column.in_key):
        needed = table.partition
    for column in needed:
        if column not in written:
            return f"it lacks {column.spelling}, which is part of the key"
    for column in table.key:
        if parse_literal(write.values.get(column.name, "")).form is LiteralForm.NULL:
            return f"{column.spelling} is part of the key, which cannot be null"
    return ""


def _json_key_problem(values: Mapping[str, object], table: Table) -> str:
    """Why the object of INSERT ... JSON names no row: what it leaves out is null."""
    for column in table.key:
        if values.get(column.name) is None:
            return f"{column.spelling} is part of the key, which cannot be null"
    if len(table.partition) == 1 and values[table.partition[0].name] == "":
        return f"{table.partition[0].spelling} is the whole partition key, which cannot be empty"
    return ""


def _where_problem(write: "WriteRows", table: Table) -> str:
    """Why its WHERE is refused."""
    if write.change is WriteKind.INSERT:
        return ""
    for relation in write.where:
        if problem := _relation_problem(relation, table):
            return problem
    twice = restricted_twice(write.where)
    if twice:
        return f"its WHERE restricts {twice} twice"
    exact = _columns_under(_EXACT, write.where)
    for column in table.partition:
        if column.name not in exact:
            return f"its WHERE must say which {column.spelling}, as part of the partition key"
    only_static = _all_static(map(table.column, write.columns))
    whole = write.change is WriteKind.UPDATE or bool(write.columns) or write.conditional
    needs_row = not only_static or _compares_rows(write, table)
    if whole and needs_row and COMPACT_STORAGE not in table.options:
        for column in table.clustering:
            if column.name not in exact:
                return f"its WHERE must say which {column.spelling}, as part of the key"
    return _rows_problem(write, table, only_static=only_static)


def _all_static(columns: Iterable[Column]) -> bool:
    """Whether there are columns, and all are static."""
    return {column.kind for column in columns} == {Kind.STATIC}


def _columns_under(operators: Container[str], relations: Sequence[Compared]) -> list[str]:
    """The columns that these operators compare. A column that is compared twice is listed twice."""
    names: list[str] = []
    for relation in relations:
        if relation.operator in operators:
            names.extend(relation.columns)
    return names


def _compares_rows(write: "WriteRows", table: Table) -> bool:
    """Whether its IF compares columns that are not static."""
    for relation in write.only_if:
        for name in relation.columns:
            if name in table and table.column(name).kind is not Kind.STATIC:
                return True
    return False


def _rows_problem(write: "WriteRows", table: Table, *, only_static: bool) -> str:
    """Why it cannot write to the rows that its WHERE names."""
    lists = _columns_under({"IN"}, write.where)
    if write.conditional and lists:
        return f"a write with IF is for one row, and its WHERE lists several {table.column(lists[0]).spelling}"
    if not only_static or write.conditional:
        return ""
    clustering = names_of(table.clustering)
    for relation in write.where:
        for name in relation.columns:
            if name in clustering:
                return f"it writes only static columns, so its WHERE cannot name {table.column(name).spelling}"
    return ""


def _relation_problem(relation: Compared, table: Table) -> str:
    for name in relation.columns:
        if name not in table:
            return f"the table has no column {name}"
    columns = list(map(table.column, relation.columns))
    for column in columns:
        if not column.in_key:
            return f"its WHERE names {column.spelling}, which is not part of the key"
    if relation.left is LeftSide.TOKEN:
        return "its WHERE compares a token, which only SELECT does"
    if relation.operator in _NEVER:
        return f"its WHERE has {relation.operator}, which no write takes"
    for column in columns:
        if column.kind is Kind.PARTITION and relation.left is LeftSide.TUPLE:
            return f"its WHERE compares {column.spelling} of the partition key with others at once"
    return ""


def restricted_twice(where: Sequence[Compared]) -> str:
    """A column that one condition sets exactly and another one restricts too; "" without such a column."""
    seen: dict[str, int] = {}
    for relation in where:
        for name in relation.columns:
            seen[name] = seen.get(name, 0) + 1
    exact = _columns_under(_EXACT, where)
    for bounds in (_LOWER_BOUNDS, _UPPER_BOUNDS):
        bounded = _columns_under(bounds, where)
        for name in bounded:
            if bounded.count(name) > 1:
                exact.append(name)
    for name in exact:
        if seen[name] > 1:
            return name
    return ""


def _if_problem(write: "WriteRows", table: Table) -> str:
    for relation in write.only_if:
        for name in relation.columns:
            if name not in table:
                return f"the table has no column {name}"
            if table.column(name).in_key:
                return f"its IF names {table.column(name).spelling}, which is part of the key"
    return ""


def _value_problem(write: "WriteRows", schema: Schema, table: Table) -> str:
    for name, text in write.values.items():
        if name not in table:
            return f"the table has no column {name}"
        column = table.column(name)
        if column.is_counter:
            return f"the counter {column.spelling} can be increased or decreased, not set"
        if problem := value_problem(schema, column.type, text) or _tiny_key_problem(column, text):
            return f"{column.spelling}: {problem}"
    for name, value in (write.json or {}).items():
        if problem := json_problem(schema, table.column(name).type, value):
            return f"{table.column(name).spelling}: {problem}"
    for change in write.cells:
        if problem := change_problem(schema, table.column(change.column), change):
            return problem
    return _comparison_problem(write, schema, table)


def _tiny_key_problem(column: Column, text: str) -> str:
    """Why a blob is no tinyint of a key; in other columns servers take blobs of any length."""
    value = parse_literal(text)
    if not column.in_key or column.type != "tinyint":
        return ""
    if value.form is not LiteralForm.BLOB or len(value.text) == _ONE_BYTE:
        return ""
    return f"the blob {value.text} is not one byte"


_ONE_BYTE = len("0x00")


def _comparison_problem(write: "WriteRows", schema: Schema, table: Table) -> str:
    """Why a value in its WHERE or IF is refused."""
    for relation in write.only_if:
        if relation.left in {LeftSide.TUPLE, LeftSide.TOKEN}:
            return "its IF compares several columns at once, which only WHERE does"
        if problem := condition_problem(schema, table.column(relation.columns[0]), relation):
            return problem
    for relation in (*write.where, *write.only_if):
        if problem := compared_problem(relation, schema, table):
            return problem
    for relation in write.where:
        if _has_null(relation):
            return f"its WHERE compares {relation.columns[0]} with null"
    return ""


def _has_null(relation: Compared) -> bool:
    value = parse_literal(relation.value)
    return any(literal.form is LiteralForm.NULL for literal in (value, *value.parts))


def compared_problem(relation: Compared, schema: Schema, table: Table) -> str:
    """Why a value that whole columns are compared with is not of the columns' type."""
    if relation.left in {LeftSide.PART, LeftSide.TOKEN} or "CONTAINS" in relation.operator:
        return ""
    columns = list(map(table.column, relation.columns))
    kind = columns[0].type
    if relation.left is LeftSide.TUPLE:
        kind = f"tuple<{','.join(types_of(columns))}>"
    spelling = columns[0].spelling
    value = parse_literal(relation.value)
    if relation.operator not in {"IN", "NOT IN", "BETWEEN"}:
        if relation.left is LeftSide.TUPLE and value.form is LiteralForm.TUPLE and len(value.parts) != len(columns):
            return f"{spelling}: {len(columns)} columns are compared with {len(value.parts)} values"
        problem = value_problem(schema, kind, relation.value)
    elif value.parts:
        problem = value_problem(schema, f"tuple<{','.join([kind] * len(value.parts))}>", relation.value)
    else:
        return ""
    return problem and f"{spelling}: {problem}"
