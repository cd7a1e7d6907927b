"""`mailmend suspend` and `mailmend policy add`, `list` and `remove`, as a person types them, and servers that obey."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from mailmend.admin.delivery import connections as wiring
from mailmend.admin.delivery import serve as delivery
from mailmend.delivery.ledger.orders import LedgerOrders, LedgerPolicies
from mailmend.delivery.mail.entries import EntryEnd
from mailmend.delivery.mail.hooks import HookedAttempt, HookResult, LimitMails, PostDecision, SuspendMails
from mailmend.delivery.policy.orders import OrderKind, ServedPolicies
from mailmend.delivery.policy.policy import CounterPolicy, FieldGroup, PickupField, Threshold, pattern_of
from mailmend.delivery.policy.rates import RateAlgorithm
from mailmend.model.catalog.ledger import DELIVERY_CONDITION, DELIVERY_SUSPENSION
from mailmend.model.errors import AccessDenied
from mailmend.model.operations import Change, Put
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


@dataclass(frozen=True)
class Commands:
    """The commands of one kind of orders.

    Attributes:
        options: what is typed to order something for a.org; without `--why`.
        others: what is typed to order something for every mail; likewise.
        changed: options of the same order for a.org that change its limits, where it has any.
    """

    shell: QueueShell
    kind: OrderKind
    group: str
    options: tuple[str, ...]
    others: tuple[str, ...]
    changed: tuple[str, ...]

    def typed(self, command: str, *options: str) -> Ended:
        return self.shell.line(self.group, command, "spool", *options)

    def added(self, *options: str) -> Any:
        """An order as JSON, without what servers make of it."""
        found = self.typed("add", *options, "--json").json[self.kind.value]
        return {name: value for name, value in found.items() if name not in ("parked", "servers")}

    def listed(self) -> list[Any]:
        """The orders that hold now, in the same form."""
        found = self.typed("list", "--json").json[f"{self.kind.value}s"]
        return [{name: order[name] for name in order if name not in ("parked", "servers")} for order in found]


@pytest.fixture(params=list(OrderKind))
def commands(request: pytest.FixtureRequest, shell: QueueShell) -> Commands:
    if request.param is OrderKind.SUSPENSION:
        to_a = ("--domain", "a.org")
        return Commands(shell, request.param, "suspend", to_a, ("--all",), to_a)
    everything = (*OF_DOMAINS, "--all", *NONE)
    return Commands(shell, request.param, "policy", (*TO_A, *NONE), everything, (*TO_A, "--rate", "100/60"))


def suspend(shell: QueueShell, command: str, *options: str) -> Ended:
    return shell.line("suspend", command, "spool", *options)


def policy(shell: QueueShell, command: str, *options: str) -> Ended:
    return shell.line("policy", command, "spool", *options)


# Both kinds


def test_who_did_what_is_listed_newest_first(commands: Commands, shell: QueueShell) -> None:
    """Each time as it was then; also what has ended or was removed, and as many as are asked for."""
    nothing = f"No {commands.kind.value} of spool was changed in the last 30 days.\n"
    assert commands.typed("list", "--history").out == nothing
    assert shell.cluster.keyspaces.keys() == {"mail"}
    first = commands.added(*commands.options, "--for", "1h", *WHY)
    shell.pass_time(minutes=1)
    second = commands.added(*commands.changed, "--why", "still")
    commands.typed("add", *commands.others, *WHY, "--dry-run")
    shell.pass_time(minutes=1)
    commands.typed("remove", first["id"], "--dry-run")
    commands.typed("remove", first["id"])

    history = commands.typed("list", "--history", "--json").json["history"]
    table = commands.typed("list", "--history").out
    newest = commands.typed("list", "--history", "--changes", "1").out

    assert [(one["event"], one[commands.kind.value]) for one in history] == [
        ("removed", second),
        ("renewed", second),
        ("added", first),
    ]
    assert [one["by"] for one in history] == [first["owner"]] * 3
    limits = ("concurrency 0", "rate 100/60") if commands.kind is OrderKind.CONDITION else ()
    assert all(text in table for text in (*limits, "renewed", first["id"]))
    assert ("removed" in newest, "renewed" in newest, "--changes" in newest) == (True, False, True)


def test_what_cannot_be_written_into_the_history_is_done_all_the_same(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is said."""

    async def denied(*_: object) -> None:
        raise AccessDenied("no MODIFY on delivery_order_history")

    monkeypatch.setattr(LedgerOrders, "put_record", denied)
    added = commands.typed("add", *commands.others, *WHY)
    assert (added.code, "cannot be written into the history: no MODIFY" in added.err) == (0, True)
    (one,) = commands.listed()
    removed = commands.typed("remove", one["id"])
    assert (removed.code, "cannot be written into the history" in removed.err) == (0, True)
    assert commands.listed() == []


