"""The cluster that is soaked: a real control plane, policyd's processes, queues of all sorts."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from policyd.api.configuration.frameworks import KINDS as FRAMEWORKS
from policyd.api.kueue.names import API_VERSION
from policyd.cli import demo
from tests.charts.release import CONTROLLER, NAMESPACE, WEBHOOKS
from tests.controlplane.programs import API_SERVER, ETCD
from tests.controlplane.server import ControlPlane
from tests.scenarios import api as driver
from tests.scenarios import foreign
from tests.scenarios.api import Api, eventually
from tests.scenarios.clusters import (
    SCHEMAS,
    Process,
    Schemas,
    accounts_on,
    controller_command,
    created,
    install,
    webhooks_are_ready,
    webhooks_command,
)

TEAMS = demo.TEAMS
QUEUES = {"team-a": "team-a", "team-b": "team-b", "placed": "team-a", "checked": "team-b"}
"""The LocalQueues and the namespace of each; their ClusterQueues have the same names."""

CHECK = "soak"
"""An admission check that the soak answers itself."""

PLACED_NODES = [f"placed-{number}" for number in range(4)]
PLACED_PRODUCT = "NVIDIA-A100"
COUNTED = ("cpu", "memory", "nvidia.com/gpu")
PREEMPTS = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}

ACCOUNTS = {name: f"system:serviceaccount:{NAMESPACE}:{name}" for name in (CONTROLLER, WEBHOOKS)}
"""Who policyd's processes are."""

CONFIGURATION = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "featureGates": {"ElasticJobsViaWorkloadSlices": True, "SparkApplicationIntegration": True},
    "waitForPodsReady": {"timeout": "30s", "requeuingStrategy": {"backoffBaseSeconds": 1}},
    "objectRetentionPolicies": {"workloads": {"afterFinished": "20s"}},
    "integrations": {"frameworks": [*FRAMEWORKS]},
}

AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "verbs": ["create", "update", "patch", "delete"]},
        {"level": "None"},
    ],
}


@dataclass
class Stage:
    """What is soaked.

    Attributes:
        audit: What the API server notes of every write, a line each.
        configuration: Kueue's Configuration, as both processes have it.
    """

    control_plane: ControlPlane
    api: Api
    webhooks: Process
    controller: Process
    audit: Path
    configuration: Path

    @property
    def etcd(self) -> str:
        """etcd's address."""
        return f"http://127.0.0.1:{self.control_plane.site.ports[ETCD]}"

    @property
    def processes(self) -> dict[str, Process]:
        """policyd's processes by the names of their accounts."""
        return {CONTROLLER: self.controller, WEBHOOKS: self.webhooks}


@contextmanager
def opened(folder: Path, schemas: Schemas = SCHEMAS) -> Iterator[Stage]:
    """Start everything, and end it afterwards.

    Args:
        folder: Where all that is noted goes.
        schemas: Which definitions Kueue's kinds have: ours, slim or full, or Kueue's own.
    """
    configuration, policy, audit = (folder / n for n in ("kueue.yaml", "audit.yaml", "audit.log"))
    configuration.write_text(json.dumps(CONFIGURATION))
    policy.write_text(yaml.safe_dump(AUDIT))
    flags = [f"--audit-policy-file={policy}", f"--audit-log-path={audit}"]
    flags.append("--etcd-compaction-interval=0")  # the whole history stays
    with ControlPlane(flags={API_SERVER: flags}) as control_plane, ExitStack() as stack:
        api = Api(control_plane.kubeconfig)
        install(api, schemas)
        furnish(api)
        accounts = accounts_on(control_plane, controller__configuration=CONFIGURATION)
        more = ["--config", str(configuration)]
        webhooks = Process([*webhooks_command(accounts), *more], folder / "webhooks.log")
        controller = Process([*controller_command(accounts), *more], folder / "controller.log")
        for process in (webhooks, controller):
            process.start()
            stack.callback(process.stop)
        eventually(
            lambda: webhooks_are_ready(api, (webhooks, controller)),
            within=90,
            what="the webhooks answer",
        )
        foreign.install(api)
        yield Stage(control_plane, api, webhooks, controller, audit, configuration)


def furnish(api: Api) -> None:
    """Create what there is beside the teams' queues: one with a topology, one with a check."""
    for team, strategy in zip(TEAMS, ("BestEffortFIFO", "StrictFIFO"), strict=True):
        spec = {"queueingStrategy": strategy, "preemption": PREEMPTS}
        api.patch("ClusterQueue", team, {"spec": spec})
    flavor = {"nodeLabels": {demo.GPU_LABEL: PLACED_PRODUCT}, "topologyName": "placed"}
    levels = [{"nodeLabel": label} for label in (demo.RACK_LABEL, "kubernetes.io/hostname")]
    for item in (
        *placed_nodes(),
        cluster_object("Topology", "placed", levels=levels),
        cluster_object("ResourceFlavor", "placed", tolerations=[demo.GPU_TOLERATION], **flavor),
        cluster_object("AdmissionCheck", CHECK, controllerName="policyd.io/soak"),
        cluster_queue("placed", "placed", 32),
        cluster_queue("checked", "h100", 8, admissionChecksStrategy=CHECKED),
        *(local_queue(name) for name in ("placed", "checked")),
    ):
        eventually(lambda item=item: created(api, item), what=f"{item['kind']} is served")
    active = {"type": "Active", "status": "True", "reason": "Active", "message": "the soak answers"}
    api.call(
        "PATCH",
        f"{driver.PATHS['AdmissionCheck']}/{CHECK}/status",
        {"status": {"conditions": [{**active, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}},
        content_type=driver.PATCH_TYPES["merge"],
    )


CHECKED = {"admissionChecks": [{"name": CHECK, "onFlavors": []}]}


def placed_nodes() -> Iterator[dict[str, Any]]:
    """Yield the nodes of the queue that has a topology: two racks of two."""
    for name, node in zip(PLACED_NODES, demo.nodes(len(PLACED_NODES)), strict=True):
        labels = {"kubernetes.io/hostname": name, demo.GPU_LABEL: PLACED_PRODUCT}
        metadata = {"name": name, "labels": {**node["metadata"]["labels"], **labels}}
        yield {**node, "metadata": metadata}


def cluster_object(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    """Return an object of Kueue's that belongs to the cluster."""
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def local_queue(name: str) -> dict[str, Any]:
    """Return the LocalQueue of that name."""
    item = cluster_object("LocalQueue", name, clusterQueue=name)
    item["metadata"]["namespace"] = QUEUES[name]
    return item


def cluster_queue(name: str, flavor: str, gpus: int, **spec: Any) -> dict[str, Any]:
    """Return a ClusterQueue on its own, with so many GPUs of a flavor."""
    quota = {"cpu": "400", "memory": "4Ti", "nvidia.com/gpu": str(gpus)}
    resources = [{"name": resource, "nominalQuota": quota[resource]} for resource in COUNTED]
    group = {"coveredResources": [*COUNTED], "flavors": [{"name": flavor, "resources": resources}]}
    preemption = {"withinClusterQueue": "LowerPriority"}
    selected = {"namespaceSelector": {}, "resourceGroups": [group], "preemption": preemption}
    return cluster_object("ClusterQueue", name, **selected, **spec)
