"""Cases of VAP and MAP, asked of the engine and of a real API server that has all their policies.

Cases of one policy with the same bindings and params are a group. Its policy is installed once,
under a name of its own, and bound to the group's namespaces; requests about what belongs to the
cluster are told apart by a label on the object. All of it is first asked without policies, then
installed, then asked again.
"""

import copy
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from policyd.api.kinds import resource_for_kind, resources
from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import Loaded, gather, load_document
from policyd.engine.documents.reading import Document
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.offline.cases import PermissionDecision
from policyd.engine.offline.requests import namespace_lookup, offline_set
from tests.conformance.outcome import Outcome
from tests.live.server import Live, definition, path_of
from tests.live.trial import Trial

GROUP_LABEL = "live-group"

NO_POLICY = "the policy is not one of the API server's kinds, nor is it given as one"
REFUSED_POLICY = "the policy calls what only Kyverno has: the API server and the engine refuse it"
REFUSED_FORM = "made from one of Kyverno's, whose conditions and messages have a freer form"
REFUSED_OBJECT = "the API server refuses the object by itself, before any policy is asked"
NOT_SERVED = "the API server serves this version of a built-in kind no more"
PARAMS_LIST = "Kyverno's CLI hands a policy all its params as one List"
CONNECT = "connecting to a pod cannot be tried by dry-run"


FORM = re.compile(
    r"spec\.(matchConditions\[\d+\]\.name|validations\[\d+\]\.message): Invalid value"
)
"""What the API server says of the name of a condition, and of a message of several lines."""


@dataclass
class Group:
    """Cases that share a policy, its bindings, and params."""

    number: int
    policy: Any
    binding: Any
    params: list[Any]
    cases: list[Any] = field(default_factory=list)
    trials: list[tuple[Any, Trial]] = field(default_factory=list)
    refused: str = ""
    loaded: Loaded = field(default_factory=Loaded)

    @property
    def documents(self) -> list[Any]:
        return [self.policy, self.binding]


def run_file(live: Live, cases: list[Any], seen: Counter[str]) -> Iterator[Outcome]:
    """Run all cases of a file; `seen` counts what policies did, lest all pass by doing nothing."""
    chosen, outcomes = in_scope(cases)
    yield from outcomes
    groups = groups_of(chosen)
    for group in groups:
        group.loaded = gather(
            load_document(Document(d, "case"), EVERY_FORMAT) for d in group.documents
        )
    live.all(lambda group: _prepare(live, group), groups)
    seen.update(_deed(trial) for group in groups for _, trial in group.trials)
    for cluster_wide in (False, True):
        yield from _ask_all(live, groups, cluster_wide=cluster_wide)


def define_kinds(live: Live, cases: list[Any]) -> None:
    """Define all custom kinds of all cases."""
    live.define(list(_definitions(in_scope(cases)[0])))


def in_scope(cases: list[Any]) -> tuple[list[Any], list[Outcome]]:
    """Return the cases that can be tried, and the outcomes of the others."""
    chosen, outcomes = [], []
    for case in cases:
        rule = _rule(case)
        if rule:
            outcomes.append(Outcome(case["id"], rule=rule))
        else:
            chosen.append(case)
    return chosen, outcomes


def _rule(case: Any) -> str:
    if _native(case)[0] is None:
        return NO_POLICY
    if "kyverno.params-list" in (case.get("requires") or ()):
        return PARAMS_LIST
    if case["request"]["operation"] == "CONNECT":
        return CONNECT
    obj = case.get("resource") or case.get("oldResource")
    group, _, version = obj["apiVersion"].rpartition("/")
    known = resource_for_kind(group, version, obj["kind"]) is not None
    return NOT_SERVED if not known and _is_built_in(group) else ""


def _is_built_in(group: str) -> bool:
    """Tell whether a group is the API server's own: custom kinds cannot be defined in it."""
    return "." not in group or any(resource.group == group for resource in resources())


def _native(case: Any) -> tuple[Any, Any]:
    """Return a case's policy and binding in the API server's kinds."""
    given = case.get("native") or case
    policy = given.get("policy")
    if policy is None:
        return None, None
    bindings = given.get("bindings") or [_binding_of(policy)]
    return policy, bindings[0]


