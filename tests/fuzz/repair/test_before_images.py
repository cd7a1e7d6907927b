"""Before-images, suspects and keys of the ledger, damaged in every way: a finding or our own error."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.errors import MailmendError
from mailmend.model.operations import Seen
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.ledger.before_images import (
    image_digest,
    image_from,
    image_text,
    key_from,
    key_text,
    suspect_from,
    suspect_text,
)
from tests.support.fuzzing import fuzzing, nested, result_or_our_error, spoilt_document, spoilt_text

ID = UUID("6e0ab5e0-8d1c-11f0-8000-000000000001")
VALUES = (
    ID,
    datetime(2026, 5, 1, tzinfo=UTC),
    date(2026, 5, 1),
    time(1),
    Decimal("1.50"),
    b"x",
    frozenset({"a"}),
    (1,),
)
FINDING = Finding(
    Suspect(
        "messageIdTable", (ID, 5, *VALUES), Verdict.AMEND, ((ID,), VALUES), {"flags": frozenset({"x"}), "modseq": 9}
    ),
    Verdict.AMEND,
    truths=(Seen({f"c{number}": value for number, value in enumerate(VALUES)}, {"c1": 5}),),
    projected=Seen({"of": {"a": None, "b": 1.5}}, {"of": 6}),
)
IMAGE, SUSPECT, KEY = image_text(FINDING), suspect_text(FINDING.suspect), key_text(FINDING.suspect.key)
WORDS = (
    "{",
    "}",
    "[",
    "]",
    '"',
    ":",
    ",",
    "\\",
    "\\ud800",
    "1e999",
    "NaN",
    "9" * 5_000,
    nested("[", "]"),
    "null",
    "\x00",
)


def damaged(text: str) -> st.SearchStrategy[str]:
    return spoilt_document(json.loads(text)).map(json.dumps) | spoilt_text(text, WORDS)


def is_whole(read: Any) -> None:
    """What was read can be written again, and its digest taken."""
    if isinstance(read, Finding):
        assert image_from(image_text(read)).verdict is read.verdict
        image_digest(read)
    elif isinstance(read, Suspect):
        assert isinstance(read.verdict, Verdict)
        suspect_text(read)
    elif not isinstance(read, MailmendError):
        key_text(read)


@fuzzing(2_000)
@given(damaged(IMAGE))
def test_an_image_is_read_or_refused(text: str) -> None:
    is_whole(result_or_our_error(lambda: image_from(text)))


@fuzzing(1_000)
@given(damaged(SUSPECT))
def test_a_suspect_is_read_or_refused(text: str) -> None:
    is_whole(result_or_our_error(lambda: suspect_from(text)))


@fuzzing(500)
@given(damaged(KEY))
def test_a_key_is_read_or_refused(text: str) -> None:
    is_whole(result_or_our_error(lambda: key_from(text)))
