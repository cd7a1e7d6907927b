"""`mailmend queue configure` as a person and a script see it: shown, tried, set, refused with a way out."""

import asyncio
import json
from pathlib import Path

import pytest

from mailmend.admin.queue import openers
from mailmend.mailqueue.configuration import EVENTS, Configurations
from mailmend.mailqueue.rules.configuration import AGGREGATE, DEFAULT, event_json
from mailmend.model.operations import Put, PutIfAbsent
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import CommandLine, command_line
from tests.support.in_turn import InTurn


@pytest.fixture
def mailmend(cluster: ClusterTwin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A shell that knows a cluster in memory, whose tables answer at once."""
    monkeypatch.setattr(openers, "tables_of", InTurn)
    return command_line(tmp_path, None, MAILMEND_HOST="127.0.0.1", MAILMEND_KEYSPACE="mail")


def events(cluster: ClusterTwin) -> list[tuple[int, int, int, int]]:
    history = asyncio.run(Configurations(InTurn(cluster.keyspace("mail"))).history())
    return [
        (one.event_id, round(one.configuration.slicing.window.total_seconds()), buckets, one.configuration.pace)
        for one in history
        for buckets in [one.configuration.slicing.buckets]
    ]


def james_was_here(cluster: ClusterTwin) -> None:
    event = {"aggregateid": AGGREGATE, "eventid": 0, "event": event_json(0, DEFAULT)}
    cluster.keyspace("mail").write(Put(EVENTS, event))


def test_without_options_it_shows_and_writes_nothing(mailmend: CommandLine, cluster: ClusterTwin) -> None:
    ended = mailmend("queue", "configure")

    assert ended.code == 0
    assert "Nothing was set in mail yet" in ended.out
    assert "slices of 1h in 1 bucket, the browse start moved on one of 1,000 dequeues and deletes" in ended.out
    assert events(cluster) == []


def test_what_james_set_is_shown(mailmend: CommandLine, cluster: ClusterTwin) -> None:
    james_was_here(cluster)
    ended = mailmend("queue", "configure")

    assert (ended.code, ended.err) == (0, "")
    assert "What counts: slices of 1h in 1 bucket" in ended.out
    assert ["0", "1h", "1", "1,000"] in [line.split() for line in ended.out.splitlines()]


def test_a_change_is_set_and_reported_with_what_is_next(mailmend: CommandLine, cluster: ClusterTwin) -> None:
    """What is not named stays as it is; James must be told as well."""
    james_was_here(cluster)
    ended = mailmend("queue", "configure", "--slice-window", "30m", "--buckets", "2")

    assert ended.code == 0
    assert "Set: slices of 30m in 2 buckets, the browse start moved on one of 1,000" in ended.out
    assert "mailqueue.view.sliceWindow=30m, mailqueue.view.bucketCount=2" in ended.err
    assert "mailmend runbook show change-slice-window" in ended.err
    assert events(cluster) == [(0, 3_600, 1, 1_000), (1, 1_800, 2, 1_000)]


def test_each_option_alone_changes_one_thing(mailmend: CommandLine, cluster: ClusterTwin) -> None:
    """One after the other, each on what counted then; the first on James's defaults."""
    for option in (("--browse-start-every", "50"), ("--buckets", "3"), ("--slice-window", "900s")):
        assert mailmend("queue", "configure", *option).code == 0

    assert events(cluster) == [(0, 3_600, 1, 50), (1, 3_600, 3, 50), (2, 900, 3, 50)]


def test_the_same_again_adds_nothing(mailmend: CommandLine, cluster: ClusterTwin) -> None:
    james_was_here(cluster)
    ended = mailmend("queue", "configure", "--slice-window", "1h", "--buckets", "1")

    assert (ended.code, ended.err) == (0, "")
    assert "What counts: slices of 1h" in ended.out
    assert len(events(cluster)) == 1


@pytest.mark.parametrize("really", [(), ("--dry-run",)], ids=["really", "dry run"])
@pytest.mark.parametrize(
    ("options", "why", "allowed"),
    [
        (("--slice-window", "7m"), "a slice window of 7m does not divide the last one, 1h", "6m or 10m"),
        (("--slice-window", "2h"), "a slice window of 2h is longer than the last one, 1h", "Allowed next to it: 1h"),
        (("--slice-window", "0"), "0s is no slice window", "at least 1s"),
        (("--slice-window", "500ms"), "0.5s is no slice window", "whole seconds"),
        (("--buckets", "0"), "0 is no number of buckets", "1 or more"),
        (("--browse-start-every", "-5"), "-5 is no pace", "at least 1"),
    ],
)
def test_what_loses_mails_is_refused_with_a_way_out(  # noqa: PLR0917 - a table of cases
    mailmend: CommandLine,
    cluster: ClusterTwin,
    really: tuple[str, ...],
    options: tuple[str, ...],
    why: str,
    allowed: str,
) -> None:
    james_was_here(cluster)
    ended = mailmend("queue", "configure", *options, *really, "--json")

    assert (ended.code, ended.out) == (2, "")
    assert why in ended.err
    assert allowed in ended.err
    assert len(events(cluster)) == 1


def test_a_dry_run_says_what_may_be_and_sets_nothing(mailmend: CommandLine, cluster: ClusterTwin) -> None:
    ended = mailmend("queue", "configure", "--slice-window", "30m", "--dry-run")

    assert ended.code == 0
    assert "It may be set: slices of 30m in 1 bucket" in ended.out
    assert "after the change" in ended.err
    assert events(cluster) == []


def test_scripts_get_one_object(mailmend: CommandLine, cluster: ClusterTwin) -> None:
    """Before, after and history in figures; James's properties as James spells them."""
    james_was_here(cluster)
    hour = {"slice_window_seconds": 3_600, "buckets": 1, "pace": 1_000}
    half = {"slice_window_seconds": 1_800, "buckets": 1, "pace": 1_000}
    properties = {
        "mailqueue.view.sliceWindow": "30m",
        "mailqueue.view.bucketCount": "1",
        "mailqueue.view.updateBrowseStartPace": "1000",
    }
    reported = {"keyspace": "mail", "before": hour, "configuration": half, "james_properties": properties, "exit": 0}
    asked = ("queue", "configure", "--slice-window", "30m", "--json")

    tried = mailmend(*asked, "--dry-run")
    assert json.loads(tried.out) == {**reported, "changed": False, "dry_run": True, "history": [{"event": 0, **hour}]}
    history = [{"event": 0, **hour}, {"event": 1, **half}]
    assert mailmend(*asked).json == {**reported, "changed": True, "dry_run": False, "history": history}
    again = {"changed": False, "before": half, "dry_run": False, "history": history}
    assert mailmend("queue", "configure", "--json").json == {**reported, **again}


def test_nothing_set_is_null_for_scripts(mailmend: CommandLine, cluster: ClusterTwin) -> None:
    document = mailmend("queue", "configure", "--json").json

    assert (document["before"], document["configuration"], document["james_properties"]) == (None, None, None)
    assert document["history"] == []


def test_an_event_that_cannot_be_read_is_named(mailmend: CommandLine, cluster: ClusterTwin) -> None:
    row = {"aggregateid": AGGREGATE, "eventid": 0, "event": "{}"}
    cluster.keyspace("mail").attempt(PutIfAbsent(EVENTS, row))
    ended = mailmend("queue", "configure")

    assert (ended.code, ended.out) == (3, "")
    assert "event 0 of CassandraMailQueueViewConfiguration in eventStore cannot be read: type is not" in ended.err


def test_the_help_names_the_rules_and_the_runbook(mailmend: CommandLine) -> None:
    said = " ".join(mailmend("queue", "configure", "--help").out.split())

    assert "must divide the last one" in said
    assert "change-slice-window" in said
    assert "Exit codes:" in said
