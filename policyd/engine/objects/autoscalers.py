"""Convert HorizontalPodAutoscalers between versions, as the API server does.

autoscaling/v1 has a field for the first target of CPU utilization. The other fields of v2 are
in annotations of v1: metrics in the form of a removed version, behavior by Go's names.
"""

from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

from policyd.api.meta import Json
from policyd.engine.objects.workloads import value_at

_PREFIX: Final = "autoscaling.alpha.kubernetes.io/"
_ANNOTATIONS: Final = tuple(
    _PREFIX + name for name in ("metrics", "behavior", "conditions", "current-metrics")
)
_METRICS, _BEHAVIOR, _CONDITIONS, _CURRENT = _ANNOTATIONS

_Side = Literal["target", "current"]

_NAME: Final = ("metricName", "metric", "name")
_RESOURCE: Final = (
    ("name", "name"),
    ("{}AverageUtilization", "{}", "averageUtilization"),
    ("{}AverageValue", "{}", "averageValue"),
)
_FORMS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "resource": _RESOURCE,
    "containerResource": (*_RESOURCE, ("container", "container")),
    "pods": (_NAME, ("{}AverageValue", "{}", "averageValue"), ("selector", "metric", "selector")),
    "object": (
        ("target", "describedObject"),
        _NAME,
        ("{}Value", "{}", "value"),
        ("selector", "metric", "selector"),
        ("averageValue", "{}", "averageValue"),
    ),
    "external": (
        _NAME,
        ("metricSelector", "metric", "selector"),
        ("{}Value", "{}", "value"),
        ("{}AverageValue", "{}", "averageValue"),
    ),
}
"""The v1 annotations of a metric's fields, and their paths in v2; `{}` is target or current."""

_NEVER_LEFT_OUT: Final = frozenset(
    {
        ("object", "targetValue"),
        ("object", "currentValue"),
        ("external", "currentValue"),
        ("pods", "targetAverageValue"),
        *((form, "currentAverageValue") for form in ("pods", "resource", "containerResource")),
    }
)
"""Amounts that are written as 0 if there are none."""

_SPEC: Final = ("scaleTargetRef", "minReplicas", "maxReplicas")
_STATUS: Final = ("observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas")


def to_v1(obj: dict[str, Any]) -> dict[str, Json]:
    """Return an object of autoscaling/v2 in autoscaling/v1."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    metrics, current = spec.get("metrics") or (), status.get("currentMetrics") or ()
    written = {
        _METRICS: [_old(m, "target") for m in metrics if _utilization(m, "target") is None],
        _BEHAVIOR: _renamed(spec.get("behavior"), capitals=True),
        _CONDITIONS: status.get("conditions"),
        _CURRENT: [_old(metric, "current") for metric in current],
    }
    added = {name: _text(value) for name, value in written.items() if value}
    first = {
        "targetCPUUtilizationPercentage": _first(metrics, "target"),
        "currentCPUUtilizationPercentage": _first(current, "current"),
    }
    fields = {name: value for name, value in first.items() if value is not None}
    return {
        **obj,
        "apiVersion": "autoscaling/v1",
        "metadata": _annotated(obj, added),
        "spec": _of(spec, _SPEC) | _of(fields, ("targetCPUUtilizationPercentage",)),
        "status": _of(status, _STATUS) | _of(fields, ("currentCPUUtilizationPercentage",)),
    }


def to_v2(obj: dict[str, Any]) -> dict[str, Json]:
    """Return an object of autoscaling/v1 in autoscaling/v2."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    annotations = value_at(obj, ("metadata", "annotations")) or {}
    metrics = [_new(metric, "target") for metric in _read(annotations, _METRICS, list) or ()]
    target = spec.get("targetCPUUtilizationPercentage")
    if target is not None:
        metrics.append(_new(_cpu("targetAverageUtilization", target), "target"))
    current = [_new(metric, "current") for metric in _read(annotations, _CURRENT, list) or ()]
    seen = status.get("currentCPUUtilizationPercentage")
    if seen is not None and _read(annotations, _CURRENT, list) is None:
        current.append(_new(_cpu("currentAverageUtilization", seen), "current"))
    behavior = _renamed(_read(annotations, _BEHAVIOR, dict), capitals=False)
    conditions = _read(annotations, _CONDITIONS, list)
    more = (("metrics", metrics), ("behavior", behavior))
    seen_too = (("currentMetrics", current), ("conditions", conditions))
    return {
        **obj,
        "apiVersion": "autoscaling/v2",
        "metadata": _annotated(obj, {}),
        "spec": _of(spec, _SPEC) | {name: value for name, value in more if value},
        "status": _of(status, _STATUS) | {name: value for name, value in seen_too if value},
    }


