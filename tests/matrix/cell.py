"""One cell of the matrix: a namespace, a queue and nodes of its own, and one job in it."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from policyd.api.kueue.names import API_VERSION
from policyd.cli import demo
from tests.controlplane.nodes import RACK, node
from tests.matrix.kinds import (
    ENDLESS,
    GPUS,
    NAME,
    ONE_BY_ONE,
    PARENTS,
    PODS,
    RAYS,
    Body,
    bodies,
    worker_groups,
)
from tests.scenarios import foreign
from tests.scenarios.api import Api, Refused, condition, eventually
from tests.scenarios.clusters import Cluster
from tests.scenarios.objects import job
from tests.scenarios.test_parents import Maker

HOSTNAME = "kubernetes.io/hostname"
CELL = "matrix.policyd.io/cell"
QUEUE = "kueue.x-k8s.io/queue-name"
PRIORITY = "kueue.x-k8s.io/priority-class"
GPU = "nvidia.com/gpu"
TOPOLOGY = "matrix"
URGENT = "urgent"
SECONDS = {"embedded": 30, "real": 90}


@dataclass
class Result:
    """What became of a cell; None for what was not reached."""

    kind: str
    feature: str
    server: str
    started: bool | None = None
    finished: bool | None = None
    returned: bool | None = None
    refused: list[str] = field(default_factory=list)
    """Writes of ours, and of Kubernetes' controllers for the job, that were not let through."""
    why: str = ""
    """What went wrong; or, of a cell that does not apply, why not."""
    applies: bool = True
    seconds: float = 0.0

    @property
    def fine(self) -> bool:
        done = (self.started, self.finished, self.returned)
        return not self.applies or (done == (True, True, True) and not self.refused)


