"""docs/delivery-http.md: what it says to type is answered, and its words are those of the API."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.delivery_desk import DeliveryWorld

PAGE = Path("docs/delivery-http.md").read_text(encoding="utf-8")
CALLS = [line.removeprefix("$ ") for line in PAGE.splitlines() if line.startswith("$ curl ")]
CURL_OPTIONS = {"-H": True, "--json": True, "-X": True, "-fsS": False}


def named(schema: Any) -> Iterator[str]:
    """The names of all properties and parameters in an OpenAPI document."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        if "in" in schema and "schema" in schema:
            yield schema["name"]
        for one in schema.values():
            yield from named(one)
    elif isinstance(schema, list):
        for one in schema:
            yield from named(one)


@pytest.mark.parametrize("line", CALLS)
async def test_each_call_of_the_page_is_answered(line: str, tmp_path: Path) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text("[{fields: [recipientdomain]}]\n")
    _, *words = shlex.split(line)
    options, left = dict[str, str](), list[str]()
    while words:
        word = words.pop(0)
        if CURL_OPTIONS.get(word, False):
            options[word] = words.pop(0)
        elif word not in CURL_OPTIONS:
            left.append(word)
    (url,) = left
    method = options.get("-X", "POST" if "--json" in options else "GET")
    world = DeliveryWorld(file)
    async with world.open(), world.delivering(), world.client() as client:
        await world.put("bob@example.org")
        body = json.loads(options["--json"]) if "--json" in options else None
        answer = await client.request(method, url.removeprefix("$MX1"), json=body)
    assert answer.is_success, answer.text


def test_each_field_that_it_explains_is_one_of_the_api() -> None:
    known = set(named(json.loads(Path("docs/delivery.openapi.json").read_text(encoding="utf-8"))))
    cells = re.findall(r"^\| (`[^|]*) \|", PAGE, re.MULTILINE)
    fields = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    assert len(fields) > 20
    assert [one for one in fields if one not in known] == []
