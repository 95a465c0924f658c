"""Write the chart's dashboards from `dashboards.yaml`: `python -m tests.monitoring.dashboards`."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

TABLE = Path(__file__).with_name("dashboards.yaml")
FOLDER = Path(__file__).parents[2] / "charts" / "policyd" / "dashboards"

COLUMNS, HEIGHT, WIDTH = 2, 8, 12
"""Panels beside each other, and their size in Grafana's grid of 24 columns."""
SHORTHANDS = {
    "CQ": 'cluster_queue=~"$cluster_queue"',
    "LQ": 'namespace=~"$namespace"',
    "RATE": "$__rate_interval",
}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Query(NamedTuple):
    """A query of a panel, as Grafana has it."""

    dashboard: str
    panel: str
    expression: str


def documents() -> dict[str, str]:
    """Return the dashboards as JSON, by the names of their files."""
    return {f"{each['name']}.json": _text(_dashboard(each)) for each in _table()}


def queries() -> Iterator[Query]:
    """Iterate over all queries."""
    for each in _table():
        for title, _, wanted in each["panels"]:
            for expression in wanted.values():
                yield Query(each["name"], title, _long(expression))


def plain(expression: str, *, interval: str) -> str:
    """Return a query as Prometheus takes it, with all queues chosen."""
    chosen = expression.replace("$__rate_interval", interval)
    return re.sub(r'"\$\w+"', '".*"', chosen)


def _table() -> list[dict[str, Any]]:
    return yaml.safe_load(TABLE.read_text())


def _long(expression: str) -> str:
    return re.sub(r"\b(CQ|LQ|RATE)\b", lambda found: SHORTHANDS[found[0]], expression)


def _dashboard(given: dict[str, Any]) -> dict[str, Any]:
    return {
        "uid": f"policyd-{given['name']}",
        "title": given["title"],
        "description": given["about"],
        "tags": ["policyd"],
        "editable": False,
        "schemaVersion": 38,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_source(), *map(_variable, given["variables"].items())]},
        "panels": [_panel(number, each) for number, each in enumerate(given["panels"])],
    }


def _source() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
    }


def _variable(given: tuple[str, str]) -> dict[str, Any]:
    label, metric = given
    return {
        "name": label,
        "type": "query",
        "datasource": SOURCE,
        "query": f"label_values({metric}, {label})",
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, given: tuple[str, str, dict[str, str]]) -> dict[str, Any]:
    title, unit, wanted = given
    row, column = divmod(number, COLUMNS)
    targets = [
        {
            "refId": chr(ord("A") + at),
            "datasource": SOURCE,
            "expr": _long(text),
            "legendFormat": name,
        }
        for at, (name, text) in enumerate(wanted.items())
    ]
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": SOURCE,
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": targets,
    }


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1) + "\n"


def write() -> None:
    """Write the files, and remove those of dashboards that are gone."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    found = documents()
    for file in FOLDER.glob("*.json"):
        if file.name not in found:
            file.unlink()
    for name, text in found.items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    write()
