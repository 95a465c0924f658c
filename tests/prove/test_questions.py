"""Proofs about policies: what the solver says is what the engine says."""

from dataclasses import replace

import msgspec
import pytest
import z3
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from policyd.api.quantity import parse_quantity
from policyd.api.selectors import LabelSelector, Requirement
from policyd.engine.compile.load import load_policies
from policyd.engine.model.compiled import CompiledException
from policyd.engine.objects.pods import PodError, claims, devices, gpus
from policyd.patch.builtin_views import typed_view
from policyd.prove import questions
from policyd.prove.functions import call
from policyd.prove.meanings import meanings
from policyd.prove.questions import Answer, above_standard, decider
from policyd.prove.requests import unknown_request
from policyd.prove.solver import Texts
from policyd.prove.values import Text, sure, text_term
from policyd.prove.world import World
from tests.prove.__main__ import by_expression
from tests.prove.pinning import pinned

POLICY = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  failurePolicy: {failure}
  matchConstraints:
    resourceRules:
    - apiGroups: [{group}]
      apiVersions: [v1]
      operations: [CREATE, UPDATE]
      resources: [{plural}]
  validations:
  - expression: {expression!r}
"""


def policy(expression, name="one", group='""', plural="pods", failure="Fail"):
    text = POLICY.format(
        name=name, expression=expression, group=group, plural=plural, failure=failure
    )
    loaded = load_policies(text, "policy.yaml")
    assert loaded.policies, loaded.findings
    return loaded.policies[0]


def answer(question, policies):
    """Ask about policies that are each in force alone."""
    return in_force(question, *((each,) for each in policies))


def in_force(question, *sides):
    """Ask about policies that are in force together, with patience for a busy machine."""
    return questions.answer(question, sides, seconds=300)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "object.spec.containers.all(c, c.image.startsWith('a/'))",
            "!object.spec.containers.exists(c, !c.image.startsWith('a/'))",
        ),
        (
            "has(object.metadata.labels) && 'a' in object.metadata.labels",
            ("object.metadata.?labels.?a.hasValue()"),
        ),
        (
            "!has(object.spec.hostNetwork) || object.spec.hostNetwork == false",
            "object.spec.?hostNetwork.orValue(false) == false",
        ),
        ("object.spec.containers.size() <= 3", "object.spec.containers.size() < 4"),
        ("object.metadata.name.matches('^a')", "object.metadata.name.startsWith('a')"),
        ("object.metadata.name.matches('^(a|b)$')", "object.metadata.name in ['a', 'b']"),
        (
            "quantity(object.metadata.name).isLessThan(quantity('1Gi'))",
            "quantity(object.metadata.name).compareTo(quantity('1024Mi')) < 0",
        ),
        ("[1, 2].exists(x, object.spec.priority == x)", "object.spec.priority in [1, 2]"),
        (
            "object.metadata.name.split('/')[0] == 'a'",
            "object.metadata.name == 'a' || object.metadata.name.startsWith('a/')",
        ),
        (
            "object.spec.containers.filter(c, has(c.image)).size() == 0",
            "object.spec.containers.all(c, !has(c.image))",
        ),
        (
            "object.spec.containers.exists_one(c, c.name == 'a')",
            "object.spec.containers.map(c, c.name).filter(n, n == 'a').size() == 1",
        ),
        (
            "object.spec.?priority.optMap(p, p > 5).orValue(false)",
            ("has(object.spec.priority) ? object.spec.priority > 5 : object.spec == dyn(1)"),
        ),
        ("object.spec.orValue({}).priority == 1", "object.spec.priority == 1"),
        ("object.spec.priority / 2 * 2 == object.spec.priority", "object.spec.priority % 2 == 0"),
        (
            "duration(object.metadata.name) > duration('1m')",
            ("duration('60s') < duration(object.metadata.name)"),
        ),
    ],
)
def test_expressions_that_mean_the_same_are_proved_equal(one, other):
    found = answer("equal", (policy(one), policy(other, "other")))
    assert (found.verdict, found.why) == ("proved", "")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("object.spec.containers.size() <= 3", "object.spec.containers.size() < 3"),
        ("object.metadata.name.matches('^a[0-9]+$')", "object.metadata.name.startsWith('a')"),
        (
            "object.spec.activeDeadlineSeconds + 1 > 0",
            "object.spec.activeDeadlineSeconds > -1",
        ),  # an overflow fails
        (
            "object.spec.containers.all(c, has(c.image))",
            "object.spec.containers.exists(c, has(c.image))",
        ),
        ("object.spec.priority > 0 || object.spec.priority <= 0", "true"),  # it may be absent
        ("object.metadata.name.split('/').size() == 2", "object.metadata.name.contains('/')"),
        ("object.metadata.name.size() == 3", "object.metadata.name.matches('^...$')"),  # line ends
        (
            "quantity(object.metadata.name).isLessThan(quantity('1Gi'))",
            ("quantity(object.metadata.name).isLessThan(quantity('1G'))"),
        ),
        (
            "duration(object.metadata.name) > duration('1m')",
            ("duration(object.metadata.name) >= duration('1m')"),
        ),
    ],
)
def test_what_differs_is_refuted_with_an_object_on_which_the_engine_agrees(one, other):
    pair = policy(one), policy(other, "other")
    found = answer("equal", pair)
    assert (found.verdict, found.why) == ("refuted", "")
    verdicts = [decider(each)(found).denies for each in pair]
    assert verdicts in ([True, False], [False, True])


@pytest.mark.parametrize(
    ("question", "expressions", "wanted"),
    [
        (
            "implies",
            ["object.spec.containers.size() < 2", "object.spec.containers.size() < 3"],
            "proved",
        ),
        (
            "implies",
            ["object.spec.containers.size() < 3", "object.spec.containers.size() < 2"],
            "refuted",
        ),
        (
            "disjoint",
            [
                "object.metadata.?name.orValue('') == 'a'",
                "object.metadata.?name.orValue('') != 'a'",
            ],
            "proved",
        ),
        ("disjoint", ["object.metadata.name == 'a'", "object.metadata.name == 'b'"], "refuted"),
        ("never-denies", ["object.kind == 'Service'"], "refuted"),
        ("never-denies", ["object.kind == 'Pod' && request.kind.kind == 'Pod'"], "proved"),
        ("never-denies", ["object.spec.nodeName.split('/').size() > 0"], "refuted"),
        ("never-denies", ["object.?spec.?nodeName.orValue('').split('/').size() > 0"], "proved"),
        ("never-denies", ["!has(object.spec) || has(object.spec)"], "proved"),
        ("always-denies", ["has(object.spec) && !has(object.spec)"], "proved"),
        ("always-denies", ["has(object.spec)"], "refuted"),
        ("never-errors", ["object.?spec.?priority.orValue(0) > 5"], "proved"),
        ("never-errors", ["object.spec.priority > 5"], "refuted"),
    ],
)
def test_other_questions(question, expressions, wanted):
    policies = tuple(policy(each, f"p{index}") for index, each in enumerate(expressions))
    assert answer(question, policies).verdict == wanted


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        (
            "authorizer.group('').resource('pods').check('create').allowed()",
            "the variable authorizer",
        ),
        ("object.metadata.name.split('-', 2).size() > 1", "split() with a limit"),
        ("object.metadata.name.split('--').size() > 1", "split() with a limit, or by a separator"),
        ("object == oldObject", "the equality of two objects"),
        ("object.metadata.name.matches(object.metadata.namespace)", "a regular expression that"),
        ("object.metadata.name.matches('\\\\bword')", "the regular expression"),
        ("object.metadata.name.matches('^[[:alpha:]]+$')", "the regular expression"),
        ("object.metadata.name.matches('^a{,3}$')", "the regular expression"),
        ("object.metadata.name.matches('(?i:^a$)')", "the regular expression"),
    ],
)
def test_what_has_no_formula_is_named_and_not_guessed(expression, named):
    found = answer("never-denies", (policy(expression),))
    assert found.verdict == "unknown"
    assert f"policyd prove does not know {named}" in found.why


def selecting(namespaces):
    """Return a policy that selects namespaces by their labels."""
    whole = policy("object.metadata.name == 'a'")
    selector = LabelSelector(match_labels=namespaces)
    constraints = msgspec.structs.replace(whole.constraints, namespace_selector=selector)
    return replace(whole, constraints=constraints)


def test_policies_that_select_other_namespaces_are_not_compared():
    pair = selecting({"a": "b"}), selecting({"a": "c"})
    assert "do not match the same requests" in answer("equal", pair).why


def test_an_example_is_in_a_namespace_that_the_policies_select():
    found = answer("never-denies", (selecting({"a": "b"}),))
    assert found.verdict == "refuted"
    assert found.namespace["metadata"]["labels"] == {"a": "b"}


PODS_RULE = "object.metadata.name != 'a'"


@pytest.mark.parametrize(
    ("question", "one", "other", "wanted"),
    [
        pytest.param("equal", ["pods"], ["services"], "refuted", id="other-kinds"),
        pytest.param("equal", ["pods", "services"], ["services", "pods"], "proved", id="order"),
        pytest.param("implies", ["pods", "services"], ["pods"], "proved", id="more-kinds"),
        pytest.param("implies", ["pods"], ["pods", "services"], "refuted", id="fewer-kinds"),
        pytest.param("disjoint", ["pods"], ["services"], "proved", id="nothing-in-common"),
        pytest.param("always-denies", ["pods"], ["pods"], "refuted", id="always"),
    ],
)
def test_sets_of_policies_are_compared_kind_by_kind(question, one, other, wanted):
    sides = [
        tuple(policy(PODS_RULE, name=f"p-{plural}", plural=plural) for plural in plurals)
        for plurals in (one, other)
    ]
    asked = tuple(sides) if question != "always-denies" else (sides[0],)
    assert in_force(question, *asked).verdict == wanted


def test_rules_of_one_policy_are_in_force_together():
    one = policy("object.spec.containers.size() < 3"), policy("object.spec.containers.size() > 0")
    other = policy("object.spec.containers.size() in [1, 2]")
    assert in_force("equal", one, (other,)).verdict == "proved"
    assert in_force("equal", one[:1], (other,)).verdict == "refuted"


def test_a_policy_for_another_version_of_a_kind_is_refused():
    one = policy("true", group="autoscaling", plural="horizontalpodautoscalers")
    rule = msgspec.structs.replace(one.constraints.resource_rules[0], api_versions=("v2",))
    constraints = msgspec.structs.replace(one.constraints, resource_rules=(rule,))
    found = answer("equal", (one, replace(one, constraints=constraints)))
    assert "another version of horizontalpodautoscalers" in found.why


PARAMS = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: limited}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  validations:
  - expression: "object.metadata.name != params.data.name"
"""


