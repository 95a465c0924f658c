"""Passes over MutatingPolicies with `mutateExisting`: what they write, and what stops them."""

import pytest

from policyd.cli.background.bounds import MOST_WRITES, SHARE
from policyd.cli.background.mutating import MOST_REPEATED
from policyd.kube.errors import ConflictError
from policyd.kube.resources import CONFIG_MAPS, EVENTS, NAMESPACES, Resource
from tests.cli.background.test_passes import GROUP, Cluster

pytestmark = pytest.mark.anyio

MUTATING = Resource(GROUP, "v1", "mutatingpolicies", "MutatingPolicy", namespaced=False)
OF_TEAMS = Resource(GROUP, "v1", "namespacedmutatingpolicies", "NamespacedMutatingPolicy")
ON = {"mutateExisting": {"enabled": True}}
MAPS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
TARGETS = {"resourceRules": [MAPS], "objectSelector": {"matchLabels": {"target": "yes"}}}
OWN = {"resourceRules": [{**MAPS, "operations": ["CREATE"]}]}


def data(**fields):
    """A mutation that sets fields of the data of a ConfigMap to the values of expressions."""
    entries = ", ".join(f'"{key}": string({value})' for key, value in fields.items())
    expression = f"Object{{data: {{{entries}}}}}"
    return [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}]


def mutating(mutations, targets=TARGETS, **more):
    targets = {} if targets is None else {"targetMatchConstraints": targets}
    return {"evaluation": ON, "mutations": mutations, "failurePolicy": "Fail", **targets, **more}


class Mutations(Cluster):
    """A cluster with MutatingPolicies, targets and triggers."""

    def __init__(self):
        super().__init__()
        self.client.resources += [MUTATING, OF_TEAMS]

    def target(self, name, namespace="team", **fields):
        self.put(CONFIG_MAPS, name, namespace, labels={"target": "yes"}, data=fields)

    def data(self, name, namespace="team"):
        return self.client.store.get(CONFIG_MAPS, namespace, name).get("data")

    async def run(self, **options):
        return await super().run(**{"mutates": (CONFIG_MAPS,), **options})

    def written(self):
        return [line for line in self.lines if line.written]

    def failures(self):
        return [line.done for line in self.lines if line.failed]


@pytest.fixture
def cluster():
    found = Mutations()
    found.put(NAMESPACES, "team")
    yield found
    found.executor.shutdown()


async def test_targets_are_mutated_for_a_trigger_and_then_left_alone(cluster):
    cluster.policy(MUTATING, **mutating(data(address="request.object.data.address")))
    cluster.trigger("central", address="here")
    cluster.target("a", kept="x")
    cluster.target("b")

    await cluster.run()

    assert [line.what for line in cluster.written()] == ["ConfigMap team/a", "ConfigMap team/b"]
    assert cluster.data("a") == {"kept": "x", "address": "here"}
    (first, _) = cluster.client.store.select(EVENTS, {})
    assert (first["reason"], first["message"]) == (
        "PolicyApplied",
        "mutated /data/address for MutatingPolicy/p",
    )
    passed = await cluster.run()
    assert not cluster.written()
    assert not passed.failed


async def test_without_a_trigger_nothing_is_mutated(cluster):
    cluster.policy(MUTATING, **mutating(data(a="'b'")))
    cluster.target("a")

    await cluster.run()

    assert not cluster.lines
    assert cluster.data("a") == {}


async def test_without_targets_the_matched_objects_are_mutated(cluster):
    cluster.policy(MUTATING, **mutating(data(a="'b'"), None, matchConstraints=OWN))
    cluster.target("a")

    await cluster.run()

    assert cluster.data("a") == {"a": "b"}


async def test_any_version_of_a_built_in_resource_is_the_served_one(cluster):
    rules = {"resourceRules": [{**MAPS, "apiVersions": ["*"], "operations": ["CREATE"]}]}
    cluster.policy(MUTATING, **mutating(data(a="'b'"), None, matchConstraints=rules))
    cluster.target("a")

    await cluster.run()

    assert cluster.data("a") == {"a": "b"}


async def test_conditions_are_asked_of_triggers_and_of_targets(cluster):
    cluster.policy(
        MUTATING,
        **mutating(
            data(by="request.name"),
            matchConditions=[{"name": "chosen", "expression": "object.data.size() == 1"}],
            targetMatchConditions=[
                {"name": "open", "expression": "object.metadata.name != 'closed'"}
            ],
        ),
    )
    cluster.trigger("none")
    cluster.trigger("one", a="b")
    cluster.target("open")
    cluster.target("closed")

    await cluster.run()

    assert (cluster.data("open"), cluster.data("closed")) == ({"by": "one"}, {})


