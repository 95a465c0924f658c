"""A roll-out: who is already refused, who is warned, and that it stays the same for everybody."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.evaluate.rollout import place_of, workload_name
from policyd.engine.model.bindings import check_bindings
from policyd.engine.model.facts import Facts
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.offline.requests import namespace_lookup
from tests.engine.reviews import job, pod, policies, policy, request

NO = """
validations: [{expression: "false", message: not so}]
enforcement: Audit
rollout:
"""


def staged(*steps, more=""):
    return policies(policy(NO + "".join(f"- {step}\n" for step in steps) + more))


def outcome(decision):
    """Say what became of the one objection that there is."""
    if decision.denials:
        return "Deny"
    if decision.warnings:
        return "Warn"
    return "Audit" if "p" in decision.audit_annotations else "Skip"


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param(["{enforcement: Deny}"], "Deny", id="everybody"),
        pytest.param(["{enforcement: Deny, percent: 0}"], "Audit", id="nobody"),
        pytest.param(["{enforcement: Warn, namespaces: [team-a]}"], "Warn", id="by-name"),
        pytest.param(["{enforcement: Warn, namespaces: [team-b]}"], "Audit", id="another-name"),
        pytest.param(
            ["{enforcement: Deny, namespaceSelector: {matchLabels: {tier: gold}}}"],
            "Audit",
            id="another-label",
        ),
        pytest.param(
            ["{enforcement: Warn, namespaces: [team-a]}", "{enforcement: Deny}"],
            "Warn",
            id="first-step-that-picks",
        ),
        pytest.param(["{enforcement: Skip}"], "Skip", id="left-out"),
    ],
)
def test_a_step_says_for_whom(steps, expected):
    decision = staged(*steps).review(request(pod()))

    assert outcome(decision) == expected


def test_a_selector_picks_namespaces_by_label():
    step = "{enforcement: Deny, namespaceSelector: {matchLabels: {tier: gold}}}"
    text = policy(NO + f"- {step}\n")

    decision = policies(text, labels={"tier": "gold"}).review(request(pod()))

    assert outcome(decision) == "Deny"


def test_a_namespace_that_is_not_known_is_picked_by_no_selector():
    step = "{enforcement: Deny, namespaceSelector: {matchLabels: {tier: gold}}}"

    asked = policies(policy(NO + f"- {step}\n"), namespaces=lambda name: None)

    assert outcome(asked.review(request(pod()))) == "Audit"


def test_the_answer_says_how_strictly_and_why():
    decision = staged("{enforcement: Warn, percent: 100}").review(request(pod(name="train")))

    place = place_of("p", "team-a/train")
    message = f"p: Warn: rollout[0], team-a/train is at {place} of 100"
    assert decision.audit_annotations["rollout"] == message


def test_a_policy_that_does_not_match_says_nothing_of_its_rollout():
    asked = staged("{enforcement: Warn}", more='matchConditions: [{name: a, expression: "false"}]')

    assert asked.review(request(pod())).audit_annotations == {}


def test_a_failed_evaluation_follows_the_enforcement_of_its_step():
    text = policy(
        "inject: {queueName: {expression: object.spec.nothing}}\n"
        "rollout: [{enforcement: Warn, namespaces: [team-a]}]"
    )

    decision = policies(text).mutate(request(pod()))

    assert decision.allowed
    assert "cannot be evaluated" in decision.warnings[0]


def test_a_mutation_can_be_rolled_out_to_a_part():
    text = policy("inject: {queueName: a}\nrollout: [{enforcement: Skip, namespaces: [team-a]}]")
    elsewhere = pod()
    elsewhere["metadata"]["namespace"] = "team-b"
    asked = policies(text)

    assert asked.mutate(request(pod())).operations == ()
    assert asked.mutate(request(elsewhere)).operations != ()


@given(st.lists(st.integers(0, 100), min_size=2, max_size=4), st.text(min_size=1, max_size=8))
def test_a_higher_percentage_removes_no_workload(percentages, name):
    place = place_of("p", name)
    picked = [place < percent for percent in sorted(percentages)]

    assert 0 <= place < 100
    assert picked == sorted(picked)


def test_places_are_spread_evenly_and_differ_by_policy():
    names = [f"team-{i % 7}/train-{i}" for i in range(4000)]

    below = sum(place_of("p", name) < 25 for name in names)
    same = sum(place_of("p", name) == place_of("q", name) for name in names)

    assert 900 <= below <= 1100
    assert same < 100


def test_the_first_requests_warned_are_the_first_refused():
    asked = staged("{enforcement: Deny, percent: 10}", "{enforcement: Warn, percent: 40}")
    outcomes = {}
    for number in range(200):
        place = place_of("p", f"team-a/pod-{number}")
        outcomes[place] = outcome(asked.review(request(pod(name=f"pod-{number}"))))

    assert {outcomes[place] for place in outcomes if place < 10} == {"Deny"}
    assert {outcomes[place] for place in outcomes if 10 <= place < 40} == {"Warn"}
    assert {outcomes[place] for place in outcomes if place >= 40} == {"Audit"}


def owned(kind, name, **more):
    owner = {"apiVersion": "batch/v1", "kind": kind, "name": name, "uid": "1", "controller": True}
    return pod(name=f"{name}-0", ownerReferences=[owner], **more)


def job_of(name, owner=None):
    made = job()
    made["metadata"]["name"] = name
    if owner:
        made["metadata"]["ownerReferences"] = [{"kind": owner[0], "name": owner[1]}]
    return made


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        pytest.param(pod(name="one"), "team-a/one", id="pod"),
        pytest.param(job_of("train"), "team-a/train", id="job"),
        pytest.param(owned("Job", "train"), "team-a/train", id="pod-of-a-job"),
        pytest.param(job_of("train-w-0", ("JobSet", "train")), "team-a/train", id="job-of-a-set"),
        pytest.param(
            owned("Job", "train-w-0", labels={"jobset.sigs.k8s.io/jobset-name": "train"}),
            "team-a/train",
            id="pod-of-a-job-set",
        ),
        pytest.param(job_of("eval-29000000", ("CronJob", "eval")), "team-a/eval", id="cron-job"),
        pytest.param(owned("Job", "eval-29000000"), "team-a/eval", id="pod-of-a-cron-job"),
        pytest.param(
            owned("ReplicaSet", "web-6d4f", labels={"pod-template-hash": "6d4f"}),
            "team-a/web",
            id="pod-of-a-deployment",
        ),
        pytest.param(
            pod(labels={"kueue.x-k8s.io/pod-group-name": "ring"}), "team-a/ring", id="pod-group"
        ),
        pytest.param(
            {**pod(), "metadata": {"generateName": "run-", "namespace": "team-a"}},
            "team-a/run",
            id="name-is-made-up-later",
        ),
        pytest.param(
            {
                **pod(),
                "metadata": {"generateName": "run-", "name": "run-x", "namespace": "team-a"},
            },
            "team-a/run",
            id="name-was-made-up",
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}},
            "n",
            id="of-the-cluster",
        ),
        pytest.param(
            pod(ownerReferences="nonsense", labels=None), "team-a/a", id="misshapen-metadata"
        ),
    ],
)
def test_a_workload_goes_by_one_name(obj, expected):
    surroundings = PolicyContext(namespaces=namespace_lookup((), {}))

    assert workload_name(Facts(request(obj), surroundings)) == expected


def test_a_deletion_is_decided_by_the_old_object():
    surroundings = PolicyContext(namespaces=namespace_lookup((), {}))
    deleted = request(owned("Job", "train"), "DELETE")

    assert workload_name(Facts(deleted, surroundings)) == "team-a/train"


BINDING = """
apiVersion: policyd.io/v1alpha1
kind: PolicyBinding
metadata: {name: b}
spec: {policyName: p, %s}
"""


def bound(spec, binding):
    loaded = load_policies("---\n".join([policy(spec), BINDING % binding]), "p.yaml")
    assert not loaded.findings, loaded.findings
    return PolicySet(loaded.policies, bindings=loaded.bindings, namespaces=namespace_lookup((), {}))


@pytest.mark.parametrize(
    ("binding", "expected"),
    [
        pytest.param("enforcement: Deny", "Deny", id="its-own-word"),
        pytest.param("rollout: [{enforcement: Deny}]", "Deny", id="its-own-steps"),
        pytest.param("rollout: [{enforcement: Deny, percent: 0}]", "Audit", id="its-own-nobody"),
        pytest.param("matchResources: {}", "Warn", id="the-policy-s-steps"),
    ],
)
def test_a_binding_has_its_own_rollout_or_the_policy_s(binding, expected):
    asked = bound(NO + "- {enforcement: Warn}", binding)

    assert outcome(asked.review(request(pod()))) == expected


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        pytest.param(
            "[{enforcement: Warn}, {enforcement: Deny, percent: 10}]", "never reached", id="hidden"
        ),
        pytest.param("[{enforcement: Deny, percent: 101}]", "100", id="more-than-all"),
        pytest.param("[{enforcement: Never}]", "`Audit`, `Deny`, `Skip`", id="unknown"),
        pytest.param("[{percent: 10}]", "field `enforcement` is missing", id="to-no-end"),
    ],
)
@pytest.mark.parametrize("where", ["policy", "binding"])
def test_steps_that_cannot_be_meant_are_refused(steps, message, where):
    text = policy(f'validations: [{{expression: "true"}}]\nrollout: {steps}')
    if where == "binding":
        text = BINDING % f"rollout: {steps}"

    loaded = load_policies(text, "p.yaml")

    assert not loaded.policies
    assert not loaded.bindings
    assert any(message in finding.message for finding in loaded.findings), loaded.findings


@pytest.mark.parametrize(
    ("spec", "applies"),
    [
        pytest.param("", True, id="applies-by-itself"),
        pytest.param("requiresBinding: true", False, id="says-that-it-must-be-bound"),
        pytest.param(
            "paramKind: {apiVersion: v1, kind: ConfigMap}", False, id="params-that-nobody-names"
        ),
        pytest.param(
            "paramKind: {apiVersion: v1, kind: ConfigMap}\nparamRef: {name: x}",
            True,
            id="params-that-it-names",
        ),
    ],
)
def test_unbound_policies_do_nothing(spec, applies):
    loaded = load_policies(policy('validations: [{expression: "false"}]\n' + spec), "p.yaml")
    asked = PolicySet(loaded.policies, namespaces=namespace_lookup((), {}))

    assert (not asked.review(request(pod())).allowed) == applies
    messages = [finding.message for finding in check_bindings(loaded.policies, ())]
    assert messages == ([] if applies else ["`p` has no effect without a binding"])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param("", ["`p` would apply everywhere without its bindings"], id="bare"),
        pytest.param("requiresBinding: true", [], id="must-be-bound"),
    ],
)
def test_a_policy_that_relies_on_its_bindings_should_say_so(spec, message):
    text = policy(f'validations: [{{expression: "true"}}]\n{spec}')
    loaded = load_policies(text + "---\n" + BINDING % "enforcement: Warn", "p.yaml")

    findings = check_bindings(loaded.policies, loaded.bindings)

    assert [finding.message for finding in findings] == message


def test_a_request_without_an_object_has_a_place_as_well():
    connect = request(pod(), "CONNECT", object=msgspec.Raw(b"null"))

    assert outcome(staged("{enforcement: Deny}").review(connect)) == "Deny"


def test_policies_without_a_rollout_are_not_looked_at_twice():
    plain = policies(policy('validations: [{expression: "false"}]'))
    part = staged("{enforcement: Warn}")

    assert not any(p.staged for p in plain.policies)
    assert all(p.staged for p in part.policies)
    assert replace(part.policies[0], bindings=plain.policies[0].bindings).staged is False