def test_an_order_ends_by_itself(commands: Commands, shell: QueueShell) -> None:
    """To the second, although its row is there for a moment yet."""
    one = commands.added(*commands.others, "--for", "2h", *WHY)
    shell.pass_time(hours=1, minutes=59)
    assert [found["id"] for found in commands.listed()] == [one["id"]]
    shell.pass_time(minutes=1)
    assert commands.listed() == []
    assert commands.typed("remove", one["id"]).code == 2


def test_a_queue_that_never_had_a_mail_is_named(commands: Commands, shell: QueueShell) -> None:
    """It may be a slip: yet the order is made."""
    ended = commands.typed("add", *commands.others, *WHY)
    assert (ended.code, "No mail was ever in spool" in ended.err) == (0, True)
    shell.put("a")
    assert "ever" not in commands.typed("add", *commands.others, *WHY).err


def test_a_dry_run_writes_nothing(commands: Commands, shell: QueueShell) -> None:
    """Neither a ledger nor an order; and it removes none."""
    said = {
        OrderKind.SUSPENSION: "Nothing was written. Would be suspended in spool: every mail",
        OrderKind.CONDITION: "Nothing was written. Would be set in spool: concurrency 0, for",
    }
    ended = commands.typed("add", *commands.others, *WHY, "--dry-run")
    assert (ended.code, said[commands.kind] in ended.out) == (0, True)
    assert shell.cluster.keyspaces.keys() == {"mail"}
    one = commands.added(*commands.others, *WHY)
    assert commands.typed("remove", one["id"], "--dry-run").code == 0
    assert commands.listed() == [one]


@pytest.mark.parametrize(
    ("group", "options", "said"),
    [
        ("suspend", WHY, "it is not said which mails are suspended"),
        ("suspend", ("--all", "--domain", "a.org", *WHY), "--all is every mail"),
        ("suspend", ("--all",), "--why"),
        ("suspend", ("--local-ip", "nowhere", *WHY), "is no address"),
        ("suspend", ("--domain", "#big", *WHY), "names a group or a list"),
        ("suspend", ("--all", "--for", "0s", *WHY), "--for"),
        ("policy", (*OF_DOMAINS, *NONE, *WHY), "it is not said for which values"),
        ("policy", (*TO_A, "--all", *NONE, *WHY), "--all is always"),
        ("policy", (*TO_A, *WHY), "it is not said which limits are set"),
        ("policy", (*TO_A, "--unlimited", *NONE, *WHY), "--unlimited is no limit"),
        ("policy", (*TO_A, "--concurrency", "-1", *WHY), "-1"),
        ("policy", (*TO_A, "--rate", "0/5", *WHY), "a rate must allow at least 1 delivery"),
        ("policy", (*TO_A, "--connect-interval", "0", *WHY), "is no number of seconds"),
        ("policy", ("--fields", "weather", "--all", *NONE, *WHY), "'weather' is no field"),
        ("policy", (*OF_DOMAINS, "--if", "jobid=x", *NONE, *WHY), "does not count by jobid"),
        ("policy", (*OF_DOMAINS, "--if", "recipientdomain", *NONE, *WHY), "is no field with a value"),
        ("policy", (*OF_DOMAINS, "--if", "recipientdomain=@big", *NONE, *WHY), "names a list"),
        ("policy", ("--fields", "localip", "--if", "localip=nowhere", *NONE, *WHY), "is no address"),
        ("policy", (*TO_A, *NONE, "--for", "0s", *WHY), "--for"),
    ],
)
def test_what_cannot_be_is_refused(shell: QueueShell, group: str, options: tuple[str, ...], said: str) -> None:
    """A slip neither stops everything, nor limits everything or nothing: each has to be said."""
    ended = shell.line(group, "add", "spool", *options)
    listed = shell.line(group, "list", "spool", "--json").json
    assert (ended.code, said in ended.err) == (2, True), ended.err
    assert (listed.get("suspensions"), listed.get("conditions")) in (([], None), (None, []))


