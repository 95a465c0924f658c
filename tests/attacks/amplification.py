"""Small reviews that take much memory: a long name over many parts, at each place of an object.

A message that names the path of each part repeats a name that the author has chosen. If the name
has 200 KB and there are 1,000 parts in it, that is 200 MB for one review.
"""

import asyncio
import copy
import json
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from policyd.config import Settings
from policyd.jobs.integrations import EVERYTHING
from tests.attacks.figures import Attacks, Figures
from tests.attacks.ownership import MADE
from tests.attacks.unjudged import QUEUE, _asked, _envelope
from webhooks.namespaces import without_cluster
from webhooks.policies.in_force import PoliciesInForce
from webhooks.server import application
from webhooks.shared import WebhookServer
from webhooks.workers import Workers

Object = dict[str, Any]
Steps = tuple[str | int, ...]

LIBRARY = Path(__file__).parents[2] / "policies"
NAME_CHARACTERS = 120_000
PARTS = 300
MOST_BYTES = 16 * 1024 * 1024
"""Of memory for one review of 150 KB."""
MOST_ANSWERED = 16 * 1024
"""Bytes of an answer, besides the changes in it."""
KINDS = ("Pod", "Job", "RayJob", "PyTorchJob", "StatefulSet")

LONG = "k" * NAME_CHARACTERS
TEMPLATE: Object = {"metadata": {}, "spec": {"containers": [{"name": "a"}]}}
PAYLOADS: dict[str, Any] = {
    "templates below a long name": {LONG: {f"a{n}": TEMPLATE for n in range(PARTS)}},
    "a list of templates below a long name": {LONG: [TEMPLATE] * PARTS},
    "long names": {f"{LONG[: NAME_CHARACTERS // 100]}{n}": "x" for n in range(100)},
}
UNKNOWN: dict[str, Object] = {
    "CronJob": {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": TEMPLATE}}},
    },
    "AppWrapper": {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "spec": {"components": [{"template": {"kind": "Job", "spec": {"template": TEMPLATE}}}]},
    },
    "Anything": {"apiVersion": "example.com/v1", "kind": "Anything", "spec": {"a": {"b": {}}}},
}


def objects() -> Iterator[Object]:
    """Yield objects that make pods, in a queue."""
    metadata = {"name": "x", "namespace": "team-a", "labels": QUEUE, "annotations": {"a": "b"}}
    for kind in KINDS:
        yield MADE[kind](**copy.deepcopy(metadata))
    for obj in UNKNOWN.values():
        yield copy.deepcopy({**obj, "metadata": metadata})


def places(part: Any, path: Steps = ()) -> Iterator[Steps]:
    """Yield the path of each map in an object."""
    if isinstance(part, dict):
        yield path
        for key, each in part.items():
            yield from places(each, (*path, key))
    elif isinstance(part, list):
        for index, each in enumerate(part):
            yield from places(each, (*path, index))


def _with(obj: Object, path: Steps, payload: Object) -> Object:
    made = copy.deepcopy(obj)
    part: Any = made
    for step in path:
        part = part[step]
    part |= payload
    return made


def _application() -> Any:
    webhooks = WebhookServer(settings=Settings(), integrations=EVERYTHING)
    policies = PoliciesInForce(namespaces=without_cluster, metrics=webhooks.metrics)
    policies.read_files(sorted(LIBRARY.rglob("policy.yaml")))
    workers = Workers(ThreadPoolExecutor(1), clock=webhooks.pace.clock)
    return application(webhooks, policies, workers, lambda work: work.close())


async def _tried() -> Figures:
    app, tried, highest, worst, faults = _application(), 0, 0, 0.0, list[str]()
    for obj in objects():
        for place, (what, payload) in product(places(obj), PAYLOADS.items()):
            body = json.dumps(_envelope(_with(obj, place, payload))).encode()
            for path in ("/mutate", "/validate"):
                tried += 1
                tracemalloc.reset_peak()
                before, _ = tracemalloc.get_traced_memory()
                began = time.process_time()
                _, answer = await _asked(app, path, body)
                worst = max(worst, time.process_time() - began)
                taken = tracemalloc.get_traced_memory()[1] - before
                highest = max(highest, taken)
                answered = sum(len(str(value)) for key, value in answer.items() if key != "patch")
                if taken > MOST_BYTES or answered > MOST_ANSWERED:
                    where = f"{obj['kind']} {'.'.join(map(str, place))}, {what}, {path}"
                    faults.append(f"{where}: {taken} bytes taken, {answered} answered")
    return Figures(tried=tried, peak_bytes=highest, worst_seconds=worst, faults=tuple(faults))


def repeated_names() -> Figures:
    """Send each of these objects with something in each of its places."""
    tracemalloc.start()
    try:
        with capture_logs():
            return asyncio.run(_tried())
    finally:
        tracemalloc.stop()


ATTACKS: Attacks = {"names that messages repeat": repeated_names}
