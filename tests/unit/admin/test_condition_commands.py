"""`mailmend policy add`, `list` and `remove` as a person types them, beside a server that delivers."""

import asyncio
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from mailmend.admin.delivery import connections as wiring
from mailmend.admin.delivery import serve as delivery
from mailmend.delivery.ledger.policies import LedgerPolicies
from mailmend.delivery.mail.entries import EntryEnd
from mailmend.delivery.mail.hooks import HookedAttempt, HookResult, LimitMails, PostDecision, SuspendMails
from mailmend.delivery.policy.conditions import ServedPolicies
from mailmend.delivery.policy.policy import CounterPolicy, FieldGroup, PickupField, Threshold, pattern_of
from mailmend.delivery.policy.rates import RateAlgorithm
from mailmend.model.catalog.ledger import DELIVERY_CONDITION
from mailmend.model.operations import Change
from tests.support.commands import Ended
from tests.support.deliveries import ACCEPTED, LATER
from tests.support.in_turn import InTurn
from tests.support.queue_commands import SPOOL, QueueShell, queue_shell
from tests.unit.admin.test_delivery_command import HOP, StoppingRelay, entry_point

DOMAIN = PickupField.RECIPIENT_DOMAIN
WHY = ("--why", "they throttle us")
OF_DOMAINS = ("--fields", "recipientdomain")
TO_A = (*OF_DOMAINS, "--if", "recipientdomain=a.org")
NONE = ("--concurrency", "0")


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QueueShell:
    return queue_shell(monkeypatch, tmp_path)


def typed(shell: QueueShell, command: str, *options: str) -> Ended:
    return shell.line("policy", command, "spool", *options)


async def backing_off(attempt: HookedAttempt) -> PostDecision | HookResult[PostDecision]:
    if attempt.end is not EntryEnd.REFUSED:
        return None
    limit = LimitMails({DOMAIN: ("a.org",)}, Threshold(1), timedelta(hours=1), attempt.reply)
    return HookResult(None, (limit, SuspendMails({DOMAIN: ("b.org",)}, timedelta(hours=1), attempt.reply)))


def test_who_did_what_is_listed_newest_first(shell: QueueShell) -> None:
    """With the limits of then."""
    first = typed(shell, "add", *TO_A, *NONE, "--for", "1h", *WHY, "--json").json["condition"]
    shell.pass_time(minutes=1)
    second = typed(shell, "add", *TO_A, "--rate", "100/60", "--why", "still", "--json").json["condition"]
    shell.pass_time(minutes=1)
    typed(shell, "remove", first["id"])
    history = typed(shell, "list", "--history", "--json").json["history"]
    own = {"parked", "servers"}
    assert [(one["event"], one["condition"]) for one in history] == [
        (event, {name: value for name, value in made.items() if name not in own})
        for event, made in (("removed", second), ("renewed", second), ("added", first))
    ]
    table = typed(shell, "list", "--history").out
    assert all(text in table for text in ("concurrency 0", "rate 100/60", "renewed", first["id"]))


