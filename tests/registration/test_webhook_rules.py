"""The requests that are sent to the webhooks: all that policies need, and few others."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyd.api.selectors import LabelSelector, Requirement
from policyd.cel import Budget, admission_environment, compile_expression
from policyd.engine.objects.match import RequestAttributes, rules_match, selects_object
from policyd.jobs.integrations import EVERYTHING, Integrations
from policyd.registration.webhook_rules import MOST_WEBHOOKS, derive_webhook_rules
from tests.attacks.leavings import tries
from tests.attacks.membership import is_sent
from tests.webhooks.policies import bound, policy, rule

RESEARCH = {"matchLabels": {"tier": "research"}}
PRODUCTION = {"matchLabels": {"tier": "production"}}
TWO_TIERS = {"key": "tier", "operator": "In", "values": ["research", "x"]}
GPU = {"matchLabels": {"gpu": "yes"}}


def written(calls, failure_policy=None):
    """One line a rule: group/version scope operations resources."""
    return [
        f"{'+'.join(r.api_groups)}/{'+'.join(r.api_versions)} {r.scope}"
        f" {'+'.join(r.operations)} {'+'.join(r.resources)}"
        for call in calls
        for r in call.rules
        if failure_policy in (None, call.failure_policy)
    ]


def shown(calls):
    """What each webhook asks for: resources, labels of namespaces and of objects, condition."""
    return [
        " ".join(
            [
                call.failure_policy,
                "+".join(resource for r in call.rules for resource in r.resources),
                *([f"in:{selector(call.namespaces)}"] if call.namespaces else []),
                *([f"of:{selector(call.objects)}"] if call.objects else []),
                *(["if"] if call.condition else []),
            ]
        )
        for call in calls
    ]


def selector(requirements):
    signs = {"In": "=", "NotIn": "!=", "Exists": "", "DoesNotExist": " not there"}
    return ",".join(sorted(f"{r.key}{signs[r.operator]}{'|'.join(r.values)}" for r in requirements))


@pytest.mark.parametrize(
    ("policies", "mutate", "validate", "validate_if_up"),
    [
        pytest.param([], [], [], [], id="no-policy-no-call"),
        pytest.param(
            [policy(rule(), inject=True)], ["/v1 * CREATE pods"], [], [], id="mutation-only"
        ),
        pytest.param(
            [policy(rule(), validations=True)], [], ["/v1 * CREATE pods"], [], id="validation-only"
        ),
        pytest.param(
            [policy(rule(), validations=True, failure="Ignore")],
            [],
            [],
            ["/v1 * CREATE pods"],
            id="failure-policy-ignore",
        ),
        pytest.param(
            [policy(rule(operations="*"), inject=True)],
            ["/v1 * CREATE+UPDATE pods"],
            [],
            [],
            id="deletions-are-not-mutated",
        ),
        pytest.param(
            [policy(rule(operations="DELETE,CONNECT"), inject=True)],
            [],
            [],
            [],
            id="nothing-left-to-mutate",
        ),
        pytest.param(
            [
                policy(rule("pods,services"), validations=True),
                policy(rule("pods", "UPDATE"), validations=True),
            ],
            [],
            ["/v1 * CREATE+UPDATE pods", "/v1 * CREATE services"],
            [],
            id="several-policies-are-joined",
        ),
        pytest.param(
            [
                policy(rule("pods,jobs", groups=",batch", versions="*"), validations=True),
                policy(rule("*", groups="*", versions="*"), validations=True),
            ],
            [],
            ["*/* * CREATE *"],
            [],
            id="a-wildcard-takes-the-rest-in",
        ),
        pytest.param(
            [
                policy(rule("pods/status,pods/*,pods"), validations=True),
                policy(rule("*/scale"), validations=True),
            ],
            [],
            ["/v1 * CREATE */scale+pods+pods/*"],
            [],
            id="subresources-are-not-their-resource",
        ),
        pytest.param(
            [
                policy(rule("pods"), validations=True),
                policy(rule("pods,secrets"), validations=True, failure="Ignore"),
            ],
            [],
            ["/v1 * CREATE pods"],
            ["/v1 * CREATE secrets"],
            id="nothing-is-validated-twice",
        ),
        pytest.param(
            [policy(rule("*", groups="*", scope="Namespaced"), validations=True)],
            [],
            ["*/v1 Namespaced CREATE *"],
            [],
            id="scope-is-kept",
        ),
    ],
)
def test_rules_are_those_of_the_policies(policies, mutate, validate, validate_if_up):
    rules = derive_webhook_rules(policies, queue=None)

    assert written(rules.mutate) == mutate
    assert written(rules.validate, "Fail") == validate
    assert written(rules.validate, "Ignore") == validate_if_up


def test_the_order_of_the_policies_makes_no_difference():
    policies = [policy(rule(name), inject=True) for name in ("pods", "secrets", "services")]

    assert derive_webhook_rules(policies, queue=EVERYTHING) == derive_webhook_rules(
        policies[::-1], queue=EVERYTHING
    )


def jobs(operations):
    """The rules for all kinds of jobs."""
    trained = "jaxjobs+paddlejobs+pytorchjobs+tfjobs+xgboostjobs"
    return [
        f"batch/v1 Namespaced {operations} jobs",
        f"jobset.x-k8s.io/v1alpha2 Namespaced {operations} jobsets",
        f"kubeflow.org/v1 Namespaced {operations} {trained}",
        f"kubeflow.org/v2beta1 Namespaced {operations} mpijobs",
        f"ray.io/v1 Namespaced {operations} rayclusters+rayjobs+rayservices",
        f"sparkoperator.k8s.io/v1beta2 Namespaced {operations} sparkapplications",
        f"trainer.kubeflow.org/v1alpha1 Namespaced {operations} trainjobs",
        f"workload.codeflare.dev/v1beta2 Namespaced {operations} appwrappers",
    ]


PARENTS = [
    "apps/v1 Namespaced CREATE+UPDATE deployments+replicasets+statefulsets",
    "batch.volcano.sh/v1alpha1 Namespaced CREATE+UPDATE jobs",
    "leaderworkerset.x-k8s.io/v1 Namespaced CREATE+UPDATE leaderworkersets",
]
"""The rules for what makes pods that are held for it."""


CRON_JOBS = "batch/v1 Namespaced CREATE+UPDATE cronjobs"
"""The rule for what passes its queue on to its Jobs."""


PREPARED = "trainer.kubeflow.org/v1alpha1 Namespaced CREATE trainjobs"
"""The rule for jobs that get something in no queue either."""


def by_group(rule):
    """Sort as rules are: by group, version and resource."""
    words = rule.split()
    return words[0].split("/"), words[-1]


def everything(operations):
    rules = [*jobs(operations), *PARENTS]
    own = f"batch/v1 Namespaced {operations} jobs"
    if operations == CRON_JOBS.split()[2]:  # one rule for both
        rules[rules.index(own)] = own.replace(" jobs", " cronjobs+jobs")
    else:
        rules.append(CRON_JOBS)
    return sorted(rules, key=by_group)


@pytest.mark.parametrize(
    ("policies", "mutate", "validate"),
    [
        pytest.param(
            [],
            ["/v1 Namespaced CREATE pods", *everything("CREATE")],
            ["/v1 Namespaced CREATE+UPDATE pods", *everything("CREATE+UPDATE")],
            id="jobs-and-pods",
        ),
        pytest.param(
            [policy(rule(), inject=True, validations=True)],
            everything("CREATE"),
            ["/v1 Namespaced UPDATE pods", *everything("CREATE+UPDATE")],
            id="what-policies-see-already-is-not-sent-again",
        ),
        pytest.param(
            [policy(rule("*", "*", "*", "*"), inject=True, validations=True)],
            [],
            [],
            id="policies-see-everything",
        ),
        pytest.param(
            [policy(rule("*", "*", "*", "*"), inject=True, validations=True, failure="Ignore")],
            ["/v1 Namespaced CREATE pods", *everything("CREATE")],
            ["/v1 Namespaced CREATE+UPDATE pods", *everything("CREATE+UPDATE")],
            id="policies-that-may-be-left-out-see-everything",
        ),
    ],
)
def test_jobs_in_a_queue_are_sent_where_no_policy_sees_them(policies, mutate, validate):
    rules = derive_webhook_rules(policies, queue=EVERYTHING)

    assert written(in_a_queue(rules.mutate), "Fail") == mutate
    assert written(in_a_queue(rules.validate), "Fail") == validate


def test_jobs_that_get_something_in_any_case_are_sent_without_a_queue_and_may_pass():
    calls = derive_webhook_rules([], queue=EVERYTHING).mutate

    assert PREPARED in written(calls, "Ignore")


def in_a_queue(calls):
    queued = {Requirement(key="kueue.x-k8s.io/queue-name", operator="Exists")}
    return [call for call in calls if call.objects == queued]


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        pytest.param(
            [policy(rule(), validations=True, namespaces=RESEARCH)],
            ["Fail pods in:tier=research"],
            id="one-with-a-label-stops-no-other-namespace",
        ),
        pytest.param(
            [policy(rule(), validations=True, objects=GPU)],
            ["Fail pods of:gpu=yes"],
            id="one-with-a-label-stops-no-other-object",
        ),
        pytest.param(
            [
                policy(rule(), validations=True, namespaces=RESEARCH),
                policy(rule(), validations=True, namespaces=PRODUCTION),
            ],
            ["Fail pods in:tier=production", "Fail pods in:tier=research"],
            id="namespaces-are-kept-apart",
        ),
        pytest.param(
            [
                policy(rule("pods,secrets"), validations=True, namespaces=RESEARCH),
                policy(rule(), validations=True),
            ],
            ["Fail pods", "Fail secrets in:tier=research"],
            id="what-is-sent-anyway-is-not-sent-twice",
        ),
        pytest.param(
            [
                policy(rule(), validations=True, namespaces=RESEARCH),
                policy(rule(), validations=True, failure="Ignore"),
            ],
            ["Fail pods in:tier=research", "Ignore pods"],
            id="failure-policies-are-kept-apart",
        ),
        pytest.param(
            [
                policy(rule(), validations=True),
                policy(
                    rule(), validations=True, failure="Ignore", namespaces=RESEARCH, objects=GPU
                ),
            ],
            ["Fail pods"],
            id="what-must-be-asked-may-be-asked-for-others-too",
        ),
        pytest.param(
            [
                policy(rule(), validations=True, namespaces=RESEARCH),
                policy(
                    rule("pods,jobs"),
                    validations=True,
                    namespaces={"matchExpressions": [TWO_TIERS]},
                ),
            ],
            [
                "Fail jobs in:tier=research|x",
                "Fail pods in:tier=research",
                "Fail pods in:tier!=research,tier=research|x",
            ],
            id="namespaces-that-overlap-are-cut",
        ),
        pytest.param(
            [policy(rule(), validations=True, enforcement="Warn")],
            ["Ignore pods"],
            id="a-warning-stops-nothing",
        ),
        pytest.param(
            [
                policy(rule(), validations=True, objects=GPU),
                policy(rule("jobs", groups="batch"), validations=True),
            ],
            ["Fail jobs", "Fail pods of:gpu=yes"],
            id="labels-are-asked-of-the-kinds-they-are-for",
        ),
        pytest.param(
            [
                policy(rule(), validations=True, objects=GPU),
                policy(rule("*"), validations=True),
            ],
            ["Fail *"],
            id="a-wildcard-takes-in-what-has-labels",
        ),
        pytest.param(
            [
                policy(rule("pods", versions="v1,v2"), validations=True, objects=GPU),
                policy(rule("*", versions="v2"), validations=True, objects=RESEARCH),
            ],
            ["Fail pods of:gpu=yes", "Fail * if"],
            id="what-wildcards-share-is-asked-for-both",
        ),
        pytest.param(
            [
                policy(rule(), validations=True, objects=GPU),
                policy(rule(), validations=True, conditions=["request.operation == 'CREATE'"]),
            ],
            ["Fail pods if"],
            id="one-of-two-by-a-condition",
        ),
        pytest.param(
            [
                policy(rule(), validations=True, objects=GPU, conditions=["true"]),
                policy(rule(), validations=True, objects=GPU, conditions=["false"]),
            ],
            ["Fail pods of:gpu=yes if"],
            id="what-all-ask-of-labels-is-a-selector",
        ),
        pytest.param(
            [
                policy(rule(), validations=True, conditions=["request.operation == 'CREATE'"]),
                policy(rule(), validations=True, conditions=["pod.gpus() == 1"]),
            ],
            ["Fail pods"],
            id="a-condition-that-only-the-webhooks-can-ask",
        ),
        pytest.param(
            [policy(rule(), validations=True, conditions=["pod.gpus() > 1"]) for _ in range(5)],
            ["Fail pods if"],
            id="gpus-are-asked-for-once",
        ),
        pytest.param(
            [policy(rule(resourceNames=["a"]), validations=True)],
            ["Fail pods if"],
            id="names-are-a-condition",
        ),
        pytest.param(
            [
                policy(rule(), validations=True, namespaces={"matchLabels": {"team": str(n)}})
                for n in range(MOST_WEBHOOKS + 1)
            ],
            [f"Fail pods in:team={'|'.join(sorted(map(str, range(MOST_WEBHOOKS + 1))))}"],
            id="too-many-namespaces-are-taken-together",
        ),
        pytest.param(
            [
                policy(
                    rule(f"kind{n}"),
                    validations=True,
                    objects={"matchLabels": {"n": str(n)}},
                    namespaces=RESEARCH if n % 2 else PRODUCTION,
                )
                for n in range(MOST_WEBHOOKS + 1)
            ],
            [
                "Fail "
                + "+".join(sorted(f"kind{n}" for n in range(0, MOST_WEBHOOKS + 1, 2)))
                + " in:tier=production",
                "Fail "
                + "+".join(sorted(f"kind{n}" for n in range(1, MOST_WEBHOOKS + 1, 2)))
                + " in:tier=research",
            ],
            id="too-many-labels-are-left-to-the-webhooks",
        ),
        pytest.param(
            [
                policy(rule(), validations=True, objects={"matchLabels": {"team": str(n)}})
                for n in range(100)
            ],
            ["Fail pods"],
            id="too-many-alternatives-are-left-to-the-webhooks",
        ),
    ],
)
def test_webhooks_receive_as_few_requests_as_possible(policies, expected):
    assert shown(derive_webhook_rules(policies, queue=None).validate) == expected
    assert derive_webhook_rules(policies[::-1], queue=None) == derive_webhook_rules(
        policies, queue=None
    )


NATIVE = "admissionregistration.k8s.io/v1"


def test_bindings_narrow_what_is_sent_and_say_whether_it_is_refused():
    spec = {
        "matchConstraints": {"resourceRules": [rule()], "objectSelector": GPU},
        "validations": [{"expression": "true"}],
    }
    bindings = [
        {
            "apiVersion": NATIVE,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": action.lower()},
            "spec": {
                "policyName": "p",
                "validationActions": [action],
                "matchResources": {"namespaceSelector": namespaces},
            },
        }
        for action, namespaces in (("Deny", RESEARCH), ("Warn", PRODUCTION))
    ]
    named = {"apiVersion": NATIVE, "metadata": {"name": "p"}}
    policy_ = {**named, "kind": "ValidatingAdmissionPolicy", "spec": spec}

    calls = derive_webhook_rules(bound(policy_, *bindings), queue=None).validate

    assert shown(calls) == [
        "Fail pods in:tier=research of:gpu=yes",
        "Ignore pods in:tier=production of:gpu=yes",
    ]


def test_conditions_of_kyvernos_policies_are_sent_to_the_webhook():
    spec = {
        "matchConstraints": {"resourceRules": [rule()]},
        "matchConditions": [{"name": "c", "expression": "has(object.metadata.labels)"}],
        "validations": [{"expression": "true"}],
    }
    kind = {"apiVersion": "policies.kyverno.io/v1", "kind": "ValidatingPolicy"}
    [policy_] = bound({**kind, "metadata": {"name": "p"}, "spec": spec})

    calls = derive_webhook_rules([policy_], queue=None).validate

    assert not any(call.condition for call in calls)
    assert "cronjobs" in written(calls)[-1]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, "Fail", id="by-default"),
        pytest.param({"failure": "Ignore"}, "Ignore", id="that-may-be-left-out"),
        pytest.param({"enforcement": "Warn"}, "Ignore", id="that-refuses-nothing"),
    ],
)
def test_a_mutation_stops_what_its_policy_says(given, expected):
    calls = derive_webhook_rules([policy(rule(), inject=True, **given)], queue=None).mutate

    assert shown(calls) == [f"{expected} pods"]


KYVERNOS = {
    "apiVersion": "policies.kyverno.io/v1",
    "kind": "MutatingPolicy",
    "metadata": {"name": "p"},
}
MUTATED = {
    "matchConstraints": {"resourceRules": [rule("configmaps")]},
    "mutations": [
        {
            "patchType": "JSONPatch",
            "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/data/a'}]"},
        },
    ],
}
NATIVE_BINDING = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "MutatingAdmissionPolicyBinding",
    "metadata": {"name": "b"},
    "spec": {"policyName": "p"},
}


@pytest.mark.parametrize("failure", ["Fail", "Ignore", None])
@pytest.mark.parametrize(
    ("kind", "others"),
    [
        pytest.param(KYVERNOS, [], id="kyvernos"),
        pytest.param(
            {
                **KYVERNOS,
                "apiVersion": NATIVE_BINDING["apiVersion"],
                "kind": "MutatingAdmissionPolicy",
            },
            [NATIVE_BINDING],
            id="the-api-servers",
        ),
    ],
)
def test_mutations_of_others_stop_what_their_policies_say(kind, others, failure):
    spec = MUTATED | ({} if failure is None else {"failurePolicy": failure})

    calls = derive_webhook_rules(bound({**kind, "spec": spec}, *others), queue=None).mutate

    assert shown(calls) == [f"{failure or 'Fail'} configmaps"]


MAY_BE_LEFT_OUT = policy(rule(), inject=True, failure="Ignore")
NO_QUEUE = "kueue.x-k8s.io/queue-name not there"
OF_A_SET = "statefulset.kubernetes.io/pod-name"


def test_pods_that_name_no_queue_pass_in_an_outage_and_are_sent_once():
    calls = derive_webhook_rules([MAY_BE_LEFT_OUT], queue=EVERYTHING).mutate

    assert [
        " ".join(["pods" if word.startswith("pods+") else word for word in line.split(" ")])
        for line in shown([call for call in calls if of_pods(call)])
    ] == [
        "Fail pods of:kueue.x-k8s.io/queue-name",
        f"Fail pods of:{NO_QUEUE},{OF_A_SET} if",
        f"Ignore pods of:{NO_QUEUE},{OF_A_SET} not there",
        f"Ignore pods of:{NO_QUEUE},{OF_A_SET} if",
    ]


@pytest.mark.parametrize("number", [1, MOST_WEBHOOKS + 1, 100])
def test_however_many_policies_there_are_the_queue_stops_no_more(number):
    policies = [
        policy(
            rule(),
            inject=True,
            validations=True,
            failure="Ignore",
            objects={"matchLabels": {"team": str(n)}},
            namespaces={"matchLabels": {"tier": str(n % 40)}},
        )
        for n in range(number)
    ]
    rules = derive_webhook_rules(policies, queue=EVERYTHING, defaulted=frozenset({"a"}))

    for call in filter(of_pods, rules.mutate + rules.validate):
        keys = {each.key for each in call.objects} | {each.key for each in call.namespaces}
        named = {"kueue.x-k8s.io/queue-name", "kubernetes.io/metadata.name"}
        assert call.failure_policy == "Ignore" or keys & named


def of_pods(call):
    return any("pods" in each.resources for each in call.rules)


def test_the_failure_policy_of_jobs_is_configurable():
    rules = derive_webhook_rules([], queue=EVERYTHING, failure_policy="Ignore")

    assert {call.failure_policy for call in rules.mutate + rules.validate} == {"Ignore"}


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        pytest.param(
            [
                policy(rule(), inject=True, namespaces=RESEARCH),
                policy(rule(), inject=True, namespaces=PRODUCTION),
            ],
            ["Fail pods in:tier=production", "Fail pods in:tier=research"],
            id="namespaces-that-are-never-the-same",
        ),
        pytest.param(
            [
                policy(rule(), inject=True, namespaces=RESEARCH),
                policy(rule(), inject=True, namespaces={"matchLabels": {"team": "a"}}),
            ],
            [
                "Fail pods in:team=a,tier=research",
                "Fail pods in:team=a,tier!=research",
                "Fail pods in:team!=a,tier=research",
            ],
            id="namespaces-that-may-be-the-same",
        ),
        pytest.param(
            [
                policy(rule(), inject=True, namespaces={"matchLabels": {"team": str(n)}})
                for n in range(MOST_WEBHOOKS + 1)
            ],
            [f"Fail pods in:team={'|'.join(sorted(map(str, range(MOST_WEBHOOKS + 1))))}"],
            id="more-than-can-be-cut",
        ),
        pytest.param(
            [
                policy(rule(), inject=True, namespaces=RESEARCH),
                policy(rule("secrets"), inject=True, namespaces={"matchLabels": {"team": "a"}}),
            ],
            ["Fail secrets in:team=a", "Fail pods in:tier=research"],
            id="objects-that-are-never-the-same",
        ),
    ],
)
def test_nothing_is_mutated_by_two_calls(policies, expected):
    assert shown(derive_webhook_rules(policies, queue=None).mutate) == expected


def test_jobs_in_a_queue_do_not_have_everything_sent_from_everywhere():
    calls = derive_webhook_rules(
        [policy(rule(), inject=True, namespaces=RESEARCH)], queue=EVERYTHING
    ).mutate

    assert [line for line in shown(calls) if "pods" in line] == [
        "Fail pods in:tier=research",
        "Fail pods in:tier!=research of:kueue.x-k8s.io/queue-name",
        "Fail pods in:tier!=research of:kueue.x-k8s.io/queue-name not there,"
        "statefulset.kubernetes.io/pod-name if",
    ]


OTHERS = {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["research", "x"]}]}
ANY = {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}
TIERS = [{}, RESEARCH, PRODUCTION, ANY, OTHERS, {"matchLabels": {"tier": "research", "a": "b"}}]
TEAM = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}
CONDITIONS = [
    "request.operation == 'CREATE'",
    "request.userInfo.username != 'bob'",
    "object != null && has(object.metadata.labels) && 'gpu' in object.metadata.labels",
]
rules = st.builds(
    rule,
    st.sampled_from(["pods", "jobs", "*", "pods/status,jobs", "*/*"]),
    st.sampled_from(["CREATE", "UPDATE,DELETE", "*"]),
    st.sampled_from(["", "batch", "*"]),
    scope=st.sampled_from(["*", "Namespaced"]),
)
policies_ = st.builds(
    policy,
    rules,
    validations=st.sampled_from([True]),
    inject=st.sampled_from([True]),
    failure=st.sampled_from(["Fail", "Ignore"]),
    namespaces=st.sampled_from(TIERS),
    objects=st.sampled_from([{}, GPU, TEAM]),
    conditions=st.lists(st.sampled_from(CONDITIONS), max_size=2, unique=True),
)
metadata = st.fixed_dictionaries(
    {}, optional={"labels": st.sampled_from([{}, {"gpu": "yes"}, {"team": "a", "gpu": "no"}])}
)
requests = st.fixed_dictionaries(
    {
        "resource": st.sampled_from(
            [("", "pods", ""), ("", "pods", "status"), ("batch", "jobs", "")]
        ),
        "operation": st.sampled_from(["CREATE", "UPDATE", "DELETE"]),
        "user": st.sampled_from(["alice", "bob"]),
        "namespace": st.sampled_from(
            [{}, {"tier": "research"}, {"tier": "other"}, {"tier": "research", "a": "b"}]
        ),
        "object": metadata,
        "old": metadata,
    }
)


@given(st.lists(policies_, max_size=5), requests)
@settings(max_examples=100, deadline=None)
def test_each_request_of_a_policy_is_sent_and_refused_if_required(policies, request_):
    calls = derive_webhook_rules(policies, queue=None).validate

    for each in policies:
        if wants(each, request_):
            sent_by = [call for call in calls if sends(call, request_)]
            assert sent_by
            if not each.ignores_failures:
                assert any(call.failure_policy == "Fail" for call in sent_by)


@given(st.lists(policies_, max_size=5), requests)
@settings(max_examples=100, deadline=None)
def test_each_request_of_a_policy_is_sent_once_for_mutation(policies, request_):
    calls = derive_webhook_rules(policies, queue=None).mutate
    wanted = any(wants(each, request_) for each in policies)

    sent = [call for call in calls if sends(call, request_)]

    if request_["operation"] != "DELETE":
        assert len(sent) <= 1
        assert len(sent) == 1 or not wanted


@given(st.lists(policies_, max_size=5), requests)
@settings(max_examples=100, deadline=None)
def test_nothing_is_refused_that_no_such_policy_wants(policies, request_):
    strict = [p for p in policies if not p.ignores_failures]
    calls = derive_webhook_rules(policies, queue=None).validate

    refused = any(call.failure_policy == "Fail" and sends(call, request_) for call in calls)

    assert refused <= any(may_want(each, request_) for each in strict)


def wants(policy, request):
    """Tell by the policy itself whether it concerns a request."""
    constraints, conditions = policy.constraints, policy.policy.spec.match_conditions
    return (
        rules_match(constraints.resource_rules, (), attributes(request))
        and selects(constraints.namespace_selector, constraints.object_selector, request)
        and all(true(condition.expression, request) for condition in conditions)
    )


def may_want(policy, request):
    """Tell whether a policy concerns a namespace; kinds and labels may be joined with others'."""
    selector = policy.constraints.namespace_selector
    return selector.matches(request["namespace"])


