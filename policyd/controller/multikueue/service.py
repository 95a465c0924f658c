"""Jobs on other clusters as a whole: what is watched, and which keys a change queues."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import structlog

from policyd.api.kueue import AdmissionCheck, ClusterQueue, LocalQueue, Workload
from policyd.api.kueue.multikueue import MultiKueueCluster, MultiKueueConfig
from policyd.api.kueue.names import ACTIVE
from policyd.api.meta import condition_true
from policyd.api.names import is_subdomain
from policyd.controller.multikueue.context import ManagerContext
from policyd.controller.multikueue.dispatches import Dispatches
from policyd.controller.multikueue.quotas import Quotas
from policyd.controller.multikueue.remotes import (
    PROFILES,
    Remotes,
    write_condition,
)
from policyd.controller.reconcile import Reconcile
from policyd.controller.watch.keys import ReconcileKey, Subject
from policyd.controller.watch.mirror import Mirror
from policyd.controller.writes import NotLeadingError
from policyd.errors import PolicydError
from policyd.kube.changes import Change, Deleted, Modified
from policyd.kube.client import PartialObject
from policyd.kube.informer import Informer
from policyd.kube.resources import MULTIKUEUE_CLUSTERS, MULTIKUEUE_CONFIGS, SECRETS
from policyd.multikueue.checks import (
    check_condition,
    clusters_changed,
    concerns_workloads,
    find_config,
    sends_away,
    workloads_of,
)

log = structlog.get_logger()

FILE_SECONDS = 5.0
"""Between looks at the files of kubeconfigs."""
BATCH_SECONDS = 1.0
"""Between looks at what workers report, as in Kueue."""
COLLECT_SECONDS = 60.0
"""How long orphans are collected on one worker, until it is another one's turn."""


