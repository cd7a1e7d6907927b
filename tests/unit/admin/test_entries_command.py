"""`mailmend delivery list`, `show`, `group`, and what changes recipients, as a person types them."""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mailmend.admin.delivery import serve as delivery
from mailmend.delivery.ledger.intents import EntryIntent, IntentStage, LedgerIntents
from mailmend.delivery.ledger.orders import LedgerPolicies
from mailmend.delivery.mail.entries import EntryId
from mailmend.mailqueue.codec import attribute
from mailmend.mailqueue.rabbitmq.view.due_mails import DueMails
from mailmend.model.errors import AccessDenied, CannotReach, MailmendError
from tests.support.commands import Ended
from tests.support.deliveries import ACCEPTED, LATER
from tests.support.queue_commands import QueueShell, queue_shell
from tests.unit.admin.test_delivery_command import HOP, StoppingRelay

HOUR = timedelta(hours=1)
TO_TWO = ("bob@one.example", "cy@two.example")
WHY = ("--why", "looks like spam")


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QueueShell:
    return queue_shell(monkeypatch, tmp_path)


def typed(shell: QueueShell, command: str, *options: str) -> Ended:
    ended = shell.line("delivery", command, "spool", *options)
    assert ended.code == 0, ended.err
    return ended


def recipients(shell: QueueShell, *options: str) -> list[tuple[str, str]]:
    found = typed(shell, "list", "--json", *options).json["entries"]
    return [(one["recipient"], one["state"]) for one in found]


def test_recipients_are_listed_with_their_states_page_by_page(shell: QueueShell) -> None:
    """A mail's stay together; the broker is never asked."""
    shell.put("waits", recipients=("al@one.example",))
    shell.put_later("first", HOUR, recipients=TO_TWO)
    shell.put_later("second", 2 * HOUR, recipients=("di@two.example",))
    page = typed(shell, "list", "--limit", "2", "--json").json
    assert [one["state"] for one in page["entries"]] == ["active", "defer", "defer"]
    assert recipients(shell, "--after", page["next"]) == [("di@two.example", "defer")]
    assert recipients(shell, "--domain", "two.example", "--in-state", "defer") == [
        ("cy@two.example", "defer"),
        ("di@two.example", "defer"),
    ]
    table = typed(shell, "list").out
    assert "defer, " in table
    assert "ada@example.org" in table
    assert typed(shell, "list", "--domain", "no.example").out == "There are no such recipients.\n"
    assert not shell.asked


def test_recipients_are_counted_by_what_is_named(shell: QueueShell) -> None:
    """The largest group first; those of mails without the field have a name too."""
    shell.put("a", recipients=TO_TWO, attributes={"tenantid": attribute("acme")})
    shell.put_later("b", HOUR, recipients=("di@two.example",))
    groups = typed(shell, "group", "--json").json["groups"]
    assert [(one["values"], one["recipients"], one["defer"], one["active"]) for one in groups] == [
        ({"domain": "two.example"}, 2, 1, 1),
        ({"domain": "one.example"}, 1, 0, 1),
    ]
    assert [
        one["values"] for one in typed(shell, "group", "--by", "tenant", "--by", "sender", "--json").json["groups"]
    ] == [
        {"tenant": "acme", "sender": "ada@example.org"},
        {"tenant": "", "sender": "ada@example.org"},
    ]
    assert "(none)" in typed(shell, "group", "--by", "tenant").out


def test_a_field_that_is_named_twice_has_two_columns(shell: QueueShell) -> None:
    shell.put("a", recipients=("al@one.example",))
    lines = typed(shell, "group", "--by", "domain", "--by", "domain").out.splitlines()
    cells = [line.split()[:3] for line in lines]
    assert ["domain", "domain", "recipients"] in cells
    assert ["one.example", "one.example", "1"] in cells