def test_a_queue_has_to_be_named(commands: Commands, shell: QueueShell) -> None:
    """The command to type is said."""
    ended = shell.line(commands.group, "add", *commands.others, *WHY)
    assert (ended.code, f"mailmend {commands.group} add outgoing" in ended.err) == (2, True)


def test_what_was_never_ordered_cannot_be_removed(commands: Commands) -> None:
    """With or without a ledger; where to look is said."""
    for _ in range(2):
        ended = commands.typed("remove", "6e0ab5e0-8d1c-11f0-9a5e-0242ac120002")
        assert (ended.code, f"mailmend {commands.group} list spool" in ended.err) == (2, True)
        commands.typed("add", *commands.others, *WHY)


# Suspensions


def test_what_is_suspended_is_listed_until_that_is_removed(shell: QueueShell) -> None:
    """With its fields, its times, who and why; the broker is never asked."""
    suspended = suspend(shell, "add", "--domain", "a.org", "--domain", "*.b.org", "--local-ip", "::1", *WHY, "--json")
    assert suspended.code == 0, suspended.err
    one = suspended.json["suspension"]
    assert one["fields"] == {"localip": ["::1"], "recipientdomain": ["a.org", "*.b.org"]}
    assert (one["why"], one["ends_at"], " pid " in one["owner"]) == ("they throttle us", None, True)
    assert suspend(shell, "list", "--json").json["suspensions"] == [one]
    table = suspend(shell, "list").out
    assert one["id"] in table
    assert "when it is removed" in table

    removed = suspend(shell, "remove", one["id"])
    assert removed.code == 0, removed.err
    assert "localip ::1, recipientdomain a.org or *.b.org" in removed.out
    assert suspend(shell, "list").out == "Nothing is suspended in spool.\n"
    assert not shell.asked


def test_the_same_mails_suspended_again_are_one_suspension(shell: QueueShell) -> None:
    """Renewed, with its new end and reason, in whatever order its values are named; one that has ended is not."""
    either, other = ("--domain", "a.org", "--domain", "b.org"), ("--domain", "b.org", "--domain", "a.org")
    first = suspend(shell, "add", *either, "--for", "1h", *WHY, "--json").json["suspension"]
    shell.pass_time(minutes=50)
    second = suspend(shell, "add", *other, "--for", "2h", "--why", "still", "--json").json["suspension"]
    assert (second["id"], second["why"]) == (first["id"], "still")
    shell.pass_time(minutes=119)
    assert [one["id"] for one in suspend(shell, "list", "--json").json["suspensions"]] == [first["id"]]
    shell.pass_time(minutes=1)
    assert suspend(shell, "list", "--json").json["suspensions"] == []
    third = suspend(shell, "add", *either, *WHY, "--json").json["suspension"]
    assert third["id"] != first["id"]


