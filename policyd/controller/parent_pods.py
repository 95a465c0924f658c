"""Pods that are held for what made them: they become one of a group, or are let go past it."""

from collections.abc import Iterable
from typing import Any

from policyd.api.kueue.names import ADMISSION_GATE, MANAGED, TOPOLOGY_GATE
from policyd.controller.cache import Cache
from policyd.controller.mirrors import job_resource
from policyd.controller.patches import draft_of, versioned
from policyd.controller.writes import Writes
from policyd.jobs.base import controller_of
from policyd.jobs.kinds import parent_of_owner
from policyd.jobs.parents import Parent, ParentKind, Seat, take_seat
from policyd.jobs.pods import Pod, group_name, has_ended, is_gated, without_gates
from policyd.kube.client import PartialObject
from policyd.kube.errors import NotFoundError
from policyd.patch.draft import Draft

REVISION = "controller-revision-hash"
"""Label of a pod: which version of its parent it was made from."""


class ParentPods:
    """Seats the pods of parents of one kind in their groups."""

    def __init__(self, kind: ParentKind[Any], cache: Cache, writes: Writes) -> None:
        self._kind = kind
        self._cache = cache
        self._writes = writes

    async def let_go(self, pods: Iterable[Pod], name: str, *, namespace: str) -> None:
        """Release pods whose parent is gone: nobody will ever say what they belong to.

        Raises:
            ApiError: If that could not be asked, or a pod not be written.
        """
        gated = [pod for pod in pods if is_gated(pod)]
        if gated and await self._is_gone(self._kind, name, namespace=namespace):
            for pod in gated:
                await self._ungate(pod)

    async def place(self, pod: Pod, seat: Seat[Any]) -> None:
        """Make a pod one of its group, or let it go if it can be in none.

        Raises:
            ApiError: If a pod could not be written.
        """
        if has_ended(pod) or pod.metadata.deletion_timestamp is not None:
            return
        if is_gated(pod) and (_is_outdated(pod, seat.parent) or await self._is_orphan(pod)):
            await self._ungate(pod)
            return
        if _was_held(pod):
            return
        draft = draft_of(pod)
        take_seat(draft, pod, seat)
        await self._patch(pod, draft)

    async def _is_gone(self, kind: ParentKind[Any], name: str, *, namespace: str) -> bool:
        """Tell whether there is no such parent: a mirror that lacks it may be late."""
        if self._cache.mirrors.jobs[kind.kind].get(f"{namespace}/{name}") is not None:
            return False
        try:
            await self._writes.client.get(
                job_resource(kind), name, namespace=namespace, into=PartialObject
            )
        except NotFoundError:
            return True
        return False

    async def _is_orphan(self, pod: Pod) -> bool:
        """Tell whether what made a pod for its parent, such as a set of its own, is gone."""
        owner = controller_of(pod.metadata)
        made_by = None if owner is None else parent_of_owner(owner)
        seated = group_name(pod.metadata)
        if seated or owner is None or made_by is None or made_by is self._kind:
            return False
        return await self._is_gone(made_by, owner.name, namespace=pod.metadata.namespace)

    async def _ungate(self, pod: Pod) -> None:
        draft = draft_of(pod)
        without_gates(draft, frozenset({ADMISSION_GATE, TOPOLOGY_GATE}))
        await self._patch(pod, draft)

    async def _patch(self, pod: Pod, draft: Draft) -> None:
        if draft.changed:
            patch = versioned(draft, pod.metadata)
            await self._writes.patch(self._cache.mirrors.pods, pod, patch, kind="json")


def _is_outdated(pod: Pod, parent: Parent) -> bool:
    """Tell whether a pod is of a version that is being replaced: it goes as soon as it runs."""
    status = parent.status
    current = pod.metadata.labels.get(REVISION, "")
    return bool(current) and current == status.current_revision != status.update_revision


def _was_held(pod: Pod) -> bool:
    """Tell whether a pod was held, and let go without being one of its group."""
    return MANAGED in pod.metadata.labels and not (is_gated(pod) or group_name(pod.metadata))
