"""Exported policies say and do the same as those that they were made from."""

from pathlib import Path

import msgspec
import pytest

from policyd.api.admission import UserInfo
from policyd.engine.compile.load import gather, load_document
from policyd.engine.documents.reading import Document, read_documents
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.export.policies import export_policy
from policyd.engine.model.params import StoredParams
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.offline.cases import load_cases
from policyd.engine.offline.requests import RequestCircumstances, namespace_lookup, request_for
from policyd.patch.builtin_views import type_of, typed_view
from policyd.patch.json_patch import apply_json_patch

LIBRARY = Path(__file__).parents[3] / "policies"
FOLDERS = sorted(path.parent for path in LIBRARY.rglob("policy.yaml"))


def exported(text, *, checked=True):
    """Export a policy; return it, what was made of it, and what was said."""
    documents, findings = read_documents(text, "policy.yaml")
    assert not findings
    loaded = gather(load_document(document) for document in documents)
    assert not loaded.findings, loaded.findings
    parts = [
        export_policy(p, documents[0], loaded.bindings, checked=checked) for p in loaded.policies
    ]
    objects = [obj for part in parts for obj in part.objects]
    return loaded, objects, [finding for part in parts for finding in part.findings]


def policy_set(loaded, labels, params=()):
    surroundings = PolicyContext(
        namespaces=namespace_lookup((), labels), params=StoredParams(params)
    )
    return PolicySet(loaded.policies, bindings=loaded.bindings, surroundings=surroundings)


def as_the_api_server_reads(obj):
    """Return an object of a built-in kind as its type in Go shows it."""
    struct = type_of(obj)
    return obj if struct is None else typed_view(obj, struct)[0]


def messages(decision):
    """Return what denials and warnings say, without who says it."""
    return [denial.advice for denial in decision.denials]


def library_cases():
    for folder in FOLDERS:
        text = (folder / "cases.yaml").read_text()
        cases, findings = load_cases(text, folder.name)
        assert not findings
        for case in cases.cases:
            yield pytest.param(folder, cases, case, id=f"{folder.name}: {case.name}")


@pytest.fixture(scope="module")
def sets():
    """Return a policy as it is and what it is exported as, made once; None if it is not."""
    made = {}

    def find(folder):
        if folder not in made:
            ours, objects, reported = exported((folder / "policy.yaml").read_text(), checked=False)
            assert bool(objects) != any("is not exported" in each.message for each in reported)
            made[folder] = (ours, objects) if objects else None
        return made[folder]

    return find


def concerning(objects, request):
    """Load the policies that name the resource of a request, with their bindings."""
    named = {
        obj["metadata"]["name"]
        for obj in objects
        if any(
            "/".join(filter(None, (request.resource.resource, request.sub_resource)))
            in rule["resources"]
            for rule in obj["spec"].get("matchConstraints", {}).get("resourceRules", ())
        )
    }
    chosen = [o for o in objects if o["spec"].get("policyName", o["metadata"]["name"]) in named]
    loaded = gather(load_document(Document(obj, "export")) for obj in chosen)
    assert not loaded.findings
    return loaded


@pytest.mark.parametrize(("folder", "cases", "case"), [*library_cases()])
def test_the_library_answers_its_own_cases_alike(folder, cases, case, sets):
    found = sets(folder)
    if found is None:
        return  # it was said why
    labels = cases.namespace_labels if case.namespace_labels is None else case.namespace_labels
    user = UserInfo(username="someone")
    if case.user:
        user = UserInfo(username=case.user.username, groups=case.user.groups)
    circumstances = RequestCircumstances(operation=case.operation, user=user)
    obj = as_the_api_server_reads(case.object)
    request = request_for(obj, circumstances, old_object=as_the_api_server_reads(case.old_object))
    request = msgspec.structs.replace(request, sub_resource=case.sub_resource)

    loaded = (found[0], concerning(found[1], request))
    given = (*cases.params, *case.params)
    ours, theirs = (policy_set(each, labels, given).review(request) for each in loaded)

    if any("devices of claims" in each.message for each in theirs.failures):
        # Each says in its own words that it does not know the claims of a pod.
        assert (theirs.allowed, ours.allowed) == (False, False)
        return
    assert theirs.failures == ours.failures
    assert messages(theirs) == messages(ours)
    assert len(theirs.warnings) == len(ours.warnings)
    changed = as_the_api_server_reads(apply_json_patch(obj, ours.operations))
    assert as_the_api_server_reads(apply_json_patch(obj, theirs.operations)) == changed


BEGIN = """
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {name: try}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [%s], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [%s]}
"""