def test_an_example_has_the_params_that_it_needs():
    (limited,) = load_policies(PARAMS, "p").policies

    found = answer("never-denies", (limited,))

    assert (found.verdict, found.why) == ("refuted", "")
    assert decider(limited)(found).denies


def test_params_of_two_kinds_are_refused():
    pair = [
        load_policies(PARAMS.replace("ConfigMap", kind), "p").policies[0]
        for kind in ("ConfigMap", "Secret")
    ]
    assert "params of different kinds" in answer("equal", pair).why


STANDARD = """
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {name: standard}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {level: high}}
    resourceRules:
    - apiGroups: ["", apps]
      apiVersions: ["*"]
      operations: [CREATE, UPDATE]
      resources: [pods, deployments]
  validations:
  - expression: "!pod.?spec.?hostNetwork.orValue(false)"
"""


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("!has(object.spec.hostNetwork) || !object.spec.hostNetwork", "proved"),
        ("!has(object.spec.hostPID) || !object.spec.hostPID", "refuted"),
        ("!has(object.spec.hostNetwork) || !object.spec.hostNetwork || 'a' == 'b'", "proved"),
    ],
)
def test_a_policy_denies_at_least_what_a_standard_forbids(expression, wanted):
    (standard,) = load_policies(STANDARD, "p").policies

    sides = above_standard((policy(expression),), (standard,))

    assert in_force("implies", *sides).verdict == wanted


