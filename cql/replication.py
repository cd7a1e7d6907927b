"""How many copies of a keyspace are kept and where: as people write it, as the server has it, as CQL."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mailmend.model.errors import WrongUse
from mailmend.model.names import map_literal

SIMPLE = "SimpleStrategy"
BY_TOPOLOGY = "NetworkTopologyStrategy"
EVERY_DATA_CENTRE = "replication_factor"
COPIES_MAX = 100

_DATA_CENTRE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True, slots=True)
class Replication:
    """A strategy by the short name of its class, and the number of copies per data centre (or in all of them)."""

    strategy: str
    copies: Mapping[str, str]

    def __str__(self) -> str:
        return map_literal({"class": self.strategy, **self.copies})


def in_every_data_centre(copies: int) -> Replication:
    return Replication(BY_TOPOLOGY, {EVERY_DATA_CENTRE: _number_of_copies(str(copies), str(copies))})


def parse_replication(text: str) -> Replication:
    """Replication from `dc1=3,dc2=2`, or `SimpleStrategy=1` for a cluster without data centres.

    Raises:
        WrongUse: the text is neither.
    """
    pairs = dict(_pair(part, text) for part in text.split(","))
    if SIMPLE in pairs:
        if len(pairs) > 1:
            raise _refusal(text, f"{SIMPLE} knows no data centres")
        return Replication(SIMPLE, {EVERY_DATA_CENTRE: pairs[SIMPLE]})
    return Replication(BY_TOPOLOGY, pairs)


def replication_from(options: Mapping[str, str]) -> Replication:
    copies = {name: value for name, value in options.items() if name != "class"}
    return Replication(options["class"].rsplit(".", 1)[-1], copies)


def _pair(part: str, text: str) -> tuple[str, str]:
    name, equals, number = map(str.strip, part.partition("="))
    if not equals or not _DATA_CENTRE.fullmatch(name) or name.lower() == "class":
        raise _refusal(text, f"{part.strip()!r} is not NAME=COPIES")
    return name, _number_of_copies(number, text)


def _number_of_copies(number: str, text: str) -> str:
    if not re.fullmatch(r"[0-9]{1,4}", number) or not 1 <= int(number) <= COPIES_MAX:
        raise _refusal(text, f"{number!r} is not a number of copies from 1 to {COPIES_MAX}")
    return str(int(number))


def _refusal(text: str, why: str) -> WrongUse:
    return WrongUse(
        f"{text!r} is not a replication: {why}", mend="Write dc1=3,dc2=3, or SimpleStrategy=1, with your own names."
    )
