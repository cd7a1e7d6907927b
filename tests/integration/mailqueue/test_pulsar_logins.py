"""Logins at a real Pulsar: whoever may is let in, whoever may not is told why, and no secret is told."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

from mailmend.admin.frame.settings import with_password
from mailmend.mailqueue.broker_tls import BrokerTls
from mailmend.mailqueue.pulsar.adapter import PulsarTopics
from mailmend.mailqueue.pulsar.mail_queue import open_queue
from mailmend.mailqueue.pulsar.settings import PulsarSettings
from mailmend.mailqueue.pulsar.topics import TopicMessage
from mailmend.mailqueue.rules.mails import MailFilter
from mailmend.model.errors import BadSettings, BrokerDenied, BrokerUnreachable, MailmendError
from mailmend.model.ids import QueueName
from mailmend.repair.clock import SystemClock
from tests.support.commands import CommandLine
from tests.support.guarded_pulsars import (
    NAMESPACE,
    OURS,
    PASSWORD,
    STRANGER,
    GuardedPulsar,
    guarded_pulsar,
    token_of,
)
from tests.support.memory_blobs import MemoryBlobs
from tests.support.queues import CONTENT, enqueued, mail, names
from tests.support.thorough import first_of

pytestmark = [pytest.mark.pulsar, pytest.mark.thorough]

PATIENCE_SECONDS = 60.0
SECRET = "s3cret-word"
WHOSE = "MAILMEND_BROKER_PASSWORD"
CERT, KEY, CA = "MAILMEND_BROKER_TLS_CERT", "MAILMEND_BROKER_TLS_KEY", "MAILMEND_BROKER_TLS_CA"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedPulsar]:
    with guarded_pulsar(tmp_path_factory.mktemp("guarded")) as found:
        yield found


def named(shell: CommandLine, user: str) -> CommandLine:
    """The same shell, with a user in the broker's address."""
    url = shell.environment["MAILMEND_BROKER"].replace("://", f"://{user}@")
    return replace(shell, environment={**shell.environment, "MAILMEND_BROKER": url})


def settings_of(guarded: GuardedPulsar, tls: BrokerTls | None = None, *, name: str = "127.0.0.1") -> PulsarSettings:
    """Who says nothing of himself; he has little patience."""
    ports = guarded.own.run.site.ports
    plain = replace(guarded.own.settings, namespace=NAMESPACE, answer_seconds=3.0, publish_seconds=3.0)
    if tls is None:
        return plain
    service, admin = f"pulsar+ssl://{name}:{ports['pulsar-tls']}", f"https://{name}:{ports['admin-tls']}"
    return replace(plain, service=service, admin=admin, tls=tls)


def test_whoever_may_is_let_in(guarded: GuardedPulsar, tmp_path: Path) -> None:
    """By token, password or certificate, with TLS and without."""
    token, password = {WHOSE: token_of(OURS)}, {WHOSE: PASSWORD}
    certificate = {CERT: str(guarded.folder / f"{OURS}.pem"), KEY: str(guarded.folder / f"{OURS}.key")}
    shells = {
        "token": guarded.shell(tmp_path, token),
        "password": named(guarded.shell(tmp_path, password), OURS),
        "password in the address": named(guarded.shell(tmp_path), f"{OURS}:{quote(PASSWORD, safe='')}"),
        "token with TLS": guarded.shell(tmp_path, token, secure=True),
        "password with TLS": named(guarded.shell(tmp_path, password, secure=True), OURS),
        "certificate": guarded.shell(tmp_path, certificate, secure=True),
    }
    james = tmp_path / "pulsar.properties"
    james.write_text(
        f"broker.uri={guarded.own.settings.service}/\nadmin.uri={guarded.own.settings.admin}\nnamespace={NAMESPACE}\n"
        f"authentication.type=basic\nauthentication.basic.userId={OURS}\nauthentication.basic.password={PASSWORD}\n"
    )
    shells["James's file"] = CommandLine(tmp_path, {"MAILMEND_BROKER": f"file://{james}"})
    for how, shell in shells.items():
        ended = shell("queue", "list", "--json")
        assert (ended.code, ended.err) == (0, ""), how