def sends(call, request):
    """Tell whether the API server sends a request, given one webhook."""
    return (
        rules_match(call.rules, (), attributes(request))
        and selects(
            LabelSelector(match_expressions=tuple(call.namespaces)),
            LabelSelector(match_expressions=tuple(call.objects)),
            request,
        )
        and (not call.condition or true(call.condition, request))
    )


def selects(namespaces, objects, request):
    given = [given_object(request, name) for name in ("object", "oldObject")]
    return namespaces.matches(request["namespace"]) and selects_object(objects, *given)


def attributes(request):
    group, resource, subresource = request["resource"]
    return RequestAttributes(
        group=group,
        version="v1",
        resource=resource,
        subresource=subresource,
        operation=request["operation"],
        namespace="ns",
        name="n",
    )


def given_object(request, name):
    absent = "DELETE" if name == "object" else "CREATE"
    if request["operation"] == absent:
        return None
    return {"metadata": request["object" if name == "object" else "old"]}


def true(expression, request):
    variables = {name: given_object(request, name) for name in ("object", "oldObject")}
    variables["request"] = {
        "operation": request["operation"],
        "userInfo": {"username": request["user"]},
        "resource": dict(zip(("group", "resource"), request["resource"], strict=False)),
        "subResource": request["resource"][2],
        "namespace": "ns",
    }
    program = compile_expression(expression, admission_environment(params=False), wants="bool")
    return program.evaluate(variables, Budget())


