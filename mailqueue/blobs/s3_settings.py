"""Where a bucket is and who asks for it: checked before the first request, and told without its secrets."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from model.errors import BadSettings

_BUCKET: Final = re.compile(r"(?!.*\.\.)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_REGION: Final = re.compile(r"[A-Za-z0-9-]{1,40}")


@dataclass(frozen=True, slots=True)
class S3Settings:
    """A bucket of a store that speaks S3.

    Attributes:
        endpoint: such as `https://s3.example.org:9000`; the bucket's name is no part of it.
        region: any word will do where the store has no regions.
        allow_http: whether mails and requests may travel in the clear.
        tls_ca: the PEM file of the authority that signed the server's certificate, where the system knows it not.
        create_bucket: whether a bucket that is missing is made by the first put; for demonstrations and tests.
    """

    endpoint: str
    bucket: str
    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    region: str = "us-east-1"
    allow_http: bool = False
    tls_ca: Path | None = None
    create_bucket: bool = False

    def __post_init__(self) -> None:
        _check_endpoint(self.endpoint, allow_http=self.allow_http)
        if not _BUCKET.fullmatch(self.bucket):
            raise BadSettings(
                f"{self.bucket!r} is not the name of a bucket",
                mend="It has 3 to 63 lower-case letters, digits, '-' and '.'; the first and last are no '-' or '.'.",
            )
        if not _REGION.fullmatch(self.region):
            raise BadSettings(f"{self.region!r} is not the name of a region", mend="us-east-1 serves most stores.")
        if not (self.access_key and self.secret_key):
            raise BadSettings(f"the keys to the bucket {self.bucket} are missing", mend="Give both of them.")

    @property
    def place(self) -> str:
        """The bucket in messages."""
        return f"the bucket {self.bucket} at {self.endpoint}"


def _check_endpoint(endpoint: str, *, allow_http: bool) -> None:
    parts = urlsplit(endpoint)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise BadSettings(f"{_shown(endpoint)!r} is not an endpoint of S3", mend="Such as: https://s3.example.org")
    if parts.username or parts.password:
        raise BadSettings(
            f"the endpoint {_shown(endpoint)!r} holds a name or password", mend="The keys are settings of their own."
        )
    if parts.scheme == "http" and not allow_http:
        raise BadSettings(
            f"the endpoint {endpoint!r} is not encrypted", mend="Name its https address, or allow http for a test."
        )


def _shown(endpoint: str) -> str:
    """Without what stands before an @: it may be a password."""
    return re.sub(r"//[^/]*@", "//...@", endpoint)