@pytest.mark.parametrize("how", first_of(["password with TLS", "token", "password", "certificate"]))
async def test_it_takes_no_more_than_to_produce_and_to_consume(guarded: GuardedPulsar, how: str) -> None:
    """As a client, and over the admin API: whoever has these two permissions on the namespace does everything."""
    plain, folder = settings_of(guarded), guarded.folder
    tls = BrokerTls(Path(guarded.authority.file))
    shown = replace(tls, certificate=folder / f"{OURS}.pem", key=folder / f"{OURS}.key")
    await everything_done(
        {
            "password with TLS": by_password(settings_of(guarded, tls)),
            "token": with_password(plain, token_of(OURS)),
            "password": by_password(plain),
            "certificate": settings_of(guarded, shown),
        }[how],
        QueueName(how.replace(" ", "-")),
    )


def by_password(settings: PulsarSettings) -> PulsarSettings:
    return with_password(replace(settings, username=OURS), PASSWORD)


async def everything_done(settings: PulsarSettings, name: QueueName) -> None:
    """All that a client and the admin API are asked."""
    clock = SystemClock()
    topics = PulsarTopics(replace(settings, answer_seconds=10.0), clock)
    async with asyncio.timeout(PATIENCE_SECONDS), await open_queue(name, topics, MemoryBlobs(clock), clock) as queue:
        await enqueued(queue, "a", "b", "c")
        await queue.enqueue(mail("delayed"), CONTENT, delay=timedelta(hours=1))
        assert (await queue.delete(MailFilter(name="b"))).count == 1
        assert await names(queue) == ["a", "c", "delayed"]
        assert (await queue.flush()).count == 1
        async with queue.dequeue(prefetch=1) as mails:
            await (await anext(mails)).reject()
            await (await anext(mails)).ack()
        assert (await queue.size()).mails == 1
    await topics.close()


REFUSED: Mapping[str, tuple[Mapping[str, str], str, str]] = {
    "nobody": ({}, "refuses us: 401 Unauthorized", WHOSE),
    "no token": ({WHOSE: SECRET}, "refuses us: 401 Unauthorized", WHOSE),
    "a forged token": ({WHOSE: token_of(OURS, key=b"of somebody else, and as long as the other")}, "us: 401", WHOSE),
    "an old token": ({WHOSE: token_of(OURS, expires=1_000_000_000)}, "refuses us: 401 Unauthorized", WHOSE),
    "a stranger's token": ({WHOSE: token_of(STRANGER)}, "refuses us: 40", "namespaces permissions"),
    "another password": ({"user": OURS, WHOSE: SECRET}, f"refuses the user '{OURS}': 401 Unauthorized", WHOSE),
    "another user": ({"user": STRANGER, WHOSE: PASSWORD}, f"refuses the user '{STRANGER}': 401", WHOSE),
}
"""Who asks; what is told, and what to look at."""

REFUSED_WITH_TLS: Mapping[str, tuple[str, str, str]] = {
    "another authority": ("127.0.0.1", "not signed by an authority that we know", "--broker-tls-ca"),
    "no authority": ("127.0.0.1", "not signed by an authority that we know", "--broker-tls-ca"),
    "another name": ("localhost", "is for another host: Hostname mismatch", "as its certificate does"),
    "no certificate": ("127.0.0.1", "refuses us: 401 Unauthorized", "the client's certificate"),
    "a stranger's certificate": ("127.0.0.1", "does not take our certificate", "--broker-tls-cert"),
}
"""What is wrong; by which name the server is asked; what is told, and what to mend."""


