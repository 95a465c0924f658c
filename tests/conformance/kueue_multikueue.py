"""Kueue's tables of jobs on other clusters: MultiKueue's checks, clusters, copies and quotas."""

import asyncio
import base64
import copy
import dataclasses
import json
import re
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from policyd.api.kueue import AdmissionCheck, ClusterQueue, LocalQueue, Workload
from policyd.api.kueue.multikueue import MultiKueueCluster, MultiKueueConfig
from policyd.api.meta import Condition, ObjectMeta, OwnerReference
from policyd.controller.metrics.counters import ControllerMetrics
from policyd.controller.multikueue.context import ManagerContext
from policyd.controller.multikueue.handed_jobs import HandedJob
from policyd.controller.multikueue.remotes import PROFILES, KubeconfigSecret, Remote
from policyd.controller.multikueue.service import MultiKueueService
from policyd.controller.watch.keys import ReconcileKey
from policyd.controller.writes import Writes
from policyd.errors import ConfigurationError
from policyd.jobs.base import controller_of, prebuilt_name
from policyd.jobs.kinds.registry import find_parent
from policyd.jobs.managers import MANAGERS
from policyd.kube.changes import Added, Deleted, Modified
from policyd.kube.client import ListPage
from policyd.kube.errors import ApiError
from policyd.kube.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    MULTIKUEUE_CLUSTERS,
    SECRETS,
    WORKLOADS,
)
from policyd.multikueue.connections import (
    NOT_CONNECTED,
    ConnectionConfig,
    ConnectionProblem,
    ConnectionState,
    connected_condition,
    establish_seconds,
    failure_message,
    path_problem,
    read_kubeconfig,
)
from policyd.multikueue.copies import (
    StatusBack,
    copied_job,
    is_ours,
    status_back,
    unmanaged,
)
from policyd.multikueue.dispatch import Group, is_settled, nominated, plan
from policyd.multikueue.settings import MultiKueueSettings, gated
from policyd.patch.merge_patch import apply_merge_patch
from policyd.testing import FakeClient, ObjectStore
from tests.conformance.kueue_objects import (
    NOW,
    Cluster,
    decode,
    read_table,
    run_table,
    seconds,
    settings_of,
)
from tests.conformance.kueue_parts import all_left_out
from tests.conformance.kueue_scene import Notes, compared, difference, events, plain, seconds_of

NAMESPACE = "ns"
UNWATCHED = {"Job": JOBS, "Secret": SECRETS}
LOST_SECONDS = 300.0
"""Kueue's tests wait so long for a worker that is lost."""
HANDLERS = "Go closures that call an event handler: the table has no inputs"

run_watchers = all_left_out("Go machinery: a file watcher over inotify")
run_goroutines = all_left_out("Go machinery: goroutines that wait for each other")
AT_A_TIME = "Go machinery: attempts beside each other; here a cluster has one attempt at a time"


class Manager:
    """A case's objects on a manager, and what sends jobs to workers."""

    def __init__(self, case, **settings):
        self.cluster = Cluster(settings_of(case))
        client, self.pace = self.cluster.client, self.cluster.clock.pace()
        self.notes = Notes(client, self.pace)
        writes = Writes(client, self.notes, leading=lambda: True, pace=self.pace)
        given = {"lost_seconds": LOST_SECONDS, **settings}
        self.settings = replace(gated(case.gates), **given)
        self.queued = []
        self.cluster.cache.hooks = replace_hook(self.cluster.cache.hooks, self.queued)
        self.metrics = ControllerMetrics()
        context = ManagerContext(
            cache=self.cluster.cache,
            writes=writes,
            settings=self.settings,
            metrics=self.metrics,
            namespace=NAMESPACE,
        )
        self.service = MultiKueueService(context)
        for mirror in (self.service.clusters, self.service.configs):
            mirror.informer.synced.set()
        mirrors = self.cluster.mirrors
        self.mirrors = {
            "Workload": mirrors.workloads,
            "AdmissionCheck": mirrors.checks,
            "ClusterQueue": mirrors.cluster_queues,
            "LocalQueue": mirrors.local_queues,
            "MultiKueueCluster": self.service.clusters,
            "MultiKueueConfig": self.service.configs,
        }

    def put(self, *bodies):
        for body in bodies:
            mirror = self.mirrors.get(body["kind"])
            resource = UNWATCHED.get(body["kind"]) if mirror is None else mirror.resource
            if resource is None:
                continue
            given = self._owning(body) if resource == JOBS else body
            stored = put(self.cluster.client, resource, given)
            if mirror is not None:
                version = int(stored["metadata"]["resourceVersion"])
                mirror.wrote(decode(stored, mirror.into, version=version))

    def _owning(self, job):
        """Return a job with the UID that workloads name: those of the tables have none."""
        metadata = job["metadata"]
        owners = (o for w in self.cluster.mirrors.workloads for o in w.metadata.owner_references)
        uid = next((o.uid for o in owners if o.name == metadata["name"]), None)
        return job if uid is None else {**job, "metadata": {"uid": uid, **metadata}}

    def worker(self, name, *bodies, lost_at=None):
        """Add a worker with its objects."""
        client = FakeClient(store=ObjectStore(clock=self.cluster.clock))
        for body in bodies:
            put(client, {"Job": JOBS, "Workload": WORKLOADS}[body["kind"]], body)
        remote = Remote(name, b"", ConnectionState(lost_at), client)
        self.service.remotes.by_name[name] = remote
        return client

    def all(self, client, resource):
        return [plain(each) for each in client.store.select(resource, {})]


