"""Combine policies with their bindings, which may be in other files."""

from collections.abc import Collection, Iterable
from dataclasses import replace

import msgspec

from policyd.engine.documents.findings import Finding
from policyd.engine.model.compiled import (
    MUTATING,
    OWN,
    VALIDATING,
    CompiledBinding,
    CompiledException,
    CompiledPolicy,
)
from policyd.errors import did_you_mean

NEEDS_BINDING = frozenset({VALIDATING, MUTATING})
"""Kinds that do nothing without a binding."""

BINDING_KINDS = {
    "PolicyBinding": OWN,
    "ValidatingAdmissionPolicyBinding": VALIDATING,
    "MutatingAdmissionPolicyBinding": MUTATING,
}
"""The kinds of bindings, and the kinds of policies they are for."""


def check_bindings(
    policies: Iterable[CompiledPolicy],
    bindings: Iterable[CompiledBinding],
    faulty: Collection[tuple[str, str]] = (),
) -> list[Finding]:
    """Say which bindings are for no policy, and which policies do nothing for want of a binding.

    Either may be meant: the other half may be elsewhere.

    Args:
        policies: The policies.
        bindings: The bindings, those with an error included.
        faulty: The kind and name of each policy with an error.
    """
    known = {(policy.kind, policy.name): policy for policy in policies}
    bound = {(binding.policy_kind, binding.policy): binding for binding in bindings}
    findings = [
        _absent(binding.place, f"binding `{binding.name}` is for", key, known, faulty)
        for key, binding in bound.items()
        if key not in known
    ]
    for (kind, name), policy in known.items():
        if needs_binding(policy) and not {(kind, name), (kind, policy.shadow_of)} & bound.keys():
            message = f"`{name}` has no effect without a binding"
            hint = f"add a {kind}Binding with `policyName: {name}`"
            findings.append(_warning(policy.place, message, hint))
        if policy.own and (kind, name) in bound and not needs_binding(policy):
            message = f"`{name}` would apply everywhere without its bindings"
            findings.append(_warning(policy.place, message, "set `requiresBinding: true`"))
        if policy.shadow_of not in {"", name} and (kind, policy.shadow_of) not in known:
            others = [key for key in known if key != (kind, name)]
            what = f"`{name}` is a shadow of"
            findings.append(_absent(policy.place, what, (kind, policy.shadow_of), others, faulty))
    return findings


def check_exceptions(
    policies: Iterable[CompiledPolicy],
    exceptions: Iterable[CompiledException],
    faulty: Iterable[tuple[str, str]] = (),
) -> list[Finding]:
    """Report exceptions from policies that are not loaded: they may be elsewhere."""
    faulty = {(kind, name) for of, name in faulty for kind in (of, "")}
    known = {(kind, policy.name) for policy in policies for kind in (policy.kind, "")}
    return [
        _absent(exception.place, f"exception `{exception.name}` is from", key, known, faulty)
        for exception in exceptions
        for key in sorted(exception.policies - known)
    ]


def _absent(
    place: str,
    what: str,
    key: tuple[str, str],
    known: Iterable[tuple[str, str]],
    faulty: Collection[tuple[str, str]],
) -> Finding:
    """Warn of something that names a policy which cannot be used."""
    kind, name = key
    if key in faulty:
        return _warning(place, f"{what} `{name}`, which has an error", None)
    near = did_you_mean(name, [other for other_kind, other in known if other_kind == kind])
    return _warning(place, f"{what} `{name}`, which is not here", near)


def needs_binding(policy: CompiledPolicy) -> bool:
    """Tell whether a policy does nothing without a binding.

    One of policyd's own does if it says so, or has params and does not say which.
    """
    spec = policy.policy.spec
    return policy.kind in NEEDS_BINDING or (
        policy.own
        and (spec.requires_binding or (spec.param_kind is not None and spec.param_ref is None))
    )


def _warning(place: str, message: str, hint: str | None) -> Finding:
    return Finding(source=place, message=message, hint=hint, severity="warning")


def bind(
    policies: Iterable[CompiledPolicy],
    bindings: Iterable[CompiledBinding],
    exceptions: Iterable[CompiledException] = (),
) -> list[CompiledPolicy]:
    """Give each policy its bindings, ordered by name; leave out those that need one and have none.

    A policy of policyd's own applies by its bindings alone if it has any, and by itself if not. A
    shadow without bindings has those of the policy it may replace.
    """
    by_policy: dict[tuple[str, str], list[CompiledBinding]] = {}
    for binding in sorted(bindings, key=lambda binding: binding.name):
        by_policy.setdefault((binding.policy_kind, binding.policy), []).append(binding)
    bound = []
    exceptions = tuple(exceptions)
    for policy in (_excepted(policy, exceptions) for policy in policies):
        found = by_policy.get((policy.kind, policy.name))
        if found is None and policy.shadow_of:
            found = by_policy.get((policy.kind, policy.shadow_of))
        if found:
            bound.append(replace(policy, bindings=tuple(completed(b, policy) for b in found)))
        elif not needs_binding(policy):
            bound.append(policy)
    return bound


def _excepted(policy: CompiledPolicy, exceptions: tuple[CompiledException, ...]) -> CompiledPolicy:
    """Give a policy the exceptions that name it."""
    names = {(policy.kind, policy.name), ("", policy.name)}
    own = tuple(exception for exception in exceptions if not names.isdisjoint(exception.policies))
    if not own:
        return policy
    uses = policy.uses.union(*(exception.uses for exception in own))
    return replace(policy, exceptions=(*policy.exceptions, *own), uses=uses)


def completed(binding: CompiledBinding, policy: CompiledPolicy) -> CompiledBinding:
    """Complete a binding of policyd's own kind with the fields of its policy."""
    if binding.actions:
        return binding
    own = policy.bindings[0]
    return replace(binding, actions=own.actions, rollout=binding.rollout or own.rollout)


def in_force(shadow: CompiledPolicy) -> CompiledPolicy:
    """Return a shadow as the policy that it would be in the place of the one it may replace."""
    spec = msgspec.structs.replace(shadow.policy.spec, shadow_of="")
    return replace(shadow, policy=msgspec.structs.replace(shadow.policy, spec=spec))
