import pytest

from tests.local.apiserver.client import (
    CONFIG_MAPS,
    JOBS,
    NAMESPACES,
    PODS,
    config_map,
    job,
    owned,
    pod,
)

pytestmark = pytest.mark.anyio


def held(value, *finalizers):
    return {**value, "metadata": {**value["metadata"], "finalizers": list(finalizers)}}


async def test_unheld_objects_are_deleted_at_once(api):
    created = await api.create(CONFIG_MAPS, config_map())

    reply = await api.delete(f"{CONFIG_MAPS}/one")

    assert reply.body["status"] == "Success"
    assert reply.body["details"] == {
        "name": "one",
        "kind": "configmaps",
        "uid": created["metadata"]["uid"],
    }
    assert (await api.get(f"{CONFIG_MAPS}/one")).code == 404


async def test_a_finalizer_holds_an_object_until_it_is_removed(api):
    await api.create(CONFIG_MAPS, held(config_map(), "example.com/wait"))

    await api.delete(f"{CONFIG_MAPS}/one")
    marked = await api.get(f"{CONFIG_MAPS}/one")
    released = await api.patch(f"{CONFIG_MAPS}/one", {"metadata": {"finalizers": None}})

    assert "deletionTimestamp" in marked.body["metadata"]
    assert released.code == 200
    assert (await api.get(f"{CONFIG_MAPS}/one")).code == 404


async def test_no_finalizer_is_added_to_what_is_going(api):
    await api.create(CONFIG_MAPS, held(config_map(), "example.com/wait"))
    await api.delete(f"{CONFIG_MAPS}/one")

    more = {"metadata": {"finalizers": ["example.com/wait", "example.com/more"]}}
    reply = await api.patch(f"{CONFIG_MAPS}/one", more)

    assert reply.code == 422
    assert "no new finalizers can be added if the object is being deleted" in reply.message


@pytest.mark.parametrize(
    "preconditions",
    [
        pytest.param({"uid": "another"}, id="uid"),
        pytest.param({"resourceVersion": "1"}, id="version"),
    ],
)
async def test_a_deletion_may_insist_on_which_object_it_is(api, preconditions):
    await api.create(CONFIG_MAPS, config_map())

    reply = await api.delete(f"{CONFIG_MAPS}/one", {"preconditions": preconditions})

    assert (reply.code, reply.body["reason"]) == (409, "Conflict")
    assert (await api.get(f"{CONFIG_MAPS}/one")).code == 200


@pytest.mark.parametrize(
    ("spec", "query", "grace"),
    [
        pytest.param({"nodeName": "n1"}, {}, 30, id="as-the-pod-says"),
        pytest.param({"nodeName": "n1"}, {"gracePeriodSeconds": "5"}, 5, id="as-the-client-says"),
        pytest.param({"nodeName": "n1"}, {"gracePeriodSeconds": "0"}, 0, id="at-once"),
        pytest.param({}, {}, 0, id="not-on-a-node"),
    ],
)
async def test_a_pod_on_a_node_is_given_time(api, spec, query, grace):
    await api.create(PODS, pod(**spec))

    reply = await api.delete(f"{PODS}/one", **query)

    assert reply.body["metadata"]["deletionGracePeriodSeconds"] == grace
    assert (await api.get(f"{PODS}/one")).code == (200 if grace else 404)


async def test_the_time_given_can_only_become_shorter(api):
    await api.create(PODS, pod(nodeName="n1"))
    await api.delete(f"{PODS}/one", gracePeriodSeconds="5")

    longer = await api.delete(f"{PODS}/one", gracePeriodSeconds="50")
    at_once = await api.delete(f"{PODS}/one", gracePeriodSeconds="0")

    assert longer.body["metadata"]["deletionGracePeriodSeconds"] == 5
    assert at_once.code == 200
    assert (await api.get(f"{PODS}/one")).code == 404


async def test_a_collection_is_deleted_by_selector(api):
    await api.create(CONFIG_MAPS, config_map("a", labels={"x": "1"}))
    await api.create(CONFIG_MAPS, config_map("b"))

    reply = await api.delete(CONFIG_MAPS, labelSelector="x=1")

    assert [item["metadata"]["name"] for item in reply.body["items"]] == ["a"]
    assert (await api.get(f"{CONFIG_MAPS}/b")).code == 200


async def test_dependents_are_deleted_after_their_owner(api):
    owner = await api.create(CONFIG_MAPS, config_map("owner"))
    child = await api.create(CONFIG_MAPS, owned(config_map("child"), owner))
    await api.create(CONFIG_MAPS, owned(config_map("grandchild"), child))

    await api.delete(f"{CONFIG_MAPS}/owner")

    await api.gone(f"{CONFIG_MAPS}/child")
    await api.gone(f"{CONFIG_MAPS}/grandchild")