def replace_hook(hooks, queued):
    return dataclasses.replace(hooks, reconcile=lambda key, _rank=None: queued.append(key))


def put(client, resource, body):
    body = copy.deepcopy(body)
    metadata = body["metadata"]
    if resource.namespaced:
        metadata.setdefault("namespace", NAMESPACE)
    metadata.setdefault("uid", f"uid-{metadata['name']}")
    metadata.setdefault("generation", 0)
    return plain(client.store.put(resource, body))


def config(name, *clusters, **more):
    spec = {"clusters": list(clusters), **more}
    return {"kind": "MultiKueueConfig", "metadata": {"name": name}, "spec": spec}


def check(name, config_name):
    parameters = {
        "apiGroup": "kueue.x-k8s.io",
        "kind": "MultiKueueConfig",
        "name": config_name,
    }
    spec = {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters}
    return {"kind": "AdmissionCheck", "metadata": {"name": name}, "spec": spec}


def described(bodies):
    """Return what is compared of objects, by name."""
    found = {}
    for body in bodies or ():
        metadata = dict(body["metadata"])
        owners = [(o["kind"], o["name"]) for o in metadata.get("ownerReferences", ())]
        shown = compared(copy.deepcopy(body))
        for gate in shown.get("status", {}).get("preemptionGates", ()):
            gate.pop("lastTransitionTime", None)
        annotations = metadata.get("annotations") or {}
        found[metadata["name"]] = {"owners": owners, "annotations": annotations, **shown}
    return found


# The way of a workload.


def run_workloads(path):
    """What becomes of a workload, its job and their copies in one look at them."""

    def failure(case):
        given, want = case.input, case.want
        more = {"dispatcher": given["dispatcherName"]} if given["dispatcherName"] else {}
        manager = Manager(case, **more)
        names = ["worker1", "worker2"] if given["useSecondWorker"] else ["worker1"]
        manager.put(config("config1", *names), check("ac1", "config1"))
        manager.put(*(given["managersWorkloads"] or ()), *(given["managersJobs"] or ()))
        workers = {name: worker_of(manager, name, given) for name in names}
        for body in given["managersDeletedWorkloads"] or ():
            deleted = decode(body, Workload)
            manager.service.dispatches.changed(Deleted(deleted))
        failed, wait = "", None
        key = ReconcileKey("MultiKueue", NAMESPACE, given["reconcileFor"])
        try:
            wait = asyncio.run(manager.service.dispatches.reconcile(key))
        except ApiError as error:
            failed = str(error)
        pairs = [
            (failed, (want["wantError"] or {}).get("$error", ""), "error"),
            (manager.notes.recorded, events(want["wantEvents"]), "events"),
        ]
        if want["wantResult"] is not None:
            wanted_wait = seconds_of(want["wantResult"].get("RequeueAfter", "0s"))
            pairs.append((wait or 0.0, wanted_wait, "wait"))
        clients = {"Managers": manager.cluster.client}
        clients |= {name.capitalize(): client for name, client in workers.items()}
        for owner, client in clients.items():
            for resource, kind in ((WORKLOADS, "Workloads"), (JOBS, "Jobs")):
                wanted = want[f"want{owner}{kind}"]
                got = described(manager.all(client, resource))
                pairs.append((got, described(wanted), f"{owner} {kind}"))
        return next(filter(None, (difference(*pair) for pair in pairs)), "")

    yield from run_table(path, failure)


def worker_of(manager, name, given):
    lost = given[f"{name}Reconnecting"]
    since = given[f"{name}DisconnectedSince"]
    lost_at = (seconds(since) if since else NOW) if lost else None
    bodies = [*(given[f"{name}Workloads"] or ()), *(given[f"{name}Jobs"] or ())]
    client = manager.worker(name, *bodies, lost_at=lost_at)
    for verb in ("Get", "Create", "Delete") if name == "worker2" else ():
        error = given[f"{name}On{verb}Error"]
        if error:
            refused = ApiError(error["$error"])
            client.fail(refused, verb=verb.lower(), plural="workloads")
    return client


def handed(workload, name="job1"):
    owner = controller_of(workload.metadata) or OwnerReference("batch/v1", "Job", name, "uid")
    return HandedJob(owner, MANAGERS["batch", "Job"], JOBS)


def nominee(given):
    status = {"nominatedClusterNames": given["nominatedWorkers"] or []}
    if given["localClusterName"]:
        status["clusterName"] = given["localClusterName"]
    if given["cond"]:
        status["conditions"] = [given["cond"]]
    return {
        "kind": "Workload",
        "metadata": {"name": "wl", "namespace": NAMESPACE},
        "spec": {},
        "status": {**status, "admissionChecks": [{"name": "ac1", "state": "Pending"}]},
    }


