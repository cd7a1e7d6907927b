"""Clients that log in at a listener, by TLS on loopback, and the file of users."""

import asyncio
import logging
import smtplib
import ssl
import threading
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mailmend.delivery.policy.file.reading import policies_of
from mailmend.delivery.smtp.incoming import logins, users
from mailmend.delivery.smtp.incoming.listener import ListenerTls
from mailmend.delivery.smtp.incoming.users import ListenerUsers, PasswordHash, parse_users, user_line
from mailmend.mailqueue.codec import attribute_value
from mailmend.model.errors import WrongUse
from tests.support.certificates import Authority, Signed, authority
from tests.support.mail_clients import HOST, LIMIT_SECONDS, MAIL, MailClient, MailEntrance, ShiftedClock, entrance

CONTENT = b"Subject: hello\r\n\r\nThe body.\r\n"
ANN, SECRET = "ann@example.org", "correct horse"
PASSLIB = "$scrypt$ln=10,r=8,p=1$c2FsdHNhbHRzYWx0c2FsdA$punalsgLVDmabDdlbwVieUjVAmz5/abwyjX3gfy3Xlo"
"""Of the password `secret`, by `hashlib` alone."""


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("tls"), "authority")


@pytest.fixture(scope="module")
def own(trusted: Authority) -> Signed:
    return trusted.signed("in", f"IP:{HOST}")


