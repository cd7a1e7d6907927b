"""Which servers `mailmend local up --with` knows."""

from collections.abc import Mapping
from typing import Final

from admin.local.rabbitmq import RabbitMq
from admin.local.services import Service

_KINDS: Final[tuple[Service, ...]] = (RabbitMq(),)

SERVICES: Final[Mapping[str, Service]] = {kind.name: kind for kind in _KINDS}
"""Every kind of server beside Cassandra, by the name that a person types."""
