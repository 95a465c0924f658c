"""Gated pods of parents such as StatefulSets: each becomes a member of its pod group.

Kueue ungates pods that can be in no group, because their parent was deleted or is being replaced. A
user who may delete a parent and keep its pods could run them without quota in this way, so they
stay gated here, unless owner references are trusted as Kueue trusts them.
"""

from collections.abc import Iterable
from typing import Any

from policyd.api.kueue.names import ADMISSION_GATE, MANAGED, TOPOLOGY_GATE
from policyd.controller.patches import draft_of, versioned
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.mirrors import job_resource
from policyd.controller.writes import Writes
from policyd.jobs.base import controller_of
from policyd.jobs.kinds.registry import parent_of_owner
from policyd.jobs.parents import Parent, ParentKind, PodParent, take_parent
from policyd.jobs.pods import QueuedPod, group_name, is_gated, is_over, without_gates
from policyd.kube.errors import NotFoundError
from policyd.kube.resources import PODS
from policyd.patch.draft import Draft

REVISION = "controller-revision-hash"
"""Label of a pod: which version of its parent it was made from."""


class ParentPods:
    """Seats the pods of parents of one kind in their groups."""

    def __init__(self, kind: ParentKind[Any], cache: Cache, writes: Writes) -> None:
        self._kind = kind
        self._cache = cache
        self._writes = writes

    @property
    def _believes(self) -> bool:
        return self._cache.integrations.makers.trusted

    async def leave(self, pods: Iterable[QueuedPod], name: str, *, namespace: str) -> None:
        """Handle pods whose parent is gone, so that their group will never be known.

        Raises:
            ApiError: If that could not be asked, or a pod not be written.
        """
        gated = [pod for pod in pods if is_gated(pod)]
        if gated and await self._read(self._kind, name, namespace=namespace) is None:
            for pod in gated:
                await self._part(pod, self._kind, name)

    async def _part(self, pod: QueuedPod, kind: ParentKind[Any], name: str) -> None:
        """Ungate a pod whose parent is gone, or record that no workload requests quota for it."""
        if self._believes:
            await self._ungate(pod)
        if self._believes or not is_gated(pod):
            return
        message = (
            f"{kind.kind} `{name}` is gone, and nothing requests quota for this pod: delete it"
        )
        self._writes.record(PODS, pod.metadata, "HeldWithoutOwner", message, warning=True)

    async def place(self, pod: QueuedPod, seat: PodParent[Any]) -> None:
        """Make a pod one of its group, if it can be in one.

        Raises:
            ApiError: If a pod could not be written.
        """
        if is_over(pod) or _was_held(pod):
            return
        made_by, maker = self._maker_of(pod), seat.parent
        if made_by is not None:
            maker = await self._read(*made_by, namespace=pod.metadata.namespace)
            if maker is None:
                await self._part(pod, *made_by)
                return
        if self._believes and not group_name(pod.metadata) and _is_outdated(pod, maker):
            await self._ungate(pod)
            return
        draft = draft_of(pod)
        take_parent(draft, pod, seat)
        await self._patch(pod, draft)

    async def _read(self, kind: ParentKind[Any], name: str, *, namespace: str) -> Parent | None:
        """Return a parent; None if it is not there: a mirror that lacks it may be late."""
        found = self._cache.mirrors.jobs[kind.key].get(f"{namespace}/{name}")
        if isinstance(found, Parent):
            return found
        resource, into = job_resource(kind), kind.type
        try:
            read: Parent = await self._writes.client.get(
                resource, name, namespace=namespace, into=into
            )
        except NotFoundError:
            return None
        return read

    def _maker_of(self, pod: QueuedPod) -> tuple[ParentKind[Any], str] | None:
        """Return the maker of a pod for its parent, such as a set, until the pod has a seat."""
        owner = controller_of(pod.metadata)
        made_by = None if owner is None else parent_of_owner(owner)
        seated = group_name(pod.metadata)
        if seated or owner is None or made_by is None or made_by is self._kind:
            return None
        return made_by, owner.name

    async def _ungate(self, pod: QueuedPod) -> None:
        draft = draft_of(pod)
        without_gates(draft, frozenset({ADMISSION_GATE, TOPOLOGY_GATE}))
        await self._patch(pod, draft)

    async def _patch(self, pod: QueuedPod, draft: Draft) -> None:
        if draft.changed:
            patch = versioned(draft, pod.metadata)
            await self._writes.patch(self._cache.mirrors.pods, pod, patch, kind="json")


def _is_outdated(pod: QueuedPod, parent: Parent) -> bool:
    """Tell whether a pod is of a version that is being replaced: it goes as soon as it runs."""
    status = parent.status
    current = pod.metadata.labels.get(REVISION, "")
    return bool(current) and current == status.current_revision != status.update_revision


def _was_held(pod: QueuedPod) -> bool:
    """Tell whether a pod was held, and let go without being one of its group."""
    return MANAGED in pod.metadata.labels and not (is_gated(pod) or group_name(pod.metadata))