@pytest.fixture
def tls(own: Signed) -> ListenerTls:
    return ListenerTls(certificate=own.certificate, key=own.key)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes and pauses that take no time."""
    monkeypatch.setattr(users, "_COST", 10)
    monkeypatch.setattr(users, "_PASSES", 1)
    monkeypatch.setattr(logins, "PAUSE_SECONDS", 0.01)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "users"
    file.touch(0o600)
    file.write_text(f"# users\n\n{user_line(ANN, SECRET.encode())}\n")
    return file


def b64(text: str) -> str:
    return b64encode(text.encode()).decode()


async def used(site: MailEntrance, trusted: Authority, use: Callable[[smtplib.SMTP], Any]) -> Any:
    """What a client of the standard library gets, in a thread, once its connection is secured."""

    def run() -> Any:
        with smtplib.SMTP(HOST, site.port, "client.example", timeout=LIMIT_SECONDS) as client:
            client.starttls(context=ssl.create_default_context(cafile=trusted.file))
            client.ehlo()
            return use(client)

    return await asyncio.to_thread(run)


async def secured(site: MailEntrance, trusted: Authority) -> MailClient:
    """A client of a listener with TLS from the first byte, which has greeted."""
    context = ssl.create_default_context(cafile=trusted.file)
    client = MailClient(*await asyncio.open_connection(HOST, site.port, ssl=context))
    site.clients.append(client)
    await client.reply()
    await client.say("EHLO client.example")
    return client


@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN"])
async def test_a_user_logs_in_and_rules_know_the_name(
    trusted: Authority, tls: ListenerTls, file: Path, mechanism: str
) -> None:
    def send(client: smtplib.SMTP) -> None:
        client.user, client.password = ANN, SECRET
        client.auth(mechanism, getattr(client, f"auth_{mechanism.lower()}"))
        client.sendmail(ANN, ["bob@example.com"], CONTENT)

    async with entrance(tls=tls, users=ListenerUsers(file)) as site:
        text = "incoming: [{if: {user: '/^(.*)@/'}, set: {tenantid: '${1}', jobid: '${user}'}}]"
        site.listener.intake.rules = policies_of(text, "policies.yaml").said.incoming
        await used(site, trusted, send)
        ((mail, content),) = await site.mails()

    assert attribute_value(mail.attributes["tenantid"]) == "ann"
    assert attribute_value(mail.attributes["jobid"]) == ANN
    assert b"with ESMTPSA id" in content
    assert ANN.encode() not in content.split(b"\r\n\r\n")[0]


async def test_a_login_is_offered_over_tls_alone(trusted: Authority, tls: ListenerTls, file: Path) -> None:
    async with entrance(tls=tls, users=ListenerUsers(file)) as site:
        plain = await site.client("")
        await plain.reply()
        greeting = await plain.say("EHLO client.example")
        refused = await plain.say(f"AUTH PLAIN {b64(f'{chr(0)}{ANN}{chr(0)}{SECRET}')}")
        offered = await used(site, trusted, lambda client: client.esmtp_features.get("auth"))

    assert "AUTH" not in greeting
    assert refused == "530 5.7.0 say STARTTLS first"
    assert offered is not None
    assert offered.split() == ["PLAIN", "LOGIN"]


async def test_a_client_of_another_network_hands_mails_over_once_it_has_logged_in(
    trusted: Authority, tls: ListenerTls, file: Path
) -> None:
    """Clients of the networks that may relay need no login, unless it is demanded."""
    login = f"AUTH PLAIN {b64(f'{chr(0)}{ANN}{chr(0)}{SECRET}')}"
    for settings in ({"relay_from": ()}, {"auth_required": True}):
        async with entrance(tls=tls, secured=True, users=ListenerUsers(file), **settings) as site:
            client = await secured(site, trusted)
            assert await client.say(MAIL) == "530 5.7.0 log in first"
            assert await client.say(login) == "235 2.7.0 welcome"
            assert (await client.say(login))[:9] == "503 5.5.1"
            assert (await client.hand_over(CONTENT))[:9] == "250 2.0.0"
    async with entrance(tls=tls, secured=True, users=ListenerUsers(file)) as site:
        client = await secured(site, trusted)
        assert (await client.hand_over(CONTENT))[:9] == "250 2.0.0"


async def test_a_client_that_must_log_in_is_asked_to_secure_its_connection_first(tls: ListenerTls, file: Path) -> None:
    async with entrance(tls=tls, users=ListenerUsers(file), auth_required=True) as site:
        client = await site.client()
        assert await client.say(MAIL) == "530 5.7.0 say STARTTLS first"


async def test_wrong_passwords_are_answered_later_each_time_and_end_the_connection(
    trusted: Authority, tls: ListenerTls, file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    pauses = list[float]()
    slept = ShiftedClock.pause

    async def pause(self: ShiftedClock, seconds: float) -> None:
        pauses.append(seconds)
        await slept(self, seconds)

    monkeypatch.setattr(ShiftedClock, "pause", pause)
    async with entrance(tls=tls, secured=True, users=ListenerUsers(file)) as site:
        client = await secured(site, trusted)
        answers = list[str]()
        for name, password in ((ANN, "wrong-one"), ("who-am-i", SECRET), (ANN, "wrong-two")):
            answers.append(await client.say(f"AUTH PLAIN {b64(f'{chr(0)}{name}{chr(0)}{password}')}"))
        answers += await client.rest()

    wrong = "535 5.7.8 this user does not have this password"
    assert answers == [wrong, wrong, wrong, "421 4.7.0 there were too many wrong passwords"]
    assert [seconds for seconds in pauses if seconds < 1] == [0.01, 0.02, 0.04]
    said = " ".join(str(vars(record)) for record in caplog.records)
    for secret in ("wrong-one", "wrong-two", SECRET, "who-am-i", b64("wrong-one")):
        assert secret not in said


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["AUTH"], "504 5.5.4"),
        (["AUTH CRAM-MD5"], "504 5.5.4"),
        (["AUTH PLAIN !"], "501 5.5.2"),
        (["AUTH PLAIN", "*"], "501 5.7.0"),
        (["AUTH PLAIN", "a" * 1100], "500 5.5.6"),
        (["AUTH PLAIN ="], "501 5.5.2"),
        ([f"AUTH PLAIN {b64('no parts')}"], "501 5.5.2"),
        ([f"AUTH PLAIN {b64(f'cy{chr(0)}{ANN}{chr(0)}{SECRET}')}"], "535 5.7.8"),
        ([f"AUTH PLAIN {b64(f'{ANN}{chr(0)}{ANN}{chr(0)}{SECRET}')}"], "235 2.7.0"),
        (["AUTH LOGIN", b64(ANN), b64(SECRET)], "235 2.7.0"),
        ([f"auth login {b64(ANN)}", b64(SECRET)], "235 2.7.0"),
        (["AUTH LOGIN", b64(ANN), ""], "501 5.5.2"),
        ([MAIL, "AUTH PLAIN"], "503 5.5.1"),
    ],
)
async def test_each_form_of_a_login_has_its_answer(
    trusted: Authority, tls: ListenerTls, file: Path, words: list[str], answer: str
) -> None:
    """The connection goes on behind each of them."""
    async with entrance(tls=tls, secured=True, users=ListenerUsers(file)) as site:
        client = await secured(site, trusted)
        assert (await client.say(*words))[:9] == answer
        assert (await client.say("NOOP"))[:3] == "250"


async def test_without_users_no_client_logs_in(trusted: Authority, tls: ListenerTls) -> None:
    async with entrance(tls=tls, secured=True) as site:
        client = await secured(site, trusted)
        assert (await client.say("AUTH PLAIN"))[:9] == "502 5.5.1"


async def test_a_file_that_is_read_again_counts_for_logins_from_then_on(file: Path) -> None:
    """Also for a password that was right before."""
    known = ListenerUsers(file)
    assert await known.knows(ANN, SECRET.encode())
    assert await known.knows(ANN, SECRET.encode())
    file.write_text(user_line(ANN, b"another"))
    assert await known.knows(ANN, SECRET.encode())
    known.read_again()
    assert not await known.knows(ANN, SECRET.encode())
    assert await known.knows(ANN, b"another")
    file.write_text("nonsense")
    with pytest.raises(WrongUse, match="line 1: this is no hash"):
        known.read_again()
    assert await known.knows(ANN, b"another")


async def test_a_right_password_is_hashed_once_and_a_wrong_one_each_time(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = list[bytes]()
    made = PasswordHash.made

    def counted(self: PasswordHash, password: bytes) -> bytes:
        tried.append(password)
        return made(self, password)

    monkeypatch.setattr(PasswordHash, "made", counted)
    known = ListenerUsers(file)
    for password in (SECRET.encode(), SECRET.encode(), b"wrong", b"wrong"):
        await known.knows(ANN, password)
    await known.knows("cy", b"wrong")
    assert tried == [SECRET.encode(), b"wrong", b"wrong", b"wrong"]


async def test_clients_that_leave_have_no_more_passwords_compared_at_once(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread goes on when its client is gone: it keeps its turn until then."""
    running = Counter[str]()
    most = Counter[str]()
    goes_on = threading.Event()

    def slow(_: PasswordHash, __: bytes) -> bool:
        running["now"] += 1
        most["at once"] = max(most["at once"], running["now"])
        goes_on.wait(LIMIT_SECONDS)
        running["now"] -= 1
        return False

    monkeypatch.setattr(PasswordHash, "fits", slow)
    known = ListenerUsers(file)
    for _ in range(8):
        leaving = asyncio.ensure_future(known.knows(ANN, b"wrong"))
        await asyncio.sleep(0.01)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
    goes_on.set()
    assert not await known.knows(ANN, b"wrong")
    assert most["at once"] == 2