def _binding_of(policy: Any) -> Any:
    actions = {"validationActions": ["Deny"]} if "Validating" in policy["kind"] else {}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{policy['kind']}Binding",
        "metadata": {"name": policy["metadata"]["name"]},
        "spec": {"policyName": policy["metadata"]["name"], **actions},
    }


def _definitions(cases: list[Any]) -> Iterator[Any]:
    """Define the custom kinds of objects and params."""
    found: dict[tuple[str, str], tuple[list[str], str, bool]] = {}
    for case in cases:
        request = case["request"]
        obj = case.get("resource") or case["oldResource"]
        namespaced = bool(request["namespace"] or obj["metadata"].get("namespace"))
        _note(found, obj, request["resource"]["resource"], namespaced=namespaced)
        for param in case.get("params") or ():
            plural = f"{param['kind'].lower()}s"
            _note(found, param, plural, namespaced=bool(param["metadata"].get("namespace")))
    for (group, kind), (versions, plural, namespaced) in found.items():
        yield definition(group, versions, kind, plural, namespaced=namespaced)


def _note(found: Any, obj: Any, plural: str, *, namespaced: bool) -> None:
    group, _, version = obj["apiVersion"].rpartition("/")
    if resource_for_kind(group, version, obj["kind"]) is not None or _is_built_in(group):
        return
    versions, known, inside = found.get((group, obj["kind"]), ([], plural, False))
    if version not in versions:
        versions.append(version)
    found[group, obj["kind"]] = versions, known, inside or namespaced


_NUMBERS = iter(range(1, 1_000_000))


def groups_of(cases: list[Any]) -> list[Group]:
    """Return the groups of cases."""
    groups: dict[str, Group] = {}
    for case in cases:
        policy, binding = _native(case)
        params = case.get("params") or []
        key = json.dumps([policy, binding, params], sort_keys=True)
        if key not in groups:
            groups[key] = _make_group(next(_NUMBERS), policy, binding, params)
        groups[key].cases.append(case)
    return list(groups.values())


