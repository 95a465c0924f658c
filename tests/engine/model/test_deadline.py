"""When the caller is about to stop waiting, policies that are left follow their failurePolicy."""

import pytest

from tests.engine.reviews import job_set, pod, policies, policy, request


def after(policies_evaluated):
    """Time for so many policies, or pod templates of one."""
    left = [policies_evaluated]

    def out_of_time():
        left[0] -= 1
        return left[0] < 0

    return out_of_time


REFUSING = "validations: [{expression: 'false', message: never}]"
LABELLING = "inject: {labels: {%s: there}}"


def named(spec, *names, **fields):
    extra = "".join(f"{key}: {value}\n" for key, value in fields.items())
    return [policy(extra + spec.replace("%s", name), name=name) for name in names]


def test_evaluated_policies_count_and_unevaluated_ones_refuse():
    decision = policies(*named(REFUSING, "a", "b", "c")).validate(request(pod()), after(1))

    # Each policy asks before its conditions, and after them if it has some.
    assert [str(denial) for denial in decision.denials] == [
        "a: never",
        "b: cannot be evaluated: not decided in time; try again in a moment",
        "c: cannot be evaluated: not decided in time; try again in a moment",
    ]


def test_conditions_that_took_all_the_time_leave_none_for_validations():
    spec = f"matchConditions: [{{name: all, expression: 'true'}}]\n{REFUSING}"
    decision = policies(*named(spec, "a")).validate(request(pod()), after(1))

    assert [failure.message for failure in decision.failures] == ["not decided in time"]


def test_policies_that_may_be_ignored_are():
    specs = named(REFUSING, "a", "b", failurePolicy="Ignore")

    decision = policies(*specs).validate(request(pod()), after(0))

    assert decision.allowed
    assert [failure.policy for failure in decision.failures] == ["a", "b"]
    assert "not decided in time" in decision.audit_annotations["a"]


def test_denials_found_before_the_time_is_up_count_even_if_failures_are_ignored():
    spec = """
    failurePolicy: Ignore
    validations:
    - {expression: 'false', message: first}
    - {expression: 'false', message: second}
    - {expression: 'false', message: third}
    """
    decision = policies(policy(spec)).validate(request(pod()), after(2))

    assert [denial.message for denial in decision.denials] == ["first", "second"]
    assert [failure.message for failure in decision.failures] == ["not decided in time"]


def test_mutations_stop_between_policies_and_keep_what_was_done():
    specs = named(LABELLING, "a", "b", failurePolicy="Ignore")

    decision = policies(*specs).mutate(request(pod()), after(2))

    assert [operation.value for operation in decision.operations] == [{"a": "there"}]
    assert decision.object["metadata"]["labels"] == {"a": "there"}


def test_policies_that_do_not_concern_the_request_do_not_fail():
    selector = "  matchConstraints:\n    objectSelector: {matchLabels: {app: other}}\n"
    text = policy(REFUSING).replace("  matchConstraints:\n", selector)

    decision = policies(text).validate(request(pod()), after(0))

    assert decision.allowed
    assert decision.failures == ()


@pytest.mark.parametrize("templates", [2, 3, 200])
def test_an_object_with_many_templates_stops_in_the_middle_of_a_policy(templates):
    text = policy("validations: [{expression: 'pod.gpus() >= 0', message: never}]", name="a")

    decision = policies(text).validate(request(job_set(*[8] * templates)), after(1))

    assert [failure.message for failure in decision.failures] == ["not decided in time"]


def test_with_time_enough_nothing_is_different():
    policy_set = policies(*named(REFUSING, "a", "b"), *named(LABELLING, "c", "d"))
    asked = request(pod())

    assert policy_set.validate(asked, after(100)) == policy_set.validate(asked)
    assert policy_set.mutate(asked, after(100)) == policy_set.mutate(asked)


GREEDY = """
    variables: [{name: n, expression: 'lists.range(300)'}]
    validations:
    %s
"""
LOOPS = "variables.n.all(a, variables.n.all(b, a + b >= 0))"


def greedy(*names):
    """Policies that each cost some seven million."""
    loops = "\n    ".join(f"- {{expression: '{LOOPS}', message: m}}" for _ in range(9))
    return [policy(GREEDY % loops, name=name) for name in names]


def test_the_budget_of_a_policy_does_not_depend_on_others():
    decision = policies(*greedy("a")).validate(request(pod()))

    assert decision.failures == ()