async def test_a_name_that_no_user_has_costs_what_most_users_cost(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = list[tuple[int, int, int]]()
    made = PasswordHash.made

    def noted(self: PasswordHash, password: bytes) -> bytes:
        costs.append((self.cost, self.blocks, self.passes))
        return made(self, password)

    file.write_text("\n".join(f"{name}:{PASSLIB.replace('p=1', 'p=3')}" for name in ("bob", "cy")))
    monkeypatch.setattr(PasswordHash, "made", noted)
    known = ListenerUsers(file)
    for name in ("bob", "dan"):
        assert not await known.knows(name, b"wrong")
    assert costs == [(10, 8, 3), (10, 8, 3)]


def test_the_dearest_hash_that_is_taken_can_be_compared() -> None:
    kept = PasswordHash.parse(PASSLIB.replace("ln=10,r=8", "ln=17,r=15"))
    assert not kept.fits(b"secret")


def test_a_hash_in_the_form_of_passlib_is_read() -> None:
    kept = PasswordHash.parse(PASSLIB)
    assert str(kept) == PASSLIB
    assert kept.fits(b"secret")
    assert not kept.fits(b"Secret")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ann", "line 1: this is no hash of a password"),
        ("ann:secret", "line 1: this is no hash of a password"),
        (f"ann:{PASSLIB[:-1]}!", "line 1: this is no hash of a password"),
        (f"ann:{PASSLIB.replace('ln=10', 'ln=31')}", "line 1: the hash has a cost that is not taken"),
        (f"ann:{PASSLIB.replace('r=8', 'r=0')}", "line 1: the hash has a cost that is not taken"),
        (f":{PASSLIB}", "line 1: this is no name of a user"),
        (f"ann\tsecret:{PASSLIB}", "line 1: this is no name of a user"),
        (f"ann:{PASSLIB[:-31]}", "line 1: the hash, or its salt, is too short"),
        (f"ann:{PASSLIB.replace('c2FsdHNhbHRzYWx0c2FsdA', 'c2Fs')}", "line 1: the hash, or its salt, is too short"),
        (f"ann:{PASSLIB.replace('ln=10,r=8', 'ln=17,r=16')}", "line 1: the hash needs more than 256 MiB"),
        (f"#\nann:{PASSLIB}\nann:{PASSLIB}", "line 3: the user 'ann' is there twice"),
    ],
)
def test_a_line_that_is_no_user_is_named_without_what_it_holds(text: str, problem: str) -> None:
    with pytest.raises(WrongUse) as refused:
        parse_users(text.splitlines(), "users")
    assert problem in refused.value.what
    assert "secret" not in refused.value.message
    assert "scrypt$" not in refused.value.message


def test_a_file_of_users_that_others_may_read_is_refused(file: Path) -> None:
    file.chmod(0o640)
    with pytest.raises(WrongUse, match="may be read by others"):
        ListenerUsers(file)


def test_a_file_without_users_is_refused(file: Path) -> None:
    file.write_text("# none yet\n")
    with pytest.raises(WrongUse, match="holds no user"):
        ListenerUsers(file)


@pytest.mark.parametrize(("name", "password"), [("a:b", b"x"), ("", b"x"), ("ann", b""), ("ann", b"x" * 501)])
def test_a_line_is_made_of_names_and_passwords_that_can_log_in(name: str, password: bytes) -> None:
    with pytest.raises(WrongUse):
        user_line(name, password)
