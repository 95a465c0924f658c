"""Policies of the API server's own are refused when they are written, if they could not be used."""

import pytest

from policyd.local.apiserver.kinds.smaller import check_admission_policy


def policy(expression, **spec):
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "one"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ]
            },
            "validations": [{"expression": expression}],
            **spec,
        },
    }


@pytest.mark.parametrize(
    ("value", "path"),
    [
        pytest.param(policy("object.foo("), "spec.validations[0].expression", id="syntax"),
        pytest.param(policy("1"), "spec.validations[0].expression", id="type"),
        pytest.param(policy("true", validations=[]), "spec", id="nothing-to-say"),
        pytest.param(policy("object.spec.ready"), "spec.validations[0].expression", id="any-type"),
        *(
            pytest.param(
                policy("true", auditAnnotations=[{"key": "a", "valueExpression": value}]),
                "spec.auditAnnotations[0].valueExpression",
                id=f"annotation-{value}",
            )
            for value in ("1", "object.metadata.name")
        ),
    ],
)
def test_unusable_input_is_refused_with_its_place(value, path):
    assert path in [cause.path for cause in check_admission_policy(value)]


def test_the_rest_passes():
    assert list(check_admission_policy(policy("object.metadata.name != ''"))) == []