def _of(fields: dict[str, Json], names: tuple[str, ...]) -> dict[str, Json]:
    return {name: fields[name] for name in names if name in fields}


def _annotated(obj: dict[str, Any], added: dict[str, str]) -> dict[str, Json]:
    """Return the metadata with these of the version's own annotations, and no others."""
    metadata = obj.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    kept = {name: text for name, text in annotations.items() if name not in _ANNOTATIONS} | added
    rest = {name: value for name, value in metadata.items() if name != "annotations"}
    return rest | ({"annotations": kept} if kept else {})


def _cpu(field: str, percent: Json) -> dict[str, Json]:
    return {"type": "Resource", "resource": {"name": "cpu", field: percent}}


def _first(metrics: Any, side: _Side) -> Json:  # noqa: ANN401 - a list of metrics
    found = (_utilization(metric, side) for metric in metrics)
    return next((percent for percent in found if percent is not None), None)


def _utilization(metric: Json, side: _Side) -> Json:
    """Return the utilization of the CPU, if a metric is about that."""
    if value_at(metric, ("resource", "name")) != "cpu":
        return None
    return value_at(metric, ("resource", side, "averageUtilization"))


def _old(metric: dict[str, Any], side: _Side) -> dict[str, Json]:
    """Return a metric as annotations have it."""
    written: dict[str, Json] = {"type": metric.get("type")}
    for form in _FORMS.keys() & metric.keys():
        fields = {name: value_at(metric[form], path) for name, path in _places(form, side)}
        needed = {name: "0" for name in fields if (form, name) in _NEVER_LEFT_OUT}
        given = {name: value for name, value in fields.items() if value is not None}
        written[form] = {name: (needed | given)[name] for name in fields if name in needed | given}
    return written


def _new(metric: dict[str, Any], side: _Side) -> dict[str, Json]:
    """Return a metric of an annotation as v2 has it."""
    written: dict[str, Any] = {"type": metric.get("type")}
    for form in _FORMS.keys() & metric.keys():
        fields = dict(metric[form])
        if "averageValue" in fields and fields.get("targetValue") == "0":
            del fields["targetValue"]  # a 0 that could not be left out
        made: dict[str, Any] = {side: {"type": _type(fields)} if side == "target" else {}}
        for name, path in _places(form, side):
            if fields.get(name) is not None:
                place = made if len(path) == 1 else made.setdefault(path[0], {})
                place[path[-1]] = fields[name]
        written[form] = made
    return written


def _type(metric: dict[str, Json]) -> str:
    """Return which kind of target a metric of an annotation has."""
    if "targetAverageUtilization" in metric:
        return "Utilization"
    return "Value" if "targetValue" in metric and "averageValue" not in metric else "AverageValue"


def _places(form: str, side: _Side) -> Iterator[tuple[str, tuple[str, ...]]]:
    for name, *path in _FORMS[form]:
        yield name.format(side), tuple(step.format(side) for step in path)


_RULES: Final = ("stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance")
_POLICY: Final = ("type", "value", "periodSeconds")


def _renamed(behavior: Any, *, capitals: bool) -> dict[str, Json]:  # noqa: ANN401 - may be none
    """Return a behavior with the names of Go's fields, or without them.

    With them every field is set, to null if it has no value.
    """
    if behavior is None:
        return {}

    def chosen(given: dict[str, Json], names: tuple[str, ...]) -> dict[str, Any]:
        found = {name.lower(): value for name, value in given.items()}
        if capitals:
            return {name[0].upper() + name[1:]: found.get(name.lower()) for name in names}
        values = {name: found.get(name.lower()) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    sides = chosen(behavior, ("scaleUp", "scaleDown"))
    for name, rules in sides.items():
        if rules is not None:
            sides[name] = made = chosen(rules, _RULES)
            key = "Policies" if capitals else "policies"
            if made.get(key) is not None:
                made[key] = [chosen(policy, _POLICY) for policy in made[key]]
    return sides


def _text(value: Json) -> str:
    """Write JSON as Go does."""
    text = msgspec.json.encode(value).decode()
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _read(annotations: dict[str, str], name: str, kind: type) -> Any:  # noqa: ANN401 - of that kind
    """Return the value of an annotation; None if it is invalid, which is not an error."""
    try:
        value = msgspec.json.decode(annotations[name])
    except (KeyError, msgspec.DecodeError):
        return None
    misshapen = isinstance(value, list) and not all(isinstance(item, dict) for item in value)
    return value if isinstance(value, kind) and not misshapen else None
