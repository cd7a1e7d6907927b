"""`mailmend suspend add`, `list` and `remove` as a person types them, beside a server that delivers."""

from pathlib import Path
from uuid import UUID

import pytest

from mailmend.admin.delivery import serve as delivery
from mailmend.delivery.ledger.order_history import LedgerOrderHistory
from mailmend.model.catalog.ledger import DELIVERY_SUSPENSION
from mailmend.model.errors import AccessDenied
from mailmend.model.operations import Put
from tests.support.commands import Ended
from tests.support.queue_commands import QueueShell, queue_shell
from tests.unit.admin.test_delivery_command import HOP, StoppingRelay

WHY = ("--why", "they throttle us")


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QueueShell:
    return queue_shell(monkeypatch, tmp_path)


def typed(shell: QueueShell, command: str, *options: str) -> Ended:
    return shell.line("suspend", command, "spool", *options)


def test_what_is_suspended_is_listed_until_that_is_removed(shell: QueueShell) -> None:
    """With its fields, its times, who and why; the broker is never asked."""
    suspended = typed(shell, "add", "--domain", "a.org", "--domain", "*.b.org", "--local-ip", "::1", *WHY, "--json")
    assert suspended.code == 0, suspended.err
    one = suspended.json["suspension"]
    assert one["fields"] == {"localip": ["::1"], "recipientdomain": ["a.org", "*.b.org"]}
    assert (one["why"], one["ends_at"], " pid " in one["owner"]) == ("they throttle us", None, True)
    assert typed(shell, "list", "--json").json["suspensions"] == [one]
    table = typed(shell, "list").out
    assert one["id"] in table
    assert "when it is removed" in table

    removed = typed(shell, "remove", one["id"])
    assert removed.code == 0, removed.err
    assert "localip ::1, recipientdomain a.org or *.b.org" in removed.out
    assert typed(shell, "list").out == "Nothing is suspended in spool.\n"
    assert not shell.asked


def test_who_did_what_is_listed_newest_first(shell: QueueShell) -> None:
    """Each time with what was suspended then; also what has ended or was removed, and as many as are asked for."""
    assert typed(shell, "list", "--history").out == "No suspension of spool was changed in the last 30 days.\n"
    assert shell.cluster.keyspaces.keys() == {"mail"}
    first = typed(shell, "add", "--domain", "a.org", "--for", "1h", *WHY, "--json").json["suspension"]
    shell.pass_time(minutes=1)
    second = typed(shell, "add", "--domain", "a.org", "--why", "still", "--json").json["suspension"]
    typed(shell, "add", "--all", *WHY, "--dry-run")
    shell.pass_time(minutes=1)
    typed(shell, "remove", first["id"], "--dry-run")
    typed(shell, "remove", first["id"])
    history = typed(shell, "list", "--history", "--json").json["history"]
    assert [(one["event"], one["suspension"]) for one in history] == [
        ("removed", second),
        ("renewed", second),
        ("added", first),
    ]
    assert [one["by"] for one in history] == [first["owner"]] * 3
    newest = typed(shell, "list", "--history", "--changes", "1").out
    assert ("removed" in newest, "renewed" in newest, "--changes" in newest) == (True, False, True)


