"""The names of metrics and labels in PromQL, and those that policyd exposes."""

import re
from collections.abc import Iterator
from functools import cache

from prometheus_client import CollectorRegistry

from policyd.controller.metrics.metric_families import COUNTED, MEASURED
from policyd.controller.policies.scanning import ScanMetrics
from webhooks.metrics import WebhookMetrics

TARGET = frozenset({"job", "instance", "le"})
"""Labels that Prometheus adds, or that buckets have."""

_NAME = re.compile(r"\b(?:policyd|kueue|multikueue)_\w+")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^()]*)\)")
_TEXT = re.compile(r"\"(?:[^\"\\]|\\.)*\"")


@cache
def exposed() -> dict[str, frozenset[str]]:
    """Return the labels of each series that policyd can expose, by its name in a query."""
    found: dict[str, frozenset[str]] = {}
    for family in (*COUNTED, *MEASURED):
        for name in _series(family.name, family.kind):
            found[name] = found.get(name, frozenset()) | {*family.label_names()}
    for owner in (WebhookMetrics, ScanMetrics):
        for metric in vars(owner(CollectorRegistry())).values():
            if hasattr(metric, "describe") and hasattr(metric, "_labelnames"):
                (described,) = metric.describe()
                total = "_total" if described.type == "counter" else ""
                for name in _series(f"{described.name}{total}", described.type):
                    found[name] = found.get(name, frozenset()) | {*metric._labelnames}
    return found


def unknown(expression: str) -> list[str]:
    """Return the names in a query that policyd exposes no metric or label for."""
    bare = _TEXT.sub('""', expression)
    names = _NAME.findall(bare)
    labels = {*TARGET}.union(*(exposed().get(name, frozenset()) for name in names))
    used = [*_MATCHER.findall(bare)]
    for grouping in _GROUPING.findall(bare):
        used += [label.strip() for label in grouping.split(",") if label.strip()]
    wrong = [name for name in names if name not in exposed()]
    return wrong + [label for label in used if label not in labels]


def _series(name: str, kind: str) -> Iterator[str]:
    if kind == "histogram":
        yield from (f"{name}_{end}" for end in ("bucket", "count", "sum"))
    else:
        yield name
