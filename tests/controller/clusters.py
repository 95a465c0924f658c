"""A manager that sends jobs to workers, each with a controller of its own."""

import base64
import gzip
import json
from contextlib import asynccontextmanager

from msgspec.structs import replace

from policyd.controller.multikueue.forecasts import SNAPSHOTS
from policyd.controller.queues.snapshots import AdmissionSnapshots
from policyd.kube import resources as r
from policyd.kube.errors import NotFoundError, UnreachableError
from policyd.multikueue.settings import gated
from tests.controller.world import World, running

MANAGER = "kueue.x-k8s.io/multikueue"
NAMESPACE = "policyd"


class Manager(World):
    """A cluster that sends its jobs to others."""

    def __init__(self, *rooms, gates=None, **settings):
        super().__init__()
        workers = [World(clock=self.clock) for _ in rooms]
        for world, gpus in zip(workers, rooms, strict=True):
            world.furnish(gpus=gpus)
        self.multi_kueue = replace(gated(gates or {}), lost_seconds=300.0, **settings)
        self.workers = dict(zip(("east", "west"), workers, strict=False))
        self.cut = set()
        self.lies = {}
        """What workers answer in place of the truth, by their name and the verb."""
        self.untold = set()
        """Workers that serve no snapshots, as Kueue."""
        check = {"admissionChecks": [{"name": "away"}]}
        self.furnish(gpus=64, admissionChecksStrategy=check)
        reference = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"}
        spec = {"controllerName": MANAGER, "parameters": reference}
        self.create(r.ADMISSION_CHECKS, {"metadata": {"name": "away"}, "spec": spec})
        names = list(self.workers)
        config = {"metadata": {"name": "all"}, "spec": {"clusters": names}}
        self.create(r.MULTIKUEUE_CONFIGS, config)
        for name in names:
            self.add_secret(name)
            source = {"kubeConfig": {"location": name, "locationType": "Secret"}}
            cluster = {"metadata": {"name": name}, "spec": {"clusterSource": source}}
            self.create(r.MULTIKUEUE_CLUSTERS, cluster)

    def add_secret(self, name, **user):
        data = base64.b64encode(json.dumps(kubeconfig(name, **user)).encode()).decode()
        metadata = {"name": name, "namespace": NAMESPACE}
        self.put(r.SECRETS, {"metadata": metadata, "data": {"kubeconfig": data}})

    def prepare(self, controller):
        controller.multikueue.remotes.connect = self.connect

    @asynccontextmanager
    async def connect(self, loaded):
        name = loaded.config.host.partition("//")[2]
        if name in self.cut:
            raise UnreachableError(f"no route to {name}")
        yield Cable(self.workers[name], name, self)

    def remote(self, kind):
        return {name: worker.all(kind) for name, worker in self.workers.items()}


class Cable:
    """The client of a worker, which can be cut."""

    def __init__(self, world, name, manager):
        self._world, self._client, self._name = world, world.client, name
        self._cut, self._untold, self._lies = manager.cut, manager.untold, manager.lies
        self._snapshots = None

    def __getattr__(self, verb):
        return self._guarded(verb)

    def _guarded(self, verb):
        async def guarded(*args, **kwargs):
            self._check()
            lie = self._lies.get((self._name, verb))
            found = None if lie is None else await lie(*args, **kwargs)
            return await getattr(self._client, verb)(*args, **kwargs) if found is None else found

        return guarded

    async def get(self, resource, *args, **kwargs):
        self._check()
        if resource != SNAPSHOTS:
            return await self._guarded("get")(resource, *args, **kwargs)
        if self._name in self._untold:
            raise NotFoundError("the server could not find the requested resource")
        if self._snapshots is None:
            cache, pace = self._world.controller.cache, self._world.clock.pace()
            self._snapshots = AdmissionSnapshots(cache, pace=pace)
        return gzip.decompress(await self._snapshots.unless(""))

    async def watch(self, *args, **kwargs):
        self._check()
        lie = self._lies.get((self._name, "watch"))
        if lie is not None and await lie(*args, **kwargs) is not None:
            return
        async for event in self._client.watch(*args, **kwargs):
            self._check()
            yield event

    def _check(self):
        if self._name in self._cut:
            raise UnreachableError(f"no route to {self._name}")


def kubeconfig(name, **user):
    cluster = {"server": f"https://{name}", "certificate-authority-data": "LS0t"}
    return {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user or {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


def job(manager, name, **labels):
    manager.job(name, **labels)
    stored = manager.get(r.JOBS, name)
    manager.put(r.JOBS, {**stored, "spec": {**stored["spec"], "managedBy": MANAGER}})


@asynccontextmanager
async def clusters(manager):
    east, west = (running(manager.workers[name]) for name in ("east", "west"))
    async with east, west, running(manager):
        await manager.pass_time(5)
        yield


def where(manager, name):
    """Return the cluster that a job was sent to."""
    return manager.workload_of(name)["status"].get("clusterName")
