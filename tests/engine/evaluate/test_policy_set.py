"""Policies together: in order, on each other's results, all objections in one answer."""

import copy
import json
from functools import cache

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyd.api.admission import GroupVersionResource
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.decision import ALLOWED
from policyd.patch.json_patch import apply_json_patch
from tests.engine.reviews import (
    job,
    job_set,
    mutated,
    pod,
    policies,
    policy,
    raw_request,
    request,
    template,
)


def labels_of(obj):
    return obj["metadata"].get("labels", {})


def test_nothing_concerned_costs_no_decision():
    only_jobs = policy("inject: {labels: {a: b}}").replace('resources: ["*"]', "resources: [jobs]")

    assert policies(only_jobs).mutate(request(pod())) is ALLOWED
    assert policies(only_jobs).validate(request(pod())) is ALLOWED


def test_mutations_see_the_results_of_those_before():
    first = policy("inject: {labels: {team: vision}}", "a-first")
    second = policy(
        """
        matchConditions: [{name: x, expression: "object.metadata.?labels.?team.hasValue()"}]
        inject: {labels: {queue: {expression: "object.metadata.labels.team + '-gpu'"}}}
        """,
        "b-second",
    )

    result = mutated(policies(second, first), pod())

    assert labels_of(result) == {"team": "vision", "queue": "vision-gpu"}


def test_higher_priority_mutates_first():
    second = policy("inject: {labels: {queue: late}}", "a")
    first = policy("inject: {labels: {queue: early}}\npriority: 10", "z")

    assert labels_of(mutated(policies(first, second), pod())) == {"queue": "early"}


def test_a_later_change_is_seen_in_the_second_round():
    reads = policy(
        """
        matchConditions: [{name: x, expression: "object.metadata.?labels.?late.hasValue()"}]
        inject: {labels: {seen: "yes"}}
        """,
        "a-reads",
    )
    writes = policy("inject: {labels: {late: x}}", "b-writes")

    assert labels_of(mutated(policies(reads, writes), pod())) == {"late": "x", "seen": "yes"}


def test_every_objection_is_in_the_answer_the_first_policy_first():
    texts = [
        policy("validations: [{expression: 'false', message: no b}]", "b"),
        policy(
            """
            validations:
            - {name: one, expression: "false", message: no a, remedy: ask, reason: Forbidden}
            - {expression: "1 == 2"}
            - {expression: "true", message: fine}
            """,
            "a",
        ),
    ]

    denials = policies(*texts).validate(request(pod())).denials

    assert [str(denial) for denial in denials] == [
        "a: no a; ask",
        "a: failed expression: 1 == 2",
        "b: no b",
    ]
    assert [(d.validation, d.code, d.reason) for d in denials][:2] == [
        ("one", 403, "Forbidden"),
        ("validations[1]", 422, "Invalid"),
    ]


@pytest.mark.parametrize(
    ("enforcement", "denied", "warnings", "audit"),
    [
        pytest.param("Deny", True, (), {}, id="deny"),
        pytest.param("Warn", False, ("p: no; ask",), {}, id="warn"),
        pytest.param("Audit", False, (), {"p": "no"}, id="audit"),
    ],
)
def test_enforcement_says_what_an_objection_leads_to(enforcement, denied, warnings, audit):
    text = policy(
        f"""
        enforcement: {enforcement}
        validations: [{{expression: "false", message: "no", remedy: ask}}]
        """
    )

    decision = policies(text).validate(request(pod()))

    assert decision.allowed is not denied
    assert decision.warnings == warnings
    assert dict(decision.audit_annotations) == audit


def test_messages_are_computed_and_fall_back_to_the_static_one():
    text = policy(
        """
        validations:
        - {expression: "false", messageExpression: "'named ' + object.metadata.name", message: x}
        - {expression: "false", messageExpression: "string(object.missing)", message: static}
        - {expression: "false", messageExpression: "' '", message: blank}
        - {expression: "false", messageExpression: "'two\\\\nlines'", message: lines}
        """
    )

    denials = policies(text).validate(request(pod(name="x"))).denials

    assert [denial.message for denial in denials] == ["named x", "static", "blank", "lines"]


