"""Stands in for the operators of all kinds, and answers the admission check."""

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from policyd.api.kueue.names import FINISHED, POD_GROUP_NAME
from tests.scenarios import api as driver
from tests.scenarios import foreign
from tests.scenarios.api import Api, Refused, condition
from tests.scenarios.test_parents import members, pod_of
from tests.soak.stage import CHECK

SECONDS = 1.0
"""Between two looks."""

ANSWERS = ("Ready",) * 8 + ("Retry", "Rejected")
ENDED = {"Succeeded", "Failed"}
Item = dict[str, Any]
RUN_FOR = "policyd.io/run-for"
GONE = {404, 409}
"""How the API server answers who comes too late."""


class Operators(threading.Thread):
    """Makes, stops and ends the pods of foreign jobs, as their operators would.

    Args:
        api: Where they are.
        seed: Of the answers.
        replace: Told of all pods and workloads at each look, for groups that have lost pods.
    """

    def __init__(
        self, api: Api, seed: int, replace: Callable[[Iterable[Item], Iterable[Item]], None]
    ) -> None:
        super().__init__(daemon=True)
        self.refusals: list[str] = []
        self._api = api
        self._replace = replace
        self._random = random.Random(seed)
        self._ended = threading.Event()

    def run(self) -> None:
        """Look at everything again and again, until told to end."""
        while not self._ended.wait(SECONDS):
            with suppress(OSError):
                self._look()

    def end(self) -> None:
        """End the thread."""
        self._ended.set()
        self.join(timeout=60)

    def _look(self) -> None:
        pods = defaultdict(list)
        everyone = self._api.call("GET", "api/v1/pods")["items"]
        for pod in everyone:
            for owner in pod["metadata"].get("ownerReferences", ()):
                pods[owner["uid"]].append(pod)
        for kind, (group, version) in foreign.GROUPS.items():
            if kind in foreign.CLUSTER_WIDE or kind in foreign.SERVED_AS:
                continue
            path = f"apis/{group}/{version}/{foreign.plural(kind)}"
            for job in self._api.call("GET", path)["items"]:
                job |= {"kind": kind, "apiVersion": f"{group}/{version}"}
                self._try(self._operate, job, pods[job["metadata"]["uid"]])
        workloads = self._api.call("GET", WORKLOADS)["items"]
        for workload in workloads:
            self._try(self._answer, workload)
        self._replace(everyone, workloads)

    def _try(self, act: Any, *about: Any) -> None:
        try:
            act(*about)
        except Refused as refusal:
            if refusal.code not in GONE:
                metadata = about[0]["metadata"]
                self.refusals.append(f"{metadata['namespace']}/{metadata['name']}: {refusal}")

    def _operate(self, job: dict[str, Any], pods: list[dict[str, Any]]) -> None:
        if job["metadata"].get("deletionTimestamp") or is_over(job):
            return
        if job["kind"] == "LeaderWorkerSet":
            self._lead(job, {pod["metadata"]["name"] for pod in pods})
            return
        phases = {pod.get("status", {}).get("phase") for pod in pods}
        if foreign.suspended(job):
            self._clear(pods)
            self._write_states(job, runs=False)
        elif not pods:
            foreign.operate(self._api, job, templates_of=timed(job))
        elif phases <= ENDED:
            self._write_states(job, runs=False, ended=True)
        elif phases == {"Running"}:
            self._write_states(job, runs=True)

    def _lead(self, job: dict[str, Any], there: set[str]) -> None:
        for suffix, template, metadata in members(job):
            pod = pod_of(job, suffix, template, metadata)
            if pod["metadata"]["name"] not in there:
                self._api.acting_as(foreign.operator(job)).create(pod)

    def _clear(self, pods: list[dict[str, Any]]) -> None:
        for pod in pods:
            metadata = pod["metadata"]
            self._api.delete("Pod", metadata["name"], metadata["namespace"], missing_is_fine=True)

    def _write_states(self, job: dict[str, Any], *, runs: bool, ended: bool = False) -> None:
        """Say how far a job has come, unless it says so already."""
        status = foreign.done(job["kind"]) if ended else progress(job, runs=runs)
        known = job.get("status", {})
        if status is not None and any(known.get(k) != v for k, v in status.items()):
            self._write_status(job, status)

    def _answer(self, workload: dict[str, Any]) -> None:
        states = workload.get("status", {}).get("admissionChecks") or []
        waits = [each for each in states if (each["name"], each["state"]) == (CHECK, "Pending")]
        if not waits or condition(workload, FINISHED) or not workload["status"].get("admission"):
            return
        answer = {"state": self._random.choice(ANSWERS), "message": "the soak's answer"}
        states_now = [{**each, **(answer if each in waits else {})} for each in states]
        self._write_status({**workload, "kind": "Workload"}, {"admissionChecks": states_now})

    def _write_status(self, item: dict[str, Any], status: dict[str, Any]) -> None:
        metadata = item["metadata"]
        path = driver.PATHS[item["kind"]].format(namespace=metadata["namespace"])
        version = {"resourceVersion": metadata["resourceVersion"]}
        self._api.call(
            "PATCH",
            f"{path}/{metadata['name']}/status",
            {"metadata": version, "status": status},
            content_type=driver.PATCH_TYPES["merge"],
        )


def timed(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the templates of a job's pods, which run for as long as the job says, if it does."""
    declared = job["metadata"].get("annotations", {})
    seconds = {RUN_FOR: declared[RUN_FOR]} if RUN_FOR in declared else {}
    found = []
    for template in foreign.templates(job):
        given = template.get("metadata", {})
        annotations = {**given.get("annotations", {}), **seconds}
        found.append({**template, "metadata": {**given, "annotations": annotations}})
    return found


def is_over(item: dict[str, Any]) -> bool:
    """Tell whether a job or pod has ended, as its status says; of a group who fails is replaced."""
    status = item.get("status", {})
    grouped = POD_GROUP_NAME in item["metadata"].get("labels", {})
    kinds = ("Complete", "Completed", "Succeeded", "Failed")
    return (
        any(condition(item, kind).get("status") == "True" for kind in kinds)
        or status.get("phase") in (ENDED - {"Failed"} if grouped else ENDED)
        or status.get("jobStatus") == "SUCCEEDED"
        or status.get("applicationState", {}).get("state") == "COMPLETED"
    )


def progress(job: dict[str, Any], *, runs: bool) -> dict[str, Any]:
    """Return the status of a job whose pods all run, or of one that has none."""
    kind, count = job["kind"], int(runs)
    if kind == "JobSet":
        replicated = job["spec"]["replicatedJobs"]
        statuses = [{"name": r["name"], "ready": count * r["replicas"]} for r in replicated]
        return {"replicatedJobsStatus": statuses}
    if kind == "TrainJob":
        return {"jobsStatus": [{"name": "node", "ready": count, "active": count}]}
    if kind in {"RayCluster", "RayJob"}:
        state = {"state": "ready" if runs else "suspended"}
        statuses = {"jobDeploymentStatus": "Running" if runs else "Suspended"}
        return state if kind == "RayCluster" else {"rayClusterStatus": state, **statuses}
    reported = foreign.running(kind, runs=runs)
    if reported is not None:
        return reported
    type_ = "Ready" if kind == "RayService" else "Running"
    condition = {"type": type_, "status": str(runs), "reason": "Progress", "message": "so it is"}
    return {"conditions": [condition]}


WORKLOADS = "apis/kueue.x-k8s.io/v1beta2/workloads"
