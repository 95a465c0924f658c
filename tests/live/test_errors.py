"""Which error a real API server names if several elements fail, and which variable counts."""

import pytest

from tests.live.errors import FAILING, VARIABLES
from tests.live.refused import validating
from tests.live.server import ADMISSION, live

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def server():
    """An API server with a policy for each case, for the pod of its name."""
    given = {name: ([], expression) for name, (expression, _) in FAILING.items()} | VARIABLES
    with live() as running:
        for name, (variables, expression) in given.items():
            policy = validating(
                matchConditions=[{"name": "n", "expression": f"object.metadata.name == '{name}'"}],
                variables=[{"name": each, "expression": text} for each, text in variables],
                validations=[{"expression": expression}],
            )
            binding = {"policyName": name, "validationActions": ["Deny"]}
            running.create([{**policy, "metadata": {"name": name}}])
            kind = "ValidatingAdmissionPolicyBinding"
            made = {"apiVersion": policy["apiVersion"], "kind": kind, "spec": binding}
            answer = running.ask(
                "POST",
                f"{ADMISSION}/validatingadmissionpolicybindings",
                {**made, "metadata": {"name": name}},
            )
            assert answer.allowed, answer.message
        running.settle()
        yield running


def message(server, name):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"a": "aa", "b": "bb"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    path = "/api/v1/namespaces/default/pods"
    return server.ask("POST", path, pod, query={"dryRun": "All"}).message


@pytest.mark.parametrize("name", FAILING)
def test_the_api_server_names_the_key(server, name):
    assert message(server, name).endswith(f"no such key: {FAILING[name][1]}")


@pytest.mark.parametrize("name", VARIABLES)
def test_the_last_variable_of_a_name_counts(server, name):
    assert message(server, name) == ""