def test_a_false_condition_outweighs_one_that_fails():
    text = policy(
        """
        matchConditions:
        - {name: broken, expression: "object.metadata.missing == 1"}
        - {name: "no", expression: "object.kind == 'Service'"}
        validations: [{expression: "false"}]
        """
    )

    assert policies(text).validate(request(pod())).allowed


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        pytest.param(
            "matchConditions: [{name: c, expression: 'object.missing == 1'}]\n"
            "validations: [{expression: 'true'}]",
            "match condition `c` failed: no such key: missing",
            id="condition",
        ),
        pytest.param(
            "validations: [{name: v, expression: 'object.missing == 1'}]",
            "`v` failed: no such key: missing",
            id="validation",
        ),
        pytest.param(
            "inject: {labels: {a: {expression: 'object.missing'}}}",
            "no such key: missing",
            id="inject",
        ),
        pytest.param(
            "inject: {labels: {a: {expression: 'object.metadata'}}}",
            "`inject.labels.a` evaluates to",
            id="inject-of-the-wrong-type",
        ),
    ],
)
def test_a_failed_evaluation_follows_the_failure_policy(spec, wanted):
    fails = policies(policy(spec)).review(request(pod()))
    ignores = policies(policy(f"failurePolicy: Ignore\n{spec}")).review(request(pod()))

    assert f"p: cannot be evaluated: {wanted}" in str(fails.denials[0])
    assert fails.denials[0].code == 403
    assert ignores.allowed
    assert wanted in ignores.failures[0].message
    assert "could not be evaluated" in ignores.audit_annotations["p"]


def test_a_policy_that_fails_half_way_changes_nothing():
    breaks = policy(
        """
        failurePolicy: Ignore
        inject: {objectLabels: {half: done}, tolerations: [{key: a, operator: Exists}]}
        """,
        "a-breaks",
    )
    works = policy("inject: {objectLabels: {works: x}}", "b-works")
    obj = pod()
    obj["spec"]["tolerations"] = "none"

    assert labels_of(mutated(policies(breaks, works), obj)) == {"works": "x"}


def test_changes_before_a_failure_stay():
    works = policy("inject: {objectLabels: {works: x}}", "a-works")
    breaks = policy("failurePolicy: Ignore\ninject: {schedulingGates: [{name: g}]}", "b-breaks")
    obj = pod()
    obj["spec"]["schedulingGates"] = [1]

    assert labels_of(mutated(policies(works, breaks), obj)) == {"works": "x"}


def test_variables_are_lazy_and_may_use_those_before():
    text = policy(
        """
        variables:
        - {name: team, expression: "namespaceObject.metadata.labels['team']"}
        - {name: queue, expression: "variables.team + '-gpu'"}
        - {name: broken, expression: "object.missing"}
        inject: {queueName: {expression: variables.queue}}
        """
    )

    result = mutated(policies(text, labels={"team": "vision"}), pod())

    assert labels_of(result) == {"kueue.x-k8s.io/queue-name": "vision-gpu"}


def test_a_computed_value_that_is_missing_is_left_out():
    text = policy(
        """
        inject:
          queueName: {expression: "namespaceObject.metadata.labels[?'queue']"}
          labels: {a: {expression: "object.metadata.?missing"}, b: {expression: "3"}}
          tolerations:
          - {key: t, operator: Exists, tolerationSeconds: {expression: "dyn(null)"}}
        """
    )

    result = mutated(policies(text), pod())

    assert labels_of(result) == {"b": "3"}
    assert result["spec"]["tolerations"] == [{"key": "t", "operator": "Exists"}]


GPU_LABEL = policy(
    """
    matchConditions: [{name: gpu, expression: pod.gpus() > 0}]
    inject:
      labels: {gpus: {expression: string(pod.gpus())}}
      objectLabels:
        all: {expression: "string(workload.gpus()) + ' on ' + string(workload.pods())"}
    """
)


def test_a_policy_about_pods_is_asked_for_each_template():
    result = mutated(policies(GPU_LABEL), job_set(0, 4, 8))

    templates = [each["template"]["spec"]["template"] for each in result["spec"]["replicatedJobs"]]
    assert [t.get("metadata") for t in templates] == [
        None,
        {"labels": {"gpus": "4"}},
        {"labels": {"gpus": "8"}},
    ]
    assert labels_of(result) == {"all": "12 on 3"}


