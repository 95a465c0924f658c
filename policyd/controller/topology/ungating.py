"""Lets pods go to the domains that their workloads were assigned."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import structlog

from policyd.alloc.settings import DEFAULTS, Gates
from policyd.api.kueue import Workload
from policyd.api.kueue.names import POD_SET, TOPOLOGY_GATE
from policyd.controller.patches import draft_of, versioned
from policyd.controller.watch.keys import ReconcileKey
from policyd.controller.watch.mirror import Mirror
from policyd.controller.watch.pod_places import PodPlaces, workload_keys
from policyd.controller.writes import Writes
from policyd.jobs.injection import PodInjection, StartError, inject
from policyd.jobs.places import (
    Departure,
    departures,
    given_up,
    waits_for_place,
    without_given_up,
    without_offset,
)
from policyd.jobs.pods import QueuedPod, without_gates
from policyd.jobs.slices import oldest_first
from policyd.jobs.topology import POD_INDEX_OFFSET
from policyd.kube.errors import ConflictError, NotFoundError
from policyd.kube.resources import PODS
from policyd.workload.admitted_claims import Hold
from policyd.workload.transitions import is_admitted

log = structlog.get_logger()

AT_ONCE = 8
"""Pods let go at a time."""


class Ungating:
    """Lets the pods of one workload go, at a time: gated pods wait until it is admitted.

    `chain` returns the keys of all slices of a job, by that of the first; `hold` returns why a
    pod of a pod set and workload stays held for its claims; `ungated` is called with each ungated
    pod and its workload.
    """

    def __init__(  # noqa: PLR0913 - mirrors, writes, a callback
        self,
        workloads: Mirror[Workload],
        pods: Mirror[QueuedPod],
        places: PodPlaces,
        writes: Writes,
        *,
        gates: Gates = DEFAULTS.gates,
        chain: Callable[[str], Iterable[str]] = lambda path: (path,),
        hold: Callable[[QueuedPod, str, Workload], Hold | None] = lambda *_of: None,
        ungated: Callable[[str, QueuedPod, Workload], None] = lambda _gate, _pod, _workload: None,
    ) -> None:
        self._workloads = workloads
        self._pods = pods
        self._places = places
        self._writes = writes
        self._gates = gates
        self._chain = chain
        self._hold = hold
        self._ungated = ungated

    async def reconcile(self, key: ReconcileKey) -> float | None:
        """Let the pods of a workload go that can.

        Returns:
            The seconds until the others are looked at again; None if that is once they change.

        Raises:
            ApiError: If a write did not succeed.
        """
        workload = self._placed(key.path)
        if workload is None:
            return None
        pods = self._places.of_workload(workload)
        if given_up(workload):
            await self._give_up(workload, pods)
            return None
        self._record_held(without_offset(workload, pods))
        leaving: list[Departure] = []
        waits: list[float] = []
        for each in departures(workload, pods):
            hold = self._hold(each.pod, each.pod.metadata.labels.get(POD_SET, ""), workload)
            if hold is None:
                leaving.append(each)
                continue
            self._writes.record_held(each.pod.metadata, hold.why)
            if hold.seconds is not None:
                waits.append(hold.seconds)
        for start in range(0, len(leaving), AT_ONCE):
            calls = (self._let_go(each, workload) for each in leaving[start : start + AT_ONCE])
            await asyncio.gather(*calls)
        if leaving:
            log.info("pods_placed", workload=key.path, pods=len(leaving))
        return min(waits, default=None)

    async def _give_up(self, workload: Workload, pods: Sequence[QueuedPod]) -> None:
        """Give up the places that a job which became smaller no longer needs, once it is known.

        No pod goes until then; both the write and the end of a pod bring the next look.
        """
        by_prefix = self._gates.tas_assignments_encoding_by_hostname_prefix
        status = without_given_up(workload, pods, by_prefix=by_prefix).status
        await self._writes.status(self._workloads, workload, status)

    def _record_held(self, pod: QueuedPod | None) -> None:
        """Record that a value of one pod holds the pods of a workload, if it does."""
        if pod is None:
            return
        offset = pod.metadata.annotations[POD_INDEX_OFFSET]
        message = (
            f"{POD_INDEX_OFFSET} `{offset}` is not a whole number: all pods of the workload are"
            " held, as their places are unknown; create them again without it"
        )
        self._writes.record(PODS, pod.metadata, "InvalidPodIndexOffset", message, warning=True)

    def _placed(self, path: str) -> Workload | None:
        """Return the workload whose places the pods get that name one.

        Pods of an elastic job name the slice that was there when their template was written: the
        latest that is admitted counts.
        """
        found = (self._workloads.get(each) for each in self._chain(path))
        slices = oldest_first(each for each in found if each is not None)
        return next(filter(is_admitted, reversed(slices)), None)

    def beside(self, pod: QueuedPod) -> list[ReconcileKey]:
        """Return the workload of a pod, whose other pods may get its place."""
        return [_key(name) for name in sorted(workload_keys(pod))]

    async def _let_go(self, departure: Departure, workload: Workload) -> None:
        pod = departure.pod
        patch = self._patch(departure)
        if not patch:
            return
        try:
            await self._writes.patch(self._pods, pod, patch, kind="json")
        except (ConflictError, NotFoundError):
            log.debug("pod_changed", pod=pod.metadata.key)  # and so it is looked at again
        else:
            self._ungated(TOPOLOGY_GATE, pod, workload)

    def _patch(self, departure: Departure) -> Sequence[object]:
        draft = draft_of(departure.pod)
        try:
            inject(draft, (), PodInjection(node_selector=dict(departure.node_selector)))
        except StartError as error:
            log.warning("pod_placement_conflict", pod=departure.pod.metadata.key, error=str(error))
            return ()
        without_gates(draft, frozenset({TOPOLOGY_GATE}))
        return versioned(draft, departure.pod.metadata)


def places_keys(pod: QueuedPod) -> list[ReconcileKey]:
    """Return the keys to reconcile for a pod: its workload, if the pod waits for its place."""
    if not waits_for_place(pod):
        return []
    return [_key(name) for name in sorted(workload_keys(pod))]


def _key(workload: str) -> ReconcileKey:
    namespace, _, name = workload.partition("/")
    return ReconcileKey("Places", namespace, name)