async def test_dependents_with_another_owner_stay(api):
    first = await api.create(CONFIG_MAPS, config_map("first"))
    second = await api.create(CONFIG_MAPS, config_map("second"))
    child = owned(config_map("child"), first)
    child["metadata"]["ownerReferences"] += owned(child, second)["metadata"]["ownerReferences"]
    await api.create(CONFIG_MAPS, child)
    async with api.watching(CONFIG_MAPS, fieldSelector="metadata.name=child") as watch:
        await watch.next_event()

        await api.delete(f"{CONFIG_MAPS}/first")

        changed = await watch.next_event()
    (left,) = changed["object"]["metadata"]["ownerReferences"]
    assert left["name"] == "second"


async def test_foreground_deletion_waits_for_what_blocks_it(api):
    owner = await api.create(JOBS, job("owner"))
    child = held(owned(pod("child"), owner, blockOwnerDeletion=True), "example.com/wait")
    await api.create(PODS, child)

    await api.delete(f"{JOBS}/owner", propagationPolicy="Foreground")
    waiting = await api.get(f"{JOBS}/owner")
    await api.patch(f"{PODS}/child", {"metadata": {"finalizers": None}})

    assert waiting.body["metadata"]["finalizers"] == ["foregroundDeletion"]
    await api.gone(f"{PODS}/child")
    await api.gone(f"{JOBS}/owner")


async def test_orphans_are_left_without_their_owner(api):
    owner = await api.create(JOBS, job("owner"))
    await api.create(PODS, owned(pod("child"), owner))

    await api.delete(f"{JOBS}/owner", {"propagationPolicy": "Orphan"})

    await api.gone(f"{JOBS}/owner")
    child = await api.get(f"{PODS}/child")
    assert "ownerReferences" not in child.body["metadata"]


async def test_a_job_orphans_its_pods_by_default_and_says_so(api):
    owner = await api.create(JOBS, job("owner"))
    await api.create(PODS, owned(pod("child"), owner))

    reply = await api.delete(f"{JOBS}/owner")

    await api.gone(f"{JOBS}/owner")
    assert "child pods are preserved by default" in reply.headers["Warning"]
    assert (await api.get(f"{PODS}/child")).code == 200


async def test_whose_owner_never_was_is_garbage(api):
    stranger = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "uid": "gone"}}

    await api.create(CONFIG_MAPS, owned(config_map("child"), stranger))

    await api.gone(f"{CONFIG_MAPS}/child")


async def test_a_namespace_takes_everything_with_it(api):
    await api.create(NAMESPACES, {"metadata": {"name": "team"}})
    path = "/api/v1/namespaces/team/configmaps"
    await api.create(path, config_map())

    reply = await api.delete(f"{NAMESPACES}/team")

    assert reply.body["status"]["phase"] == "Terminating"
    await api.gone(f"{NAMESPACES}/team")
    assert (await api.get(f"{path}/one")).code == 404


async def test_nothing_new_comes_into_a_namespace_that_is_going(api):
    await api.create(NAMESPACES, {"metadata": {"name": "team"}})
    path = "/api/v1/namespaces/team/configmaps"
    await api.create(path, held(config_map("slow"), "example.com/wait"))
    await api.delete(f"{NAMESPACES}/team")

    reply = await api.send("POST", path, config_map("late"))

    assert reply.code == 403
    assert reply.message == (
        'configmaps "late" is forbidden: unable to create new content in namespace team because it'
        " is being terminated"
    )
    await api.patch(f"{path}/slow", {"metadata": {"finalizers": None}})
    await api.gone(f"{NAMESPACES}/team")


async def test_the_first_namespaces_cannot_be_deleted(api):
    reply = await api.delete(f"{NAMESPACES}/default")

    assert reply.code == 403
    assert reply.message == 'namespaces "default" is forbidden: this namespace may not be deleted'


async def test_every_namespace_has_a_service_account(api):
    await api.create(NAMESPACES, {"metadata": {"name": "team"}})

    path = "/api/v1/namespaces/team/serviceaccounts"
    async with api.watching(path) as watch:
        assert await watch.names(1) == [("ADDED", "default")]


async def test_a_namespace_can_be_found_by_its_name_as_a_label(api):
    created = await api.create(NAMESPACES, {"metadata": {"name": "team"}})

    assert created["metadata"]["labels"] == {"kubernetes.io/metadata.name": "team"}
    assert created["status"] == {"phase": "Active"}
