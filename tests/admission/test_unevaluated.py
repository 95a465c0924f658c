"""What nobody judged: refused where a policy that must be asked, or the queue, may be concerned."""

import json

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from policyd.admission.unevaluated import UnevaluatedReviews
from policyd.api import causes
from policyd.api.admission import ReviewError, decode_object, parse_review
from policyd.api.selectors import LabelSelector
from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.jobs.integrations import EVERYTHING, Integrations
from tests.webhooks.reviews import POD, policy, queued, response, review
from webhooks.metrics import WebhookMetrics

LABELS = {"team-a": {"tier": "research"}, "team-b": {"tier": "production"}}
REASON = "the review has too many bytes"
PADDED = {**POD, "metadata": {**POD["metadata"], "annotations": {"padding": "x" * 100_000}}}
NEVER = [{"expression": "false"}]
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "s", "namespace": "team-a"},
}


def lookup(name):
    return {"metadata": {"name": name, "labels": LABELS[name]}} if name in LABELS else None


def unasked(*policies, queue=None, gives_queue=lambda _: False, metrics=None):
    text = "\n---\n".join(map(json.dumps, policies))
    loaded = load_policies(text, "here")
    known = PolicySet(
        (*loaded.policies, *loaded.placeholders), namespaces=lookup, bindings=loaded.bindings
    )
    return UnevaluatedReviews(
        policies=lambda: known,
        namespaces=lookup,
        own_namespace="policyd",
        queue=queue,
        gives_queue=gives_queue,
        count=(metrics or WebhookMetrics(CollectorRegistry())).review_not_evaluated,
    )


def asked(answers, body=None, phase="validate", cause=causes.TOO_LARGE):
    answer = answers.answers(phase)
    return response(answer(review(PADDED) if body is None else body, REASON, cause))


def rewritten(body, **fields):
    """Return a review with other fields; None leaves one out."""
    value = json.loads(body)
    first = {name: value["request"][name] for name in ("uid", "kind", "resource")}
    whole = first | fields | {k: v for k, v in value["request"].items() if k not in fields}
    value["request"] = {k: v for k, v in whole.items() if v is not None}
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        pytest.param({"validations": NEVER}, False, id="fail-is-the-default"),
        pytest.param({"validations": NEVER, "failurePolicy": "Ignore"}, True, id="ignore"),
        pytest.param({"validations": NEVER, "enforcement": "Warn"}, True, id="only-warns"),
        pytest.param({"validations": NEVER, "enforcement": "Audit"}, True, id="only-notes"),
        pytest.param({"inject": {"queueName": "a"}}, True, id="asked-in-the-other-phase"),
        pytest.param({"validations": NEVER, "shadowOf": "another"}, True, id="a-shadow-has-no-say"),
        pytest.param(
            {
                "validations": NEVER,
                "enforcement": "Warn",
                "rollout": [{"percent": 1, "enforcement": "Deny"}],
            },
            False,
            id="refuses-a-part",
        ),
        pytest.param(
            {
                "validations": NEVER,
                "enforcement": "Warn",
                "rollout": [{"namespaces": ["team-b"], "enforcement": "Deny"}],
            },
            True,
            id="refuses-elsewhere",
        ),
        pytest.param(
            {"validations": NEVER, "matchConditions": [{"name": "c", "expression": "false"}]},
            False,
            id="conditions-are-taken-to-hold",
        ),
        pytest.param({"validations": [{"expression": "nobody()"}]}, False, id="broken"),
        pytest.param(
            {"validations": [{"expression": "nobody()"}], "failurePolicy": "Ignore"},
            True,
            id="broken-and-ignored",
        ),
    ],
)
def test_a_policy_that_must_be_asked_refuses(spec, allowed):
    answer = asked(unasked(policy("p", **spec)))

    assert answer["uid"] == "u-1"
    assert answer["allowed"] is allowed
    if not allowed:
        assert REASON in answer["status"]["message"]
        assert "`p`" in answer["status"]["message"]


