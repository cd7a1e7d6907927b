"""What `mailmend delivery explain` shows of the answers of servers."""

from collections.abc import Iterator, Mapping
from typing import Any

from mailmend.admin.delivery.explain_service import WaitExplanation
from mailmend.admin.frame.document import Document, Part
from mailmend.admin.frame.values import printable


def wait_document(result: WaitExplanation) -> Document:
    """The servers' own sentences; their figures are in the JSON."""
    json = {
        "servers": [{"url": url, **answer} for url, answer in result.answers.items()],
        "unreached": dict(result.unreached),
        "exit": int(result.exit),
    }
    body = [part for url, answer in result.answers.items() for part in _parts(url, answer)]
    return Document(json, body, result.exit, [printable(reason) for reason in result.unreached.values()])


def _parts(url: str, answer: Mapping[str, Any]) -> Iterator[Part]:
    asked = f"{printable(str(answer['server']))} ({url}), queue {printable(str(answer['queue']))}, {answer['at']}"
    yield asked
    for entry in answer.get("entries", ()):
        where = entry["stage"] if entry["here"] else f"{entry['stage']}, not with this server"
        yield f"{printable(entry['id'])}, {printable(entry['recipient'])}: {where}"
        yield from (f"    {printable(reason)}" for reason in entry["why"])
    if "entries" not in answer:
        named = ", ".join(f"{name} {text}" for name, text in answer["mail"].items())
        yield printable(f"A mail with {named or 'nothing of its own'}")
        yield from (f"    {printable(reason)}" for reason in answer["why"])
