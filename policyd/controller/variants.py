"""Variants of workloads: makes and deletes them, and carries out what a family decides."""

from typing import Any, assert_never

from policyd.api.kueue import Workload
from policyd.api.meta import Json
from policyd.controller.jobs.readiness import AwaitedPods
from policyd.controller.jobs.workload_events import WorkloadEvents
from policyd.controller.patches import merge_patch
from policyd.controller.reconcile import Reconcile
from policyd.controller.retention import TimeLimits
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.keys import ReconcileKey
from policyd.controller.watch.mirror import Mirror
from policyd.controller.writes import Writes
from policyd.kube.errors import AlreadyExistsError
from policyd.kube.resources import WORKLOADS
from policyd.workload.families import PARENT, WorkloadFamily, variant_body
from policyd.workload.transitions import with_status
from policyd.workload.variants import (
    DropVariant,
    MakeVariant,
    PutStatus,
    SwitchVariant,
    UngateVariant,
    family_steps,
)


class Variants:
    """Keeps the variants of one workload as they are to be, at a time."""

    def __init__(self, cache: Cache, writes: Writes, *, limits: TimeLimits) -> None:
        self._cache = cache
        self._writes = writes
        self._readiness = AwaitedPods(cache, every=limits.ready is not None)
        self._events = WorkloadEvents(writes)

    @property
    def _mirror(self) -> Mirror[Workload]:
        return self._cache.mirrors.workloads

    def reconcilers(self) -> dict[str, Reconcile]:
        """Return the reconciler of workloads with their variants."""
        return {"Family": self.reconcile}

    async def reconcile(self, key: ReconcileKey) -> float | None:
        """Do what is due for a family. Returns the seconds until more may be.

        Raises:
            ApiError: If a write did not succeed.
        """
        parent = self._mirror.get(key.path)
        family = None if parent is None else self._cache.family_of(parent)
        if family is None or family.parent is not parent:
            return None
        if family.queue is not None and family.parent.metadata.labels.get(PARENT) != "true":
            labelled = merge_patch(family.parent.metadata)
            labelled["metadata"]["labels"] = {PARENT: "true"}
            stored = await self._writes.patch(self._mirror, family.parent, labelled)
            family = WorkloadFamily(stored, family.owned, family.queue)
        detailed = self._cache.state.settings.gates.unadmitted_workloads_observability
        steps, left = family_steps(family, now=self._writes.now, detailed=detailed)
        whole: dict[str, Any] | None = None
        for step in steps:
            if isinstance(step, MakeVariant):
                whole = whole or await self._whole(family.parent)
                await self._make(family.parent, step.flavor, whole)
            else:
                await self._take(family.parent, step)
        return left

    async def _whole(self, parent: Workload) -> dict[str, Any]:
        metadata = parent.metadata
        return await self._writes.client.get(
            WORKLOADS, metadata.name, namespace=metadata.namespace, into=dict[str, Any]
        )

    async def _make(self, parent: Workload, flavor: str, whole: Json) -> None:
        body, namespace = variant_body(whole, flavor), parent.metadata.namespace
        try:
            made = await self._writes.create(self._mirror, body, namespace=namespace)
        except AlreadyExistsError:
            await self._writes.look(self._mirror, f"{namespace}/{body['metadata']['name']}")
            return
        self._record(parent, "CreatedVariant", f'Variant Workload "{made.metadata.key}" created')

    async def _take(
        self, parent: Workload, step: DropVariant | SwitchVariant | PutStatus | UngateVariant
    ) -> None:
        match step:
            case DropVariant(variant, why):
                await self._writes.delete(self._mirror, variant)
                message = f'Variant Workload "{variant.metadata.key}" deleted; {why}'
                self._record(parent, "DeletedVariant", message)
            case SwitchVariant(variant, active, why):
                patch = merge_patch(variant.metadata, spec={"active": active})
                await self._writes.patch(self._mirror, variant, patch)
                what = "activated" if active else "deactivated"
                message = f"Variant Workload {what} due to {why}"
                self._record(variant, f"{what.capitalize()}Variant", message)
            case UngateVariant(variant, status):
                await self._writes.status(self._mirror, variant, status)
                message = f'Opened preemption gate for variant workload "{variant.metadata.key}"'
                self._record(variant, "PreemptionUngatedVariant", message)
            case PutStatus(workload, status):
                status = (
                    self._readiness.begun(with_status(workload, status), now=self._writes.now)
                    if workload is parent
                    else status
                )
                stored = await self._writes.status(self._mirror, workload, status)
                self._events.changes(workload, stored)
            case _:
                assert_never(step)

    def _record(self, workload: Workload, reason: str, message: str) -> None:
        self._writes.record(WORKLOADS, workload.metadata, reason, message)
