"""A bucket of a store that speaks S3: its address, its credentials, what its refusals mean. Needs no library.

Settings are checked before the first request, and shown without their secrets. An answer's own text is never shown: it
may hold the signed string and the name of the key.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from mailmend.model.errors import BadSettings, BlobsUnreachable, BucketMissing
from mailmend.model.grammar import can_be_looked_up

_BUCKET: Final = re.compile(r"(?!.*\.\.)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_REGION: Final = re.compile(r"[A-Za-z0-9-]{1,40}")


@dataclass(frozen=True, slots=True)
class S3Settings:
    """A bucket of a store that speaks S3.

    Attributes:
        endpoint: such as `https://s3.example.org:9000`; the bucket's name is no part of it.
        access_key, secret_key: both, or neither: then they are looked for where all of Amazon's tools look.
        session_token: belongs to keys that are valid for a limited time.
        profile: the profile of the files in ~/.aws where keys are looked for; by default the
            profile of AWS_PROFILE, else `default`.
        region: any word will do where the store has no regions.
        allow_http: whether mails and requests may travel in the clear.
        tls_ca: the PEM file of the authority that signed the server's certificate, where the system does not trust it.
        create_bucket: whether a bucket that is missing is made by the first put; for demonstrations and tests.
    """

    endpoint: str
    bucket: str
    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    region: str = "us-east-1"
    allow_http: bool = False
    tls_ca: Path | None = None
    create_bucket: bool = False
    session_token: str = field(default="", repr=False)
    profile: str = ""

    def __post_init__(self) -> None:
        _check_endpoint(self.endpoint, allow_http=self.allow_http)
        if not _BUCKET.fullmatch(self.bucket):
            raise BadSettings(
                f"{self.bucket!r} is not the name of a bucket",
                mend="It has 3 to 63 lower-case letters, digits, '-' and '.'; the first and last are no '-' or '.'.",
            )
        if not _REGION.fullmatch(self.region):
            raise BadSettings(f"{self.region!r} is not the name of a region", mend="us-east-1 serves most stores.")
        if bool(self.access_key) != bool(self.secret_key) or (self.session_token and not self.access_key):
            raise BadSettings(
                f"one of the keys to the bucket {self.bucket} is missing",
                mend="Give access key and secret key; or neither, and both are found as Amazon's tools find them.",
            )

    @property
    def place(self) -> str:
        return f"the bucket {self.bucket} at {self.endpoint}"


NO_KEYS: Final = (
    "Give keys with MAILMEND_S3_ACCESS_KEY and MAILMEND_S3_SECRET_KEY, --s3-keys-file, or as Amazon's tools take them: "
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile (aws configure; --s3-profile), a web identity, the role of "
    "the machine. `aws sts get-caller-identity` says what is found here."
)


def _check_endpoint(endpoint: str, *, allow_http: bool) -> None:
    parts = urlsplit(endpoint)
    known = parts.scheme in {"http", "https"} and parts.hostname and can_be_looked_up(parts.hostname)
    if not known or parts.query or parts.fragment:
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
    """Without the part before an @: it may be a password."""
    return re.sub(r"//[^/]*@", "//...@", endpoint)


NO_BUCKET: Final = "NoSuchBucket"
NO_OBJECT: Final = frozenset({"NoSuchKey", "404", "NotFound"})
NO_BULK: Final = frozenset(
    {"NotImplemented", "MethodNotAllowed", "InvalidRequest", "MalformedXML", "400", "405", "501"}
)
"""Error codes and HTTP statuses of a store that cannot delete many objects by one request."""

EXPIRED: Final = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "400"})
"""Error codes of a store for keys that are no longer valid. 400 is one, since the answer to HEAD has no room for a
reason."""

_PLAIN: Final = frozenset({"", "identity", "aws-chunked"})
_CODE: Final = re.compile(r"<Code>\s*(\w{1,80})\s*</Code>|\(code: (\w{1,80})\)")
_STATUS: Final = re.compile(r"non-2xx status code: (\d{3})")
_KEYS: Final = (
    "Check the access key and the secret key; they have to be allowed to get, put and delete objects and to list the "
    "bucket: without the last, a store refuses to say that an object is missing."
)
_ADDRESS: Final = "Check the endpoint: is it the right address, does it answer, is its certificate known (tls_ca)?"

_LOG: Final = "Look at the store's own log for the reason."

_MENDS: Final[Mapping[str, str]] = {
    NO_BUCKET: "Create it: aws s3 mb s3://{bucket} --endpoint-url {endpoint} (or set create_bucket, for a test).",
    "AccessDenied": _KEYS,
    "AccountProblem": _KEYS,
    "AllAccessDisabled": _KEYS,
    **dict.fromkeys(EXPIRED, "Log in anew (aws sso login, or what made the session token), and set the new token."),
    "InvalidAccessKeyId": _KEYS,
    "SignatureDoesNotMatch": _KEYS,
    "400": f"Keys that were valid for a while may be over: log in anew (aws sso login). {_LOG}",
    "401": _KEYS,
    "403": _KEYS,
    "RequestTimeTooSkewed": "Mend the clock of this machine (chronyc tracking): signatures are valid for minutes only.",
    "AuthorizationHeaderMalformed": "Check the region: the store has another one for this bucket.",
    "PermanentRedirect": "Check the region and the endpoint: the bucket is somewhere else.",
    "301": "Check the region and the endpoint: the bucket is somewhere else.",
    "SlowDown": "The store asks for fewer requests: wait, or run fewer consumers.",
    "503": _LOG,
    "InsufficientStorage": "The store is full: make room.",
    "507": "The store is full: make room.",
}


def code_in(text: str) -> str:
    """S3's error code in a library's message, else the HTTP status, else ""."""
    found = _CODE.search(text) or _STATUS.search(text)
    if found is None:
        return ""
    code: str = next(filter(None, found.groups()))
    return code


def failure(settings: S3Settings, code: str, cause: str = "") -> BlobsUnreachable:
    """The error to raise, in words for an operator.

    Args:
        settings: where it was tried.
        code: of S3, or a status of HTTP; empty where there was no answer.
        cause: why there was none.
    """
    if code:
        mend = _MENDS.get(code, _LOG)
        why = f"it answered {code}"
    else:
        mend = _ADDRESS
        why = f"no answer ({cause or 'the connection failed'})"
    kind = BucketMissing if code == NO_BUCKET else BlobsUnreachable
    return kind(
        f"{settings.place} cannot be used: {why}",
        mend=mend.format(bucket=settings.bucket, endpoint=settings.endpoint),
    )


def cut_off(settings: S3Settings) -> BlobsUnreachable:
    return BlobsUnreachable(
        f"the listing of {settings.place} ends in the middle: a page says that there are more, and not how to go on",
        mend="Ask again; where that does not help, the store, or a proxy before it, does not list as S3 does.",
    )


def refuse_compressed(settings: S3Settings, blob_id: str, metadata: Mapping[str, str]) -> None:
    """Refuse a blob that a newer James has compressed, as the object's metadata says.

    Raises:
        BlobsUnreachable: its bytes are not the bytes of the mail.
    """
    for name, encoding in metadata.items():
        if name.lower() == "content-encoding" and encoding.lower() not in _PLAIN:
            raise BlobsUnreachable(
                f"the blob {blob_id} in {settings.place} is compressed ({encoding}), which mailmend does not read",
                mend="Let James store blobs uncompressed (its compression.enabled); its own consumers take this mail.",
            )