def test_a_policy_that_may_be_left_out_is_reported():
    answer = asked(unasked(policy("p", validations=NEVER, failurePolicy="Ignore")))

    assert answer["allowed"]
    assert answer["warnings"] == [
        f"policyd could not evaluate this: {REASON}; not asked: policy `p`"
    ]


def test_a_policy_that_changes_must_be_asked_for_changes():
    answers = unasked(policy("p", inject={"queueName": "a"}))

    assert not asked(answers, phase="mutate")["allowed"]
    assert asked(answers)["allowed"]


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        pytest.param({"namespace": "team-a"}, False, id="a-namespace-it-selects"),
        pytest.param({"namespace": "team-b"}, True, id="another-namespace"),
        pytest.param({"namespace": "unknown"}, False, id="a-namespace-that-nobody-knows"),
        pytest.param({"operation": "DELETE"}, True, id="another-operation"),
        pytest.param({"subResource": "status"}, True, id="a-subresource"),
        pytest.param({"namespace": "kube-system"}, True, id="system"),
        pytest.param({"namespace": "policyd"}, True, id="our-own"),
        pytest.param(
            {"userInfo": {"username": "system:node:a", "groups": ["system:nodes"]}},
            True,
            id="a-kubelet",
        ),
        pytest.param(
            {"userInfo": {"username": "c", "groups": ["system:serviceaccounts:policyd"]}},
            True,
            id="the-controller",
        ),
        pytest.param({"userInfo": None}, False, id="not-said-by-whom"),
        pytest.param({"operation": None}, False, id="not-said-what"),
        pytest.param({"name": "x" * 100_000}, False, id="a-name-that-hides-the-rest"),
    ],
)
def test_the_user_and_the_permission_decide(fields, allowed):
    chosen = policy("p", validations=NEVER)
    constraints = chosen["spec"]["matchConstraints"]
    constraints["namespaceSelector"] = {"matchLabels": {"tier": "research"}}

    assert asked(unasked(chosen), rewritten(review(PADDED), **fields))["allowed"] is allowed


def test_a_review_without_a_uid_has_no_answer():
    with pytest.raises(ReviewError):
        unasked().answers("validate")(b'{"request": {', REASON, causes.TOO_LARGE)


HELD = Integrations(namespaces=LabelSelector(match_labels={"tier": "research"}))
ELSEWHERE = {**POD, "metadata": {**PADDED["metadata"], "namespace": "team-b"}}


@pytest.mark.parametrize("phase", ["mutate", "validate"])
@pytest.mark.parametrize(
    ("queue", "obj", "allowed"),
    [
        pytest.param(EVERYTHING, queued(POD), False, id="names-a-queue"),
        pytest.param(EVERYTHING, PADDED, False, id="may-name-a-queue"),
        pytest.param(EVERYTHING, POD, True, id="names-none-and-is-there-as-a-whole"),
        pytest.param(Integrations(manages_all=True), POD, False, id="all-queue"),
        pytest.param(EVERYTHING, SERVICE, True, id="no-job"),
        pytest.param(HELD, PADDED, False, id="a-namespace-whose-jobs-queue"),
        pytest.param(HELD, ELSEWHERE, True, id="another-namespace"),
        pytest.param(Integrations(kinds=frozenset()), PADDED, True, id="pods-do-not-queue"),
        pytest.param(None, queued(PADDED), True, id="no-queue"),
    ],
)
def test_objects_that_may_queue_are_refused(queue, obj, allowed, phase):
    resource = f"{obj['kind'].lower()}s"

    answer = asked(unasked(queue=queue), review(obj, resource=resource), phase)

    assert answer["allowed"] is allowed
    assert allowed or "the queue must not be bypassed" in answer["status"]["message"]


def test_all_new_pods_of_a_namespace_with_a_default_queue_may_queue():
    answers = unasked(queue=EVERYTHING, gives_queue="team-a".__eq__)

    assert not asked(answers, review(POD), "mutate")["allowed"]


