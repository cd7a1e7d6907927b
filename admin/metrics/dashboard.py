"""The dashboard of Grafana, as code: panels as data, rendered as the JSON that Grafana imports.

`mailmend metrics dashboard` prints it.
"""

import json
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from mailmend.admin.metrics.alerts import RUNBOOKS_AT, RunbookLinks
from mailmend.admin.metrics.delivery_panels import DELIVERY_ROWS
from mailmend.admin.metrics.panels import PANEL_ROWS, DashboardPanel

_SCHEMA: Final = 39
"""Of Grafana 11; later ones take it, and write their own."""

_COLUMNS: Final = 24
_SOURCE: Final = {"type": "prometheus", "uid": "${source}"}

ROWS: Final = (*PANEL_ROWS, *DELIVERY_ROWS)
PANELS: Final = tuple(chain.from_iterable(row.panels for row in ROWS))


def dashboard_json(runbooks: RunbookLinks = RUNBOOKS_AT) -> str:
    """The dashboard as Grafana imports it; which source of data it reads is chosen there."""
    document = {
        "uid": "mailmend",
        "title": "mailmend",
        "tags": ["cassandra", "mail"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "refresh": "1m",
        "time": {"from": "now-7d", "to": "now"},
        "templating": {"list": list(_variables())},
        "panels": list(_panels(runbooks)),
    }
    return json.dumps(document, indent=2) + "\n"


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "source", "type": "datasource", "query": "prometheus"}
    yield _values("keyspace", "mailmend_(ledger_up|run_exit_code)")
    yield _values("queue", "mailmend_(queue_mails|queue_trouble|delivery_mails)")


def _values(label: str, metrics: str) -> dict[str, Any]:
    """A variable with the values of a label; `metrics` is a regular expression of names."""
    query = f'label_values({{__name__=~"{metrics}"}}, {label})'
    return {
        "name": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": label},
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _panels(runbooks: RunbookLinks) -> Iterator[dict[str, Any]]:
    """Below each heading, from left to right; a line is as high as its highest panel."""
    number = 1
    y = 0
    for row in ROWS:
        place = {"x": 0, "y": y, "w": _COLUMNS, "h": 1}
        heading = {"type": "row", "title": row.title, "collapsed": False, "panels": []}
        yield {"id": number, "gridPos": place, **heading}
        number += 1
        y += 1
        x = height = 0
        for panel in row.panels:
            if x + panel.columns > _COLUMNS:
                y += height
                x = height = 0
            place = {"x": x, "y": y, "w": panel.columns, "h": panel.rows}
            yield {"id": number, "gridPos": place, **_panel(panel, runbooks)}
            number += 1
            x += panel.columns
            height = max(height, panel.rows)
        y += height


def _panel(panel: DashboardPanel, runbooks: RunbookLinks) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + place), "expr": query.expression, "legendFormat": query.legend}
        for place, query in enumerate(panel.queries)
    ]
    shown: dict[str, Any] = {
        "type": panel.kind,
        "title": panel.title,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": targets,
    }
    if panel.about:
        shown["description"] = panel.about
    if panel.runbooks:
        shown["links"] = [_link(name, runbooks) for name in panel.runbooks]
    return shown


def _link(page: str, runbooks: RunbookLinks) -> dict[str, Any]:
    return {"title": f"Runbook: {page}", "url": runbooks.of(page), "targetBlank": True}
