"""Metrics as Prometheus's own parser reads them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from prometheus_client import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from tests.support.commands import Ended


@dataclass(frozen=True, slots=True)
class Scraped:
    """The families of one scrape, or of one textfile."""

    families: tuple[Family, ...]

    @classmethod
    def of(cls, text: str | Path) -> Self:
        return cls(tuple(text_string_to_metric_families(text.read_text() if isinstance(text, Path) else text)))

    def by(self, name: str, *labels: str, **given: str) -> dict[tuple[str, ...], float]:
        """The samples that have the given labels, by the values of the others."""
        samples = [one for family in self.families for one in family.samples if one.name == name]
        return {
            tuple(one.labels[label] for label in labels): one.value
            for one in samples
            if given.items() <= one.labels.items()
        }

    def one(self, name: str, **given: str) -> float | None:
        """The only such sample; None where there is none."""
        found = list(self.by(name, *given, **given).values())
        assert len(found) <= 1, (name, given, found)
        return found[0] if found else None


def tells_its_json(reported: Scraped, ended: Ended, **run: str) -> None:
    """Each number of the result's JSON is that of a metric."""
    json = ended.json
    findings = {
        (name, verdict): number for name, found in json["findings"].items() for verdict, number in found.items()
    }
    assert reported.by("mailmend_run_findings", "projection", "verdict", **run) == findings
    for metric, label, field in (
        ("rows_read", "table", "scanned"),
        ("fixed", "verdict", "fixed"),
        ("left", "verdict", "left"),
        ("stage_duration_seconds", "stage", "seconds"),
    ):
        assert reported.by(f"mailmend_run_{metric}", label, **run) == {(name,): n for name, n in json[field].items()}
    assert reported.one("mailmend_run_moved", **run) == json["moved"]
    assert reported.one("mailmend_run_failed", **run) == json["failed"]
    assert reported.one("mailmend_run_exit_code", **run) == ended.code == json["exit"]