async def test_an_expression_names_the_targets_of_a_trigger(cluster):
    named = 'resource.Get("v1", "configmaps", object.metadata.namespace, object.data.target)'
    cluster.policy(MUTATING, **mutating(data(a="'b'"), {"expression": named}))
    cluster.trigger("t", target="a")
    cluster.target("a")
    cluster.target("other")

    await cluster.run(reads=(CONFIG_MAPS,))

    assert (cluster.data("a"), cluster.data("other")) == ({"a": "b"}, {})


async def test_nothing_is_written_without_act_or_rollout(cluster):
    cluster.policy(MUTATING, **mutating(data(a="'b'")), percent="0")
    cluster.trigger("t")
    cluster.target("a")

    for act in (False, True):
        await cluster.run(act=act)

        assert [line.done for line in cluster.lines] == ["would mutate /data/a"]
        assert cluster.data("a") == {}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        pytest.param(
            mutating(data(n="int(object.data.?n.orValue('0')) + 1")),
            "not mutated: it changes its own result",
            id="a-counter",
        ),
        pytest.param(
            mutating(data(a="request.userInfo.username")), "reads `request.userInfo`", id="the-user"
        ),
        pytest.param(mutating(data(a="oldObject.kind")), "reads `oldObject`", id="the-old-object"),
        pytest.param(
            mutating(
                data(a="'b'"),
                matchConstraints={"resourceRules": [{**MAPS, "operations": ["DELETE"]}]},
            ),
            "nothing is done for DELETE",
            id="deletions",
        ),
        pytest.param(
            mutating(data(a="'b'"), {"resourceRules": [{**MAPS, "resources": ["resourcequotas"]}]}),
            "mutates v1/resourcequotas, which --mutates does not list",
            id="unlisted",
        ),
        pytest.param(
            mutating(data(a="'b'"), {"resourceRules": [{**MAPS, "resources": ["*"]}]}),
            "its rules name `*`",
            id="everything",
        ),
        pytest.param(mutating(data(a="object.data.none")), "not mutated: ", id="an-error"),
        pytest.param(
            mutating(
                [
                    {
                        "patchType": "JSONPatch",
                        "jsonPatch": {
                            "expression": "[JSONPatch{op: 'replace', path: '/metadata/name',"
                            " value: 'other'}]"
                        },
                    }
                ]
            ),
            "it changes `metadata.name`",
            id="another-object",
        ),
    ],
)
async def test_what_cannot_be_mutated_is_reported(cluster, spec, why):
    cluster.policy(MUTATING, **spec)
    cluster.trigger("t")
    cluster.target("a")

    await cluster.run()

    assert not cluster.written()
    assert cluster.data("a") == {}
    assert any(why in line.done for line in cluster.lines), cluster.lines


async def test_policies_that_undo_each_other_are_stopped(cluster):
    cluster.policy(MUTATING, "first", **mutating(data(a="'1'")))
    cluster.policy(MUTATING, "second", **mutating(data(a="'2'")))
    cluster.trigger("t")
    cluster.target("a", a="0")

    passed = await cluster.run()

    assert passed.failed
    assert cluster.data("a") == {"a": "0"}
    both = "MutatingPolicy/first, MutatingPolicy/second undo each other's changes"
    assert all(both in done for done in cluster.failures())


async def test_policies_that_need_each_other_come_to_rest(cluster):
    cluster.policy(MUTATING, "first", **mutating(data(a="object.data.?b.orValue('0')")))
    cluster.policy(MUTATING, "second", **mutating(data(b="'1'")))
    cluster.trigger("t")
    cluster.target("x")

    await cluster.run()

    assert cluster.data("x") == {"a": "1", "b": "1"}
    assert len(cluster.written()) == 1


async def test_a_policy_of_a_namespace_cannot_stop_one_of_the_cluster(cluster):
    cluster.reader.namespaced = True
    cluster.policy(MUTATING, **mutating(data(a="'1'")))
    cluster.policy(OF_TEAMS, "q", "team", **mutating(data(a="'2'")))
    cluster.trigger("t")
    cluster.target("x")

    await cluster.run()

    assert cluster.data("x") == {"a": "1"}
    assert cluster.failures()


