"""The keys of a bucket as people have them: each way that Amazon's tools know, against a real store that speaks S3.

Who gives keys (a machine's metadata, a container's, the token service) is a small server of ours: the library that asks
them is told their address by its own variables.
"""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from mailmend.mailqueue.blobs.object_storage import BULK_MIN, KEYS_AGAIN_SECONDS, open_s3
from mailmend.mailqueue.blobs.s3 import S3Settings
from mailmend.mailqueue.blobs.stores import NamedBlobs
from mailmend.model.blobs import BlobKind
from mailmend.model.errors import BlobsUnreachable, ExitCode
from mailmend.model.ids import BlobId
from tests.support.object_stores import S3
from tests.support.s3_twin import S3Twin, s3_twin
from tests.support.thorough import first_of

pytestmark = pytest.mark.object_store

ODD = BlobId("1_692_a//b=")
SECRET_TOKEN = "a-token-that-nobody-may-read"


@dataclass(slots=True)
class KeyServer:
    """Gives keys as a machine, a container and the token service do.

    Attributes:
        token: a session token to go with the keys; numbered where `renews`.
        renews: the keys end so soon that both libraries ask again for each request.
        refuses: whether it says no.
        asked: what for, in order.
    """

    address: str = ""
    access_key: str = "AKIATEST"
    secret_key: str = "a-secret-of-tests"
    token: str = SECRET_TOKEN
    renews: bool = False
    refuses: bool = False
    asked: list[str] = field(default_factory=list)

    def keys(self) -> dict[str, str]:
        token = f"{self.token}-{len(self.asked)}" if self.renews else self.token
        # Keys that have ended when they arrive are an error: a minute is more than a busy machine needs.
        ends = datetime.now(UTC) + (timedelta(minutes=1) if self.renews else timedelta(hours=1))
        known = {"AccessKeyId": self.access_key, "SecretAccessKey": self.secret_key}
        return {**known, "Token": token, "Expiration": f"{ends:%Y-%m-%dT%H:%M:%SZ}", "Code": "Success"}

    def answer(self, path: str, body: str) -> tuple[int, str]:
        match path:
            case "/latest/api/token":
                return 200, "metadata-token"
            case "/latest/meta-data/iam/security-credentials/":
                return 200, "mail-role"
            case "/latest/meta-data/iam/security-credentials/mail-role" | "/container":
                self.asked.append(path)
                return (403, "{}") if self.refuses else (200, json.dumps(self.keys()))
            case _:
                action = parse_qs(body)["Action"][0]
                self.asked.append(action)
                if self.refuses:
                    return 403, "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>"
                keys = {**self.keys(), "SessionToken": self.token}
                inner = "".join(f"<{name}>{keys[name]}</{name}>" for name in _OF_TOKEN_SERVICE)
                result = f"<{action}Result><Credentials>{inner}</Credentials></{action}Result>"
                return 200, f"<{action}Response>{result}</{action}Response>"


_OF_TOKEN_SERVICE = ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")