def at_levels(name, *levels):
    """Return a policy for the namespaces of some levels."""
    one = policy(f"object.metadata.name != {name!r}", name)
    selector = LabelSelector(
        match_expressions=(Requirement(key="level", operator="In", values=levels),)
    )
    constraints = msgspec.structs.replace(one.constraints, namespace_selector=selector)
    return replace(one, constraints=constraints)


def test_policies_of_different_namespaces_are_judged_where_all_apply():
    both = at_levels("a", "baseline", "restricted"), at_levels("b", "restricted")

    found = questions.answers_by_control(both, (at_levels("b", "else"),))

    assert [each.verdict for each in found.values()] == ["proved"]
    found = questions.answers_by_control(both, (policy("object.metadata.name != 'c'"),))
    assert [each.verdict for each in found.values()] == ["refuted"]


def test_policies_that_select_nothing_in_common_are_refused():
    apart = at_levels("a", "baseline"), at_levels("b", "restricted")
    with pytest.raises(questions.UnencodableError, match="no namespace or object in common"):
        questions.answers_by_control(apart, (policy("false"),))


@pytest.mark.parametrize(
    "expression",
    [
        "request.subResource != 'status'",
        "!has(request.options.fieldManager)",
        "namespaceObject != null",
    ],
)
def test_what_a_request_may_be_is_not_taken_for_impossible(expression):
    assert (
        answer("never-denies", (policy(expression, group="'*'", plural="'*'"),)).verdict != "proved"
    )


