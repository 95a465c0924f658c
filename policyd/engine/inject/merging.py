"""Merge each field that `inject` can set with the object's own value.

Every function here changes a draft and is idempotent: it recognizes its own additions. The
author's values are kept, unless the edit overrides. Values are JSON, as the API server takes them.

Of node affinity, terms of a node selector are alternatives, and the conditions in a term must all
hold. So requirements join every term that the author wrote, and only an object without terms takes
them as they are. A condition on a label that a term names already stays the author's.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from policyd.api.kueue.names import (
    MIN_PARALLELISM,
    POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT,
    PODSET_PREFERRED_TOPOLOGY,
    PODSET_REQUIRED_TOPOLOGY,
    PODSET_UNCONSTRAINED_TOPOLOGY,
    PRIORITY_CLASS,
    QUEUE_NAME,
)
from policyd.api.meta import Json
from policyd.api.quantity import QuantityError, parse_quantity
from policyd.engine.objects.workloads import value_at
from policyd.errors import PolicydError
from policyd.patch.draft import Draft
from policyd.patch.operations import Path, same_json

TOPOLOGY = {
    "required": PODSET_REQUIRED_TOPOLOGY,
    "preferred": PODSET_PREFERRED_TOPOLOGY,
    "unconstrained": PODSET_UNCONSTRAINED_TOPOLOGY,
}


_OBJECTS = {dict}
"""The types that the items of a list of objects have: decoded JSON has no other mappings."""


class InjectError(PolicydError):
    """Something cannot be set on this object."""


class Edit(msgspec.Struct, frozen=True):  # made many times a review, three times as fast
    """A position to merge at: `at` is the path of the object, pod or pod template in the draft."""

    draft: Draft
    at: Path
    override: bool = False

    def get(self, *path: str | int) -> Json:
        """Return the current value, None if there is none."""
        return self.draft.get((*self.at, *path))

    def put(self, value: Json, *path: str | int) -> None:
        """Set a value, unless the author set one."""
        if self.override or self.get(*path) is None:
            self.draft.set((*self.at, *path), value)

    def put_name(self, name: str, *path: str | int) -> None:
        """Set a name, unless one is set; an empty name is not set."""
        if self.override or not self.get(*path):
            self.draft.set((*self.at, *path), name)

    def items(self, *path: str | int) -> list[Json]:
        """Return the list of objects there, empty if there is none.

        Raises:
            InjectError: If there is something else.
        """
        value = self.draft.get((*self.at, *path))
        if value is None:
            return []
        if not isinstance(value, list) or not set(map(type, value)) <= _OBJECTS:
            raise InjectError(
                f"`{'.'.join(map(str, path))}` of the object is not a list of objects"
            )
        return value


Merge = Callable[[Edit, Json], None]
"""Merges a value at the position of an edit."""


def set_labels(edit: Edit, labels: Mapping[str, str]) -> None:
    """Set labels of the object or pod, each for itself."""
    for key, value in labels.items():
        edit.put(value, "metadata", "labels", key)


def set_annotations(edit: Edit, annotations: Mapping[str, str]) -> None:
    """Set annotations of the object or pod, each for itself."""
    for key, value in annotations.items():
        edit.put(value, "metadata", "annotations", key)


def set_queue_name(edit: Edit, queue: str) -> None:
    """Name the LocalQueue that the object waits in."""
    edit.put_name(queue, "metadata", "labels", QUEUE_NAME)


def set_workload_priority_class(edit: Edit, name: str) -> None:
    """Name the WorkloadPriorityClass that orders the object in its queue."""
    edit.put_name(name, "metadata", "labels", PRIORITY_CLASS)


def set_priority_class(edit: Edit, name: str) -> None:
    """Name the PriorityClass of the pods.

    The API server's own plug-in has given a pod without a class the default priority by now, and
    refuses a pod whose number and class differ: the number goes, and it computes it anew.
    """
    if edit.get("spec", "priorityClassName") == name:
        return
    if edit.override or not edit.get("spec", "priorityClassName"):
        edit.draft.set((*edit.at, "spec", "priorityClassName"), name)
        edit.draft.remove((*edit.at, "spec", "priority"))
        edit.draft.remove((*edit.at, "spec", "preemptionPolicy"))


def set_named(edit: Edit, name: str, *, field: str) -> None:
    """Name something in a field of the pod spec."""
    edit.put_name(name, "spec", field)


def set_node_selector(edit: Edit, selector: Mapping[str, str]) -> None:
    """Ask for labels of the node, each for itself."""
    for key, value in selector.items():
        edit.put(value, "spec", "nodeSelector", key)


def add_tolerations(edit: Edit, tolerations: Sequence[Mapping[str, Json]]) -> None:
    """Add the tolerations that are not covered by an existing one.

    With override, others for the same key and effect go.
    """
    path = ("spec", "tolerations")
    if edit.override:
        taints = [_taint(wanted) for wanted in tolerations]
        for index, other in reversed(list(enumerate(edit.items(*path)))):
            if _taint(other) in taints and not any(same_json(other, t) for t in tolerations):
                edit.draft.remove((*edit.at, *path, index))
    for wanted in tolerations:
        present = edit.items(*path)
        if wanted in present:  # most often it was injected before, and found at once
            continue
        key = wanted.get("key")
        near = [other for other in present if other.get("key") in (key, None, "")]
        if not any(_covers(o, wanted) or _identity(o) == _identity(wanted) for o in near):
            edit.draft.append((*edit.at, *path), wanted)


def _taint(toleration: Mapping[str, Json]) -> tuple[Json, Json]:
    return toleration.get("key") or "", toleration.get("effect") or ""


def _identity(toleration: Mapping[str, Json]) -> tuple[Json, ...]:
    """Return the identity of a toleration, with defaults filled in."""
    operator = toleration.get("operator") or "Equal"
    return (*_taint(toleration), operator, toleration.get("value") or "")


def _covers(present: Mapping[str, Json], wanted: Mapping[str, Json]) -> bool:
    """Tell whether `present` puts up with every taint that `wanted` does, and as long."""
    if present.get("tolerationSeconds") not in (None, wanted.get("tolerationSeconds")):
        return False
    key, effect, operator, value = _identity(present)
    wanted_key, wanted_effect, wanted_operator, wanted_value = _identity(wanted)
    if effect not in ("", wanted_effect):
        return False
    if operator == "Exists":
        return key in ("", wanted_key)
    return bool((key, operator, value) == (wanted_key, wanted_operator, wanted_value))


def add_spread_constraints(edit: Edit, constraints: Iterable[Mapping[str, Json]]) -> None:
    """Add topology spread constraints; there is one per topology key and `whenUnsatisfiable`."""
    for wanted in constraints:
        present = edit.items("spec", "topologySpreadConstraints")
        identity = (wanted.get("topologyKey"), wanted.get("whenUnsatisfiable"))
        same = [
            index
            for index, other in enumerate(present)
            if (other.get("topologyKey"), other.get("whenUnsatisfiable")) == identity
        ]
        if not same:
            edit.draft.append((*edit.at, "spec", "topologySpreadConstraints"), wanted)
        elif edit.override:
            edit.draft.set((*edit.at, "spec", "topologySpreadConstraints", same[0]), wanted)


def add_scheduling_gates(edit: Edit, gates: Iterable[Mapping[str, Json]]) -> None:
    """Add scheduling gates by name."""
    for gate in gates:
        present = edit.items("spec", "schedulingGates")
        if not any(other.get("name") == gate.get("name") for other in present):
            edit.draft.append((*edit.at, "spec", "schedulingGates"), gate)


def request_topology(edit: Edit, topology: Mapping[str, Json]) -> None:
    """Ask for pods close together, unless the author asked for a placement of their own."""
    annotations = edit.get("metadata", "annotations")
    given = [
        key for key in TOPOLOGY.values() if isinstance(annotations, dict) and key in annotations
    ]
    if given and not edit.override:
        return
    for how, value in topology.items():
        if value is False:
            continue
        wanted = TOPOLOGY[how]
        for key in given:
            if key != wanted:
                edit.draft.remove((*edit.at, "metadata", "annotations", key))
        text = "true" if value is True else value
        edit.draft.set((*edit.at, "metadata", "annotations", wanted), text)


def form_gang_of_pods(edit: Edit, gang: Mapping[str, Json]) -> None:
    """Make a plain pod a member of a group; without a name, only if it is in one already."""
    label = edit.get("metadata", "labels", POD_GROUP_NAME)
    given = edit.get("metadata", "annotations", POD_GROUP_NAME) or label
    name = gang.get("name")
    if name and (edit.override or not given):
        edit.draft.set((*edit.at, "metadata", "labels", POD_GROUP_NAME), name)
        if edit.override:
            edit.draft.remove((*edit.at, "metadata", "annotations", POD_GROUP_NAME))
    elif not given:
        return
    edit.put(str(gang["minMember"]), "metadata", "annotations", POD_GROUP_TOTAL_COUNT)


def form_gang_of_job(edit: Edit, gang: Mapping[str, Json]) -> None:
    """Let a Job start with fewer pods than it wants, but no fewer than the gang.

    A job is admitted whole by itself, so that a gang of all its pods needs nothing.
    """
    parallelism = edit.get("spec", "parallelism")
    if isinstance(parallelism, int) and gang["minMember"] < parallelism:
        edit.put(str(gang["minMember"]), "metadata", "annotations", MIN_PARALLELISM)


def default_resources(edit: Edit, resources: Mapping[str, Mapping[str, Json]]) -> None:
    """Set the requests and limits of containers whose authors left them out.

    A request that is not stated is the limit if there is one, as in the API server; a limit is
    never set below a stated request. Amounts for the pod as a whole count as stated.
    """
    whole = edit.get("spec", "resources")
    for field in ("initContainers", "containers"):
        for index, container in enumerate(edit.items("spec", field)):
            at = (*edit.at, "spec", field, index)
            inner = Edit(edit.draft, at, edit.override)
            _default_requests(inner, container, whole, resources.get("requests", {}))
            _default_limits(inner, container, whole, resources.get("limits", {}))


def _default_requests(
    edit: Edit, container: Json, whole: Json, requests: Mapping[str, Json]
) -> None:
    for name, amount in requests.items():
        stated = _stated(container, name) or _stated({"resources": whole}, name)
        if edit.override or not stated:
            edit.draft.set((*edit.at, "resources", "requests", name), amount)


def _default_limits(edit: Edit, container: Json, whole: Json, limits: Mapping[str, Json]) -> None:
    for name, amount in limits.items():
        if edit.override:
            edit.draft.set((*edit.at, "resources", "limits", name), amount)
        elif value_at(whole, ("limits", name)) is None:
            request = value_at(container, ("resources", "requests", name))
            edit.put(_larger(amount, request), "resources", "limits", name)


def _stated(container: Json, resource: str) -> bool:
    for side in ("requests", "limits"):
        if value_at(container, ("resources", side, resource)) is not None:
            return True
    return False


def _larger(amount: Json, request: Json) -> Json:
    if request is None:
        return amount
    try:
        return request if parse_quantity(request) > parse_quantity(amount) else amount
    except QuantityError as error:
        raise InjectError(f"`{request}` is not a quantity") from error


_AFFINITY = ("spec", "affinity", "nodeAffinity")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_CONDITIONS = ("matchExpressions", "matchFields")

Term = Mapping[str, Json]


def add_affinity(edit: Edit, affinity: Mapping[str, Json]) -> None:
    """Draw the pods to nodes.

    Raises:
        InjectError: If the object's own affinity is misshapen.
    """
    wanted = affinity.get("nodeAffinity", {})
    required = value_at(wanted, (_REQUIRED, "nodeSelectorTerms"))
    if required:
        _require(edit, [term for term in map(_without_empty, required) if term])
    for preferred in wanted.get(_PREFERRED, ()):
        _prefer(edit, preferred)


def _require(edit: Edit, wanted: list[Term]) -> None:
    if not wanted:
        return
    path = (*_AFFINITY, _REQUIRED, "nodeSelectorTerms")
    present = edit.items(*path)
    joined = [term for own in present for term in _join(own, wanted, override=edit.override)]
    if not same_json(joined, present) or not present:
        edit.draft.set((*edit.at, *path), _distinct(joined or wanted))


def _join(own: Term, wanted: list[Term], *, override: bool) -> list[Term]:
    """Join each wanted term to the author's; one that changes nothing is enough by itself."""
    joined = [_both(own, term, override=override) for term in wanted]
    return [own] if any(same_json(term, own) for term in joined) else joined