TEAM_A = "kubernetes.io/metadata.name"


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param([{"enforcement": "Warn"}], ["Ignore pods"], id="none-refuses"),
        pytest.param(
            [{"enforcement": "Deny", "percent": 10}], ["Fail pods"], id="a-part-of-everything"
        ),
        pytest.param(
            [{"enforcement": "Deny", "namespaces": ["a", "b"]}],
            [f"Fail pods in:{TEAM_A}=a|b", "Ignore pods"],
            id="namespaces-by-name",
        ),
        pytest.param(
            [{"enforcement": "Deny", "namespaceSelector": RESEARCH}],
            ["Fail pods in:tier=research", "Ignore pods"],
            id="namespaces-by-label",
        ),
    ],
)
def test_during_a_rollout_an_outage_stops_only_requests_that_it_refuses(steps, expected):
    audited = policy(rule(), validations=True, enforcement="Audit", rollout=steps)

    calls = derive_webhook_rules([audited], queue=None).validate

    assert shown(calls) == expected


BY_NAME = "kubernetes.io/metadata.name"


@pytest.mark.parametrize(
    ("queue", "defaulted", "places"),
    [
        pytest.param(EVERYTHING, {"a", "b"}, [{(BY_NAME, "In", ("a", "b"))}], id="by-name"),
        pytest.param(EVERYTHING, set(), [], id="nowhere"),
        pytest.param(EVERYTHING, {f"n{i}" for i in range(101)}, [], id="too-many-to-name"),
        pytest.param(Integrations(manages_all=True), {"a"}, [set()], id="all-are-sent-anyway"),
        pytest.param(
            Integrations(namespaces=LabelSelector(match_labels={"team": "x"})),
            {"a"},
            [{(BY_NAME, "In", ("a",)), ("team", "In", ("x",))}],
            id="of-those-whose-jobs-queue",
        ),
    ],
)
def test_new_jobs_that_name_no_queue_are_sent_of_namespaces_with_a_default(
    queue, defaulted, places
):
    calls = derive_webhook_rules([], defaulted=frozenset(defaulted), queue=queue).mutate

    everything = [
        call
        for call in calls
        if not (call.objects or call.condition)
        and any("pods" in rule.resources for rule in call.rules)
    ]
    assert [
        {(each.key, each.operator, each.values) for each in call.namespaces} for call in everything
    ] == places