def test_every_version_of_a_kind_is_looked_at():
    policies = policy(
        "object.spec.?targetCPUUtilizationPercentage.orValue(0) < 90",
        plural="horizontalpodautoscalers",
        group="autoscaling",
    )
    rule = policies.constraints.resource_rules[0]
    rules = (msgspec.structs.replace(rule, api_versions=("*",)),)
    constraints = msgspec.structs.replace(policies.constraints, resource_rules=rules)
    versions = [
        kind.version for kind in questions.kinds_of(replace(policies, constraints=constraints))
    ]
    assert sorted(versions) == ["v1", "v2"]


def test_what_expressions_do_not_say_is_refused():
    whole = policy("true")
    changed = replace(whole, applies=lambda _facts: True)
    assert "matches by names" in answer("equal", (whole, changed)).why
    excepted = replace(
        whole, exceptions=(CompiledException(name="e", policies=frozenset(), conditions=()),)
    )
    assert "with exceptions" in answer("equal", (whole, excepted)).why


def test_a_failure_counts_by_the_failure_policy():
    strict, lenient = (
        policy("object.spec.priority > 5"),
        policy("object.spec.priority > 5", failure="Ignore"),
    )
    assert answer("implies", (strict, lenient)).verdict == "proved"
    assert answer("implies", (lenient, strict)).verdict == "refuted"


NAMES = st.sampled_from(["a", "ab", "b/a:1", "", "1Gi", "x-y"])
CONTAINERS = st.fixed_dictionaries(
    {"name": NAMES},
    optional={
        "image": NAMES,
        "args": st.lists(NAMES, max_size=2),
        "securityContext": st.fixed_dictionaries(
            {}, optional={"privileged": st.booleans(), "runAsUser": st.integers(0, 2)}
        ),
        "resources": st.fixed_dictionaries(
            {},
            optional={
                "limits": st.dictionaries(
                    st.sampled_from(["memory", "cpu"]), st.sampled_from(["1", "1Gi"])
                )
            },
        ),
    },
)
PODS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": NAMES},
            optional={"labels": st.dictionaries(NAMES, NAMES, max_size=2)},
        ),
        "spec": st.fixed_dictionaries(
            {"containers": st.lists(CONTAINERS, max_size=2)},
            optional={"priority": st.integers(-2, 2), "hostNetwork": st.booleans()},
        ),
    }
).map(lambda pod: {"apiVersion": "v1", "kind": "Pod", **pod})
LISTS = st.sampled_from(
    ["object.spec.containers", "object.spec.containers.filter(d, has(d.image))"]
)
CONDITIONS = st.sampled_from(
    [
        *("c.name == 'a'", "c.image.contains('a')", "has(c.args)", "c.args.size() > 1"),
        *("c.securityContext.privileged", "c.?securityContext.?runAsUser.orValue(1) != 0"),
        *("'a' in c.args", "c.args.all(x, x.startsWith('a'))", "c.args[0] == 'a'"),
        *("has(c.resources.limits) && 'cpu' in c.resources.limits", "c.image.matches('^[a-b]')"),
        *("c.resources.limits.all(k, k == 'cpu' || c.resources.limits[k] == '')", "c.name < 'b'"),
        *("c.name + 'b' == 'ab'", "[c.name, c.image].exists(n, n == 'x-y')", "type(c) == map"),
        *("sets.intersects(c.args, ['a', 'b'])", "c.args.map(x, x.size()).sum() > 2"),
        *("c.resources.orValue({}).limits.size() > 1", "c.image.orValue('b') == 'a'"),
        *("c.args.join(',') == 'a,b'", "c.?image == optional.of('a')", "c.name.size() > 1"),
    ]
)
EXPRESSIONS = st.recursive(
    st.one_of(
        st.tuples(LISTS, st.sampled_from(["all", "exists", "exists_one"]), CONDITIONS).map(
            lambda parts: f"{parts[0]}.{parts[1]}(c, {parts[2]})"
        ),
        st.tuples(LISTS, CONDITIONS).map(
            lambda parts: f"{parts[0]}.filter(c, {parts[1]}).size() == 1"
        ),
        st.sampled_from(
            [
                *(
                    "object.spec.priority > 0",
                    "object.spec.hostNetwork == true",
                    "has(object.metadata.labels)",
                ),
                *("object.metadata.labels.exists(k, k == object.metadata.labels[k])",),
                *("object.metadata.labels.size() == 2", "object.spec.priority * 2 / 3 == -1"),
                *("object.metadata.labels == {'a': 'b'}", "object.spec.priority % 2 == -1"),
                *(
                    "object.metadata.name in object.metadata.labels",
                    "object.spec.?priority.hasValue()",
                ),
                *("string(object.spec.priority) == '-1'", "int(object.metadata.name) == 1"),
                "object.metadata.labels.transformMap(k, v, v + k).exists(k, v, v == 'aa')",
                "object.spec.containers.map(c, c.args).flatten().distinct().size() > 1",
            ]
        ),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["&&", "||", "==", "!="]), inner).map(
            lambda parts: f"({parts[0]}) {parts[1]} ({parts[2]})"
        ),
        st.tuples(inner, inner, inner).map(lambda p: f"({p[0]}) ? ({p[1]}) : ({p[2]})"),
        inner.map(lambda one: f"!({one})"),
    ),
    max_leaves=3,
)


