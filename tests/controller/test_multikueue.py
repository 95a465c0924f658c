"""Jobs that run on other clusters: a manager and two workers, each with a controller of its own."""

import base64
import json
from contextlib import asynccontextmanager

import pytest

from policyd.kube import resources as r
from policyd.kube.errors import UnreachableError
from policyd.multikueue.settings import ORIGIN, MultiKueueSettings
from tests.controller.world import World, condition, running

pytestmark = pytest.mark.anyio

MANAGER = "kueue.x-k8s.io/multikueue"
NAMESPACE = "policyd"


class Manager(World):
    """A cluster that sends its jobs to others."""

    def __init__(self, *rooms, **settings):
        super().__init__()
        workers = [World(clock=self.clock) for _ in rooms]
        for world, gpus in zip(workers, rooms, strict=True):
            world.furnish(gpus=gpus)
        self.multi_kueue = MultiKueueSettings(lost_seconds=300.0, **settings)
        self.workers = dict(zip(("east", "west"), workers, strict=False))
        self.cut = set()
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
        yield Cable(self.workers[name].client, name, self.cut)

    def remote(self, kind):
        return {name: worker.all(kind) for name, worker in self.workers.items()}


class Cable:
    """The client of a worker, which can be cut."""

    def __init__(self, client, name, cut):
        self._client, self._name, self._cut = client, name, cut

    def __getattr__(self, verb):
        return self._guarded(getattr(self._client, verb))

    def _guarded(self, call):
        async def guarded(*args, **kwargs):
            self._check()
            return await call(*args, **kwargs)

        return guarded

    async def watch(self, *args, **kwargs):
        self._check()
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


def job(manager, name, **spec):
    manager.job(name, **spec)
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


async def test_a_job_runs_on_the_worker_that_has_room_and_its_status_comes_back():
    manager = Manager(0, 8)
    job(manager, "train")
    async with clusters(manager):
        assert where(manager, "train") == "west"
        (sent,) = manager.remote(r.JOBS)["west"]
        assert sent["spec"].get("managedBy") is None
        assert sent["metadata"]["labels"][ORIGIN] == "multikueue"
        assert not manager.workers["west"].suspended("train")
        assert not manager.suspended("train")
        assert manager.remote(r.WORKLOADS)["east"] == []
        manager.workers["west"].end_job("train")
        await manager.pass_time(10)
        assert manager.is_true("train", "Finished")
        assert condition(manager.get(r.JOBS, "train"), "Complete")["status"] == "True"
        assert manager.remote(r.JOBS)["west"] == []
        assert manager.remote(r.WORKLOADS)["west"] == []
