"""Determine the enforcement of a policy for one request while it is rolled out.

Theory of operation. A workload has a place between 0 and 99, by a hash of the policy's name and of
its own. A step picks those below its percentage, so that raising the percentage adds workloads and
removes none; and as all steps of a policy use the same place, those warned first are also the
first to be refused. The place is computed from an object's own fields, from its owner down: it is
the same in every replica, after a restart, on an update, in a scan, and off line.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from policyd.api.meta import Json
from policyd.api.rollout import RolloutStep
from policyd.engine.model.compiled import CompiledBinding, CompiledPolicy
from policyd.engine.model.facts import Facts
from policyd.engine.objects.match import UnknownNamespaceError, labels_of, selects_namespace
from policyd.engine.objects.workloads import value_at

ROLLED_OUT: Final = "rollout"
"""Key of the audit annotation that says how strictly a policy was enforced, and why."""

_WORKLOAD_LABELS: Final = (
    "jobset.sigs.k8s.io/jobset-name",
    "leaderworkerset.sigs.k8s.io/name",
    "training.kubeflow.org/job-name",
    "ray.io/cluster",
    "kueue.x-k8s.io/pod-group-name",
)
"""Labels of pods that name the whole that a pod's owner is only a part of."""

_CRON_MINUTES: Final = re.compile(r"-\d{8,}$")
"""The suffix of a CronJob's jobs: minutes since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutEnforcement:
    """The enforcement of a policy for one request, by one binding.

    Attributes:
        binding: The name of the binding; empty for the policy's own roll-out.
        enforcement: The effect of a validation that is not true; `Skip` if none is evaluated.
        step: The step that decided, from 0; None if none picks the request.
        place: The workload's place, from 0 to 99.
        workload: Whose place that is.
    """

    binding: str
    enforcement: str
    step: int | None
    place: int
    workload: str

    def __str__(self) -> str:
        by = "no step matches it" if self.step is None else f"rollout[{self.step}]"
        bound = f" by binding {self.binding}" if self.binding else ""
        return f"{self.enforcement}{bound}: {by}, {self.workload} is at {self.place} of 100"


def stage(
    policy: CompiledPolicy, facts: Facts
) -> tuple[CompiledPolicy | None, tuple[RolloutEnforcement, ...]]:
    """Return a policy as it is enforced for a request, and why so; None if it is left out.

    Later steps need no knowledge of roll-outs.
    """
    workload = workload_name(facts)
    place = place_of(policy.name, workload)
    staged = tuple(_staged(b, facts, place, workload) for b in policy.bindings)
    bindings = tuple(_applied(policy.bindings, staged))
    return (replace(policy, bindings=bindings) if bindings else None), staged


def place_of(policy: str, workload: str) -> int:
    """Return a workload's place in the roll-out of a policy: one of a hundred, all as likely."""
    digest = hashlib.blake2b(f"{policy}\n{workload}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % 100


def workload_name(facts: Facts) -> str:
    """Return `namespace/name` of the workload that an object is or belongs to.

    The pods of a job, the jobs of a CronJob or JobSet and the pods of a Deployment have its name.
    A generated name counts by its prefix, as the rest is not known at first.
    """
    namespace = facts.request.namespace if facts.attributes.namespaced else ""
    name = _own_name(facts.subject) or facts.request.name
    return f"{namespace}/{name}" if namespace else name


def _own_name(obj: Json) -> str:
    labels = labels_of(obj)
    metadata = value_at(obj, ("metadata",))
    if not isinstance(metadata, dict):
        return ""
    named = next((labels[key] for key in _WORKLOAD_LABELS if labels.get(key)), "")
    if named:
        return str(named)
    owner = _owner(metadata)
    if owner is not None:
        return _without_suffix(owner, labels)
    begun = str(metadata.get("generateName") or "").rstrip("-.")
    name = begun or str(metadata.get("name") or "")
    return _without_suffix({"kind": obj.get("kind"), "name": name}, {})


def _owner(metadata: Json) -> Json | None:
    owners = metadata.get("ownerReferences")
    given = [o for o in owners if isinstance(o, dict)] if isinstance(owners, list) else []
    return next((o for o in given if o.get("controller")), given[0] if given else None)


def _without_suffix(owner: Json, labels: object) -> str:
    """Return the name of an owner, or of the Deployment or CronJob that it is named after."""
    name, kind = str(owner.get("name") or ""), owner.get("kind")
    if kind == "Job":
        return _CRON_MINUTES.sub("", name)
    template = labels.get("pod-template-hash") if isinstance(labels, dict) else None
    return name.removesuffix(f"-{template}") if kind == "ReplicaSet" and template else name


def _staged(
    binding: CompiledBinding, facts: Facts, place: int, workload: str
) -> RolloutEnforcement:
    """Say which step of a binding picks a request; without one, its enforcement stands."""
    picks = (i for i, step in enumerate(binding.rollout) if _picks(step, facts, place))
    index = next(picks, None)
    actions = "+".join(binding.actions)
    enforcement = actions if index is None else binding.rollout[index].enforcement
    return RolloutEnforcement(
        binding=binding.name, enforcement=enforcement, step=index, place=place, workload=workload
    )


def _picks(step: RolloutStep, facts: Facts, place: int) -> bool:
    """Tell whether a step is for a request; not if its namespace is not known."""
    attributes = facts.attributes
    if place >= step.percent or (step.namespaces and attributes.namespace not in step.namespaces):
        return False
    obj = facts.object if attributes.for_namespace else None
    try:
        return selects_namespace(
            step.namespace_selector, attributes, obj, namespaces=facts.namespaces
        )
    except UnknownNamespaceError:
        return False


def _applied(
    bindings: tuple[CompiledBinding, ...], staged: tuple[RolloutEnforcement, ...]
) -> Iterator[CompiledBinding]:
    for binding, staged_at in zip(bindings, staged, strict=True):
        enforcement = (
            None if staged_at.step is None else binding.rollout[staged_at.step].enforcement
        )
        if enforcement is None:
            yield replace(binding, rollout=())
        elif enforcement != "Skip":
            yield replace(binding, actions=(enforcement,), rollout=())
