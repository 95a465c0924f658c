"""Admission checks that ask an autoscaler, and whether their parameters can be used."""

from collections.abc import Iterator, Mapping

import msgspec
from msgspec.structs import replace

from policyd.api.kueue import (
    AdmissionCheck,
    AdmissionCheckState,
    ProvisioningRequestConfig,
    Workload,
    WorkloadStatus,
)
from policyd.api.kueue.names import ACTIVE, GROUP, PROVISIONING
from policyd.api.meta import Condition, timestamp, with_condition
from policyd.controller.patches import status_difference
from policyd.controller.watch.keys import ReconcileKey
from policyd.controller.watch.mirrors import Mirrors
from policyd.controller.writes import Writes
from policyd.kube.resources import PROVISIONING_CONFIGS

BAD_REFERENCE = "BadParametersRef"


class ProvisioningChecks:
    """Knows the parameters of checks, and says of each whether it is at work."""

    def __init__(self, mirrors: Mirrors, writes: Writes) -> None:
        self._mirrors = mirrors
        self._writes = writes

    @property
    def synced(self) -> bool:
        """Whether existing requests are known: until then none are made."""
        return all(mirror.informer.synced.is_set() for mirror in self._mirrors.of_provisioning)

    async def reconcile(self, key: ReconcileKey) -> None:
        """Say of a check whether its parameters can be used.

        Raises:
            ApiError: If it could not be written.
        """
        check = self._mirrors.checks.get(key.name)
        if check is None or not asks_autoscaler(check) or not self.synced:
            return
        problem = self._problem(check)
        condition = Condition(
            type=ACTIVE,
            status="False" if problem else "True",
            reason=BAD_REFERENCE if problem else ACTIVE,
            message=problem or "The admission check is active",
            last_transition_time=timestamp(self._writes.now),
            observed_generation=check.metadata.generation,
        )
        conditions = with_condition(check.status.conditions, condition)
        old, new = (
            msgspec.to_builtins(status)
            for status in (check.status, replace(check.status, conditions=conditions))
        )
        patch = status_difference(check.metadata, old, new)
        if patch is not None:
            await self._writes.patch(self._mirrors.checks, check, patch, subresource="status")

    def _problem(self, check: AdmissionCheck) -> str:
        given = check.spec.parameters
        if given is None:
            return "missing parameters reference"
        for what, actual, wanted in (
            ("group", given.api_group, GROUP),
            ("kind", given.kind, PROVISIONING_CONFIGS.kind),
        ):
            if actual != wanted:
                return f'wrong {what} "{actual}", expecting "{wanted}": bad parameters reference'
        if self._mirrors.provisioning_configs.get(given.name) is None:
            return f'{PROVISIONING_CONFIGS.plural}.{GROUP} "{given.name}" not found'
        return ""

    def is_ours(self, check: str) -> bool:
        """Tell whether a check asks an autoscaler."""
        found = self._mirrors.checks.get(check)
        return found is not None and asks_autoscaler(found)

    def config_of(self, check: str) -> ProvisioningRequestConfig | None:
        """Return the parameters of a check; None if they cannot be used."""
        found = self._mirrors.checks.get(check)
        if found is None or not asks_autoscaler(found) or self._problem(found):
            return None
        assert found.spec.parameters is not None, "or there would be a problem"
        return self._mirrors.provisioning_configs.get(found.spec.parameters.name)

    def all(self) -> Iterator[AdmissionCheck]:
        """Iterate over the checks that ask an autoscaler."""
        return (each for each in self._mirrors.checks if asks_autoscaler(each))


def with_states(
    workload: Workload, new: Mapping[str, AdmissionCheckState], *, now: float
) -> WorkloadStatus:
    """Return the status of a workload whose checks say something else.

    Args:
        workload: The workload.
        new: Their new states, by name; those that the workload lacks are left out.
        now: Seconds since the epoch: the time of a change of state.
    """
    checks = []
    for old in workload.status.admission_checks:
        state = new.get(old.name, old)
        if state.state != old.state:
            state = replace(state, last_transition_time=timestamp(now))
        checks.append(state)
    return replace(workload.status, admission_checks=tuple(checks))


def asks_autoscaler(check: AdmissionCheck) -> bool:
    """Tell whether a check is one that is carried out here."""
    return check.spec.controller_name == PROVISIONING
