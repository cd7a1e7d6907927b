"""`mailmend delivery set` and `changes`, as a person types them."""

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from mailmend.admin.delivery import serve as delivery
from mailmend.admin.delivery.options import EntrySelection
from mailmend.delivery.ledger.value_changes import LedgerValueChanges
from mailmend.delivery.mail.entries import EntryField, EntryState
from mailmend.mailqueue.codec import attribute
from mailmend.mailqueue.rabbitmq.view.due_mails import DueMails
from mailmend.model.errors import AccessDenied, CannotReach
from tests.support.commands import Ended
from tests.support.queue_commands import QueueShell, queue_shell
from tests.unit.admin.test_delivery_command import HOP, StoppingRelay

HOUR = timedelta(hours=1)
BOB, CY = "bob@one.example", "cy@two.example"
WHY = ("--why", "ticket 12")
ACME = {"tenantid": attribute("acme"), "transportid": attribute("news")}


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QueueShell:
    return queue_shell(monkeypatch, tmp_path)


def typed(shell: QueueShell, command: str, *options: str, code: int = 0) -> Ended:
    ended = shell.line("delivery", command, "spool", *options)
    assert ended.code == code, ended.err
    return ended


def listed(shell: QueueShell) -> list[Any]:
    entries: list[Any] = typed(shell, "list", "--json").json["entries"]
    return entries


def transports(shell: QueueShell) -> list[tuple[str, str | None]]:
    return [(entry["recipient"], entry["fields"].get("transportid")) for entry in listed(shell)]


def test_what_is_delayed_is_set_and_what_is_active_is_left_alone(shell: QueueShell) -> None:
    """After a dry run that writes nothing; the hold that reaches the active one is named."""
    shell.put("waits", recipients=(BOB,), attributes=ACME)
    shell.put_later("a", HOUR, recipients=(CY,), attributes=ACME)
    options = ("--tenant", "acme", "--set", "transport=bulk", *WHY)
    dry = typed(shell, "set", *options, "--dry-run", "--json").json
    assert (dry["would_change"], dry["changed"], dry["mails"], dry["active"]) == (1, 0, 1, 1)
    (entry,) = dry["entries"]
    assert (entry["recipient"], entry["before"], entry["behind"]) == (CY, {"transport": "news"}, {"transport": "bulk"})
    assert "transport: news -> bulk" in typed(shell, "set", *options, "--dry-run").out
    assert transports(shell) == [(BOB, "news"), (CY, "news")]
    assert shell.cluster.keyspaces.keys() == {"mail"}

    done = typed(shell, "set", *options)
    assert done.out.startswith("1 recipients of 1 mails in spool: set (transport bulk).\n1 recipients are active")
    assert "mailmend delivery hold spool --tenant acme --why ..." in " ".join(done.out.split())
    assert transports(shell) == [(BOB, "news"), (CY, "bulk")]