def test_a_denial_names_the_template_if_there_are_several():
    text = policy("validations: [{expression: pod.gpus() <= 4, message: too many}]")

    many = policies(text).validate(request(job_set(0, 8))).denials
    one = policies(text).validate(request(job(gpus=8))).denials

    assert [d.path for d in many] == ["spec.replicatedJobs[1].template.spec.template"]
    assert [d.path for d in one] == [""]


def test_kinds_without_pods_request_nothing():
    text = policy("validations: [{expression: pod.gpus() == 0 && workload.pods() == 0}]")
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}

    assert policies(text).validate(request(service)).allowed


EVERYWHERE = policy(
    """
    inject:
      queueName: q
      labels: {l: v}
      annotations: {a: v}
      objectLabels: {ol: v}
      nodeSelector: {n: v}
      topology: {required: rack}
      schedulingGates: [{name: g}]
      gang: {minMember: 2, name: run}
    """
)


def test_a_pod_gets_everything_itself():
    result = mutated(policies(EVERYWHERE), pod())

    assert labels_of(result) == {
        "kueue.x-k8s.io/queue-name": "q",
        "kueue.x-k8s.io/pod-group-name": "run",
        "ol": "v",
        "l": "v",
    }
    assert result["metadata"]["annotations"] == {
        "kueue.x-k8s.io/pod-group-total-count": "2",
        "a": "v",
        "kueue.x-k8s.io/podset-required-topology": "rack",
    }
    assert result["spec"]["nodeSelector"] == {"n": "v"}
    assert result["spec"]["schedulingGates"] == [{"name": "g"}]


def test_a_job_is_queued_and_its_template_gets_what_is_for_pods():
    result = mutated(policies(EVERYWHERE), job(parallelism=4))

    assert labels_of(result) == {"kueue.x-k8s.io/queue-name": "q", "ol": "v"}
    assert result["metadata"]["annotations"] == {"kueue.x-k8s.io/job-min-parallelism": "2"}
    assert result["spec"]["template"]["metadata"] == {
        "labels": {"l": "v"},
        "annotations": {"a": "v", "kueue.x-k8s.io/podset-required-topology": "rack"},
    }
    assert result["spec"]["template"]["spec"]["nodeSelector"] == {"n": "v"}


def test_the_job_of_a_cron_job_is_what_is_queued():
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "c"},
        "spec": {"jobTemplate": {"spec": {"template": template()}}},
    }

    result = mutated(policies(EVERYWHERE), cron)

    queue = {"kueue.x-k8s.io/queue-name": "q"}
    assert result["spec"]["jobTemplate"]["metadata"]["labels"] == queue
    assert result["metadata"]["labels"] == {"ol": "v"}


def test_other_objects_get_labels_and_annotations_only():
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}

    result = mutated(policies(EVERYWHERE), config)

    assert result["metadata"] == {
        "name": "c",
        "labels": {"ol": "v", "l": "v"},
        "annotations": {"a": "v"},
    }


def test_immutable_fields_are_not_changed_on_update():
    changed_pod = mutated(policies(EVERYWHERE), pod(), "UPDATE", old=pod())
    changed_job = mutated(policies(EVERYWHERE), job(parallelism=4), "UPDATE", old=job())

    assert changed_pod["spec"] == pod()["spec"]
    assert labels_of(changed_pod) == {"ol": "v", "l": "v"}
    assert changed_job["spec"] == job(parallelism=4)["spec"]


def test_a_deployment_is_kept_as_it_should_be_on_update():
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"template": template()},
    }

    result = mutated(policies(EVERYWHERE), deployment, "UPDATE", old=deployment)

    assert result["spec"]["template"]["spec"]["nodeSelector"] == {"n": "v"}


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT"])
def test_unstored_fields_are_not_changed(operation):
    asked = msgspec.structs.replace(request(pod(), "DELETE"), operation=operation)

    assert policies(EVERYWHERE).mutate(asked).operations == ()


def test_a_subresource_is_not_changed():
    assert policies(EVERYWHERE).mutate(request(pod(), sub_resource="status")).operations == ()