def run_nominations(path):
    """Which workers get a copy."""

    def failure(case):
        given, want = case.input, case.want
        manager = Manager(case, dispatcher=given["dispatcherMode"])
        manager.put(nominee(given))
        local = manager.mirrors["Workload"].get(f"{NAMESPACE}/wl")
        copies, clients = {}, {}
        for name, existing in (given["remotes"] or {}).items():
            clients[name] = manager.worker(name)
            copies[name] = None if existing is None else local
            if given["createErr"]:
                clients[name].fail(ApiError("refused"), verb="create")
        group = Group(local=local, check="ac1", copies=copies)
        steps = nominated(group, manager.settings)
        failed = bool(steps.error)
        try:
            asyncio.run(manager.service.dispatches.perform(group, handed(local), steps))
        except ApiError:
            failed = True
        created = sorted(
            name
            for name, client in clients.items()
            if any(w.verb == "create" for w in client.writes) and not given["createErr"]
        )
        stored = manager.all(manager.cluster.client, WORKLOADS)[0]
        names = stored["status"].get("nominatedClusterNames")
        wanted_names = want.get("wantNominatedClusterNames")
        pairs = [
            (failed, want["wantErr"], "error"),
            (created, sorted(want["wantCreated"] or ()), "created"),
        ]
        if wanted_names is not None:
            pairs.append((names, wanted_names, "nominated"))
        return next(filter(None, (difference(*pair) for pair in pairs)), "")

    yield from run_table(path, failure)


def run_deferred(path):
    """When a status is copied that has to wait for the job here to be unsuspended."""

    def failure(case):
        local, remote = (
            decode(case.data["locals"][name], Workload) for name in ("local", "remote")
        )
        manager = Manager(case)
        suspended = job_body(suspend=True)
        manager.put({**case.data["locals"]["local"], "kind": "Workload"}, suspended)
        running = job_body(suspend=False)
        running["metadata"]["labels"] = {"kueue.x-k8s.io/multikueue-origin": "multikueue"}
        manager.worker("worker1", running)
        group = Group(local=local, check="ac1", copies={"worker1": remote})
        steps = plan(group, manager.settings, now=NOW)
        performed = manager.service.dispatches.perform(group, handed(local), steps)
        wanted = seconds_of(case.data["observed"]["gotResult"]["RequeueAfter"])
        return difference(asyncio.run(performed), wanted, "wait")

    yield from run_table(path, failure)


def job_body(*, suspend):
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job1", "namespace": NAMESPACE},
        "spec": {"suspend": suspend, "managedBy": "kueue.x-k8s.io/multikueue"},
    }


def run_skips(path):
    """When no worker is to be nominated: not now, or as one is chosen."""

    def failure(case):
        given, body = case.input, {"metadata": {"name": "wl"}, **case.input["wl"]}
        state = given["acs"]
        checks = [] if state is None else [{**state, "name": "ac1"}]
        body = {**body, "status": {**body.get("status", {}), "admissionChecks": checks}}
        group = Group(local=decode(body, Workload), check="ac1", copies={})
        got = not checks or is_settled(group, elastic=given["isElastic"])
        return difference(got, case.want["want"], "skipped")

    yield from run_table(path, failure)


def run_jobs(path):
    """What a job and its copy get of each other."""

    def rule(case):
        want = case.want.get("want") or {}
        injected = want.get("err") and want.get("localJob")
        return "failures that Go code injects, which the table does not show" if injected else ""

    def failure(case):
        if not case.input.get("args"):
            parts = (case.data["locals"]["localJob"], case.data["locals"]["remoteJob"])
            back = status_back(*parts, "wl", MultiKueueSettings())
            return difference(back.deferred, case.data["locals"]["deferred"], "deferred")
        given, want = case.input["args"], case.want["want"]
        local, remote = (held_by(given.get(name)) for name in ("localClient", "remoteClient"))
        if local is None:
            return "" if want.get("err") else "there is no job"
        settings = replace(gated(case.gates), origin=given.get("origin", ""))
        name, back = given.get("workloadName", ""), StatusBack()
        if remote is None:
            remote = copied_job(local, MANAGERS["batch", "Job"], name, settings)
        else:
            back = status_back(local, remote, name, settings)
        if back.deferred or want.get("deferred"):
            return difference(back.deferred, want.get("deferred", False), "deferred")
        local = local if back.status is None else {**local, "status": back.status}
        remote = apply_merge_patch(remote, back.forwarded or {})
        pairs = [(local, want.get("localJob")), (remote, want.get("remoteJob"))]
        found = (
            difference(described([a]), described([b]), "jobs") for a, b in pairs if b is not None
        )
        return next(filter(None, found), "")

    yield from run_table(path, failure, rule=rule)


def run_adapters(path):
    """What is done with a job and its copy: sent, copied back, deleted, or found to be managed."""
    fields = read_table(path)["fields"]
    column = next(name for name in fields if name.startswith("managers")).removeprefix("managers")

    def rule(case):
        limits = "reject" in case.name
        return "numbers of groups that the webhooks refuse" if limits else ""

    def failure(case):
        local, remote = (case.input.get(f"{side}{column}") or [] for side in ("managers", "worker"))
        wanted = [case.want.get(f"want{side}{column}") or [] for side in ("Managers", "Worker")]
        if "GetExpected" in case.name:
            kind = find_parent(*group_and_kind(local[0]))
            count = len(kind.groups(decode(local[0], kind.type)))
            return difference(count, local[0]["spec"]["replicas"], "workloads")
        if "anaged" in case.name:
            managed = bool(local) and not any(unmanaged(manager_for(job), job) for job in local)
            return difference(managed, "not " not in case.name, "managed")
        settings = replace(gated(case.gates), origin="origin1")
        if "deleted" in case.name:
            left = [job for job in remote if not is_ours(job["metadata"], settings.origin)]
            return difference(described(left), described(wanted[1]), "jobs")
        got = synchronized(local, remote, workload_named(wanted[1]), settings)
        pairs = zip(got, wanted, ("here", "there"), strict=True)
        found = (difference(sent(a), sent(b), side) for a, b, side in pairs)
        return next(filter(None, found), "")

    yield from run_table(path, failure, rule=rule)


