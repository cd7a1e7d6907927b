"""A real Postfix for a test: found on this machine, else fetched once from Debian into the cache of servers.

It runs from a folder of the test's own, takes mail for example.org alone, and puts it into a folder for each
recipient. Postfix starts as root only.
"""

import os
import pwd
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from mailmend.admin.local.folders import cache_home, locked
from mailmend.admin.local.processes import free_port
from mailmend.admin.local.rabbitmq import DebianPackages, debian_uri, find_patchelf, patch
from mailmend.model.errors import LocalServerError
from tests.support.certificates import Signed
from tests.support.servers import unavailable

_FETCH_SECONDS_MAX = 600.0
_LIBRARIES = (
    r"libc6|libdb5\.3(t64)?|libicu\d+|libnsl2|libsasl2-2|libssl3(t64)?|libtirpc3(t64)?|libgssapi-krb5-2|libkrb5-3"
    r"|libk5crypto3|libkrb5support0|libcom-err2|libkeyutils1|libtlsrpt0|libstdc\+\+6|libgcc-s1|zlib1g|libzstd1"
)


RECIPIENTS = ("a", "b", "jörg")
SIZE_MAX_BYTES = 100_000
HOST = "127.0.0.1"

_USER, _GROUP = "mail", "games"  # who owns it, and a group that is neither that user's nor nobody's
_UP_SECONDS_MAX = 20.0
_COUNTED = re.compile(rb"mesg=(\d+)")
_FOLDERS = (
    *("active", "bounce", "corrupt", "defer", "deferred", "flush", "hold", "incoming", "maildrop", "pid"),
    *("private", "public", "saved", "trace"),
)
_SETTINGS = """
compatibility_level = 3.6
queue_directory = {folder}/queue
data_directory = {folder}/data
meta_directory = {folder}/configuration
daemon_directory = {root}/usr/lib/postfix/sbin
command_directory = {root}/usr/sbin
mail_owner = {user}
setgid_group = {group}
maillog_file = {folder}/log
maillog_file_prefixes = {folder}
myhostname = postfix.example
mydestination =
alias_maps =
local_recipient_maps =
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
"""
_OF_MAILBOXES = """
mynetworks = 192.0.2.0/24
virtual_mailbox_domains = example.org
virtual_mailbox_maps = texthash:{folder}/configuration/mailboxes
virtual_mailbox_base = {folder}/mails
virtual_uid_maps = static:{uid}
virtual_gid_maps = static:{gid}
virtual_minimum_uid = 1
message_size_limit = {size}
virtual_mailbox_limit = 0
smtpd_tls_security_level = may
smtpd_tls_cert_file = {certificate}
smtpd_tls_key_file = {key}
"""
_OF_A_RELAY = """
mynetworks = 127.0.0.0/8
smtpd_relay_restrictions = permit_mynetworks, reject
default_transport = smtp:[127.0.0.1]:{next_port}
disable_dns_lookups = yes
smtp_tls_security_level = may
"""
_SERVICES = """
{port} inet n - n - - smtpd
cleanup unix n - n - 0 cleanup
pickup unix n - n 60 1 pickup
qmgr unix n - n 300 1 qmgr
flush unix n - n 1000? 0 flush
tlsmgr unix - - n 1000? 1 tlsmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
proxymap unix - - n - - proxymap
error unix - - n - - error
retry unix - - n - - error
discard unix - - n - - discard
virtual unix - n n - - virtual
smtp unix - - n - - smtp
scache unix - - n - 1 scache
anvil unix - - n - 1 anvil
postlog unix-dgram n - n - 1 postlogd
"""


@dataclass(frozen=True, slots=True)
class RunningPostfix:
    """A Postfix that takes mail at a port."""

    folder: Path
    port: int

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def until_logged(self, pattern: str) -> None:
        _until(lambda: re.search(pattern, self.log) is not None, lambda: self.log)

    def flush(self) -> None:
        """Have it try all that it has put off."""
        words = [str(_root() / "usr/sbin/postqueue"), "-c", str(self.folder / "configuration"), "-f"]
        subprocess.run(words, check=True)

    def mails(self, user: str, count: int) -> Sequence[bytes]:
        """The mails of a recipient, once there are that many."""
        place = self.folder / "mails" / user / "new"
        _until(lambda: place.is_dir() and len(list(place.iterdir())) >= count, lambda: self.log)
        return [file.read_bytes() for file in sorted(place.iterdir())]


@contextmanager
def postfix(certificate: Signed) -> Iterator[RunningPostfix]:
    """A Postfix that ends with the block."""
    boxes = "".join(f"{one}@example.org {one}/\n" for one in RECIPIENTS)
    files = {"certificate": certificate.certificate, "key": certificate.key}
    with _started(_SETTINGS + _OF_MAILBOXES, {"mailboxes": boxes}, size=SIZE_MAX_BYTES, **files) as running:
        yield running


@contextmanager
def relaying_postfix(next_port: int) -> Iterator[RunningPostfix]:
    """One that hands all mail over to a server on this machine; ends with the block."""
    with _started(_SETTINGS + _OF_A_RELAY, {}, next_port=next_port) as running:
        yield running


