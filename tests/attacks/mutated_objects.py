"""Objects of every kind with odd values in every place, given to the controller as they are stored.

Whatever the API server may store, and much that it would not: a tenant who writes it must not stop
the controller, nor what others have queued.
"""

import asyncio
import copy
import random
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog

from policyd.alloc.settings import Gates, QueueingSettings
from policyd.api.kueue import names
from policyd.api.kueue.names import PROVISIONING
from policyd.controller.retention import TimeLimits
from policyd.controller.run import Controller
from policyd.controller.settings import ControllerSettings
from policyd.controller.watch.mirrors import job_resource
from policyd.jobs.kinds.leader_worker_set import LEADER_WORKER_SET
from policyd.jobs.kinds.registry import KINDS
from policyd.jobs.kinds.stateful_set import STATEFUL_SET
from policyd.kube import resources as r
from policyd.kube.resources import Resource
from policyd.testing import FakeClient
from policyd.testing.objects import ObjectStore
from tests.attacks.figures import Attacks, Figures
from tests.controller.world import GPU, QUEUE, World, pod_spec
from tests.scenarios.foreign import SPECS

Body = dict[str, Any]

NUMBERS = (0, 1, -1, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63), 1_000_000_007)
TEXTS = (
    "",
    "0",
    "-1",
    "1e999999999",
    "1e-999999999",
    "1E1000",
    "9" * 900,
    "9" * 10_000,
    "-9223372036854775808",
    "9223372036854775807",
    "8Ei",
    "1n",
    "NaN",
    "inf",
    "1_000",
    "\u0661\u0662",
    "1.5",
    "true",
    "True",
    "False",
    "Unknown",
    "\n",
    "a\nb\x1b[31m\x00\u2028\ud7ff",
    "a/b/c/d",
    "/",
    ",",
    ",,a=,=b",
    "{}",
    "[]",
    "{",
    '{"a": [1, {"b": null}]}',
    "1h",
    "-1h",
    "9" * 300 + "h",
    "1e9h",
    "2562047h47m16.854775807s",
    "x" * 5_000,
    "../../etc",
    "ns/main",
    "main",
    "cq",
    "lq-cq",
    "Hold",
    "HoldAndDrain",
    "None",
    "Pending",
    "Ready",
    "Retry",
    "Rejected",
    "QuotaReserved",
    "Evicted",
    "Finished",
    "Admitted",
    "PodsReadyTimeout",
)
TIMES = (
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "1970-01-01T00:00:00Z",
    "2026-01-01T00:00:00.123456Z",
    "2300-01-01T00:00:00Z",
)
KEYS = (
    *sorted(
        v
        for v in vars(names).values()
        if isinstance(v, str) and v.count("/") == 1 and "\n" not in v
    ),
    "kueue.x-k8s.io/podset-slice-required-topology",
    "kueue.x-k8s.io/podset-slice-size",
    "kueue.x-k8s.io/podset-group-name",
    "kueue.x-k8s.io/podset-slice-required-topology-constraints",
    "kueue.x-k8s.io/pod-group-serving",
    "kueue.x-k8s.io/pod-group-fast-admission",
    "kueue.x-k8s.io/pod-index-offset",
    "kueue.x-k8s.io/pod-group-pod-index",
    "kueue.x-k8s.io/pod-group-pod-index-label",
    "kueue.x-k8s.io/job-completions-equal-parallelism",
    "batch.kubernetes.io/job-completion-index",
    "policyd.io/expected-run-time",
    "policyd.io/checkpoint-every",
    "policyd.io/gang-scheduler",
    "policyd.io/gang-queue",
    "policyd.io/protect-for",
    "provreq.kueue.x-k8s.io/maxRunDurationSeconds",
    "provreq.kueue.x-k8s.io/",
    "autoscaling.x-k8s.io/consume-provisioning-request",
    "leaderworkerset.sigs.k8s.io/name",
    "leaderworkerset.sigs.k8s.io/group-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "leaderworkerset.sigs.k8s.io/leader-name",
    "apps.kubernetes.io/pod-index",
    "jobset.sigs.k8s.io/job-index",
    "training.kubeflow.org/replica-index",
)
"""Labels and annotations that are read somewhere."""