def synchronized(local, remote, workload, settings):
    """Return jobs and their copies after one look at them."""
    copies = {job["metadata"]["name"]: job for job in remote}
    mine, its = [], []
    for job in local:
        copy, back = copies.get(job["metadata"]["name"]), StatusBack()
        if copy is None:
            copy = copied_job(job, manager_for(job), workload, settings)
        else:
            back = status_back(job, copy, workload, settings)
        status = {} if back.status is None or back.deferred else {"status": back.status}
        mine.append({**job, **status})
        its.append(apply_merge_patch(copy, back.forwarded or {}))
    return mine, its


def group_and_kind(job):
    return job["apiVersion"].rpartition("/")[0], job["kind"]


def manager_for(job):
    return MANAGERS[group_and_kind(job)]


def workload_named(jobs):
    names = (prebuilt_name(decode(job["metadata"], ObjectMeta)) for job in jobs)
    return next(filter(None, names), "wl1")


def sent(jobs):
    """Return what is compared of jobs: zeros that Go writes for fields that are not set are not."""
    shown = described(jobs)
    for job in shown.values():
        status = job.get("status") or {}
        status = {k: v for k, v in status.items() if v not in ("0", {}, None)}
        status.pop("rayClusterStatus", None)
        job["status"] = status
    return shown


def held_by(client):
    return next(iter((client or {}).get("$fakeClient") or ()), None)


def run_orphans_after_reconnect(path):
    """A copy on a worker that was away is removed once it is back."""

    def failure(case):
        data = case.data["locals"]
        manager = Manager(case)
        manager.put(config("config1", "worker1", "worker2"), check("ac1", "config1"))
        job = {**data["baseJobBuilder"]["Job"], "kind": "Job"}
        manager.put({**data["managerWl"], "kind": "Workload"}, job)
        manager.worker("worker1")
        client = manager.worker("worker2", {**data["remoteWl"], "kind": "Workload"}, lost_at=NOW)
        dispatches = manager.service.dispatches
        key = ReconcileKey("MultiKueue", NAMESPACE, "wl1")
        first = asyncio.run(dispatches.reconcile(key))
        kept = len(manager.all(client, WORKLOADS))
        manager.service.remotes.by_name["worker2"].state = ConnectionState()
        second = asyncio.run(dispatches.reconcile(key))
        left = len(manager.all(client, WORKLOADS))
        got = (first, kept, second, left)
        return difference(got, (LOST_SECONDS, 1, None, 0), "waits and copies")

    yield from run_table(path, failure)


def run_counts(path):
    """Admissions by workers are counted once; retries and refusals are not."""

    def failure(case):
        manager = Manager(case)
        first, *copies = case.env["client"]
        manager.put(*(case.objects[key] for key in first))
        for index, keys in enumerate(copies, 1):
            manager.worker(
                f"worker{index}", *(case.objects[k] for k in keys if "Namespace" not in k)
            )
        key = ReconcileKey("MultiKueue", NAMESPACE, "wl1")
        for _ in range(2):
            asyncio.run(manager.service.dispatches.reconcile(key))
        found = [
            sample.value
            for family in manager.metrics.registry.collect()
            for sample in family.samples
            if sample.name == "multikueue_workloads_admitted_total"
        ]
        wanted = [1.0] if "IncrementedOnce" in case.name else []
        return difference(found, wanted, "admitted")

    yield from run_table(path, failure)


def run_collection(path):
    """What nobody here knows is removed from a worker."""

    def failure(case):
        given, want = case.input, case.want
        manager = Manager(case)
        manager.put(*(given["managersWorkloads"] or ()), *(given["managersJobs"] or ()))
        bodies = [*(given["workersWorkloads"] or ()), *(given["workersJobs"] or ())]
        client = manager.worker("worker1", *bodies)
        remote = manager.service.remotes.by_name["worker1"]
        asyncio.run(manager.service.dispatches.collect(remote))
        pairs = [
            (described(manager.all(client, resource)), described(want[column]), column)
            for resource, column in (
                (WORKLOADS, "wantWorkersWorkloads"),
                (JOBS, "wantWorkersJobs"),
            )
        ]
        return next(filter(None, (difference(*pair) for pair in pairs)), "")

    yield from run_table(path, failure)


# Clusters.


class Connections:
    """Connects as Kueue's tests do: the name of the user says how it goes."""

    def __init__(self):
        self.made = 0

    @asynccontextmanager
    async def __call__(self, loaded):
        self.made += 1
        if b"user: invalid" in loaded.source or loaded.source == b"invalid":
            raise ConfigurationError("invalid kubeconfig")
        client = FakeClient()
        if b"user: nowatch" in loaded.source:
            client.fail(ConfigurationError("client cannot watch"), verb="page")
        yield client


def run_clusters(path):
    """Whether a cluster is connected, with which kubeconfig, and what its object says."""
    table = read_table(path)
    old_path = (table.get("fixtures") or {}).get("validKubeconfigLocation", "")

    def failure(case):
        with tempfile.TemporaryDirectory() as folder:
            return cluster_failure(case, folder, old_path)

    yield from run_table(path, failure)


VALID = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [
        {
            "name": "test",
            "cluster": {
                "certificate-authority-data": "LS0tLS0=",
                "server": "https://10.10.10.10",
            },
        }
    ],
    "contexts": [{"name": "test-context", "context": {"cluster": "test", "user": "worker1"}}],
    "current-context": "test-context",
    "users": [{"name": "worker1", "user": {"token": "FAKE-TOKEN-123456"}}],
}


