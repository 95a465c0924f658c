"""Ungates pods that were added to running elastic jobs, within their quota."""

from dataclasses import replace

import structlog

from policyd.alloc.settings import Gates
from policyd.api.kueue import Workload
from policyd.api.kueue.names import ELASTIC_JOB, MANAGED, POD_SET
from policyd.controller.jobs.bases import SIZE_SECONDS
from policyd.controller.patches import draft_of, versioned
from policyd.controller.watch.cache import Cache
from policyd.controller.writes import Writes
from policyd.jobs.base import J, JobKind
from policyd.jobs.injection import FlavorMissingError, PodInjection, StartError, inject, injections
from policyd.jobs.pods import QueuedPod, without_gates
from policyd.jobs.slices import latest_active, to_let_go
from policyd.kube.errors import ConflictError, NotFoundError
from policyd.kube.pages import pages
from policyd.kube.resources import PODS
from policyd.workload.transitions import is_admitted

log = structlog.get_logger()

AGAIN_SECONDS = 0.2
"""Until a pod is tried again that another client changed."""
MISSING_SECONDS = 1.0
"""Until the existence of a flavor is checked again."""


class ElasticPods:
    """Lets the pods of elastic jobs go.

    They are looked up whenever their job changes, and not watched: few jobs are elastic, and a job
    says when it has more pods.
    """

    def __init__(self, cache: Cache, writes: Writes) -> None:
        self._cache = cache
        self._writes = writes

    async def let_go(self, job: J, kind: JobKind[J]) -> float | None:
        """Let as many of a job's pods go as its newest slice with quota has.

        Args:
            job: The job.
            kind: Its kind, whose jobs may be elastic.

        Returns:
            The seconds until the job should be looked at again; None if it tells by itself how many
            pods it has.

        Raises:
            ApiError: If a pod could not be read or written.
        """
        assert kind.elastic is not None, "this job may grow"
        wait = None if kind.elastic.sized_by(job) is None else SIZE_SECONDS
        granted = latest_active(self._cache.workloads_of(job.metadata.uid))
        selector = kind.elastic.selector(job)
        if granted is None or not is_admitted(granted) or not selector:
            return wait
        listed = pages(
            self._writes.client,
            PODS,
            into=QueuedPod,
            namespace=job.metadata.namespace,
            label_selector=selector,
        )
        pods = [pod async for page in listed for pod in page.items]
        try:
            injected = self._given(granted)
        except FlavorMissingError as error:
            log.warning("job_start_delayed", job=job.metadata.key, error=str(error))
            return MISSING_SECONDS
        leaving = to_let_go(pods, granted, injected)
        waits = [await self._release(pod, given, granted) for pod, given in leaving]
        return min((each for each in (wait, *waits) if each is not None), default=None)

    def _given(self, workload: Workload) -> dict[str, PodInjection]:
        gates: Gates = self._cache.state.settings.gates
        flavors = {each.metadata.name: each for each in self._cache.mirrors.flavors}
        names = (each.name for each in workload.spec.pod_sets)
        return dict(zip(names, injections(workload, flavors, gates), strict=True))

    async def _release(
        self, pod: QueuedPod, given: PodInjection, granted: Workload
    ) -> float | None:
        """Let a pod go; return the seconds until it should be tried again."""
        pod_set = pod.metadata.labels.get(POD_SET, "")
        hold = self._cache.hold_for_claims(pod, pod_set, granted)
        if hold is not None:
            self._writes.record_held(pod.metadata, hold.why)
            return hold.seconds
        draft = draft_of(pod)
        try:
            # Gates cannot be added to a pod: one that waits for its place has that gate, or had it.
            inject(draft, (), replace(given, gates=[]))
        except StartError as error:
            log.warning("pod_placement_conflict", pod=pod.metadata.key, error=str(error))
            return None
        without_gates(draft, frozenset({ELASTIC_JOB}))
        try:
            await self._writes.patch(
                self._cache.mirrors.pods, pod, versioned(draft, pod.metadata), kind="json"
            )
            self._cache.hooks.ungated(ELASTIC_JOB, pod, granted)
        except (ConflictError, NotFoundError):
            # Its topology may have let it go in between: its job need not change by that.
            log.debug("pod_changed", pod=pod.metadata.key)
            return AGAIN_SECONDS
        else:
            return None
        finally:
            if (
                MANAGED not in pod.metadata.labels
            ):  # it is not watched, so it would never be removed
                self._cache.mirrors.pods.forget(pod.metadata.key)
