"""Policies that generate when their trigger is deleted, and how deletions are noticed."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from policyd.cli.background.deletions import (
    KEPT_SECONDS,
    DeletionReader,
    NoticedDeletions,
    SeenUpTo,
)
from policyd.cli.background.watching import Watching
from policyd.kube.client import PartialObject
from policyd.kube.errors import ForbiddenError, GoneError, UnreachableError
from policyd.kube.informer import Informer
from policyd.kube.resources import CONFIG_MAPS, NAMESPACES
from tests.cli.background.test_passes import (
    GENERATING,
    NOW,
    OF_TEAMS,
    QUOTA,
    QUOTAS,
    TRIGGERS,
    Cluster,
    generating,
)

pytestmark = pytest.mark.anyio

OF_OLD = QUOTA.replace("object.", "oldObject.")
OF_EITHER = QUOTA.replace("q-(( object.metadata.name ))", "q-(( request.name ))").replace(
    "object.metadata.namespace", "request.namespace"
)


def deleting(*more, **constraints):
    rule = {**TRIGGERS["resourceRules"][0], "operations": ["DELETE", *more]}
    return {"matchConstraints": {**TRIGGERS, "resourceRules": [rule], **constraints}}


class Watched(Cluster):
    """A cluster whose deletions are noticed."""

    def __init__(self):
        super().__init__()
        self.deletions.watching = True

    async def end(self, name, namespace="team", resource=CONFIG_MAPS):
        gone = self.client.store.get(resource, namespace, name)
        await self.client.delete(resource, name, namespace=namespace)
        self.deletions.note(resource, gone, at=self.now)

    def failures(self):
        return [line.done for line in self.lines if line.failed]


@pytest.fixture
def cluster():
    found = Watched()
    found.put(NAMESPACES, "team")
    yield found
    found.executor.shutdown()


@pytest.mark.parametrize("synchronize", [True, False])
async def test_a_deletion_generates_once_and_what_it_generated_stays(cluster, synchronize):
    cluster.policy(**generating(OF_OLD, synchronize=synchronize), **deleting())
    cluster.trigger("a")

    await cluster.run()
    assert cluster.names(QUOTAS) == []
    await cluster.end("a")
    passed = await cluster.run()
    assert cluster.names(QUOTAS) == ["q-a"]
    assert not passed.failed
    await cluster.run()
    assert cluster.names(QUOTAS) == ["q-a"]
    await cluster.client.delete(QUOTAS, "q-a", namespace="team")
    passed = await cluster.run()
    assert cluster.names(QUOTAS) == []
    assert passed.recorded == 0


@pytest.mark.parametrize(
    ("orphan", "left"),
    [pytest.param(False, [], id="ends"), pytest.param(True, ["q-a"], id="stays")],
)
async def test_what_a_deletion_generated_ends_with_its_policy(cluster, orphan, left):
    cluster.policy(**generating(OF_OLD, orphanDownstreamOnPolicyDelete=orphan), **deleting())
    cluster.trigger("a")
    await cluster.end("a")
    await cluster.run()
    await cluster.client.delete(GENERATING, "p")

    await cluster.run()

    assert cluster.names(QUOTAS) == left


@pytest.mark.parametrize(
    ("operations", "left"),
    [
        pytest.param(["CREATE", "DELETE"], ["q-a"], id="named"),
        pytest.param(["CREATE", "UPDATE"], [], id="not-named"),
        pytest.param(["*"], [], id="any-operation"),
    ],
)
async def test_as_in_kyverno_objects_outlive_their_trigger_if_a_rule_names_delete(
    cluster, operations, left
):
    rule = {**TRIGGERS["resourceRules"][0], "operations": operations}
    constraints = {**TRIGGERS, "resourceRules": [rule]}
    cluster.policy(**generating(OF_EITHER), matchConstraints=constraints)
    cluster.trigger("a")
    await cluster.run()
    assert cluster.names(QUOTAS) == ["q-a"]

    await cluster.end("a")
    for _ in range(2):
        assert not (await cluster.run()).failed
        assert cluster.names(QUOTAS) == left


async def test_an_object_that_exists_and_matches_no_more_still_ends_its_objects(cluster):
    cluster.policy(**generating(OF_EITHER), **deleting("CREATE"))
    cluster.trigger("a")
    await cluster.run()
    assert cluster.names(QUOTAS) == ["q-a"]

    await cluster.client.patch(
        CONFIG_MAPS, "a", {"metadata": {"labels": {"trigger": None}}}, into=dict, namespace="team"
    )
    await cluster.run()

    assert cluster.names(QUOTAS) == []


@pytest.mark.parametrize(
    ("operations", "why"),
    [
        pytest.param(["DELETE", "CREATE"], "", id="none-of-a-new-object"),
        pytest.param(["DELETE", "UPDATE"], "reads `oldObject`", id="unknown-of-an-update"),
        pytest.param(["DELETE", "*"], "reads `oldObject`", id="any"),
    ],
)
async def test_the_old_object_is_known_except_of_updates(cluster, operations, why):
    text = OF_OLD.replace("(( oldObject.metadata.namespace ))", "team")
    text = text.replace("oldObject.metadata.name", "string(oldObject == null)")
    cluster.policy(**generating(text), **deleting(*operations))
    cluster.trigger("a")
    await cluster.run()
    await cluster.end("a")

    await cluster.run()

    message = cluster.status(GENERATING, "p")["conditionStatus"].get("message", "")
    assert why in message
    assert sorted(cluster.names(QUOTAS)) == ([] if why else ["q-false", "q-true"])


@pytest.mark.parametrize(
    "error", [ForbiddenError("no"), UnreachableError("no answer")], ids=["refused", "unreachable"]
)
async def test_a_deletion_is_tried_again_for_some_minutes(cluster, error):
    cluster.policy(**generating(OF_OLD), **deleting())
    for name in ("a", "b"):
        cluster.trigger(name)
    await cluster.end("a")
    cluster.client.fail(error, verb="create", plural="resourcequotas")

    await cluster.run()
    assert cluster.names(QUOTAS) == []
    await cluster.run()
    assert cluster.names(QUOTAS) == ["q-a"]

    await cluster.end("b")
    cluster.now = NOW + KEPT_SECONDS + 1
    cluster.client.fail(error, verb="create", plural="resourcequotas")
    await cluster.run()
    await cluster.run()
    assert cluster.names(QUOTAS) == ["q-a"]
    assert cluster.deletions.pending() == []


async def test_a_deletion_that_cannot_be_evaluated_is_reported(cluster):
    cluster.policy(**generating(QUOTA), **deleting())
    cluster.trigger("a")
    await cluster.end("a")

    assert (await cluster.run()).failed
    assert "failed for ConfigMap team/a" in str(cluster.failures())
    assert cluster.names(QUOTAS) == []


async def test_deletions_before_a_policy_was_made_do_not_concern_it(cluster):
    cluster.trigger("a")
    cluster.now = 0.0
    await cluster.end("a")
    cluster.policy(**generating(OF_OLD), **deleting())

    await cluster.run()

    assert cluster.names(QUOTAS) == []
    assert cluster.deletions.pending() == []


async def test_a_policy_of_a_namespace_sees_the_deletions_there_alone(cluster):
    cluster.reader.namespaced = True
    cluster.put(NAMESPACES, "other")
    cluster.policy(OF_TEAMS, "own", "team", **generating(OF_OLD), **deleting())
    cluster.trigger("a")
    cluster.trigger("b", "other")
    await cluster.end("a")
    await cluster.end("b", "other")

    await cluster.run()

    assert cluster.names(QUOTAS) == ["q-a"]


async def test_a_namespace_that_is_gone_is_as_it_was_last(cluster):
    text = QUOTA.replace("object.metadata.namespace", "'team'").replace("object", "oldObject")
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["DELETE"],
        "resources": ["namespaces"],
    }
    selector = {"matchLabels": {"keep": "yes"}}
    constraints = {"resourceRules": [rule], "namespaceSelector": selector}
    cluster.policy(**generating(text), matchConstraints=constraints)
    for name, labels in (("red", {"keep": "yes"}), ("blue", {})):
        cluster.put(NAMESPACES, name, labels=labels)
        await cluster.end(name, "", NAMESPACES)

    await cluster.run()

    assert cluster.names(QUOTAS) == ["q-red"]


async def test_a_tenant_who_deletes_a_lot_fills_its_own_room_alone(cluster, monkeypatch):
    monkeypatch.setattr("policyd.cli.background.bounds.MOST_OF_NAMESPACE", 3)
    cluster.put(NAMESPACES, "other")
    cluster.policy(**generating(OF_OLD), **deleting())
    for number in range(6):
        cluster.trigger(f"t{number}")
        await cluster.end(f"t{number}")
        await cluster.run()
    cluster.trigger("small", "other")
    await cluster.end("small", "other")

    await cluster.run()

    assert sorted(cluster.names(QUOTAS)) == ["q-small", "q-t0", "q-t1", "q-t2"]


async def test_a_single_pass_says_that_it_sees_no_deletions(cluster):
    cluster.deletions.watching = False
    cluster.policy(**generating(OF_OLD), **deleting())

    await cluster.run()

    assert [line.done for line in cluster.lines] == ["acts on deletions with --watch only"]


def test_where_there_are_too_many_the_fullest_namespace_loses_its_oldest(monkeypatch):
    monkeypatch.setattr("policyd.cli.background.deletions.MOST_DELETIONS", 4)
    noticed = NoticedDeletions(lambda: NOW)
    names = [("small", "s")] + [("big", f"b{number}") for number in range(6)]
    for namespace, name in names:
        metadata = {"name": name, "namespace": namespace, "uid": name}
        noticed.note(CONFIG_MAPS, {"metadata": metadata}, at=NOW)

    assert [each.uid for each in noticed.pending()] == ["s", "b3", "b4", "b5"]
    assert noticed.lost == 3


def test_a_namespace_with_large_objects_takes_no_room_from_others(monkeypatch):
    monkeypatch.setattr("policyd.cli.background.deletions.MOST_BYTES", 1500)
    noticed = NoticedDeletions(lambda: NOW)
    sizes = [("small", f"s{number}", 1) for number in range(3)]
    for namespace, name, size in (*sizes, ("big", "b0", 800), ("big", "b1", 800)):
        metadata = {"name": name, "namespace": namespace, "uid": name}
        noticed.note(CONFIG_MAPS, {"metadata": metadata, "data": {"x": "y" * size}}, at=NOW)

    assert [each.uid for each in noticed.pending()] == ["s0", "s1", "s2", "b1"]


async def test_a_namespace_that_was_made_anew_is_generated_in(cluster):
    cluster.policy(**generating())
    gone = {**cluster.client.store.get(NAMESPACES, "", "team")}
    gone["metadata"] = {**gone["metadata"], "deletionTimestamp": "2026-06-10T12:00:00Z"}
    cluster.deletions.note(NAMESPACES, gone, at=NOW)
    cluster.trigger("a")

    await cluster.run()

    assert cluster.names(QUOTAS) == ["q-a"]


async def until(holds):
    for _ in range(200):
        if holds():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it takes too long")


OF_DATA = OF_OLD.replace('"1"', '"(( oldObject.data.pods ))"')


async def test_a_watch_notices_a_deletion_with_the_last_state(cluster):
    cluster.policy(**generating(OF_DATA), **deleting())
    cluster.trigger("a", pods="1")
    passes = []

    async def carry(_note):
        passes.append(await cluster.run())
        return passes[-1]

    watching = Watching(cluster.client, carry, None, every=30.0, deletions=cluster.deletions)
    running = asyncio.create_task(watching.run())
    await until(lambda: passes)
    assert passes[0].noticed == {CONFIG_MAPS}
    await asyncio.sleep(0.1)
    await cluster.client.patch(
        CONFIG_MAPS, "a", {"data": {"pods": "7"}}, into=dict, namespace="team"
    )
    await cluster.client.delete(CONFIG_MAPS, "a", namespace="team")
    await until(lambda: cluster.names(QUOTAS))
    running.cancel()

    (quota,) = cluster.client.store.select(QUOTAS, {})
    assert quota["spec"] == {"hard": {"pods": "7"}}
    assert cluster.deletions.lost == 0


@asynccontextmanager
async def process(cluster, now=NOW):
    """A process that notices deletions after its first pass, and ends when it is cut off."""
    cluster.deletions = NoticedDeletions(lambda: now)
    cluster.deletions.watching = True
    await cluster.run()
    reader = DeletionReader(cluster.client, cluster.deletions)
    informer = Informer(reader, CONFIG_MAPS, into=PartialObject)
    running = asyncio.create_task(informer.run())
    await informer.synced.wait()
    await asyncio.sleep(0.01)
    yield
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("again", [False, True], ids=["gone", "made-anew"])
async def test_a_process_acts_on_deletions_since_the_one_before(cluster, again):
    cluster.policy(**generating(OF_DATA), **deleting())
    cluster.trigger("a", pods="1")
    async with process(cluster):
        await cluster.run()
    await cluster.client.patch(
        CONFIG_MAPS, "a", {"data": {"pods": "7"}}, into=dict, namespace="team"
    )
    await cluster.client.delete(CONFIG_MAPS, "a", namespace="team")
    if again:
        cluster.trigger("a", pods="9")

    async with process(cluster):
        assert not (await cluster.run()).failed

    (quota,) = cluster.client.store.select(QUOTAS, {})
    assert quota["spec"] == {"hard": {"pods": "7"}}


async def test_a_deletion_whose_write_failed_is_left_to_the_next_process(cluster):
    cluster.policy(**generating(OF_OLD), **deleting())
    for name in ("a", "b"):
        cluster.trigger(name)
    async with process(cluster):
        await cluster.client.delete(CONFIG_MAPS, "a", namespace="team")
        await cluster.client.delete(CONFIG_MAPS, "b", namespace="team")
        await asyncio.sleep(0.01)
        cluster.client.fail(UnreachableError("no"), verb="create", plural="resourcequotas")
        await cluster.run()
    assert cluster.names(QUOTAS) == ["q-b"]

    async with process(cluster):
        await cluster.run()

    assert sorted(cluster.names(QUOTAS)) == ["q-a", "q-b"]


@pytest.mark.parametrize("synchronize", [True, False])
async def test_what_was_acted_on_is_not_acted_on_by_the_next_process(cluster, synchronize):
    cluster.policy(**generating(OF_OLD, synchronize=synchronize), **deleting())
    cluster.trigger("a")
    async with process(cluster):
        await cluster.client.delete(CONFIG_MAPS, "a", namespace="team")
        await asyncio.sleep(0.01)
        await cluster.run()
    assert cluster.names(QUOTAS) == ["q-a"]
    await cluster.client.delete(QUOTAS, "q-a", namespace="team")

    async with process(cluster):
        await cluster.run()

    assert cluster.names(QUOTAS) == []


async def test_a_policy_that_is_newer_than_what_was_seen_last_does_not_act_on_it(cluster):
    cluster.policy(**generating(OF_OLD), **deleting())
    cluster.trigger("a")
    async with process(cluster, now=0.0):
        await cluster.run()
    await cluster.client.delete(CONFIG_MAPS, "a", namespace="team")

    async with process(cluster):
        await cluster.run()

    assert cluster.names(QUOTAS) == []


async def test_deletions_whose_history_is_gone_are_reported(cluster):
    cluster.policy(**generating(OF_OLD), **deleting())
    for name in ("a", "b"):
        cluster.trigger(name)
    async with process(cluster):
        await cluster.run()
    await cluster.client.delete(CONFIG_MAPS, "a", namespace="team")
    cluster.client.fail(GoneError("too old"), verb="watch", plural="configmaps")

    async with process(cluster):
        await cluster.client.delete(CONFIG_MAPS, "b", namespace="team")
        await asyncio.sleep(0.01)
        await cluster.run()

    assert cluster.failures() == [
        "nothing is generated for configmaps deleted after 2026-06-10T12:30:00Z: the API server"
        " has no history of them"
    ]
    assert cluster.names(QUOTAS) == ["q-b"]


async def test_quiet_passes_do_not_write_how_far_they_are(cluster):
    cluster.policy(**generating(OF_OLD), **deleting())
    async with process(cluster):
        await cluster.run()
        version = cluster.client.store.version
        cluster.trigger("a")
        await asyncio.sleep(0.01)
        await cluster.run()

    assert cluster.client.store.version == version + 1


def test_a_version_that_the_api_server_has_not_reached_is_not_used():
    noticed = NoticedDeletions(lambda: NOW)
    noticed.resume({"v1/configmaps": SeenUpTo("200", 1.0)})

    assert noticed.since(CONFIG_MAPS, "100") == SeenUpTo("100", NOW)
    assert noticed.since(CONFIG_MAPS, "201") == SeenUpTo("200", 1.0)


async def test_a_watch_is_otherwise_passed_on(cluster):
    reader = DeletionReader(cluster.client, cluster.deletions)
    cluster.trigger("a")
    page = await reader.page(CONFIG_MAPS, into=dict)
    assert [item["metadata"]["name"] for item in page.items] == ["a"]
    cluster.trigger("b")
    await cluster.client.delete(CONFIG_MAPS, "b", namespace="team")
    watch = reader.watch(CONFIG_MAPS, into=dict, resource_version=page.resource_version)

    seen = [(await anext(watch)).type, (await anext(watch)).type]
    await watch.aclose()

    assert seen == ["ADDED", "DELETED"]
    assert [each.object["metadata"]["name"] for each in cluster.deletions.pending()] == ["b"]