@pytest.mark.parametrize("who", REFUSED)
def test_whoever_may_not_is_refused_and_no_secret_is_shown(guarded: GuardedPulsar, tmp_path: Path, who: str) -> None:
    environment, what, mend = REFUSED[who]
    shell = guarded.shell(tmp_path, {name: one for name, one in environment.items() if name != "user"})
    shell = named(shell, environment["user"]) if "user" in environment else shell
    for words in (("list",), ("browse",), ("size",)):
        ended = shell("queue", *words, "--log-level", "debug")
        assert (ended.code, ended.out) == (4, ""), ended
        assert what in ended.err
        assert mend in ended.err
        assert environment.get(WHOSE, SECRET) not in ended.err


@pytest.mark.parametrize("wrong", REFUSED_WITH_TLS)
def test_a_tls_error_says_what_to_mend(guarded: GuardedPulsar, tmp_path: Path, wrong: str) -> None:
    name, what, mend = REFUSED_WITH_TLS[wrong]
    folder = guarded.folder
    shell = guarded.shell(tmp_path, secure=True, name=name)
    environment = {
        "another authority": {CA: guarded.unknown.file},
        "no authority": {CA: ""},
        "a stranger's certificate": {CERT: str(folder / f"{STRANGER}.pem"), KEY: str(folder / f"{STRANGER}.key")},
    }.get(wrong, {})
    ended = shell("queue", "list", **environment)
    assert (ended.code, ended.out) == (4, ""), ended
    assert what in ended.err
    assert mend in ended.err


async def test_a_client_that_is_refused_says_what_may_be_wrong(
    guarded: GuardedPulsar, capfd: pytest.CaptureFixture[str]
) -> None:
    """Where the admin API was not asked before; in time, though the library goes on trying. It prints nothing."""
    authority, folder = Path(guarded.authority.file), guarded.folder
    plain = settings_of(guarded)
    cases: tuple[tuple[PulsarSettings, type[MailmendError], str], ...] = (
        (plain, BrokerUnreachable, "login"),
        (with_password(plain, SECRET), BrokerUnreachable, "login"),
        (with_password(replace(plain, username=OURS), SECRET), BrokerUnreachable, "login"),
        (with_password(plain, token_of(STRANGER)), BrokerDenied, "permissions"),
        (settings_of(guarded, BrokerTls(Path(guarded.unknown.file))), BrokerUnreachable, "--broker-tls-ca"),
        (settings_of(guarded, BrokerTls(authority), name="localhost"), BrokerUnreachable, "as its certificate does"),
        (
            settings_of(guarded, BrokerTls(authority, folder / f"{OURS}.pem", folder / f"{STRANGER}.key")),
            BadSettings,
            "PEM",
        ),
        (settings_of(guarded, BrokerTls(Path("/none"))), BadSettings, "PEM"),
    )
    begun = time.monotonic()

    async def refused(settings: PulsarSettings, kind: type[MailmendError], mend: str) -> None:
        topics = PulsarTopics(settings, SystemClock())
        with pytest.raises(kind) as caught:
            await topics.publish("James-spool", TopicMessage("x"))
        assert mend in (caught.value.mend or ""), caught.value
        assert SECRET not in caught.value.message
        await topics.close()

    await asyncio.gather(*(refused(*one) for one in cases))
    assert time.monotonic() - begun < PATIENCE_SECONDS
    assert capfd.readouterr() == ("", "")


def test_an_authority_that_the_system_trusts_need_not_be_named(
    guarded: GuardedPulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for the admin API nor for the client, whose library trusts another list."""
    monkeypatch.setenv("SSL_CERT_FILE", guarded.authority.file)
    settings = with_password(settings_of(guarded, BrokerTls()), token_of(OURS))
    asyncio.run(everything_done(settings, QueueName("trusted")))
    ended = guarded.shell(tmp_path, {CA: "", WHOSE: token_of(OURS)}, secure=True)("queue", "list")
    assert (ended.code, ended.err) == (0, "")