@pytest.fixture
def gives() -> Iterator[KeyServer]:
    given = KeyServer()

    class Answering(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            status, text = given.answer(self.path, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_PUT = do_POST = _answer  # noqa: N815 - the base class looks for these names

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    server.daemon_threads = True
    given.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield given
    server.shutdown()
    thread.join()
    server.server_close()


Environment = Callable[..., None]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Environment:
    """Nothing of this machine's own is found; what a test sets is."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    files = {"AWS_CONFIG_FILE": tmp_path / "config", "AWS_SHARED_CREDENTIALS_FILE": tmp_path / "credentials"}
    for name, value in {"HOME": tmp_path, "AWS_EC2_METADATA_DISABLED": "true", **files}.items():
        monkeypatch.setenv(name, str(value))

    def put(**values: str) -> None:
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    return put


Way = Callable[[KeyServer, Environment, Path], dict[str, str]]
"""Makes keys findable; what the settings say beside."""


def _section(keys: KeyServer, name: str = "default") -> str:
    token = f"aws_session_token = {keys.token}\n"
    return f"[{name}]\naws_access_key_id = {keys.access_key}\naws_secret_access_key = {keys.secret_key}\n{token}"


def _environment(keys: KeyServer, put: Environment, _: Path) -> dict[str, str]:
    put(AWS_ACCESS_KEY_ID=keys.access_key, AWS_SECRET_ACCESS_KEY=keys.secret_key, AWS_SESSION_TOKEN=keys.token)
    return {}


def _default_profile(keys: KeyServer, _: Environment, home: Path) -> dict[str, str]:
    (home / "credentials").write_text(_section(keys))
    return {}


def _profile_of_the_environment(keys: KeyServer, put: Environment, home: Path) -> dict[str, str]:
    (home / "credentials").write_text(_section(keys, "mail"))
    put(AWS_PROFILE="mail")
    return {}


def _named_profile(keys: KeyServer, put: Environment, home: Path) -> dict[str, str]:
    """Outweighs what stands in the environment."""
    (home / "credentials").write_text(_section(keys, "mail"))
    put(AWS_ACCESS_KEY_ID="other", AWS_SECRET_ACCESS_KEY="other")
    return {"profile": "mail"}


def _process(keys: KeyServer, _: Environment, home: Path) -> dict[str, str]:
    said = {**keys.keys(), "Version": 1, "SessionToken": keys.token}
    (home / "said.json").write_text(json.dumps(said))
    (home / "config").write_text(f"[default]\ncredential_process = cat {home / 'said.json'}\n")
    return {}


def _role_of_a_profile(keys: KeyServer, put: Environment, home: Path) -> dict[str, str]:
    (home / "credentials").write_text(_section(keys, "base"))
    (home / "config").write_text(
        "[profile mail]\nrole_arn = arn:aws:iam::123456789012:role/mail\nsource_profile = base\n"
    )
    put(AWS_ENDPOINT_URL_STS=keys.address)
    return {"profile": "mail"}


def _web_identity(keys: KeyServer, put: Environment, home: Path) -> dict[str, str]:
    (home / "identity").write_text("a signed statement of who runs this")
    put(
        AWS_ENDPOINT_URL_STS=keys.address,
        AWS_ROLE_ARN="arn:aws:iam::123456789012:role/mail",
        AWS_WEB_IDENTITY_TOKEN_FILE=str(home / "identity"),
    )
    return {}


def _container(keys: KeyServer, put: Environment, _: Path) -> dict[str, str]:
    put(AWS_CONTAINER_CREDENTIALS_FULL_URI=f"{keys.address}/container")
    return {}


def _instance_role(keys: KeyServer, put: Environment, _: Path) -> dict[str, str]:
    put(AWS_EC2_METADATA_DISABLED="false", AWS_EC2_METADATA_SERVICE_ENDPOINT=keys.address)
    return {}


def _given(keys: KeyServer, put: Environment, _: Path) -> dict[str, str]:
    """Static keys with a token: outweigh all that could be found."""
    put(AWS_ACCESS_KEY_ID="other", AWS_SECRET_ACCESS_KEY="other")
    return {"access_key": keys.access_key, "secret_key": keys.secret_key, "session_token": keys.token}


WAYS: tuple[Way, ...] = (
    _environment,
    _web_identity,
    _instance_role,
    _default_profile,
    _profile_of_the_environment,
    _named_profile,
    _process,
    _role_of_a_profile,
    _container,
    _given,
)
every_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.strip("_"))


async def _use(blobs: NamedBlobs) -> None:
    """By both libraries: quick requests, and exact ones."""
    blob_id = await blobs.put(b"x", BlobKind.BODY)
    assert await blobs.get(blob_id) == b"x"
    assert blob_id in [blob.blob_id async for blob in blobs.scan()]


@pytest.mark.parametrize("way", first_of(WAYS, quick=3), ids=lambda way: way.__name__.strip("_"))
def test_a_real_store_lets_in_who_has_keys(
    s3: S3, gives: KeyServer, environment: Environment, tmp_path: Path, way: Way
) -> None:
    gives.access_key, gives.secret_key = s3.access_key, s3.secret_key
    bucket = s3.bucket().bucket

    settings = s3.settings(bucket, **{"access_key": "", "secret_key": "", **way(gives, environment, tmp_path)})

    asyncio.run(_use(open_s3(settings)))


@pytest.fixture
def twin() -> Iterator[S3Twin]:
    with s3_twin() as twin:
        yield twin


def bucket_of(twin: S3Twin, **settings: str) -> S3Settings:
    return twin.settings(**{"access_key": "", "secret_key": "", **settings})


def tokens(twin: S3Twin) -> list[str]:
    return [asked.headers["x-amz-security-token"] for asked in twin.asked]


@every_way
def test_a_session_token_goes_with_each_request_and_is_never_shown(
    twin: S3Twin, gives: KeyServer, environment: Environment, tmp_path: Path, way: Way
) -> None:
    settings = bucket_of(twin, **way(gives, environment, tmp_path))
    asyncio.run(_use(open_s3(settings)))
    twin.refusals = [(403, "AccessDenied")]

    with pytest.raises(BlobsUnreachable) as refused:
        asyncio.run(open_s3(settings).get(BlobId("x")))

    assert set(tokens(twin)) == {SECRET_TOKEN}
    shown = f"{settings!r} {refused.value!r} {refused.value}"
    assert not any(secret in shown for secret in (gives.access_key, gives.secret_key, SECRET_TOKEN))


@pytest.mark.parametrize("blob_id", [BlobId("1_692_a"), ODD], ids=["quickly", "exactly"])
def test_keys_that_end_are_renewed(twin: S3Twin, gives: KeyServer, environment: Environment, blob_id: BlobId) -> None:
    _container(gives, environment, Path())
    gives.renews = True

    async def twice() -> None:
        blobs = open_s3(bucket_of(twin))
        await blobs.store.keep(blob_id, b"x")
        await asyncio.sleep(KEYS_AGAIN_SECONDS)
        await blobs.store.keep(blob_id, b"x")

    asyncio.run(twice())

    first, second = tokens(twin)
    assert first != second


REQUESTS: dict[str, Callable[[NamedBlobs], Awaitable[object]]] = {
    "quickly": lambda blobs: blobs.store.keep(BlobId("1_692_a"), b"x"),
    "exactly": lambda blobs: blobs.store.keep(ODD, b"x"),
    "age": lambda blobs: blobs.store.stored_at(BlobId("1_692_a")),
    "many": lambda blobs: blobs.store.remove_all([BlobId(f"1_692_{number}") for number in range(BULK_MIN)]),
}


@pytest.mark.parametrize("request_of", REQUESTS.values(), ids=REQUESTS)
def test_a_file_that_holds_a_new_token_is_read_again(
    twin: S3Twin,
    gives: KeyServer,
    environment: Environment,
    tmp_path: Path,
    request_of: Callable[[NamedBlobs], Awaitable[object]],
) -> None:
    """The store calls the old one expired: the request is made again, once."""
    _default_profile(gives, environment, tmp_path)

    async def story() -> None:
        blobs = open_s3(bucket_of(twin))
        await request_of(blobs)
        gives.token = "the-new-one"
        _default_profile(gives, environment, tmp_path)
        twin.refusals = [(400, "ExpiredToken")]
        await request_of(blobs)
        twin.refusals = [(400, "ExpiredToken")] * 2
        with pytest.raises(BlobsUnreachable, match=r"it answered (ExpiredToken|400)") as refused:
            await request_of(blobs)
        assert "aws sso login" in refused.value.mend

    asyncio.run(story())

    assert tokens(twin)[:3] == [SECRET_TOKEN, SECRET_TOKEN, "the-new-one"]


@pytest.mark.parametrize("blob_id", [BlobId("1_692_a"), ODD], ids=["quickly", "exactly"])
@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("refused", "cannot be had: ClientError (AccessDenied)"),
        ("no process", "cannot be had: CredentialRetrievalError (custom-process)"),
        ("nothing", "no keys to the bucket twin"),
        ("no profile", "cannot be had: ProfileNotFound (none)"),
        ("no file", "identity: No such file or directory"),
    ],
)
def test_keys_that_cannot_be_had_are_reported_with_the_ways(  # noqa: PLR0917 - pytest gives them by name
    twin: S3Twin, gives: KeyServer, environment: Environment, tmp_path: Path, way: str, said: str, blob_id: BlobId
) -> None:
    """Who gives them refuses, there are none, or what is named is not there: no request is made without."""
    gives.refuses = True
    settings = bucket_of(twin, profile="none" if way == "no profile" else "")
    if way == "no process":
        (tmp_path / "config").write_text("[default]\ncredential_process = false\n")
    if way in {"refused", "no file"}:
        _web_identity(gives, environment, tmp_path)
    if way == "no file":
        (tmp_path / "identity").unlink()

    with pytest.raises(BlobsUnreachable) as refused:
        asyncio.run(open_s3(settings).store.keep(blob_id, b"x"))

    assert said in refused.value.what
    assert "aws sts get-caller-identity" in refused.value.mend
    assert (refused.value.exit_code, twin.asked) == (ExitCode.CANNOT_REACH, [])
    assert gives.secret_key not in f"{refused.value}"
