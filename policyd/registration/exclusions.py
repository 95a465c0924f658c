"""Resources that the API server does not send to the webhooks, whichever policy names them.

An attacker who has taken over the webhooks sees every request that is sent to them, and decides on
it. So Secrets, roles and their bindings can be excluded.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from policyd.registration.atoms import RuleAtom, atoms_of, rules_of
from policyd.registration.webhook_rules import DerivedWebhook


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludedRequests:
    """Requests that are not sent.

    Attributes:
        atom: Which they are, on any operation.
        verbs: Whether they are left out of mutating calls, of validating calls, or of both.
        condition: CEL by which the API server leaves them out of a wildcard. The
            chart's policies on the webhooks' account contain these words.
    """

    atom: RuleAtom
    verbs: frozenset[str]
    condition: str


LEFT_OUT: Final = {
    "secrets": ExcludedRequests(
        atom=RuleAtom("", "*", "*", "secrets", "*"),
        verbs=frozenset({"mutate", "validate"}),
        condition="request.resource.group != '' || request.resource.resource != 'secrets'",
    ),
    "roles": ExcludedRequests(
        atom=RuleAtom("rbac.authorization.k8s.io", "*", "*", "*/*", "*"),
        verbs=frozenset({"mutate"}),
        condition="request.resource.group != 'rbac.authorization.k8s.io'",
    ),
}
"""The resources that can be excluded, by name."""


def leave_out(
    calls: Iterable[DerivedWebhook], verb: str, names: Iterable[str]
) -> Iterator[DerivedWebhook]:
    """Yield webhook rules without the excluded resources; rules for nothing else are gone.

    Args:
        calls: The rules of the policies.
        verb: `mutate` or `validate`.
        names: Keys of `LEFT_OUT`.
    """
    chosen = {name: LEFT_OUT[name] for name in sorted(names) if verb in LEFT_OUT[name].verbs}
    for call in calls:
        atoms = _atoms(call)
        kept = {c for c in atoms if not any(_names(c, each.atom) for each in chosen.values())}
        wide = [n for n, each in chosen.items() if any(c.overlaps(each.atom) for c in kept)]
        if kept == atoms and not wide:
            yield call
        elif kept:
            yield replace(call, rules=rules_of(kept), left_out=tuple(wide))


def named_in_vain(calls: Iterable[DerivedWebhook], verb: str, names: Iterable[str]) -> set[str]:
    """Return the excluded names that a policy names without effect."""
    atoms = {atom for call in calls for atom in _atoms(call)}
    chosen = {name: LEFT_OUT[name] for name in names if verb in LEFT_OUT[name].verbs}
    return {n for n, each in chosen.items() if any(_names(c, each.atom) for c in atoms)}


def _atoms(call: DerivedWebhook) -> set[RuleAtom]:
    return {atom for rule in call.rules for atom in atoms_of(rule)}


def _names(atom: RuleAtom, left_out: RuleAtom) -> bool:
    """Tell whether an atom concerns excluded resources only, their subresources included."""
    resource = atom.resource.partition("/")[0]
    return atom.group == left_out.group and left_out.resource in {"*/*", resource}