@settings(max_examples=60, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(EXPRESSIONS, st.lists(PODS, min_size=3, max_size=3))
def test_the_formulas_say_of_known_objects_what_the_engine_says(expression, pods):
    checked = policy(expression)
    world = World(bound=4, typed=True)
    kind = next(iter(questions.kinds_of(checked)))
    request = unknown_request(world, (checked,), kind)
    (meaning,) = meanings(world, request, (checked,))
    decide = decider(checked)
    solver = z3.Solver()
    operation = request.request.field("operation").of("string")
    solver.add(*world.axioms(), operation == "CREATE")
    for pod, _ in (typed_view(each, "core/v1.Pod") for each in pods):
        decided = decide(Answer(verdict="refuted", bound=4, object=pod))
        solver.push()
        solver.add(*pinned(request.object, pod))
        assert solver.check() == z3.sat, "the axioms allow the object"
        assert (solver.check(meaning.denies) == z3.sat) == decided.denies, (expression, pod)
        assert (solver.check(z3.Not(meaning.denies)) == z3.sat) == (not decided.denies)
        assert (solver.check(meaning.fails) == z3.sat) == decided.fails
        solver.pop()


OWN = """
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {{name: own}}
spec:
  matchConstraints:
    resourceRules:
    - {{apiGroups: {groups}, apiVersions: ["*"], operations: {operations}, resources: {plurals}}}
  validations:
  - expression: {expression!r}
    message: m
"""


def of_templates(expression, groups, plurals, operations=("CREATE",)):
    """Return a policy of policyd's own, which may look at the pods of an object."""
    text = OWN.format(
        groups=groups, plurals=plurals, operations=list(operations), expression=expression
    )
    loaded = load_policies(text, "policy.yaml")
    assert loaded.policies, loaded.findings
    return loaded.policies[0]


ON_HOST = "!pod.?spec.?hostNetwork.orValue(false)"
OBJECT_ON_HOST = "!object.?spec.?template.?spec.?hostNetwork.orValue(false)"
OLD_ON_HOST = "!oldObject.?spec.?template.?spec.?hostNetwork.orValue(false)"
JOBS_ON_HOST = (
    "object.?spec.?replicatedJobs.orValue([]).all(_, j,"
    " !j.?template.?spec.?template.?spec.?hostNetwork.orValue(false))"
)
JOBS_HAVE_SPECS = (
    "object.?spec.?replicatedJobs.orValue([]).all(_, j, has(j.template.spec.template.spec))"
)
FIRST_ON_HOST = (
    "!object.?spec.?replicatedJobs[?0].?template.?spec.?template.?spec.?hostNetwork.orValue(false)"
)


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        pytest.param(
            (ON_HOST, ["apps"], ["deployments"]), (ON_HOST, [""], ["pods"]), "refuted", id="kinds"
        ),
        pytest.param(
            (ON_HOST, ["apps"], ["deployments"]),
            (OBJECT_ON_HOST, ["apps"], ["deployments"]),
            "proved",
            id="template",
        ),
        pytest.param(
            (ON_HOST, ["apps"], ["deployments"], ["DELETE"]),
            (OLD_ON_HOST, ["apps"], ["deployments"], ["DELETE"]),
            "proved",
            id="deleted",
        ),
        pytest.param(
            (ON_HOST, ["jobset.x-k8s.io"], ["jobsets"]),
            (JOBS_ON_HOST, ["jobset.x-k8s.io"], ["jobsets"]),
            "proved",
            id="several-templates",
        ),
        pytest.param(
            (ON_HOST, ["jobset.x-k8s.io"], ["jobsets"]),
            (FIRST_ON_HOST, ["jobset.x-k8s.io"], ["jobsets"]),
            "refuted",
            id="only-the-first-of-several",
        ),
        pytest.param(
            ("has(pod.spec)", ["jobset.x-k8s.io"], ["jobsets"]),
            (JOBS_HAVE_SPECS, ["jobset.x-k8s.io"], ["jobsets"]),
            "refuted",
            id="without-a-template-it-is-evaluated-once",
        ),
        pytest.param(
            ("has(pod.kind)", ["apps"], ["deployments"]),
            ("true", ["apps"], ["deployments"]),
            "refuted",
            id="a-template-has-no-kind",
        ),
    ],
)
def test_pod_templates_are_looked_at_where_they_are(one, other, wanted):
    pair = of_templates(*one), of_templates(*other)

    found = answer("equal", pair)

    assert (found.verdict, found.why) == (wanted, "")


