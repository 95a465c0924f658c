"""Objects that have nothing but what their kind requires, to try policies on.

What a policy takes for granted and these have not, some object of a user lacks one day.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from policyd.api.kinds import BuiltinResource, resource
from policyd.api.meta import Json
from policyd.api.policy import MatchConstraints
from policyd.patch.builtin_views import type_of, typed_view

_CONTAINER: Final[Mapping[str, Any]] = {
    "name": "a",
    "image": "a",
    "imagePullPolicy": "Always",
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_POD: Final[Mapping[str, Any]] = {
    "containers": [_CONTAINER],
    "dnsPolicy": "ClusterFirst",
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "serviceAccountName": "default",
    "terminationGracePeriodSeconds": 30,
}
_TEMPLATE: Final[Mapping[str, Any]] = {"metadata": {"labels": {"a": "a"}}, "spec": _POD}
_PODS: Final[Mapping[str, Any]] = {
    "selector": {"matchLabels": {"a": "a"}},
    "template": _TEMPLATE,
    "revisionHistoryLimit": 10,
}
_JOB: Final[Mapping[str, Any]] = {
    "backoffLimit": 6,
    "completionMode": "NonIndexed",
    "completions": 1,
    "parallelism": 1,
    "suspend": False,
    "template": _TEMPLATE,
}
_CRON: Final[Mapping[str, Any]] = {
    "concurrencyPolicy": "Allow",
    "jobTemplate": {"spec": _JOB},
    "schedule": "* * * * *",
    "suspend": False,
}
_PORT: Final[Mapping[str, Any]] = {"port": 80, "protocol": "TCP", "targetPort": 80}
_SERVICE: Final[Mapping[str, Any]] = {
    "ports": [_PORT],
    "selector": {"a": "a"},
    "sessionAffinity": "None",
    "type": "ClusterIP",
}
_LEAST: Final[Mapping[tuple[str, str], Mapping[str, Any]]] = {
    ("", "pods"): {"spec": {**_POD, "enableServiceLinks": True}},
    ("", "configmaps"): {},
    ("", "namespaces"): {"spec": {"finalizers": ["kubernetes"]}},
    ("", "services"): {"spec": _SERVICE},
    ("apps", "deployments"): {"spec": {**_PODS, "replicas": 1, "strategy": {}}},
    ("apps", "statefulsets"): {"spec": {**_PODS, "replicas": 1, "updateStrategy": {}}},
    ("apps", "daemonsets"): {"spec": {**_PODS, "updateStrategy": {}}},
    ("batch", "jobs"): {"spec": _JOB},
    ("batch", "cronjobs"): {"spec": _CRON},
}
"""What objects of a kind have at least when policies see them, the API server's defaults among it,
beside their metadata."""


def least_of(constraints: MatchConstraints, operation: str) -> Iterator[BuiltinResource]:
    """Yield the resources that rules name for an operation, if their least objects are known."""
    for group, plural in _LEAST:
        found = resource(group, "v1", plural)
        if found is not None and any(
            (operation in rule.operations or "*" in rule.operations)
            and (group in rule.api_groups or "*" in rule.api_groups)
            and (plural in rule.resources or "*" in rule.resources)
            for rule in constraints.resource_rules
        ):
            yield found


def least_object(of: BuiltinResource) -> Json:
    """Return an object as policies see it that has nothing but what it must have."""
    version = f"{of.group}/{of.version}" if of.group else of.version
    obj: dict[str, Any] = {"apiVersion": version, "kind": of.kind, "metadata": {"name": "a"}}
    if of.namespaced:
        obj["metadata"] = {"name": "a", "namespace": "default"}
    obj |= _LEAST[of.group, of.plural]
    struct = type_of(obj)
    return obj if struct is None else typed_view(obj, struct)[0]