def test_what_a_hook_sets_is_listed_beside_what_people_set(shell: QueueShell, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name, with what the server answered as the reason; each keeps its own, and people's are tested first."""
    entry_point(monkeypatch, wiring.POST_DELIVERY, f"{__name__}:backing_off")
    relay = StoppingRelay(shell.clock)
    monkeypatch.setattr(delivery, "relay_of", lambda *_: relay)
    relay.scripts["bob@a.org"] = [LATER, ACCEPTED]
    shell.put("one", recipients=("bob@a.org",))
    assert shell.line("delivery", "serve", *HOP, "--post-delivery", "ours").code == 0
    (ours,) = typed(shell, "list", "--json").json["conditions"]
    assert (ours["owner"], ours["why"]) == ("hook ours", "450 4.2.0 later")
    (held,) = shell.line("suspend", "list", "spool", "--json").json["suspensions"]
    assert held["owner"] == "hook ours"

    mine = typed(shell, "add", *TO_A, *NONE, *WHY, "--json").json["condition"]
    assert [one["id"] for one in typed(shell, "list", "--json").json["conditions"]] == [mine["id"], ours["id"]]
    shell.line("suspend", "add", "spool", "--domain", "b.org", *WHY)
    assert len(shell.line("suspend", "list", "spool", "--json").json["suspensions"]) == 2


def test_what_is_set_is_listed_until_it_is_removed(shell: QueueShell) -> None:
    """With its fields, values, limits, times, who and why; the broker is never asked."""
    limits = ("--concurrency", "2", "--rate", "100/60", "--connect-interval", "0.5", "--stop", "--no-cluster")
    values = ("--if", "recipientdomain=A.org", "--if", "localip=::1", "--if", "recipientdomain=*.b.org")
    added = typed(shell, "add", "--fields", "recipientdomain,localip", *values, *limits, *WHY, "--json")
    assert added.code == 0, added.err
    one = added.json["condition"]
    assert one["fields"] == ["localip", "recipientdomain"]
    assert one["if"] == {"localip": ["::1"], "recipientdomain": ["*.b.org", "a.org"]}
    assert one["then"] == {
        "concurrency": 2,
        "rate": {"count": 100, "seconds": 60.0},
        "connect_interval_seconds": 0.5,
        "stop": True,
        "cluster": False,
    }
    assert (one["why"], one["ends_at"], one["parked"], one["servers"]) == ("they throttle us", None, None, [])
    assert typed(shell, "list", "--json").json["conditions"] == [one]
    table = " ".join(typed(shell, "list").out.split())
    assert "concurrency 2" in table
    assert "not known" in table

    removed = typed(shell, "remove", one["id"])
    assert removed.code == 0, removed.err
    assert "localip ::1, recipientdomain *.b.org or a.org" in removed.out
    assert "for each server separately, and later policies are not consulted" in removed.out
    assert typed(shell, "list").out == "There are no run-time conditions in spool.\n"
    assert not shell.asked


def test_the_same_fields_and_values_again_are_one_condition(shell: QueueShell) -> None:
    """Renewed, in whatever order and spelling: with its new limits, end and reason, and its old place."""
    values = ("--fields", "jobid,recipientdomain", "--if", "recipientdomain=a.org", "--if", "recipientdomain=b.org")
    again = ("--fields", "recipientdomain, jobid", "--if", "recipientdomain=B.ORG.", "--if", "recipientdomain=a.org")
    first = typed(shell, "add", *values, *NONE, "--for", "1h", *WHY, "--json").json["condition"]
    typed(shell, "add", *TO_A, *NONE, *WHY)
    shell.pass_time(minutes=50)
    second = typed(shell, "add", *again, "--rate", "5", "--for", "2h", "--why", "still", "--json").json["condition"]
    assert (second["id"], second["made_at"], second["why"]) == (first["id"], first["made_at"], "still")
    assert second["then"]["concurrency"] is None
    shell.pass_time(minutes=119)
    listed = typed(shell, "list", "--json").json["conditions"]
    assert (len(listed), listed[0]["id"]) == (2, first["id"])
    shell.pass_time(minutes=1)
    assert len(typed(shell, "list", "--json").json["conditions"]) == 1
    assert typed(shell, "remove", first["id"]).code == 2


def test_who_gives_an_id_may_give_it_again(shell: QueueShell) -> None:
    """The same id of something else is refused, and another id of the same thing too."""
    name = str(uuid4())
    for _ in range(2):
        ended = typed(shell, "add", *TO_A, *NONE, "--condition-id", name, *WHY, "--json")
        assert (ended.code, ended.json["condition"]["id"]) == (0, name)
    assert len(typed(shell, "list", "--json").json["conditions"]) == 1
    other = typed(shell, "add", *OF_DOMAINS, "--all", *NONE, "--condition-id", name, *WHY)
    assert (other.code, "is the id of another condition" in other.err) == (2, True)
    same = typed(shell, "add", *TO_A, *NONE, "--condition-id", str(uuid4()), *WHY)
    assert (same.code, f"with the id {name}" in same.err) == (2, True)
    assert typed(shell, "add", *TO_A, *NONE, *WHY, "--json").json["condition"]["id"] == name


def test_a_dry_run_writes_nothing(shell: QueueShell) -> None:
    ended = typed(shell, "add", *TO_A, *NONE, *WHY, "--dry-run")
    assert (ended.code, "Nothing was written. Would be set in spool: concurrency 0, for" in ended.out) == (0, True)
    assert shell.cluster.keyspaces.keys() == {"mail"}
    one = typed(shell, "add", *TO_A, *NONE, *WHY, "--json").json["condition"]
    assert typed(shell, "remove", one["id"], "--dry-run").code == 0
    assert typed(shell, "list", "--json").json["conditions"] == [one]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((*OF_DOMAINS, *NONE), "it is not said for which values"),
        ((*TO_A, "--all", *NONE), "--all is always"),
        ((*TO_A,), "it is not said which limits are set"),
        ((*TO_A, "--unlimited", *NONE), "--unlimited is no limit"),
        ((*TO_A, "--concurrency", "-1"), "-1"),
        ((*TO_A, "--rate", "0/5"), "a rate must allow at least 1 delivery"),
        ((*TO_A, "--connect-interval", "0"), "is no number of seconds"),
        (("--fields", "weather", "--all", *NONE), "'weather' is no field"),
        ((*OF_DOMAINS, "--if", "jobid=x", *NONE), "does not count by jobid"),
        ((*OF_DOMAINS, "--if", "recipientdomain", *NONE), "is no field with a value"),
        ((*OF_DOMAINS, "--if", "recipientdomain=@big", *NONE), "names a list"),
        (("--fields", "localip", "--if", "localip=nowhere", *NONE), "is no address"),
        ((*TO_A, *NONE, "--for", "0s"), "--for"),
    ],
)
def test_what_cannot_be_is_refused(shell: QueueShell, options: tuple[str, ...], said: str) -> None:
    """Neither what would limit everything nor what would limit nothing comes about by a slip."""
    ended = typed(shell, "add", *options, *WHY)
    assert (ended.code, said in ended.err) == (2, True), ended.err
    assert typed(shell, "list", "--json").json["conditions"] == []