@pytest.mark.parametrize(
    ("plural", "kind", "phase", "allowed"),
    [
        pytest.param("clusterqueues", "ClusterQueue", "validate", False, id="checked"),
        pytest.param("clusterqueues", "ClusterQueue", "mutate", False, id="held"),
        pytest.param("workloads", "Workload", "validate", False, id="a-workload"),
        pytest.param("unknowns", "Unknown", "validate", True, id="no"),
    ],
)
def test_kueues_own_kinds_must_be_asked_about(plural, kind, phase, allowed):
    place = {"namespace": "team-a"} if kind == "Workload" else {}
    obj = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": "a", **place}}

    answer = asked(unasked(queue=EVERYTHING), review(obj, resource=plural), phase)

    assert answer["allowed"] is allowed


def test_such_answers_are_counted():
    metrics = WebhookMetrics(CollectorRegistry())
    answers = unasked(policy("p", validations=NEVER), metrics=metrics)

    asked(answers)
    asked(answers, phase="mutate")

    for path, outcome in (("/validate", "denied"), ("/mutate", "allowed")):
        labels = {"path": path, "outcome": outcome}
        assert metrics.registry.get_sample_value("policyd_unjudged_reviews_total", labels) == 1


def test_of_many_policies_some_are_named():
    answers = unasked(*(policy(f"p{n}", validations=NEVER) for n in range(20)))

    message = asked(answers)["status"]["message"]

    assert "and 15 more must not be bypassed" in message


@pytest.mark.parametrize(
    ("cause", "advice"),
    [
        pytest.param(causes.OVERLOADED, "try again in a moment", id="overloaded"),
        pytest.param(causes.SLOW, "try again in a moment", id="slow"),
        pytest.param(
            causes.OUT_OF_TIME,
            "try again in a moment, and with a smaller object if that does not help",
            id="out-of-time",
        ),
        pytest.param(causes.TOO_LARGE, "make the object smaller", id="too-large"),
        pytest.param(
            causes.TOO_DEEP,
            "write the object with fewer lists and maps inside each other",
            id="too-deep",
        ),
        pytest.param(causes.UNREADABLE, "correct the value that cannot be read", id="unreadable"),
        pytest.param(
            causes.DEFECT, "ask the administrator of policyd, whose log has the error", id="defect"
        ),
    ],
)
def test_the_advice_can_help(cause, advice):
    policies = unasked(*(policy(name, validations=NEVER) for name in ("p", "q")))
    exclude = ", or ask the owners of these policies to exclude it" if cause.lasts else ""

    message = asked(policies, cause=cause)["status"]["message"]

    assert message.endswith(f"must not be bypassed: {advice}{exclude}")
    by_the_queue = asked(unasked(queue=EVERYTHING), review(queued(POD)), cause=cause)
    assert by_the_queue["status"]["message"].endswith(f"must not be bypassed: {advice}")
    assert ("again" in advice) is (cause in (causes.OVERLOADED, causes.SLOW, causes.OUT_OF_TIME))


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        pytest.param(b"x" * (48 * 1024 * 1024 + 1), causes.TOO_LARGE, id="bytes"),
        pytest.param(b"[" * 513 + b"]" * 513, causes.TOO_DEEP, id="levels"),
        pytest.param(b"[%b0]" % (b"0," * 4_100_000), causes.TOO_LARGE, id="values"),
        pytest.param(b"{", causes.UNREADABLE, id="no-json"),
    ],
)
def test_what_cannot_be_parsed_has_a_cause(text, cause):
    with pytest.raises(ReviewError) as raised:
        parse_review(text)

    assert raised.value.cause is cause


def test_a_number_out_of_range_is_to_be_corrected():
    with pytest.raises(ReviewError, match="out of range") as raised:
        decode_object(msgspec.Raw(b"1e400"))

    assert raised.value.cause is causes.UNREADABLE