def policy(body, *, groups='""', resources="pods"):
    """Write a policy; `body` is what follows in its specification."""
    lines = "".join(f"  {line}\n" for line in body.splitlines())
    return BEGIN % (groups, resources) + lines


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(
            "validations: [{expression: \"pod.requests('cpu').isLessThan(quantity('2'))\"}]",
            "`pod.requests('cpu')` has no counterpart in plain CEL",
            id="requests-are-quantities-that-cannot-be-added-up",
        ),
        pytest.param(
            "inject: {tolerations: [{key: a, operator: Exists}], override: true}",
            "`override` cannot be exported for this field",
            id="what-would-have-to-be-taken-away",
        ),
        pytest.param(
            "inject: {tolerations: {expression: \"[{'key': 'a'}]\"}}",
            "a list computed as a whole cannot be exported",
            id="a-computed-list",
        ),
        pytest.param(
            "validations: [{expression: 'true'}]\n"
            "exceptions: [{reason: x, users: [a], until: '2027-01-31'}]",
            "an exception that ends cannot be exported: the API server's expressions have no clock",
            id="an-exception-that-ends",
        ),
        pytest.param(
            "validations: [{expression: 'object.spec.containers.all(pod, has(pod.image))'}]",
            "the loop variable `pod` needs another name",
            id="a-loop-that-hides-the-pod",
        ),
        pytest.param(
            "validations: [{expression: 'true'}]\n"
            "auditAnnotations: [{key: a, valueExpression: object.metadata.name}]",
            "as ValidatingAdmissionPolicy, spec.auditAnnotations[0].valueExpression: the API server"
            " refuses it: annotation `a` is dyn",
            id="an-annotation-of-any-type",
        ),
    ],
)
def test_policies_that_need_policyd_are_reported_and_not_exported(body, message):
    _, objects, findings = exported(policy(body))

    assert not objects
    assert [finding.message for finding in findings] == [f"policy `try` is not exported: {message}"]


def test_a_rule_that_names_no_kind_cannot_be_taken_apart():
    _, objects, findings = exported(
        policy("validations: [{expression: pod.gpus() < 9}]", groups='"*"', resources='"*"')
    )

    assert not objects
    assert "name the kinds" in findings[0].message


def test_a_priority_is_warned_about():
    _, objects, findings = exported(policy("inject: {labels: {a: b}}\npriority: 3"))

    assert [obj["kind"] for obj in objects] == [
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
    ]
    assert [finding.severity for finding in findings] == ["warning"]


@pytest.mark.parametrize(
    ("enforcement", "actions"),
    [
        pytest.param("Deny", ["Deny"], id="deny"),
        pytest.param("Warn", ["Warn"], id="warn"),
        pytest.param("Audit", ["Audit"], id="audit"),
    ],
)
def test_enforcement_becomes_validation_actions(enforcement, actions):
    body = f"validations: [{{expression: 'true'}}]\nenforcement: {enforcement}"

    _, objects, _ = exported(policy(body))

    assert objects[1]["spec"] == {"policyName": "try", "validationActions": actions}


def test_kinds_with_pods_in_different_places_get_a_policy_each():
    groups, resources = '"", apps, batch, jobset.x-k8s.io', "pods, deployments, jobs, jobsets"

    _, objects, _ = exported(
        policy("validations: [{expression: pod.gpus() < 9}]", groups=groups, resources=resources)
    )

    names = [obj["metadata"]["name"] for obj in objects if not obj["kind"].endswith("Binding")]
    assert names == ["try-pods", "try-templates", "try-jobsets"]


@pytest.mark.parametrize("folder", [pytest.param(each, id=each.name) for each in FOLDERS])
def test_no_two_objects_of_one_kind_have_one_name(folder):
    documents, _ = read_documents((folder / "policy.yaml").read_text(), "policy.yaml")
    loaded = gather(map(load_document, documents))
    parts = [export_policy(each, documents[0], loaded.bindings) for each in loaded.policies]
    objects = [obj for part in parts for obj in part.objects]

    names = [(obj["kind"], obj["metadata"]["name"]) for obj in objects]
    assert len(names) == len(set(names))


def test_a_policy_that_asks_about_no_pod_stays_one():
    _, objects, _ = exported(
        policy(
            "validations: [{expression: object.metadata.name != 'a'}]",
            groups='"", batch',
            resources="pods, jobs",
        )
    )

    assert [obj["metadata"]["name"] for obj in objects] == ["try", "try"]


EXCEPTION = """
validations:
- {name: name, expression: object.metadata.name != 'a', message: not a}
- {name: image, expression: "object.spec.containers.all(c, c.image != 'b')", message: not b}
exceptions:
- {reason: x, users: [alice], namespaces: [default]}
- {reason: y, groups: [ops], validations: [image]}
"""


@pytest.mark.parametrize(
    ("user", "message"),
    [
        pytest.param(UserInfo(username="bob"), ["not a", "not b"], id="nobody-is-lifted"),
        pytest.param(UserInfo(username="alice"), [], id="all-of-it"),
        pytest.param(UserInfo(username="bob", groups=("ops",)), ["not a"], id="one-validation"),
    ],
)
def test_exceptions_exempt_alike(user, message):
    loaded, objects, _ = exported(policy(EXCEPTION))
    native = gather(load_document(Document(obj, "export")) for obj in objects)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "image": "b"}]},
    }
    request = request_for(pod, RequestCircumstances(user=user))

    ours, theirs = (policy_set(each, {}).review(request) for each in (loaded, native))

    assert messages(ours) == messages(theirs) == message


