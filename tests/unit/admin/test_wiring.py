"""Wiring: which values and adapters stand behind what was typed."""

import os
from pathlib import Path

import pytest

from admin.settings import ConnectionSettings, Tls
from admin.wiring import (
    EngineWanted,
    Place,
    contact_of,
    families_named,
    means_to_look,
    open_place,
    owner_name,
    state_folders,
    target_of,
)
from model.catalog.mail import FAMILIES, MAILBOX_PATH, MESSAGES
from model.errors import BadSettings, SchemaMismatch, UnknownKeyspace, UnknownRun, WrongUse
from model.operations import Put
from repair.mending.settings import RepairSettings
from repair.scanners.lookup import Mailboxes, Messages, Targeted
from tests.support.cluster_twin import ClusterTwin
from tests.support.mail_states import MailKeyspace
from tests.support.progress import SilentProgress
from tests.support.repairing import MAILBOX, message
from tests.support.schemas import without_tables

ONE, TWO = message(1), message(2)


@pytest.fixture
def place(mail: MailKeyspace, cluster: ClusterTwin) -> Place:
    """The mail keyspace, reached as every command reaches it."""
    with open_place(ConnectionSettings(keyspace="mail")) as opened:
        return opened


class TestTargets:
    """What a repair is aimed at."""

    def test_nothing_named_is_the_whole_keyspace(self, place: Place) -> None:
        """No target: the engine scans."""
        assert target_of(place, (), (), (), scan=False) is None

    def test_messages_and_mailboxes_are_named_by_id(self, place: Place) -> None:
        """Several at once; a mailbox that is named twice is looked at once."""
        assert target_of(place, (ONE, TWO), (), (), scan=False) == Messages((ONE, TWO))  # type: ignore[arg-type]
        assert target_of(place, (), (ONE, ONE, TWO), (), scan=True) == Mailboxes((ONE, TWO), scan=True)  # type: ignore[arg-type]

    def test_a_user_stands_for_his_mailboxes(self, place: Place, mail: MailKeyspace) -> None:
        """Besides those named by id, each once."""
        for name, mailbox in (("INBOX", MAILBOX), ("Sent", ONE)):
            path = {"namespace": "#private", "user": "bob", "mailboxname": name, "mailboxid": mailbox}
            mail.tables.write(Put(MAILBOX_PATH, path))

        target = target_of(place, (), (MAILBOX,), ("bob",), scan=False)

        assert isinstance(target, Mailboxes)
        assert (target.ids[0], set(target.ids), len(target.ids)) == (MAILBOX, {MAILBOX, ONE}, 2)

    def test_mailboxes_beside_a_message_are_where_its_rows_are_looked_for(self, place: Place) -> None:
        """The message stays the target; a scan looks everywhere."""
        assert target_of(place, (ONE,), (TWO,), (), scan=False) == Messages((ONE,), (TWO,))  # type: ignore[arg-type]
        assert target_of(place, (ONE,), (), (), scan=True) == Messages((ONE,), scan=True)  # type: ignore[arg-type]

    def test_a_scan_of_nothing_is_refused(self, place: Place) -> None:
        """Everything is scanned anyway."""
        with pytest.raises(WrongUse, match="--scan goes with"):
            target_of(place, (), (), (), scan=True)


class TestPlace:
    """Keyspaces as they really are."""

    def test_an_unknown_keyspace_is_refused(self, place: Place) -> None:
        """Before anything is read of it."""
        elsewhere = Place(ConnectionSettings(keyspace="nowhere"), place.cluster, place.clock)

        with pytest.raises(UnknownKeyspace):
            elsewhere.families()

    def test_a_keyspace_without_its_truth_is_refused(self, place: Place, cluster: ClusterTwin) -> None:
        """Everything would look like drift."""
        cluster.keyspaces["mail"] = without_tables(cluster.keyspaces["mail"], "imapuidtable")

        with pytest.raises(SchemaMismatch):
            place.families()

    def test_reading_the_ledger_creates_nothing(self, place: Place, cluster: ClusterTwin) -> None:
        """None where there is none; naming a run of it is refused with how to name another ledger."""
        assert place.existing_ledger() is None
        with pytest.raises(UnknownRun, match="--ledger-keyspace"):
            place.known_ledger(ONE)
        assert cluster.carried_out == []

    def test_a_ledger_is_made_once_beside_the_mail(self, place: Place, cluster: ClusterTwin) -> None:
        """Replicated as the mail keyspace is; the second time nothing is created."""
        place.ledger()
        created = list(cluster.carried_out)
        place.ledger()

        assert cluster.carried_out == created != []
        assert "mailmend" in cluster.keyspaces

    def test_a_check_has_nowhere_to_write_to(self, place: Place, cluster: ClusterTwin) -> None:
        """Its ledger and leases are in memory; a named target needs no engine that scans."""
        order = RepairSettings("mail", place.families((MESSAGES,)))

        with means_to_look(place, EngineWanted("spark", target=Messages(())), order, SilentProgress()) as means:
            assert isinstance(means.engine, Targeted)
            assert (means.ledger, means.leases) == (None, None)
        assert cluster.carried_out == []


def test_a_word_names_its_families() -> None:
    """`messages`, or everything."""
    assert families_named("messages") == (MESSAGES,)
    assert families_named("all") == FAMILIES


class TestContact:
    """The connection as the driver takes it."""

    def test_everything_is_handed_on(self) -> None:
        """Files of TLS as texts, the password as it is."""
        tls = Tls(Path("/ca.pem"), Path("/me.pem"), Path("/me.key"))
        settings = ConnectionSettings(("a", "b"), 9, "dc", username="me", password="secret", tls=tls)

        contact = contact_of(settings)

        assert (contact.hosts, contact.port, contact.local_dc, contact.username) == (("a", "b"), 9, "dc", "me")
        assert (contact.tls_ca, contact.tls_cert, contact.tls_key) == ("/ca.pem", "/me.pem", "/me.key")
        assert "secret" not in repr(contact) + repr(settings)

    @pytest.mark.parametrize("names", [True, False])
    def test_names_in_certificates_are_demanded_where_wished(self, *, names: bool) -> None:
        """And TLS is on as soon as it has a file."""
        contact = contact_of(ConnectionSettings(tls=Tls(Path("/ca.pem"), hostnames=names)))

        assert (contact.tls_hostnames, contact.tls) == (names, True)

    def test_tls_without_an_authority_takes_the_systems(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """And says so where the system has none: never a connection that trusts anybody."""
        bundle = tmp_path / "bundle.pem"
        bundle.write_text("")
        monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
        assert contact_of(ConnectionSettings(tls=Tls())).tls_ca == str(bundle)

        bundle.unlink()
        monkeypatch.setattr("os.path.isfile", lambda _: False)
        with pytest.raises(BadSettings, match="--tls-ca"):
            contact_of(ConnectionSettings(tls=Tls()))

    def test_without_tls_no_file_is_named(self) -> None:
        """Plain text is what was asked for."""
        contact = contact_of(ConnectionSettings())

        assert (contact.tls_ca, contact.tls_cert, contact.tls_key) == (None, None, None)


def test_an_owner_is_a_person_a_machine_and_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever finds a lease taken knows whom to ask; a container without user names gives its number."""
    assert owner_name().endswith(f" pid {os.getpid()}")

    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr("getpass.getuser", nameless)
    assert owner_name().startswith(f"{os.getuid()}@")


def test_state_lies_under_the_users_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Contents, loads and the spool each in a folder of their own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    folders = state_folders()

    assert {folders.loads, folders.spool} == {tmp_path / "mailmend" / name for name in ("loads", "spool")}
