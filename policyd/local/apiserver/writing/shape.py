"""The shape of an object: its known fields, their defaults, and its rules."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from policyd.local.apiserver.checks.metadata import check_metadata, check_metadata_update
from policyd.local.apiserver.conversion import to_served
from policyd.local.apiserver.custom import definitions
from policyd.local.apiserver.custom import schema as custom_schema
from policyd.local.apiserver.custom.checking import NOWHERE, check_custom
from policyd.local.apiserver.custom.definitions import DEFINITIONS
from policyd.local.apiserver.custom.rules import check_rules, has_rules
from policyd.local.apiserver.custom.version import CustomVersion
from policyd.local.apiserver.kinds import (
    cluster_checks,
    jobs,
    pod_checks,
    pod_defaults,
    pod_updates,
    smaller,
    workloads,
)
from policyd.local.apiserver.kinds.pod_defaults import first_status
from policyd.local.apiserver.registry import Served
from policyd.local.apiserver.requests import ApiRequest
from policyd.local.apiserver.status import (
    Cause,
    Object,
    StatusError,
    bad_request,
    internal_error,
    invalid,
)
from policyd.patch.builtin_types import MistypedError, decode_typed, present

OBJECT_META = "meta/v1.ObjectMeta"

KEEPS_FIRST_STATUS = frozenset({"nodes"})
"""Kinds whose status may be given when they are created."""

FIRST_STATUS: Mapping[str, Object] = {
    "persistentvolumeclaims": {"phase": "Pending"},
    "persistentvolumes": {"phase": "Pending"},
    "services": {"loadBalancer": {}},
}
"""The status of a new object, where it is not empty."""

COUNTED = {
    "daemonsets.apps": "apps/v1.DaemonSetStatus",
    "replicasets.apps": "apps/v1.ReplicaSetStatus",
    "statefulsets.apps": "apps/v1.StatefulSetStatus",
}
"""Kinds whose status has counters of pods from the beginning, with its type."""

BLOCKING = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
"""The errors of a custom object that prevent the evaluation of its rules."""

OF_SPEC = frozenset({"jobs.batch", "pods"})
"""Resources whose rules look at the spec alone: as long as that stays, it is right."""

UNCHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing"
    " errors to complete validation"
)

Refusal = Callable[[str], StatusError]


def read_shape(given: Object, request: ApiRequest, *, refuse: Refusal | None = None) -> Object:
    """Read a client's object by the fields of its kind, and treat unknown fields as requested.

    Args:
        given: The object; changed in place if its kind is a custom one.
        request: Has the kind, and how to treat unknown fields.
        refuse: Makes the error from a message.

    Raises:
        StatusError: If a value is of another type, or unknown fields are to be refused.
    """
    served = request.served
    refuse = refuse or _cannot_be_handled(served)
    try:
        shaped, unknown = known_part(given, served)
    except MistypedError as error:
        raise refuse(str(error)) from error
    lines = [f'unknown field "{path}"' for path in unknown]
    if request.options.field_validation != "Ignore" and request.media_type.endswith("json"):
        repeated = duplicate_fields(request.body)
        lines = [*(f'duplicate field "{path}"' for path in repeated), *lines]
    if lines:
        if request.options.field_validation == "Strict":
            raise refuse(f"strict decoding error: {', '.join(lines)}")
        if request.options.field_validation == "Warn":
            for line in lines:
                request.warn(line)
    return shaped


def _cannot_be_handled(served: Served) -> Refusal:
    what = not_handled(served)
    return lambda why: bad_request(f"{what}: {why}")


def not_handled(served: Served) -> str:
    """Begin the sentence that says why an object is none of its kind."""
    return f'{served.kind} in version "{served.version}" cannot be handled as a {served.kind}'


def known_part(given: Object, served: Served) -> tuple[Object, list[str]]:
    """Return the fields of an object that its kind has, with the paths of the others.

    Raises:
        MistypedError: If a value of a built-in type is of another type.
    """
    if served.custom is None:
        return decode_typed(given, served.type_name)
    metadata, unknown = decode_typed(given.get("metadata", {}), OBJECT_META)
    given["metadata"] = metadata
    paths = [f"metadata.{path}" for path in unknown]
    return given, paths + list(custom_schema.prune(given, served.custom.schema))


def fill_in(value: Object, served: Served) -> None:
    """Set the defaults of an object, in place."""
    if served.custom is not None:
        custom_schema.fill_in(value, _defaults_of(served.custom))
    else:
        if served.has("status"):
            value.setdefault("status", {})
        default = DEFAULTS.get(served.storage)
        if default is not None:
            default(value)


def reshape(value: Object, served: Served) -> Object:
    """Give an object that a webhook has patched the fields and defaults of its kind.

    Raises:
        StatusError: 500, if a value is of another type.
    """
    try:
        known, _ = known_part(value, served)
    except MistypedError as error:
        raise internal_error(str(error)) from error
    fill_in(known, served)
    return known


def begin(new: Object, served: Served, now: str) -> None:
    """Give a new object its first status, and the fields that depend on its name and uid."""
    start = BEGIN.get(served.storage)
    if served.resource == "pods":
        new["status"] = first_status(new, now)
    elif served.custom is not None and served.has("status"):
        new.pop("status", None)
    elif served.has("status") and served.resource not in KEEPS_FIRST_STATUS:
        counted = COUNTED.get(served.resource)
        first = present(counted) if counted else FIRST_STATUS.get(served.resource, {})
        new["status"] = dict(first)
    if start is not None:
        start(new)


def check(
    new: Object, old: Object | None, served: Served, *, namespace: Object | None = None
) -> None:
    """Check an object that is created (`old` is None) or changed.

    Args:
        new: The object.
        old: As it was.
        served: Its kind.
        namespace: Its namespace; None if that decides nothing.

    Raises:
        StatusError: 422, with all that is wrong.
    """
    causes = list(_causes(new, old, served))
    if served.storage in CLAIMS:
        labels = ((namespace or {}).get("metadata") or {}).get("labels") or {}
        causes = [*cluster_checks.check_admin_access(new, old, labels), *causes]
    if causes:
        kind = served.kind if served.kept_as else served.qualified_kind
        raise invalid(kind, new["metadata"].get("name", ""), causes)


@lru_cache(maxsize=256)
def _defaults_of(version: CustomVersion) -> Object:
    return custom_schema.defaults_of(version.schema)


@lru_cache(maxsize=256)
def _has_rules(version: CustomVersion) -> bool:
    return has_rules(version.schema)


def _custom_causes(new: Object, old: Object | None, version: CustomVersion) -> Iterator[Cause]:
    schema = version.schema
    wrong = list(check_custom(new, schema, old))
    yield from wrong
    if not _has_rules(version):
        return
    if any(cause.reason in BLOCKING for cause in wrong):
        # Rules may rely on the rest of the schema.
        yield Cause("FieldValueInvalid", f"Invalid value: null: {UNCHECKED}", NOWHERE)
    elif all(cause.path != NOWHERE for cause in wrong):
        yield from check_rules(new, old, schema)


def _causes(new: Object, old: Object | None, served: Served) -> Iterator[Cause]:
    yield from check_metadata(new, served, old)
    if old is not None:
        yield from check_metadata_update(new, old)
    if served.custom is not None:
        before = None if old is None else to_served(served, old)
        yield from _custom_causes(to_served(served, new), before, served.custom)
        return
    same_spec = old is not None and served.storage in OF_SPEC and new["spec"] == old["spec"]
    for checks in ({} if same_spec else CHECKS, CHECKS_OF_NEW if old is None else {}):
        rule = checks.get(served.storage)
        if rule is not None:
            yield from rule(new)
    change = CHECKS_OF_UPDATES.get(served.storage)
    if old is not None and change is not None:
        yield from change(new, old)


class _Given(dict[str, Any]):
    """An object as it is read, with the names that occur in it more than once."""

    __slots__ = ("repeated",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated: list[str] = []
        if len(self) < len(pairs):
            seen: set[str] = set()
            for name, _ in pairs:
                if name in seen and name not in self.repeated:
                    self.repeated.append(name)
                seen.add(name)


def duplicate_fields(body: bytes) -> list[str]:
    """Return the paths of fields that a JSON document gives more than once."""
    try:
        value = json.loads(body, object_pairs_hook=_Given)
    except (ValueError, RecursionError):
        return []  # the reader of the body reports it
    return list(_paths(value, ""))


def _paths(value: object, path: str) -> Iterator[str]:
    if isinstance(value, _Given):
        for name, part in value.items():
            at = f"{path}.{name}" if path else name
            if name in value.repeated:
                yield at
            yield from _paths(part, at)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _paths(item, f"{path}[{index}]")


CLAIMS = ("resourceclaims.resource.k8s.io", "resourceclaimtemplates.resource.k8s.io")

Default = Callable[[Object], None]
Check = Callable[[Object], Iterator[Cause]]
CheckUpdate = Callable[[Object, Object], Iterator[Cause]]

DEFAULTS: Mapping[str, Default] = {
    "cronjobs.batch": workloads.default_cron_job,
    DEFINITIONS: definitions.default_definition,
    "daemonsets.apps": workloads.default_daemon_set,
    "deployments.apps": workloads.default_deployment,
    "jobs.batch": jobs.default_whole_job,
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": smaller.default_mutating_webhooks,
    "namespaces": smaller.default_namespace,
    "nodes": smaller.default_node,
    "pods": pod_defaults.default_pod,
    "priorityclasses.scheduling.k8s.io": smaller.default_priority_class,
    "replicasets.apps": workloads.default_replica_set,
    "resourceclaims.resource.k8s.io": smaller.default_claim,
    "resourceclaimtemplates.resource.k8s.io": smaller.default_claim_template,
    "secrets": smaller.default_secret,
    "services": smaller.default_service,
    "statefulsets.apps": workloads.default_stateful_set,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": smaller.default_webhooks,
}
"""Sets the defaults of an object; runs before admission, and again after each webhook."""

BEGIN: Mapping[str, Default] = {
    DEFINITIONS: definitions.establish,
    "jobs.batch": jobs.select_own_pods,
    "namespaces": smaller.open_namespace,
}
"""Sets the fields of a new object that depend on its name and uid; runs once, after mutation."""

CHECKS: Mapping[str, Check] = {
    **dict.fromkeys(
        (
            "mutatingadmissionpolicies.admissionregistration.k8s.io",
            "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
            "validatingadmissionpolicies.admissionregistration.k8s.io",
            "validatingadmissionpolicybindings.admissionregistration.k8s.io",
        ),
        smaller.check_admission_policy,
    ),
    "configmaps": smaller.check_config_map,
    "cronjobs.batch": workloads.check_cron_job,
    DEFINITIONS: definitions.check_definition,
    "daemonsets.apps": workloads.check_workload,
    "deployments.apps": workloads.check_deployment,
    "events": smaller.check_event,
    "jobs.batch": jobs.check_job,
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": smaller.check_webhooks,
    "pods": pod_checks.check_pod,
    "leases.coordination.k8s.io": cluster_checks.check_lease,
    "namespaces": cluster_checks.check_namespace,
    "nodes": cluster_checks.check_node,
    "priorityclasses.scheduling.k8s.io": cluster_checks.check_priority_class,
    "replicasets.apps": workloads.check_workload,
    "secrets": smaller.check_config_map,
    "statefulsets.apps": workloads.check_workload,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": smaller.check_webhooks,
}
"""The rules of objects that are created or changed."""

CHECKS_OF_NEW: Mapping[str, Check] = {"pods": pod_checks.check_created_pod}
"""The rules of objects that are created."""

CHECKS_OF_UPDATES: Mapping[str, CheckUpdate] = {
    "configmaps": smaller.check_config_map_update,
    DEFINITIONS: definitions.check_definition_update,
    "deployments.apps": workloads.check_workload_update,
    "events": smaller.check_event_update,
    "daemonsets.apps": workloads.check_workload_update,
    "jobs.batch": jobs.check_job_update,
    "pods": pod_updates.check_pod_update,
    "priorityclasses.scheduling.k8s.io": cluster_checks.check_priority_class_update,
    "replicasets.apps": workloads.check_workload_update,
    **dict.fromkeys(CLAIMS, cluster_checks.check_claim_update),
    "secrets": smaller.check_config_map_update,
    "statefulsets.apps": workloads.check_stateful_set_update,
}
"""The rules of changes."""
