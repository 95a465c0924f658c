"""Why pods of a job do not run, by what the API server has of them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from policyd.api.kueue.names import ADMISSION_GATE, ELASTIC_JOB, TOPOLOGY_GATE
from policyd.api.meta import Wire, find_condition
from policyd.jobs.pods import QueuedPod, QueuedPodStatus, is_over
from policyd.snapshot.answers import ObstacleType, PodObstacle
from policyd.status.ages import age

_GATES: Final[Mapping[str, str]] = {
    ADMISSION_GATE: "the controller has not let it start",
    TOPOLOGY_GATE: "the controller has not chosen its node yet",
    ELASTIC_JOB: "it is more than was admitted, and the larger Workload has no quota yet",
}
"""The gates of the queue, and what a pod that has one waits for."""

_FOREIGN: Final = "it is not a gate of the queue; the component that added it has to remove it"
_STARTING: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
_SELECTED: Final = "node affinity/selector"
"""In the words of the scheduler, if nodes have other labels than a pod selects."""

_OURS: Final = re.compile(
    r'admission webhook "[^"]*\.policyd\.io" denied the request: ([^:\s]+): (.*)', re.DOTALL
)
_OF_WEBHOOK: Final = re.compile(r'(admission webhook "[^"]*" denied the request: .*)', re.DOTALL)
_NATIVE: Final = re.compile(
    r"ValidatingAdmissionPolicy '([^']+)' with binding '[^']*' denied request: (.*)", re.DOTALL
)
_FORBIDDEN: Final = re.compile(r" is forbidden: (.*)", re.DOTALL)


class _Waiting(Wire, frozen=True):
    reason: str = ""
    message: str = ""


class _State(Wire, frozen=True):
    waiting: _Waiting | None = None


class _Container(Wire, frozen=True):
    name: str = ""
    state: _State = _State()


class _Status(QueuedPodStatus, frozen=True):
    init_container_statuses: tuple[_Container, ...] = ()
    container_statuses: tuple[_Container, ...] = ()


class StartingPod(QueuedPod, frozen=True):
    """A pod with the state of its containers."""

    status: _Status = _Status()


class PodRefusal(NamedTuple):
    """Why the API server refuses pods: a policy, by its name, or something else."""

    policy: str
    message: str


def refusal_in(message: str) -> PodRefusal | None:
    """Return the refusal that the message of an event or condition tells of; None if it does not.

    Args:
        message: Of a controller that could not create a pod.
    """
    for pattern in (_OURS, _NATIVE):
        if found := pattern.search(message):
            return PodRefusal(found[1], found[2].strip())
    for pattern in (_OF_WEBHOOK, _FORBIDDEN):
        if found := pattern.search(message):
            return PodRefusal("", found[1].strip())
    return None


class _Obstacle(NamedTuple):
    type: ObstacleType
    what: str
    message: str


def pod_obstacles(pods: Iterable[StartingPod]) -> Iterator[PodObstacle]:
    """Yield what keeps pods from running, each with how many of them it keeps."""
    found: dict[tuple[str, str], tuple[_Obstacle, list[str]]] = {}
    for pod in pods:
        kept = _of_pod(pod)
        if kept is not None:
            key = kept.type, kept.what or kept.message
            found.setdefault(key, (kept, []))[1].append(pod.metadata.name)
    for same, names in found.values():
        yield PodObstacle(**same._asdict(), pods=len(names), example=names[0])


def _of_pod(pod: StartingPod) -> _Obstacle | None:
    if is_over(pod):
        return None
    for gate in pod.spec.scheduling_gates:
        return _Obstacle("Gated", gate.name, _GATES.get(gate.name, _FOREIGN))
    scheduled = find_condition(pod.status.conditions, "PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return _Obstacle("Unschedulable", "", _unschedulable(scheduled.message, pod))
    for each in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting = each.state.waiting
        if waiting is not None and waiting.reason not in _STARTING:
            about = f"container {each.name}"
            message = ": ".join(filter(None, (about, waiting.message)))
            return _Obstacle("ContainerWaiting", waiting.reason, message)
    return None


def _unschedulable(message: str, pod: StartingPod) -> str:
    """Return what the scheduler says of a pod, and what the pod selects if no node has that."""
    selected = ", ".join(f"{key}={value}" for key, value in pod.spec.node_selector.items())
    selects = f"; the pod selects nodes with {selected}" if selected else ""
    return message.rstrip(".") + (selects if _SELECTED in message else "")


def obstacle_text(obstacle: PodObstacle, now: float) -> str:
    """Return what keeps pods from running as people read it."""
    pods, what, message = obstacle.pods, obstacle.what, obstacle.message
    named = f"{obstacle.example} is" if pods == 1 else f"{pods}, such as {obstacle.example}, are"
    match obstacle.type:
        case "Refused":
            by = f" by policy {what}" if what else ""
            last = f"; last tried {age(obstacle.last, now)} ago" if obstacle.last else ""
            return f"refused{by}: {message}{last}"
        case "Checked":
            return f"held by the admission check {what}: {message}"
        case "Missing":
            return message
        case "Gated":
            return f"{named} held by the scheduling gate {what}: {message}"
        case "Unschedulable":
            return f"{named} not scheduled: {message}"
        case "ContainerWaiting":
            return f"{named} waiting, {what}: {message}"