def _make_group(number: int, policy: Any, binding: Any, params: list[Any]) -> Group:
    """Give a policy a name of its own, and bind it to the namespaces of its group."""
    policy, binding, params = (copy.deepcopy(part) for part in (policy, binding, params))
    suffix = f"-g{number}"
    for document in (policy, binding):
        name = document["metadata"]["name"].lower() + suffix
        document |= {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    policy.pop("status", None)
    spec = binding["spec"]
    spec["policyName"] = policy["metadata"]["name"]
    ref = spec.get("paramRef") or {}
    for param in params:
        if not param["metadata"].get("namespace") and ref.get("name") == param["metadata"]["name"]:
            ref["name"] = param["metadata"]["name"] = param["metadata"]["name"] + suffix
        elif ref.get("namespace") and ref["namespace"] == param["metadata"].get("namespace"):
            param["metadata"]["namespace"] = ref["namespace"] + suffix
    if ref.get("namespace"):
        ref["namespace"] += suffix
    return Group(number, policy, binding, params)


def narrowed(binding: Any, number: int, *, cluster_wide: bool) -> Any:
    """Bind a policy to what belongs to its group."""
    binding = copy.deepcopy(binding)
    resources = binding["spec"].setdefault("matchResources", {})
    selector = resources.setdefault("objectSelector" if cluster_wide else "namespaceSelector", {})
    wanted = {"key": GROUP_LABEL, "operator": "In", "values": [f"g{number}"]}
    selector["matchExpressions"] = [*selector.get("matchExpressions", ()), wanted]
    return binding


def _prepare(live: Live, group: Group) -> None:
    """Make namespaces and params, and ask the API server while it has no policies."""
    for index, case in enumerate(group.cases):
        trial = trial_of(live, group, case, index)
        trial.prepare(live)
        group.trials.append((case, trial))
    params = [with_namespace(live, group, param) for param in group.params]
    live.create(params)
    stored = [live.ask("GET", path_of(p, p["metadata"]["name"])).body for p in params]
    for _, trial in group.trials:
        if not trial.refused and not errors_of(group):
            trial.decide(live, _policies(group, trial, stored))


def with_namespace(live: Live, group: Group, param: Any) -> Any:
    """Make the namespace of a param."""
    namespace = param["metadata"].get("namespace")
    if namespace and namespace != "default":
        live.namespace(namespace, {GROUP_LABEL: f"g{group.number}"})
    return param


def trial_of(live: Live, group: Group, case: Any, index: int) -> Trial:
    """Make the request of a case, and its namespace."""
    request, obj = case["request"], case.get("resource") or case["oldResource"]
    metadata = (case.get("namespaceObject") or {}).get("metadata") or {}
    label = f"g{group.number}"
    namespace = live.namespace(
        f"case-{group.number}-{index}",
        {
            **(metadata.get("labels") or {}),
            GROUP_LABEL: label,
            "kubernetes.io/metadata.name": f"case-{group.number}-{index}",
        },
        metadata.get("annotations"),
    )
    trial = Trial(
        name=case["id"],
        object=copy.deepcopy(obj),
        namespace=namespace,
        operation=request["operation"],
        old_object=copy.deepcopy(case.get("oldResource")),
        user={"username": "someone", "groups": [], **(case.get("userInfo") or {})},
    )
    if trial.cluster_wide:
        trial.label(GROUP_LABEL, label)
    return trial


def _policies(group: Group, trial: Trial, params: list[Any]) -> PolicySet:
    binding = narrowed(group.binding, group.number, cluster_wide=trial.cluster_wide)
    loaded = gather(
        load_document(Document(d, "case"), EVERY_FORMAT) for d in (group.policy, binding)
    )
    find = namespace_lookup([trial.namespace], {})
    return offline_set(loaded, find, objects=params, authorize=_allow)


def _allow(_user: Any, _permission: Any) -> PermissionDecision:
    return PermissionDecision(allowed=True)


def errors_of(group: Group) -> list[str]:
    """Return the errors that the engine finds in a policy."""
    return [str(finding) for finding in group.loaded.findings if finding.severity == "error"]


def _ask_all(live: Live, groups: list[Group], *, cluster_wide: bool) -> Iterator[Outcome]:
    """Install the policies, ask about objects in namespaces or of the cluster, and clear up."""
    concerned = [
        (group, [pair for pair in group.trials if pair[1].cluster_wide == cluster_wide])
        for group in groups
    ]
    concerned = [(group, trials) for group, trials in concerned if trials]
    installed = [
        document
        for group, _ in concerned
        for document in install(live, group, cluster_wide=cluster_wide)
    ]
    live.settle()
    asked = [(group, case, trial) for group, trials in concerned for case, trial in trials]
    yield from live.all(lambda one: _outcome(live, *one), asked)
    live.delete(installed)
    live.settle()


def _deed(trial: Trial) -> str:
    """Say in a word what policies do about a request."""
    decision = trial.decision
    if decision is None:
        return "not asked"
    if decision.denials:
        return "refused"
    if decision.operations:
        return "changed"
    return "matched" if decision.matched else "passed by"


def install(live: Live, group: Group, *, cluster_wide: bool) -> list[Any]:
    """Install a group's policy; note why the API server refuses it."""
    answer = live.try_create(group.policy)
    if not answer.allowed:
        group.refused = answer.message
        return []
    binding = narrowed(group.binding, group.number, cluster_wide=cluster_wide)
    bound = live.try_create(binding)
    group.refused = bound.message
    return [group.policy, binding] if bound.allowed else [group.policy]


def _outcome(live: Live, group: Group, case: Any, trial: Trial) -> Outcome:
    errors = errors_of(group)
    if group.refused and errors:
        return Outcome(case["id"], rule=REFUSED_POLICY)
    if group.refused and case.get("native") and FORM.search(group.refused):
        return Outcome(case["id"], rule=REFUSED_FORM)
    if group.refused or errors:
        why = f"policy: ours: {(errors or ['fine'])[0]!r}, API server: {group.refused or 'fine'!r}"
        return Outcome(case["id"], why=why)
    if trial.refused:
        return Outcome(case["id"], rule=REFUSED_OBJECT)
    return Outcome(case["id"], why=trial.difference(trial.ask(live), str))
