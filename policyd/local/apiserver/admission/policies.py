"""The API server's own policies, as they are stored, evaluated by policyd's engine."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec

from policyd.api.admission import AdmissionRequest, UserInfo
from policyd.api.meta import Json
from policyd.api.policy import ParamKind
from policyd.api.selectors import LabelSelector
from policyd.cel.lib.authorizer import Authorization as PermissionDecision
from policyd.cel.lib.authorizer import AuthorizedAction as Permission
from policyd.engine.compile.load import Loaded, gather
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.evaluate.review import refusal
from policyd.engine.model.decision import Decision
from policyd.engine.model.params import ParamError
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.objects.match import labels_of
from policyd.local.apiserver.admission.attributes import WriteAttributes
from policyd.local.apiserver.admission.loading import load_stored
from policyd.local.apiserver.admission.review import review_request
from policyd.local.apiserver.admission.webhooks import Reshape
from policyd.local.apiserver.conversion import to_served, to_stored
from policyd.local.apiserver.registry import Registry, Served
from policyd.local.apiserver.status import Object, StatusError
from policyd.local.apiserver.store import Store, StoreEvent
from policyd.local.apiserver.writing.metadata import own_copy
from policyd.patch.json_patch import apply_json_patch

RESOURCES: Final = tuple(
    f"{kind}.admissionregistration.k8s.io"
    for kind in (
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
    )
)
"""The resources of policies and bindings."""


class StoredPolicies:
    """The stored policies, compiled when they change."""

    def __init__(self, store: Store, registry: Registry, *, reshape: Reshape) -> None:
        self._store = store
        self._reshape = reshape
        self._stored: list[Object] = []
        self._parts: list[Loaded] = []
        self._surroundings = PolicyContext(
            namespaces=self._namespace,
            params=_StoredParams(store, registry),
            authorize=_allow,
        )
        self._all = self._again = PolicySet(surroundings=self._surroundings)
        self._unconcerned: set[tuple[str, ...]] = set()
        """Resources, versions and operations of which no policy has anything to check."""
        self._changed = True
        for resource in RESOURCES:
            store.listen(self._note_change, resource)

    def mutate(self, attributes: WriteAttributes, *, again: bool = False) -> bool:
        """Change `attributes.object`, and tell whether anything did.

        With `again`, only those run that ask for it if anything changed the object.

        Raises:
            StatusError: If a policy cannot be evaluated, and refuses for that.
        """
        self._follow()
        policies = self._again if again else self._all
        if not policies.mutating or attributes.object is None:
            return False
        shown = to_served(attributes.served, attributes.object)
        request = _request(attributes)
        decision = policies.mutate(request, twice=False)
        if not decision.allowed:
            raise _refused(request, decision)
        if decision.operations:
            patched = apply_json_patch(shown, decision.operations)
            reshaped = self._reshape(own_copy(patched), attributes.served)
            attributes.object = to_stored(attributes.served, to_served(attributes.served, reshaped))
        return bool(decision.operations)

    def validate(self, attributes: WriteAttributes) -> None:
        """Check the object as it is to be stored, or the one to delete.

        Raises:
            StatusError: If a policy refuses; the message is that of the first denial.
        """
        self._follow()
        served = attributes.served
        about = served.resource, served.version, attributes.subresource, attributes.operation
        if not self._all.validating or about in self._unconcerned:
            return
        request = _request(attributes)
        if not self._all.concerned(request, "validate"):
            self._unconcerned.add(about)
            return
        decision = self._all.validate(request)
        for warning in decision.warnings:
            attributes.warn(warning)
        if not decision.allowed:
            raise _refused(request, decision)

    def _note_change(self, _event: StoreEvent) -> None:
        self._changed = True

    def _follow(self) -> None:
        """Compile the policies that were stored or changed, and drop those that were deleted."""
        if not self._changed:
            return
        self._changed = False
        self._unconcerned.clear()
        stored = [obj for resource in RESOURCES for _, obj in self._store.items(resource)]
        if len(stored) == len(self._stored) and all(map(_same, stored, self._stored)):
            return
        known = {id(obj): part for obj, part in zip(self._stored, self._parts, strict=True)}
        self._parts = [known.get(id(obj)) or load_stored(obj) for obj in stored]
        loaded = gather(self._parts)
        again = [p for p in loaded.policies if p.policy.spec.reinvocation_policy == "IfNeeded"]
        self._stored = stored
        self._all, self._again = (
            PolicySet(chosen, bindings=loaded.bindings, surroundings=self._surroundings)
            for chosen in (loaded.policies, again)
        )

    def _namespace(self, name: str) -> Object | None:
        return self._store.get("namespaces", "", name)


class _StoredParams:
    """Params: objects of any kind that is served."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry

    def namespaced(self, kind: ParamKind) -> bool:
        return self._served(kind).namespaced

    def get(self, kind: ParamKind, namespace: str, name: str) -> Json | None:
        found = self._store.get(self._served(kind).storage, namespace, name)
        return None if found is None else to_served(self._served(kind), found)

    def list(self, kind: ParamKind, namespace: str, selector: LabelSelector) -> Sequence[Json]:
        served = self._served(kind)
        return [
            to_served(served, obj)
            for (where, _), obj in self._store.items(served.storage)
            if namespace in ("", where) and selector.matches(labels_of(obj))
        ]

    def _served(self, kind: ParamKind) -> Served:
        for served in self._registry:
            if (served.api_version, served.kind) == (kind.api_version, kind.kind):
                return served
        shown = f"{kind.api_version}, Kind={kind.kind}"
        raise ParamError(f"failed to find resource referenced by paramKind: '{shown}'")


def _request(attributes: WriteAttributes) -> AdmissionRequest:
    """Describe a write as the engine knows requests: as a webhook would be asked about it."""
    request = review_request(attributes, attributes.served)
    return msgspec.json.decode(msgspec.json.encode(request), type=AdmissionRequest)


def _refused(request: AdmissionRequest, decision: Decision) -> StatusError:
    first = replace(decision, denials=decision.denials[:1])
    status = refusal(request, first)
    details = {
        "name": request.name,
        "group": request.resource.group,
        "kind": request.resource.resource,
        "causes": [{"message": str(decision.denials[0])}],
    }
    given = {key: value for key, value in details.items() if value}
    return StatusError(status.code, status.reason, status.message, details=given)


def _same(one: Object, other: Object) -> bool:
    return one is other


def _allow(_user: UserInfo, _permission: Permission) -> PermissionDecision:
    """Allow everything: each client of the embedded server is an administrator."""
    return PermissionDecision(allowed=True)
