"""The states of a workload's check by an autoscaler's answers."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from policyd.api.kueue import AdmissionCheckState, PodSetUpdate, Workload
from policyd.api.kueue.names import ADMITTED
from policyd.api.kueue.provisioning import ProvisioningRequest, ProvisioningRequestConfig
from policyd.api.meta import condition_true, find_condition
from policyd.jobs.injection import CLASS_NAME, CONSUMES
from policyd.jobs.provisioning import attempt_of, is_needed, shares

NOT_NEEDED = "the provisioning request is not needed"
INACTIVE = "the check is not active"


def answered(
    state: AdmissionCheckState,
    workload: Workload,
    config: ProvisioningRequestConfig | None,
    request: ProvisioningRequest | None,
) -> AdmissionCheckState:
    """Return where a check stands.

    Args:
        state: Where it stood.
        workload: The workload, with quota.
        config: The check's parameters; None if they cannot be used.
        request: The request of this attempt; None if there is none yet.

    Raises:
        InconsistentError: If the assignment of the pods is not known.
    """
    if config is None:
        return replace(state, state="Pending", message=INACTIVE)
    if not is_needed(workload, config):
        ready = state.state == "Ready"
        return state if ready else replace(state, state="Ready", message=NOT_NEEDED)
    if request is None:
        return state
    for condition_type, meaning in _MEANINGS.items():
        found = find_condition(request.status.conditions, condition_type)
        if found is not None and found.status == "True":
            return meaning(AutoscalerAnswer(state, workload, config, request, found.message))
    return replace(state, state="Pending", message="")


@dataclass(frozen=True, slots=True)
class AutoscalerAnswer:
    """An autoscaler's answer to a request, in one of its conditions."""

    state: AdmissionCheckState
    workload: Workload
    config: ProvisioningRequestConfig
    request: ProvisioningRequest
    message: str

    def failed(self, why: str = "failure") -> AdmissionCheckState:
        """There are no nodes: the request is repeated, up to a limit."""
        attempt, strategy = attempt_of(self.state), self.config.spec.retry_strategy
        if attempt > strategy.backoff_limit_count:
            return replace(self.state, state="Rejected", message=self.message)
        seconds = strategy.backoff_base_seconds * 2 ** (attempt - 1)
        return replace(
            self.state,
            state="Retry",
            message=f"Retrying after {why}: {self.message}",
            requeue_after_seconds=min(seconds, strategy.backoff_max_seconds),
        )

    def revoked(self) -> AdmissionCheckState:
        """Take in that the nodes are gone: pods made anew would wait for ever."""
        if not self.workload.spec.active:
            return self.state
        return replace(self.state, state="Rejected", message=self.message)

    def expired(self) -> AdmissionCheckState:
        """Take in that the nodes are no longer kept: workloads that run on them go on."""
        if condition_true(self.workload.status.conditions, ADMITTED):
            return self.state
        return self.failed("booking expired")

    def provisioned(self) -> AdmissionCheckState:
        """Take in that the nodes are provisioned."""
        if self.state.state == "Ready":
            return self.state
        updates = tuple(_updates(self.workload, self.config, self.request))
        return replace(self.state, state="Ready", message=self.message, pod_set_updates=updates)

    def accepted(self) -> AdmissionCheckState:
        """Take in that the nodes will be there; when, a condition says that is not true yet."""
        later = find_condition(self.request.status.conditions, "Provisioned")
        if later is None:
            return self.state
        return replace(self.state, state="Pending", message=later.message)


_MEANINGS: Final[Mapping[str, Callable[[AutoscalerAnswer], AdmissionCheckState]]] = {
    "Failed": AutoscalerAnswer.failed,
    "CapacityRevoked": AutoscalerAnswer.revoked,
    "BookingExpired": AutoscalerAnswer.expired,
    "Provisioned": AutoscalerAnswer.provisioned,
    "Accepted": AutoscalerAnswer.accepted,
}
"""By the condition of a request; the first that is true counts."""


def _updates(
    workload: Workload, config: ProvisioningRequestConfig, request: ProvisioningRequest
) -> Iterator[PodSetUpdate]:
    """Yield the updates that name the nodes' owner to the pods, and to the scheduler."""
    details = request.status.provisioning_class_details
    asked = () if config.spec.pod_set_updates is None else config.spec.pod_set_updates.node_selector
    name, class_name = request.metadata.name, request.spec.provisioning_class_name
    # Also those that were asked for together with others that are alike.
    for share in shares(workload, config):
        yield PodSetUpdate(
            name=share.pod_set.name,
            annotations={CONSUMES: name, CLASS_NAME: class_name},
            node_selector={
                each.key: details[each.value_from_provisioning_class_detail]
                for each in asked
                if each.value_from_provisioning_class_detail in details
            },
        )


def change_text(old: AdmissionCheckState, new: AdmissionCheckState) -> str:
    """Say that a check has another state; empty if it has not."""
    if old.state == new.state:
        return ""
    text = f"Admission check {new.name} updated state from {old.state} to {new.state}"
    return f"{text} with message: {new.message}" if new.message else text
