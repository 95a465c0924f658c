"""The controller, put together: mirrors, cycles, reconcilers, statuses and the election.

A follower keeps its mirrors and its state up to date and writes nothing. Once elected, it
reconciles all objects, as after a start, and so finishes the unfinished work of another controller.
"""

import asyncio
from collections.abc import Coroutine
from functools import cached_property, partial
from math import inf
from typing import TYPE_CHECKING, Any, NoReturn

import structlog

from policyd.api.kueue import AdmissionCheck
from policyd.controller.jobs.job_reconciler import job_reconcilers
from policyd.controller.jobs.job_steps import WorkloadSteps
from policyd.controller.jobs.parent_reconciler import parent_reconcilers
from policyd.controller.jobs.pod_reconciler import PodReconciler
from policyd.controller.metrics.counters import ControllerMetrics, metrics_of
from policyd.controller.metrics.health import ControllerHealth
from policyd.controller.metrics.queue_metrics import measure
from policyd.controller.metrics.workload_metrics import WorkloadMetrics
from policyd.controller.queues.bases import Bases
from policyd.controller.queues.hours import Hours
from policyd.controller.queues.in_use import InUse
from policyd.controller.queues.provisioning import Provisioning
from policyd.controller.queues.queue_statuses import QueueStatuses
from policyd.controller.reasons.job_reasons import JobReasons
from policyd.controller.reasons.refreshing import Reasons
from policyd.controller.reconcile import Dispatcher, Reconcile
from policyd.controller.settings import ControllerSettings
from policyd.controller.topology.second_pass import SECOND_PASS_FAILED
from policyd.controller.topology.topologies import Topologies
from policyd.controller.usage import Usage
from policyd.controller.variants import Variants
from policyd.controller.watch.cache import Cache, Hooks
from policyd.controller.watch.keys import ReconcileKey
from policyd.controller.watch.mirror import Mirror
from policyd.controller.watch.mirrors import CUSTOM_RESOURCES, open_mirrors
from policyd.controller.watch.queue_changes import QueueChanges
from policyd.controller.workload_reconciler import WorkloadReconciler
from policyd.controller.writes import Handover, Writes
from policyd.kube.changes import Change
from policyd.kube.client import Client, PartialObject
from policyd.kube.discovery import is_served, wait_until_some
from policyd.kube.events import EventRecorder
from policyd.kube.kueue_lease import KueueLease
from policyd.kube.leader import LeaderElection
from policyd.kube.pace import Pace
from policyd.kube.resources import MULTIKUEUE_CLUSTERS, POLICIES, POLICY_BINDINGS
from policyd.kube.steps import Steps
from policyd.kube.unforeseen import log_unforeseen
from policyd.kube.workqueue import WorkQueue
from policyd.multikueue.checks import sends_away
from policyd.process import loading_thread

if TYPE_CHECKING:
    from policyd.controller.multikueue.service import MultiKueueService
    from policyd.controller.policies.policy_statuses import PolicyStatuses
    from policyd.controller.queues.forecasts import Forecasts

log = structlog.get_logger()

COMPONENT = "policyd-controller"
MULTIKUEUE = ("MultiKueue", "MultiKueueCheck", "MultiKueueCluster", "MultiKueueQuota")
"""What is reconciled where jobs go to other clusters."""
CRD_SECONDS = 1.0
"""Between looks for custom resources that are not served yet."""
LATER_SECONDS = 1.0
"""How long after the mirrors are read the work begins that no job waits for: forecasts, and the
statuses of policies. A start does not import what they need."""
STRANDED_SECONDS = 60.0
"""Between two counts of stranded devices."""
SPARE_SECONDS = 1.0
"""How long before another process may lead all writes of this one are broken off."""


