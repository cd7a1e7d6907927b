"""The conditions of a file of projections while it is read: tests, and tables of keys. Pure."""

from collections.abc import Iterator
from typing import Any

from mailmend.model.projections.declaration_form import TEST_FORM
from mailmend.model.projections.declaration_nodes import Node
from mailmend.model.projections.declared_conditions import (
    EVERY_ROW,
    NOT,
    NULL,
    TEST_MEND,
    DeclaredCondition,
    DeclaredTest,
)
from mailmend.model.projections.toml_values import Constant


def condition_in(node: Node) -> DeclaredCondition:
    """A condition; of one that is refused, what could be read."""
    if isinstance(node.value, list):
        alternatives = [tuple(_tests(item)) for item in node.items("", "")]
    else:
        alternatives = [tuple(_tests(node))]
    made = node.made(lambda: DeclaredCondition(tuple(alternatives)))
    return made or EVERY_ROW


def _tests(node: Node) -> Iterator[DeclaredTest]:
    for test in node.below("a condition", TEST_MEND):
        column = test.cql_name(test.name, "column name")
        made = None
        if column is not None:
            made = _test(test, column)
        if made is not None:
            yield made


def _test(node: Node, column: str) -> DeclaredTest | None:
    match node.value:
        case dict(keys) if keys:
            return _keyed_test(node, column)
        case list():
            values = tuple(_constants(node))
            return node.made(lambda: DeclaredTest(column, values))
        case bool() | int() | str():
            return DeclaredTest(column, (node.value,))
        case _:
            problem = f"{node.name} is compared with neither a text, a number nor a boolean"
            node.note(problem, TEST_MEND)
            return None


def _keyed_test(node: Node, column: str) -> DeclaredTest | None:
    """The test of a table of keys; None where a key is refused."""
    parts = node.parts(TEST_FORM)
    attributes = {part.name: part.attribute or part.name for part in TEST_FORM.parts}
    found: dict[str, Any] = {}
    for key, part in parts.items():
        if key == NULL:
            found[key] = _null(part)
        else:
            found[attributes[key]] = _one_or_more(part)
    if None in found.values() or len(parts) < len(node.value):
        return None
    return node.made(lambda: DeclaredTest(column, **found))


def _null(node: Node) -> bool | None:
    if isinstance(node.value, bool):
        return node.value
    node.note(f"{NULL} is neither true nor false", f"Write {{ {NULL} = true }}.")
    return None


def _one_or_more(node: Node) -> tuple[Constant, ...] | None:
    """The constants of a key, which may be one without a list; None where one is refused."""
    key = node.name
    kinds: tuple[type, ...] = (str,)
    wanted = "a text"
    if key == NOT:
        kinds = (bool, int, str)
        wanted = "a text, a whole number or a boolean"
    mend = f'Write {{ {key} = "one" }} or {{ {key} = ["one", "other"] }}.'
    values = node.value
    if not isinstance(values, list):
        values = [values]
    if not values:
        node.note(f"{key} has an empty list", mend)
    for value in values:
        if not isinstance(value, kinds):
            node.note(f"a value of {key} is not {wanted}: {value!r}", mend)
    if not values or not all(isinstance(value, kinds) for value in values):
        return None
    return tuple(values)


def _constants(node: Node) -> Iterator[Constant]:
    for item in node.items("", TEST_MEND):
        if isinstance(item.value, bool | int | str):
            yield item.value
        else:
            item.note("a value is neither a text, a whole number nor a boolean", TEST_MEND)
