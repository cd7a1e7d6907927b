"""What reports plot, and findings run after run: every number is there, and no bar leaves its chart."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.admin.frame.document import BARS_MAX, Chart, by_time, by_verdict, in_order, over_runs
from mailmend.model.catalog.ledger import REPAIR_RUN
from mailmend.model.errors import AccessDenied
from mailmend.model.operations import Read
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.ledger.runs import Ledger
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import QUICK, CommandLine
from tests.support.mail_states import MailKeyspace
from tests.support.repairing import DAY_SECONDS
from tests.support.writing import Faults

HOUR_2026 = 490_000
HOURS = st.dictionaries(
    st.tuples(
        st.one_of(st.integers(HOUR_2026 - 90_000, HOUR_2026), st.integers(-(2**40), 2**40)), st.sampled_from(Verdict)
    ),
    st.integers(1, 10**6),
    max_size=40,
)


def total(chart: Chart) -> int:
    return sum(bar.total for bar in chart.bars)


def nothing_overlaps(chart: Chart) -> bool:
    """Within one bar each part begins where the one before ends; the longest bar is as long as the chart."""
    ends: dict[int, float] = {}
    for block in chart.blocks:
        assert block.begins == pytest.approx(ends.get(block.bar, 0.0), abs=0.01)
        assert block.size >= 0
        ends[block.bar] = block.begins + block.size
    return max(ends.values()) == pytest.approx(100, abs=0.01)


@given(hours=HOURS)
def test_every_time_that_a_calendar_has_is_plotted_once(hours: dict[tuple[int, Verdict], int]) -> None:
    known = sum(count for (hour, _), count in hours.items() if 0 <= hour < 24 * 365 * 1000)

    charts = list(by_time(hours))

    assert sum(map(total, charts)) == known
    for chart in charts:
        assert len(chart.bars) <= BARS_MAX
        assert len({bar.label for bar in chart.bars}) == len(chart.bars)
        assert nothing_overlaps(chart)


@pytest.mark.parametrize(
    ("hours", "unit", "bars", "first"),
    [
        ((0,), "an hour", 1, "2025-11-24 16:00"),
        ((0, 59), "an hour", 60, "2025-11-24 16:00"),
        ((0, 60), "six hours", 11, "2025-11-24 12:00"),
        ((0, 24 * 30), "a day", 31, "2025-11-24"),
        ((0, 24 * 365), "7 days", 53, "2025-11-20"),
    ],
)
def test_a_bar_is_as_short_as_the_chart_allows(hours: tuple[int, ...], unit: str, bars: int, first: str) -> None:
    """What goes wrong every night is seen as long as nights can be told apart."""
    (chart,) = by_time({(HOUR_2026 + hour, Verdict.AMEND): 1 for hour in hours})

    assert (chart.unit, len(chart.bars), chart.bars[0].label) == (f"a bar is {unit}", bars, first)


@given(counts=st.dictionaries(st.sampled_from([*(one.value for one in Verdict), "MISSING"]), st.integers(0, 99)))
def test_verdicts_stand_in_one_order_without_zeros(counts: dict[str, int]) -> None:
    charts = list(by_verdict(counts))

    labels = [bar.label for chart in charts for bar in chart.bars]
    assert labels == [name for name in in_order(counts) if counts[name]]
    assert [total(chart) for chart in charts] == [sum(counts.values())] * bool(sum(counts.values()))
    assert all(map(nothing_overlaps, charts))


def test_the_last_runs_are_plotted_and_nothing_where_nothing_was_found() -> None:
    (chart,) = over_runs("Found", [(str(number), Counter(AMEND=number)) for number in range(BARS_MAX + 9)])

    assert [chart.bars[0].label, chart.bars[-1].label, len(chart.bars)] == ["9", str(BARS_MAX + 8), BARS_MAX]
    assert list(over_runs("Found", [("one", Counter())])) == []


class TestTrend:
    """`runs trend`, and the same in reports."""

    @pytest.fixture
    def nights(self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin) -> list[str]:
        """Drift that comes back, a run that was killed, a night without any, and one of blobs."""
        runs = []
        for lost in (2, 1, 0):
            for truth in mail.truths[:lost]:
                mail.lose_projection(truth)
            cluster.clock.advance(DAY_SECONDS)
            runs.append(mailmend("repair", "messages", *QUICK, "--json").json["run"])
        ledger = Ledger(cluster.keyspace("mailmend"), cluster.clock)
        for command, summary in (("repair", {}), ("repair blobs", {"fixed": {"COLLECT": 7}, "left": {"MISSING": 1}})):
            cluster.clock.advance(DAY_SECONDS)
            runs.append(str(ledger.finish(ledger.start("mail", command, 0, {}), summary).id))
        return runs

    def test_a_script_gets_every_run_the_oldest_first(self, mailmend: CommandLine, nights: list[str]) -> None:
        trend = mailmend("runs", "trend", "--json").json

        assert (trend["keyspace"], [run["run"] for run in trend["runs"]]) == ("mail", nights)
        first, *_, killed, blobs = trend["runs"]
        found: dict[str, Any] = {name: first[name] for name in ("findings", "fixed", "left")}
        assert found == {"findings": {"messageIdTable": {"PROJECT": 2}}, "fixed": {"PROJECT": 2}, "left": {}}
        assert (killed["findings"], killed["fixed"], killed["left"]) == ({}, {}, {})
        assert (blobs["fixed"], blobs["left"]) == ({"COLLECT": 7}, {"MISSING": 1})

    def test_people_see_a_line_for_each_verdict_of_a_run(self, mailmend: CommandLine, nights: list[str]) -> None:
        lines = mailmend("runs", "trend").out.splitlines()

        reported = [line.split()[3:] for line in lines if any(run in line for run in nights)]
        assert reported == [
            ["repair", "PROJECT", "2", "2", "0"],
            ["repair", "PROJECT", "1", "1", "0"],
            ["repair", "0", "0", "0"],
            ["repair", "0", "0", "0"],
            ["repair", "blobs", "COLLECT", "0", "7", "0"],
            ["repair", "blobs", "MISSING", "0", "0", "1"],
        ]

    @pytest.mark.usefixtures("nights")
    def test_reports_plot_it(self, mailmend: CommandLine, mail: MailKeyspace, tmp_path: Path) -> None:
        """That of the trend, and that of a check beside what it found."""
        mail.lose_projection(mail.truths[0])
        trend, check = tmp_path / "trend.html", tmp_path / "check.html"

        mailmend("runs", "trend", "--report", str(trend))
        mailmend("check", *QUICK, "--report", str(check))

        for report in (trend, check):
            assert "Found, run after run" in report.read_text()
            assert "repair: PROJECT 2</title></rect>" in report.read_text()
        assert "Findings by verdict" in check.read_text()
        assert "When their rows were last written (UTC)" in check.read_text()

    def test_without_any_run_that_is_said(self, mailmend: CommandLine) -> None:
        ended = mailmend("runs", "trend")

        assert (ended.code, "No run is kept" in ended.out) == (0, True)
        assert mailmend("runs", "trend", "--json").json == {"keyspace": "mail", "runs": []}

    @pytest.mark.usefixtures("nights")
    def test_who_may_not_read_the_ledger_gets_the_rest(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, tmp_path: Path
    ) -> None:
        """A reader's check; it is told."""
        mail.lose_projection(mail.truths[0])
        faults = Faults()
        cluster.keyspace("mailmend").surround = faults
        faults.fail(
            lambda one: isinstance(one, Read) and one.table.name == REPAIR_RUN.name, AccessDenied("no SELECT"), times=99
        )

        ended = mailmend("check", *QUICK, "--report", str(tmp_path / "r.html"))

        assert (ended.code, "Earlier runs are not known: no SELECT." in ended.err) == (1, True)
        assert "Findings by verdict" in (tmp_path / "r.html").read_text()
