"""Pods that are the same to the policies are decided on once, and the answer is the same."""

import copy
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PHASES, PolicySet
from policyd.engine.model.params import StoredParams
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.remember.remembering import LONGEST_FOOTPRINT, Remembering
from tests.engine.reviews import job, pod, policies, policy, raw_request, request

IMAGES = """
validations: [{expression: "object.spec.containers.all(c, c.?image.orValue('') != 'bad')"}]
"""
LABEL = "inject: {labels: {a: b}}"


class CountedDecisions:
    """Policies that remember, and what is decided on each request without that."""

    def __init__(self, *specs, phase="validate", most=3, **more):
        texts = [policy(spec, f"p{number}") for number, spec in enumerate(specs)]
        self.policies = policies(*texts, **more)
        self.recalled = 0
        self._remembering = Remembering(self.policies, phase, most=most, recalled=self._count)
        self._decide = getattr(self.policies, phase)

    def _count(self):
        self.recalled += 1

    def __call__(self, asked):
        """Ask, and return whether the answer was remembered."""
        before = self.recalled
        decision = self._remembering.decide(asked)
        fresh = self._decide(asked)
        assert (decision, decision.objections) == (fresh, fresh.objections)
        return self.recalled > before


def with_image(image, **metadata):
    made = pod(**metadata)
    made["spec"]["containers"][0]["image"] = image
    return made


def test_a_pod_that_is_the_same_to_the_policies_is_decided_on_once():
    asked = CountedDecisions(IMAGES)

    first = asked(request(with_image("good", name="a-0", labels={"index": "0"})))
    second = asked(request(with_image("good", name="a-1", labels={"index": "1"})))

    assert (first, second) == (False, True)


def test_a_pod_that_is_not_is_decided_on():
    asked = CountedDecisions(IMAGES)
    asked(request(with_image("good")))

    assert not asked(request(with_image("better")))
    assert asked(request(with_image("good")))


def test_a_refusal_is_not_remembered():
    asked = CountedDecisions(IMAGES)
    asked(request(with_image("bad", name="a")))

    assert not asked(request(with_image("bad", name="b")))


@pytest.mark.parametrize("enforcement", ["Warn", "Audit"])
def test_nor_is_what_policies_only_say(enforcement):
    asked = CountedDecisions(f"enforcement: {enforcement}\n{IMAGES}")
    asked(request(with_image("bad")))

    assert not asked(request(with_image("bad")))


def test_nor_is_a_failure():
    asked = CountedDecisions(
        "failurePolicy: Ignore\nvalidations: [{expression: object.spec.x.y == 1}]"
    )
    asked(request(pod()))

    assert not asked(request(pod()))


def test_a_change_is_made_to_each_pod_again():
    asked = CountedDecisions(LABEL, phase="mutate")

    assert not asked(request(pod(name="a", labels={"index": "0"})))
    assert asked(request(pod(name="b", labels={"index": "1"})))
    assert not asked(request(pod(name="c", labels={"a": "c"})))
    assert not asked(request(pod(name="d")))  # there are no labels to add one to


def test_cached_decisions_hold_no_data_of_other_pods():
    remembering = Remembering(policies(policy(LABEL)), "mutate")
    objects = [remembering.decide(request(pod(name=name, labels={}))).object for name in "ab"]

    assert objects[0]["metadata"]["name"] == "a"
    assert objects[1] is msgspec.UNSET


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(request(pod(), operation="UPDATE", old=pod()), id="update"),
        pytest.param(request(pod(), operation="DELETE"), id="delete"),
        pytest.param(request(pod(), sub_resource="ephemeralcontainers"), id="subresource"),
        pytest.param(request(job()), id="another-kind"),
    ],
)
def test_only_new_pods_are_remembered(other):
    asked = CountedDecisions(IMAGES)
    asked(request(pod()))
    asked(other)

    assert not asked(other)


def test_namespaces_do_not_share_what_is_remembered():
    asked = CountedDecisions(IMAGES)
    asked(request(pod()))
    elsewhere = pod()
    elsewhere["metadata"]["namespace"] = "team-b"

    assert not asked(request(elsewhere))


def test_a_namespace_that_changes_is_decided_for_anew():
    labels = {"tier": "a"}
    asked = CountedDecisions(
        "validations: [{expression: \"namespaceObject.metadata.labels.tier != 'b'\"}]",
        namespaces=lambda name: {"metadata": {"name": name, "labels": dict(labels)}},
    )
    asked(request(pod()))
    assert asked(request(pod()))

    labels["tier"] = "b"

    assert not asked(request(pod()))


def test_in_a_namespace_that_is_not_known_nothing_is_remembered():
    asked = CountedDecisions(IMAGES, namespaces=lambda _name: None)
    asked(request(pod()))

    assert not asked(request(pod()))


def test_users_are_distinguished_where_a_policy_looks_at_them():
    asked = CountedDecisions("validations: [{expression: request.userInfo.username != 'b'}]")
    asked(request(pod(), user="a"))

    assert asked(request(pod(), user="a"))
    assert not asked(request(pod(), user="b"))


