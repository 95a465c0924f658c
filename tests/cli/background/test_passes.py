"""Passes over policies that act: what they read, how much they write, and what stops them."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import msgspec
import pytest

from policyd.cli.background.acting import BackgroundPass
from policyd.cli.background.bounds import MOST_WRITES, PassOptions
from policyd.cli.background.deletions import NoticedDeletions
from policyd.cli.background.mutating import RepeatedWrites
from policyd.cli.background.policies import PolicyReader
from policyd.cli.background.statuses import AccountRights
from policyd.cli.background.writes import LeadershipLostError
from policyd.engine.background.record import RecordDamagedError
from policyd.kube.errors import ForbiddenError
from policyd.kube.resources import CONFIG_MAPS, EVENTS, NAMESPACES, Resource
from policyd.testing import FakeClient

pytestmark = pytest.mark.anyio

GROUP = "policies.kyverno.io"
EXCEPTIONS = Resource(GROUP, "v1", "policyexceptions", "PolicyException")
ENTRIES = Resource(
    "kyverno.io", "v2alpha1", "globalcontextentries", "GlobalContextEntry", namespaced=False
)
GENERATING = Resource(GROUP, "v1", "generatingpolicies", "GeneratingPolicy", namespaced=False)
DELETING = Resource(GROUP, "v1", "deletingpolicies", "DeletingPolicy", namespaced=False)
OF_TEAMS = Resource(GROUP, "v1", "namespacedgeneratingpolicies", "NamespacedGeneratingPolicy")
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
SECRETS = Resource("", "v1", "secrets", "Secret")
NOW = datetime(2026, 6, 10, 12, 30, tzinfo=UTC).timestamp()
QUOTA = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: q-(( object.metadata.name )), namespace: (( object.metadata.namespace ))}
spec: {hard: {pods: "1"}}
"""
TRIGGERS = {
    "resourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
    ],
    "objectSelector": {"matchLabels": {"trigger": "yes"}},
}


class Server(FakeClient):
    """An API server that says what the account may do: all, or nothing."""

    allowed = True

    async def create(self, resource, body, *, into, **options):
        if resource.plural == "selfsubjectaccessreviews":
            return msgspec.convert({"status": {"allowed": self.allowed}}, into)
        return await FakeClient.create(self, resource, body, into=into, **options)


class Cluster:
    """A cluster with policies, and passes over it."""

    def __init__(self):
        self.client = Server()
        self.client.resources += [GENERATING, DELETING, OF_TEAMS, CONFIG_MAPS, NAMESPACES]
        self.client.resources += [EXCEPTIONS, ENTRIES]
        self.client.resources += [QUOTAS, SECRETS, EVENTS]
        self.executor = ThreadPoolExecutor(max_workers=1)
        self.reader = PolicyReader(self.client, self.executor, lambda: NOW)
        self.repeats = RepeatedWrites()
        self.now = NOW
        self.deletions = NoticedDeletions(lambda: self.now)
        self.lines = []
        self.leads = True

    def put(self, resource, name, namespace="", *, annotations=None, **more):
        metadata = {"name": name, "annotations": annotations or {}}
        metadata["labels"] = more.pop("labels", {})
        body = {"metadata": metadata, **more}
        return self.client.store.create(resource, body, namespace=namespace)

    def policy(self, resource=GENERATING, name="p", namespace="", *, percent="100", **spec):
        spec = {"matchConstraints": TRIGGERS, **spec}
        kind = {"apiVersion": f"{GROUP}/v1", "kind": resource.kind}
        annotations = {"policyd.io/rollout": percent}
        self.put(resource, name, namespace, annotations=annotations, spec=spec, **kind)

    def trigger(self, name, namespace="team", **data):
        self.put(CONFIG_MAPS, name, namespace, labels={"trigger": "yes"}, data=data)

    async def run(self, **options):
        options = {
            "generates": (QUOTAS,),
            "deletes": (CONFIG_MAPS,),
            "act": True,
            "place": "policyd-system/record",
            "leading": lambda: self.leads,
            **options,
        }
        self.lines = []
        rights = AccountRights(self.client)
        given = PassOptions(**options), self.reader, rights, self.lines.append
        kept = self.now, self.repeats, self.deletions
        return await BackgroundPass(self.client, *given, *kept).run()

    def names(self, resource):
        return [e["metadata"]["name"] for e in self.client.store.select(resource, {})]

    def status(self, resource, name):
        return self.client.store.get(resource, "", name)["status"]