def cluster_failure(case, folder, old_path):
    given, want = case.input, case.want
    here = Path(folder, "worker1KubeConfig")
    here.write_text(json.dumps(VALID))

    def moved(value):
        text = json.dumps(value)
        return json.loads(text.replace(str(Path(old_path).parent), folder) if old_path else text)

    manager = Manager(case)
    remotes = manager.service.remotes
    remotes.connect = Connections()
    remotes.from_profile = profile_reader(given["cpAccessProvider"])
    if given["overrideKubeConfigPrefix"]:
        remotes.folder = folder
    manager.put(*moved(given["clusters"] or []), *(given["secrets"] or ()))
    for profile in given["clusterprofiles"] or ():
        put(manager.cluster.client, PROFILES, profile)
    stopped = []
    for name, known in (given["remoteClients"] or {}).items():
        remotes.by_name[name] = remote_of(name, known, stopped)
    name = given["reconcileFor"]
    key = ReconcileKey("MultiKueueCluster", "", name)
    wait = asyncio.run(manager.service.reconcilers()["MultiKueueCluster"](key))
    found = manager.service.clusters.get(name)
    loaded = asyncio.run(remotes.load(found)) if found is not None else None
    problem = isinstance(loaded, ConnectionProblem) and not loaded.absent
    error = (
        f"failed to load client config, reason: {loaded.reason}, error: {loaded.message}"
        if problem
        else ""
    )
    stored = manager.all(manager.cluster.client, MULTIKUEUE_CLUSTERS)
    wanted_clusters = moved(want["wantClusters"] or [])
    pairs = [
        (error, moved((want["wantErr"] or {}).get("$error", "")), "error"),
        (states(stored, wanted_clusters), states(wanted_clusters, wanted_clusters), "status"),
        (len(stopped), want["wantCancelCalled"], "stopped"),
        (sources(remotes.by_name), wanted_sources(want["wantRemoteClients"]), "clients"),
    ]
    if not problem:
        pairs.append((wait or 0.0, seconds_of(want["wantRequeueAfter"]), "wait"))
        pairs.append((recorded_of(manager), events(want["wantEvents"]), "events"))
    return next(filter(None, (difference(*pair) for pair in pairs)), "")


def recorded_of(manager):
    """Return the events of a reconcile: the second load, which says the error, repeats them."""
    found = manager.notes.recorded
    own = [each for index, each in enumerate(found) if each not in found[:index]]
    return [{**each, "Key": f"/{each['Key']}"} for each in own]


def profile_reader(given):
    supported = (given or {}).get("supportedProviders") or {}

    def read(profile):
        for provider in profile.get("status", {}).get("accessProviders", ()):
            if supported.get(provider["name"]):
                if profile["metadata"]["name"] == "invalid":
                    return ConnectionConfig(token_file="/token")
                return ConnectionConfig(host="https://10.10.10.10", token="t")
        raise ConfigurationError("no credentials provider configured")

    return read


def remote_of(name, known, stopped):
    async def stop():
        stopped.append(name)

    failures = known.get("failedConnAttempts", 0)
    source = ((known.get("config") or {}).get("Kubeconfig") or "").encode()
    lost = ConnectionState(None if known.get("connected") else NOW)
    return Remote(name, source, lost, FakeClient(), failures=failures, stop=stop)


USER = re.compile(r"user: (.+)")


def sources(remotes):
    return {name: (user_of(r.source.decode()), r.failures) for name, r in remotes.items()}


def wanted_sources(clients):
    return {
        name: (
            user_of((known.get("config") or {}).get("Kubeconfig") or ""),
            known.get("failedConnAttempts", 0),
        )
        for name, known in (clients or {}).items()
    }


def user_of(text):
    """Return the user of a kubeconfig's context; the text itself if it is none."""
    found = USER.search(text)
    if found:
        return found[1]
    return "worker1" if text.startswith("{") else text


NEXT = re.compile(r", next connection attempt: \S+")


def states(clusters, wanted):
    """Return the conditions; when the next attempt is depends on a real clock in Kueue's test."""
    timed = any("next connection" in json.dumps(each) for each in wanted)
    found = {}
    for each in clusters:
        for condition in each.get("status", {}).get("conditions", ()):
            message = condition["message"] if timed else NEXT.sub("", condition["message"])
            # The tables read from a fake, which names the resource; Kueue's cache names the kind.
            message = message.replace("clusterprofiles.multi", "ClusterProfile.multi")
            found[each["metadata"]["name"]] = (
                condition["status"],
                condition["reason"],
                message,
                condition.get("observedGeneration", 0),
            )
    return found


def run_backoff(path):
    """When a cluster is connected again that could not be."""

    def failure(case):
        manager = Manager(case)
        connections = manager.service.remotes.connect = Connections()
        for key in case.env["client"][0]:
            manager.put(case.objects[key])
        key = ReconcileKey("MultiKueueCluster", "", "worker1")
        reconcile = manager.service.reconcilers()["MultiKueueCluster"]

        async def steps():
            for index, step in enumerate(case.input["steps"]):
                await manager.cluster.clock.advance(seconds_of(step.get("advance", "0s")))
                if step.get("newKubeconfig") or step.get("kubeconfig"):
                    await change_secret(manager, step.get("newKubeconfig") or step["kubeconfig"])
                before = connections.made
                wait = await reconcile(key)
                remote = manager.service.remotes.by_name["worker1"]
                got = (connections.made - before, remote.failures, wait or 0.0)
                wanted = (
                    step.get("wantBuildCalls", 0),
                    step.get("wantFailedAttempts", 0),
                    seconds_of(step.get("wantRequeueAfter", "0s")),
                )
                if got != wanted:
                    return f"step {index}: {got}, wanted {wanted}"
            return ""

        return asyncio.run(steps())

    yield from run_table(path, failure)