PARENTS = (STATEFUL_SET, LEADER_WORKER_SET)
CLEAN = "clean"
"""The namespace, and all in it, of somebody who does nothing wrong."""
CLEAN_SECONDS = 20
"""Within which a job starts for which there is room."""
SCENES, ROUNDS = 60, 40


def scene() -> Iterator[tuple[Resource, Body]]:
    """Yield an object or more of every kind that the controller reads."""
    yield (
        r.RESOURCE_FLAVORS,
        _named(
            "h100",
            spec={
                "nodeLabels": {"gpu": "h100"},
                "topologyName": "racks",
                "nodeTaints": [{"key": "gpu", "value": "a", "effect": "NoSchedule"}],
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
            },
        ),
    )
    yield (
        r.TOPOLOGIES,
        _named(
            "racks",
            spec={"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]},
        ),
    )
    for index in range(3):
        name = f"n{index}"
        labels = {"rack": f"r{index // 2}", "kubernetes.io/hostname": name, "gpu": "h100"}
        yield (
            r.NODES,
            _named(
                name,
                labels=labels,
                status={
                    "allocatable": {GPU: "8", "cpu": "64", "memory": "64Gi", "pods": "110"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            ),
        )
    yield (
        r.COHORTS,
        _named(
            "all",
            spec={
                "parentName": "root",
                "fairSharing": {"weight": "1"},
                "resourceGroups": [
                    {
                        "coveredResources": [GPU],
                        "flavors": [
                            {
                                "name": "h100",
                                "resources": [
                                    {
                                        "name": GPU,
                                        "nominalQuota": "2",
                                        "borrowingLimit": "4",
                                        "lendingLimit": "1",
                                    }
                                ],
                            }
                        ],
                    }
                ],
            },
        ),
    )
    for queue in ("cq", "other"):
        quotas = [
            {"name": name, "nominalQuota": many, "borrowingLimit": many, "lendingLimit": many}
            for name, many in ((GPU, "12"), ("cpu", "64"), ("memory", "256Gi"))
        ]
        groups = [
            {
                "coveredResources": [GPU, "cpu", "memory"],
                "flavors": [{"name": "h100", "resources": quotas}],
            }
        ]
        spec = {
            "cohortName": "all",
            "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]},
            "resourceGroups": groups,
            "preemption": {
                "withinClusterQueue": "LowerPriority",
                "reclaimWithinCohort": "Any",
                "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 5},
            },
            "flavorFungibility": {"whenCanBorrow": "TryNextFlavor"},
            "fairSharing": {"weight": "2"},
            "stopPolicy": "None",
            "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
        }
        if queue == "other":
            spec["admissionChecksStrategy"] = {
                "admissionChecks": [{"name": "nodes", "onFlavors": []}]
            }
        yield r.CLUSTER_QUEUES, _named(queue, spec=spec)
        yield (
            r.LOCAL_QUEUES,
            _named(
                f"lq-{queue}",
                "ns",
                spec={"clusterQueue": queue, "stopPolicy": "None", "fairSharing": {"weight": "1"}},
                status={
                    "fairSharing": {
                        "weightedShare": 0,
                        "admissionFairSharingStatus": {
                            "consumedResources": {"cpu": "1"},
                            "lastUpdate": TIMES[3],
                        },
                    }
                },
            ),
        )
    yield (
        r.ADMISSION_CHECKS,
        _named(
            "nodes",
            spec={
                "controllerName": PROVISIONING,
                "parameters": {
                    "apiGroup": "kueue.x-k8s.io",
                    "kind": "ProvisioningRequestConfig",
                    "name": "fast",
                },
            },
        ),
    )
    yield (
        r.PROVISIONING_CONFIGS,
        _named(
            "fast",
            spec={
                "provisioningClassName": "check-capacity",
                "parameters": {"a": "b"},
                "managedResources": [GPU],
                "retryStrategy": {
                    "backoffLimitCount": 2,
                    "backoffBaseSeconds": 60,
                    "backoffMaxSeconds": 1800,
                },
            },
        ),
    )
    yield r.WORKLOAD_PRIORITY_CLASSES, {**_named("high"), "value": 10}
    yield r.PRIORITY_CLASSES, {**_named("soon"), "value": 7, "globalDefault": False}
    yield (
        r.RUNTIME_CLASSES,
        {**_named("sandbox"), "overhead": {"podFixed": {"cpu": "1", "memory": "1Gi"}}},
    )
    yield (
        r.LIMIT_RANGES,
        _named(
            "limits",
            "ns",
            spec={
                "limits": [
                    {
                        "type": "Container",
                        "default": {"cpu": "1"},
                        "defaultRequest": {"cpu": "1"},
                        "max": {"cpu": "64"},
                        "min": {"cpu": "1m"},
                        "maxLimitRequestRatio": {"cpu": "4"},
                    },
                    {"type": "Pod", "max": {"cpu": "64"}},
                ]
            },
        ),
    )
    yield r.NAMESPACES, _named("ns", labels={"team": "a"})
    yield from _jobs()
    yield from _pods()
    yield from _workloads()


def _named(name: str, namespace: str = "", *, labels: Any = None, **rest: Any) -> Body:
    metadata: Body = {"name": name, "labels": dict(labels or {}), "annotations": {}}
    return {"metadata": metadata | ({"namespace": namespace} if namespace else {}), **rest}


def _queued(name: str, queue: str = "lq-cq", **labels: str) -> Body:
    return _named(name, "ns", labels={QUEUE: queue, **labels})


def _template(gpus: int = 1, **annotations: str) -> Body:
    spec = pod_spec(gpus)
    spec["containers"][0]["resources"]["requests"] |= {"cpu": "1", "memory": "1Gi"}
    spec |= {
        "initContainers": [
            {
                "name": "i",
                "image": "i",
                "restartPolicy": "Always",
                "resources": {"requests": {"cpu": "100m"}},
            }
        ],
        "overhead": {"cpu": "1m"},
        "priorityClassName": "soon",
        "runtimeClassName": "sandbox",
        "nodeSelector": {"gpu": "h100"},
        "tolerations": [
            {
                "key": "a",
                "operator": "Equal",
                "value": "b",
                "effect": "NoExecute",
                "tolerationSeconds": 3,
            }
        ],
        "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": "rack", "operator": "In", "values": ["r0", "r1"]},
                                {"key": "rack", "operator": "Gt", "values": ["1"]},
                            ],
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": ["n0"]}
                            ],
                        },
                        {"matchExpressions": [{"key": "rack", "operator": "Exists"}]},
                    ]
                }
            }
        },
        "schedulingGates": [],
        "terminationGracePeriodSeconds": 30,
    }
    return {
        "metadata": {
            "labels": {"app": "a"},
            "annotations": {"policyd.io/checkpoint-every": "15m", **annotations},
        },
        "spec": spec,
    }