def test_a_proof_about_pods_holds_for_templates_that_have_less():
    policies = of_templates("pod.kind == 'Pod' || true", ["", "apps"], ["pods", "deployments"])
    assert answer("never-denies", (policies,)).verdict == "proved"
    policies = of_templates("has(pod.kind)", ["", "apps"], ["pods", "deployments"])
    found = answer("never-denies", (policies,))
    assert (found.verdict, found.object["kind"]) == ("refuted", "Deployment")


def test_policies_of_one_custom_kind_are_compared_with_those_of_another():
    pair = [
        of_templates("object.metadata.name != 'a'", ["example.com"], [plural])
        for plural in ("widgets", "gadgets")
    ]
    found = answer("equal", pair)
    assert (found.verdict, found.object["kind"]) == ("refuted", "Widgets")


def test_a_policy_is_taken_as_enforced_whatever_its_bindings():
    whole = load_policies(
        OWN.format(
            groups=[""], plurals=["pods"], operations=["CREATE"], expression="false"
        ).replace("validations:", "enforcement: Audit\n  validations:"),
        "policy.yaml",
    ).policies
    assert in_force("never-denies", whole).verdict == "proved"
    assert in_force("never-denies", questions.as_enforced(whole)).verdict == "refuted"


_VERSIONS = " && ".join(
    ["c.image.startsWith('registry.k8s.io/ingress/controller:v1.11.')"]
    + [f"!c.image.startsWith('registry.k8s.io/ingress/controller:v1.{n}.')" for n in range(11)]
)


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ("!c.image.startsWith('registry.k8s.io/ingress/controller:v1.10.')", "true", "proved"),
        ("v1.11.')", "v1.1')", "refuted"),
        (
            "!c.image.startsWith('registry.k8s.io/ingress/controller:v1.3",
            "!c.image.endsWith('v1.3",
            "refuted",
        ),
    ],
)
def test_prefixes_that_exclude_each_other_are_decided_in_few_steps(before, after, wanted):
    changed = _VERSIONS.replace(before, after)
    assert changed != _VERSIONS
    pair = [policy(f"object.spec.containers.all(c, {text})") for text in (_VERSIONS, changed)]
    found = questions.answer("equal", tuple((each,) for each in pair), steps=200_000)
    assert (found.verdict, found.why) == (wanted, "")


def test_the_steps_of_the_solver_are_the_limit():
    product = "object.spec.priority * object.spec.containers[0].ports[0].containerPort"
    hard = policy(f"{product} != {999_999_937 * 1_000_000_007}", failure="Ignore")
    found = questions.answer("never-denies", ((hard,),), steps=20_000)
    why = "the solver found no answer in 20,000 steps and 60 s"
    assert (found.verdict, found.why) == ("unknown", why)


_TEXTS = st.sampled_from(["", "a", "ab", "b", "ba", "aba", "c"])
_TESTS = {
    "==": lambda text, part: text == part,
    "prefix": lambda text, part: z3.PrefixOf(part, text),
    "suffix": lambda text, part: z3.SuffixOf(part, text),
    "contains": z3.Contains,
    "size": lambda text, part: z3.Length(text) == z3.Length(part),
    "joined": lambda text, part: z3.Concat(text, part) == part,
    "within": lambda text, part: z3.InRe(text, z3.Plus(z3.Union(z3.Re(part), z3.Re("b")))),
}


