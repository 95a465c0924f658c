"""What the API server is not to send to the webhooks, whichever policy is about it.

Who has taken over the webhooks sees what is sent to them, and decides what becomes of it. So they
can do without passwords, and without a say in who may do what.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from policyd.registration.atoms import Cell, cells_of, rules_of
from policyd.registration.webhook_rules import DerivedWebhook


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludedRequests:
    """Requests that are not sent.

    Attributes:
        cell: Which they are, on any operation.
        verbs: Whether they are left out where objects are changed, where they are checked, or both.
        condition: CEL by which the API server leaves them out of what a wildcard covers. The
            chart's policies on the webhooks' account look for these words.
    """

    cell: Cell
    verbs: frozenset[str]
    condition: str


LEFT_OUT: Final = {
    "secrets": ExcludedRequests(
        cell=Cell("", "*", "*", "secrets", "*"),
        verbs=frozenset({"mutate", "validate"}),
        condition="request.resource.group != '' || request.resource.resource != 'secrets'",
    ),
    "roles": ExcludedRequests(
        cell=Cell("rbac.authorization.k8s.io", "*", "*", "*/*", "*"),
        verbs=frozenset({"mutate"}),
        condition="request.resource.group != 'rbac.authorization.k8s.io'",
    ),
}
"""What can be left out, by name."""


def leave_out(
    calls: Iterable[DerivedWebhook], verb: str, names: Iterable[str]
) -> Iterator[DerivedWebhook]:
    """Yield calls without what is to be left out; one that is about nothing else is gone.

    Args:
        calls: What policies ask for.
        verb: `mutate` or `validate`.
        names: Keys of `LEFT_OUT`.
    """
    chosen = {name: LEFT_OUT[name] for name in sorted(names) if verb in LEFT_OUT[name].verbs}
    for call in calls:
        cells = _cells(call)
        kept = {c for c in cells if not any(_names(c, each.cell) for each in chosen.values())}
        wide = [n for n, each in chosen.items() if any(c.overlaps(each.cell) for c in kept)]
        if kept == cells and not wide:
            yield call
        elif kept:
            yield replace(call, rules=rules_of(kept), left_out=tuple(wide))


def named_in_vain(calls: Iterable[DerivedWebhook], verb: str, names: Iterable[str]) -> set[str]:
    """Return the names of what is left out although a policy is about it and nothing else."""
    cells = {cell for call in calls for cell in _cells(call)}
    chosen = {name: LEFT_OUT[name] for name in names if verb in LEFT_OUT[name].verbs}
    return {n for n, each in chosen.items() if any(_names(c, each.cell) for c in cells)}


def _cells(call: DerivedWebhook) -> set[Cell]:
    return {cell for rule in call.rules for cell in cells_of(rule)}


def _names(cell: Cell, left_out: Cell) -> bool:
    """Tell whether a cell is about nothing but what is left out, parts of it included."""
    resource = cell.resource.partition("/")[0]
    return cell.group == left_out.group and left_out.resource in {"*/*", resource}
