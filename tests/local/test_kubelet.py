"""How long simulated pods run, and what becomes of them."""

import msgspec
import pytest

from policyd.kube.changes import Added
from policyd.kube.errors import UnreachableError
from policyd.local.kubelet import (
    Kubelet,
    PodStep,
    ended_status,
    next_step,
    run_seconds,
    running_status,
)
from policyd.local.objects import LocalPod
from policyd.local.steps import RETRY_SECONDS

STARTED = "2026-01-01T00:00:00Z"
STARTED_AT = 1767225600.0


def pod(*, annotations=None, status=None, metadata=None, **spec):
    spec.setdefault("nodeName", "gpu-1")
    spec.setdefault("restartPolicy", "Never")
    spec.setdefault("containers", [{"name": "main", "image": "train:1"}])
    metadata = {"name": "p", "annotations": annotations or {}, **(metadata or {})}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status or {}}, LocalPod)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        pytest.param(pod(annotations={"policyd.io/run-for": "8s"}), 8, id="as-annotated"),
        pytest.param(pod(annotations={"policyd.io/run-for": "1m30s"}), 90, id="in-parts"),
        pytest.param(pod(annotations={"policyd.io/run-for": "500ms"}), 0.5, id="in-milliseconds"),
        pytest.param(
            pod(containers=[{"name": "main", "command": ["sleep", "30"]}]), 30, id="as-it-sleeps"
        ),
        pytest.param(
            pod(containers=[{"name": "main", "command": ["sh", "-c"], "args": ["sleep 5; true"]}]),
            5,
            id="as-its-shell-sleeps",
        ),
        pytest.param(pod(restartPolicy="Always"), None, id="for-ever-if-restarted"),
        pytest.param(pod(), 20, id="for-a-while-if-nothing-is-said"),
        pytest.param(
            pod(annotations={"policyd.io/run-for": "a while"}),
            20,
            id="for-a-while-if-it-is-no-length",
        ),
    ],
)
def test_a_pod_runs_for(given, seconds):
    assert run_seconds(given) == seconds


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(pod(nodeName=""), PodStep("wait", None), id="unbound-waits"),
        pytest.param(pod(), PodStep("start", 100.0), id="bound-starts"),
        pytest.param(
            pod(status={"phase": "Running", "startTime": STARTED}),
            PodStep("end", STARTED_AT + 20),
            id="running-ends",
        ),
        pytest.param(pod(status={"phase": "Succeeded"}), PodStep("wait", None), id="ended-stays"),
        pytest.param(
            pod(metadata={"deletionTimestamp": STARTED, "finalizers": ["a/b"]}),
            PodStep("stop", 100.0),
            id="deleted-and-kept-ends-first",
        ),
        pytest.param(
            pod(
                metadata={
                    "deletionTimestamp": STARTED,
                    "deletionGracePeriodSeconds": 30,
                    "finalizers": ["a/b"],
                },
                status={"phase": "Failed"},
            ),
            PodStep("remove", 100.0),
            id="deleted-and-kept-goes-as-far-as-it-may",
        ),
        pytest.param(
            pod(
                metadata={
                    "deletionTimestamp": STARTED,
                    "deletionGracePeriodSeconds": 0,
                    "finalizers": ["a/b"],
                },
                status={"phase": "Failed"},
            ),
            PodStep("wait", None),
            id="kept-and-over-waits",
        ),
        pytest.param(
            pod(metadata={"deletionTimestamp": STARTED}),
            PodStep("remove", 100.0),
            id="deleted-goes",
        ),
    ],
)
def test_the_next_step_of_a_pod(given, expected):
    assert next_step(given, 100.0) == expected


def test_a_started_pod_is_ready():
    status = running_status(pod(), STARTED_AT)

    assert status["phase"] == "Running"
    assert {"type": "Ready", "status": "True", "lastTransitionTime": STARTED} in status[
        "conditions"
    ]
    assert status["containerStatuses"][0]["state"] == {"running": {"startedAt": STARTED}}


@pytest.mark.parametrize(
    ("annotations", "phase"),
    [
        pytest.param({}, "Succeeded", id="well"),
        pytest.param({"policyd.io/exit-code": "1"}, "Failed", id="badly-if-it-says-so"),
        pytest.param({"policyd.io/exit-code": "boom"}, "Failed", id="badly-if-it-says-nonsense"),
    ],
)
def test_a_pod_ends(annotations, phase):
    running = {"phase": "Running", "startTime": STARTED}

    status = ended_status(pod(annotations=annotations, status=running), STARTED_AT + 5)

    assert status["phase"] == phase
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert ended["startedAt"] == STARTED
    assert ended["finishedAt"] == "2026-01-01T00:00:05Z"


class Nowhere:
    """Takes writes, but not of pods for which it is down."""

    def __init__(self):
        self.down, self.phases = {"a", "b", "p"}, []

    async def patch(self, _resource, name, patch, **_options):
        if name in self.down:
            raise UnreachableError("nobody answers")
        self.phases.append(patch["status"]["phase"])


@pytest.mark.anyio
async def test_a_pod_ends_though_the_api_server_did_not_answer_at_first():
    server, running = Nowhere(), pod(status={"phase": "Running", "startTime": STARTED})
    kubelet = Kubelet(server)
    kubelet.pods.take(Added(running))

    assert await kubelet.step(STARTED_AT + 60) == RETRY_SECONDS
    server.down = ()
    await kubelet.step(STARTED_AT + 61)
    await kubelet.step(STARTED_AT + 62)  # before the informer knows

    assert server.phases == ["Succeeded"]


@pytest.mark.anyio
async def test_a_pod_that_cannot_be_written_does_not_keep_others_waiting():
    server, status = Nowhere(), {"phase": "Running", "startTime": STARTED}
    kubelet = Kubelet(server)
    for name in ("a", "b"):
        kubelet.pods.take(Added(pod(metadata={"name": name}, status=status)))
    server.down = {"a"}

    await kubelet.step(STARTED_AT + 60)

    assert server.phases == ["Succeeded"]


@pytest.mark.anyio
async def test_a_pod_is_looked_at_when_it_is_due_and_not_before():
    server = Nowhere()
    running = pod(annotations={"policyd.io/run-for": "90s"}, status={"phase": "Running",
                  "startTime": STARTED})  # fmt: skip
    server.down, kubelet = (), Kubelet(server)
    kubelet.pods.take(Added(running))

    assert await kubelet.step(STARTED_AT + 60) == 30
    assert await kubelet.step(STARTED_AT + 90) is None
    assert server.phases == ["Succeeded"]
