"""A cluster in memory, in virtual time, with a controller that can be killed at any write."""

import asyncio
import copy
import json
from contextlib import asynccontextmanager

from policyd.alloc.settings import DEFAULTS
from policyd.api.kueue.names import GROUP, RESOURCE_IN_USE_FINALIZER
from policyd.controller.metrics.counters import MetricsSettings
from policyd.controller.metrics.metric_families import ROLE
from policyd.controller.retention import NO_LIMITS
from policyd.controller.run import Controller
from policyd.controller.settings import ControllerSettings, ForecastsSettings
from policyd.jobs.copied import NO_KEYS
from policyd.jobs.integrations import EVERYTHING
from policyd.jobs.rules.defaults import default_on_create
from policyd.kube import resources as r
from policyd.multikueue.settings import DEFAULTS as MULTI_KUEUE
from policyd.patch.draft import Draft
from policyd.testing import FakeClient, FakeClock
from tests.controller.admitting import Admitting
from tests.full_schemas import errors_of, kueue_schemas, our_schemas, refusals

GPU = "nvidia.com/gpu"
QUEUE = "kueue.x-k8s.io/queue-name"
GATE = "kueue.x-k8s.io/admission"

HELD = {"finalizers": [RESOURCE_IN_USE_FINALIZER]}
"""As the webhook has it when queues and flavors are created."""

UNCOUNTED = (r.EVENTS, r.CLUSTER_QUEUES, r.LOCAL_QUEUES)
"""Writes that tell; nothing depends on them."""


class Mortal(FakeClient):
    """A client whose process is killed at its n-th write: before it is carried out, or after."""

    writes_left = None
    after = False
    dead = False
    counted = 0
    unfit = ()
    """What the full schemas have against what was written."""

    def _look(self, since):
        """Check what was written against the full schemas, ours and Kueue's, and our webhooks."""
        for change in self.store.history:
            if change.version > since and change.resource.group == GROUP and change.new:
                plural = change.resource.plural
                for schemas in (our_schemas(), kueue_schemas()):
                    if plural in schemas:
                        self.unfit += errors_of(change.new, change.old, schemas[plural])
                self.unfit += refusals(change.new, change.old)

    async def _write(self, method, *args, **options):
        if self.dead or (self.writes_left == 0 and not self.after):
            self.dead = True
            await asyncio.Event().wait()
        since = self.store.version
        answer = await self._looked_at(method, *args, **options)
        self._look(since)
        if args[0] not in UNCOUNTED:
            self.counted += 1
            if self.writes_left is not None:
                self.writes_left -= 1
                if self.writes_left <= 0 and self.after:
                    self.dead = True
                    await asyncio.Event().wait()
        return answer

    async def _looked_at(self, method, *args, **options):
        self.store.by_controller = True
        try:
            return await method(self, *args, **options)
        finally:
            self.store.by_controller = False

    async def create(self, *args, **options):
        return await self._write(FakeClient.create, *args, **options)

    async def patch(self, *args, **options):
        return await self._write(FakeClient.patch, *args, **options)

    async def delete(self, *args, **options):
        return await self._write(FakeClient.delete, *args, **options)


