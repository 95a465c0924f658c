"""The rules of where a pod may run: affinity, spreading, tolerations, gates."""

from collections.abc import Iterator, Sequence

from policyd.local.apiserver.checks import metadata
from policyd.local.apiserver.status import Cause, Object, duplicate, not_supported, required, wrong

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")
OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def check_affinity(affinity: Object, path: str) -> Iterator[Cause]:
    """Check which nodes and which other pods a pod wants to be near to."""
    node = affinity.get("nodeAffinity", {})
    if REQUIRED in node:
        terms, at = node[REQUIRED].get("nodeSelectorTerms", ()), f"{path}.nodeAffinity.{REQUIRED}"
        if not terms:
            why = "must have at least one node selector term"
            yield required(f"{at}.nodeSelectorTerms", why)
        for index, term in enumerate(terms):
            yield from _check_term(term, f"{at}.nodeSelectorTerms[{index}]")
    for index, preferred in enumerate(node.get(PREFERRED, ())):
        at = f"{path}.nodeAffinity.{PREFERRED}[{index}]"
        yield from _check_weight(preferred, at)
        yield from _check_term(preferred.get("preference", {}), f"{at}.preference")
    for kind in ("podAffinity", "podAntiAffinity"):
        yield from _check_pod_affinity(affinity.get(kind, {}), f"{path}.{kind}")


def _check_pod_affinity(affinity: Object, path: str) -> Iterator[Cause]:
    for index, term in enumerate(affinity.get(REQUIRED, ())):
        yield from _check_topology_key(term, f"{path}.{REQUIRED}[{index}]")
    for index, preferred in enumerate(affinity.get(PREFERRED, ())):
        at = f"{path}.{PREFERRED}[{index}]"
        yield from _check_weight(preferred, at)
        yield from _check_topology_key(
            preferred.get("podAffinityTerm", {}), f"{at}.podAffinityTerm"
        )


def _check_topology_key(term: Object, path: str) -> Iterator[Cause]:
    key = term.get("topologyKey", "")
    if not key:
        yield required(f"{path}.topologyKey", "can not be empty")
    for line in metadata.qualified_name(key):
        yield wrong(f"{path}.topologyKey", key, line)


def _check_weight(preferred: Object, path: str) -> Iterator[Cause]:
    weight = preferred.get("weight", 0)
    if not 1 <= weight <= 100:
        yield wrong(f"{path}.weight", weight, "must be in the range 1-100")


def _check_term(term: Object, path: str) -> Iterator[Cause]:
    for index, expression in enumerate(term.get("matchExpressions", ())):
        yield from _check_expression(expression, f"{path}.matchExpressions[{index}]")


def _check_expression(expression: Object, path: str) -> Iterator[Cause]:
    operator, values = expression.get("operator", ""), expression.get("values", ())
    if operator not in OPERATORS:
        yield wrong(f"{path}.operator", operator, "not a valid selector operator")
    elif operator in {"In", "NotIn"} and not values:
        why = "must be specified when `operator` is 'In' or 'NotIn'"
        yield required(f"{path}.values", why)
    elif operator in {"Exists", "DoesNotExist"} and values:
        why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        yield Cause("FieldValueForbidden", f"Forbidden: {why}", f"{path}.values")
    elif operator in {"Gt", "Lt"} and len(values) != 1:
        why = "must be specified single value when `operator` is 'Lt' or 'Gt'"
        yield required(f"{path}.values", why)
    key = expression.get("key", "")
    yield from (wrong(f"{path}.key", key, line) for line in metadata.qualified_name(key))


def check_spreading(constraints: Sequence[Object], path: str) -> Iterator[Cause]:
    """Check how a pod is to be spread."""
    for index, constraint in enumerate(constraints):
        at, skew = f"{path}[{index}]", constraint.get("maxSkew", 0)
        if skew <= 0:
            yield wrong(f"{at}.maxSkew", skew, "must be greater than zero")
        key = constraint.get("topologyKey", "")
        if not key:
            yield required(f"{at}.topologyKey", "can not be empty")
        else:
            yield from (
                wrong(f"{at}.topologyKey", key, line) for line in metadata.qualified_name(key)
            )
        what = constraint.get("whenUnsatisfiable", "")
        if what not in UNSATISFIABLE:
            yield not_supported(f"{at}.whenUnsatisfiable", what, UNSATISFIABLE)


def check_tolerations(tolerations: Sequence[Object], path: str) -> Iterator[Cause]:
    """Check which taints a pod tolerates."""
    for index, toleration in enumerate(tolerations):
        yield from _check_toleration(toleration, f"{path}[{index}]")


def _check_toleration(toleration: Object, path: str) -> Iterator[Cause]:
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    value, effect = toleration.get("value", ""), toleration.get("effect", "")
    if key:
        yield from (wrong(f"{path}.key", key, line) for line in metadata.qualified_name(key))
    elif operator != "Exists":
        why = (
            "operator must be Exists when `key` is empty, which means"
            ' "match all values and all keys"'
        )
        yield wrong(f"{path}.operator", operator, why)
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield wrong(f"{path}.effect", effect, why)
    if operator == "Exists" and value:
        why = "value must be empty when `operator` is 'Exists'"
        yield wrong(f"{path}.operator", value, why)
    if operator not in {"", "Exists", "Equal"}:
        yield not_supported(f"{path}.operator", operator, ("Equal", "Exists"))
    if effect and effect not in EFFECTS:
        yield not_supported(f"{path}.effect", effect, EFFECTS)


def check_gates(gates: Sequence[Object], path: str) -> Iterator[Cause]:
    """Check the scheduling gates of a pod."""
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name", "")
        for line in metadata.qualified_name(name):
            yield wrong(f"{path}[{index}]", name, line)
        if name in seen:
            yield duplicate(f"{path}[{index}]", name)
        seen.add(name)