def test_what_cannot_be_written_into_the_history_is_done_all_the_same(
    shell: QueueShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is said."""

    async def denied(*_: object) -> None:
        raise AccessDenied("no MODIFY on delivery_order_history")

    monkeypatch.setattr(LedgerOrderHistory, "put", denied)
    added = typed(shell, "add", "--all", *WHY)
    assert (added.code, "cannot be written into the history: no MODIFY" in added.err) == (0, True)
    (one,) = typed(shell, "list", "--json").json["suspensions"]
    removed = typed(shell, "remove", one["id"])
    assert (removed.code, "cannot be written into the history" in removed.err) == (0, True)
    assert typed(shell, "list", "--json").json["suspensions"] == []


def test_a_suspension_ends_by_itself(shell: QueueShell) -> None:
    """To the second, although its row is there for a moment yet."""
    one = typed(shell, "add", "--all", "--for", "2h", *WHY, "--json").json["suspension"]
    shell.pass_time(hours=1, minutes=59)
    assert [found["id"] for found in typed(shell, "list", "--json").json["suspensions"]] == [one["id"]]
    shell.pass_time(minutes=1)
    assert typed(shell, "list", "--json").json["suspensions"] == []
    assert typed(shell, "remove", one["id"]).code == 2


def test_the_same_mails_suspended_again_are_one_suspension(shell: QueueShell) -> None:
    """Renewed, with its new end and reason, in whatever order its values are named; one that has ended is not."""
    either, other = ("--domain", "a.org", "--domain", "b.org"), ("--domain", "b.org", "--domain", "a.org")
    first = typed(shell, "add", *either, "--for", "1h", *WHY, "--json").json["suspension"]
    shell.pass_time(minutes=50)
    second = typed(shell, "add", *other, "--for", "2h", "--why", "still", "--json").json["suspension"]
    assert (second["id"], second["why"]) == (first["id"], "still")
    shell.pass_time(minutes=119)
    assert [one["id"] for one in typed(shell, "list", "--json").json["suspensions"]] == [first["id"]]
    shell.pass_time(minutes=1)
    assert typed(shell, "list", "--json").json["suspensions"] == []
    third = typed(shell, "add", *either, *WHY, "--json").json["suspension"]
    assert third["id"] != first["id"]


def test_a_queue_that_never_had_a_mail_is_named(shell: QueueShell) -> None:
    """It may be a slip: yet it is suspended."""
    ended = typed(shell, "add", "--all", *WHY)
    assert (ended.code, "No mail was ever in spool" in ended.err) == (0, True)
    shell.put("a")
    assert "ever" not in typed(shell, "add", "--all", *WHY).err


def test_a_dry_run_writes_nothing(shell: QueueShell) -> None:
    """Neither a ledger nor a suspension; and it removes none."""
    ended = typed(shell, "add", "--all", *WHY, "--dry-run")
    assert (ended.code, "Nothing was written. Would be suspended in spool: every mail" in ended.out) == (0, True)
    assert shell.cluster.keyspaces.keys() == {"mail"}
    one = typed(shell, "add", "--all", *WHY, "--json").json["suspension"]
    assert typed(shell, "remove", one["id"], "--dry-run").code == 0
    assert typed(shell, "list", "--json").json["suspensions"] == [one]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (WHY, "it is not said which mails are suspended"),
        (("--all", "--domain", "a.org", *WHY), "--all is every mail"),
        (("--all",), "--why"),
        (("--local-ip", "nowhere", *WHY), "is no address"),
        (("--domain", "#big", *WHY), "names a group or a list"),
        (("--all", "--for", "0s", *WHY), "--for"),
    ],
)
def test_what_cannot_be_is_refused(shell: QueueShell, options: tuple[str, ...], said: str) -> None:
    """A mix without any field would stop everything, so that has to be said."""
    ended = typed(shell, "add", *options)
    assert (ended.code, said in ended.err) == (2, True), ended.err
    assert typed(shell, "list", "--json").json["suspensions"] == []


def test_a_queue_has_to_be_named(shell: QueueShell) -> None:
    """The command to type is said."""
    ended = shell.line("suspend", "add", "--all", *WHY)
    assert (ended.code, "mailmend suspend add outgoing" in ended.err) == (2, True)


def test_what_was_never_suspended_cannot_be_removed(shell: QueueShell) -> None:
    """With or without a ledger; where to look is said."""
    for _ in range(2):
        ended = typed(shell, "remove", "6e0ab5e0-8d1c-11f0-9a5e-0242ac120002")
        assert (ended.code, "mailmend suspend list spool" in ended.err) == (2, True)
        typed(shell, "add", "--all", *WHY)


def test_a_server_heeds_what_was_suspended_before_it_started(
    shell: QueueShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mails to one domain stay, until that is removed; who and why are in its log."""
    relay = StoppingRelay(shell.clock)
    monkeypatch.setattr(delivery, "relay_of", lambda *_: relay)
    one = typed(shell, "add", "--domain", "a.org", *WHY, "--json").json["suspension"]
    shell.put("held", recipients=("bob@a.org",))
    shell.put("goes", recipients=("cy@b.org",))
    ended = shell.line("delivery", "serve", *HOP, "--suspensions-every", "1s")
    assert ended.code == 0, ended.err
    assert (relay.had, shell.names()) == (["cy@b.org"], ["held"])
    assert "they throttle us" in ended.err

    typed(shell, "remove", one["id"])
    relay.wanted = 2
    assert shell.line("delivery", "serve", *HOP).code == 0
    assert (relay.had, shell.names()) == (["cy@b.org", "bob@a.org"], [])


def test_a_server_that_may_not_make_the_ledger_says_who_makes_it(
    shell: QueueShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the command to type."""

    def denied(*_: object, **__: object) -> None:
        raise AccessDenied("role 'queue' has no CREATE")

    monkeypatch.setattr(shell.cluster, "execute_ddl", denied)
    ended = shell.line("delivery", "serve", *HOP)
    assert ended.code == 4
    assert "the ledger has not all of its tables yet" in ended.err
    assert "mailmend schema apply --keyspace mail" in ended.err


def test_a_suspension_that_cannot_be_read_is_listed_with_what_it_holds(shell: QueueShell) -> None:
    """An older version took its expression. It holds more mails than it names, until it is removed."""
    one = typed(shell, "add", "--domain", "a.org", "--job", "spring", *WHY, "--json").json["suspension"]
    ledger = shell.cluster.keyspace("mailmend")
    key = DELIVERY_SUSPENSION.key_row(("mail", "spool", UUID(one["id"])))
    ledger.write(
        Put(DELIVERY_SUSPENSION, key | {"fields": '{"recipientdomain": ["/^(?!news)/"], "jobid": ["spring"]}'})
    )

    (listed,) = typed(shell, "list", "--json").json["suspensions"]
    assert (listed["id"], len(listed["unread"])) == (one["id"], 1)
    assert "(?!" in listed["unread"][0]
    out = " ".join(typed(shell, "list").out.split())
    assert f"{one['id']} cannot be read: " in out
    assert "Until it is removed it holds every mail that its other fields name." in out
    assert f"mailmend suspend remove spool {one['id']}" in out

    assert typed(shell, "remove", one["id"]).code == 0


def test_a_damaged_suspension_is_listed_as_what_holds_every_mail_and_can_be_removed(shell: QueueShell) -> None:
    one = typed(shell, "add", "--domain", "a.org", *WHY, "--json").json["suspension"]
    other = typed(shell, "add", "--domain", "b.org", *WHY, "--json").json["suspension"]
    key = DELIVERY_SUSPENSION.key_row(("mail", "spool", UUID(one["id"])))
    shell.cluster.keyspace("mailmend").write(Put(DELIVERY_SUSPENSION, key | {"fields": '{"recipientdomain": '}))

    listed = typed(shell, "list", "--json").json["suspensions"]
    out = " ".join(typed(shell, "list").out.split())
    removed = typed(shell, "remove", one["id"])

    assert [(made["id"], made["unread"]) for made in listed] == [
        (one["id"], ["its column fields is no JSON"]),
        (other["id"], []),
    ]
    assert "Until it is removed it holds every mail." in out
    assert (removed.code, typed(shell, "list", "--json").json["suspensions"]) == (0, [other])
