"""A simulated kubelet for every node: bound pods run as long as they say, and end well.

A pod runs for the duration in its annotation `policyd.io/run-for` (`90s`, `1m30s`), else as long as
the `sleep` it would execute, else for ever if it is to be restarted always, else for 20 seconds. A
pod with the annotation `policyd.io/exit-code` other than 0 fails.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from policyd.api.meta import Json, find_condition, rfc3339
from policyd.api.names import RUN_FOR
from policyd.api.nodes import Node
from policyd.cel import CelError
from policyd.cel.lib.time import parse_duration
from policyd.kube.client import PartialObject, Writer
from policyd.kube.errors import ConflictError, NotFoundError
from policyd.kube.resources import NODES, PODS
from policyd.local.objects import LocalPod
from policyd.local.steps import DueObjects

EXIT_CODE = "policyd.io/exit-code"
DEFAULT_RUN_SECONDS = 20.0
STOPPED = 143
"""Exit code of a container that ends on SIGTERM."""

_RUNNING_CONDITIONS = ("Initialized", "Ready", "ContainersReady", "PodScheduled")

Verb = Literal["wait", "start", "end", "stop", "remove"]


@dataclass(frozen=True, slots=True)
class PodStep:
    """The next action on a pod, and its time; never if `at` is None."""

    verb: Verb
    at: float | None


def run_seconds(pod: LocalPod) -> float | None:
    """Return how long a pod runs, in seconds; None for ever."""
    text = pod.metadata.annotations.get(RUN_FOR, "")
    if text:
        with suppress(CelError):  # an invalid duration is ignored
            return parse_duration(text).nanoseconds / 1e9
    slept = [seconds for c in pod.spec.containers if (seconds := _sleep((*c.command, *c.args)))]
    if slept:
        return max(slept)
    return None if pod.spec.restart_policy in {"", "Always"} else DEFAULT_RUN_SECONDS


def _sleep(words: tuple[str, ...]) -> float | None:
    found = re.search(r"\bsleep\s+(\d+(?:\.\d+)?)s?\b", " ".join(words))
    return float(found[1]) if found else None


def running_status(pod: LocalPod, now: float) -> dict[str, Json]:
    """Return the status of a pod whose containers have just started."""
    started = rfc3339(now)
    state = {"running": {"startedAt": started}}
    containers = [_container(c.name, c.image, state, ready=True) for c in pod.spec.containers]
    return {
        "phase": "Running",
        "startTime": started,
        "hostIP": "127.0.0.1",
        "podIP": "127.0.0.1",
        "conditions": [_condition(kind, "True", now) for kind in _RUNNING_CONDITIONS],
        "containerStatuses": containers,
    }


def ended_status(pod: LocalPod, now: float, *, stopped: bool = False) -> dict[str, Json]:
    """Return the status of a pod whose containers have just ended, or were stopped."""
    text = pod.metadata.annotations.get(EXIT_CODE, "") or "0"
    code = int(text) if re.fullmatch(r"[0-9]{1,3}", text) else 1
    code = STOPPED if stopped else code
    reason = "Error" if code else "Completed"
    ended = {
        "exitCode": code,
        "reason": reason,
        "startedAt": rfc3339(_started(pod, now)),
        "finishedAt": rfc3339(now),
    }
    state = {"terminated": ended}
    unready = [_condition(kind, "False", now) for kind in ("Ready", "ContainersReady")]
    others = [_condition(kind, "True", now) for kind in ("Initialized", "PodScheduled")]
    return {
        "phase": "Failed" if code else "Succeeded",
        "conditions": [*unready, *others],
        "containerStatuses": [
            _container(c.name, c.image, state, ready=False) for c in pod.spec.containers
        ],
    }


def next_step(pod: LocalPod, now: float) -> PodStep:
    """Return the kubelet's next action on a pod, and its time (seconds since the epoch)."""
    if not pod.spec.node_name:
        return PodStep("wait", None)
    if pod.metadata.deletion_timestamp is not None:
        return _removal(pod, now)
    if pod.status.phase == "Pending":
        return PodStep("start", now)
    runs = None if pod.over else run_seconds(pod)
    if runs is None:
        return PodStep("wait", None)
    return PodStep("end", _started(pod, now) + runs)


def _removal(pod: LocalPod, now: float) -> PodStep:
    """Return the action that removes a pod, or that ends it first if finalizers hold it."""
    if pod.metadata.finalizers and not pod.over:
        return PodStep("stop", now)
    waits = pod.metadata.finalizers and not pod.metadata.deletion_grace_period_seconds
    return PodStep("wait", None) if waits else PodStep("remove", now)


class Kubelet:
    """Runs the pods of all nodes: looks at a bound pod when it changes, or when it is due."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.pods: DueObjects[LocalPod] = DueObjects()
        self.nodes: DueObjects[Node] = DueObjects()

    async def step(self, now: float) -> float | None:
        """Do all that is due; return the seconds until something else is, None if nothing will."""
        waits = await self.nodes.step(self._report, now), await self.pods.step(self._run, now)
        return min((wait for wait in waits if wait is not None), default=None)

    async def _run(self, pod: LocalPod, now: float) -> float | None:
        """Do what is due for a pod; return when something else is."""
        step = next_step(pod, now)
        if step.at is None or step.at > now:
            return step.at
        await self._act(step.verb, pod, now)
        return None  # its change brings us back

    async def _report(self, node: Node, now: float) -> None:
        """Set the condition Ready of a node that does not have it yet."""
        if find_condition(node.status.conditions, "Ready") is not None:
            return
        ready = {**_condition("Ready", "True", now), "reason": "KubeletReady"}
        with suppress(NotFoundError):
            await self._writer.patch(
                NODES,
                node.metadata.name,
                {"status": {"conditions": [ready]}},
                subresource="status",
                kind="strategic",
                field_manager="kubelet",
                into=PartialObject,
            )

    async def _act(self, verb: Verb, pod: LocalPod, now: float) -> None:
        name, namespace = pod.metadata.name, pod.metadata.namespace
        try:
            if verb == "remove":
                await self._writer.delete(
                    PODS, name, namespace=namespace, uid=pod.metadata.uid, grace_seconds=0
                )
                return
            status = (
                running_status(pod, now)
                if verb == "start"
                else ended_status(pod, now, stopped=verb == "stop")
            )
            await self._writer.patch(
                PODS,
                name,
                {"metadata": {"uid": pod.metadata.uid}, "status": status},
                namespace=namespace,
                subresource="status",
                kind="strategic",
                field_manager="kubelet",
                into=PartialObject,
            )
        except (NotFoundError, ConflictError):
            pass  # gone, or replaced by a pod of the same name: the informer will say


def _started(pod: LocalPod, now: float) -> float:
    return pod.status.start_time.timestamp() if pod.status.start_time else now


def _condition(kind: str, status: str, now: float) -> dict[str, Json]:
    return {"type": kind, "status": status, "lastTransitionTime": rfc3339(now)}


def _container(name: str, image: str, state: dict[str, Json], *, ready: bool) -> dict[str, Json]:
    return {
        "name": name,
        "image": image,
        "imageID": image,
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
    }