def test_on_deletion_expressions_see_what_is_deleted():
    text = policy("validations: [{expression: 'object == null && pod.gpus() == 2'}]")

    assert policies(text).validate(request(pod(gpus=2), "DELETE")).allowed


def test_the_request_is_seen_without_its_empty_fields():
    text = policy(
        """
        validations:
        - expression: >-
            request.userInfo.username == 'alice' && 'dev' in request.userInfo.groups
            && request.operation == 'CREATE' && request.namespace == 'team-a'
            && request.kind.group == '' && !has(request.subResource) && request.dryRun
        """
    )

    assert policies(text).validate(request(pod(), user="alice", groups=["dev"])).allowed


def test_exact_policies_look_at_the_resource_the_client_named():
    text = policy("inject: {objectLabels: {a: b}}")
    text = text.replace('apiGroups: ["*"]', "apiGroups: [apps]")
    exact = text.replace("resourceRules", "matchPolicy: Exact\n    resourceRules")
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}
    old = GroupVersionResource(group="extensions", version="v1beta1", resource="deployments")
    asked = request(deployment, request_resource=old)

    assert policies(text).mutate(asked).operations
    assert not policies(exact).mutate(asked).operations
    assert policies(exact).mutate(request(deployment)).operations


def test_an_unknown_namespace_follows_the_failure_policy():
    text = policy("validations: [{expression: \"namespaceObject.metadata.name == 'x'\"}]")

    denial = policies(text, namespaces=lambda name: None).validate(request(pod())).denials[0]

    assert str(denial) == (
        "p: cannot be evaluated: namespace `team-a` is not known yet; try again in a moment"
    )


def test_a_policy_that_costs_too_much_is_stopped():
    text = policy(
        """
        validations:
        - expression: >-
            [0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9].all(c,
            [0,1,2,3,4,5,6,7,8,9].all(d, [0,1,2,3,4,5,6,7,8,9].all(e, [0,1,2,3,4,5,6,7,8,9].all(f,
            a + b + c + d + e + f >= 0))))))
          message: never true in time
        """
    )

    decision = policies(text).validate(request(pod()))

    assert "cost" in decision.denials[0].message


def nested(depth):
    return {"env": nested(depth - 1)} if depth else {}


HOSTILE = {
    "containers-null": {"spec": {"containers": None}},
    "containers-text": {"spec": {"containers": "x"}},
    "containers-of-numbers": {"spec": {"containers": [1, None, []]}},
    "spec-list": {"spec": []},
    "metadata-null": {"metadata": None},
    "metadata-text": {"metadata": "x"},
    "labels-list": {"metadata": {"labels": ["x"]}},
    "labels-of-numbers": {"metadata": {"labels": {"a": 1}}},
    "resources-text": {"spec": {"containers": [{"name": "a", "resources": "x"}]}},
    "limits-text": {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "x"}}}]}},
    "huge-number": {
        "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 10**30}}}]}
    },
    "affinity-text": {"spec": {"affinity": "x"}},
    "tolerations-object": {"spec": {"tolerations": {}}},
    "tolerations-of-lists": {"spec": {"tolerations": [{"key": [1], "effect": {}}]}},
    "very-deep": {"spec": {"containers": [nested(900)]}},
    "template-paths": {
        "kind": "JobSet",
        "apiVersion": "jobset.x-k8s.io/v1",
        "spec": {"replicatedJobs": [1]},
    },
}

EVERY_FIELD = policy(
    """
    matchConditions: [{name: c, expression: "pod.gpus() >= 0"}]
    inject:
      queueName: q
      priorityClassName: high
      workloadPriorityClassName: high
      tolerations: [{key: t, operator: Exists}]
      nodeSelector: {n: v}
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b]}]}]
      topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]
      topology: {preferred: rack}
      gang: {minMember: 2, name: run}
      schedulingGates: [{name: g}]
      resources: {requests: {cpu: 1}, limits: {memory: 1Gi}}
      labels: {l: v}
      annotations: {a: v}
    validations:
    - {expression: "object.spec.containers.all(c, c.name != 'bad')"}
    """
)


@cache
def policies_of_every_field():
    return policies(EVERY_FIELD)