@settings(max_examples=60, phases=(Phase.generate,), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("xy"), st.sampled_from([*_TESTS]), _TEXTS, st.booleans()),
        min_size=1,
        max_size=6,
    )
)
def test_what_holds_of_some_strings_holds_of_opaque_values(tests):
    made = [
        _TESTS[name](z3.String(text), z3.StringVal(part)) == holds
        for text, name, part, holds in tests
    ]
    strings, opaque, few = z3.Solver(), z3.Solver(), z3.Solver()
    strings.add(*made)
    texts = Texts.of(made)
    opaque.add(*texts.formulas, *texts.facts())
    some = strings.check() == z3.sat
    assert opaque.check() == z3.sat or not some
    few.add(*texts.formulas, *texts.among_few(), *texts.facts())
    if few.check() == z3.sat and not {"size", "joined"} & {name for _, name, _, _ in tests}:
        strings.add(texts.found(few.model()))
        assert strings.check() == z3.sat


def test_an_answer_for_a_kind_is_that_for_another_only_if_what_is_asked_of_both_is_alike():
    group, plural = "apps", "deployments, statefulsets"
    shared = "object.spec.?replicas.orValue(1) < 3", "!(object.spec.?replicas.orValue(1) >= 3)"
    pair = [policy(each, group=group, plural=plural) for each in shared]
    assert answer("equal", pair).verdict == "proved"

    named = shared[0], f"{shared[0]} || has(object.spec.serviceName)"
    found = answer("equal", [policy(each, group=group, plural=plural) for each in named])

    assert (found.verdict, found.object["kind"]) == ("refuted", "StatefulSet")


@pytest.mark.parametrize("value", ["s", 1, 1.5, True, None, [], ["a"], {}, {"a": 1}, {"a": {}}])
@pytest.mark.parametrize(
    "expression",
    [
        *("has(object.spec.a)", "object.spec.?a.hasValue()", "object.spec[?'a'].hasValue()"),
        *("object.spec[?0].hasValue()", "object.?spec.?a.?b.hasValue()", "object.spec.a == 1"),
        *("has(object.?spec.a)", "object.spec.?a.b.hasValue()", "'a' in object.spec"),
    ],
)
def test_a_field_of_what_is_no_object_is_what_the_engine_says(expression, value):
    checked = of_templates(expression, ["example.com"], ["widgets"])
    world = World(bound=4)
    (kind,) = questions.kinds_of(checked)
    request = unknown_request(world, (checked,), kind)
    (meaning,) = meanings(world, request, (checked,))
    obj = {"apiVersion": "example.com/v1", "kind": "Widgets", "metadata": {"name": "a"}}
    obj["spec"] = value
    decided = decider(checked)(Answer(verdict="refuted", bound=4, object=obj))
    solver = z3.Solver()
    solver.add(*world.axioms(), request.request.field("operation").of("string") == "CREATE")
    solver.add(*pinned(request.object, obj))
    assert solver.check() == z3.sat
    assert (solver.check(meaning.denies) == z3.sat) == decided.denies
    assert (solver.check(meaning.fails) == z3.sat) == decided.fails


def _asking(requests=None, limits=None, **fields):
    sides = {"requests": requests, "limits": limits}
    return {"resources": {side: each for side, each in sides.items() if each}, **fields}


_GPU = "nvidia.com/gpu"
_TWO = {"containers": [_asking(limits={_GPU: "2", "cpu": "1"}), _asking({_GPU: "1"}, {_GPU: "3"})]}