def test_greedy_policies_run_out_of_what_a_request_may_take_and_modest_ones_do_not():
    policy_set = policies(*greedy("a", "b", "c", "d"), *named(REFUSING, "modest"))

    decision = policy_set.validate(request(pod()))

    failed = [failure.policy for failure in decision.failures]
    assert "a" not in failed
    assert {"c", "d"} <= set(failed)
    assert "modest: never" in [str(denial) for denial in decision.denials]


def test_time_is_asked_within_a_policy_that_takes_long():
    asked = []

    def out_of_time():
        asked.append(1)
        return len(asked) > 4

    decision = policies(*greedy("a")).validate(request(pod()), out_of_time)

    assert [failure.message for failure in decision.failures] == ["not decided in time"]
    assert len(asked) == 5


def test_a_message_is_not_computed_when_time_is_up():
    spec = """
    validations:
    - {expression: 'false', message: plain, messageExpression: "'com' + 'puted'"}
    """

    late, early = (policies(*named(spec, "a")).validate(request(pod()), after(n)) for n in (1, 9))

    assert [denial.message for denial in late.denials] == ["plain"]
    assert [denial.message for denial in early.denials] == ["computed"]


def test_mutations_write_only_so_much_into_an_object():
    expression = "lists.range(400).map(i, JSONPatch{op: 'test', path: '/data', value: object.data})"
    spec = f'mutations: [{{patchType: JSONPatch, jsonPatch: {{expression: "{expression}"}}}}]'
    obj = {**pod(), "data": {f"k{number}": "v" for number in range(1_000)}}

    decision = policies(policy(spec)).mutate(request(obj))

    assert [f.message for f in decision.failures] == [
        "mutations write more than 250,000 values into one object"
    ]


def deep(levels):
    value = {}
    for _ in range(levels):
        value = {"a": value}
    return value


def labelled(**metadata):
    obj = pod()
    return {**obj, "metadata": {**obj["metadata"], "labels": {"a": "b"}, **metadata}}


def test_each_look_at_a_large_object_counts_however_little_a_mutation_writes():
    change = "[JSONPatch{op: 'add', path: '/metadata/labels/a%d', value: 'b'}]"
    mutation = '- {patchType: JSONPatch, jsonPatch: {expression: "%s"}}\n    '
    greedy = "\n    mutations:\n    " + "".join(mutation % (change % n) for n in range(30))
    modest = "\n    mutations:\n    " + mutation % (change % 99)
    obj = labelled(annotations={f"k{number}": "v" for number in range(200_000)})

    decision = policies(policy(greedy, name="greedy"), policy(modest, name="modest")).mutate(
        request(obj)
    )

    assert [str(failure.policy) for failure in decision.failures] == ["greedy"]
    assert "would look at the object more often than there is time for" in str(decision.failures[0])
    assert len(decision.operations) == 1


@pytest.mark.parametrize(
    ("path", "more"),
    [
        pytest.param("/metadata" + "/a" * 400 + "/b", {"a": deep(400)}, id="deep"),
        pytest.param("/metadata/finalizers/0", {"finalizers": ["a/b"] * 300_000}, id="a-long-list"),
    ],
)
def test_the_operations_of_a_patch_have_not_far_to_go(path, more):
    """Each would find its place anew, ten thousand times."""
    patch = f"JSONPatch{{op: 'add', path: '{path}', value: 'a/b'}}"
    expression = f"'{','.join(['x'] * 10_000)}'.split(',').map(i, {patch})"
    mutation = f'{{patchType: JSONPatch, jsonPatch: {{expression: "{expression}"}}}}'
    spec = f"\n    mutations:\n    - {mutation}"

    decision = policies(policy(spec)).mutate(request(labelled(**more)))

    assert "have too far to go in the object" in str(decision.failures[0])
    assert decision.operations == ()


def test_a_small_object_may_be_changed_by_hundreds_of_mutations():
    change = "[JSONPatch{op: 'add', path: '/metadata/labels/a%d', value: 'b'}]"
    mutation = '- {patchType: JSONPatch, jsonPatch: {expression: "%s"}}\n    '
    spec = "\n    mutations:\n    " + "".join(mutation % (change % n) for n in range(300))

    decision = policies(policy(spec)).mutate(request(labelled()))

    assert decision.failures == ()
