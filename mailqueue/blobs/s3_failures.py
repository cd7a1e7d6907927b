"""What a store that speaks S3 means by a refusal, and what a person can do about it. Pure.

The answer's own text is not shown: stores put what was signed, and the name of the key, into it.
"""

import re
from collections.abc import Mapping
from typing import Final

from mailqueue.blobs.s3_settings import S3Settings
from model.errors import BlobsUnreachable, BucketMissing

NO_BUCKET: Final = "NoSuchBucket"
NO_OBJECT: Final = frozenset({"NoSuchKey", "404", "NotFound"})
NO_BULK: Final = frozenset(
    {"NotImplemented", "MethodNotAllowed", "InvalidRequest", "MalformedXML", "400", "405", "501"}
)
"""What a store says that cannot delete many objects by one request."""

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
    "ExpiredToken": _KEYS,
    "InvalidAccessKeyId": _KEYS,
    "SignatureDoesNotMatch": _KEYS,
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
    """The code of S3 in a library's message, else the status of HTTP, else nothing."""
    found = _CODE.search(text) or _STATUS.search(text)
    return next(filter(None, found.groups())) if found else ""


def failure(settings: S3Settings, code: str, cause: str = "") -> BlobsUnreachable:
    """The error for a person.

    Args:
        settings: where it was tried.
        code: of S3, or a status of HTTP; empty where there was no answer.
        cause: why there was none.
    """
    mend = _MENDS.get(code, _LOG if code else _ADDRESS)
    why = f"it answered {code}" if code else f"no answer ({cause or 'the connection failed'})"
    kind = BucketMissing if code == NO_BUCKET else BlobsUnreachable
    return kind(
        f"{settings.place} cannot be used: {why}",
        mend=mend.format(bucket=settings.bucket, endpoint=settings.endpoint),
    )


def compressed(settings: S3Settings, blob_id: str, encoding: str) -> BlobsUnreachable:
    """The error for a blob that is not what it was when it was put."""
    return BlobsUnreachable(
        f"the blob {blob_id} in {settings.place} is compressed ({encoding}), which mailmend does not read",
        mend="Let James store blobs as they are (its compression.enabled), and its own consumers take this mail.",
    )