@pytest.fixture
def cluster():
    found = Cluster()
    found.put(NAMESPACES, "team")
    yield found
    found.executor.shutdown()


def generating(text=QUOTA, **switches):
    evaluation = {"synchronize": True, "generateExisting": True, **switches}
    return {
        "evaluation": {name: {"enabled": on} for name, on in evaluation.items()},
        "generate": [{"template": {"interpolate": "cel", "value": text}}],
    }


def deleting(**more):
    return {"schedule": "0 * * * *", **more}


async def test_one_namespace_does_not_use_up_the_writes_of_a_pass(cluster):
    cluster.put(NAMESPACES, "z-last")
    cluster.policy(**generating())
    for number in range(MOST_WRITES + 5):
        cluster.trigger(f"t{number:04}")
    cluster.trigger("small", "z-last")

    await cluster.run()

    assert len(cluster.names(QUOTAS)) == MOST_WRITES
    assert "q-small" in cluster.names(QUOTAS)
    passed = await cluster.run()
    assert len(cluster.names(QUOTAS)) == MOST_WRITES + 6
    assert passed.recorded == MOST_WRITES + 6


async def test_a_namespace_with_too_many_triggers_takes_no_room_from_others(cluster, monkeypatch):
    monkeypatch.setattr("policyd.cli.background.bounds.MOST_OF_NAMESPACE", 3)
    cluster.put(NAMESPACES, "z-last")
    cluster.policy(**generating())
    for number in range(6):
        cluster.trigger(f"t{number}")
    cluster.trigger("small", "z-last")

    assert (await cluster.run()).failed
    assert cluster.names(QUOTAS) == ["q-t0", "q-t1", "q-t2", "q-small"]
    assert sum("objects, or" in line.done for line in cluster.lines) == 3


async def test_a_trigger_for_which_it_fails_stops_no_other(cluster):
    text = QUOTA.replace('"1"', "(( object.data.pods ))")
    cluster.policy(**generating(text))
    cluster.trigger("bad")
    cluster.trigger("good", pods="7")

    assert (await cluster.run()).failed
    assert cluster.names(QUOTAS) == ["q-good"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(("kind: ResourceQuota", "kind: Secret"), "does not list", id="not-listed"),
        pytest.param(
            (", namespace: (( object.metadata.namespace ))", ""), "without a name", id="nowhere"
        ),
        pytest.param(
            ("q-(( object.metadata.name ))", '".."'), "is not a valid name", id="leads-out"
        ),
        pytest.param(("{name:", "{labels: a, name:"), "that are not a map", id="labels"),
    ],
)
async def test_what_cannot_be_written_is_left_out_in_words(cluster, change, message):
    cluster.policy(**generating(QUOTA.replace(*change)))
    cluster.trigger("a")

    assert (await cluster.run()).failed
    assert any(message in line.done for line in cluster.lines)
    assert cluster.names(QUOTAS) == []


OF_REQUEST = QUOTA.replace(
    "object.metadata.name ", "request.name + '-' + request.operation.lowerAscii() "
)


@pytest.mark.parametrize(
    ("operations", "condition", "name"),
    [
        pytest.param(["CREATE", "UPDATE"], "true", "q-a-create", id="as-a-new-one"),
        pytest.param(["UPDATE"], "true", "q-a-update", id="as-a-changed-one"),
        pytest.param(
            ["CREATE", "UPDATE"],
            "request.operation == 'UPDATE' && has(request.object.data)",
            "q-a-update",
            id="the-operation-that-matches",
        ),
    ],
)
async def test_what_an_object_says_of_its_request_may_be_read(cluster, operations, condition, name):
    rules = [{**TRIGGERS["resourceRules"][0], "operations": operations}]
    conditions = [{"name": "c", "expression": condition}]
    spec = {"matchConstraints": {"resourceRules": rules}, "matchConditions": conditions}
    cluster.policy(**generating(OF_REQUEST), **spec)
    cluster.trigger("a", x="y")

    await cluster.run()

    assert cluster.names(QUOTAS) == [name]