class Watched:
    """A connection whose first answer, or whose watch, is as a case has it."""

    def __init__(self, *, hangs=False, error=None):
        self.hangs, self.error = hangs, error
        self.closed = self.watching = 0
        self.begun = asyncio.Event()

    @asynccontextmanager
    async def __call__(self, _loaded):
        try:
            yield self
        finally:
            self.closed += 1

    async def page(self, *_args, **_options):
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return ListPage(items=(), resource_version="1", continue_="")

    async def watch(self, *_args, **_options):
        self.watching += 1
        self.begun.set()
        try:
            await asyncio.Event().wait()
            yield
        finally:
            self.watching -= 1

    async def served(self, _version):
        return []


def one_cluster(case):
    """Return a manager of one cluster, which is not connected yet."""
    manager = Manager(case)
    source = {"kubeConfig": {"location": "worker1", "locationType": "Secret"}}
    kubeconfig = base64.b64encode(json.dumps(VALID).encode()).decode()
    manager.put(
        {
            "kind": "MultiKueueCluster",
            "metadata": {"name": "worker1"},
            "spec": {"clusterSource": source},
        },
        {"kind": "Secret", "metadata": {"name": "worker1"}, "data": {"kubeconfig": kubeconfig}},
    )
    return manager


def run_watches(path):
    """How a cluster is connected whose watch begins, does not begin, or is refused."""

    def rule(case):
        return AT_A_TIME if "in_progress" in case.name or "in progress" in case.name else ""

    def failure(case):
        error = (case.data.get("observed") or {}).get("err") or {}
        message = error.get("$error", "")
        hangs = "timed out" in message
        refused = ApiError(message) if message and not hangs else None
        connect = Watched(hangs=hangs, error=refused)
        manager = one_cluster(case)
        manager.service.remotes.connect = connect

        async def establish():
            attempt = asyncio.ensure_future(manager.service.remotes.reconcile("worker1"))
            for _ in range(20):
                await asyncio.sleep(0)
            await manager.cluster.clock.advance(establish_seconds(0) + 1)
            return await attempt, connect.closed

        wait, closed = asyncio.run(establish())
        (stored,) = manager.all(manager.cluster.client, MULTIKUEUE_CLUSTERS)
        (condition,) = stored["status"]["conditions"]
        got = (wait is None, condition["message"].partition(";")[0], closed)
        return difference(got, (not message, message or "Connected", int(bool(message))), "attempt")

    yield from run_table(path, failure, rule=rule)


def run_stopped_watches(path):
    """A connection that ends has no watch that goes on."""

    def failure(case):
        connect, manager = Watched(), one_cluster(case)
        remotes = manager.service.remotes
        remotes.connect = connect

        async def stopped():
            async with asyncio.TaskGroup() as group:
                remotes.tasks = group
                await remotes.reconcile("worker1")
                await connect.begun.wait()
                await remotes.close()
                return connect.watching, connect.closed

        return difference(asyncio.run(stopped()), (0, 1), "watches and closed connections")

    yield from run_table(path, failure)


async def change_secret(manager, kubeconfig):
    data = {"kubeconfig": base64.b64encode(kubeconfig.encode()).decode()}
    await manager.cluster.client.patch(
        SECRETS, "worker1", {"data": data}, into=KubeconfigSecret, namespace=NAMESPACE
    )


def run_slow_clusters(path):
    """A cluster that does not answer keeps no other from being connected."""

    def failure(case):
        manager = Manager(case)
        for key in case.env["client"][0]:
            manager.put(case.objects[key])
        remotes = manager.service.remotes
        never = asyncio.Event()

        @asynccontextmanager
        async def connect(loaded):
            if b"slow-user" in loaded.source:
                await never.wait()
            yield FakeClient()

        remotes.connect = connect

        async def both():
            slow = asyncio.ensure_future(remotes.reconcile("cluster-slow"))
            await asyncio.sleep(0)
            await remotes.reconcile("cluster-fast")
            found = [remotes.connected(f"cluster-{name}") is not None for name in ("slow", "fast")]
            slow.cancel()
            await asyncio.gather(slow, return_exceptions=True)
            return found

        return difference(asyncio.run(both()), [False, True], "connected")

    yield from run_table(path, failure)


def run_reconnection(path):
    """A cluster that was lost is connected again with the same kubeconfig."""

    def failure(case):
        manager = Manager(case)
        connections = manager.service.remotes.connect = Connections()
        for key in case.env["client"][0]:
            manager.put(case.objects[key])
        source = case.data["locals"]["kubeconfig"].encode()
        remote = Remote("worker1", source, ConnectionState(NOW), None)
        manager.service.remotes.by_name["worker1"] = remote
        asyncio.run(manager.service.remotes.reconcile("worker1"))
        connected = manager.service.remotes.connected("worker1") is not None
        wanted = (case.data["observed"]["buildCalls"], True)
        return difference((connections.made, connected), wanted, "connections")

    yield from run_table(path, failure)