class Controller:
    """All parts of the controller. `run` runs them; tests drive them one by one."""

    def __init__(
        self,
        client: Client,
        settings: ControllerSettings | None = None,
        *,
        pace: Pace | None = None,
        health: ControllerHealth | None = None,
    ) -> None:
        self.settings = settings or ControllerSettings()
        self.health = health or ControllerHealth(metrics_of(self.settings.metrics))
        self.pace = pace or Pace()
        self._client = client
        self.recorder = EventRecorder(
            client, component=COMPONENT, pace=self.pace, apart={SECOND_PASS_FAILED}
        )
        annotated = self.settings.queueing.gates.workload_identifier_annotations
        self.mirrors = open_mirrors(
            client, self.pace, self.settings.integrations, annotated=annotated
        )
        self.cache = self._cache()
        QueueChanges(self.cache)
        self.queue: WorkQueue[ReconcileKey] = WorkQueue(pace=self.pace)
        self.writes = Writes(client, self.recorder, leading=self.leading, pace=self.pace)
        self.handover = Handover(client, self.writes, self.mirrors.workloads, pace=self.pace)
        self.election = self._election()
        self.kueue = self._kueue()
        metrics = self.health.metrics
        self.workloads = WorkloadReconciler(
            self.cache, self.writes, add=self._add, metrics=metrics, limits=self.settings.limits
        )
        self.mirrors.workloads.listen(self.workloads.changed)
        self.statuses = QueueStatuses(self.cache, self.writes, metrics=metrics, pace=self.pace)
        metrics.role = "standalone" if self.election is None else "follower"
        counts = self._counts(metrics)
        self.in_use = InUse(self.cache, self.writes)
        self.topologies = Topologies(self.cache, self.writes, pace=self.pace)
        self.provisioning = Provisioning(self.cache, self.writes)
        self.usage = Usage(self.cache, self.writes, metrics=metrics, settings=self.settings)
        self.job_reasons = JobReasons(self.cache, self.writes)
        self.reasons = Reasons(
            self.cache,
            self.workloads.writes.reasons,
            self.job_reasons,
            pace=self.pace,
            hand_out=partial(self.queue.add, rank=inf),  # after all that was decided
        )
        self.reasons.metrics = metrics
        self.hours = Hours(
            self.cache, self.writes, place=self.settings.hours_record, leading=self.leading
        )
        self.dispatcher = Dispatcher(self.queue, self._reconcilers(), metrics=metrics)
        self.cache.hooks = Hooks(
            reconcile=self._add,
            schedule=self._state_changed,
            compare=self.reasons.wake,
            report=self.statuses.note,
            workload_created=counts.workload_created,
            ungated=counts.ungated,
            preempted=self.job_reasons.preempted,
        )

    def _cache(self) -> Cache:
        """Return the cache, with the settings that it tells others."""
        cache = Cache(
            self.mirrors,
            pace=self.pace,
            settings=self.settings.queueing,
            resources=self.settings.resources,
            integrations=self.settings.integrations,
        )
        cache.other_teams = self.settings.other_teams
        cache.configuration = self.settings.configuration
        return cache

    def _counts(self, metrics: ControllerMetrics) -> WorkloadMetrics:
        """Register the metrics of queues and workloads.

        Changes that the last leader wrote are not counted again by a follower that learns of them.
        """

        def counting() -> bool:
            return self.leading() and metrics.role != "follower"

        return measure(self.cache, metrics, self.settings.metrics, leading=counting)

    @cached_property
    def bases(self) -> Bases:
        """What jobs are made from, for verdicts on new ones."""
        return Bases(self.cache, self.writes)

    @cached_property
    def forecasts(self) -> "Forecasts":
        """What forecasts starts. It is made at its first use, with the modules that it needs."""
        from policyd.controller.queues.forecasts import Forecasts  # noqa: PLC0415 - see above

        return Forecasts(
            self.cache,
            self.writes,
            metrics=self.health.metrics,
            settings=self.settings.forecasts,
            leading=self.leading,
        )

    @cached_property
    def away(self) -> Dispatcher:
        """What reconciles jobs of other clusters: a slow one must not hold up the work here."""
        reconcilers = dict.fromkeys(MULTIKUEUE, self._reconcile_away)
        return Dispatcher(WorkQueue(pace=self.pace), reconcilers, metrics=self.health.metrics)

    @cached_property
    def sends_away(self) -> asyncio.Event:
        """Set once there is a check that sends jobs to other clusters, or such a cluster."""
        return asyncio.Event()

    @cached_property
    def multikueue(self) -> "MultiKueueService":
        """What sends jobs to other clusters. It is made once there are any, with its modules."""
        from policyd.controller.multikueue.context import ManagerContext  # noqa: PLC0415
        from policyd.controller.multikueue.service import MultiKueueService  # noqa: PLC0415

        return MultiKueueService(
            ManagerContext(
                cache=self.cache,
                writes=self.writes,
                settings=self.settings.multi_kueue,
                metrics=self.health.metrics,
                namespace=self.settings.namespace,
            )
        )

    def leading(self) -> bool:
        """Tell whether this process may write."""
        elected = self.election is None or self.election.leading
        return elected and (self.kueue is None or self.kueue.clear)

    def sweep(self) -> None:
        """Queue the keys of all objects, as after a start."""
        parts = (self.cache, self.in_use, self.topologies, self.provisioning, self.usage)
        self.queue.sweep([key for part in parts for key in part.all_keys()])
        self.away.queue.sweep(self.multikueue.all_keys() if self.sends_away.is_set() else ())
        for queue in self.mirrors.cluster_queues:
            self.statuses.note(queue.metadata.name)
        for local_queue in self.mirrors.local_queues:
            self.statuses.note(local_queue.metadata.key)
        self.workloads.cycles.wake()

    async def run(self) -> None:
        """Run until cancelled; if a part ends, so does the rest, with its error."""
        await self._wait_for_resources()
        absent = await self._absent_jobs()
        watched = (*self.mirrors.all(), *self.mirrors.watched_children, *self._of_devices)
        present = [mirror for mirror in watched if mirror not in absent]
        async with asyncio.TaskGroup() as group:
            for mirror in present:
                group.create_task(mirror.informer.run())
            for mirror in absent:
                group.create_task(mirror.watch_when_served(self._client, self.pace))
            for mirror in present:
                await mirror.informer.synced.wait()
            group.create_task(self.topologies.run())
            group.create_task(self._watch_provisioning())
            group.create_task(self._follow_devices())
            group.create_task(self._send_away())
            if self.settings.reports_outside_quota:
                group.create_task(self.usage.pods.informer.run())
            await self.topologies.settle()
            self.health.synced.set()
            log.info("mirrors_synced", workloads=len(self.mirrors.workloads))
            group.create_task(self.recorder.run())
            self._stand_for_election(group)
            group.create_task(self.bases.run())
            if self.settings.forecasts.enabled:
                group.create_task(self._forecast())
            if self.settings.policies:
                group.create_task(self._write_policy_statuses())
            group.create_task(self._lead_when_elected())

    def _stand_for_election(self, group: asyncio.TaskGroup) -> None:
        """Begin what decides whether this process leads."""
        if self.election is not None:
            group.create_task(self.election.run())
            group.create_task(self.hours.follow())
        if self.kueue is not None:
            group.create_task(self.kueue.run(self.election))

    def _election(self) -> LeaderElection | None:
        settings = self.settings
        if not settings.identity:
            return None
        return LeaderElection(
            self._client,
            settings.lease,
            namespace=settings.namespace,
            identity=settings.identity,
            leave=self.handover.latest_version,
            pace=self.pace,
        )

    def _kueue(self) -> KueueLease | None:
        namespace = self.settings.kueue_namespace
        if not namespace:
            return None
        return KueueLease(
            self._client, namespace=namespace, settle=self.writes.settled, pace=self.pace
        )

    def _reconcilers(self) -> dict[str, Reconcile]:
        self.mirrors.checks.listen(self._check_changed)
        limits, keys = self.settings.limits, self.settings.copied
        steps = WorkloadSteps(self.cache, self.writes, limits=limits, keys=keys)
        pods = PodReconciler(self.cache, self.writes, steps)
        jobs = job_reconcilers(self.cache, self.writes, steps)
        parents = parent_reconcilers(self.cache, self.writes, steps)
        return {
            "Workload": self.workloads.reconcile,
            "Ownerless": self.workloads.writes.release_ownerless,
            "Pod": pods.reconcile,
            "PodGroup": pods.reconcile,
            **self.in_use.reconcilers(),
            **self.topologies.reconcilers(),
            **self.provisioning.reconcilers(),
            **self.usage.reconcilers(),
            **Variants(self.cache, self.writes, limits=limits).reconcilers(),
            **steps.gangs.reconcilers(),
            **{kind: reconciler.reconcile for kind, reconciler in (jobs | parents).items()},
        }

    def _state_changed(self) -> None:
        self.workloads.cycles.wake()
        self.reasons.wake()

    def _add(self, key: ReconcileKey, rank: float | None = None) -> None:
        if self.health.synced.is_set() and self.leading():
            queue = self.away.queue if key.subject in MULTIKUEUE else self.queue
            queue.add(key, rank=rank)

    async def _wait_for_resources(self) -> None:
        while True:
            missing = [r for r in CUSTOM_RESOURCES if not await is_served(self._client, r)]
            self._note_missing(tuple(f"{r.plural}.{r.group}" for r in missing))
            if not missing:
                return
            await self.pace.sleep(CRD_SECONDS)

    async def _follow_devices(self) -> None:
        if self.cache.devices is not None:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.cache.devices.follow(self.cache, self.pace))
                group.create_task(self.cache.devices.take_turns(self.cache, self.pace))

    @property
    def _of_devices(self) -> tuple[Mirror[Any], ...]:
        """What is watched where devices of claims are counted."""
        return () if self.cache.devices is None else self.mirrors.devices.all()

    async def _absent_jobs(self) -> list[Mirror[Any]]:
        jobs: tuple[Mirror[Any], ...] = (
            *self.mirrors.watched_jobs,
            *self.mirrors.watched_children,
            *self._of_devices,
        )
        return [mirror for mirror in jobs if not await is_served(self._client, mirror.resource)]

    async def _watch_provisioning(self) -> None:
        """Watch requests to an autoscaler, once one is used."""
        await self.provisioning.wanted.wait()
        async with asyncio.TaskGroup() as group:
            for mirror in self.mirrors.of_provisioning:
                group.create_task(mirror.watch_when_served(self._client, self.pace))
            for mirror in self.mirrors.of_provisioning:
                await mirror.informer.synced.wait()
            for key in self.provisioning.all_keys():
                self._add(key)

    def _check_changed(self, change: Change[AdmissionCheck]) -> None:
        if sends_away(change.object) and self.settings.multi_kueue.enabled:
            self.sends_away.set()

    async def _send_away(self) -> None:
        """Send jobs to other clusters, once a check does that or there is such a cluster."""
        if not self.settings.multi_kueue.enabled:
            return
        clusters = Mirror(self._client, MULTIKUEUE_CLUSTERS, into=PartialObject, pace=self.pace)
        clusters.listen(lambda _change: self.sends_away.set())
        watch = clusters.watch_when_served(self._client, self.pace)
        await first_of(self.sends_away.wait(), watch)
        await self.multikueue.run()

    async def _reconcile_away(self, key: ReconcileKey) -> float | None:
        return await self.multikueue.reconcilers()[key.subject](key)

    async def _forecast(self) -> NoReturn:
        """Forecast starts, once the queue has begun its work."""
        await self.pace.sleep(LATER_SECONDS)
        await self.forecasts.run()

    async def _count_stranded(self) -> NoReturn:
        """Count stranded devices, once a flavor has a topology and the queue has begun its work."""
        await self.topologies.wanted.wait()
        await self.pace.sleep(LATER_SECONDS)
        from policyd.simulate.stranding import stranded_of_flavors  # noqa: PLC0415 - see above

        while True:
            with log_unforeseen("stranded_devices_error"):
                steps = Steps(self.pace, rests=1.0)
                found = await steps.run(stranded_of_flavors(self.cache.state))
                self.health.metrics.stranded(found)
            await self.pace.sleep(STRANDED_SECONDS)

    async def _write_policy_statuses(self) -> None:
        """Write the statuses of policies, once there are any: the engine is imported for them."""
        await self.pace.sleep(LATER_SECONDS)
        await wait_until_some(self._client, (POLICIES, POLICY_BINDINGS), self.pace)
        executor = loading_thread()
        try:
            loop = asyncio.get_running_loop()
            make = await loop.run_in_executor(executor, _policy_statuses)
            statuses = make(self._client, leading=self.leading, executor=executor, pace=self.pace)
            async with asyncio.TaskGroup() as group:
                group.create_task(statuses.policies.run())
                group.create_task(statuses.bindings.run())
                group.create_task(statuses.run())
        finally:
            executor.shutdown(wait=False, cancel_futures=True)

    def _note_missing(self, missing: tuple[str, ...]) -> None:
        if missing and missing != self.health.missing:
            log.warning(
                "custom_resources_missing",
                missing=missing,
                hint="install them with `policyd crds | kubectl apply -f -`",
            )
        self.health.missing = missing

    async def _lead_when_elected(self) -> NoReturn:
        while True:
            if self.election is not None:
                await self.election.wait_elected()
            if not await self._ready_to_lead():
                continue
            await self.hours.prepare()
            self.health.metrics.lead(leading=True)
            log.info("leading")
            self.sweep()
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self.workloads.run())]
                tasks.append(group.create_task(self.statuses.run()))
                tasks.append(group.create_task(self.statuses.sample()))
                tasks.append(group.create_task(self.reasons.run()))
                tasks.append(group.create_task(self.hours.run()))
                tasks.append(group.create_task(self._count_stranded()))
                tasks += [
                    group.create_task(dispatcher.work())
                    for dispatcher in (self.dispatcher, self.away)
                    for _ in range(self.settings.workers)
                ]
                await self._until_lost()
                for task in tasks:
                    task.cancel()
            self.health.metrics.lead(leading=False)
            self.workloads.drop()
            self.job_reasons.drop()
            self.usage.drop()
            self.hours.drop()
            if self.election is not None:
                await self.writes.settled(within=self.election.spare_seconds - SPARE_SECONDS)

    async def _ready_to_lead(self) -> bool:
        """Wait for Kueue and the writes of the last leader; tell whether this process may lead."""
        handed_over = self.election.handed_over if self.election is not None else ""
        if self.kueue is not None:
            lost = [self.election.wait_lost()] if self.election is not None else []
            if not await first_of(self.kueue.wait_clear(), *lost):
                return False
            if self.kueue.stood_by:
                handed_over = ""  # Kueue wrote last
        if self.election is None and not (self.kueue is not None and self.kueue.stood_by):
            return True
        return await first_of(self.handover.catch_up(handed_over), *self._losses())

    def _losses(self) -> list[Coroutine[Any, Any, None]]:
        """Return what ends the leading of this process."""
        lost = [self.election.wait_lost()] if self.election is not None else []
        return lost + ([self.kueue.wait_blocked()] if self.kueue is not None else [])

    async def _until_lost(self) -> None:
        await first_of(asyncio.Event().wait(), *self._losses())


async def first_of(work: Coroutine[Any, Any, object], *losses: Coroutine[Any, Any, object]) -> bool:
    """Await work until one of the losses happens, and cancel the rest; tell whether it is done."""
    tasks = [asyncio.ensure_future(each) for each in (work, *losses)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if any(each.done() for each in tasks[1:]):
            return False
        tasks[0].result()
        return True
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _policy_statuses() -> "type[PolicyStatuses]":
    """Import what writes the statuses of policies: the engine takes up to a second."""
    from policyd.controller.policies.policy_statuses import PolicyStatuses  # noqa: PLC0415

    return PolicyStatuses


async def run_controller(
    client: Client,
    settings: ControllerSettings | None = None,
    *,
    pace: Pace | None = None,
    health: ControllerHealth | None = None,
) -> None:
    """Run the controller until cancelled.

    Args:
        client: The API server.
        settings: Its settings.
        pace: Time.
        health: Filled while it runs.
    """
    await Controller(client, settings, pace=pace, health=health).run()
