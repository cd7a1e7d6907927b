"""The options of a scan: one value for messages, queues and blobs."""

from collections.abc import Sequence
from dataclasses import fields
from datetime import timedelta

import click
import pytest

from mailmend.admin.frame.command import Command
from mailmend.admin.frame.plan_files import how_to_look, seconds_of, spans_in
from mailmend.admin.frame.scan_options import MARGIN, OF_EVERY_SCAN, SKEW, ScanOptions
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.messages.blobs import REPAIR_BLOBS
from mailmend.admin.messages.check import CHECK
from mailmend.admin.messages.mending import CheckRequest, given
from mailmend.admin.messages.options import SCANNING_ALL, TIMING, scanning_of
from mailmend.admin.messages.repair import REPAIR
from mailmend.model.operations import Level


def names(options: Sequence[click.Parameter]) -> set[str]:
    return {str(option.name) for option in options}


def test_a_check_and_a_repair_of_messages_have_each_option_of_a_scan() -> None:
    declared = {command.name: command for command in REPAIR.commands}
    messages = declared["messages"]
    wanted = {field.name for field in fields(ScanOptions)}

    assert wanted <= names(CHECK.options)
    assert isinstance(messages, Command)
    assert wanted <= names(messages.options)


def test_queues_and_blobs_have_the_options_of_every_scan_and_no_others() -> None:
    shared = scanning_of((*TIMING, *SCANNING_ALL))
    of_messages = {"torn", "without", "no_writers", "staging"}

    assert set(shared.names) == set(OF_EVERY_SCAN)
    assert names(REPAIR_BLOBS.options) >= set(OF_EVERY_SCAN)
    assert {field.name for field in fields(ScanOptions)} - set(OF_EVERY_SCAN) == of_messages
    assert not of_messages & names(REPAIR_BLOBS.options)


def test_a_check_of_blobs_hands_on_only_what_a_repair_of_blobs_takes() -> None:
    check = CheckRequest(
        connection=ConnectionSettings(),
        engine="local",
        rows_per_second=5,
        level=Level.QUORUM,
        torn="accept",
        without=("flagSeen",),
        delay=timedelta(seconds=5),
        no_writers=True,
        staging="/var/lib/staging",
    )

    assert given(check, OF_EVERY_SCAN) == ("--engine local --rows-per-second 5 --level QUORUM --delay 5s")


def test_named_options_are_typed_in_the_order_of_the_names() -> None:
    scan = ScanOptions(delay=timedelta(seconds=5), without=("a", "b"), pace="full")

    assert given(scan, ("without", "delay", "level")) == "--without a --without b --delay 5s"


@pytest.mark.parametrize("delay", [timedelta(), timedelta(minutes=2)])
def test_a_plan_keeps_how_was_looked_and_gives_it_back(delay: timedelta) -> None:
    scan = ScanOptions(level=Level.ONE, rows_per_second=7, delay=delay)

    kept = how_to_look(scan, MARGIN, 42) | seconds_of(marks_age=None)

    assert kept == {
        "as_of": 42,
        "level": "ONE",
        "rows_per_second": 7,
        "delay_seconds": delay.total_seconds(),
        "clock_skew_seconds": SKEW.total_seconds(),
        "margin_seconds": MARGIN.total_seconds(),
        "marks_age_seconds": None,
    }
    assert spans_in(kept) == {"delay": delay, "clock_skew": SKEW, "margin": MARGIN}
