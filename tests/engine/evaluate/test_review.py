"""From the body of a webhook call to the body of its answer."""

import base64
import json

import pytest

from policyd.api.admission import MAXIMUM_REVIEW_BYTES, ReviewError, parse_review
from policyd.engine.evaluate.review import answer_review
from policyd.engine.model.decision import ALLOWED, Decision, Denial
from policyd.patch.operations import Operation
from tests.engine.reviews import pod, policies, policy


def review(**request):
    fields = {
        "uid": "u-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": "CREATE",
        "name": "a",
        "namespace": "team-a",
        "userInfo": {"username": "alice", "groups": ["dev"], "extra": {"k": ["v"]}},
        "object": pod(),
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    body = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": fields | request,
    }
    return json.dumps(body).encode()


def answer(decision, **request):
    return json.loads(answer_review(parse_review(review(**request)), decision))


def test_an_allowed_request_is_answered_in_few_words():
    assert answer(ALLOWED) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "u-1", "allowed": True},
    }


def test_changes_are_a_patch_in_base64():
    operation = Operation("add", "/metadata/labels", value={"a": "b"})

    response = answer(Decision(operations=(operation,)))["response"]

    assert response["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(response["patch"])) == [
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}
    ]


@pytest.mark.parametrize(
    "denial",
    [
        Denial(policy="a", message="k" * 100_000, path="spec"),
        Denial(policy="a", message="no", path="k" * 100_000),
    ],
)
def test_a_refusal_is_short_however_long_the_names_that_it_quotes(denial):
    response = answer(Decision(denials=(denial, OF_THE_OBJECT)))["response"]

    assert len(json.dumps(response)) < 9_000
    assert not response["allowed"]


OF_THE_OBJECT = Denial(policy="a", message="no", remedy="ask", reason="Forbidden")
OF_A_FIELD = Denial(policy="b", message="never", path="spec.template")
OF_ANOTHER = Denial(policy="c", message="never", remedy="ask", path="metadata.labels[a]")


def test_a_refusal_begins_with_the_first_denial_and_names_all():
    operation = Operation("add", "/x")

    response = answer(Decision(denials=(OF_THE_OBJECT, OF_A_FIELD), operations=(operation,)))

    assert response["response"]["allowed"] is False
    assert "patch" not in response["response"]
    assert response["response"]["status"] == {
        "code": 403,
        "reason": "Forbidden",
        "message": "a: no; ask\nb: spec.template: never",
    }


def test_a_refusal_of_fields_names_them_apart():
    status = answer(Decision(denials=(OF_A_FIELD, OF_ANOTHER)))["response"]["status"]

    assert status == {
        "code": 422,
        "reason": "Invalid",
        "message": "b: spec.template: never\nc: metadata.labels[a]: never; ask",
        "details": {
            "name": "a",
            "kind": "Pod",
            "causes": [
                {"reason": "b", "message": "b: never", "field": "spec.template"},
                {"reason": "c", "message": "c: never; ask", "field": "metadata.labels[a]"},
            ],
        },
    }


def test_warnings_and_audit_annotations_are_passed_on():
    response = answer(Decision(warnings=("w",), audit_annotations={"k": "v"}))["response"]

    assert response["warnings"] == ["w"]
    assert response["auditAnnotations"] == {"k": "v"}


def test_policies_answer_a_review():
    policy_set = policies(policy("inject: {labels: {by: {expression: request.userInfo.username}}}"))

    asked = parse_review(review())
    response = json.loads(answer_review(asked, policy_set.mutate(asked)))["response"]

    assert json.loads(base64.b64decode(response["patch"])) == [
        {"op": "add", "path": "/metadata/labels", "value": {"by": "alice"}}
    ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(b"", "not an AdmissionReview", id="empty"),
        pytest.param(b"[]", "not an AdmissionReview", id="list"),
        pytest.param(b"{}", "missing required field `apiVersion`", id="no-fields"),
        pytest.param(review(uid=""), "the request has no uid", id="no-uid"),
        pytest.param(review(operation="READ"), "READ", id="operation"),
        pytest.param(review().replace(b"io/v1", b"io/v1beta1"), "v1beta1", id="version"),
        pytest.param(review().replace(b"AdmissionReview", b"Review"), "Review", id="kind"),
        pytest.param(b"[" * 100_000, "nested too deep", id="deep-list"),
        pytest.param(
            b'{"request":{"options":' + b"[" * 100_000, "nested too deep", id="deep-options"
        ),
        pytest.param(b" " * (MAXIMUM_REVIEW_BYTES + 1), "bytes, more than", id="too-large"),
    ],
)
def test_an_invalid_review_is_the_callers_fault(body, message):
    with pytest.raises(ReviewError, match=message):
        parse_review(body)


def test_a_name_that_the_api_server_has_not_looked_at_yet_is_cut():
    endless = "a" * 3_000_000
    refused = Decision(denials=(Denial(policy="p", message="no", path="spec"),))

    status = answer(refused, name=endless)["response"]["status"]

    assert len(json.dumps(status)) < 2_000
