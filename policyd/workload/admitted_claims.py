"""Whether the claims of a held pod ask for no more devices than its workload was admitted with.

Users may delete a claim, or a template of claims, and create it anew with more devices. A claim is
charged when its workload gets quota; what the pod would get is looked at once more before it goes.
Kubernetes makes the claims of a pod from their templates while the pod is held. They do not change
after that, so the pod waits for them: a template may be another one at any moment.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from policyd.api.kueue import Workload
from policyd.api.kueue.names import QUOTA_RESERVED
from policyd.api.meta import find_condition
from policyd.api.pod_requests import amount
from policyd.api.pods import PodResourceClaim, PodTemplate
from policyd.devices.amounts import DeviceCountError
from policyd.devices.objects import ResourceClaim, ResourceClaimTemplate
from policyd.jobs.pods import QueuedPod
from policyd.jobs.requests import (
    InvalidRequestsError,
    RequestRules,
    as_counted,
    requests_of,
    shared_devices,
)

if TYPE_CHECKING:
    from policyd.devices.counting import DeviceCounter


FindClaim = Callable[[str], ResourceClaim | None]

MAKING_SECONDS: Final = 10.0
"""How long a pod waits for the claims that are made for it, where it is not known that they are."""
LOOK_SECONDS: Final = 1.0
"""Until it is looked again whether they are there."""


class Hold(NamedTuple):
    """Why a pod stays held.

    Attributes:
        why: How its claims are more than was admitted; empty while they are only waited for.
        seconds: Until to look again; None if that is once its claims or templates change.
    """

    why: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldClaims:
    """What decides about the claims of a pod that is held.

    Attributes:
        workload: The workload of the pod, which has quota.
        rules: Those by which requests are counted.
        devices: What counts devices.
        free_if_undeclared: Whether resources without quota are free.
        always_made: Whether Kubernetes is known to make the claims of held pods. It may take long
            if a user creates many pods, and their templates may be others by then.
    """

    workload: Workload
    rules: RequestRules
    devices: "DeviceCounter"
    free_if_undeclared: bool = False
    always_made: bool = False

    def hold(self, pod: QueuedPod, pod_set: str, find: FindClaim, *, now: float) -> Hold | None:
        """Return why a pod stays held for its claims; None if it may go.

        Args:
            pod: The pod.
            pod_set: The name of its pod set.
            find: Returns a claim that was made for a pod by `namespace/name`.
            now: Seconds since the epoch.
        """
        named = {
            each.name: find(f"{pod.metadata.namespace}/{each.resource_claim_name}")
            for each in pod.status.resource_claim_statuses
            if each.resource_claim_name
        }
        made = {name: claim for name, claim in named.items() if claim is not None}
        claims = pod.spec.resource_claims
        missing = [
            each for each in claims if each.resource_claim_template_name and each.name not in made
        ]
        created = pod.metadata.creation_timestamp
        age = MAKING_SECONDS if created is None else now - created.timestamp()
        if missing and age < MAKING_SECONDS:
            return Hold(seconds=LOOK_SECONDS)
        if any(each.name in named for each in missing):
            return Hold(seconds=MAKING_SECONDS)
        changed = [each for each in claims if not self._is_as_admitted(each, made.get(each.name))]
        why = ""
        if changed:
            why = self._beyond(PodTemplate(pod.metadata, pod.spec), pod_set, made, changed)
        if not why and any(self._is_newer(each) for each in missing):
            why = "a template of its claims has changed since, and its claim is not made yet"
        if not (why or (missing and self.always_made)):
            return None
        # Pods of elastic jobs are not watched: that a claim was made is only seen by a look.
        return Hold(why, MAKING_SECONDS if missing else None)

    def _beyond(
        self,
        pod: PodTemplate,
        pod_set: str,
        made: Mapping[str, ResourceClaim],
        changed: Iterable[PodResourceClaim],
    ) -> str:
        """Return how the claims of a pod are more than was admitted; empty if they are not."""
        try:
            shares = shared_devices(self.workload, self.rules)
            taken = _sum(self._charge(pod, made), shares.get(pod_set, {}))
            found = self._more(taken, pod_set)
            if not found and any(each.resource_claim_name for each in changed):
                # Another pod set may be charged for the claim that this pod would use.
                templates = {each.name: each.template for each in self.workload.spec.pod_sets}
                others = (
                    self._more(_sum(self._charge(templates[name], {}), share), name)
                    for name, share in shares.items()
                )
                found = next(filter(None, others), "")
        except (DeviceCountError, InvalidRequestsError) as error:
            return f"the devices of its claims cannot be counted any more: {error}"
        return found

    def _is_as_admitted(self, claim: PodResourceClaim, made: ResourceClaim | None) -> bool:
        """Tell whether a claim is what it was when the workload got quota."""
        basis, since = self._basis(claim), self._since
        if basis is None or since is None:
            return False
        created = basis.metadata.creation_timestamp
        # The API server writes whole seconds: in the same one, either may have been first.
        if created is None or created >= since:
            return False
        spec = basis.spec if isinstance(basis, ResourceClaim) else basis.spec.spec
        return made is None or made.spec == spec

    def _is_newer(self, claim: PodResourceClaim) -> bool:
        basis, since = self._basis(claim), self._since
        created = None if basis is None else basis.metadata.creation_timestamp
        return since is None or created is None or created > since

    def _basis(self, claim: PodResourceClaim) -> ResourceClaim | ResourceClaimTemplate | None:
        """Return the claim that pods share, or the template."""
        namespace = self.workload.metadata.namespace
        if claim.resource_claim_template_name:
            return self.devices.templates(f"{namespace}/{claim.resource_claim_template_name}")
        return self.devices.claims(f"{namespace}/{claim.resource_claim_name}")

    @property
    def _since(self) -> datetime | None:
        """When the workload got quota."""
        reserved = find_condition(self.workload.status.conditions, QUOTA_RESERVED)
        return None if reserved is None else reserved.last_transition_time

    def _charge(self, pod: PodTemplate, made: Mapping[str, ResourceClaim]) -> Counter[str]:
        """Return what a pod is charged of resources that its claims are charged to."""
        bare = self._requests(pod, ())
        rest = tuple(each for each in pod.spec.resource_claims if each.name not in made)
        taken = Counter(self._requests(pod, rest))
        own = {name for name, total in taken.items() if total != bare.get(name, 0)}
        for claim in made.values():
            devices = self.devices.of_claim(claim)
            taken.update(devices)
            own |= devices.keys()
        return Counter({name: taken[name] for name in own})

    def _requests(
        self, pod: PodTemplate, claims: tuple[PodResourceClaim, ...]
    ) -> Mapping[str, int]:
        spec = msgspec.structs.replace(pod.spec, resource_claims=claims)
        counted = as_counted(PodTemplate(pod.metadata, spec), self.rules)
        return requests_of(counted, self.rules)

    def _more(self, taken: Mapping[str, int], pod_set: str) -> str:
        """Say which resource a pod takes more of than its pod set was admitted with."""
        admission = self.workload.status.admission
        assignments = () if admission is None else admission.pod_set_assignments
        assigned = next((each for each in assignments if each.name == pod_set), None)
        if assigned is None:
            return "its pod set is not admitted"
        for name, total in sorted(taken.items()):
            usage = assigned.resource_usage.get(name)
            if usage is None and self.free_if_undeclared:
                continue
            given = 0 if usage is None else amount(name, str(usage)) // max(1, assigned.count or 1)
            if total > given:
                return (
                    f"its claims, or templates of claims, have changed since: it would take {total}"
                    f" of {name}, and was admitted with {given}"
                )
        return ""


def _sum(one: Counter[str], other: Mapping[str, int]) -> Mapping[str, int]:
    return one + Counter(other)
