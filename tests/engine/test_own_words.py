"""What policyd's own kind has of the API server's: mutations by CEL, params, bindings."""

import json

import pytest

from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.params import StoredParams
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.offline.requests import namespace_lookup
from tests.engine.reviews import job, job_set, mutated, pod, policies, policy, request

OWN_MUTATION = """
mutations:
- patchType: JSONPatch
  jsonPatch:
    expression: >-
      [JSONPatch{op: 'add', path: '/metadata/labels', value: {'gpus': string(pod.gpus())}}]
- patchType: ApplyConfiguration
  applyConfiguration:
    expression: "Object{metadata: Object.metadata{labels: {'b': object.metadata.labels.gpus}}}"
"""


def test_a_policy_mutates_by_cel_with_what_it_sees_besides():
    result = mutated(policies(policy(OWN_MUTATION)), pod(gpus=2))

    assert result["metadata"]["labels"] == {"gpus": "2", "b": "2"}


def test_a_policy_whose_second_mutation_fails_changes_nothing():
    failing = OWN_MUTATION.replace("object.metadata.labels.gpus", "string(object.spec.nothing)")
    decision = policies(policy(failing)).mutate(request(pod()))

    assert decision.operations == ()
    assert "no such key: nothing" in decision.denials[0].message


BINDING = """
apiVersion: policyd.io/v1alpha1
kind: PolicyBinding
metadata: {name: b}
spec: {policyName: p, %s}
"""


@pytest.mark.parametrize(
    ("terms", "allowed", "warned"),
    [
        pytest.param("enforcement: Warn", True, 1, id="enforcement"),
        pytest.param("matchResources: {namespaceSelector: {matchLabels: {a: b}}}", True, 0, id="x"),
        pytest.param("matchResources: {}", False, 0, id="everywhere"),
    ],
)
def test_a_policy_that_has_bindings_applies_by_them_alone(terms, allowed, warned):
    text = policy("validations: [{expression: 'false'}]") + "---" + BINDING % terms
    loaded = load_policies(text, "policy.yaml")
    lookup = namespace_lookup((), {})
    asked = PolicySet(loaded.policies, bindings=loaded.bindings, namespaces=lookup)
    decision = asked.validate(request(pod()))

    assert decision.allowed is allowed
    assert len(decision.warnings) == warned


def test_a_policy_names_its_params_itself():
    text = policy(
        """
        paramKind: {apiVersion: v1, kind: ConfigMap}
        paramRef: {name: limits, namespace: policyd-system}
        validations: [{expression: "size(object.spec.containers) > int(params.data.most)"}]
        """
    )
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "limits", "namespace": "policyd-system"},
        "data": {"most": "0"},
    }
    surroundings = PolicyContext(namespaces=namespace_lookup((), {}), params=StoredParams([config]))
    asked = PolicySet(load_policies(text, "p").policies, surroundings=surroundings)

    assert asked.validate(request(pod())).matched == ("p",)
    assert asked.validate(request(pod())).allowed


FOR_TEMPLATES = """\
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {name: p}
spec:
  podTemplates: true
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [%s]}
  validations:
  - {expression: "!has(pod.spec.hostNetwork)", message: the node's network}
"""


@pytest.mark.parametrize(
    ("resources", "obj", "denied"),
    [
        pytest.param("pods", pod(), True, id="pod"),
        pytest.param("pods", job(), True, id="job"),
        pytest.param("pods", job_set(0), True, id="custom-kind"),
        pytest.param("services", job(), False, id="rules-for-something-else"),
    ],
)
def test_a_policy_for_pods_may_stand_for_all_templates(resources, obj, denied):
    obj = json.loads(json.dumps(obj).replace('{"containers"', '{"hostNetwork": true, "containers"'))
    asked = policies(FOR_TEMPLATES % resources)

    assert bool(asked.validate(request(obj)).denials) is denied


def test_a_policy_for_templates_that_looks_at_no_pod_is_a_mistake():
    text = FOR_TEMPLATES.replace("pod.spec", "object.spec") % "pods"
    (finding,) = load_policies(text, "p.yaml").findings

    assert "no expression reads `pod`" in finding.message
    assert finding.line == 5