class MultiKueueService:
    """All parts that send jobs to other clusters."""

    def __init__(self, context: ManagerContext) -> None:
        cache, writes, settings = context.cache, context.writes, context.settings
        self._cache, self._writes, self._settings = cache, writes, settings
        self._client, self._pace = writes.client, writes.pace
        client, pace = self._client, self._pace
        self.clusters = Mirror(client, MULTIKUEUE_CLUSTERS, into=MultiKueueCluster, pace=pace)
        self.configs = Mirror(client, MULTIKUEUE_CONFIGS, into=MultiKueueConfig, pace=pace)
        self.profiles = Mirror(
            client, PROFILES, into=PartialObject, pace=pace, namespace=context.namespace
        )
        self.remotes = Remotes(
            self.clusters,
            context,
            changed=self._changed_there,
            requoted=self._requoted,
            lost=self._lost,
        )
        self.dispatches = Dispatches(context, self.remotes, self._clusters_of)
        self.quotas = Quotas(context, self.remotes, self._config_of)
        self._secrets: dict[str, asyncio.Task[NoReturn]] = {}
        """What watches the Secrets that clusters name, by their names."""
        self._reported: set[ReconcileKey] = set()
        self._wake = asyncio.Event()
        self.clusters.listen(self.cluster_changed)
        self.configs.listen(self.config_changed)
        self.profiles.listen(self.profile_changed)
        cache.mirrors.checks.listen(self.check_changed)
        cache.mirrors.workloads.listen(self.dispatches.changed)
        cache.mirrors.pods.listen(self.dispatches.pod_changed)
        if settings.automates:
            cache.mirrors.cluster_queues.listen(self.queue_changed)
            cache.mirrors.local_queues.listen(self.local_queue_changed)

    def reconcilers(self) -> dict[str, Reconcile]:
        """Return the reconcilers of workloads, checks, clusters and quotas."""
        return {
            "MultiKueue": self._reconcile_workload,
            "MultiKueueCheck": self._reconcile_check,
            "MultiKueueCluster": self._reconcile_cluster,
            "MultiKueueQuota": self._reconcile_quota,
        }

    def all_keys(self) -> Iterator[ReconcileKey]:
        """Yield the keys of all objects, as after a start."""
        yield from (_key("MultiKueueCluster", c.metadata.name) for c in self.clusters)
        yield from (
            _key("MultiKueueCheck", check.metadata.name)
            for check in self._cache.mirrors.checks
            if sends_away(check)
        )
        for workload in self._cache.mirrors.workloads:
            if self._cache.check_away(workload) is not None:
                yield self.dispatches.key_of(workload)
        if self._settings.automates:
            queues = self._cache.mirrors.cluster_queues
            yield from (_key("MultiKueueQuota", queue.metadata.name) for queue in queues)

    async def run(self) -> None:
        """Watch the objects here, connect to the clusters, and collect orphans there."""
        mirrors: tuple[Mirror[Any], ...] = (self.clusters, self.configs)
        try:
            async with asyncio.TaskGroup() as group:
                self.remotes.tasks = group
                for mirror in mirrors:
                    group.create_task(mirror.watch_when_served(self._client, self._pace))
                if self._settings.profiles:
                    group.create_task(self.profiles.watch_when_served(self._client, self._pace))
                for mirror in mirrors:
                    await mirror.informer.synced.wait()
                for key in self.all_keys():
                    self._queue(key)
                group.create_task(self._read_files())
                group.create_task(self._follow_workers())
                if self._settings.collect_seconds > 0:
                    group.create_task(self._collect())
        finally:
            await self.remotes.close()

    async def _read_files(self) -> NoReturn:
        """Read kubeconfigs of files again that changed, which nothing reports."""
        known: dict[str, tuple[int, ...]] = {}
        while True:
            await self._pace.sleep(FILE_SECONDS)
            before, known = known, {}
            for cluster in self.clusters:
                reference = cluster.spec.cluster_source.kube_config
                if reference is not None and reference.location_type == "Path":
                    name = cluster.metadata.name
                    known[name] = _stamp(reference.location)
                    if before.get(name) != known[name]:
                        self._queue(_key("MultiKueueCluster", name))

    async def _collect(self) -> NoReturn:
        while True:
            await self._pace.sleep(self._settings.collect_seconds)
            for remote in tuple(self.remotes.by_name.values()):
                try:
                    await self._pace.within(COLLECT_SECONDS, self.dispatches.collect(remote))
                except NotLeadingError:
                    break
                except (PolicydError, TimeoutError) as error:
                    log.warning("orphans_not_read", cluster=remote.name, error=str(error))

    # Reconcilers.

    async def _reconcile_workload(self, key: ReconcileKey) -> float | None:
        return await self.dispatches.reconcile(key) if self.synced else None

    async def _reconcile_cluster(self, key: ReconcileKey) -> float | None:
        if not self.synced:
            return None
        before = self.remotes.connected(key.name)
        wait = await self.remotes.reconcile(key.name)
        if self.remotes.connected(key.name) is not before:
            self._cluster_moved(key.name)
        return wait

    async def _reconcile_check(self, key: ReconcileKey) -> None:
        mirror = self._cache.mirrors.checks
        check = mirror.get(key.name)
        if check is None or not sends_away(check) or not self.synced:
            return
        condition = check_condition(
            check,
            {each.metadata.name: each for each in self.configs},
            {each.metadata.name: each for each in self.clusters},
            now=self._writes.now,
        )
        if condition is not None:
            await write_condition(mirror, check, condition, self._writes)

    async def _reconcile_quota(self, key: ReconcileKey) -> float | None:
        return await self.quotas.reconcile(key.name) if self.synced else None

    # Changes.

    def _config_of(self, check_name: str) -> MultiKueueConfig | None:
        check = self._cache.mirrors.checks.get(check_name)
        if check is None:
            return None
        found = find_config(check, {each.metadata.name: each for each in self.configs})
        return None if isinstance(found, str) else found

    def _clusters_of(self, check_name: str) -> tuple[str, ...] | None:
        config = self._config_of(check_name)
        return None if config is None else config.spec.clusters

    def _changed_there(self, namespace: str, name: str) -> None:
        """Note a change that a worker reports; workloads that are not here are nothing of ours."""
        key = ReconcileKey("MultiKueue", namespace, name)
        if self._cache.mirrors.workloads.get(key.path) is not None:
            self._reported.add(key)
            self._wake.set()

    def _requoted(self, name: str) -> None:
        """Note that a worker may have another quota."""
        for config in self.configs_with(name):
            for check in self.checks_with(config.metadata.name):
                for queue in self._queues_with(check.metadata.name):
                    self._reported.add(_key("MultiKueueQuota", queue.metadata.name))
        if self._reported:
            self._wake.set()

    async def _follow_workers(self) -> NoReturn:
        """Look at workloads that workers report, each once in a while: workers may report much."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            reported, self._reported = self._reported, set()
            for key in sorted(reported):
                self._queue(key)
            await self._pace.sleep(BATCH_SECONDS)

    def _lost(self, name: str) -> None:
        self._queue(_key("MultiKueueCluster", name))
        self._cluster_moved(name)

    def _cluster_moved(self, name: str) -> None:
        """Queue what depends on whether a cluster is connected."""
        for config in self.configs_with(name):
            for check in self.checks_with(config.metadata.name):
                self._queue_workloads(check.metadata.name)
                self._queue_quotas(check.metadata.name)

    def configs_with(self, cluster: str) -> list[MultiKueueConfig]:
        """Return the configs that name a cluster."""
        return [each for each in self.configs if cluster in each.spec.clusters]

    def checks_with(self, config: str) -> list[AdmissionCheck]:
        """Return the checks whose parameters are a config."""
        return [
            check
            for check in self._cache.mirrors.checks
            if sends_away(check) and check.spec.parameters and check.spec.parameters.name == config
        ]

    def clusters_with_secret(self, key: str) -> list[MultiKueueCluster]:
        """Return the clusters whose kubeconfig is in a Secret, by its namespace and name."""
        namespace, _, name = key.partition("/")
        if namespace != self.remotes.namespace:
            return []
        references = ((c, c.spec.cluster_source.kube_config) for c in self.clusters)
        return [
            c for c, r in references if r and r.location_type == "Secret" and r.location == name
        ]

    def clusters_with_profile(self, key: str) -> list[MultiKueueCluster]:
        """Return the clusters that a ClusterProfile describes, by its namespace and name."""
        namespace, _, name = key.partition("/")
        if namespace != self.remotes.namespace:
            return []
        references = ((c, c.spec.cluster_source.cluster_profile_ref) for c in self.clusters)
        return [c for c, reference in references if reference and reference.name == name]

    def cluster_changed(self, change: Change[MultiKueueCluster]) -> None:
        """Take in a change of a cluster: one of its status alone has nothing connected anew."""
        name = change.object.metadata.name
        same = isinstance(change, Modified) and _same_source(change)
        if not same:
            self._follow_secrets()
            self._queue(_key("MultiKueueCluster", name))
        if isinstance(change, Modified) and _active(change.old) is _active(change.object):
            return
        for config in self.configs_with(name):
            for check in self.checks_with(config.metadata.name):
                self._queue(_key("MultiKueueCheck", check.metadata.name))
                self._queue_quotas(check.metadata.name)

    def config_changed(self, change: Change[MultiKueueConfig]) -> None:
        """Take in a change of a config."""
        if isinstance(change, Modified) and change.old.spec == change.object.spec:
            return
        moved = not isinstance(change, Modified) or clusters_changed(change.old, change.object)
        for check in self.checks_with(change.object.metadata.name):
            self._queue(_key("MultiKueueCheck", check.metadata.name))
            self._queue_quotas(check.metadata.name)
            if moved:
                self._queue_workloads(check.metadata.name)

    def check_changed(self, change: Change[AdmissionCheck]) -> None:
        """Take in a change of a check."""
        old = change.old if isinstance(change, Modified) else None
        if isinstance(change, Deleted):
            old, new = change.object, None
        else:
            new = change.object
        name = change.object.metadata.name
        if new is not None and sends_away(new):
            self._queue(_key("MultiKueueCheck", name))
        if concerns_workloads(old, new):
            self._queue_workloads(name)
            self._queue_quotas(name)

    def _follow_secrets(self) -> None:
        """Watch each Secret that a cluster names, by itself: the account may read no others."""
        tasks = self.remotes.tasks
        if tasks is None:
            return
        references = (each.spec.cluster_source.kube_config for each in self.clusters)
        named = {r.location for r in references if r and r.location_type == "Secret"}
        for name in self._secrets.keys() - named:
            self._secrets.pop(name).cancel()
        for name in sorted(named - self._secrets.keys()):
            if is_subdomain(name):  # no Secret has another name, and it is part of a selector
                self._secrets[name] = tasks.create_task(self._secret(name).run())

    def _secret(self, name: str) -> Informer[PartialObject]:
        return Informer(
            self._client,
            SECRETS,
            into=PartialObject,
            on_change=self.secret_changed,
            pace=self._pace,
            namespace=self.remotes.namespace,
            field_selector=f"metadata.name={name}",
        )

    def secret_changed(self, change: Change[PartialObject]) -> None:
        """Connect anew to the clusters whose kubeconfig changed."""
        for cluster in self.clusters_with_secret(change.object.metadata.key):
            self._queue(_key("MultiKueueCluster", cluster.metadata.name))

    def profile_changed(self, change: Change[PartialObject]) -> None:
        """Connect anew to the clusters that a ClusterProfile describes."""
        for cluster in self.clusters_with_profile(change.object.metadata.key):
            self._queue(_key("MultiKueueCluster", cluster.metadata.name))

    def queue_changed(self, change: Change[ClusterQueue]) -> None:
        """Take in a change of a queue: of its quota, or of its checks."""
        queue = change.object
        if isinstance(change, Modified):
            old, new = change.old.spec, queue.spec
            if (old.admission_checks_strategy, old.resource_groups) == (
                new.admission_checks_strategy,
                new.resource_groups,
            ):
                return
        self._queue(_key("MultiKueueQuota", queue.metadata.name))

    def local_queue_changed(self, change: Change[LocalQueue]) -> None:
        """Take in a new or a deleted LocalQueue; the ClusterQueue of one does not change."""
        if not isinstance(change, Modified):
            self._queue(_key("MultiKueueQuota", change.object.spec.cluster_queue))

    def _queue_workloads(self, check: str) -> None:
        workloads: list[Workload] = list(self._cache.mirrors.workloads)
        for workload in workloads_of(check, workloads):
            self._queue(self.dispatches.key_of(workload))

    def _queue_quotas(self, check: str) -> None:
        for queue in self._queues_with(check) if self._settings.automates else ():
            self._queue(_key("MultiKueueQuota", queue.metadata.name))

    def _queues_with(self, check: str) -> Iterator[ClusterQueue]:
        for queue in self._cache.mirrors.cluster_queues:
            strategy = queue.spec.admission_checks_strategy
            if strategy and any(rule.name == check for rule in strategy.admission_checks):
                yield queue

    @property
    def synced(self) -> bool:
        """Whether the objects here are known: until then no status is written."""
        mirrors: tuple[Mirror[Any], ...] = (self.clusters, self.configs)
        return all(mirror.informer.synced.is_set() for mirror in mirrors)

    def _queue(self, key: ReconcileKey) -> None:
        if self.synced:
            self._cache.hooks.reconcile(key)


def _stamp(path: str) -> tuple[int, ...]:
    """Return what changes when a file does; empty if there is none."""
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _key(subject: Subject, name: str) -> ReconcileKey:
    return ReconcileKey(subject, "", name)


def _active(cluster: MultiKueueCluster) -> bool:
    return condition_true(cluster.status.conditions, ACTIVE)


def _same_source(change: Modified[MultiKueueCluster]) -> bool:
    old, new = change.old, change.object
    same_life = old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
    return old.spec == new.spec and same_life