@dataclass
class Cell:
    """One job, where nobody else is."""

    cluster: Cluster
    result: Result
    submitted: list[Body] = field(default_factory=list)
    reported: int | None = None
    """How many workers the operator of a Ray cluster has reported."""

    @property
    def api(self) -> Api:
        return self.cluster.api

    @property
    def kind(self) -> str:
        return self.result.kind

    @property
    def name(self) -> str:
        """The name of its namespace, queues, flavor, and the start of its nodes' names."""
        words = f"m-{self.kind}-{self.result.feature}-{self.result.server}"
        return re.sub("[^a-z0-9]+", "-", words.lower())

    def wait(self, look: Callable[[], Any], what: str) -> Any:
        return eventually(look, within=SECONDS[self.cluster.name], what=what)

    # What there is.

    def furnish(self, *, gpus: int = GPUS, topology: bool = False, **spec: Any) -> None:
        """Create two racks of two nodes, a flavor that means them, and queues with a quota."""
        offered = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "8"}
        for index in range(4):
            labels = {CELL: self.name, RACK: f"{self.name}-{index // 2}"}
            labels[demo.GPU_LABEL] = demo.GPU_PRODUCT
            self.api.create(node(f"{self.name}-{index}", labels=labels, allocatable=offered))
        self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}})
        placed = {"topologyName": TOPOLOGY} if topology else {}
        self._make("ResourceFlavor", nodeLabels={CELL: self.name}, **placed)
        quotas = {"cpu": "1000", "memory": "10Ti", GPU: str(gpus)}
        resources = [{"name": n, "nominalQuota": amount} for n, amount in quotas.items()]
        flavors = [{"name": self.name, "resources": resources}]
        groups = [{"coveredResources": list(quotas), "flavors": flavors}]
        self._make("ClusterQueue", namespaceSelector={}, resourceGroups=groups, **spec)
        self._make("LocalQueue", clusterQueue=self.name)

    def _make(self, kind: str, **spec: Any) -> None:
        metadata = {"name": self.name}
        if kind == "LocalQueue":
            metadata["namespace"] = self.name
        self.api.create(
            {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
        )

    def clear(self) -> None:
        """Delete the job, its pods and the nodes: others need the room."""
        with suppress(Refused):
            self.delete()
            for index in range(4):
                self.api.delete("Node", f"{self.name}-{index}", missing_is_fine=True)

    # What the user does.

    def submit(
        self, change: Callable[[Body], None] = lambda _body: None, **metadata: dict[str, str]
    ) -> None:
        """Create the job, changed by `change`, with more labels and annotations."""
        for body in bodies(self.kind):
            own = body["metadata"]
            own["namespace"] = self.name
            for section in ("labels", "annotations"):
                own[section] = {**own.get(section, {}), **metadata.get(section, {})}
            own["labels"][QUEUE] = self.name
            change(body)
            self.submitted.append(body)
            self.api.create(body)

    def submit_again(self) -> None:
        """Create pods again that were deleted as they were stopped: nobody else does.

        Those of a group stay until there are others, of other names.
        """
        self.wait(lambda: not self.pods(), "the pods are stopped")
        for body in self.submitted:
            body["metadata"]["name"] += "-again"
            self.api.create(body)

    def patch(self, patch: Body, *, subresource: str = "") -> None:
        """Change the job."""
        path = f"{NAME}/{subresource}" if subresource else NAME
        self.api.patch(self.kind, path, patch, namespace=self.name)

    def delete(self) -> None:
        """Delete the job and its pods, as its operator would."""
        if self.kind not in PODS:
            self.api.delete(self.kind, NAME, self.name, missing_is_fine=True)
        self.clear_pods()

    @contextmanager
    def urgent(self) -> Iterator[None]:
        """Have a Job of a higher priority that takes all there is."""
        made = job(URGENT, self.name, gpus=GPUS, pods=1, run_for="3600s")
        made["metadata"]["labels"] = {QUEUE: self.name, PRIORITY: "production"}
        self.api.create(made)
        yield
        self.api.delete("Job", URGENT, self.name)

    # What operators do.

    def job(self) -> Body:
        return self.api.get(self.kind, NAME, self.name)

    def operate(self) -> None:
        """Do what the operator of the job's kind does, where there is none."""
        if self.kind in PARENTS:
            Maker(self.api, embedded=self.cluster.name == "embedded").make(self.job())
        elif self.kind in foreign.SPECS:
            made = self.job()
            wanted = [] if foreign.suspended(made) else foreign.templates(made)
            there = {pod["metadata"]["name"] for pod in self.pods(alive=False)}
            for index, template in enumerate(wanted):
                if f"{NAME}-{index}" not in there:
                    foreign.operate(self.api, made, first=index, templates_of=[template])
            self.clear_pods(keep=len(wanted))
            if self.kind in RAYS:
                self.report(len(wanted) - 1)
            elif self.kind in foreign.PUBLISHED:
                self.report_states(made, runs=bool(wanted))

    def report(self, workers: int) -> None:
        """Report how many workers a Ray cluster has, -1 for no cluster."""
        if workers == self.reported:
            return
        self.reported = workers
        state = "ready" if workers >= 0 else "suspended"
        status: Body = {"state": state, "availableWorkerReplicas": max(workers, 0)}
        if self.kind == "RayJob":
            status = {
                "rayClusterName": NAME,
                "rayClusterStatus": status,
                "jobDeploymentStatus": "Running" if workers >= 0 else "Suspended",
            }
        elif self.kind == "RayService":
            status = {"activeServiceStatus": {"rayClusterName": NAME, "rayClusterStatus": status}}
        self.patch({"status": status}, subresource="status")

    def report_states(self, made: Body, *, runs: bool) -> None:
        """Report whether the job runs, unless it says so already, or has ended."""
        status, known = foreign.running(self.kind, runs=runs), made.get("status", {})
        done = foreign.done(self.kind) or {}
        ended = all(known.get(name) == value for name, value in done.items())
        if status is not None and not ended and any(known.get(k) != v for k, v in status.items()):
            self.patch({"status": status}, subresource="status")

    def clear_pods(self, keep: int = 0) -> None:
        """Delete the pods of the job, but for the first of them."""
        kept = {f"{NAME}-{index}" for index in range(keep)}
        for each in self.pods():
            name = each["metadata"]["name"]
            if name not in kept:
                self.api.delete("Pod", name, self.name, missing_is_fine=True)

    def resize(self, size: int) -> None:
        """Have the job ask for so many pods, the head of a cluster not counted."""
        if self.kind == "Job":
            self.patch({"spec": {"parallelism": size}})
            return
        made = self.job()
        worker_groups(made)[0]["replicas"] = size
        self.patch({"spec": made["spec"]})

    # What is seen.

    def pods(self, *, alive: bool = True) -> list[Body]:
        found = self.api.find("Pod", self.name)
        return [
            each
            for each in found
            if each["metadata"]["name"].startswith(f"{NAME}-")
            and not (alive and each["metadata"].get("deletionTimestamp"))
        ]

    def workloads(self) -> list[Body]:
        found = self.api.find("Workload", self.name)
        owners = ((w, w["metadata"].get("ownerReferences", [])) for w in found)
        return [w for w, refs in owners if URGENT not in {each["name"] for each in refs}]

    def expected(self) -> int:
        """How many pods run when all is well."""
        if self.kind in PODS:
            return len(bodies(self.kind))
        made = self.job()
        if self.kind == "Job":
            return int(made["spec"]["parallelism"])
        if self.kind == "VolcanoJob":
            return sum(int(task["replicas"]) for task in made["spec"]["tasks"])
        if self.kind in PARENTS:
            return int(made["spec"]["replicas"]) * (2 if self.kind == "LeaderWorkerSet" else 1)
        return len(foreign.templates(made))

    def runs(self, count: int | None = None) -> bool:
        self.operate()
        phases = [each["status"].get("phase") for each in self.pods()]
        ended = {"Succeeded", "Failed"}
        wanted = self.expected() if count is None else count
        return [each for each in phases if each not in ended] == ["Running"] * wanted

    def is_held(self) -> bool:
        """Tell whether none of the job's pods runs, or may."""
        self.operate()
        if self.kind in foreign.SPECS and not foreign.suspended(self.job()):
            return False
        if self.kind == "Job" and not self.job()["spec"]["suspend"]:
            return False
        ended = {"Succeeded", "Failed"}
        pods = [each for each in self.pods() if each["status"].get("phase") not in ended]
        gated = [bool(each["spec"].get("schedulingGates")) for each in pods]
        return any(gated) if self.kind in ONE_BY_ONE else all(gated)

    def used(self) -> int:
        """How many GPUs of its quota are in use, as the queue reports it."""
        status = self.api.get("ClusterQueue", self.name).get("status", {})
        for flavor in status.get("flavorsReservation", []):
            for each in flavor["resources"]:
                if each["name"] == GPU:
                    return int(each.get("total", 0))
        return 0

    # Parts of stories.

    def starts(self, count: int | None = None) -> None:
        """Wait until the job runs."""
        self.result.started = False
        self.wait(partial(self.runs, count), "all pods run")
        self.result.started = True

    def ends(self) -> None:
        """Let the job end, and wait until its quota is there again."""
        self.result.finished = False
        if self.kind in ENDLESS:
            self.delete()
            self.wait(lambda: not self.workloads(), "no workload is left")
        else:
            self.wait(self.is_finished, "its workload is finished")
        self.result.finished = True
        self.gives_back()

    def gives_back(self) -> None:
        self.result.returned = False
        self.wait(lambda: self.used() == 0, "the quota is returned")
        self.result.returned = True

    def end(self) -> None:
        made = {"Job", *PODS, *PARENTS}
        done = None if self.kind in made else foreign.done(self.kind)
        if done is not None:
            self.patch({"status": done}, subresource="status")
            self.clear_pods()
            return
        for each in self.pods():
            with suppress(Refused):
                path = f"{each['metadata']['name']}/status"
                self.api.patch("Pod", path, {"status": {"phase": "Succeeded"}}, namespace=self.name)
        if self.kind == "VolcanoJob":
            self.patch({"status": {"state": {"phase": "Completed"}}}, subresource="status")

    def is_finished(self) -> bool:
        self.end()  # also what came in the place of what has ended
        return all(condition(each, "Finished").get("status") == "True" for each in self.workloads())

    def refusals(self) -> list[str]:
        """Return what was written for this job and not let through."""
        log = self.cluster.controller.log.read_text(errors="replace").splitlines()
        failed = (
            "reconcile_failed",
            "_error",
            "object_unreadable",
            "writes_refused",
            "job_start_delayed",
        )
        lines = [line for line in log if self.name in line and any(f in line for f in failed)]
        events = self.api.find("Event", self.name)
        made = [e["message"] for e in events if e.get("reason") == "FailedCreate"]
        return [*dict.fromkeys([*lines, *made])]