@contextmanager
def _started(settings: str, files: Mapping[str, str], **values: object) -> Iterator[RunningPostfix]:
    if os.geteuid() != 0:
        unavailable("Postfix starts as root only")
    root, port, owner = _root(), free_port([HOST]), pwd.getpwnam(_USER)
    with tempfile.TemporaryDirectory(prefix="postfix-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # its programs run as another user
        values |= {"folder": folder, "root": root, "user": _USER, "group": _GROUP}
        values |= {"uid": owner.pw_uid, "gid": owner.pw_gid, "port": port}
        for place in ("configuration", "data", "mails", *(f"queue/{one}" for one in _FOLDERS)):
            (folder / place).mkdir(parents=True)
            if not place.startswith("configuration") and place != "queue/pid":
                shutil.chown(folder / place, _USER)
        (folder / "configuration/main.cf").write_text(settings.format(**values))
        (folder / "configuration/master.cf").write_text(_SERVICES.format(**values))
        for file, text in files.items():
            (folder / "configuration" / file).write_text(text)
        words = [str(root / "usr/lib/postfix/sbin/master"), "-c", str(folder / "configuration"), "-d"]
        with _running(words, port):
            yield RunningPostfix(folder, port)


@dataclass(slots=True)
class MailDrain:
    """Takes mails, keeps none, and counts them."""

    port: int
    count: int = 0


@contextmanager
def mail_drain() -> Iterator[MailDrain]:
    """Postfix's own server for load tests."""
    root, port = _root(), free_port([HOST])
    user = ("-u", "nobody") if os.geteuid() == 0 else ()
    words = [str(root / "usr/sbin/smtp-sink"), *user, "-c", f"{HOST}:{port}", "1000"]
    drain = MailDrain(port)

    def counted(said: IO[bytes]) -> None:
        text = b""
        while piece := os.read(said.fileno(), 65_536):
            text = (text + piece)[-4096:]
            if found := _COUNTED.findall(text):
                drain.count = int(found[-1])

    with _running(words, port, heard=counted):
        yield drain


def send_mails(port: int, count: int, length: int, sessions: int) -> None:
    """By Postfix's own client for load tests: so many mails of so many bytes, over so many connections at once."""
    words = [str(_root() / "usr/sbin/smtp-source"), "-d", "-s", str(sessions), "-m", str(count), "-l", str(length)]
    subprocess.run([*words, "-f", "a@example.com", "-t", "b@example.org", f"{HOST}:{port}"], check=True)


@contextmanager
def lmtp_sink(*options: str) -> Iterator[tuple[int, Path]]:
    """Postfix's own server for tests, which speaks LMTP: its port, and the folder in which each mail is a file."""
    root, port = _root(), free_port([HOST])
    with tempfile.TemporaryDirectory(prefix="lmtp-") as name:
        Path(name).chmod(0o777)  # it runs as another user
        user = ("-u", "nobody") if os.geteuid() == 0 else ()
        words = [str(root / "usr/sbin/smtp-sink"), *user, "-L", *options, "-d", f"{name}/%M.", f"{HOST}:{port}", "10"]
        with _running(words, port):
            yield port, Path(name)


@contextmanager
def _running(words: Sequence[str], port: int, heard: Callable[[IO[bytes]], None] | None = None) -> Iterator[None]:
    """`heard` is given what it says, in a thread of its own."""
    said = subprocess.PIPE if heard else subprocess.DEVNULL
    server = subprocess.Popen(words, stdout=said, stderr=subprocess.DEVNULL)
    if heard and server.stdout:
        threading.Thread(target=heard, args=(server.stdout,), daemon=True).start()
    try:
        until_listening(server, port)
        yield
    finally:
        server.terminate()
        server.wait(_UP_SECONDS_MAX)


def until_listening(server: "subprocess.Popen[bytes]", port: int) -> None:
    _until(lambda: _answers(port), lambda: f"{server.args!r} does not listen (exit status {server.poll()})")


def _answers(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex((HOST, port)) == 0


def _until(condition: Callable[[], bool], why: Callable[[], str]) -> None:
    end = time.monotonic() + _UP_SECONDS_MAX
    while not condition():
        assert time.monotonic() < end, why()
        time.sleep(0.05)


def _root() -> Path:
    """The folder that holds usr/sbin and usr/lib/postfix."""
    if shutil.which("postconf"):
        return Path("/")
    folder = cache_home(os.environ, Path.home()) / "postfix"
    try:
        with locked(folder.with_suffix(".lock"), _FETCH_SECONDS_MAX):
            if not folder.exists():
                _fetch(folder)
    except LocalServerError as error:
        unavailable(error)
    return folder / "root"


def _fetch(folder: Path) -> None:
    """In a folder beside it, moved into place as a whole."""
    staging = folder.with_suffix(".new")
    shutil.rmtree(staging, ignore_errors=True)
    archive = DebianPackages(debian_uri(os.environ), staging / "apt", os.environ)
    archive.open()
    libraries = archive.closure("postfix", _LIBRARIES)
    root = staging / "root"
    archive.unpack(archive.download(["postfix", *libraries], staging / "debs"), root)
    _patch_all(root, folder / "root")
    shutil.rmtree(staging / "apt")
    shutil.rmtree(staging / "debs")
    staging.rename(folder)


def _patch_all(root: Path, final: Path) -> None:
    """Its programs use the libraries beside them, its own among these."""
    patchelf = find_patchelf(os.environ)
    [libraries] = {file.parent for file in root.glob("usr/lib/*/libc.so.6")}
    for own in root.glob("usr/lib/postfix/*.so*"):
        shutil.copy(own, libraries / own.name)
    programs = [*root.glob("usr/sbin/*"), *root.glob("usr/lib/postfix/sbin/*"), *libraries.glob("libpostfix-*.so*")]
    for program in programs:
        if program.is_file() and not program.is_symlink():
            patch(program, patchelf, root, final=final)
