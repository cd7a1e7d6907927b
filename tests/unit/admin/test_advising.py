"""What advice warns of, what it refuses, and where a trial may run: decided without any server."""

from dataclasses import replace
from pathlib import Path

import pytest

from mailmend.admin.schema.advise import MessageTables, _cautions
from mailmend.admin.schema.measuring import (
    NAMES,
    MessageTraffic,
    QueueTraffic,
    Sample,
    SampledMessage,
    refuse_other_keyspaces,
)
from mailmend.cql.schema.advice import ReadCost, TrialResult
from mailmend.model.catalog.mail import MAILBOX, MESSAGE_ID, CompactionChoice
from mailmend.model.durations import DAY
from mailmend.model.errors import SchemaMismatch
from mailmend.model.keyspace import Schema
from mailmend.model.table import Column, Kind, Table
from tests.support.commands import command_line

DAY_MICROS = DAY * 1_000_000
COST = ReadCost(1, 1, 1, 1, 1)
KNOWN = MessageTables("TimeWindowCompactionStrategy", CompactionChoice.TWCS, MessageTraffic(None, None), None)


def tried(days: int, *, by_birth: bool = False) -> MessageTables:
    cells = tuple(None for _ in NAMES)
    messages = [SampledMessage(cells, 0, None), SampledMessage(cells, days * DAY_MICROS, None)]
    results = (TrialResult(CompactionChoice.TWCS, COST, COST, 1, 1),)
    return replace(KNOWN, sample=Sample(messages, 1, 0, by_birth), results=results)


class TestCautions:
    """What a reader must know before following the advice."""

    def test_a_queue_of_james_renews_nothing(self) -> None:
        (caution,) = _cautions(QueueTraffic("spool", None, None, None, 1), KNOWN)

        assert "renews no row" in caution

    def test_rows_written_at_once_are_reported(self) -> None:
        (caution,) = _cautions(None, tried(700, by_birth=True))

        assert "favours twcs" in caution

    def test_a_short_history_says_little_of_windows(self) -> None:
        (caution,) = _cautions(None, tried(59))

        assert "less than two windows" in caution
        assert _cautions(None, tried(60)) == []

    def test_a_trial_that_was_not_made_says_why(self) -> None:
        assert _cautions(None, replace(KNOWN, untried="no Java 17 was found")) == [
            "No trial was made: no Java 17 was found"
        ]

    def test_nothing_is_warned_of_without_cause(self) -> None:
        assert _cautions(None, tried(700)) == []


class TestRefusals:
    """What is no keyspace of mail, and what is no place for a trial."""

    def test_either_messages_or_a_queue_will_do(self) -> None:
        queue = Table("enqueuedMailsV4", (Column("queueName", "text", Kind.PARTITION),))

        refuse_other_keyspaces("mail", Schema((), (MESSAGE_ID,)))
        refuse_other_keyspaces("mail", Schema((), (queue,)))
        with pytest.raises(SchemaMismatch, match="lacks table messageIdTable"):
            refuse_other_keyspaces("mail", Schema((), (MAILBOX,)))

    @pytest.mark.parametrize("address", ["cassandra-1:9042", "cassandra-1"])
    def test_the_cluster_with_the_mail_is_no_place_for_a_trial(self, address: str, tmp_path: Path) -> None:
        ended = command_line(tmp_path)("schema", "advise", "--host", "cassandra-1", "--trial-at", address)

        assert ended.code == 2
        assert "--trial-at cassandra-1:9042 is the cluster that is advised on" in ended.err

    @pytest.mark.parametrize("address", ["cassandra-1:", "cassandra-1:cql", "cassandra-1:0", "cassandra-1:99999"])
    def test_an_address_is_a_host_and_a_port(self, address: str, tmp_path: Path) -> None:
        ended = command_line(tmp_path)("schema", "advise", "--trial-at", address)

        assert ended.code == 2
        assert "--trial-at" in ended.err

    def test_the_settings_file_knows_the_command(self, tmp_path: Path) -> None:
        settings = tmp_path / "config.toml"
        settings.write_text("[schema.advise]\nrowz = 5\n")

        ended = command_line(tmp_path)("--config", str(settings), "schema", "advise")

        assert ended.code == 2
        assert "line 2: 'rowz'" in ended.err

    def test_the_help_says_what_the_copy_holds_and_where_it_lies(self, tmp_path: Path) -> None:
        ended = command_line(tmp_path)("schema", "advise", "--help")

        assert ended.code == 0
        for words in (
            "each character of a text becomes an x",
            "only you may read",
            "removed at the end",
            "Writes nothing",
        ):
            assert words in " ".join(ended.out.split())