def test_and_not_where_none_does():
    asked = CountedDecisions(IMAGES)
    asked(request(pod(), user="a"))

    assert asked(request(pod(), user="b"))


MAKER = "validations: [{expression: maker == 'Job'}]"


def test_the_maker_of_a_pod_is_evaluated_for_each_account():
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "b", "controller": True}
    asked = policies(policy(MAKER))
    remembering = Remembering(asked, "validate")
    accounts = ("system:serviceaccount:kube-system:job-controller", "alice")

    made = [pod(name=f"a-{number}", ownerReferences=[owner]) for number in range(4)]
    asking = [request(each, user=accounts[number % 2]) for number, each in enumerate(made)]
    allowed = [remembering.decide(each).allowed for each in asking]

    assert allowed == [True, False, True, False]


PARAMS = """
paramKind: {apiVersion: v1, kind: ConfigMap}
paramRef: {name: p, namespace: default, parameterNotFoundAction: Deny}
validations: [{expression: object.spec.?nodeName.orValue('') != params.data.not}]
"""


def test_params_that_change_are_decided_by_anew():
    stored = {"metadata": {"name": "p"}, "apiVersion": "v1", "kind": "ConfigMap"}
    source = StoredParams([stored | {"data": {"not": "a"}}])
    loaded = load_policies(policy(PARAMS), "policy.yaml")
    assert not loaded.findings
    surroundings = PolicyContext(
        namespaces=lambda name: {"metadata": {"name": name}},
        params=type("Source", (), {"__getattr__": lambda _self, name: getattr(source, name)})(),
    )
    recalled = []
    remembering = Remembering(
        PolicySet(loaded.policies, surroundings=surroundings),
        "validate",
        recalled=lambda: recalled.append(1),
    )
    bound = pod()
    bound["spec"]["nodeName"] = "b"
    assert [remembering.decide(request(bound)).allowed for _ in range(2)] == [True, True]
    assert recalled == [1]

    source = StoredParams([stored | {"data": {"not": "b"}}])

    assert not remembering.decide(request(bound)).allowed


def test_without_params_that_must_be_there_nothing_is_remembered():
    asked = CountedDecisions(PARAMS)

    assert not asked(request(pod()))
    assert not asked(request(pod()))


def test_a_policy_of_which_nothing_is_known_has_nothing_remembered():
    asked = CountedDecisions(IMAGES, "validations: [{expression: request != null}]")
    asked(request(pod()))

    assert not asked(request(pod()))


def test_policies_apply_whatever_comes_of_looking_at_them(monkeypatch):
    def fails(_policies):
        raise RecursionError

    monkeypatch.setattr("policyd.engine.remember.remembering.footprint", fails)
    asked = CountedDecisions(IMAGES)
    asked(request(pod()))

    assert not asked(request(pod()))


@pytest.mark.parametrize(
    "misshapen",
    [
        pytest.param({"spec": {"containers": {"a": {"image": "b"}}}}, id="map-for-a-list"),
        pytest.param({"spec": ["a"]}, id="list-for-an-object"),
        pytest.param({"spec": {"containers": ["a"]}}, id="text-for-an-object"),
        pytest.param([], id="no-object"),
        pytest.param(b'{"spec": {', id="no-json"),
    ],
)
def test_misshapen_objects_are_decided_on(misshapen):
    asked = CountedDecisions(IMAGES)

    assert not asked(raw_request(misshapen))
    assert not asked(raw_request(misshapen))


def test_null_is_not_absence():
    asked = CountedDecisions("validations: [{expression: '!has(object.spec.os)'}]")
    asked(request(pod()))
    nothing = pod()
    nothing["spec"]["os"] = None

    assert not asked(request(nothing))


def test_the_oldest_decisions_are_forgotten():
    asked = CountedDecisions(IMAGES)
    for image in "abc":
        asked(request(with_image(image)))
    asked(request(with_image("a")))  # it is the latest again
    asked(request(with_image("d")))

    assert asked(request(with_image("a")))
    assert not asked(request(with_image("b")))


def test_none_is_remembered_if_none_may_be():
    asked = CountedDecisions(IMAGES, most=0)
    asked(request(pod()))

    assert not asked(request(pod()))


def test_oversized_decisions_are_not_cached():
    asked = CountedDecisions(IMAGES)
    large = request(with_image("x" * LONGEST_FOOTPRINT))
    asked(large)

    assert not asked(large)