def run_message(path):
    """What a cluster says that cannot be reached, and when it is again."""

    def failure(case):
        cluster = decode(case.data["locals"]["cluster"], MultiKueueCluster)
        next_at = seconds(case.data["locals"]["nextRetry"])
        message = failure_message("client cannot watch", 3, next_at)
        condition = connected_condition(cluster, (NOT_CONNECTED, message), now=NOW)
        back = connected_condition(cluster, None, now=NOW)
        got = (condition.message, condition.status, back.message, back.status)
        wanted = (case.want["wantMsg"], "False", "Connected", "True")
        return difference(got, wanted, "message")

    yield from run_table(path, failure)


def run_states(path):
    """A connection is lost at the first loss, until it is back."""

    def failure(_case):
        connected = ConnectionState()
        lost = connected.lost(NOW)
        got = (connected.connected, lost.connected, lost.lost(NOW + 60).lost_at)
        return difference(got, (True, False, NOW), "state")

    yield from run_table(path, failure)


def run_establishing(path):
    """How long a cluster may take to answer."""

    def failure(case):
        got = establish_seconds(case.input["failedAttempts"])
        return difference(got, seconds_of(case.want["want"]), "seconds")

    yield from run_table(path, failure)


def run_paths(path):
    """Which files may be read as kubeconfigs."""
    fixtures = read_table(path).get("fixtures") or {}

    def failure(case):
        given, want = case.input, case.want
        link = fixtures.get("symlink")
        resolved = fixtures["externalFile"] if given["path"] == link else given["path"]
        resolved = str(Path(resolved).resolve()) if resolved else ""
        got = path_problem(given["path"], resolved, given["allowedPrefix"])
        if not given["featureGate"]:
            got = ""
        part = given["errContains"]
        if part and part not in got:
            return f"{got}, which does not contain {part}"
        return difference(bool(got), want["wantErr"], "refused")

    yield from run_table(path, failure)


def run_kubeconfigs(path):
    """Which kubeconfigs are safe."""

    def failure(case):
        raw = (case.data.get("locals") or {}).get("raw", "")
        got = read_kubeconfig(raw.encode())
        message = got if isinstance(got, str) else ""
        message_of_kueue = (case.data.get("observed") or {}).get("err") or {}
        if case.want["wantErr"] and message_of_kueue.get("$error"):
            return difference(message, message_of_kueue["$error"], "message")
        return difference(bool(message), case.want["wantErr"], "refused")

    yield from run_table(path, failure)


# Checks, indexes, changes.


def run_checks(path):
    """Whether a check works."""

    def failure(case):
        given, want = case.input, case.want
        manager = Manager(case)
        for column in ("checks", "clusters", "configs"):
            manager.put(*(given[column] or ()))
        key = ReconcileKey("MultiKueueCheck", "", given["reconcileFor"])
        asyncio.run(manager.service.reconcilers()["MultiKueueCheck"](key))
        stored = manager.all(manager.cluster.client, ADMISSION_CHECKS)
        got, wanted = (
            [without_metadata(each) for each in bodies]
            for bodies in (stored, want["wantChecks"] or [])
        )
        return difference(got, wanted, "checks")

    yield from run_table(path, failure)


def without_metadata(body):
    shown = compared(copy.deepcopy(body))
    shown.pop("metadata")
    return shown


def run_indexes(path):
    """Which objects refer to another one."""

    def failure(case):
        given = case.input
        ((field, value),) = given["filter"].items()
        manager = Manager(case)
        for column in ("clusters", "configs", "workloads"):
            if given.get(column):
                manager.put(*given[column])
        service = manager.service
        find = {
            "spec.kubeconfigs": service.clusters_with_secret,
            "spec.clusterProfiles": service.clusters_with_profile,
            "spec.multiKueueClusters": service.configs_with,
            "status.admissionChecks": lambda name: [
                w
                for w in manager.mirrors["Workload"]
                if any(s.name == name for s in w.status.admission_checks)
            ],
        }[field]
        got = sorted(each.metadata.name for each in find(value))
        return difference(got, sorted(case.want["wantList"] or ()), "found")

    yield from run_table(path, failure)


def run_handlers(path):
    """Which workloads are looked at again after a change."""

    def failure(case):
        given = case.input
        manager = Manager(case)
        manager.put(*(given.get("admissionChecks") or ()), *(given["workloads"] or ()))
        manager.queued.clear()
        service = manager.service
        if "admissionCheck" in given:
            service.check_changed(Added(decode(given["admissionCheck"], AdmissionCheck)))
        elif "newAdmissionCheck" in given:
            old, new = (
                decode(given[n], AdmissionCheck) for n in ("oldAdmissionCheck", "newAdmissionCheck")
            )
            service.check_changed(Modified(old, new))
        else:
            old, new = (decode(given[n], MultiKueueConfig) for n in ("oldConfig", "newConfig"))
            service.config_changed(Modified(old, new))
        got = sorted({key.name for key in manager.queued if key.subject == "MultiKueue"})
        return difference(got, sorted(case.want["expectedQueuedWLs"] or ()), "queued")

    yield from run_table(path, failure)