def _jobs() -> Iterator[tuple[Resource, Body]]:
    topology = {
        names.PODSET_REQUIRED_TOPOLOGY: "rack",
        "kueue.x-k8s.io/podset-slice-size": "1",
        "kueue.x-k8s.io/podset-slice-required-topology": "kubernetes.io/hostname",
    }
    for name, queue, more, details in (
        ("plain", "lq-cq", {}, {"kueue.x-k8s.io/max-exec-time-seconds": "60"}),
        ("partial", "lq-cq", {}, {names.MIN_PARALLELISM: "1"}),
        ("placed", "lq-cq", topology, {}),
        ("elastic", "lq-cq", {}, {names.ELASTIC_JOB: "true"}),
        ("checked", "lq-other", {}, {"provreq.kueue.x-k8s.io/maxRunDurationSeconds": "60"}),
        ("built", "lq-cq", {}, {}),
    ):
        body = _queued(name, queue, **{names.PRIORITY_CLASS: "high"})
        body["metadata"]["annotations"] |= details
        if name == "built":
            body["metadata"]["labels"][names.PREBUILT_WORKLOAD] = "prebuilt"
        if "max-exec" in str(details):
            body["metadata"]["labels"] |= details
        yield (
            r.JOBS,
            body
            | {
                "spec": {
                    "suspend": True,
                    "parallelism": 2,
                    "completions": 4,
                    "completionMode": "Indexed",
                    "backoffLimit": 3,
                    "template": _template(1, **more),
                },
                "status": {
                    "active": 0,
                    "ready": 0,
                    "succeeded": 0,
                    "failed": 0,
                    "startTime": None,
                    "conditions": [],
                    "uncountedTerminatedPods": {},
                },
            },
        )
    kinds = {kind.kind: kind for kind in KINDS}
    for kind, spec in SPECS.items():
        if kind in kinds:
            yield job_resource(kinds[kind]), _queued(kind.lower()) | {"spec": spec(2)}
    runtime = {
        "mlPolicy": {"numNodes": 1},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "metadata": {
                                "labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
                            },
                            "spec": {"template": {"spec": {"containers": [{"name": "node"}]}}},
                        },
                    }
                ]
            }
        },
    }
    yield RUNTIMES, _named("torch", spec=runtime)
    yield (
        job_resource(STATEFUL_SET),
        _queued("serve") | {"spec": {"replicas": 2, "template": _template()}},
    )
    yield (
        job_resource(LEADER_WORKER_SET),
        _queued("lead")
        | {
            "spec": {
                "replicas": 2,
                "leaderWorkerTemplate": {
                    "size": 2,
                    "leaderTemplate": _template(),
                    "workerTemplate": _template(),
                },
            }
        },
    )


