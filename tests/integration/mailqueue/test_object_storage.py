"""Blobs in a real S3 that refuses, goes away and comes back, and in a small one that answers what a test wants."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from mailmend.mailqueue.blobs import object_storage
from mailmend.mailqueue.blobs import s3 as bucket_listing
from mailmend.mailqueue.blobs.object_storage import BULK_MAX, BULK_MIN, RETRIES, create_bucket, open_s3
from mailmend.mailqueue.blobs.s3 import S3Settings
from mailmend.mailqueue.blobs.stores import NamedBlobs
from mailmend.model.blobs import BlobKind
from mailmend.model.errors import BadSettings, BlobMissing, BlobsUnreachable, BucketMissing
from mailmend.model.ids import BlobId
from tests.support.certificates import Authority, Signed, authority
from tests.support.object_stores import S3, throwaway_s3
from tests.support.s3_twin import HANG_UP, SECRET, STALL, S3Twin, s3_twin

BODY = BlobKind.BODY
PLAIN, ODD = BlobId("1_692_0f9a3c1e-7b0d-4c55-9a51-2f60d4a8c7e1"), BlobId("1_692_a//b=")
MANY = [BlobId(f"{PLAIN[:-4]}{number:04}") for number in range(BULK_MAX + BULK_MIN)]
Ask = Callable[[NamedBlobs], Awaitable[object]]


@pytest.fixture
def twin() -> Iterator[S3Twin]:
    with s3_twin() as twin:
        yield twin


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_storage, "FIRST_WAIT", timedelta(milliseconds=1))
    monkeypatch.setattr(object_storage, "LONGEST_WAIT", timedelta(milliseconds=2))
    monkeypatch.setattr(object_storage, "ATTEMPTS", 2)


async def _scan(blobs: NamedBlobs) -> list[BlobId]:
    return [blob.blob_id async for blob in blobs.scan()]


ASKS: dict[str, Ask] = {
    "put": lambda blobs: blobs.put(b"x", BODY),
    "put odd": lambda blobs: blobs.store.keep(ODD, b"x"),
    "get": lambda blobs: blobs.get(PLAIN),
    "get odd": lambda blobs: blobs.get(ODD),
    "exists": lambda blobs: blobs.exists(PLAIN),
    "exists odd": lambda blobs: blobs.exists(ODD),
    "delete": lambda blobs: blobs.delete(PLAIN),
    "remove odd": lambda blobs: blobs.store.remove(ODD),
    "remove all": lambda blobs: blobs.store.remove_all(MANY),
    "scan": _scan,
}
"""Everything that can be asked, by both of the ways that requests take."""


SHORTER = {"get", "put odd", "exists", "exists odd", "delete", "remove odd"}
"""What `make test` leaves out where a test asks more than four: another request takes the same way."""

ASKS_QUICK_MAX = 4


def asks(*names: str) -> pytest.MarkDecorator:
    left = SHORTER if len(names) > ASKS_QUICK_MAX else set[str]()
    marks = {name: [pytest.mark.thorough] if name in left else [] for name in names}
    return pytest.mark.parametrize("ask", [pytest.param(ASKS[name], id=name, marks=marks[name]) for name in names])


every_ask = asks(*ASKS)


def refused(blobs: NamedBlobs, ask: Ask) -> BlobsUnreachable:
    async def story() -> BlobsUnreachable:
        with pytest.raises(BlobsUnreachable) as caught:
            await ask(blobs)
        return caught.value

    return asyncio.run(story())


class TestRefusals:
    """A real store, which checks signatures and knows its buckets."""

    @every_ask
    @pytest.mark.parametrize("wrong", ["access_key", "secret_key"])
    def test_wrong_keys_are_reported_and_never_shown(self, s3: S3, s3_bucket: S3Settings, ask: Ask, wrong: str) -> None:
        """By each request: where it was, what to check, but no key, the right or the wrong one."""
        error = refused(open_s3(s3.settings(s3_bucket.bucket, **{wrong: "wrong-in-a-test"})), ask)
        assert s3_bucket.place in str(error)
        assert "Check the access key and the secret key" in error.mend
        assert not any(key in f"{error!r} {error}" for key in ("wrong-in-a-test", s3.access_key, s3.secret_key))

    @asks("put", "put odd", "get", "get odd", "exists", "exists odd", "scan")
    def test_a_missing_bucket_is_no_missing_blob(self, s3: S3, ask: Ask) -> None:
        """Or each mail that is looked for in it would be given up; the error says how to make one."""
        settings = s3.settings(f"t-{uuid4().hex[:12]}")
        error = refused(open_s3(settings), ask)
        assert type(error) is BucketMissing
        assert f"aws s3 mb s3://{settings.bucket} --endpoint-url {s3.endpoint}" in error.mend

    @asks("put", "put odd")
    async def test_a_bucket_is_made_by_the_first_put_where_that_is_wanted(self, s3: S3, ask: Ask) -> None:
        blobs = open_s3(s3.settings(f"t-{uuid4().hex[:12]}", create_bucket=True))
        await asyncio.gather(*(ask(blobs) for _ in range(8)))
        assert await _scan(blobs)

    @asks("get", "get odd", "exists", "exists odd", "scan")
    def test_all_else_makes_no_bucket(self, s3: S3, ask: Ask) -> None:
        settings = s3.settings(f"t-{uuid4().hex[:12]}", create_bucket=True)
        assert type(refused(open_s3(settings), ask)) is BucketMissing
        assert asyncio.run(create_bucket(settings))

    def test_a_bucket_is_made_once(self, s3: S3) -> None:
        """Asked again, the answer is that it is there; asked with wrong keys, there is none."""
        settings = s3.settings(f"t-{uuid4().hex[:12]}")
        assert asyncio.run(create_bucket(settings))
        assert not asyncio.run(create_bucket(settings))
        with pytest.raises(BlobsUnreachable, match="it answered"):
            asyncio.run(create_bucket(s3.settings(settings.bucket, secret_key="wrong-in-a-test")))


@pytest.mark.object_store
@pytest.mark.usefixtures("hurried")
def test_a_server_that_was_killed_is_reported_and_found_again() -> None:
    with throwaway_s3() as server:
        # Given blobs in a store
        blobs = open_s3(server.bucket())
        kept = [asyncio.run(blobs.put(str(number).encode(), BODY)) for number in range(5)]
        asyncio.run(blobs.store.keep(ODD, b"odd"))
        # When it is killed
        server.kill()
        # Then every request says so, and none waits for ever
        for ask in ASKS.values():
            error = refused(blobs, ask)
            assert "no answer" in error.what
            assert "Check the endpoint" in error.mend
        # When it is back, everything is there
        server.start()
        for number, blob_id in enumerate(kept):
            assert asyncio.run(blobs.get(blob_id)) == str(number).encode()
        assert asyncio.run(blobs.get(ODD)) == b"odd"


class TestTries:
    """How often a request is made."""

    @asks("put", "get", "exists", "delete", "get odd", "scan")
    @pytest.mark.parametrize("refusal", [(503, "SlowDown"), (HANG_UP, "")], ids=str)
    @pytest.mark.usefixtures("hurried")
    def test_what_may_pass_is_tried_again(self, twin: S3Twin, ask: Ask, refusal: tuple[int, str]) -> None:
        twin.objects = {PLAIN: b"x", ODD: b"x"}
        twin.refusals = [refusal]
        asyncio.run(_result(ask(open_s3(twin.settings()))))
        assert len(twin.asked) >= 2
        assert not twin.refusals

    @asks("put", "get", "exists", "delete")
    @pytest.mark.usefixtures("hurried")
    def test_the_tries_are_counted(self, twin: S3Twin, ask: Ask) -> None:
        twin.refusals = [(503, "SlowDown")] * 50
        error = refused(open_s3(twin.settings()), ask)
        assert "it answered" in error.what
        assert len(twin.asked) == 1 + RETRIES

    @every_ask
    def test_what_does_not_pass_is_not_tried_again(self, twin: S3Twin, ask: Ask) -> None:
        twin.refusals = [(403, "AccessDenied")] * 50
        assert "allowed to get" in refused(open_s3(twin.settings()), ask).mend
        assert len(twin.asked) == 1

    @asks("put", "get", "get odd", "scan")
    @pytest.mark.usefixtures("hurried")
    def test_a_server_that_does_not_answer_is_given_up(
        self, twin: S3Twin, monkeypatch: pytest.MonkeyPatch, ask: Ask
    ) -> None:
        monkeypatch.setattr(object_storage, "REQUEST_TIME_MAX", timedelta(milliseconds=50))
        monkeypatch.setattr(object_storage, "RETRY_TIME_MAX", timedelta(milliseconds=1))
        monkeypatch.setattr(object_storage, "READ_SECONDS_MAX", 0.05)
        twin.refusals = [(STALL, "")] * 50
        assert "no answer" in refused(open_s3(twin.settings()), ask).what

    async def test_no_more_requests_than_allowed_are_under_way(
        self, twin: S3Twin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(object_storage, "REQUESTS_AT_ONCE", 3)
        twin.refusals = [(STALL, "")] * 10
        blobs = open_s3(twin.settings())
        async with asyncio.TaskGroup() as group:
            for _ in range(10):
                group.create_task(blobs.put(b"x", BODY))
            await asyncio.to_thread(twin.wait_stalled, 3)
            assert not await asyncio.to_thread(twin.stalled.acquire, timeout=0.1)
            twin.refusals.clear()
            twin.go_on.set()
        assert len(twin.objects) == 10


class TestBulk:
    """Many objects are deleted a thousand at a time."""

    def test_a_thousand_objects_take_one_request(self, twin: S3Twin) -> None:
        """Those that remain after the thousands are too many for a request each as well; odd keys go the other way."""
        twin.objects = dict.fromkeys((*MANY, ODD, PLAIN), b"x")
        asyncio.run(open_s3(twin.settings()).store.remove_all([*MANY, ODD]))
        assert set(twin.objects) == {PLAIN}
        assert sorted(asked.method for asked in twin.asked) == ["DELETE", "POST", "POST"]

    def test_a_few_objects_take_a_request_each(self, twin: S3Twin) -> None:
        twin.objects = dict.fromkeys(MANY[:BULK_MIN], b"x")
        asyncio.run(open_s3(twin.settings()).store.remove_all(MANY[1:BULK_MIN]))
        assert set(twin.objects) == {MANY[0]}
        assert [asked.method for asked in twin.asked] == ["DELETE"] * (BULK_MIN - 1)

    @pytest.mark.usefixtures("hurried")
    def test_a_store_without_it_is_asked_one_by_one_and_not_so_again(self, twin: S3Twin) -> None:
        twin.objects, twin.has_bulk = dict.fromkeys(MANY, b"x"), False
        blobs = open_s3(twin.settings())
        asyncio.run(blobs.store.remove_all(MANY[: 2 * BULK_MIN]))
        assert set(twin.objects) == set(MANY[2 * BULK_MIN :])
        tries = [asked.method for asked in twin.asked].count("POST")
        asyncio.run(blobs.store.remove_all(MANY))
        assert not twin.objects
        assert [asked.method for asked in twin.asked].count("POST") == tries <= 1 + RETRIES

    def test_an_object_that_is_kept_from_us_is_reported(self, twin: S3Twin) -> None:
        twin.objects, twin.kept_from_us = dict.fromkeys(MANY, b"x"), {MANY[3]}
        error = refused(open_s3(twin.settings()), lambda blobs: blobs.store.remove_all(MANY))
        assert "it answered AccessDenied" in error.what
        assert MANY[3] in twin.objects


class TestExactness:
    """What a listing and an object say."""

    def test_a_listing_has_pages_and_spells_every_key_as_it_is(
        self, twin: S3Twin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Three keys at a time: nothing twice, nothing left out."""
        monkeypatch.setattr(bucket_listing, "PAGE_KEYS", 3)
        twin.objects = dict.fromkeys(("a//b", "a/b", "/a", "a/", "a+b", "a=", "a&b", "<a>", "é", "a b"), b"")
        assert sorted(asyncio.run(_scan(open_s3(twin.settings())))) == sorted(twin.objects)

    def test_a_listing_that_is_not_read_to_its_end_asks_for_no_more(
        self, twin: S3Twin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Others are asked for when the first is used up: whatever there is, it never is in memory."""
        monkeypatch.setattr(bucket_listing, "PAGE_KEYS", 3)
        twin.objects = {f"a{number}": b"" for number in range(9)}

        async def story() -> None:
            scan = open_s3(twin.settings()).scan()
            assert [(await anext(scan)).blob_id for _ in range(3)] == ["a0", "a1", "a2"]
            assert len(twin.asked) == 1

        asyncio.run(story())

    @pytest.mark.parametrize("blob_id", [PLAIN, ODD])
    @pytest.mark.parametrize("header", ["x-amz-meta-content-encoding", "Content-Encoding"])
    def test_a_compressed_object_is_not_taken_for_a_mail(self, twin: S3Twin, blob_id: BlobId, header: str) -> None:
        twin.objects[blob_id], twin.headers[blob_id] = b"\x28\xb5\x2f\xfd", {header: "zstd"}
        assert "is compressed (zstd)" in refused(open_s3(twin.settings()), lambda blobs: blobs.get(blob_id)).what

    @pytest.mark.parametrize("blob_id", [PLAIN, ODD])
    @pytest.mark.parametrize("value", ["aws-chunked", "identity"])
    def test_an_object_that_says_how_it_was_sent_is_read(self, twin: S3Twin, blob_id: BlobId, value: str) -> None:
        twin.objects[blob_id], twin.headers[blob_id] = b"From: a@b.c\r\n", {"Content-Encoding": value}
        assert asyncio.run(open_s3(twin.settings()).get(blob_id)) == b"From: a@b.c\r\n"


class TestSettings:
    """What has a say in a request, and what has none."""

    @every_ask
    def test_nothing_of_the_environment_has_a_say(
        self, twin: S3Twin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ask: Ask
    ) -> None:
        config = tmp_path / "config"
        config.write_text("nothing that a library of S3 could read")
        for name, value in {
            "AWS_ACCESS_KEY_ID": "another",
            "AWS_SECRET_ACCESS_KEY": "another",
            "AWS_SESSION_TOKEN": "another",
            "AWS_PROFILE": "nobody",
            "AWS_CONFIG_FILE": str(config),
            "AWS_REGION": "elsewhere-1",
            "AWS_DEFAULT_REGION": "elsewhere-1",
            "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
            "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1",
        }.items():
            monkeypatch.setenv(name, value)
        twin.objects = {PLAIN: b"x", ODD: b"x"}
        asyncio.run(_result(ask(open_s3(twin.settings()))))
        signature = twin.asked[0].headers["authorization"]
        assert "Credential=AKIATEST/" in signature
        assert "/us-east-1/s3/" in signature
        assert "x-amz-security-token" not in twin.asked[0].headers

    @every_ask
    def test_the_secret_is_neither_sent_nor_reported(self, twin: S3Twin, ask: Ask) -> None:
        twin.refusals = [(403, "SignatureDoesNotMatch")]
        error = refused(open_s3(twin.settings()), ask)
        assert SECRET not in f"{error!r} {error} {error.__cause__} {error.__cause__!r}"
        assert SECRET not in str(twin.asked)

    def test_what_is_seldom_needed_is_not_loaded(self) -> None:
        words = "import sys, mailmend.mailqueue.blobs.object_storage; sys.exit('botocore' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", words], check=False).returncode == 0


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("s3-certificates"), "s3-authority")


@pytest.fixture(scope="module")
def certificate(signer: Authority) -> Signed:
    return signer.signed("s3", "IP:127.0.0.1")


class TestTls:
    """An authority that the system does not know."""

    @asks("put", "get", "put odd", "scan")
    def test_it_is_trusted_when_it_is_named(self, signer: Authority, certificate: Signed, ask: Ask) -> None:
        with s3_twin(certificate) as twin:
            twin.objects = {PLAIN: b"x", ODD: b"x"}
            settings = twin.settings(tls_ca=signer.own.certificate, allow_http=False)
            asyncio.run(_result(ask(open_s3(settings))))
            assert twin.asked

    @asks("get", "get odd")
    @pytest.mark.usefixtures("hurried")
    def test_it_is_not_trusted_when_it_is_not(self, certificate: Signed, ask: Ask) -> None:
        with s3_twin(certificate) as twin:
            assert "tls_ca" in refused(open_s3(twin.settings(allow_http=False)), ask).mend
            assert not twin.asked

    def test_an_authority_that_cannot_be_read_is_a_bad_setting(self, twin: S3Twin, tmp_path: Path) -> None:
        with pytest.raises(BadSettings, match="cannot be read"):
            open_s3(twin.settings(tls_ca=tmp_path / "none.pem"))


def test_a_deletion_of_what_another_deleted_is_fine(twin: S3Twin) -> None:
    twin.refusals = [(404, "NoSuchKey")]
    asyncio.run(open_s3(twin.settings()).delete(PLAIN))
    with pytest.raises(BlobMissing):
        asyncio.run(open_s3(twin.settings()).get(PLAIN))


@pytest.fixture(scope="session")
def s3_bucket(s3: S3) -> S3Settings:
    return s3.bucket()


async def _result(asked: Awaitable[Any]) -> Any:
    return await asked


@pytest.mark.parametrize("pages", [0, 2])
async def test_a_listing_that_does_not_say_how_to_go_on_is_no_end(twin: S3Twin, pages: int) -> None:
    twin.objects = dict.fromkeys(MANY, b"") | {f"2{one}": b"" for one in MANY}
    twin.pages_until_cut_off = pages

    with pytest.raises(BlobsUnreachable, match="ends in the middle"):
        await _scan(open_s3(twin.settings()))
