"""The CPU of `policyd history` at 10,000 Workloads, from the bodies of the pages to the table.

The API server, and the way to it, are left out.
"""

import time
from copy import deepcopy
from functools import partial

import anyio
import msgspec
import pytest

from policyd.cli.questions.history import history, history_lines
from policyd.cli.questions.pages import Page
from policyd.kube.client import ListPage
from policyd.kube.decoding import decode_page
from tests.bench.kube_server import pod
from tests.bench.report import report

pytestmark = pytest.mark.bench

WORKLOADS, PAGE, ROUNDS = 10_000, 500, 3
DAY = "2026-01-01T{:02}:{:02}:00Z"


def workload(number):
    """Make a Workload that ended, runs, was preempted, or waits, as the API server returns it."""
    like, hour, minute = pod(number), number // 60 % 22, number % 60
    spec = {key: like["spec"][key] for key in ("containers", "nodeSelector", "tolerations")}
    template = {"metadata": {"labels": {"policyd.io/owner": f"person-{number % 90}"}}, "spec": spec}
    conditions = [
        {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": f"{kind} in queue train",
            "lastTransitionTime": DAY.format(hour + more, minute),
        }
        for kind, reason, more in (
            ("Preempted", "InClusterQueue", 0),
            ("QuotaReserved", "QuotaReserved", 1),
            ("Admitted", "Admitted", 1),
            ("Finished", "Succeeded", 2),
        )[number % 2 : 1 + number % 4]
    ]
    assigned = {
        "name": "main",
        "flavors": {"cpu": "h100", "nvidia.com/gpu": "h100"},
        "resourceUsage": {"cpu": "16", "nvidia.com/gpu": "16"},
        "count": 8,
    }
    admission = {"clusterQueue": "train", "podSetAssignments": [assigned]}
    return {
        "metadata": {
            **deepcopy(like["metadata"]),
            "name": f"job-train-{number}",
            "uid": f"uid-{number}",
            "namespace": f"team-{number % 20}",
            "creationTimestamp": DAY.format(hour, minute),
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": f"train-{number}",
                    "uid": f"job-{number}",
                    "controller": True,
                }
            ],
        },
        "spec": {
            "queueName": "train",
            "podSets": [{"name": "main", "count": 8, "template": template}],
        },
        "status": {"conditions": conditions, **({"admission": admission} if number % 4 else {})},
    }


class Stored:
    """A reader that has the bodies of pages, and decodes them as the client does."""

    def __init__(self, bodies: list[bytes]) -> None:
        self.bodies = bodies

    async def page(self, _resource, *, into, **options) -> ListPage:
        return decode_page(self.bodies[int(options.get("continue_") or 0)], into)


@pytest.fixture(scope="module")
def stored():
    bodies, last = [], WORKLOADS // PAGE
    for number in range(last):
        items = [workload(number * PAGE + each) for each in range(PAGE)]
        rest = str(number + 1) if number + 1 < last else ""
        metadata = {"resourceVersion": "1", "continue": rest}
        bodies.append(msgspec.json.encode({"metadata": metadata, "items": items}))
    return Stored(bodies)


@pytest.mark.parametrize(
    ("output", "lines", "goal"),
    [("table", WORKLOADS, 1000), ("wide", WORKLOADS, 1000), ("json", 20 * WORKLOADS, 1000),
     ("yaml", 20 * WORKLOADS, 1000)],
)  # fmt: skip
def test_the_history_of_many_workloads(stored, capsys, output, lines, goal):
    page = Page(output, partial(history_lines, wide=output == "wide"))
    seconds = []
    for _ in range(ROUNDS):
        began = time.thread_time()
        page.show(anyio.run(history, stored, ""))
        seconds.append(time.thread_time() - began)
        shown = capsys.readouterr().out

    assert shown.count("\n") > lines
    with capsys.disabled():
        report(f"history, {output}: CPU at 10,000 Workloads", sorted(seconds)[1] * 1e3, "ms", goal)
