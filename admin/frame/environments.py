"""The environment of a program that is not ours: `--exec`, `tell_command`, nodetool, Java, a password command.

Such a program gets the user's environment without the variables that are meant for mailmend. They may hold a secret: a
password in the URL of a broker, the keys of a bucket, the tokens of callers.
"""

from collections.abc import Mapping
from typing import Final

_OURS: Final = ("MAILMEND_", "AWS_")
_HEADERS_OF_TRACES: Final = ("OTEL_EXPORTER_", "_HEADERS")
"""Where OpenTelemetry's variables hold the token of a collector."""


def environment_of_others(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a program of others may have."""
    return {name: value for name, value in environment.items() if not _is_ours(name)}


def _is_ours(name: str) -> bool:
    prefix, suffix = _HEADERS_OF_TRACES
    return name.startswith(_OURS) or (name.startswith(prefix) and name.endswith(suffix))