def run_deleted_config(path):
    """A config that is deleted has its workloads looked at again."""

    def failure(case):
        manager = Manager(case)
        manager.put(*(case.objects[key] for keys in case.env["client"] for key in keys))
        manager.queued.clear()
        deleted = next(o for o in case.objects.values() if o["kind"] == "MultiKueueConfig")
        manager.service.config_changed(Deleted(decode(deleted, MultiKueueConfig)))
        got = {key.name for key in manager.queued if key.subject == "MultiKueue"}
        wanted = {o["metadata"]["name"] for o in case.objects.values() if o["kind"] == "Workload"}
        return difference(sorted(got), sorted(wanted), "queued")

    yield from run_table(path, failure)


# Quota.


def run_quotas(path):
    """The quota of a queue, and what its condition says."""

    def failure(case):
        given, want = case.input, case.want
        manager = Manager(case)
        manager.put(
            given["cq"], *(given["lqs"] or ()), *(given["acs"] or ()), *(given["configs"] or ())
        )
        for name, state in (given["workers"] or {}).items():
            lost = NOW if state.get("connecting") or state.get("disconnected") else None
            client = manager.worker(name, lost_at=lost)
            for resource, bodies in ((LOCAL_QUEUES, "lqs"), (CLUSTER_QUEUES, "cqs")):
                for body in state.get(bodies) or ():
                    put(client, resource, body)
        name = given["cq"]["metadata"]["name"]
        key = ReconcileKey("MultiKueueQuota", "", name)
        asyncio.run(manager.service.reconcilers()["MultiKueueQuota"](key))
        (stored,) = manager.all(manager.cluster.client, CLUSTER_QUEUES)
        conditions = stored.get("status", {}).get("conditions", ())
        fields = ("type", "status", "reason", "message")
        got = next(({f: c[f] for f in fields} for c in conditions), None)
        wanted = want["wantCondition"] and {f: want["wantCondition"][f] for f in fields}
        quotas = {
            quota["name"]: quota["nominalQuota"]
            for group in stored["spec"].get("resourceGroups", ())
            for flavor in group["flavors"]
            for quota in flavor["resources"]
        }
        pairs = [(got, wanted, "condition")]
        if want["wantQuotaAutomated"]:
            pairs.append((quotas, want["wantNominalQuotas"], "quotas"))
        return next(filter(None, (difference(*pair) for pair in pairs)), "")

    yield from run_table(path, failure)


CHANGES = {"Create": Added, "Delete": Deleted}


def run_quota_handlers(path):
    """Which changes have the quota of a queue looked at again; names say what changes how."""
    fixtures = read_table(path)["fixtures"]
    kinds = {
        "LocalQueue": (LocalQueue, "lq", "local_queue_changed"),
        "AdmissionCheck": (AdmissionCheck, "ac", "check_changed"),
        "MultiKueueConfig": (MultiKueueConfig, "cfg", "config_changed"),
        "MultiKueueCluster": (MultiKueueCluster, "cluster", "cluster_changed"),
        "ClusterQueue": (ClusterQueue, "cq", "queue_changed"),
    }

    def failure(case):
        kind, verb, *how = case.name.split()
        into, fixture, handler = kinds[kind]
        manager = Manager(case, automates=True)
        given = [fixtures[name] for name in ("cq", "ac", "cfg", "cluster") if name in fixtures]
        manager.put(*given)
        manager.queued.clear()
        obj = decode(fixtures[fixture], into)
        if verb in CHANGES:
            change = CHANGES[verb](obj)
        else:
            change = Modified(obj, changed(obj) if how == ["(relevant)"] else obj)
        getattr(manager.service, handler)(change)
        got = any(key.subject == "MultiKueueQuota" for key in manager.queued)
        return difference(got, case.want["wantReconcile"], "queued")

    yield from run_table(path, failure)


def changed(obj):
    """Return another version of an object that matters."""
    match obj:
        case MultiKueueConfig():
            spec = replace(obj.spec, quota_management="Automated", clusters=("other",))
            return replace(obj, spec=spec)
        case MultiKueueCluster():
            active = Condition("Active", "True", "Active", "Connected")
            return replace(obj, status=replace(obj.status, conditions=(active,)))
        case AdmissionCheck():
            parameters = replace(obj.spec.parameters, name="other")
            return replace(obj, spec=replace(obj.spec, parameters=parameters))
    return replace(obj, spec=replace(obj.spec, resource_groups=()))


def run_cluster_filters(path):
    """Which changes of a cluster have it connected anew; names say what changes how."""
    fixtures = read_table(path)["fixtures"]

    def failure(case):
        manager = Manager(case)
        change = filter_change(case.name, fixtures)
        if change is not None:
            manager.service.cluster_changed(change)
        got = any(key.subject == "MultiKueueCluster" for key in manager.queued)
        # A change of another kind is passed on by the watch of that kind, without a filter.
        return difference(got or "non-cluster" in case.name, case.want["wantReconcile"], "queued")

    yield from run_table(path, failure)


def filter_change(name, fixtures):
    """Return the change that a case is named after; None if it is not one of a cluster."""
    base, by_path, deleting = (
        decode(fixtures[each], MultiKueueCluster)
        for each in ("baseCluster", "baseClusterWithPath", "deletingCluster")
    )
    active = Condition("Active", "True", "Active", "Connected")
    connected = replace(base, status=replace(base.status, conditions=(active,)))
    of_path = by_path if "path" in name else base
    changes = {
        "generic": None,
        "non-cluster": None,
        "create": Added(of_path),
        "delete": Deleted(of_path),
        "status": Modified(base, connected),
        "no change": Modified(base, base),
        "delet": Modified(base, deleting),
    }
    found = next((word for word in changes if word in name), "")
    return changes.get(found, Modified(base, by_path))