@pytest.mark.parametrize(
    ("spec", "annotations"),
    [
        pytest.param(_TWO, {}, id="a-request-goes-before-the-limit"),
        pytest.param(
            {
                **_TWO,
                "initContainers": [
                    _asking({_GPU: "2"}, restartPolicy="Always"),
                    _asking({"nvidia.com/mig-1g.5gb": "5"}),
                    _asking({_GPU: "1"}, restartPolicy="Always"),
                ],
            },
            {},
            id="init-containers-and-sidecars",
        ),
        pytest.param({**_TWO, "overhead": {"amd.com/gpu": "4"}}, {}, id="overhead"),
        pytest.param({"containers": [_asking({_GPU: "1500m"})]}, {}, id="rounded-up"),
        pytest.param({"containers": [_asking({_GPU: "-2"}), _asking({_GPU: "1"})]}, {}, id="none"),
        pytest.param({"containers": [_asking({_GPU: "many"})]}, {}, id="no-quantity"),
        pytest.param({"containers": [{}]}, {"gpu-fraction": "0.5"}, id="a-part"),
        pytest.param({**_TWO, "resourceClaims": [{"name": "a"}]}, {}, id="a-claim"),
    ],
)
def test_the_devices_of_a_pod_are_counted_as_the_engine_counts_them(spec, annotations):
    obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
    if annotations:
        obj["metadata"]["annotations"] = annotations
    world, example = World(bound=3), Answer(verdict="refuted", bound=3, object=obj)
    try:
        numbers = [count(obj) for count in (gpus, devices, claims)]
    except PodError:
        numbers = [0, 0, 0]
    tests = [
        f"pod.{method}() {how} {number}"
        for method, number in zip(("gpus", "devices", "claims"), numbers, strict=True)
        for how in ("==", ">")
    ]
    checked = tuple(of_templates(each, [""], ["pods"]) for each in tests)
    (kind,) = questions.kinds_of(checked[0])
    request = unknown_request(world, checked, kind)
    found = meanings(world, request, checked)
    for each in (*spec["containers"], *spec.get("initContainers", ()), {"o": spec}):
        for amounts in (*each.get("resources", {}).values(), each.get("o", {}).get("overhead", {})):
            for text in amounts.values():
                call(world, "quantity", [sure(Text(text_term(text)))])
    solver = z3.Solver()
    solver.add(*world.axioms(), request.request.field("operation").of("string") == "CREATE")
    solver.add(*pinned(request.object, obj))
    assert solver.check() == z3.sat
    for policies, meaning in zip(checked, found, strict=True):
        verdict = decider(policies)(example)
        assert (solver.check(meaning.denies) == z3.sat) == verdict.denies
        assert (solver.check(meaning.fails) == z3.sat) == verdict.fails


def test_policies_about_gpus_are_compared():
    at_most, fewer = (of_templates(f"pod.gpus() {how}", [""], ["pods"]) for how in ("<= 4", "< 5"))
    assert answer("equal", (at_most, fewer)).verdict == "proved"
    found = answer("implies", (of_templates("pod.gpus() <= 5", [""], ["pods"]), at_most))
    assert (found.verdict, gpus(found.object)) == ("refuted", 5)


@pytest.mark.parametrize("method", ["workload.gpus()", "pod.requests('cpu')", "workload.pods()"])
def test_methods_without_a_formula_are_named(method):
    found = answer("never-errors", (of_templates(f"{method} == {method}", [""], ["pods"]),))
    name = method.partition(".")[2].partition("(")[0]
    why = f"policyd prove does not know the function {name}()"
    assert (found.verdict, found.why) == ("unknown", why)


def test_the_quantities_of_an_example_are_quantities():
    exists = "object.spec.containers.exists(c, c.?resources.?limits.orValue({}).exists(n, true))"
    limited = policy(f"!{exists}")
    found = answer("never-denies", (limited,))
    (container,) = found.object["spec"]["containers"]
    (limit,) = container["resources"]["limits"].values()
    assert (found.verdict, str(parse_quantity(limit))) == ("refuted", limit)


@pytest.mark.parametrize("question", ["equal", "implies"])
def test_a_key_that_is_named_after_the_map_was_read_is_known_in_all_policies(question):
    limits = "object.spec.containers.map(c, c.?resources.?limits.orValue({}))"
    one = f"{limits}.exists(l, 'a' in l && string(l['a']) != '0')"
    found = answer(question, (policy(one), policy(one, "other")))
    assert (found.verdict, found.why) == ("proved", "")


def test_each_expression_of_a_policy_is_a_question_of_its_own():
    """`make prove` counts expressions: one that has no formula leaves the others countable."""
    text = POLICY.format(
        name="one", expression="variables.n > 0", group='""', plural="pods", failure="Fail"
    )
    text += "  - expression: object.metadata.name.findAll('a').size() < 3\n"
    text += "  variables: [{name: n, expression: object.spec.containers.size()}]\n"
    text += "  matchConditions: [{name: c, expression: has(object.spec.hostname)}]\n"
    (whole,) = load_policies(text, "policy.yaml").policies

    answers = [answer("never-denies", [part]).verdict for part in by_expression(whole)]

    assert answer("never-denies", [whole]).verdict == "unknown"
    assert answers == ["refuted", "proved", "refuted", "unknown"]
