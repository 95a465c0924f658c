"""Legacy policies of Kyverno, converted: what the result decides is compared with Kyverno's tests.

A policy counts as converted whole if nothing of it is refused; only the expectations of these are
compared. Values that a suite mocks replace the variables of the converted policy by literals.
"""

import copy
import json

from policyd.cel.lib.authorizer import Authorization as PermissionDecision
from policyd.dialects.kyverno.environments import kyverno_values
from policyd.engine.background.evaluation import generate, scope_of
from policyd.engine.compile.load import gather, load_document
from policyd.engine.documents.reading import Document
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.offline.requests import RequestCircumstances, namespace_lookup, request_for
from policyd.migrate.cel_values import json_literal
from policyd.migrate.kyverno.policies import convert
from policyd.patch.json_patch import apply_json_patch
from policyd.patch.operations import same_json
from tests.conformance.outcome import Outcome
from tests.conformance.policy_cases import MODES
from tests.conformance.policy_kyverno import _bare

LEAST_WHOLE = 85
LEAST_EQUAL = 99.5


def run_migrate(path):
    """Yield an outcome for each policy, for each expectation of those converted whole, and both
    shares."""
    cases = json.loads(path.read_text())
    whole, equal = [], []
    for case in cases:
        conversion = convert(case["policy"])
        whole.append(conversion.whole)
        if not conversion.whole:
            yield Outcome(case["id"], rule=f"not converted: {conversion.refusals[0].reason}")
            continue
        yield Outcome(case["id"])
        for outcome in _outcomes(case, conversion):
            equal.append(not outcome.why)
            yield outcome
    yield _share("policies converted whole", whole, LEAST_WHOLE)
    yield _share("expectations and patched documents equal", equal, LEAST_EQUAL)


def _share(name, results, least):
    share = 100 * sum(results) / len(results) if results else 0
    shown = f"{name}: {sum(results)} of {len(results)} ({share:.1f} %, at least {least} %)"
    print(shown)
    return Outcome(name, why="" if share >= least else shown)


def _outcomes(case, conversion):
    for expected in case["expected"]:
        name = f"{case['id']} {expected['rule']} {expected['kind']}/{expected['resource']}"
        if case["types"] == ["mutate"] and expected["result"] == "fail":
            yield Outcome(name, rule="Kyverno's test compares with a wrong document on purpose")
            continue
        yield Outcome(name, why=_guarded(_difference, case, conversion, expected))
    if case.get("generated"):
        name = f"{case['id']} generated"
        yield Outcome(name, why=_guarded(_generated_difference, case, conversion))
    for patched in case["patched"]:
        name = f"{case['id']} patched {patched['kind']}/{patched['resource']}"
        yield Outcome(name, why=_guarded(_patched_difference, case, conversion, patched))


def _guarded(compare, *arguments):
    try:
        return compare(*arguments)
    except Exception as error:  # noqa: BLE001 - one case that crashes must not hide the others
        return f"unexpected {type(error).__name__}: {error}"


def _difference(case, conversion, expected):
    rules = [rule["name"] for rule in case["policy"]["spec"]["rules"]]
    index = rules.index(expected["rule"])
    chosen = [
        policy
        for policy, places in zip(conversion.policies, conversion.places, strict=True)
        if index in places
    ]
    if case["types"] == ["generate"]:
        made = _generated(case, chosen, expected["index"], expected["rule"])
        return "" if bool(made) == (expected["result"] == "pass") else f"generated {made}"
    decision, _ = _ask(case, chosen, expected["index"], expected["rule"])
    if "podSecurity" in case["features"] and decision.denials:  # one validation for each control
        return "" if expected["result"] == "fail" else f"denied: {decision.denials[0]}"
    found = _result(decision, expected["rule"], asked=case["policy"]["spec"]["rules"][index])
    if found == expected["result"]:
        return ""
    return f"{found}, expected {expected['result']}: {[str(d) for d in decision.denials]}"


def _result(decision, rule, *, asked):
    failed = [denial for denial in decision.denials if denial.failed]
    if failed:
        return f"error ({failed[0]})"
    names = {denial.validation for denial in decision.denials if denial.kind == "Policy"}
    if rule in names or any(denial.kind != "Policy" for denial in decision.denials):
        return "fail"
    changes = "mutate" in asked and "foreach" not in asked["mutate"]
    applied = bool(decision.operations) if changes else decision.matched
    return "pass" if applied else "skip"


def _generated_difference(case, conversion):
    wanted = [_bare(each["document"]) for each in case["generated"]]
    indexes = sorted({each["index"] for each in case["generated"]})
    found = [_bare(o) for i in indexes for o in _generated(case, conversion.policies, i, None)]
    missing = [each for each in wanted if not any(same_json(each, other) for other in found)]
    if missing or len(found) != len(wanted):
        return f"generated {found} != {wanted}"
    return ""


