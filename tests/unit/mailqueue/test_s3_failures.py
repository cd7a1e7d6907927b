"""What a refusal of S3 means: told as what to mend, without the answer's own text."""

import pytest

from mailmend.mailqueue.blobs.s3 import S3Settings, code_in, failure, refuse_compressed
from mailmend.model.errors import BlobsUnreachable, BucketMissing, ExitCode

SETTINGS = S3Settings("https://s3.example.org", "mail-blobs", "AKIA", "secret")
ANSWER = (
    "The operation lacked the necessary privileges to complete for path q: Error performing PUT "
    "http://host/b/q in 3.06ms - Server returned non-2xx status code: 403 Forbidden: <?xml version='1.0'?>"
    "<Error><Code>SignatureDoesNotMatch</Code><StringToSign>AWS4-HMAC-SHA256\n20261121T013553Z</StringToSign></Error>"
)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (ANSWER, "SignatureDoesNotMatch"),
        ("x - Server returned non-2xx status code: 503 Service Unavailable: ", "503"),
        ("x - HTTP error: error sending request", ""),
        ("<Code> NoSuchBucket </Code>", "NoSuchBucket"),
        ("<Code></Code> status code 9", ""),
        ("", ""),
    ],
)
def test_the_code_is_found_in_a_librarys_words(text: str, code: str) -> None:
    """That of S3 before the status of HTTP; a connection that failed has none."""
    assert code_in(text) == code


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("SignatureDoesNotMatch", "Check the access key and the secret key"),
        ("InvalidAccessKeyId", "Check the access key and the secret key"),
        ("AccessDenied", "allowed to get"),
        ("403", "Check the access key and the secret key"),
        ("400", "aws sso login"),
        ("NoSuchBucket", "aws s3 mb s3://mail-blobs --endpoint-url https://s3.example.org"),
        ("RequestTimeTooSkewed", "clock"),
        ("AuthorizationHeaderMalformed", "region"),
        ("301", "region"),
        ("SlowDown", "fewer"),
        ("503", "own log"),
        ("507", "make room"),
        ("InternalError", "own log"),
    ],
)
def test_each_refusal_says_what_to_mend(code: str, words: str) -> None:
    error = failure(SETTINGS, code)
    assert SETTINGS.place in error.what
    assert f"it answered {code}" in error.what
    assert words in error.mend
    assert error.exit_code is ExitCode.CANNOT_REACH


def test_no_answer_is_reported_with_its_cause() -> None:
    error = failure(SETTINGS, "", "dns error")
    assert "no answer (dns error)" in error.what
    assert "Check the endpoint" in error.mend
    assert "the connection failed" in failure(SETTINGS, "").what


def test_a_missing_bucket_is_a_kind_of_its_own() -> None:
    assert type(failure(SETTINGS, "NoSuchBucket")) is BucketMissing
    assert type(failure(SETTINGS, "NoSuchKey")) is BlobsUnreachable


def test_a_compressed_blob_is_no_missing_one() -> None:
    with pytest.raises(BlobsUnreachable) as refused:
        refuse_compressed(SETTINGS, "1_692_x", {"Content-Encoding": "zstd"})
    error = refused.value
    assert type(error) is BlobsUnreachable
    assert "1_692_x" in error.what
    assert "zstd" in error.what