RUNTIMES = Resource(
    "trainer.kubeflow.org",
    "v1alpha1",
    "clustertrainingruntimes",
    "ClusterTrainingRuntime",
    namespaced=False,
)


def _pods() -> Iterator[tuple[Resource, Body]]:
    gated = {names.MANAGED: "true"}
    for name, group in (
        ("alone", ""),
        ("g-0", "g"),
        ("g-1", "g"),
        ("x-0", "x"),
        ("serve-0", "serve-group"),
    ):
        body = _queued(name, **gated, **({names.POD_GROUP_NAME: group} if group else {}))
        body["metadata"]["finalizers"] = [names.MANAGED]
        if group:
            body["metadata"]["annotations"][names.POD_GROUP_TOTAL_COUNT] = "2"
            body["metadata"]["annotations"][names.ROLE_HASH] = "abc"
        if name == "serve-0":
            body["metadata"]["ownerReferences"] = [
                {
                    "apiVersion": "apps/v1",
                    "kind": "StatefulSet",
                    "name": "serve",
                    "uid": "u",
                    "controller": True,
                }
            ]
        spec = _template()["spec"] | {
            "schedulingGates": [{"name": names.ADMISSION_GATE}, {"name": names.TOPOLOGY_GATE}]
        }
        yield (
            r.PODS,
            body
            | {
                "spec": spec,
                "status": {
                    "phase": "Pending",
                    "conditions": [
                        {"type": "Ready", "status": "False", "lastTransitionTime": TIMES[3]}
                    ],
                    "containerStatuses": [],
                },
            },
        )
    yield (
        r.PODS,
        _named("stray", "ns")
        | {"spec": _template(1)["spec"] | {"nodeName": "n0"}, "status": {"phase": "Running"}},
    )


def _workloads() -> Iterator[tuple[Resource, Body]]:
    pod_sets = [
        {
            "name": "main",
            "count": 2,
            "minCount": 1,
            "template": _template(),
            "topologyRequest": {
                "required": "rack",
                "podIndexLabel": "i",
                "subGroupCount": 1,
                "podSetSliceSize": 1,
                "podSetSliceRequiredTopology": "kubernetes.io/hostname",
            },
        }
    ]
    yield (
        r.WORKLOADS,
        _named(
            "prebuilt",
            "ns",
            spec={
                "queueName": "lq-cq",
                "active": True,
                "priority": 3,
                "podSets": pod_sets,
                "maximumExecutionTimeSeconds": 60,
            },
        ),
    )
    conditions = [
        {
            "type": kind,
            "status": "True",
            "reason": "R",
            "message": "m",
            "lastTransitionTime": TIMES[3],
            "observedGeneration": 1,
        }
        for kind in ("QuotaReserved", "Admitted")
    ]
    conditions += [
        {
            "type": kind,
            "status": "False",
            "reason": "R",
            "message": "m",
            "lastTransitionTime": TIMES[3],
        }
        for kind in ("Evicted", "Preempted", "PodsReady", "Requeued")
    ]
    assignment = {
        "name": "main",
        "count": 2,
        "flavors": {GPU: "h100", "cpu": "h100", "memory": "h100"},
        "resourceUsage": {GPU: "2", "cpu": "4", "memory": "2Gi"},
        "topologyAssignment": {
            "levels": ["kubernetes.io/hostname"],
            "slices": [
                {
                    "domainCount": 1,
                    "valuesPerLevel": [{"universal": "n1"}],
                    "podCounts": {"universal": 2},
                }
            ],
        },
    }
    status = {
        "conditions": conditions,
        "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]},
        "requeueState": {"count": 1, "requeueAt": TIMES[3]},
        "reclaimablePods": [{"name": "main", "count": 1}],
        "admissionChecks": [
            {
                "name": "nodes",
                "state": "Ready",
                "message": "",
                "lastTransitionTime": TIMES[3],
                "retryCount": 1,
                "requeueAfterSeconds": 1,
                "podSetUpdates": [
                    {
                        "name": "main",
                        "nodeSelector": {"a": "b"},
                        "labels": {},
                        "annotations": {},
                        "tolerations": [],
                    }
                ],
            }
        ],
        "unhealthyNodes": [{"name": "n1"}],
        "accumulatedPastExecutionTimeSeconds": 5,
        "resourceRequests": [{"name": "main", "resources": {GPU: "2"}}],
        "schedulingStats": {
            "evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 1}]
        },
        "nominatedClusterNames": [],
        "clusterName": "",
    }
    yield (
        r.WORKLOADS,
        _named(
            "running",
            "ns",
            spec={
                "queueName": "lq-cq",
                "active": True,
                "priority": 1,
                "priorityClassRef": {
                    "group": "kueue.x-k8s.io",
                    "kind": "WorkloadPriorityClass",
                    "name": "high",
                },
                "podSets": pod_sets,
            },
            status=status,
        ),
    )