def _generated(case, policies, index, rule):
    """Return the objects that policies generate for a resource."""
    loaded, request, context = _loaded(case, policies, index, rule)
    made = []
    for each in loaded.background:
        acted = generate(each, request, context, scope_of({}))
        if acted.error:
            raise AssertionError(acted.error)
        made += acted.objects
    return made


def _patched_difference(case, conversion, patched):
    decision, result = _ask(case, conversion.policies, patched["index"], None)
    if decision.denials:
        return f"denied: {decision.denials[0]}"
    wanted = _placed(patched["document"], patched["namespace"])
    found = _placed(result, patched["namespace"])
    return "" if same_json(_bare(found), _bare(wanted)) else f"patched {found} != {wanted}"


def _placed(document, namespace):
    placed = copy.deepcopy(document)
    if namespace:
        placed["metadata"].setdefault("namespace", namespace)
    return placed


def _ask(case, policies, index, rule):
    loaded, request, context = _loaded(case, policies, index, rule)
    decision = PolicySet(loaded.policies, bindings=(), surroundings=context).review(request)
    obj = _without_nulls(case["resources"][index])
    result = apply_json_patch(obj, decision.operations) if decision.operations else obj
    return decision, result


def _loaded(case, policies, index, rule):
    """Return the policies with the mocked values, the request of a resource, and what is read."""
    values = _values(case, case["resources"][index], rule)
    obj = _without_nulls(case["resources"][index])
    policies = [_mocked(policy, values) for policy in policies]
    loaded = gather(load_document(Document(p, "converted"), MODES[0].dialect) for p in policies)
    errors = [finding for finding in loaded.findings if finding.severity == "error"]
    if errors:
        raise AssertionError(f"not loaded: {errors[0]}")
    circumstances = RequestCircumstances(
        operation=values.get("request.operation", "CREATE"),
        namespace=values.get("request.namespace", "default"),
    )
    old = obj if circumstances.operation == "UPDATE" else None
    request = request_for(obj, circumstances, old_object=old)
    selectors = case["values"].get("namespaceSelector") or ()
    labels = {each["name"]: each["labels"] for each in selectors}
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": of}}
        for name, of in labels.items()
    ]
    extra = kyverno_values(resources=_Nothing(), images=_Images(values))
    surroundings = PolicyContext(
        namespaces=namespace_lookup(namespaces, {}), authorize=_nobody, extra=extra
    )
    return loaded, request, surroundings


class _Nothing:
    """A cluster without objects."""

    def get(self, *_names):
        return None

    def list(self, *_names):
        return {"items": []}

    def namespaced(self, *_names):
        return True


_KINDS = {"Env": list, "Volumes": dict, "created": str, "User": str}
"""What a registry has for fields that suites mock by other kinds of values."""


class _Images:
    """A registry in which every image has the mocked values."""

    def __init__(self, values):
        self._values = values

    def metadata(self, _image):
        found = {}
        for name, value in self._values.items():
            first, *path = name.split(".")
            if first == "resolvedRef":
                found["resolvedImage"] = value
            elif first == "imageData" and path:
                self._put(found, ["config" if s == "configData" else s for s in path], value)
            elif first == "imageData":
                found |= {"manifest": value, "config": {"config": {"Labels": value["labels"]}}}
        return found

    def _put(self, found, path, value):
        *steps, last = path
        for step in steps:
            found = found.setdefault(step, {})
        kind = _KINDS.get(last, str)
        found[last] = {str: value, list: [value], dict: {value: {}}}[kind]


def _nobody(_user, _permission):
    return PermissionDecision(allowed=False)


def _without_nulls(value):
    """Drop what is null, as the API server does when it decodes an object."""
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value


def _mocked(policy, values):
    """Return a policy that denies, and whose variables are the mocked values."""
    mocked = copy.deepcopy(policy)
    spec = mocked["spec"]
    if "validations" in spec:
        spec["enforcement" if "enforcement" in spec else "validationActions"] = "Deny"
        if "validationActions" in spec:
            spec["validationActions"] = ["Deny"]
    for variable in spec.get("variables", ()):
        given = _mock(variable["name"], values)
        if given is not None:
            variable["expression"] = json_literal(given)
    return mocked


def _mock(name, values):
    if name in values:
        return _decoded(values[name])
    found = None
    for key, value in values.items():
        first, *path = key.split(".")
        if first == name and path:
            found = found or {}
            inner = found
            for step in path[:-1]:
                inner = inner.setdefault(step, {})
            inner[path[-1]] = value
    return found


def _decoded(value):
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _values(case, resource, rule):
    found = {}
    for policy in case["values"].get("policies") or ():
        for each in policy.get("rules") or ():
            if rule is None or each["name"] == rule:
                found |= each.get("values") or {}
        for each in policy.get("resources") or ():
            if each["name"] == resource["metadata"].get("name"):
                found |= each.get("values") or {}
    return found
