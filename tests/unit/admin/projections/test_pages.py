"""The published schema and the reference page of files of projections."""

import json
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from mailmend.admin.projections import pages
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.projections.declaration_form import FORMS, declaration_schema
from mailmend.model.projections.declaration_nodes import BadDeclaration

VALIDATOR = Draft202012Validator(declaration_schema())


def is_taken(text: str) -> bool:
    """Whether the reader takes it."""
    try:
        read_declaration(text, "shop.toml")
    except BadDeclaration:
        return False
    return True


def is_valid(text: str) -> bool:
    """Whether the published schema takes it."""
    valid: bool = VALIDATOR.is_valid(tomllib.loads(text))
    return valid


def test_what_is_published_is_up_to_date() -> None:
    assert pages.main(["--check"]) == 0


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(json.loads(pages.schema_text()))


@pytest.mark.parametrize(
    "text",
    [
        "[truth.users.mirror.users_by_email]",
        "[truth.'\"Users\"'.mirror.users_by_email]",
        "[truth.users.mirror.a]\nrenamed = { owner = 'user_id' }\nleft_out = ['note', '\"Size\"']",
        "",
        "[truth]\nx = 1",
        "[truth.users]",
        "[truth.users.miror.users_by_email]",
        "[truth.'a b'.mirror.users_by_email]",
        "[truth.users.mirror.a]\nrenamed = { owner = 1 }",
        "[truth.users.mirror.a]\nrenamed = ['owner']",
        "[truth.users.mirror.a]\nneeds = ['size']",
        "[truth.users.mirror.a]\nneeds = 'size'",
        "[truth.users.explode.a]\ncolumn = 'b'\nelement = 'c'\nneeds = ['size', 'size']",
        "[truth.users.mirror.a]\nleft_out = 'note'",
        "[truth.users.mirror.a]\nleft_out = ['note', 'note']",
        "[truth.users.mirror.a]\nnote = 'note'",
        "[truth.users.mirror.a]\nrequired = ['note', '\"Size\"']",
        "[truth.users.mirror.a]\nrequired = ['note', 'note']",
        "[truth.users.mirror.a]\nrequired = 'note'",
        "[truth.users.explode.a]\ncolumn = 'tags'\nrequired = ['note']",
        "[truth.users.filter.a]\nwhen = {}\nrequired = ['note']",
        "[truth.users]\nnull_is = { a = 1, '\"B\"' = true, c = 'x', d = { column = 'e' } }\n[truth.users.mirror.x]",
        "[truth.users]\nnull_is = { a = 1.5 }\n[truth.users.mirror.x]",
        "[truth.users]\nnull_is = { a = {} }\n[truth.users.mirror.x]",
        "[truth.users]\nnull_is = { a = { column = 1 } }\n[truth.users.mirror.x]",
        "[truth.users]\nnull_is = { a = { column = 'b', c = 1 } }\n[truth.users.mirror.x]",
        "[truth.users]\nnull_is = ['a']\n[truth.users.mirror.x]",
        "[truth.users]\nnull_is = { a = 1 }",
        "[truth.users.mirror.a]\nrequired = ['b', 'c']\nfilled_from_content = ['c']",
        "[truth.users.mirror.a]\nrequired = ['b']\nfilled_from_content = 'b'",
        "[truth.users.explode.a]\ncolumn = 'tags'\nfilled_from_content = ['b']",
        "[truth.users.mirror.a]\nonly_reported = { WITHDRAW = 'why', AMEND = 'why' }",
        "[truth.users.mirror.a]\nonly_reported = { WITHDRAW = ' ' }",
        "[truth.users.mirror.a]\nonly_reported = { WITHDRAW = 1 }",
        "[truth.users.mirror.a]\nonly_reported = { TORN = 'why' }",
        "[truth.users.mirror.a]\nonly_reported = ['WITHDRAW']",
        "[truth.users.mirror.a]\nfields = { b = { c = 'd', '\"E\"' = 'f' } }",
        "[truth.users.mirror.a]\nfields = { b = {} }",
        "[truth.users.mirror.a]\nfields = { b = { c = 1 } }",
        "[truth.users.mirror.a]\nfields = { b = 'c' }",
        "[truth.users.count.a]\ncounters = { n = {} }\ngenerators = ['b', '\"C\"']",
        "[truth.users.count.a]\ncounters = { n = {} }\ngenerators = ['b', 'b']",
        "[truth.users.count.a]\ncounters = { n = {} }\ngenerators = { b = 'c' }",
        "[truth.u.count.a]\ncounters = { n = {} }\ngenerators = ['b']\nnumbered_by = { c = 'b' }\nused_with = ['d']",
        "[truth.users.count.a]\ncounters = { n = {} }\ngenerators = ['b']\nnumbered_by = { c = 1 }",
        "[truth.users.count.a]\ncounters = { n = {} }\ngenerators = ['b']\nnumbered_by = ['b']",
        "[truth.users.max.a]\ncolumns = { b = 'c' }\nrenamed = { d = 'e' }",
        "[truth.users.min.a]\ncolumns = { b = 'c' }",
        "[truth.users.min.a]\ncolumns = {}",
        "[truth.users.max.a]",
        "[truth.users.max.a]\ncolumns = { b = 1 }",
        "[truth.users.mirror.a]\ncomputed = { a = { lower = 'b', default = 'x' }, c = { constant = 1 } }",
        "[truth.users.mirror.a]\ncomputed = { a = { crc32_of = 'b', buckets = 4 } }",
        "[truth.users.mirror.a]\ncomputed = { a = { json_of = 'b', path = 'c.d' } }",
        "[truth.users.mirror.a]\ncomputed = { a = { crc32_of = 'b', buckets = 0 } }",
        "[truth.users.mirror.a]\ncomputed = { a = { crc32_of = 'b' } }",
        "[truth.users.mirror.a]\ncomputed = { a = { json_of = 'b', path = 'c..d' } }",
        "[truth.users.mirror.a]\ncomputed = { a = { lower = 'b', day_of = 'c' } }",
        "[truth.users.mirror.a]\ncomputed = { a = { constant = 1.5 } }",
        "[truth.users.mirror.a]\ncomputed = { a = { constant = 1, default = 2 } }",
        "[truth.users.mirror.a]\ncomputed = { a = { field_of = 'b', field = 1 } }",
        "[truth.users.mirror.a]\ncomputed = { a = 'b' }",
        "[truth.users.mirror.a]\ncomputed = { a = { joined_of = 'b' }, c = { joined_of = 'b', separator = '' } }",
        "[truth.users.mirror.a]\ncomputed = { a = { joined_of = 'b', separator = 1 } }",
        "[truth.users.mirror.a]\ncomputed = { a = { lower = 'b', separator = ',' } }",
        "[truth.users.mirror.a]\ncomputed = { a = { joined_columns = ['b', 'c'], separator = '@', default = '' } }",
        "[truth.users.mirror.a]\ncomputed = { a = { joined_columns = ['b'], separator = '@' } }",
        "[truth.users.mirror.a]\ncomputed = { a = { joined_columns = ['b', 'b'], separator = '@' } }",
        "[truth.users.mirror.a]\ncomputed = { a = { joined_columns = ['b', 'c'], separator = '' } }",
        "[truth.users.mirror.a]\ncomputed = { a = { joined_columns = ['b', 'c'] } }",
        "[truth.users.mirror.a]\ncomputed = { a = { joined_columns = 'b', separator = '@' } }",
        "[truth.users.mirror.a]\ncomputed = { a = { prefix_of = 'b', prefixes = ['x', 'y'], default = '' } }",
        "[truth.users.mirror.a]\ncomputed = { a = { rest_of = 'b', prefixes = ['x'] } }",
        "[truth.users.mirror.a]\ncomputed = { a = { rest_of = 'b', prefixes = [] } }",
        "[truth.users.mirror.a]\ncomputed = { a = { rest_of = 'b', prefixes = [''] } }",
        "[truth.users.mirror.a]\ncomputed = { a = { rest_of = 'b', prefixes = ['x', 'x'] } }",
        "[truth.users.mirror.a]\ncomputed = { a = { rest_of = 'b', prefixes = 'x' } }",
        "[truth.users.mirror.a]\ncomputed = { a = { rest_of = ['b', 'c'], prefixes = ['x'] } }",
        "[truth.users.filter.a]\nwhen = { b = { not = 1 }, c = { not = ['x', true, 1] }, d = { null = false } }",
        "[truth.users.filter.a]\nwhen = { b = { starts = 'x', starts_not = ['y', 'z'], not = 'xx', null = false } }",
        "[truth.users.filter.a]\nwhen = { b = { null = true } }",
        "[truth.users.filter.a]\nwhen = { b = { null = true, not = 'x' } }",
        "[truth.users.filter.a]\nwhen = { b = { null = 1 } }",
        "[truth.users.filter.a]\nwhen = { b = {} }",
        "[truth.users.filter.a]\nwhen = { b = { not = [] } }",
        "[truth.users.filter.a]\nwhen = { b = { not = ['x', 'x'] } }",
        "[truth.users.filter.a]\nwhen = { b = { not = 1.5 } }",
        "[truth.users.filter.a]\nwhen = { b = { starts = 1 } }",
        "[truth.users.filter.a]\nwhen = { b = { starts = '' } }",
        "[truth.users.filter.a]\nwhen = { b = { starts_not = ['x', ''] } }",
        "[truth.users.filter.a]\nwhen = { b = { ends = 'x' } }",
        "version = 1",
    ],
)
def test_the_schema_takes_what_the_reader_takes(text: str) -> None:
    assert is_valid(text) is is_taken(text)


def test_every_example_of_the_page_is_read() -> None:
    blocks = pages.page_text().split("```toml\n")[1:]
    assert blocks
    for block in blocks:
        read_declaration(block.partition("```")[0], "page")


@pytest.mark.parametrize("word", FORMS)
def test_every_part_of_a_form_is_on_the_page(word: str) -> None:
    text = pages.PAGE.read_text()
    for part in FORMS[word].parts:
        assert f"| `{part.name}` | {part.meaning} |" in text


def test_a_page_that_is_out_of_date_is_written_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pages, "PAGE", tmp_path / "declarations.md")
    monkeypatch.setattr(pages, "SCHEMA", tmp_path / "projections.schema.json")
    assert pages.main(["--check"]) == 1
    assert "python -m mailmend.admin.projections.pages" in capsys.readouterr().err
    assert pages.main([]) == 0
    assert pages.main(["--check"]) == 0