async def test_a_policy_of_a_namespace_mutates_nothing_elsewhere(cluster):
    cluster.reader.namespaced = True
    cluster.put(NAMESPACES, "other")
    cluster.policy(OF_TEAMS, "q", "team", **mutating(data(a="'2'")))
    named = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata":'
    named += ' {"name": "x", "namespace": "other"}}'
    named = f"{{'items': [dyn({named})]}}"
    cluster.policy(OF_TEAMS, "r", "team", **mutating(data(b="'2'"), {"expression": named}))
    cluster.trigger("t")
    cluster.target("x", "other")

    await cluster.run()

    assert cluster.data("x", "other") == {}


async def test_a_mutation_that_is_undone_each_time_is_given_up(cluster):
    cluster.policy(MUTATING, **mutating(data(a="'1'")))
    cluster.trigger("t")
    cluster.target("x")
    for _ in range(MOST_REPEATED):
        await cluster.run()
        assert cluster.written()
        change(cluster, CONFIG_MAPS, "team", "x", data={})

    await cluster.run()

    assert not cluster.written()
    assert "left alone: it was mutated 10 times in 10 minutes" in cluster.failures()[0]


def change(cluster, resource, namespace, name, **fields):
    store = cluster.client.store
    stored = store.get(resource, namespace, name)
    store.replace(resource, stored, {**stored, **fields})


async def test_a_namespace_has_a_share_of_the_writes(cluster):
    cluster.put(NAMESPACES, "other")
    cluster.policy(MUTATING, **mutating(data(a="'1'")))
    cluster.trigger("t")
    for number in range(MOST_WRITES // SHARE + 5):
        cluster.target(f"x-{number}")
    cluster.target("y", "other")

    await cluster.run()

    assert len(cluster.written()) == MOST_WRITES // SHARE + 1
    assert cluster.data("y", "other") == {"a": "1"}
    assert cluster.lines[-1].done == "5 objects are left to the next pass"


async def test_a_target_that_changes_meanwhile_is_left_to_the_next_pass(cluster):
    cluster.client.fail(ConflictError("it has changed"), verb="replace", plural="configmaps")
    cluster.policy(MUTATING, **mutating(data(a="'1'")))
    cluster.trigger("t")
    cluster.target("x")

    passed = await cluster.run()

    assert "left to the next pass" in cluster.lines[-1].done
    assert not passed.failed


async def test_the_status_says_which_rights_are_missing(cluster):
    cluster.client.allowed = False
    cluster.policy(MUTATING, **mutating(data(a="'1'")))

    await cluster.run()

    status = cluster.status(MUTATING, "p")["conditionStatus"]
    assert not status["ready"]
    assert "update configmaps" in status["message"]
    kinds = [each["type"] for each in status["conditions"]]
    assert kinds == ["WebhookConfigured", "RBACPermissionsGranted"]


async def test_the_webhooks_write_the_status_of_a_policy_of_requests(cluster):
    cluster.policy(MUTATING, **mutating(data(a="'1'"), None, matchConstraints=OWN))

    await cluster.run()

    assert "status" not in cluster.client.store.get(MUTATING, "", "p")


NAMED = {"expression": 'resource.Get("v1", "configmaps", object.metadata.namespace, "x")'}


@pytest.mark.parametrize(
    ("evaluation", "targets"),
    [
        pytest.param({"background": {"enabled": False}}, TARGETS, id="no-scans"),
        pytest.param({"admission": {"enabled": False}}, NAMED, id="no-admission"),
        pytest.param(
            {"background": {"enabled": False}, "admission": {"enabled": False}}, NAMED, id="neither"
        ),
    ],
)
async def test_objects_older_than_a_policy_are_triggers_whatever_it_says_of_scans(
    cluster, evaluation, targets
):
    cluster.trigger("old")
    cluster.target("x")
    mutation = mutating(data(by="request.name"), targets)
    cluster.policy(MUTATING, **{**mutation, "evaluation": {**ON, **evaluation}})
    policy = cluster.client.store.get(MUTATING, "", "p")
    late = {**policy["metadata"], "creationTimestamp": "2126-01-01T00:00:00Z"}
    cluster.client.store.put(MUTATING, {**policy, "metadata": late})

    await cluster.run(reads=(CONFIG_MAPS,))

    assert cluster.data("x") == {"by": "old"}


async def test_without_scans_and_admission_the_matched_objects_are_mutated(cluster):
    off = {"enabled": False}
    mutation = mutating(data(a="'b'"), None, matchConstraints=OWN)
    cluster.policy(
        MUTATING, **{**mutation, "evaluation": {**ON, "admission": off, "background": off}}
    )
    cluster.target("a")

    await cluster.run()

    assert cluster.data("a") == {"a": "b"}
