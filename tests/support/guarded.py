"""A node that lets nobody in without TLS, a password and a permission: one for all tests of a run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from admin.local import Wishes
from cql.contact import Contact
from tests.support.certificates import STORE_PASSWORD, Authority, authority
from tests.support.servers import CassandraServer, local_node

SUPERUSER = "cassandra"
_AT_ONCE = ("permissions_validity", "roles_validity")
"""What a role may do is otherwise remembered for two seconds."""


@dataclass(frozen=True, slots=True)
class GuardedNode:
    """The node, who signed its certificate, and an authority that did not."""

    server: CassandraServer
    authority: Authority
    stranger: Authority

    def contact(self, username: str = SUPERUSER, password: str = SUPERUSER) -> Contact:
        """How a role gets in."""
        return Contact(
            (self.server.host,), self.server.port, self.server.local_dc, username, password, self.authority.file
        )


@contextmanager
def guarded_node(folder: Path) -> Iterator[GuardedNode]:
    """Start it with certificates made in the folder."""
    ours, stranger = authority(folder, "authority"), authority(folder, "stranger")
    store = ours.signed("node", "IP:127.0.0.1").store()
    tls = {"enabled": True, "optional": False, "keystore": str(store), "keystore_password": STORE_PASSWORD}
    yaml = {
        "authorizer": "CassandraAuthorizer",
        "client_encryption_options": {**tls, "store_type": "PKCS12"},
        **dict.fromkeys(_AT_ONCE, "0ms"),
    }
    wishes = Wishes(heap_mib=400, authenticator="PasswordAuthenticator", yaml=yaml)
    with local_node(wishes) as server:
        yield GuardedNode(server, ours, stranger)
