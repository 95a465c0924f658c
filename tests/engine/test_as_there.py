"""Errors and variables are those of the API server, as tests/live/test_errors.py asks one."""

import pytest
import yaml

from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.offline.requests import namespace_lookup
from tests.engine.reviews import pod, request
from tests.live.errors import FAILING, VARIABLES
from tests.live.refused import validating

BINDING = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicyBinding",
    "metadata": {"name": "b"},
    "spec": {"policyName": "p", "validationActions": ["Deny"]},
}


def load(expression, variables=()):
    named = [{"name": name, "expression": text} for name, text in variables]
    policy = validating(validations=[{"expression": expression}], variables=named)
    return load_policies(yaml.safe_dump_all([policy, BINDING]), "p.yaml")


def denials(loaded):
    assert not loaded.findings, "\n".join(map(str, loaded.findings))
    surroundings = PolicyContext(namespaces=namespace_lookup((), {}))
    asked = PolicySet(loaded.policies, bindings=loaded.bindings, surroundings=surroundings)
    return asked.review(request(pod(labels={"a": "aa", "b": "bb"}))).denials


@pytest.mark.parametrize(
    ("expression", "key"), [pytest.param(*each, id=name) for name, each in FAILING.items()]
)
def test_the_error_names_the_key_that_the_api_server_names(expression, key):
    (denial,) = denials(load(expression))

    assert str(denial).endswith(f"no such key: {key}")


@pytest.mark.parametrize(
    ("variables", "expression"),
    [pytest.param(*each, id=name) for name, each in VARIABLES.items()],
)
def test_the_last_variable_of_a_name_counts(variables, expression):
    assert denials(load(expression, variables)) == ()


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        pytest.param([("v", "1"), ("v", "variables.v + 1")], "needs itself", id="itself"),
        pytest.param(
            [("v", "1"), ("w", "variables.v"), ("v", "variables.w + 1")],
            "needs itself",
            id="by-another",
        ),
        pytest.param(
            [("v", "1"), ("w", "variables.v + 1"), ("v", "'a'")], "type of the first", id="type"
        ),
    ],
)
def test_a_variable_that_cannot_have_a_value_is_an_error(variables, message):
    (finding,) = load("variables.v == 1", variables).findings[-1:]

    assert message in finding.message
    assert finding.field.startswith(f"spec.variables[{len(variables) - 1}]")
