"""Extend policies for pods to the pod templates of controllers.

Kyverno rewrites the text of such a policy for each controller. Here the policy stays as it is, and
sees the template as if it were a pod: helpers and aliases work, and errors point into the source.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from policyd.api.admission import Rule
from policyd.api.policy import MatchResources
from policyd.engine.objects.match import selects_all
from policyd.engine.objects.workloads import KINDS

_APPS: Final = ("daemonsets", "deployments", "replicasets", "statefulsets")
_BATCH: Final = ("cronjobs", "jobs")

CONTROLLERS: Final[Mapping[str, str]] = {
    **dict.fromkeys(_APPS, "apps"),
    **dict.fromkeys(_BATCH, "batch"),
}
"""The controllers a policy for pods is extended to, unless it says which, and their groups."""

CLUSTER_POLICY_CONTROLLERS: Final[Mapping[str, str]] = {**CONTROLLERS, "replicationcontrollers": ""}
"""Those that a ClusterPolicy is extended to, unless it says which."""

_KNOWN: Final = frozenset((kind.plural, kind.group) for kind in KINDS if kind.kind != "Pod")
"""Plurals and groups of all kinds whose pod templates are known."""

ANNOTATION: Final = "pod-policies.kyverno.io/autogen-controllers"
"""Names the controllers for a ClusterPolicy: `none`, `all`, or kinds."""


def is_for_pods(constraints: MatchResources) -> bool:
    """Tell whether a policy is one that Kyverno extends: one plain rule, for pods."""
    rules = constraints.resource_rules
    return (
        len(rules) == 1
        and rules[0].resources == ("pods",)
        and rules[0].api_groups == ("",)
        and rules[0].api_versions == ("v1",)
        and not rules[0].resource_names
        and not constraints.exclude_resource_rules
        and selects_all(constraints.object_selector)
    )


def controller_rules(controllers: Iterable[str], operations: tuple[str, ...]) -> tuple[Rule, ...]:
    """Return the rules for the pod templates of controllers; names that are none are left out."""
    found = filter(None, map(_group_version_plural, controllers))
    return tuple(
        Rule(
            api_groups=(group,), api_versions=(version,), operations=operations, resources=(plural,)
        )
        for group, version, plural in found
    )


def is_controller(name: str) -> bool:
    """Tell whether a name is one of a controller whose pod templates are known."""
    return _group_version_plural(name) is not None


def _group_version_plural(name: str) -> tuple[str, str, str] | None:
    """Return the resource of a name: a plural, or `jobsets.v1alpha2.jobset.x-k8s.io`."""
    plural, dot, rest = name.partition(".")
    version, _, group = rest.partition(".")
    if dot:
        return (group, version, plural) if (plural, group) in _KNOWN else None
    if plural in CLUSTER_POLICY_CONTROLLERS:
        return CLUSTER_POLICY_CONTROLLERS[plural], "v1", plural
    return next(((group, "*", plural) for known, group in _KNOWN if known == plural), None)


def annotated_controllers(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Return the controllers that a ClusterPolicy's annotation names; all if it has none."""
    given = annotations.get(ANNOTATION, "all").strip()
    if given == "none":
        return ()
    if given in ("", "all"):
        return tuple(CLUSTER_POLICY_CONTROLLERS)
    named = (f"{kind.strip().lower()}s" for kind in given.split(","))
    return tuple(name for name in named if name in CLUSTER_POLICY_CONTROLLERS)
