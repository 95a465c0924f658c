"""More GPUs than an AppWrapper asks quota for: every kind in one, with pod sets of all sorts."""

from collections.abc import Iterator
from typing import Any

import msgspec

from policyd.engine.objects.pods import gpus
from policyd.engine.objects.workloads import find_kind, pod_templates
from policyd.jobs.kinds.app_wrapper import APP_WRAPPER
from policyd.jobs.rules.validation import validate_job
from tests.attacks.figures import Figures
from tests.attacks.growth import extras
from tests.attacks.ownership import GPUS, MADE, QUEUE, Object

PADDING = {f"k{number}": [] for number in range(25_000)}
"""Parts of an object before its templates, or behind them."""


WITHOUT_TEMPLATES = frozenset(("SparkApplication", "TrainJob"))
"""Kinds that make no pods where they are of another group."""


def wrapped() -> Iterator[tuple[str, Object]]:
    """Yield every kind of object with GPUs, by what it is."""
    for kind in sorted(MADE):
        made = MADE[kind](name="x", namespace="team-a")
        yield kind, made
        yield f"{kind}, large", made | {"a": PADDING}
        if kind in WITHOUT_TEMPLATES:
            continue
        unknown = made | {"apiVersion": "example.org/v1"}
        yield f"{kind} of an unknown group", unknown
        yield f"{kind} of an unknown group, large", {"a": PADDING} | unknown
        yield f"{kind} of an unknown group, large behind", unknown | {"z": PADDING}
    yield from extras()


def pod_sets(obj: Object) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield what a tenant may say of the pods of an object, which is less than it has."""
    yield "nothing", []
    kind = find_kind(obj)
    if kind is None:
        return
    paths = ["".join(_step(step) for step in each.path) for each in pod_templates(obj, kind)]
    for replicas in (0, 1):
        yield str(replicas), [{"path": f"template{each}", "replicas": replicas} for each in paths]
        yield (
            f"{replicas} of one",
            [{"path": f"template{paths[0]}", "replicas": replicas}][: len(paths)] if paths else [],
        )


def _step(step: str | int) -> str:
    return f"[{step}]" if isinstance(step, int) else f".{step}"


def counted(wrapper: Object) -> int:
    """Return the GPUs that the Workload of a wrapper asks for."""
    sets = APP_WRAPPER.pod_sets(msgspec.convert(wrapper, APP_WRAPPER.type))
    return sum(
        each.count * gpus(msgspec.json.decode(msgspec.json.encode(each.template))) for each in sets
    )


def undercounted() -> Figures:
    """Wrap each object with less than it has: it is refused, or all of it is counted."""
    tried, through = 0, list[str]()
    for description, obj in wrapped():
        for words, sets in pod_sets(obj):
            tried += 1
            spec = {"components": [{"template": obj, "podSets": sets}]}
            metadata = {"name": "w", "namespace": "team-a", "labels": {QUEUE: "team-a"}}
            wrapper = {"metadata": metadata, "spec": spec}
            errors = validate_job(wrapper, group=APP_WRAPPER.group, kind="AppWrapper")
            if not errors and counted(wrapper) < GPUS:
                through.append(f"{description}, with {words} declared")
    return Figures(tried=tried, bypasses=len(through), faults=tuple(through))


ATTACKS = {"what an AppWrapper does not count": undercounted}