CONNECTIONS = {
    "resourceRules": [{**TRIGGERS["resourceRules"][0], "operations": ["CONNECT"]}],
}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        pytest.param(
            generating(QUOTA.replace("object.metadata.name ", "request.userInfo.username ")),
            "reads `request.userInfo`",
            id="the-user",
        ),
        pytest.param(
            generating(QUOTA.replace("object.metadata.name ", "oldObject.metadata.name ")),
            "reads `oldObject`",
            id="the-old-object",
        ),
        pytest.param(
            {**generating(), "matchConstraints": CONNECTIONS},
            "nothing is done for CONNECT",
            id="connections",
        ),
    ],
)
async def test_a_policy_that_needs_the_request_is_left_out_and_its_status_says_so(
    cluster, spec, why
):
    cluster.policy(**spec)
    cluster.trigger("a")

    await cluster.run()

    assert cluster.names(QUOTAS) == []
    assert why in cluster.status(GENERATING, "p")["conditionStatus"]["message"]


async def test_a_source_is_read_when_an_expression_asks_for_it(cluster):
    copied = "generator.Apply('team', [resource.Get('v1', 'secrets', 'shared', 'pull')])"
    cluster.policy(evaluation=generating()["evaluation"], generate=[{"expression": copied}])
    cluster.trigger("a")
    given = {"generates": (SECRETS,)}

    await cluster.run(**given)
    assert any("without `--reads v1/secrets`" in line.done for line in cluster.lines)
    cluster.put(SECRETS, "pull", "shared", data={"a": "Yg=="})
    await cluster.run(**given, reads=(SECRETS,))
    assert cluster.client.store.get(SECRETS, "team", "pull")["data"] == {"a": "Yg=="}


@pytest.mark.parametrize(
    ("synchronize", "left"),
    [
        pytest.param(True, ["other"], id="synchronized"),
        pytest.param(False, ["other", "pull"], id="not"),
    ],
)
async def test_what_was_generated_ends_with_its_source_if_it_is_synchronized(
    cluster, synchronize, left
):
    read = [f"resource.Get('v1', 'secrets', 'shared', '{name}')" for name in ("pull", "other")]
    spec = generating(synchronize=synchronize)
    copied = f"generator.Apply('team', [{', '.join(read)}])"
    cluster.policy(evaluation=spec["evaluation"], generate=[{"expression": copied}])
    cluster.trigger("a")
    cluster.put(SECRETS, "other", "shared")
    given = {"generates": (SECRETS,), "reads": (SECRETS,)}

    def copies():
        secrets = [each["metadata"] for each in cluster.client.store.select(SECRETS, {})]
        return sorted(each["name"] for each in secrets if each["namespace"] == "team")

    await cluster.run(**given)
    assert copies() == []
    cluster.put(SECRETS, "pull", "shared")
    await cluster.run(**given)
    assert copies() == ["other", "pull"]
    await cluster.client.delete(SECRETS, "pull", namespace="shared")
    assert (await cluster.run(**given)).failed
    assert copies() == left
    cluster.put(SECRETS, "pull", "shared")
    assert not (await cluster.run(**given)).failed
    assert copies() == ["other", "pull"]


async def test_only_a_share_is_deleted_at_a_time_and_the_run_is_not_complete_before(cluster):
    cluster.policy(DELETING, "old", **deleting())
    before = "2026-06-10T11:00:00Z"
    cluster.client.store._all(DELETING)["old"]["metadata"]["creationTimestamp"] = before
    for number in range(4):
        cluster.trigger(f"t{number}")
    cluster.trigger("other", "z-last")

    await cluster.run(most_deletes=10)
    assert cluster.names(CONFIG_MAPS) == ["t2", "t3"]
    assert "lastExecutionTime" not in cluster.status(DELETING, "old")
    await cluster.run(most_deletes=10)
    assert cluster.names(CONFIG_MAPS) == []
    await cluster.run(most_deletes=10)
    assert cluster.status(DELETING, "old")["lastExecutionTime"].startswith("2026-06-10T12:30")
    events = cluster.client.store.select(EVENTS, {})
    assert len(events) == 5
    assert {event["reason"] for event in events} == {"PolicyDeleted"}


async def test_nothing_is_written_once_another_process_leads(cluster):
    cluster.policy(**generating())
    cluster.trigger("a")
    cluster.leads = False

    with pytest.raises(LeadershipLostError, match="another process leads"):
        await cluster.run()
    assert cluster.names(QUOTAS) == []