def test_no_pod_is_sent_twice_where_jobs_have_a_default_queue():
    calls = derive_webhook_rules([], defaulted=frozenset({"a"}), queue=EVERYTHING).mutate

    of_pods = [
        {(each.operator, each.values) for each in call.namespaces if each.key == BY_NAME}
        for call in calls
        if any("pods" in rule.resources for rule in call.rules)
    ]
    assert of_pods.count({("In", ("a",))}) == 1
    assert all(place in ({("In", ("a",))}, {("NotIn", ("a",))}) for place in of_pods)


@pytest.mark.parametrize(
    ("policies", "queue", "members"),
    [
        pytest.param([], EVERYTHING, 1, id="they-name-no-queue"),
        pytest.param([policy(rule(), inject=True)], EVERYTHING, 0, id="all-pods-are-sent-anyway"),
        pytest.param([], Integrations(manages_all=True), 0, id="all-pods-are-held"),
        pytest.param([], Integrations(kinds=frozenset()), 0, id="nothing-is-held"),
        pytest.param([], None, 0, id="no-queue"),
    ],
)
def test_pods_of_stateful_sets_are_sent_if_nothing_else_sends_them(policies, queue, members):
    calls = derive_webhook_rules(policies, queue=queue).mutate

    labels = [{each.key for each in call.objects} for call in calls]
    assert sum("statefulset.kubernetes.io/pod-name" in each for each in labels) == members


@pytest.mark.parametrize("counted", [True, False])
def test_another_part_of_a_gpu_is_sent_of_pods_of_jobs_where_parts_are_counted(counted):
    sent = derive_webhook_rules((), queue=Integrations(gpu_fractions=counted)).validate
    larger = [each for each in tries() if each.only_parts]
    changes = [each for each in larger if each.name.startswith("a pod of a job")]
    unchanged = [each._replace(new=each.old) for each in changes]

    assert {is_sent(each, sent) for each in changes} == {counted}
    assert {is_sent(each, sent) for each in unchanged} == {False}