NAMES = st.sampled_from(["a", "b", "bad", ""])
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": NAMES},
        optional={
            "image": NAMES,
            "env": st.lists(st.fixed_dictionaries({"name": NAMES}, optional={"value": NAMES})),
            "securityContext": st.fixed_dictionaries(
                {}, optional={"privileged": st.booleans(), "runAsUser": st.integers(0, 2)}
            ),
            "resources": st.fixed_dictionaries(
                {"limits": st.dictionaries(st.just("nvidia.com/gpu"), st.integers(0, 2))}
            ),
        },
    ),
    min_size=1,
    max_size=2,
)
PODS = st.builds(
    lambda metadata, spec: {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec},
    st.fixed_dictionaries(
        {"name": NAMES, "namespace": st.just("n")},
        optional={
            key: st.dictionaries(st.sampled_from(["a", "team", "x/y"]), NAMES)
            for key in ("labels", "annotations")
        },
    ),
    st.fixed_dictionaries(
        {"containers": CONTAINERS},
        optional={
            "initContainers": CONTAINERS,
            "hostNetwork": st.booleans(),
            "nodeSelector": st.dictionaries(st.sampled_from(["a", "b"]), NAMES),
            "tolerations": st.lists(st.fixed_dictionaries({"key": NAMES}), max_size=2),
        },
    ),
)
LOOKING = [
    IMAGES,
    "validations: [{expression: object.spec.?hostNetwork.orValue(false) != true}]",
    "validations: [{expression: 'pod.gpus() < 3'}]",
    """
    validations: [{expression: "object.metadata.?labels[?'team'].orValue('') != 'bad'"}]
    """,
    """
    variables:
    - {name: all, expression: 'object.spec.containers + object.spec.?initContainers.orValue([])'}
    - {name: named, expression: "variables.all.filter(c, c.name == 'a')"}
    validations:
    - expression: variables.named.all(c, c.?securityContext.?privileged.orValue(false) != true)
    """,
    """
    validations:
    - expression: >-
        object.spec.containers.all(c, !has(c.env) || c.env.exists_one(e, e.name == 'a')
        || size(c.env) != 1)
    """,
    """
    matchConditions: [{name: team, expression: "has(object.metadata.annotations)"}]
    validations: [{expression: "object.metadata.annotations.all(key, key != 'x/y')"}]
    """,
]
CHANGING = [
    LABEL,
    "inject: {labels: {team: {expression: 'object.spec.containers[0].name'}}}",
    "inject: {tolerations: [{key: a, operator: Exists}], nodeSelector: {a: c}}",
    "inject: {resources: {limits: {cpu: 1}}}",
    """
    matchConditions: [{name: late, expression: "object.metadata.?labels[?'a'].orValue('') == 'b'"}]
    inject: {annotations: {late: 'yes'}}
    """,
    """
    mutations:
    - patchType: JSONPatch
      jsonPatch:
        expression: >-
          object.spec.containers.map(c, JSONPatch{op: has(c.env) ? 'replace' : 'add',
          path: '/spec/containers/' + string(object.spec.containers.indexOf(c)) + '/env',
          value: [{'name': 'IMAGE', 'value': string(c.?image.orValue('none'))}]})
    """,
    """
    mutations:
    - patchType: ApplyConfiguration
      applyConfiguration:
        expression: >-
          Object{metadata: Object.metadata{labels: {'host': string(object.spec.?hostNetwork
          .orValue(false))}}}
    """,
]


@pytest.mark.parametrize("phase", PHASES)
@given(data=st.data())
def test_cached_decisions_equal_new_ones(phase, data):
    specs = LOOKING if phase == "validate" else CHANGING
    chosen = data.draw(st.lists(st.sampled_from(specs), min_size=1, max_size=3, unique=True))
    asked = CountedDecisions(*chosen, phase=phase)
    first = data.draw(PODS)
    asked(request(first))
    for other in data.draw(st.lists(PODS, min_size=3, max_size=3)):
        made = copy.deepcopy(first)
        made["metadata"]["name"] = other["metadata"]["name"]
        part = data.draw(st.sampled_from(["metadata", "spec"]))
        field = data.draw(st.sampled_from(sorted(other[part])))
        made[part][field] = other[part][field]
        asked(request(made))


def test_and_it_does_recall():
    asked = CountedDecisions(*CHANGING, phase="mutate")
    same = json.loads(json.dumps(with_image("a", name="other")))

    assert not asked(request(with_image("a", name="one")))
    assert asked(request(same))


def test_a_pod_with_claims_is_decided_on_each_time_that_their_devices_count():
    """The template may be another one by then."""
    counts = {"one": 1}

    def claims(_namespace, _kind, name):
        exactly = {"deviceClassName": "gpu", "count": counts[name]}
        return {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}

    variables = "variables: [{name: claimed, expression: pod.claimedDevices()}]"
    spec = f"{variables}\nvalidations: [{{expression: variables.claimed < 2}}]"
    counting = policies(policy(spec))
    surroundings = PolicyContext(namespaces=counting.surroundings.namespaces, claims=claims)
    remembering = Remembering(PolicySet(counting.policies, surroundings=surroundings), "validate")
    claiming = pod()
    claiming["spec"]["resourceClaims"] = [{"name": "r", "resourceClaimTemplateName": "one"}]

    assert remembering.decide(request(claiming)).allowed
    counts["one"] = 2
    assert not remembering.decide(request(claiming)).allowed
