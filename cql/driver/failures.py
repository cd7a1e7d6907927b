"""What it means for us when the cluster fails, and what a person can do about it.

The session says which kind of trouble it met (it knows the driver's classes, this module does not); what is decided
here is what became of the request. The one rule that matters: a conditional write or a count whose answer is lost is
in doubt, whatever the trouble was called.
"""

import re
from enum import Enum

from cql.driver.tls_errors import distrust
from cql.statements import Operation
from model.errors import (
    AccessDenied,
    CannotReach,
    DoubtfulWrite,
    MailmendError,
    NotEnoughReplicas,
    SchemaMismatch,
    TimedOut,
    UnknownKeyspace,
    WrongUse,
)
from model.operations import ChangeIf, Count, PutIfAbsent, Read, RemoveIf, Scan


class Purpose(Enum):
    """What a request is for; the value is how a message says it."""

    READ = "read"
    WRITE = "write"  # idempotent: sending it again is harmless
    ONCE = "change"  # conditional or counting: with the answer lost, what happened is unknown
    SCHEMA = "change the schema of"


def purpose_of(operation: Operation) -> Purpose:
    """What the operation is for."""
    match operation:
        case Read() | Scan():
            return Purpose.READ
        case Count() | PutIfAbsent() | ChangeIf() | RemoveIf():
            return Purpose.ONCE
        case _:
            return Purpose.WRITE


class Trouble(Enum):
    """What went wrong, as far as the request is concerned."""

    DENIED = "denied"  # the credentials, or the permission
    NO_HOST = "no host"  # the request never left
    FEW_REPLICAS = "few replicas"  # the coordinator did not even begin
    REFUSED = "refused"  # the request is not one that the server would ever take
    SILENCE = "silence"  # no answer in time
    BROKEN = "broken"  # anything else: the connection was lost, a replica failed, the server stumbled


_MEND_ACCESS = "Check --username, --password-file and what the role was granted."
_MEND_NODES = "See which nodes are up with: nodetool status. Then run the same command again."
_MEND_LOAD = "The cluster may be overloaded, or nodes down: see nodetool status, then run the same command again."
_MEND_DOUBT = "It may have been applied, or be applied yet: read it at SERIAL before anything else."

_MEND_GRANTS = "See what it lacks, and the GRANT that mends it, with: mailmend schema grants --check"

_NO_PERMISSION = re.compile(r"User (\S+) has no (\w+) permission on <([^>]*)> or any of its parents")
_NO_TABLE = re.compile(r"(?:unconfigured table|table) (\w+)(?: does not exist)?")
_NO_COLUMN = re.compile(r"(?:Undefined column name|Undefined name|Unknown identifier) \"?([\w.]+)\"?")
_NO_KEYSPACE = re.compile(r"[Kk]eyspace '?(\w+)'? does not exist")
_CODE = re.compile(r".*message=\"(.*)\"", re.DOTALL)


def failure_of(trouble: Trouble, said: str, purpose: Purpose, keyspace: str, table: str) -> MailmendError:  # noqa: PLR0911 - one for each kind
    """Our error for the trouble: what was asked, what became of it, how to mend it."""
    errand, said = f"{purpose.value} {keyspace}.{table}".strip("."), _plain(said)
    match trouble:
        case Trouble.DENIED:
            return permission_lacking(said, errand) or AccessDenied(
                f"the cluster does not let us {errand}: {said}", mend=_MEND_ACCESS
            )
        case Trouble.NO_HOST:
            return CannotReach(f"no node could be asked to {errand}: {said}", mend=_MEND_NODES)
        case Trouble.FEW_REPLICAS:
            return NotEnoughReplicas(f"too few replicas were alive to {errand}: {said}", mend=_MEND_NODES)
        case Trouble.REFUSED:
            return _refusal(said, errand, keyspace, table)
        case _ if purpose is Purpose.ONCE:
            return DoubtfulWrite(f"no sure answer came when asked to {errand}: {said}", mend=_MEND_DOUBT)
        case Trouble.SILENCE:
            return TimedOut(f"no answer came in time when asked to {errand}: {said}", mend=_MEND_LOAD)
        case Trouble.BROKEN:
            return CannotReach(f"the cluster failed to {errand}: {said}", mend=_MEND_NODES)


def no_contact(trouble: Trouble, said: str, address: str, local_dc: str | None, *, tls: bool = False) -> MailmendError:
    """Our error for a cluster that could not be connected to at all."""
    if distrusted := distrust(said, address, tls=tls):
        return distrusted
    if trouble is Trouble.DENIED:
        return AccessDenied(f"the cluster at {address} refused the credentials: {_plain(said)}", mend=_MEND_ACCESS)
    where = f" in data centre {local_dc!r}" if local_dc else ""
    mend = "Check --host, --port" + (", --local-dc" if local_dc else "") + " and that the nodes are up: nodetool status"
    return CannotReach(f"no node at {address}{where} could be connected to: {_plain(said)}", mend=mend)


def permission_lacking(said: str, errand: str) -> AccessDenied | None:
    """Our error where the server names the role, the permission and the resource; None where it does not."""
    found = _NO_PERMISSION.search(said)
    if found is None:
        return None
    role, permission, resource = found.groups()
    return AccessDenied(f"role {role!r} may not {errand}: it has no {permission} on {resource}", mend=_MEND_GRANTS)


def _refusal(said: str, errand: str, keyspace: str, table: str) -> MailmendError:
    if (found := _NO_KEYSPACE.search(said)) is not None:
        return UnknownKeyspace(found[1])
    if (found := _NO_COLUMN.search(said)) is not None:
        return SchemaMismatch(keyspace, (f"{table}.{found[1]}",))
    if (found := _NO_TABLE.fullmatch(said)) is not None:
        return SchemaMismatch(keyspace, (f"table {found[1]}",))
    return WrongUse(f"the server would not {errand}: {said}")


def _plain(said: str) -> str:
    """The server's own sentence, out of the driver's wrapping."""
    found = _CODE.fullmatch(said.strip("<>"))
    return found[1] if found else said
