"""Requests nodes from an autoscaler for workloads that have quota, and reports its answers.

This is the admission check `kueue.x-k8s.io/provisioning-request`. The kind of the requests comes
with the autoscaler: they are watched once there is such a check.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import structlog
from msgspec.structs import replace

from policyd.api.kueue import (
    AdmissionCheck,
    AdmissionCheckState,
    ProvisioningRequest,
    ProvisioningRequestConfig,
    Workload,
)
from policyd.api.kueue.names import EVICTED
from policyd.api.meta import Json, ObjectMeta, OwnerReference, condition_true
from policyd.controller.queues.provisioning_checks import (
    ProvisioningChecks,
    asks_autoscaler,
    with_states,
)
from policyd.controller.reconcile import Reconcile
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.keys import ReconcileKey
from policyd.controller.writes import Writes
from policyd.errors import PolicydError
from policyd.jobs.injection import FlavorMissingError, StartError
from policyd.jobs.lifecycle import has_quota, is_finished
from policyd.jobs.provisioning import (
    InconsistentError,
    WantedPodTemplate,
    attempt_of,
    has_parameters_of,
    is_needed,
    request_body,
    request_name,
    template_body,
    templates,
)
from policyd.jobs.provisioning_answers import answered, change_text
from policyd.kube.changes import Added, Change, Deleted, Modified
from policyd.kube.client import PatchOptions
from policyd.kube.errors import AlreadyExistsError, ApiError
from policyd.kube.resources import (
    POD_TEMPLATES,
    PROVISIONING_REQUESTS,
    WORKLOADS,
    Resource,
)

log = structlog.get_logger()

REFUSED_SECONDS = 60.0
"""Between tries to ask for pods that cannot be asked for as they are."""


class Provisioning:
    """Makes ProvisioningRequests, and keeps the states of their checks."""

    def __init__(self, cache: Cache, writes: Writes) -> None:
        self._cache = cache
        self._writes = writes
        mirrors = self._mirrors = cache.mirrors
        self._checks = ProvisioningChecks(mirrors, writes)
        self._by_owner: dict[str, set[str]] = defaultdict(set)
        self.wanted = asyncio.Event()
        """Set once an autoscaler is to be asked."""
        mirrors.checks.listen(self._check_changed)
        mirrors.workloads.listen(self._workload_changed)
        mirrors.provisioning_configs.listen(self._config_changed)
        mirrors.provisioning_requests.listen(self._request_changed)

    def reconcilers(self) -> dict[str, Reconcile]:
        """Return the reconcilers of the requests of workloads, and of the checks themselves."""
        return {"Provisioning": self.reconcile, "AdmissionCheck": self._checks.reconcile}

    def all_keys(self) -> Iterator[ReconcileKey]:
        """Yield the keys of all objects, as after a start."""
        yield from (
            ReconcileKey("AdmissionCheck", "", each.metadata.name) for each in self._checks.all()
        )
        yield from filter(None, (self._key(each) for each in self._mirrors.workloads))

    # Workloads.

    async def reconcile(self, key: ReconcileKey) -> float | None:
        """Do the next step. Returns the seconds until it should be tried again.

        Raises:
            ApiError: If a write did not succeed.
        """
        workload = self._mirrors.workloads.get(key.path)
        if workload is None or not self._checks.synced:
            return None
        owned = self._owned(workload)
        evicted = condition_true(workload.status.conditions, EVICTED)
        gates = self._cache.state.settings.gates
        if is_finished(workload) or (evicted and gates.cleanup_provisioning_requests_on_eviction):
            await self._delete(owned)
        if is_finished(workload) or evicted or not has_quota(workload):
            return None
        try:
            return await self._ask(workload, owned)
        except InconsistentError as error:
            log.warning("provisioning_unclear", workload=key.path, error=str(error))
            return None

    async def _ask(self, workload: Workload, owned: Sequence[ProvisioningRequest]) -> float | None:
        current: dict[str, ProvisioningRequest] = {}
        states = [
            state for state in workload.status.admission_checks if self._checks.is_ours(state.name)
        ]
        for state in states:
            config = self._checks.config_of(state.name)
            if config is None or not is_needed(workload, config):
                continue
            name = request_name(workload.metadata.name, state.name, attempt_of(state))
            for request in owned:
                if request.metadata.name == name and has_parameters_of(request, workload, config):
                    current[state.name] = request
        workload = await self._answer(workload, states, current)
        kept = {request.metadata.name for request in current.values()}
        await self._delete([each for each in owned if each.metadata.name not in kept])
        waits = None
        for state in workload.status.admission_checks:
            if state.state != "Pending" or state.name in current:
                continue
            config = self._checks.config_of(state.name)
            if config is not None and is_needed(workload, config):
                waits = await self._request(workload, state, config) or waits
        return waits

    async def _answer(
        self,
        workload: Workload,
        states: Sequence[AdmissionCheckState],
        current: dict[str, ProvisioningRequest],
    ) -> Workload:
        new = {
            old.name: answered(
                old, workload, self._checks.config_of(old.name), current.get(old.name)
            )
            for old in states
        }
        stored = await self._write(workload, new)
        for old in states:
            text = change_text(old, new[old.name])
            if text:
                self._writes.record(WORKLOADS, workload.metadata, "AdmissionCheckUpdated", text)
        return stored

    async def _write(self, workload: Workload, new: dict[str, AdmissionCheckState]) -> Workload:
        status = with_states(workload, new, now=self._writes.now)
        return await self._writes.status(self._mirrors.workloads, workload, status)

    async def _request(
        self, workload: Workload, state: AdmissionCheckState, config: ProvisioningRequestConfig
    ) -> float | None:
        metadata = workload.metadata
        name = request_name(metadata.name, state.name, attempt_of(state))
        stored = await self._writes.client.get(
            WORKLOADS, metadata.name, namespace=metadata.namespace, into=dict[str, Any]
        )
        flavors = {each.metadata.name: each for each in self._mirrors.flavors}
        try:
            made = templates(name, workload, config, stored=stored, flavors=flavors)
        except (FlavorMissingError, StartError) as error:
            await self._failed(workload, state, "ProvisioningRequest", name, error)
            return REFUSED_SECONDS
        for template in made:
            await self._make_template(workload, state, template)
        body = _owned_by(request_body(name, workload, config, made), metadata, WORKLOADS)
        mirror = self._mirrors.provisioning_requests
        try:
            request = await self._writes.create(mirror, body, namespace=metadata.namespace)
        except ApiError as error:
            taken = isinstance(error, AlreadyExistsError)
            if not taken or mirror.get(f"{metadata.namespace}/{name}") is not None:
                await self._failed(workload, state, "ProvisioningRequest", name, error)
            raise
        message = f'Created ProvisioningRequest: "{name}"'
        self._writes.record(WORKLOADS, metadata, "ProvisioningRequestCreated", message)
        for template in made:
            await self._hand_over(template, request)
        return None

    async def _make_template(
        self, workload: Workload, state: AdmissionCheckState, template: WantedPodTemplate
    ) -> None:
        """Make a PodTemplate, which is the workload's as long as there is no request for it."""
        body = _owned_by(template_body(template), workload.metadata, WORKLOADS)
        try:
            namespace = workload.metadata.namespace
            await self._writes.make(POD_TEMPLATES, body, namespace=namespace)
        except AlreadyExistsError:
            return  # made at the last try
        except ApiError as error:
            await self._failed(workload, state, "PodTemplate", template.name, error)
            raise

    async def _hand_over(self, template: WantedPodTemplate, request: ProvisioningRequest) -> None:
        owners = _owned_by({}, request.metadata, PROVISIONING_REQUESTS)
        options = PatchOptions(namespace=request.metadata.namespace)
        await self._writes.client.patch(
            POD_TEMPLATES, template.name, owners, into=dict[str, Any], **options
        )

    async def _failed(
        self,
        workload: Workload,
        state: AdmissionCheckState,
        kind: str,
        name: str,
        error: PolicydError,
    ) -> None:
        message = f'Error creating {kind} "{name}": {error}'
        self._writes.record(WORKLOADS, workload.metadata, "FailedCreate", message, warning=True)
        await self._write(workload, {state.name: replace(state, message=message)})

    async def _delete(self, requests: Sequence[ProvisioningRequest]) -> None:
        for request in requests:
            if request.metadata.deletion_timestamp is None:
                await self._writes.delete(self._mirrors.provisioning_requests, request)

    def _owned(self, workload: Workload) -> list[ProvisioningRequest]:
        keys = sorted(self._by_owner.get(workload.metadata.uid, ()))
        found = (self._mirrors.provisioning_requests.get(key) for key in keys)
        namespace = workload.metadata.namespace
        return [each for each in found if each and each.metadata.namespace == namespace]

    # Changes.

    def _key(self, workload: Workload) -> ReconcileKey | None:
        if not any(self._checks.is_ours(each.name) for each in workload.status.admission_checks):
            return None
        return ReconcileKey("Provisioning", workload.metadata.namespace, workload.metadata.name)

    def _workload_changed(self, change: Change[Workload]) -> None:
        match change:
            case Modified() | Added():
                self._look_at(change.object)
            case Deleted():
                pass

    def _look_at(self, workload: Workload) -> None:
        key = self._key(workload)
        if key is not None:
            self._cache.hooks.reconcile(key)

    def _check_changed(self, change: Change[AdmissionCheck]) -> None:
        match change:
            case Added(check) | Modified(object=check) if asks_autoscaler(check):
                self.wanted.set()
                self._cache.hooks.reconcile(ReconcileKey("AdmissionCheck", "", check.metadata.name))
                self._look_at_all()
            case Added() | Modified() | Deleted():
                pass

    def _config_changed(self, _change: object) -> None:
        for check in self._checks.all():
            self._cache.hooks.reconcile(ReconcileKey("AdmissionCheck", "", check.metadata.name))
        self._look_at_all()

    def _look_at_all(self) -> None:
        for workload in self._mirrors.workloads:
            self._look_at(workload)

    def _request_changed(self, change: Change[ProvisioningRequest]) -> None:
        request = change.object
        for owner in _workloads_of(request.metadata):
            keys = self._by_owner[owner.uid]
            if isinstance(change, Deleted):
                keys.discard(request.metadata.key)
            else:
                keys.add(request.metadata.key)
            if not keys:
                del self._by_owner[owner.uid]
            key = ReconcileKey("Provisioning", request.metadata.namespace, owner.name)
            self._cache.hooks.reconcile(key)


def _workloads_of(metadata: ObjectMeta) -> Iterator[OwnerReference]:
    return (owner for owner in metadata.owner_references if owner.kind == WORKLOADS.kind)


def _owned_by(body: Json, metadata: ObjectMeta, resource: Resource) -> Json:
    owner = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": metadata.name,
        "uid": metadata.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    return {**body, "metadata": {**body.get("metadata", {}), "ownerReferences": [owner]}}