class Scene:
    """A cluster in memory in which tenants write what they like, and a clean one beside it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.broken: list[str] = []
        self.count = 0

    async def run(self, rounds: int) -> list[str]:
        """Write so many mutated objects; return what broke, in words."""
        world = _world()
        originals = list(scene())
        with _noticing(self.broken):
            for resource, body in originals:
                world.put(resource, copy.deepcopy(body))
            _start(world)
            await world.clock.advance(5)
            for _ in range(rounds):
                resource, body = self.rng.choice(originals)
                if self.rng.random() < 0.1:
                    _remove(world, resource, body)
                else:
                    self._write(world, resource, body)
                await world.clock.advance(self.rng.choice((0, 0.3, 2)))
                if world.task.done():
                    break
            await self._judge(world)
            await world.kill()
        return self.broken

    def _write(self, world: World, resource: Resource, body: Body) -> None:
        self.count += 1
        current = _find(world, resource, body)
        start = current if current is not None and self.rng.random() < 0.7 else body
        made = copy.deepcopy(start)
        for _ in range(self.rng.randint(1, 4)):
            self._mutate(made)
        made["metadata"] = _stored(made.get("metadata"), body["metadata"])
        world.put(resource, made)

    def _mutate(self, body: Body) -> None:
        rng = self.rng
        if rng.random() < 0.3:
            metadata = rng.choice([*_metadata(body)] or [{}])
            where = metadata.setdefault(rng.choice(("labels", "annotations")), {})
            if isinstance(where, dict):
                where[rng.choice(KEYS)] = rng.choice(TEXTS)
            return
        container, key = rng.choice(list(_places(body)) or [({"": ""}, "")])
        value = container[key]
        dice = rng.random()
        if dice < 0.1:
            del container[key]
        elif dice < 0.15 and isinstance(value, list) and value:
            value.append(copy.deepcopy(rng.choice(value)))
        elif dice < 0.2 and isinstance(value, dict | list):
            container[key] = type(value)()
        elif dice < 0.22:
            container[key] = rng.choice((None, [], {}, "", 0, True))
        else:
            container[key] = self._other(value)

    def _other(self, value: object) -> object:
        rng = self.rng
        match value:
            case bool():
                return not value
            case int():
                return rng.choice(NUMBERS)
            case str() if value[:4].isdecimal() and value.endswith("Z"):
                return rng.choice(TIMES)
            case str():
                return rng.choice(TEXTS)
        return value

    async def _judge(self, world: World) -> None:
        """See whether somebody who did nothing wrong still gets what is free."""
        if world.task.done():
            self.broken.append(f"the controller ended: {_describe(world.task.exception())}")
            return
        for resource, body in _clean():
            world.put(resource, body)
        await world.clock.advance(CLEAN_SECONDS)
        if world.task.done():
            self.broken.append(f"the controller ended: {_describe(world.task.exception())}")
        elif world.store.get(r.JOBS, CLEAN, CLEAN)["spec"]["suspend"]:
            self.broken.append("somebody else's job does not start")


def _stored(metadata: Any, original: Body) -> Body:
    """Return metadata as any API server would have it: by the same name, and labels are labels."""
    made = dict(metadata) if isinstance(metadata, dict) else {}
    if not isinstance(made.get("labels"), dict):
        made["labels"] = {}
    made |= {key: original[key] for key in ("name", "namespace") if key in original}
    made.pop("resourceVersion", None)
    return made


def _clean() -> Iterator[tuple[Resource, Body]]:
    """Yield a job of somebody who did nothing wrong, and all that it needs."""
    quota = {"name": GPU, "nominalQuota": "1"}
    groups = [{"coveredResources": [GPU], "flavors": [{"name": CLEAN, "resources": [quota]}]}]
    yield r.NAMESPACES, _named(CLEAN)
    yield r.RESOURCE_FLAVORS, _named(CLEAN, spec={})
    yield (
        r.CLUSTER_QUEUES,
        _named(CLEAN, spec={"namespaceSelector": {}, "resourceGroups": groups}),
    )
    yield r.LOCAL_QUEUES, _named(CLEAN, CLEAN, spec={"clusterQueue": CLEAN})
    job = _named(CLEAN, CLEAN, labels={QUEUE: CLEAN})
    template = {"spec": pod_spec(1)}
    yield r.JOBS, job | {"spec": {"suspend": True, "parallelism": 1, "template": template}}


def _describe(error: BaseException | None) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return "".join(traceback.format_exception(error)[-9:])


def _world() -> World:
    gates = Gates(elastic_jobs_via_workload_slices=True)
    world = World(queueing=QueueingSettings(gates=gates), limits=TimeLimits())
    world.store = ObjectStore(clock=world.clock)
    return world


def _start(world: World) -> None:
    settings = ControllerSettings(
        policies=False,
        workers=4,
        queueing=world.queueing,
        limits=world.limits,
        deletes_outside_quota=True,
    )
    client = FakeClient(store=world.store)
    world.controller = Controller(client, settings, pace=world.clock.pace())
    world.task = asyncio.create_task(world.controller.run())


def _find(world: World, resource: Resource, body: Body) -> Body | None:
    metadata = body["metadata"]
    for each in world.all(resource):
        if each["metadata"]["name"] == metadata["name"]:
            return each
    return None


def _remove(world: World, resource: Resource, body: Body) -> None:
    found = _find(world, resource, body)
    if found is not None:
        world.store.delete(resource, found, dry_run=False)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in list(pairs):
        if key in {
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "apiVersion",
            "kind",
        }:
            continue
        yield value, key
        if isinstance(each, dict | list):
            yield from _places(each)


def _metadata(value: Any) -> Iterator[Body]:
    if isinstance(value, dict):
        if isinstance(value.get("metadata"), dict):
            yield value["metadata"]
        for each in value.values():
            yield from _metadata(each)
    elif isinstance(value, list):
        for each in value:
            yield from _metadata(each)


@contextmanager
def _noticing(broken: list[str]) -> Iterator[None]:
    """Note each exception that a reconciler did not expect."""

    def note(_logger: object, _method: str, event: Any) -> Any:
        if event.get("exc_info"):
            broken.append(
                f"{event.get('event')} {event.get('key')}: {traceback.format_exc(limit=-8)}"
            )
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[note])
    try:
        yield
    finally:
        structlog.configure(**before)


def mutated_objects(scenes: int = SCENES, rounds: int = ROUNDS, *, first: int = 0) -> Figures:
    """Write odd objects in so many clusters, one after the other, the same for the same numbers."""
    tried, faults, worst = 0, dict[str, None](), 0.0
    for seed in range(first, first + scenes):
        played, began = Scene(seed), time.process_time()
        faults |= dict.fromkeys(f"{seed}: {each}" for each in asyncio.run(played.run(rounds)))
        worst = max(worst, time.process_time() - began)
        tried += played.count
    return Figures(tried=tried, worst_seconds=worst, faults=tuple(faults))


ATTACKS: Attacks = {"objects of every kind": mutated_objects}
