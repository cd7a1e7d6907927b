"""What James's own Pulsar mail queue left on a real Pulsar (`tests/data/james-pulsar`)."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mailmend.mailqueue.pulsar.settings import PulsarForm

FOLDER: Final = Path(__file__).parents[1] / "data" / "james-pulsar"
_FOLDERS: Final = {PulsarForm.JAMES_3_9: FOLDER, PulsarForm.JAMES_3_8: FOLDER / "v38"}


def messages(form: PulsarForm) -> Sequence[Mapping[str, Any]]:
    """Each raw message once, by topic and place."""
    lines = (_FOLDERS[form] / "messages.jsonl").read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


def mails(form: PulsarForm) -> Sequence[Mapping[str, Any]]:
    return [one for one in messages(form) if "/pmq-filter-" not in one["topic"]]


def filters(form: PulsarForm) -> Sequence[Mapping[str, Any]]:
    return [one for one in messages(form) if "/pmq-filter-" in one["topic"]]