class World:
    """The API server's objects, time, and what Kubernetes itself would do with them."""

    client_type = Mortal

    def __init__(self, queueing=DEFAULTS, resources=None, limits=NO_LIMITS, clock=None):
        self.queueing = queueing
        self.resources = resources
        self.limits = limits
        self.metrics = MetricsSettings()
        self.copied = NO_KEYS
        self.deletes_outside_quota = False
        self.integrations = EVERYTHING
        self.other_teams = "names"
        self.forecasts = ForecastsSettings(enabled=False)  # they are made again and again
        self.hours_record = ""
        self.multi_kueue = MULTI_KUEUE
        self.clock = clock or FakeClock()
        self.store = Admitting(clock=self.clock)
        self.client = None
        self.controller = None
        self.task = None

    # The controller.

    async def start(self, *, writes=None, after=False):
        """Start a fresh controller; it is killed at its n-th write if `writes` is given."""
        self.client = self.client_type(store=self.store)
        self.client.unfit = []
        self.client.writes_left, self.client.after = writes, after
        settings = ControllerSettings(
            policies=False,
            workers=4,
            queueing=self.queueing,
            resources=self.resources,
            limits=self.limits,
            metrics=self.metrics,
            copied=self.copied,
            integrations=self.integrations,
            other_teams=self.other_teams,
            forecasts=self.forecasts,
            hours_record=self.hours_record,
            deletes_outside_quota=self.deletes_outside_quota,
            multi_kueue=self.multi_kueue,
        )
        self.controller = Controller(self.client, settings, pace=self.clock.pace())
        self.prepare(self.controller)
        self.task = asyncio.create_task(self.controller.run())
        await self.pass_time(0.1)

    def prepare(self, controller):
        """Change a controller before it runs."""

    async def kill(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def pass_time(self, seconds):
        await self.clock.advance(seconds)
        unfit = () if self.client is None else self.client.unfit
        assert not unfit, "\n".join(map(str, unfit))
        if self.task is not None and self.task.done():
            self.task.result()

    # Objects.

    def put(self, resource, body):
        return self.store.put(resource, body)

    def create(self, resource, body, namespace="ns"):
        return self.store.create(resource, copy.deepcopy(body), namespace=namespace)

    def get(self, resource, name):
        return plain(self.store.get(resource, "ns", name))

    def all(self, resource):
        return [plain(obj) for obj in self.store.select(resource, {})]

    def delete(self, resource, name):
        """Delete an object, and what only it owns, as the garbage collector does."""
        obj = self.store.get(resource, "ns", name)
        self.store.delete(resource, obj, dry_run=False)
        self.collect_garbage()

    def collect_garbage(self):
        alive = {o["metadata"]["uid"] for kind in (r.JOBS, r.PODS) for o in self.all(kind)}
        for workload in self.all(r.WORKLOADS):
            owners = [o["uid"] for o in workload["metadata"].get("ownerReferences", ())]
            if owners and not alive & set(owners):
                self.store.delete(r.WORKLOADS, workload, dry_run=False)

    def queue(self, name="cq", gpus=8, cohort="", **spec):
        quota = {"name": GPU, "nominalQuota": str(gpus), **spec.pop("limits", {})}
        flavors = [{"name": "h100", "resources": [quota]}]
        group = {"coveredResources": [GPU], "flavors": flavors}
        body = {"cohortName": cohort, "namespaceSelector": {}, "resourceGroups": [group], **spec}
        self.put(r.CLUSTER_QUEUES, {"metadata": {"name": name, **HELD}, "spec": body})
        local = {"metadata": {"name": f"lq-{name}", "namespace": "ns"}}
        self.put(r.LOCAL_QUEUES, {**local, "spec": {"clusterQueue": name}})

    def furnish(self, **queue):
        """Create a flavor, a namespace, a queue and its LocalQueue `lq-cq`."""
        labels = {"gpu": "h100"}
        tolerations = [{"key": "gpu", "operator": "Exists"}]
        self.put(
            r.RESOURCE_FLAVORS,
            {
                "metadata": {"name": "h100", **HELD},
                "spec": {"nodeLabels": labels, "tolerations": tolerations},
            },
        )
        self.put(r.NAMESPACES, {"metadata": {"name": "ns", "labels": {"team": "a"}}})
        self.queue(**queue)

    def job(self, name, gpus=8, queue="lq-cq", namespace="ns", **labels):
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "labels": {QUEUE: queue, **labels}},
            "spec": {"suspend": True, "parallelism": 1, "template": {"spec": pod_spec(gpus)}},
        }
        return self.create(r.JOBS, body, namespace)

    def pod(self, name, gpus=2, group="", total=0, priority="", **annotations):
        metadata = {"name": name, "labels": {QUEUE: "lq-cq"}, "annotations": annotations}
        if group:
            metadata["labels"]["kueue.x-k8s.io/pod-group-name"] = group
            annotations["kueue.x-k8s.io/pod-group-total-count"] = str(total)
        spec = {**pod_spec(gpus), "priorityClassName": priority}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        draft = Draft(body)
        default_on_create(draft, group="", kind="Pod")
        return self.create(r.PODS, draft.object)

    def set_status(self, resource, name, **status):
        obj = self.get(resource, name)
        self.store.replace(
            resource, obj, {**obj, "status": {**obj.get("status", {}), **status}}, part="status"
        )

    def end_job(self, name, kind="Complete"):
        condition = {"type": kind, "status": "True", "message": "the end"}
        self.set_status(r.JOBS, name, active=0, conditions=[condition])

    def run_pods(self, phase):
        for pod in self.all(r.PODS):
            if not gates(pod) and pod.get("status", {}).get("phase") not in {"Succeeded", "Failed"}:
                self.set_status(r.PODS, pod["metadata"]["name"], phase=phase)

    # What is seen.

    def workload_of(self, name):
        for workload in self.all(r.WORKLOADS):
            owners = [o["name"] for o in workload["metadata"].get("ownerReferences", ())]
            if name in owners or workload["metadata"]["name"] == name:
                return workload
        return None

    def condition(self, name, kind):
        workload = self.workload_of(name)
        return condition(workload, kind) if workload else {}

    def is_true(self, name, kind):
        return self.condition(name, kind).get("status") == "True"

    def suspended(self, name):
        return self.get(r.JOBS, name)["spec"]["suspend"]

    def value(self, metric, /, **labels):
        """Return what one of Kueue's metrics says; None if nothing."""
        registry = self.controller.health.metrics.registry
        return registry.get_sample_value(f"kueue_{metric}", {**labels, ROLE: "standalone"})

    def events(self, reason=""):
        found = self.all(r.EVENTS)
        return [e for e in found if not reason or e["reason"] == reason]


@asynccontextmanager
async def running(world):
    """Run a controller on a world, and stop it afterwards."""
    await world.start()
    try:
        yield world
    finally:
        await world.kill()
    assert getattr(world.store, "refused", None) is None


def plain(obj):
    """The object as it would come over the wire: lists, not tuples."""
    return json.loads(json.dumps(obj, default=str))


def pod_spec(gpus):
    resources = {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}}
    return {"containers": [{"name": "main", "image": "train:1", "resources": resources}]}


def condition(obj, kind):
    conditions = obj.get("status", {}).get("conditions", ())
    return next((c for c in conditions if c["type"] == kind), {})


def names(world, resource):
    return sorted(obj["metadata"]["name"] for obj in world.all(resource))


def is_deleted(obj):
    return "deletionTimestamp" in obj["metadata"]


def gates(pod):
    return [gate["name"] for gate in pod["spec"].get("schedulingGates", ())]


def held_gpus(workload):
    """GPUs of a workload that holds quota and has not finished, without those given back."""
    if not workload or condition(workload, "Finished").get("status") == "True":
        return 0
    admission = workload.get("status", {}).get("admission")
    if condition(workload, "QuotaReserved").get("status") != "True" or not admission:
        return 0
    given_back = {p["name"]: p["count"] for p in workload["status"].get("reclaimablePods") or ()}
    return sum(
        int(each["resourceUsage"].get(GPU, 0))
        // each["count"]
        * (each["count"] - given_back.get(each["name"], 0))
        for each in admission["podSetAssignments"]
    )
