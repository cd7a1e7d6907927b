"""Which changes of cells and which conditions on parts of columns a server accepts. Pure.

Source: the answers of Cassandra 4.1 and 5.0, which a test compares with this module.
"""

from mailmend.cql.statements.literals import LiteralForm, parse_literal, value_problem
from mailmend.cql.statements.relations import CellChange, CellOperator, Compared
from mailmend.cql.statements.type_rules import NATIVE_TYPES, is_user_type
from mailmend.model.cql_types import CqlType, parse_type
from mailmend.model.keyspace import Schema, find
from mailmend.model.table import Column

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
    return "int" if kind.name == "list" else str(kind.arguments[0])


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
    kind = parse_type(column.type)
    bare = kind.arguments[0] if kind.name == "frozen" else kind
    if relation.operator in {"LIKE", "IS NOT NULL"}:
        return f"no IF has {relation.operator}"
    if kind.name.startswith("'"):
        return ""
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
    return f"{element} is no index of a list" if kind.name == "list" and _is_negative(element) else ""


def _compared_element_problem(schema: Schema, kind: CqlType, relation: Compared) -> str:
    if kind.name not in {"list", "map"}:
        return f"{kind} has no elements that can be compared"
    problem = value_problem(schema, _key_type(kind), relation.element)
    return problem or _compared_value_problem(schema, str(kind.arguments[-1]), relation)


def _compared_field_problem(schema: Schema, kind: CqlType, relation: Compared) -> str:
    if kind.name in NATIVE_TYPES or not is_user_type(kind):
        return f"{kind} has no fields"
    user_type = find(schema.types, kind.name)
    fields = dict(user_type.normal_fields) if user_type else {}
    if user_type and relation.field_name not in fields:
        return f"the user type {kind} has no field {relation.field_name}"
    return _compared_value_problem(schema, fields[relation.field_name], relation) if fields else ""


def _compared_value_problem(schema: Schema, kind: str, relation: Compared) -> str:
    """Why a value of a condition is not of the type that it is compared with."""
    if relation.operator not in _LISTS_OF_VALUES:
        return value_problem(schema, kind, relation.value)
    count = len(parse_literal(relation.value).parts)
    return value_problem(schema, f"tuple<{','.join([kind] * count)}>", relation.value) if count else ""


def _slice_problem(kind: CqlType, relation: Compared) -> str:
    if parse_literal(relation.value).form is LiteralForm.NULL:
        return f"null cannot be compared by {relation.operator}"
    return "durations have no order" if kind.name == "duration" else ""