@pytest.mark.parametrize("parts", [pytest.param(p, id=name) for name, p in HOSTILE.items()])
@pytest.mark.parametrize("failure", ["Fail", "Ignore"])
def test_a_hostile_object_is_decided_about_and_nothing_is_raised(parts, failure):
    policy_set = policies(EVERY_FIELD.replace("spec:\n", f"spec:\n  failurePolicy: {failure}\n", 1))
    asked = raw_request(pod() | parts)

    for decision in (policy_set.mutate(asked), policy_set.validate(asked)):
        assert decision.allowed or decision.denials[0].policy == "p"
    assert policy_set.review(request(pod())).allowed


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(
            b'{"metadata": {"labels": ' + b"[" * 5000 + b"]" * 5000 + b"}}", "deep", id="deep"
        ),
        pytest.param(b'{"metadata": ', "truncated", id="broken"),
        pytest.param(b'{"spec": 1e999}', "out of range", id="number-out-of-range"),
    ],
)
def test_an_object_that_cannot_be_decoded_follows_the_failure_policy(text, reason):
    policy_set = policies(EVERY_FIELD)

    decision = policy_set.mutate(raw_request(text))

    assert reason in decision.denials[0].message


def test_of_fields_given_twice_the_last_counts_as_in_the_api_server():
    text = b'{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"a":"1","a":"2"}}}'
    only = policies(policy("validations: [{expression: \"object.metadata.labels.a == '2'\"}]"))

    assert only.validate(raw_request(text)).allowed


texts = st.text("ab", max_size=3)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
conditions = st.lists(
    json_values
    | st.fixed_dictionaries(
        {"key": json_values}, optional={"operator": texts, "values": json_values}
    ),
    max_size=2,
)
required = st.lists(
    json_values | st.fixed_dictionaries({"matchExpressions": conditions}), max_size=2
)
affinities = st.fixed_dictionaries(
    {
        "nodeAffinity": st.fixed_dictionaries(
            {
                "requiredDuringSchedulingIgnoredDuringExecution": st.fixed_dictionaries(
                    {"nodeSelectorTerms": required}
                )
            }
        )
    }
)
pods = st.fixed_dictionaries(
    {"apiVersion": st.just("v1"), "kind": st.just("Pod")},
    optional={
        "metadata": json_values
        | st.fixed_dictionaries({}, optional={"labels": json_values, "annotations": json_values}),
        "spec": json_values
        | st.fixed_dictionaries(
            {},
            optional={
                "containers": json_values,
                "tolerations": json_values,
                "affinity": json_values | affinities,
                "nodeSelector": json_values,
                "schedulingGates": json_values,
            },
        ),
    },
)


@settings(deadline=None)  # of a machine that does other things besides
@given(pods)
def test_mutation_is_idempotent_and_its_operations_say_it_all(obj):
    policy_set = policies_of_every_field()
    before = copy.deepcopy(obj)

    decision = policy_set.mutate(raw_request(obj))
    result = apply_json_patch(obj, decision.operations)
    again = policy_set.mutate(raw_request(result))

    assert obj == before
    assert again.operations == () or not decision.allowed


@settings(deadline=None)
@given(pods, st.randoms())
def test_the_order_of_fields_does_not_matter(obj, random):
    def shuffled(value):
        if isinstance(value, dict):
            items = list(value.items())
            random.shuffle(items)
            return {key: shuffled(item) for key, item in items}
        return [shuffled(item) for item in value] if isinstance(value, list) else value

    policy_set = policies_of_every_field()
    one, other = (policy_set.review(raw_request(o)) for o in (obj, shuffled(obj)))

    assert one.denials == other.denials
    assert json.dumps(apply_json_patch(obj, one.operations), sort_keys=True) == json.dumps(
        apply_json_patch(obj, other.operations), sort_keys=True
    )


def test_the_order_of_policies_in_files_does_not_matter():
    texts = [policy(f"inject: {{labels: {{l: {name}}}}}", name) for name in ("a", "b", "c")]

    results = [mutated(policies(*order), pod()) for order in (texts, texts[::-1])]

    assert results[0] == results[1]


def test_an_empty_set_allows_everything():
    empty = PolicySet(namespaces=lambda name: None)

    assert empty.review(request(pod())).allowed
    assert msgspec.json.encode(empty.review(request(pod())).operations) == b"[]"