def test_a_mail_goes_out_with_the_values_that_were_set(shell: QueueShell, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the recipient that it has now, which keeps its number."""
    mail = shell.put_later("a", HOUR, recipients=(BOB, CY))
    chosen = ("--id", f"{mail}:1")
    typed(shell, "set", *chosen, "--set", "recipient=di@three.example", *WHY)
    typed(shell, "retry", "--all")
    relay = StoppingRelay(shell.clock, wanted=2)
    monkeypatch.setattr(delivery, "relay_of", lambda *_: relay)
    shell.pass_time(minutes=1)
    assert shell.line("delivery", "serve", *HOP).code == 0
    assert sorted(relay.had) == [BOB, "di@three.example"]
    assert typed(shell, "show", f"{mail}:1", "--json").json["attempts"][0]["number"] == 1


def test_an_active_recipient_is_held_then_set_then_released(shell: QueueShell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server that takes its mail holds it; a further recipient of the mail goes out meanwhile."""
    shell.put("waits", recipients=(BOB, CY))
    typed(shell, "hold", "--domain", "one.example", *WHY)
    assert typed(shell, "set", "--all", "--set", "job=x", *WHY, "--json").json["active"] == 2
    relay = StoppingRelay(shell.clock)
    monkeypatch.setattr(delivery, "relay_of", lambda *_: relay)
    assert shell.line("delivery", "serve", *HOP).code == 0
    assert relay.had == [CY]
    change = ("--set", "recipient=di@three.example", "--set", "job=x")
    done = typed(shell, "set", "--domain", "one.example", *change, *WHY, "--json").json
    assert (done["changed"], done["active"], done["left"]) == (1, 0, 0)
    typed(shell, "release", "--all")
    shell.pass_time(minutes=1)
    relay = StoppingRelay(shell.clock)
    monkeypatch.setattr(delivery, "relay_of", lambda *_: relay)
    assert shell.line("delivery", "serve", *HOP).code == 0
    assert relay.had == ["di@three.example"]


def test_a_mail_with_further_recipients_is_named_and_left(shell: QueueShell) -> None:
    """Exit code 3; whole mails are set where that is said."""
    mail = shell.put_later("a", HOUR, recipients=(BOB, CY))
    options = ("--domain", "one.example", "--set", "transport=bulk", *WHY)
    left = typed(shell, "set", *options, code=3)
    assert f"{mail}: 1 of its 2 recipients are not chosen" in " ".join(left.out.split())
    assert "--whole-mails" in left.out
    assert typed(shell, "set", *options, "--json", code=3).json["left_mails"] == [
        {"id": str(mail), "why": "1 of its 2 recipients are not chosen"}
    ]
    assert typed(shell, "set", *options, "--whole-mails", "--json").json["changed"] == 2
    assert transports(shell) == [(BOB, "bulk"), (CY, "bulk")]


def test_a_change_is_shown_recorded_and_undone(shell: QueueShell) -> None:
    """With who, when, why, of which and of how many; the mail shows what it was before."""
    nothing = "No values were set in spool in the last 30 days.\n"
    assert typed(shell, "changes").out == nothing
    mail = shell.put_later("a", HOUR, recipients=(BOB,), attributes=ACME)
    options = ("--tenant", "acme", "--set", "transport=bulk", "--unset", "tenant", *WHY)
    change = typed(shell, "set", *options, "--json").json["change"]
    (entry,) = listed(shell)
    assert entry["values_set"]["before"] == {"transport": "news", "tenant": "acme"}
    shown = " ".join(typed(shell, "show", str(mail)).out.split())
    assert "(ticket 12), before: transport news, tenant acme" in shown

    shell.pass_time(minutes=1)
    undone = typed(shell, "set", "--undo", change, "--why", "was wrong", "--json").json
    assert (undone["changed"], undone["undoes"]) == (1, change)
    assert listed(shell)[0]["fields"] == {"transportid": "news", "tenantid": "acme"}
    assert "has values of that change" in typed(shell, "set", "--undo", change, *WHY).out
    _, last, first = typed(shell, "changes", "--json").json["changes"]
    assert (first["id"], first["values"]) == (change, {"transport": "bulk", "tenant": None})
    assert (first["selected"], first["why"]) == (["--tenant", "acme"], "ticket 12")
    assert (first["recipients"], first["mails"], last["undoes"], last["values"]) == (1, 1, change, {})
    table = " ".join(typed(shell, "changes", "--changes", "3").out.split())
    assert ("transport bulk, tenant removed" in table, "--changes" in table) == (True, True)


def test_a_command_that_did_not_end_is_on_record_and_goes_on(
    shell: QueueShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given one that is killed between the two writes of a mail: nothing is lost, and the same again sets it."""
    shell.put_later("a", HOUR, recipients=(BOB,), attributes=ACME)
    options = ("--tenant", "acme", "--set", "transport=bulk", *WHY)

    async def killed(*_: object) -> None:
        raise CannotReach("killed")

    with monkeypatch.context() as patched:
        patched.setattr(DueMails, "remove_all", killed)
        typed(shell, "set", *options, code=4)
    (record,) = typed(shell, "changes", "--json").json["changes"]
    assert (record["recipients"], record["mails"]) == (None, None)
    assert "did not end" in " ".join(typed(shell, "changes").out.split())
    typed(shell, "set", *options)
    assert transports(shell) == [(BOB, "bulk")]


def test_what_cannot_be_recorded_is_done_all_the_same(shell: QueueShell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is said; the mail itself remembers the change."""

    async def denied(*_: object) -> None:
        raise AccessDenied("no MODIFY on delivery_order_history")

    monkeypatch.setattr(LedgerValueChanges, "put", denied)
    shell.put_later("a", HOUR, recipients=(BOB,))
    ended = typed(shell, "set", "--all", "--set", "job=spring", *WHY)
    assert "cannot be written into the history: no MODIFY" in ended.err
    assert listed(shell)[0]["values_set"]["why"] == "ticket 12"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--all",), "it is not said which value is set"),
        (("--set", "job=x"), "nothing is selected"),
        (("--all", "--tenant", "acme", "--set", "job=x"), "--all is every recipient"),
        (("--all", "--set", "jobs=x"), "'jobs' is no value of a queued mail"),
        (("--all", "--set", "job"), "'job' has no value"),
        (("--all", "--set", "job=x", "--set", "job=y"), "job is set twice"),
        (("--all", "--set", "job=x", "--unset", "job"), "job is removed"),
        (("--all", "--unset", "recipient"), "delivery delete"),
        (("--all", "--set", "priority=11"), "priority: '11' is not a priority"),
        (("--undo", str(UUID(int=1)), "--set", "job=x"), "more is said"),
        (("--undo", str(UUID(int=1)), "--tenant", "acme"), "more is said"),
    ],
)
def test_what_cannot_be_set_is_refused_before_anything_is_written(
    shell: QueueShell, options: tuple[str, ...], said: str
) -> None:
    ended = typed(shell, "set", *options, *WHY, code=2)
    assert said in " ".join(ended.err.split())
    assert shell.cluster.keyspaces.keys() == {"mail"}


def test_a_selection_is_written_as_it_is_typed() -> None:
    selection = EntrySelection(
        ids=("a:1",),
        texts={EntryField.SENDER_DOMAIN: ("x.example", "y.example")},
        attributes={"campaign": ("spring",)},
        states=(EntryState.HOLD,),
        retries=(3, None),
        older_than=HOUR,
    )
    words = "--id a:1 --sender-domain x.example --sender-domain y.example --attribute campaign=spring --in-state hold"
    assert " ".join(selection.words) == f"{words} --retries 3- --older-than 1h"
    assert EntrySelection().words == ()