async def test_a_creation_that_is_refused_is_not_recorded(cluster):
    cluster.policy(**generating())
    cluster.trigger("a")
    cluster.client.fail(ForbiddenError("no"), verb="create", plural="resourcequotas")

    passed = await cluster.run()

    assert passed.failed
    assert passed.recorded == 0


async def test_a_damaged_record_stops_a_pass_before_it_writes(cluster):
    cluster.put(CONFIG_MAPS, "record", "policyd-system", binaryData={"generated": "AAAA"})
    cluster.policy(**generating())
    cluster.trigger("a")

    with pytest.raises(RecordDamagedError, match="cannot be read"):
        await cluster.run()
    assert cluster.names(QUOTAS) == []


async def test_the_status_names_the_rights_that_are_missing(cluster):
    cluster.policy(**generating())
    cluster.client.allowed = False

    await cluster.run()

    found = cluster.status(GENERATING, "p")["conditionStatus"]
    conditions = {each["type"]: each for each in found["conditions"]}
    assert not found["ready"]
    assert conditions["RBACPermissionsGranted"]["status"] == "False"
    assert "create resourcequotas" in conditions["RBACPermissionsGranted"]["message"]
    assert conditions["WebhookConfigured"]["status"] == "True"


@pytest.mark.parametrize("namespaced", [False, True])
async def test_policies_of_namespaces_count_only_if_that_is_wanted(cluster, namespaced):
    cluster.policy(OF_TEAMS, "own", "team", **generating())
    cluster.trigger("a")
    cluster.trigger("b", "other")
    cluster.reader.namespaced = namespaced

    await cluster.run()

    assert cluster.names(QUOTAS) == (["q-a"] if namespaced else [])


def excepted(cluster, expression, namespace="rules"):
    cluster.put(
        EXCEPTIONS,
        "e",
        namespace,
        apiVersion=f"{GROUP}/v1",
        kind="PolicyException",
        spec={
            "policyRefs": [{"name": "p", "kind": "GeneratingPolicy"}],
            "matchConditions": [{"name": "one", "expression": expression}],
        },
    )


@pytest.mark.parametrize(
    ("namespaces", "expression", "expected"),
    [
        pytest.param(("rules",), "object.metadata.name == 'a'", ["q-b"], id="counts"),
        pytest.param((), "object.metadata.name == 'a'", ["q-a", "q-b"], id="nowhere"),
        pytest.param(("team",), "object.metadata.name == 'a'", ["q-a", "q-b"], id="elsewhere"),
        pytest.param(("rules",), "(", [], id="broken"),
    ],
)
async def test_exceptions_count_in_the_namespaces_that_are_named(
    cluster, namespaces, expression, expected
):
    cluster.policy(**generating())
    excepted(cluster, expression)
    cluster.trigger("a")
    cluster.trigger("b")
    cluster.reader.exceptions = namespaces

    await cluster.run()

    assert sorted(cluster.names(QUOTAS)) == expected
    if not expected:
        assert "left out: of its exceptions, `e` cannot be used" in str(cluster.lines)


async def test_entries_of_the_cluster_are_data_of_policies(cluster):
    text = QUOTA.replace('"1"', "\"(( string(globalContext.Get('secrets', '').size()) ))\"")
    cluster.policy(**generating(text))
    cluster.put(SECRETS, "one", "team")
    resource = {"version": "v1", "resource": "secrets"}
    entry = {"apiVersion": "kyverno.io/v2alpha1", "kind": "GlobalContextEntry"}
    cluster.put(ENTRIES, "secrets", spec={"kubernetesResource": resource}, **entry)
    cluster.trigger("a")

    await cluster.run(reads=(SECRETS,))

    (quota,) = cluster.client.store.select(QUOTAS, {})
    assert quota["spec"] == {"hard": {"pods": "1"}}


async def test_entries_call_no_services(cluster):
    text = QUOTA.replace('"1"', "\"(( string(globalContext.Get('x', '').size()) ))\"")
    cluster.policy(**generating(text))
    entry = {"apiVersion": "kyverno.io/v2alpha1", "kind": "GlobalContextEntry"}
    call = {"apiCall": {"service": {"url": "https://inventory.example"}}}
    cluster.put(ENTRIES, "x", spec=call, **entry)
    cluster.trigger("a")

    await cluster.run()

    assert not cluster.names(QUOTAS)
    assert "calls no services, such as https://inventory.example" in str(cluster.lines)
