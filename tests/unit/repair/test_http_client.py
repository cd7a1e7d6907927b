"""Requests to other servers: proxies, limits, certificates, and errors without secrets."""

import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mailmend
from mailmend.model.errors import BadSettings
from mailmend.repair.http_client import HttpResponse, NoAnswer, ask, download
from tests.support.answering import answering
from tests.support.certificates import Authority, authority
from tests.support.proxies import SmallServer, set_proxies, small_server

SECRET = "of-nobody-at-all"
FAR = "api.example.org"
"""A host that no DNS knows: what reaches it has gone through a proxy."""


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallServer]:
    """A proxy that answers in place of any host; no variable names it yet."""
    set_proxies(monkeypatch)
    with small_server(content=b"by the proxy") as server:
        yield server


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("certificates"), "authority")


def get(url: str, *, seconds: float = 30, bytes_max: int = 1000, trusted: ssl.SSLContext | None = None) -> HttpResponse:
    return ask("GET", url, seconds=seconds, bytes_max=bytes_max, trusted=trusted)


class TestProxies:
    """Which requests go through a proxy."""

    @pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
    def test_a_request_to_another_host_goes_through_the_proxy(
        self, proxy: SmallServer, monkeypatch: pytest.MonkeyPatch, variable: str
    ) -> None:
        set_proxies(monkeypatch, **{variable: proxy.url})

        assert get(f"http://{FAR}:15672/api?x=%2F") == HttpResponse(200, b"by the proxy")
        assert proxy.asked == [f"GET http://{FAR}:15672/api?x=%2F"]

    def test_https_goes_through_a_tunnel_and_its_certificate_is_verified(
        self, proxy: SmallServer, monkeypatch: pytest.MonkeyPatch, signer: Authority
    ) -> None:
        # Given a server with a certificate for a far host, behind a proxy that asks for a login
        signed = signer.signed("far", f"DNS:{FAR}")
        own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        own.load_cert_chain(signed.certificate, signed.key)
        trusted = ssl.create_default_context(cafile=signer.file)
        with (
            small_server(content=b"behind", wrap=lambda listening: own.wrap_socket(listening, server_side=True)) as far,
            small_server(behind=far.port) as tunnel,
        ):
            set_proxies(monkeypatch, HTTPS_PROXY=f"http://me:{SECRET}@127.0.0.1:{tunnel.port}", HTTP_PROXY=proxy.url)
            # When the far host is asked
            answer = ask("POST", f"https://{FAR}/in", b"{}", seconds=30, bytes_max=99, trusted=trusted)
            # Then the proxy sees the host alone, with its own login, and the server the request
            assert answer == HttpResponse(200, b"behind")
            assert tunnel.asked == [f"CONNECT {FAR}:443"]
            assert tunnel.seen[0]["Proxy-Authorization"].startswith("Basic ")
            assert far.asked == ["POST /in"]
            assert "Proxy-Authorization" not in far.seen[0]
            assert proxy.asked == []
            # And a server that the caller does not trust is not asked at all
            with pytest.raises(NoAnswer, match="certificate verify failed"):
                get(f"https://{FAR}/in")
            assert far.asked == ["POST /in"]

    def test_the_file_of_the_environment_says_whom_to_trust(
        self, monkeypatch: pytest.MonkeyPatch, signer: Authority
    ) -> None:
        signed = signer.signed("own", "IP:127.0.0.1")
        own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        own.load_cert_chain(signed.certificate, signed.key)
        monkeypatch.setenv("SSL_CERT_FILE", signer.file)
        with small_server(wrap=lambda listening: own.wrap_socket(listening, server_side=True)) as server:
            assert get(server.url.replace("http:", "https:")) == HttpResponse(200, b"{}")

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
    def test_a_request_to_this_machine_uses_no_proxy(
        self, proxy: SmallServer, monkeypatch: pytest.MonkeyPatch, host: str
    ) -> None:
        set_proxies(monkeypatch, HTTP_PROXY=proxy.url, ALL_PROXY=proxy.url)
        with small_server(content=b"here") as here:
            assert get(f"http://{host}:{here.port}/").content == b"here"
        assert proxy.asked == []

    @pytest.mark.parametrize("exception", ["*", "0.0.0.0/8", "0.0.0.0", "other.example, 0.0.0.0:{port}"])
    def test_an_exception_uses_no_proxy(
        self, proxy: SmallServer, monkeypatch: pytest.MonkeyPatch, exception: str
    ) -> None:
        """0.0.0.0 leads to this machine too, but is not among its addresses."""
        with small_server(content=b"direct") as server:
            url = f"http://0.0.0.0:{server.port}/"
            set_proxies(monkeypatch, HTTP_PROXY=proxy.url, NO_PROXY="other.example")
            assert get(url).content == b"by the proxy"

            set_proxies(monkeypatch, HTTP_PROXY=proxy.url, NO_PROXY=exception.format(port=server.port))
            assert get(url).content == b"direct"
        assert len(proxy.asked) == 1

    def test_a_proxy_that_is_away_is_named_without_its_login(self, monkeypatch: pytest.MonkeyPatch) -> None:
        set_proxies(monkeypatch, HTTP_PROXY=f"http://me:{SECRET}@127.0.0.1:1")

        with pytest.raises(NoAnswer) as caught:
            get(f"http://{FAR}/")
        assert caught.value.what == "[Errno 111] Connection refused (asked through the proxy at 127.0.0.1:1)"

    def test_a_refusal_by_the_proxy_is_reported_as_such(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with small_server(407) as refusing:
            set_proxies(monkeypatch, HTTPS_PROXY=refusing.url)
            with pytest.raises(NoAnswer) as caught:
                get(f"https://{FAR}/")
        reason = f"the proxy at 127.0.0.1:{refusing.port} answers: 407 Proxy Authentication Required"
        assert caught.value.what == reason

    @pytest.mark.parametrize("value", [f"ftp://me:{SECRET}@proxy.example", f"http://me:{SECRET}@proxy.example:x"])
    def test_a_variable_that_holds_no_address_is_refused_without_it(
        self, monkeypatch: pytest.MonkeyPatch, value: str
    ) -> None:
        set_proxies(monkeypatch, HTTP_PROXY=value)

        with pytest.raises(BadSettings, match="HTTP_PROXY") as caught:
            get(f"http://{FAR}/")
        assert SECRET not in str(caught.value)

    def test_a_socks_proxy_is_given_the_name_of_the_host(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = list[bytes]()

        def answer(connection: socket.socket) -> None:
            """One request by SOCKS 5 (RFC 1928) without a login, and the server's answer."""
            asked.append(connection.recv(65536))
            connection.sendall(b"\x05\x00")
            asked.append(connection.recv(65536))
            connection.sendall(b"\x05\x00\x00\x01" + bytes(6))
            asked.append(connection.recv(65536))
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nfar")

        with answering(answer) as port:
            set_proxies(monkeypatch, ALL_PROXY=f"socks5://127.0.0.1:{port}")
            assert get(f"http://{FAR}/x") == HttpResponse(200, b"far")
        assert asked[:2] == [b"\x05\x01\x00", b"\x05\x01\x00\x03\x0f" + FAR.encode() + b"\x00\x50"]
        assert asked[2].startswith(b"GET /x HTTP/1.1\r\n")


class TestLimits:
    """How long an answer may take, and how much of it is read."""

    def test_a_server_that_sends_a_byte_now_and_then_is_left(self) -> None:
        """Each wait is short; the whole answer would take for ever."""

        def drip(connection: socket.socket) -> None:
            connection.settimeout(0.01)
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            while True:
                try:
                    if not connection.recv(65536):
                        return
                except TimeoutError:
                    connection.sendall(b"X-Wait: 1\r\n")
                except OSError:
                    return

        with answering(drip) as port, pytest.raises(NoAnswer) as caught:
            get(f"http://127.0.0.1:{port}/", seconds=0.2)
        assert caught.value.what == "the answer is not complete after 0.2 s"

    def test_content_that_is_cut_by_the_limit_is_no_answer(self) -> None:
        """The answer names no length, so it ends with its connection."""

        def stall(connection: socket.socket) -> None:
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nhalf")
            connection.settimeout(0.01)
            while True:
                try:
                    if not connection.recv(65536):
                        return
                except TimeoutError:
                    connection.sendall(b".")
                except OSError:
                    return

        with answering(stall) as port, pytest.raises(NoAnswer, match="not complete"):
            get(f"http://127.0.0.1:{port}/", seconds=0.2, bytes_max=1_000_000)

    @pytest.mark.parametrize(("bytes_max", "content"), [(0, b""), (4, b"0123"), (10, b"0123456789")])
    def test_content_is_read_up_to_its_limit(self, bytes_max: int, content: bytes) -> None:
        with small_server(content=b"0123456789") as server:
            assert get(server.url, bytes_max=bytes_max).content == content

    def test_compressed_content_is_neither_wanted_nor_expanded(self) -> None:
        with small_server(content=b"\x1f\x8b", headers={"Content-Encoding": "gzip"}) as server:
            assert get(server.url).content == b"\x1f\x8b"
        assert server.seen[0]["Accept-Encoding"] == "identity"


class TestErrors:
    """What a person reads where there is no answer."""

    @pytest.mark.parametrize(
        ("said", "reason"),
        [
            (b"", "Server disconnected without sending a response."),
            (b"\x15\x03\x01\x00\x02\x02\x46", "what answers there does not speak HTTP"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "peer closed connection"),
        ],
    )
    def test_a_server_that_does_not_speak_http_is_reported_as_such(self, said: bytes, reason: str) -> None:
        def answer(connection: socket.socket) -> None:
            connection.recv(65536)
            connection.sendall(said)

        with answering(answer) as port, pytest.raises(NoAnswer, match=reason):
            get(f"http://127.0.0.1:{port}/")

    @pytest.mark.parametrize("value", [f"{SECRET}\n", f"{SECRET}\N{SNOWMAN}"])
    def test_a_header_that_is_refused_is_not_shown(self, value: str) -> None:
        with small_server() as server, pytest.raises(NoAnswer) as caught:
            ask("GET", server.url, seconds=30, bytes_max=9, headers={"Authorization": f"Bearer {value}"})
        assert caught.value.what == "the address or a header has characters that HTTP does not allow"
        assert server.asked == []

    def test_a_login_in_the_address_is_not_sent(self) -> None:
        with small_server() as server:
            get(server.url.replace("//", f"//me:{SECRET}@"))
        assert "Authorization" not in server.seen[0]

    def test_a_redirect_is_an_answer(self) -> None:
        with small_server(302, headers={"Location": "http://elsewhere.example/"}) as server:
            assert get(server.url).status == 302


class TestDownloads:
    """A file, whole."""

    def test_a_redirect_is_followed_without_the_login(self, tmp_path: Path) -> None:
        with small_server(content=b"jar") as store, small_server(302, headers={"Location": f"{store.url}/x"}) as mirror:
            status = download(
                f"{mirror.url}/a.jar", tmp_path / "a", wait_seconds=30, headers={"Authorization": f"Basic {SECRET}"}
            )

        assert (status, (tmp_path / "a").read_bytes()) == (200, b"jar")
        assert mirror.seen[0]["Authorization"] == f"Basic {SECRET}"
        assert (store.asked, "Authorization" in store.seen[0]) == (["GET /x"], False)

    def test_an_answer_without_the_file_writes_none(self, tmp_path: Path) -> None:
        with small_server(404) as server:
            assert download(server.url, tmp_path / "a", wait_seconds=30) == 404
        assert not (tmp_path / "a").exists()

    def test_a_file_that_ends_early_is_no_answer(self, tmp_path: Path) -> None:
        def half(connection: socket.socket) -> None:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")

        with answering(half) as port, pytest.raises(NoAnswer, match="received 4 bytes, expected 9"):
            download(f"http://127.0.0.1:{port}/", tmp_path / "a", wait_seconds=30)

    def test_a_place_that_cannot_be_written_is_no_fault_of_the_server(self, tmp_path: Path) -> None:
        with small_server() as server, pytest.raises(FileNotFoundError):
            download(server.url, tmp_path / "none" / "a", wait_seconds=30)


def test_the_library_comes_with_the_first_request() -> None:
    code = "import sys, mailmend.repair.http_client; print([name for name in sys.modules if 'httpx' in name])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ended.stdout == "[]\n"


def test_no_other_module_sends_requests() -> None:
    """The import contract holds for httpx2; this one for the standard library."""
    senders = re.compile(r"^\s*(?:import|from) (?:http\.client|urllib\.request|http import client)\b", re.MULTILINE)
    packages = Path(mailmend.__file__).parent
    found = []
    for module in packages.glob("*/**/*.py"):
        if senders.search(module.read_text(encoding="utf-8")):
            found.append(module.name)

    assert found == []