def test_a_mail_is_shown_by_any_of_its_ids(shell: QueueShell) -> None:
    """With its attributes; one that is not there is named, with what to do."""
    enqueue_id = shell.put_later("a", HOUR, recipients=TO_TWO, attributes={"campaign": attribute("spring")})
    shown = typed(shell, "show", str(enqueue_id))
    assert "campaign: spring" in shown.out
    assert [one["recipient"] for one in typed(shell, "show", f"{enqueue_id}:1", "--json").json["entries"]] == [
        TO_TWO[1]
    ]
    ended = shell.line("delivery", "show", "spool", f"{enqueue_id}:7")
    assert (ended.code, "mailmend delivery list spool" in ended.err) == (2, True)


def test_what_was_tried_is_shown(shell: QueueShell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each recipient of a mail, over all its attempts, and when the mail has left the queue."""
    relay = StoppingRelay(shell.clock, {"bob@example.org": [LATER, ACCEPTED]}, wanted=2)
    monkeypatch.setattr(delivery, "relay_of", lambda *_: relay)
    (mail,) = shell.put("one", recipients=("bob@example.org", "cy@example.com"))
    ended = shell.line("delivery", "serve", *HOP, "--retry", "2m", "--source", "127.0.0.1")
    assert ended.code == 0, ended.err
    found = shell.line("delivery", "show", "spool", str(mail), "--json").json
    assert found["entries"] == []
    assert [(one["number"], one["stage"], one["status"], one["outcome"]) for one in found["attempts"]] == [
        (0, "recipient", "4.2.0", "refused"),
        (0, "data", "2.0.0", "delivered"),
        (1, "data", "2.0.0", "delivered"),
    ]
    first, second, _ = found["attempts"]
    assert (first["mail"], first["first_mail"], second["first_mail"]) == (str(mail), str(mail), str(mail))
    assert second["mail"] != first["mail"]
    assert first["fields"]["localip"] == "127.0.0.1"
    assert first["server"].endswith(f"@{socket.gethostname()} pid {os.getpid()}")
    assert first["ready_at"] <= first["started_at"] <= first["ended_at"]
    (only,) = shell.line("delivery", "show", "spool", f"{mail}:1", "--json").json["attempts"]
    assert only["number"] == 1
    table = shell.line("delivery", "show", "spool", str(mail)).out
    assert f"spool has no {mail} any more." in table
    assert "What was tried" in table
    assert table.count("delivered") == 2


def test_recipients_are_held_and_released(shell: QueueShell) -> None:
    """After a dry run that writes nothing; of one that a server may have it is ordered, and taken back."""
    shell.put("waits", recipients=("al@one.example",))
    shell.put_later("a", HOUR, recipients=TO_TWO)
    dry = typed(shell, "hold", "--domain", "one.example", *WHY, "--dry-run", "--json").json
    assert (dry["would_change"], dry["changed"], dry["active"], dry["would_order"], dry["ordered"]) == (1, 0, 1, 1, 0)
    assert [one["recipient"] for one in dry["entries"]] == ["bob@one.example"]
    assert recipients(shell, "--in-state", "hold") == []
    assert shell.cluster.keyspaces.keys() == {"mail"}

    held = typed(shell, "hold", "--domain", "one.example", *WHY)
    assert held.out.startswith("1 recipients of 1 mails in spool: held.\n1 more are active")
    assert recipients(shell, "--in-state", "hold") == [("bob@one.example", "hold")]
    (one,) = typed(shell, "list", "--in-state", "hold", "--json").json["entries"]
    assert (one["order"]["kind"], one["order"]["why"]) == ("hold", "looks like spam")
    assert ordered_of(shell) == {"al@one.example": "hold"}
    assert typed(shell, "retry", "--all", "--json").json["changed"] == 1
    assert ordered_of(shell) == {"al@one.example": "hold"}
    assert typed(shell, "release", "--all", "--json").json["changed"] == 2
    assert recipients(shell, "--in-state", "hold") == []
    assert ordered_of(shell) == {}


def ordered_of(shell: QueueShell) -> dict[str, str]:
    """What is ordered of active recipients."""
    entries = typed(shell, "list", "--json").json["entries"]
    return {entry["recipient"]: entry["after_attempt"]["kind"] for entry in entries if entry["after_attempt"]}


def test_what_is_ordered_of_active_ones_is_done_before_an_attempt(
    shell: QueueShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who rests is changed at once; the order is listed, and the server that takes the mail carries it out."""
    shell.put("waits", recipients=TO_TWO)
    shell.put_later("a", HOUR, recipients=("al@one.example",))
    options = ("--domain", "one.example", *WHY, "--after-attempt")
    dry = typed(shell, "hold", *options, "--dry-run", "--json").json
    assert (dry["would_change"], dry["would_follow_attempt"], dry["after_attempt"]) == (1, 1, 0)

    held = typed(shell, "hold", *options, "--json").json
    assert (held["changed"], held["after_attempt"], held["active"]) == (1, 1, 1)
    assert (
        "1 more are active, and will be held before their next attempts, or after attempts that"
        in typed(shell, "hold", *options).out
    )
    shown = {one["recipient"]: one["after_attempt"] for one in typed(shell, "list", "--json").json["entries"]}
    assert (shown["al@one.example"], shown["cy@two.example"]) == (None, None)
    assert (shown["bob@one.example"]["kind"], shown["bob@one.example"]["why"]) == ("hold", "looks like spam")
    assert "ordered: held, by" in " ".join(typed(shell, "list").out.split())

    relay = StoppingRelay(shell.clock)
    monkeypatch.setattr(delivery, "relay_of", lambda *_: relay)
    assert shell.line("delivery", "serve", *HOP).code == 0
    assert relay.had == ["cy@two.example"]
    assert sorted(recipients(shell)) == [("al@one.example", "hold"), ("bob@one.example", "hold")]


def test_who_is_being_attempted_is_left_alone_and_named(shell: QueueShell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a server at work, its answers are waited for: who waited is counted as changed."""
    shell.put("one", recipients=TO_TWO)
    _, cy = [entry["id"] for entry in typed(shell, "list", "--json").json["entries"]]

    async def at_work(*_: object) -> tuple[str]:
        return ("a server",)

    find = LedgerIntents.find

    async def answered(intents: LedgerIntents, *asked: Any) -> Mapping[EntryId, EntryIntent]:
        found = dict(await find(intents, *asked))
        stages = (IntentStage.HEEDED, IntentStage.LEFT)
        return {entry: replace(found[entry], stage=stages[entry.number]) for entry in found}

    monkeypatch.setattr(LedgerPolicies, "of", at_work)
    monkeypatch.setattr(LedgerIntents, "find", answered)
    held = typed(shell, "hold", "--all", *WHY, "--json").json
    assert (held["changed"], held["ordered"], held["left"]) == (1, 0, 1)
    assert held["left_entries"] == [{"id": cy, "recipient": "cy@two.example"}]
    assert f"their attempts were under way: {cy} cy@two.example. The same with --after" in typed(
        shell, "hold", "--all", *WHY
    ).out.replace("\n", " ")


@pytest.mark.parametrize("command", ["bounce", "delete"])
def test_what_will_end_is_asked_for_and_kept_at_once(shell: QueueShell, command: str) -> None:
    """Each recipient of a mail that is active: in the copy it is a mail of its own."""
    shell.put("waits", recipients=TO_TWO)
    options = ("--domain", "one.example", *(WHY if command == "bounce" else ()), "--after-attempt")
    refused = shell.line("delivery", command, "spool", *options)
    assert "0 recipients of spool, and 1 active ones, if need be after their attempts?" in refused.err
    ended = typed(shell, command, *options, "--yes", "--json").json
    assert (ended["changed"], ended["after_attempt"]) == (0, 1)
    restored = shell.line("queue", "restore", ended["kept"], "--dry-run", "--json")
    assert restored.json["would_restore"] == 1


def test_what_is_put_back_is_not_ended_again(shell: QueueShell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order holds for a week; for the recipient in the copy it is void."""
    relay = StoppingRelay(shell.clock)
    monkeypatch.setattr(delivery, "relay_of", lambda *_: relay)
    shell.put("waits", recipients=("bob@one.example",))
    ended = typed(shell, "delete", "--all", "--yes", "--json").json
    assert (ended["changed"], ended["ordered"]) == (0, 1)
    shell.put("later", recipients=("cy@two.example",))
    assert shell.line("delivery", "serve", *HOP).code == 0
    assert (relay.had, shell.names()) == (["cy@two.example"], [])
    typed(shell, "delete", "--all", "--yes")

    assert shell.line("queue", "restore", ended["kept"], "--json").json["restored"] == 1
    relay.wanted = 2
    assert shell.line("delivery", "serve", *HOP).code == 0
    assert relay.had == ["cy@two.example", "bob@one.example"]


def test_who_may_not_read_the_ledger_lists_all_the_same(shell: QueueShell, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not shown is said."""
    shell.put("waits")
    typed(shell, "hold", "--all", *WHY, "--after-attempt")

    async def denied(*_: object) -> bool:
        raise AccessDenied("no SELECT on delivery_intent")

    monkeypatch.setattr(LedgerIntents, "are_there", denied)
    listed = typed(shell, "list", "--json")
    assert [one["after_attempt"] for one in listed.json["entries"]] == [None]
    assert "are not shown: no SELECT" in listed.err


def test_a_next_attempt_is_moved(shell: QueueShell) -> None:
    """To a time from now on."""
    shell.put_later("a", HOUR)
    moved = typed(shell, "defer", "--all", "--for", "3h", "--json").json
    (one,) = typed(shell, "list", "--json").json["entries"]
    assert one["due_at"] == moved["until"]


@pytest.mark.parametrize("command", ["bounce", "delete"])
def test_what_ends_is_asked_for_and_kept(shell: QueueShell, command: str) -> None:
    """One recipient of a mail: in the copy it is a mail of its own, which comes back by itself."""
    shell.put_later("a", HOUR, recipients=TO_TWO)
    shell.put_later("whole", HOUR, recipients=("di@one.example",))
    options = ("--domain", "one.example", *(WHY if command == "bounce" else ()))
    refused = shell.line("delivery", command, "spool", *options)
    assert (refused.code != 0, "2 recipients of spool" in refused.err) == (True, True)
    assert len(recipients(shell)) == 3
    ended = typed(shell, command, *options, "--yes", "--json").json
    assert (ended["changed"], ended["mails"]) == (2, 2)
    left = typed(shell, "list", "--json").json["entries"]
    if command == "bounce":
        assert [one["recipient"] for one in left if one["order"]] == ["bob@one.example", "di@one.example"]
        return
    assert [one["recipient"] for one in left] == ["cy@two.example"]
    restored = shell("restore", ended["kept"], "--json")
    assert restored.json["restored"] == 2, restored.err
    assert sorted(recipients(shell)) == [(one, "defer") for one in (*TO_TWO, "di@one.example")]


def test_what_cannot_be_deleted_is_named_and_not_counted(shell: QueueShell, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there still, and the same again takes it."""
    mail_id = shell.put_later("a", HOUR)

    async def refused(_self: DueMails, _queue: object, mails: Sequence[object]) -> list[MailmendError]:
        return [CannotReach("no answer from the tables") for _ in mails]

    with monkeypatch.context() as broken:
        broken.setattr(DueMails, "remove_all", refused)
        ended = shell.line("delivery", "delete", "spool", "--all", "--yes", "--json")
    assert (ended.code, ended.json["changed"], ended.json["mails"]) == (3, 0, 0)
    assert [one["id"] for one in ended.json["failed"]] == [str(mail_id)]
    assert len(recipients(shell)) == 1
    assert typed(shell, "delete", "--all", "--yes", "--json").json["changed"] == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("hold", *WHY), "mailmend delivery hold --all"),
        (("hold", "--all", "--domain", "x.example", *WHY), "Leave out the one or the other"),
        (("list", "--retries", "many"), "Write 3, 3-"),
        (("list", "--attribute", "campaign"), "campaign=spring"),
    ],
)
def test_what_is_not_meant_is_refused(shell: QueueShell, options: tuple[str, ...], said: str) -> None:
    """With what to write in its place."""
    command, *others = options
    ended = shell.line("delivery", command, "spool", *others)
    assert ended.code == 2
    assert said in " ".join(ended.err.split())