def _both(own: Term, wanted: Term, *, override: bool) -> Term:
    merged = dict(own)
    for field in _CONDITIONS:
        conditions = wanted.get(field)
        if conditions:
            merged[field] = _merge(_conditions(own, field), conditions, override=override)
    return merged


def _merge(own: list[Json], wanted: list[Json], *, override: bool) -> list[Json]:
    """Add wanted conditions to a term's own; the conditions on a label are those of one side."""
    kept, taken = own, [condition.get("key") for condition in own]
    if override:
        keys = [condition["key"] for condition in wanted]
        kept = [c for c in own if c.get("key") not in keys or _listed(c, wanted)]
        taken = []
    return kept + [
        condition
        for condition in wanted
        if condition["key"] not in taken and not _listed(condition, kept)
    ]


def _conditions(term: Term, field: str) -> list[Json]:
    conditions = term.get(field) or []
    if not isinstance(conditions, list) or not set(map(type, conditions)) <= _OBJECTS:
        raise InjectError(f"`{field}` of the object's node affinity is not a list of objects")
    return conditions


def _prefer(edit: Edit, wanted: Mapping[str, Json]) -> None:
    path = (*_AFFINITY, _PREFERRED)
    for index, own in enumerate(edit.items(*path)):
        if same_json(own.get("preference"), wanted["preference"]):
            if edit.override:
                edit.draft.set((*edit.at, *path, index), wanted)
            return
    edit.draft.append((*edit.at, *path), wanted)


def _without_empty(term: Term) -> Term:
    """Leave out conditions whose computed values came to nothing."""
    kept: dict[str, Json] = {}
    for field in _CONDITIONS:
        conditions = [
            condition
            for condition in term.get(field, ())
            if condition["operator"] not in ("In", "NotIn") or condition.get("values")
        ]
        if conditions:
            kept[field] = conditions
    return kept


def _distinct(terms: list[Term]) -> list[Term]:
    distinct: list[Term] = []
    for term in terms:
        if not _listed(term, distinct):
            distinct.append(term)
    return distinct


def _listed(value: Json, values: list[Json] | list[Term]) -> bool:
    return any(same_json(value, other) for other in values)
