"""The public names are closed: a type in the signature of one of them has a public name too."""

import ast
import inspect
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from pydoc import plain, render_doc
from typing import Any, NewType, get_args, get_origin, get_type_hints, is_typeddict

import mailmend
from tests.support.checkout import CHECKOUT

SIGNATURE_MAX = 100
"""Characters of a line, as `help` prints it."""

HEADING = "Python Library Documentation: "
"""Of pydoc's own: it names the module."""

DECLARATIONS = ("Family", "Mirror", "Filter", "Union", "Counts", "Numbers", "Bounds", "Content")
"""Their fields are public. Their methods are the rules of a repair, which it calls itself."""

OPENED = (
    "Mailmend",
    "AsyncMailmend",
    "MessageStore",
    "Mailboxes",
    "ProjectionWriter",
    "AsyncProjectionWriter",
)
"""A program gets these from `mailmend.open`, and constructs none."""

OPAQUE = ("Declaration", "BadDeclaration")
"""A program gets these from `read_declaration`, and hands them on."""


def hints_of(name: str) -> Iterator[Any]:
    """The annotations of a public name: of its arguments and fields, or of its methods."""
    public = getattr(mailmend, name)
    if isinstance(public, NewType):
        return
    if not inspect.isclass(public) and not inspect.isfunction(public):
        yield public  # a union of public types
        return
    if inspect.isfunction(public):
        yield from get_type_hints(public).values()
        return
    own = get_type_hints(public)
    if is_dataclass(public):
        own = {field.name: own[field.name] for field in fields(public)}
    for field, hint in own.items():
        if not field.startswith("_") and get_origin(hint) is not typing.ClassVar:
            yield hint
    if name in DECLARATIONS:
        return
    for method in methods_of(public):
        yield from get_type_hints(method).values()
    if name not in OPENED:
        yield from get_type_hints(public.__init__).values()


def methods_of(public: type) -> Iterator[Callable[..., Any]]:
    """The functions of a class that its users call, properties too."""
    for name in vars(public):
        if name.startswith("_") or issubclass(public, Enum):
            continue
        member = inspect.getattr_static(public, name)
        if isinstance(member, property):
            member = member.fget
        member = getattr(member, "__func__", member)
        if inspect.isfunction(member):
            yield member


def ours_in(hint: Any) -> Iterator[str]:
    """The names of mailmend's types in an annotation."""
    if isinstance(hint, list | tuple):
        for part in hint:
            yield from ours_in(part)
        return
    if get_origin(hint) is typing.Literal:
        return
    kind = get_origin(hint) or hint
    if isinstance(kind, type | NewType) and kind.__module__.startswith("mailmend."):
        yield kind.__name__
    for part in get_args(hint):
        yield from ours_in(part)


def test_each_type_that_a_public_name_takes_or_gives_is_public() -> None:
    private = set()
    for name in mailmend.__all__:
        if name in OPAQUE:
            continue
        for hint in hints_of(name):
            private |= {(name, kind) for kind in ours_in(hint) if kind not in mailmend.__all__}
    assert sorted(private) == []


def test_a_type_is_found_wherever_it_is_in_an_annotation() -> None:
    def takes(given: dict[str, Callable[[mailmend.Mail], mailmend.Uid | None]]) -> list[mailmend.Verdict]:
        raise NotImplementedError(given)

    found = {kind for hint in get_type_hints(takes).values() for kind in ours_in(hint)}

    assert found == {"Mail", "Uid", "Verdict"}


def test_help_breaks_signatures_into_lines() -> None:
    """Lines of docstrings are as wide as the source; an Enum has the constructor that Python gives it."""
    long = []
    for name in mailmend.__all__:
        public = getattr(mailmend, name)
        documented = [public, *(member for _, member in inspect.getmembers(public))]
        prose = {line.strip() for value in documented for line in (inspect.getdoc(value) or "").splitlines()}
        for line in plain(render_doc(public)).splitlines():
            if line.startswith(HEADING):
                continue
            text = line.removesuffix(" from builtins.type")  # Python says so of each class method
            if len(text) > SIGNATURE_MAX and text.lstrip(" |") not in prose and "boundary=None" not in text:
                long.append(line)
    assert long == []


def test_help_writes_types_and_defaults_as_a_program_does() -> None:
    text = plain(render_doc(mailmend.NewMail))

    assert "\n |      flags: Flags = Flags(),\n" in text
    assert " |  NewMail(\n |      header: bytes,\n" in text
    assert "mailmend.repair" not in str(inspect.signature(mailmend.open))
    assert "    **settings: Unpack[OpenSettings],\n) -> Mailmend" in str(inspect.signature(mailmend.open))
    assert str(inspect.signature(mailmend.MessageStore.copy)) == (
        "(self, place: MessageKey, mailbox: MailboxId) -> Stored"
    )


def test_a_short_signature_binds_arguments_as_before() -> None:
    bound = inspect.signature(mailmend.NewMail).bind(b"header", body=b"body", internal_date=None)

    assert bound.arguments == {"header": b"header", "body": b"body", "internal_date": None}


def test_the_reference_has_each_public_name_once() -> None:
    pages = (CHECKOUT / "docs" / "api").glob("*.md")
    named = [name for page in pages for name in re.findall(r"^::: mailmend\.(\w+)$", page.read_text(), re.MULTILINE)]

    assert sorted(named) == sorted(mailmend.__all__)


def test_each_public_name_has_a_docstring_of_its_own() -> None:
    without = []
    for name in mailmend.__all__:
        public = getattr(mailmend, name)
        text = aliases_in(mailmend._HOMES[name]).get(name, "")
        if inspect.isclass(public) or inspect.isfunction(public):
            text = inspect.getdoc(public) or ""
        if not text or text.startswith(f"{name}("):  # this is what a dataclass without a docstring has
            without.append(name)
    assert without == []


def test_each_key_of_a_choice_is_described() -> None:
    """In the docstring, or in one that it names."""
    choices = [name for name in mailmend.__all__ if is_typeddict(getattr(mailmend, name))]
    lacking = []
    for name in choices:
        text = inspect.getdoc(getattr(mailmend, name)) or ""
        for other in re.findall(r"`(\w+Choices)`", text):
            text += inspect.getdoc(getattr(mailmend, other)) or ""
        described = set(re.findall(r"^ {4}(\w+): \w", text, re.MULTILINE))
        lacking += [(name, key) for key in getattr(mailmend, name).__annotations__ if key not in described]
    assert len(choices) == 7
    assert lacking == []


@cache
def aliases_in(module: str) -> Mapping[str, str]:
    """The names that a module assigns, each with the docstring below."""
    body = ast.parse(Path(import_module(module).__file__ or "").read_text()).body
    found = {}
    for assignment, below in pairwise(body):
        match assignment, below:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = text
            case _:
                pass
    return found


def test_a_typed_program_needs_no_private_name() -> None:
    """`make check` runs mypy over this program, with every strict rule."""
    program = (CHECKOUT / "tests" / "support" / "user_program.py").read_text()

    named = set(re.findall(r"\bmailmend\.(\w+)", program))
    for names in re.findall(r"^from mailmend import (.+)$", program, re.MULTILINE):
        named |= set(names.split(", "))

    assert not re.search(r"^(?:from|import) mailmend\.", program, re.MULTILINE)
    assert len(named) > 30
    assert named <= set(mailmend.__all__)
