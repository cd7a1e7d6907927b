"""Which servers `mailmend local up --with` knows."""

from collections.abc import Mapping
from typing import Final

from admin.local.object_store import ObjectStore
from admin.local.rabbitmq import RabbitMq
from admin.local.services import Service
from model.errors import WrongUse

_KINDS: Final[tuple[Service, ...]] = (RabbitMq(), ObjectStore())

SERVICES: Final[Mapping[str, Service]] = {kind.name: kind for kind in _KINDS}
"""Every kind of server beside Cassandra, by the name that a person types."""


def parse_names(text: str) -> tuple[str, ...]:
    """The names in a text with commas, each once, in the order of `SERVICES`.

    Raises:
        WrongUse: one of them is not known, or there is none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in SERVICES]
    if unknown or not names:
        raise WrongUse(f"{(unknown or [text])[0]!r} is none of the servers that can be started: {known_names()}")
    return tuple(name for name in SERVICES if name in names)


def known_names() -> str:
    """What may stand after `--with`."""
    return ", ".join(SERVICES)