def test_a_server_heeds_what_was_suspended_before_it_started(
    shell: QueueShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mails to one domain stay, until that is removed; who and why are in its log."""
    relay = StoppingRelay(shell.clock)
    monkeypatch.setattr(delivery, "relay_of", lambda *_: relay)
    one = suspend(shell, "add", "--domain", "a.org", *WHY, "--json").json["suspension"]
    shell.put("held", recipients=("bob@a.org",))
    shell.put("goes", recipients=("cy@b.org",))
    ended = shell.line("delivery", "serve", *HOP, "--suspensions-every", "1s")
    assert ended.code == 0, ended.err
    assert (relay.had, shell.names()) == (["cy@b.org"], ["held"])
    assert "they throttle us" in ended.err

    suspend(shell, "remove", one["id"])
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
    one = suspend(shell, "add", "--domain", "a.org", "--job", "spring", *WHY, "--json").json["suspension"]
    ledger = shell.cluster.keyspace("mailmend")
    key = DELIVERY_SUSPENSION.key_row(("mail", "spool", UUID(one["id"])))
    ledger.write(
        Put(DELIVERY_SUSPENSION, key | {"fields": '{"recipientdomain": ["/^(?!news)/"], "jobid": ["spring"]}'})
    )

    (listed,) = suspend(shell, "list", "--json").json["suspensions"]
    assert (listed["id"], len(listed["unread"])) == (one["id"], 1)
    assert "(?!" in listed["unread"][0]
    out = " ".join(suspend(shell, "list").out.split())
    assert f"{one['id']} cannot be read: " in out
    assert "Until it is removed it holds every mail that its other fields name." in out
    assert f"mailmend suspend remove spool {one['id']}" in out

    assert suspend(shell, "remove", one["id"]).code == 0


def test_a_damaged_suspension_is_listed_as_what_holds_every_mail_and_can_be_removed(shell: QueueShell) -> None:
    one = suspend(shell, "add", "--domain", "a.org", *WHY, "--json").json["suspension"]
    other = suspend(shell, "add", "--domain", "b.org", *WHY, "--json").json["suspension"]
    key = DELIVERY_SUSPENSION.key_row(("mail", "spool", UUID(one["id"])))
    shell.cluster.keyspace("mailmend").write(Put(DELIVERY_SUSPENSION, key | {"fields": '{"recipientdomain": '}))

    listed = suspend(shell, "list", "--json").json["suspensions"]
    out = " ".join(suspend(shell, "list").out.split())
    removed = suspend(shell, "remove", one["id"])

    assert [(made["id"], made["unread"]) for made in listed] == [
        (one["id"], ["its column fields is no JSON"]),
        (other["id"], []),
    ]
    assert "Until it is removed it holds every mail." in out
    assert (removed.code, suspend(shell, "list", "--json").json["suspensions"]) == (0, [other])


# Conditions


async def backing_off(attempt: HookedAttempt) -> PostDecision | HookResult[PostDecision]:
    if attempt.end is not EntryEnd.REFUSED:
        return None
    limit = LimitMails({DOMAIN: ("a.org",)}, Threshold(1), timedelta(hours=1), attempt.reply)
    return HookResult(None, (limit, SuspendMails({DOMAIN: ("b.org",)}, timedelta(hours=1), attempt.reply)))


def test_what_a_hook_sets_is_listed_beside_what_people_set(shell: QueueShell, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name, with what the server answered as the reason; each keeps its own, and people's are tested first."""
    entry_point(monkeypatch, wiring.POST_DELIVERY, f"{__name__}:backing_off")
    relay = StoppingRelay(shell.clock)
    monkeypatch.setattr(delivery, "relay_of", lambda *_: relay)
    relay.scripts["bob@a.org"] = [LATER, ACCEPTED]
    shell.put("one", recipients=("bob@a.org",))
    assert shell.line("delivery", "serve", *HOP, "--post-delivery", "ours").code == 0
    (ours,) = policy(shell, "list", "--json").json["conditions"]
    assert (ours["owner"], ours["why"]) == ("hook ours", "450 4.2.0 later")
    (held,) = shell.line("suspend", "list", "spool", "--json").json["suspensions"]
    assert held["owner"] == "hook ours"

    mine = policy(shell, "add", *TO_A, *NONE, *WHY, "--json").json["condition"]
    assert [one["id"] for one in policy(shell, "list", "--json").json["conditions"]] == [mine["id"], ours["id"]]
    shell.line("suspend", "add", "spool", "--domain", "b.org", *WHY)
    assert len(shell.line("suspend", "list", "spool", "--json").json["suspensions"]) == 2


def test_what_is_set_is_listed_until_it_is_removed(shell: QueueShell) -> None:
    """With its fields, values, limits, times, who and why; the broker is never asked."""
    limits = ("--concurrency", "2", "--rate", "100/60", "--connect-interval", "0.5", "--stop", "--no-cluster")
    values = ("--if", "recipientdomain=A.org", "--if", "localip=::1", "--if", "recipientdomain=*.b.org")
    added = policy(shell, "add", "--fields", "recipientdomain,localip", *values, *limits, *WHY, "--json")
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
    assert policy(shell, "list", "--json").json["conditions"] == [one]
    table = " ".join(policy(shell, "list").out.split())
    assert "concurrency 2" in table
    assert "not known" in table

    removed = policy(shell, "remove", one["id"])
    assert removed.code == 0, removed.err
    assert "localip ::1, recipientdomain *.b.org or a.org" in removed.out
    assert "for each server separately, and later policies are not consulted" in removed.out
    assert policy(shell, "list").out == "There are no run-time conditions in spool.\n"
    assert not shell.asked


def test_the_same_fields_and_values_again_are_one_condition(shell: QueueShell) -> None:
    """Renewed, in whatever order and spelling: with its new limits, end and reason, and its old place."""
    values = ("--fields", "jobid,recipientdomain", "--if", "recipientdomain=a.org", "--if", "recipientdomain=b.org")
    again = ("--fields", "recipientdomain, jobid", "--if", "recipientdomain=B.ORG.", "--if", "recipientdomain=a.org")
    first = policy(shell, "add", *values, *NONE, "--for", "1h", *WHY, "--json").json["condition"]
    policy(shell, "add", *TO_A, *NONE, *WHY)
    shell.pass_time(minutes=50)
    second = policy(shell, "add", *again, "--rate", "5", "--for", "2h", "--why", "still", "--json").json["condition"]
    assert (second["id"], second["made_at"], second["why"]) == (first["id"], first["made_at"], "still")
    assert second["then"]["concurrency"] is None
    shell.pass_time(minutes=119)
    listed = policy(shell, "list", "--json").json["conditions"]
    assert (len(listed), listed[0]["id"]) == (2, first["id"])
    shell.pass_time(minutes=1)
    assert len(policy(shell, "list", "--json").json["conditions"]) == 1
    assert policy(shell, "remove", first["id"]).code == 2


def test_who_gives_an_id_may_give_it_again(shell: QueueShell) -> None:
    """The same id of something else is refused, and another id of the same thing too."""
    name = str(uuid4())
    for _ in range(2):
        ended = policy(shell, "add", *TO_A, *NONE, "--condition-id", name, *WHY, "--json")
        assert (ended.code, ended.json["condition"]["id"]) == (0, name)
    assert len(policy(shell, "list", "--json").json["conditions"]) == 1
    other = policy(shell, "add", *OF_DOMAINS, "--all", *NONE, "--condition-id", name, *WHY)
    assert (other.code, "is the id of another condition" in other.err) == (2, True)
    same = policy(shell, "add", *TO_A, *NONE, "--condition-id", str(uuid4()), *WHY)
    assert (same.code, f"with the id {name}" in same.err) == (2, True)
    assert policy(shell, "add", *TO_A, *NONE, *WHY, "--json").json["condition"]["id"] == name


def test_it_is_said_what_the_servers_make_of_it(shell: QueueShell) -> None:
    """A member of a group means the group; what no server counts by is parked, and what one lacks is parked there."""
    policy(shell, "add", "--fields", "", "--all", *NONE, *WHY)
    big = FieldGroup("big", (pattern_of(DOMAIN, "a.org"), pattern_of(DOMAIN, "*.c.org")))
    say(shell, "one", CounterPolicy((DOMAIN,), {DOMAIN: (big,)}))
    say(shell, "two", CounterPolicy((PickupField.JOB_ID,)))
    shell.pass_time(seconds=1)

    added = policy(shell, "add", *TO_A, *NONE, *WHY)
    assert "a.org is counted as #big: the limits are for the whole group." in added.out
    assert "Parked on two: no policy counts by exactly recipientdomain." in added.out
    everything, to_a = policy(shell, "list", "--json").json["conditions"]
    assert everything["parked"] == "no policy counts by exactly no field"
    assert to_a["parked"] is None
    assert to_a["servers"] == [
        {"server": "one", "parked": None, "counted_as": {"a.org": "#big"}},
        {"server": "two", "parked": "no policy counts by exactly recipientdomain", "counted_as": {}},
    ]
    shell.pass_time(minutes=6)
    assert "No server of the queue is at work" in " ".join(policy(shell, "add", *TO_A, *NONE, *WHY).out.split())


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
    policy(shell, "add", *TO_A, *NONE, *WHY)
    policy(shell, "add", "--fields", "jobid", "--all", *NONE, *WHY)
    shell.put("held", recipients=("bob@c.org",))
    shell.put("goes", recipients=("cy@b.org",))
    ended = shell.line("delivery", "serve", *HOP, "--policies", str(file))
    assert ended.code == 0, ended.err
    assert (relay.had, shell.names()) == (["cy@b.org"], ["held"])
    assert "they throttle us" in ended.err
    assert "no policy counts by exactly jobid" in ended.err
    assert [one["servers"] for one in policy(shell, "list", "--json").json["conditions"]] == [[], []]


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
    one = policy(shell, "add", *TO_A, *NONE, *WHY, "--json").json["condition"]
    key = ("mail", "spool", UUID(one["id"]))
    shell.cluster.keyspace("mailmend").write(Change(DELIVERY_CONDITION, key, assign={column: text}))

    (listed,) = policy(shell, "list", "--json").json["conditions"]
    out = " ".join(policy(shell, "list").out.split())
    removed = policy(shell, "remove", one["id"])

    assert (listed["id"], bool(listed["unread"])) == (one["id"], True)
    assert does in out
    assert (removed.code, policy(shell, "list", "--json").json["conditions"]) == (0, [])
