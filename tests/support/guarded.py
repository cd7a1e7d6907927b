"""A node that lets nobody in without TLS, a password and a permission: one for all tests of a run."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from mailmend.admin.local import ClusterRequest
from mailmend.admin.local.processes import unverified
from mailmend.cql.driver.contact import Contact
from tests.support.certificates import STORE_PASSWORD, Authority, Signed, authority
from tests.support.commands import CommandLine, command_line
from tests.support.servers import CassandraServer, local_node

SUPERUSER = "cassandra"
_AT_ONCE = ("permissions_validity", "roles_validity")
"""What a role may do is otherwise remembered for two seconds."""

_SUITES = ["TLS_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"]
"""Those of today; what is without forward secrecy is refused."""

_QUICK = {"cassandra.unsafesystem": "true", "cassandra.auth_bcrypt_gensalt_log2_rounds": "4"}
"""Tables that only a crash would lose, and passwords that are cheap to compare: every connection brings one."""


@dataclass(frozen=True, slots=True)
class GuardedNode:
    """The node, who signed its certificate, an authority that did not, and what a client shows where it must."""

    server: CassandraServer
    authority: Authority
    stranger: Authority
    client: Signed | None = None

    def contact(self, username: str = SUPERUSER, password: str = SUPERUSER) -> Contact:
        own = self.client
        return Contact(
            (self.server.host,),
            self.server.port,
            self.server.local_dc,
            username,
            password,
            self.authority.file,
            str(own.certificate) if own else None,
            str(own.key) if own else None,
        )

    def shell(
        self, home: Path, username: str = SUPERUSER, password: str = SUPERUSER, **environment: str
    ) -> CommandLine:
        who = {"MAILMEND_USERNAME": username, "MAILMEND_PASSWORD": password, "MAILMEND_TLS_CA": self.authority.file}
        return command_line(home, self.server, **{**who, **environment})


@contextmanager
def guarded_node(folder: Path, *, clients: bool = False) -> Iterator[GuardedNode]:
    """With `clients` they too must show a certificate that the node's authority has signed."""
    ours, stranger = authority(folder, "authority"), authority(folder, "stranger")
    store = ours.signed("node", "IP:127.0.0.1").store()
    tls: dict[str, object] = {"enabled": True, "optional": False, "cipher_suites": _SUITES}
    tls |= {"keystore": str(store), "keystore_password": STORE_PASSWORD}
    if clients:
        tls |= {"require_client_auth": True, "truststore": str(ours.own.store()), "truststore_password": STORE_PASSWORD}
    yaml = {
        "authorizer": "CassandraAuthorizer",
        "client_encryption_options": {**tls, "store_type": "PKCS12"},
        **dict.fromkeys(_AT_ONCE, "0ms"),
    }
    wishes = ClusterRequest(heap_mib=400, authenticator="PasswordAuthenticator", yaml=yaml, properties=_QUICK)
    client = ours.signed("client", "DNS:client") if clients else None
    shown = unverified()
    if client:
        shown.load_cert_chain(client.certificate, client.key)
    with patch("mailmend.admin.local.processes.unverified", lambda: shown), local_node(wishes) as server:
        yield GuardedNode(server, ours, stranger, client)


@contextmanager
def impostor(shown: Signed, demands: Authority | None = None) -> Iterator[int]:
    """Somebody who shows a certificate and speaks TLS, but no CQL; the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.certificate, shown.key)
    if demands:
        context.load_verify_locations(demands.file)
        context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_greet, args=(listening, context))
        thread.start()
        yield int(listening.getsockname()[1])
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def _greet(listening: socket.socket, context: ssl.SSLContext) -> None:
    while True:
        try:
            came, _ = listening.accept()
        except OSError:
            return
        with came, contextlib.suppress(OSError), context.wrap_socket(came, server_side=True) as wrapped:
            wrapped.recv(1)