def test_it_is_said_what_the_servers_make_of_it(shell: QueueShell) -> None:
    """A member of a group means the group; what no server counts by is parked, and what one lacks is parked there."""
    typed(shell, "add", "--fields", "", "--all", *NONE, *WHY)
    big = FieldGroup("big", (pattern_of(DOMAIN, "a.org"), pattern_of(DOMAIN, "*.c.org")))
    say(shell, "one", CounterPolicy((DOMAIN,), {DOMAIN: (big,)}))
    say(shell, "two", CounterPolicy((PickupField.JOB_ID,)))
    shell.pass_time(seconds=1)

    added = typed(shell, "add", *TO_A, *NONE, *WHY)
    assert "a.org is counted as #big: the limits are for the whole group." in added.out
    assert "Parked on two: no policy counts by exactly recipientdomain." in added.out
    everything, to_a = typed(shell, "list", "--json").json["conditions"]
    assert everything["parked"] == "no policy counts by exactly no field"
    assert to_a["parked"] is None
    assert to_a["servers"] == [
        {"server": "one", "parked": None, "counted_as": {"a.org": "#big"}},
        {"server": "two", "parked": "no policy counts by exactly recipientdomain", "counted_as": {}},
    ]
    shell.pass_time(minutes=6)
    assert "No server of the queue is at work" in " ".join(typed(shell, "add", *TO_A, *NONE, *WHY).out.split())


def say(shell: QueueShell, server: str, *policies: CounterPolicy) -> None:
    """What a server says that it counts by."""
    ledger = LedgerPolicies(InTurn(shell.cluster.keyspace("mailmend")), "mail")
    said = ServedPolicies(
        server=server, policies=policies, algorithm=RateAlgorithm.TOKEN_BUCKET, said_at=shell.clock.now
    )
    asyncio.run(ledger.put(SPOOL, said))


def test_a_server_heeds_what_was_set_before_it_started(
    shell: QueueShell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Mails to the other member of a group stay; what is parked is in the log; at its end the server says no more."""
    relay = StoppingRelay(shell.clock)
    monkeypatch.setattr(delivery, "relay_of", lambda *_: relay)
    file = tmp_path / "policies.yaml"
    file.write_text("policies: [{fields: [{recipientdomain: {big: [a.org, c.org]}}]}]\n")
    typed(shell, "add", *TO_A, *NONE, *WHY)
    typed(shell, "add", "--fields", "jobid", "--all", *NONE, *WHY)
    shell.put("held", recipients=("bob@c.org",))
    shell.put("goes", recipients=("cy@b.org",))
    ended = shell.line("delivery", "serve", *HOP, "--policies", str(file))
    assert ended.code == 0, ended.err
    assert (relay.had, shell.names()) == (["cy@b.org"], ["held"])
    assert "they throttle us" in ended.err
    assert "no policy counts by exactly jobid" in ended.err
    assert [one["servers"] for one in typed(shell, "list", "--json").json["conditions"]] == [[], []]


@pytest.mark.parametrize(
    ("column", "text", "does"),
    [
        ("limits", '{"bytes": 5}', "Until it is removed it lets no such mail begin."),
        ("matches", "{", "Until it is removed it sets no limits, and the limits of the policy files hold."),
    ],
)
def test_a_condition_that_cannot_be_read_is_listed_with_what_it_does_and_can_be_removed(
    shell: QueueShell, column: str, text: str, does: str
) -> None:
    one = typed(shell, "add", *TO_A, *NONE, *WHY, "--json").json["condition"]
    key = ("mail", "spool", UUID(one["id"]))
    shell.cluster.keyspace("mailmend").write(Change(DELIVERY_CONDITION, key, assign={column: text}))

    (listed,) = typed(shell, "list", "--json").json["conditions"]
    out = " ".join(typed(shell, "list").out.split())
    removed = typed(shell, "remove", one["id"])

    assert (listed["id"], bool(listed["unread"])) == (one["id"], True)
    assert does in out
    assert (removed.code, typed(shell, "list", "--json").json["conditions"]) == (0, [])