COMPUTED = """
inject:
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions:
          - {key: model, operator: In, values: {expression: "pod.metadata.?annotations[?'m'].orValue('').split(',').filter(x, x != '')"}}
          - {key: {expression: "'k' + 'ey'"}, operator: In, values: [{expression: object.metadata.name}, b]}
        - matchExpressions:
          - {key: other, operator: NotIn, values: {expression: "pod.metadata.?annotations[?'o'].orValue('').split(',').filter(x, x != '')"}}
      preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 5
        preference: {matchExpressions: [{key: name, operator: In, values: {expression: "[object.metadata.name]"}}]}
  topologySpreadConstraints:
  - {maxSkew: {expression: "1 + 1"}, topologyKey: {expression: "'zo' + 'ne'"}, whenUnsatisfiable: DoNotSchedule}
"""  # noqa: E501 - as people write it
NOTHING_BUT_COMPUTED = """
inject:
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions:
          - {key: model, operator: In, values: {expression: "pod.metadata.?annotations[?'m'].orValue('').split(',').filter(x, x != '')"}}
"""  # noqa: E501 - as people write it


def affinity_of(*terms):
    required = {"nodeSelectorTerms": [{"matchExpressions": list(term)} for term in terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def condition(key, *values):
    return {"key": key, "operator": "In", "values": list(values)}


@pytest.mark.parametrize(
    "body",
    [pytest.param(COMPUTED, id="some"), pytest.param(NOTHING_BUT_COMPUTED, id="all")],
)
@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"m": "one,two"}, id="one-condition"),
        pytest.param({"m": "one", "o": "three"}, id="all-conditions"),
    ],
)
@pytest.mark.parametrize(
    "affinity",
    [
        pytest.param(None, id="none-of-its-own"),
        pytest.param(affinity_of([condition("zone", "a")]), id="one-term"),
        pytest.param(affinity_of([condition("zone", "a")], [condition("model", "x")]), id="two"),
        pytest.param(affinity_of([condition("model", "x"), condition("key", "y")]), id="said"),
    ],
)
def test_computed_affinity_joins_what_the_author_wrote_as_it_does_here(body, annotations, affinity):
    loaded, objects, findings = exported(policy(body))
    assert not findings
    native = gather(load_document(Document(obj, "export")) for obj in objects)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "b"}]},
    }
    if affinity:
        pod["spec"]["affinity"] = affinity
    request = request_for(pod, RequestCircumstances())

    ours, theirs = (policy_set(each, {}).review(request) for each in (loaded, native))

    assert not ours.failures
    assert not theirs.failures
    changed = [
        as_the_api_server_reads(apply_json_patch(pod, each.operations)) for each in (ours, theirs)
    ]
    assert changed[0] == changed[1]


OWN_BINDING = """
---
apiVersion: policyd.io/v1alpha1
kind: PolicyBinding
metadata: {name: b}
spec: {policyName: p, %s}
"""


@pytest.mark.parametrize(
    ("spec", "binding", "message"),
    [
        pytest.param("requiresBinding: true", "enforcement: Warn", "", id="bound"),
        pytest.param(
            "requiresBinding: true", "", "it does nothing without a PolicyBinding", id="not-bound"
        ),
        pytest.param(
            "requiresBinding: true",
            "rollout: [{enforcement: Warn}]",
            "`rollout` of binding `b` needs policyd",
            id="rolled-out-by-a-binding",
        ),
        pytest.param("rollout: [{enforcement: Warn}]", "", "`rollout` needs policyd", id="steps"),
        pytest.param("shadowOf: p", "", "`shadowOf` needs policyd", id="shadow"),
        pytest.param(
            "variables: [{name: a, expression: cluster.pending}]",
            "",
            "`cluster` needs policyd: it reads queues",
            id="facts-of-queues",
        ),
    ],
)
def test_only_what_holds_without_policyd_is_exported(spec, binding, message):
    text = policy(f'validations: [{{expression: "true"}}]\n{spec}')
    _, objects, findings = exported(text + (OWN_BINDING % binding if binding else ""))

    assert any(message in finding.message for finding in findings) == bool(message)
    assert bool(objects) == (not message)


def test_a_binding_that_leaves_the_enforcement_open_has_the_policy_s():
    text = policy('validations: [{expression: "true"}]\nrequiresBinding: true\nenforcement: Audit')

    _, [_, bound], _ = exported(text + OWN_BINDING % "matchResources: {}")

    assert bound["spec"]["validationActions"] == ["Audit"]
