import pytest

from policyd.local.apiserver import ApiServer, ServerOptions
from tests.local.apiserver.client import (
    JSON_PATCH,
    NAMESPACES,
    PODS,
    STRATEGIC,
    pod,
    session_with,
)

pytestmark = pytest.mark.anyio

REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"
SCALE = f"{REPLICA_SETS}/web/scale"


def replica_set(replicas=2):
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "nginx"}]},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    kind = {"apiVersion": "apps/v1", "kind": "ReplicaSet"}
    return kind | {"metadata": {"name": "web"}, "spec": spec}


def binding(node="n1", **metadata):
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "one", **metadata},
        "target": {"kind": "Node", "name": node},
    }


async def test_a_scale_shows_replicas_and_selector(api):
    await api.create(REPLICA_SETS, replica_set(2))

    scale = (await api.get(SCALE)).body

    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 0, "selector": "app=web"}


@pytest.mark.parametrize(
    ("change", "content_type"),
    [
        pytest.param({"spec": {"replicas": 5}}, "application/merge-patch+json", id="merge"),
        pytest.param({"spec": {"replicas": 5}}, STRATEGIC, id="strategic"),
        pytest.param(
            [{"op": "replace", "path": "/spec/replicas", "value": 5}], JSON_PATCH, id="json"
        ),
    ],
)
async def test_patching_the_scale_scales(api, change, content_type):
    await api.create(REPLICA_SETS, replica_set(2))

    reply = await api.patch(SCALE, change, content_type)

    assert reply.body["spec"] == {"replicas": 5}
    assert (await api.get(f"{REPLICA_SETS}/web")).body["spec"]["replicas"] == 5


async def test_replacing_the_scale_scales(api):
    await api.create(REPLICA_SETS, replica_set(2))
    scale = (await api.get(SCALE)).body

    reply = await api.send("PUT", SCALE, scale | {"spec": {"replicas": 0}})
    stale = await api.send("PUT", SCALE, scale | {"spec": {"replicas": 9}})

    assert (reply.code, stale.code) == (200, 409)
    assert (await api.get(f"{REPLICA_SETS}/web")).body["spec"]["replicas"] == 0


async def test_there_are_no_negative_replicas(api):
    await api.create(REPLICA_SETS, replica_set(2))

    reply = await api.patch(SCALE, {"spec": {"replicas": -1}})

    assert reply.code == 422


async def test_binding_gives_a_pod_its_node(api):
    await api.create(PODS, pod())

    reply = await api.send("POST", f"{PODS}/one/binding", binding(annotations={"a": "b"}))

    bound = (await api.get(f"{PODS}/one")).body
    assert (reply.code, reply.body["status"]) == (201, "Success")
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"] == {"a": "b"}
    (condition,) = bound["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        pytest.param(
            {"nodeName": "n0"}, 'pod one is already assigned to node "n0"', id="bound-already"
        ),
        pytest.param(
            {"schedulingGates": [{"name": "example.com/wait"}]},
            "pod one has non-empty .spec.schedulingGates",
            id="gated",
        ),
    ],
)
async def test_some_pods_cannot_be_bound(api, spec, why):
    await api.create(PODS, pod(**spec))

    reply = await api.send("POST", f"{PODS}/one/binding", binding())

    assert reply.code == 409
    assert reply.message == f'Operation cannot be fulfilled on pods/binding "one": {why}'


async def test_evicting_deletes_a_pod(api):
    await api.create(PODS, pod())
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "one"}}

    reply = await api.send("POST", f"{PODS}/one/eviction", eviction)

    assert (reply.code, reply.body["status"]) == (201, "Success")
    assert (await api.get(f"{PODS}/one")).code == 404


async def test_a_log_is_what_the_node_says():
    server = ApiServer(
        ServerOptions(pod_log=lambda pod, container: f"{pod['metadata']['name']}: {container}\n")
    )
    await server.start()
    async with session_with(server) as api:
        await api.create(PODS, pod(nodeName="n1"))

        reply = await api.get(f"{PODS}/one/log")
        other = await api.get(f"{PODS}/one/log", container="side")

    await server.stop()
    assert reply.body == "one: main\n"
    assert (other.code, other.message) == (400, "container side is not valid for pod one")


async def test_the_finalizers_of_a_namespace_are_set_by_their_own_path(api):
    await api.create(NAMESPACES, {"metadata": {"name": "team"}})
    body = {"metadata": {"name": "team"}, "spec": {"finalizers": ["example.com/wait"]}}

    await api.send("PUT", f"{NAMESPACES}/team/finalize", body)
    await api.delete(f"{NAMESPACES}/team")
    waiting = await api.get(f"{NAMESPACES}/team")
    await api.send("PUT", f"{NAMESPACES}/team/finalize", {"metadata": {"name": "team"}})

    assert waiting.body["spec"]["finalizers"] == ["example.com/wait"]
    await api.gone(f"{NAMESPACES}/team")


async def test_a_subresource_that_a_kind_lacks_is_not_found(api):
    await api.create(PODS, pod())

    assert (await api.get(f"{PODS}/one/scale")).code == 404


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("selfsubjectaccessreviews", id="may-i"),
        pytest.param("subjectaccessreviews", id="may-somebody"),
    ],
)
async def test_every_user_has_all_rights(api, kind):
    reply = await api.send("POST", f"/apis/authorization.k8s.io/v1/{kind}", {"spec": {}})

    assert (reply.code, reply.body["status"]["allowed"]) == (201, True)


async def test_admin_access_needs_the_label_of_the_namespace_and_claims_do_not_change(api):
    path = "/apis/resource.k8s.io/v1/namespaces/default"
    exactly = {"deviceClassName": "gpu", "adminAccess": True}
    spec = {"devices": {"requests": [{"name": "a", "exactly": exactly}]}}
    about = {"apiVersion": "resource.k8s.io/v1", "metadata": {"name": "admin"}}
    claim = {**about, "kind": "ResourceClaim", "spec": spec}
    template = {**about, "kind": "ResourceClaimTemplate", "spec": {"spec": spec}}
    wanted = [("resourceclaims", claim), ("resourceclaimtemplates", template)]
    why = "spec.devices.requests[0].adminAccess: Forbidden: admin access to devices requires"

    for plural, body in wanted:
        refused = await api.send("POST", f"{path}/{plural}", body)
        assert (refused.code, why in refused.body["message"]) == (422, True)
    await api.patch(
        f"{NAMESPACES}/default",
        {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}},
    )
    for plural, body in wanted:
        await api.create(f"{path}/{plural}", body)
        changed = await api.patch(f"{path}/{plural}/admin", {"spec": None})
        assert changed.code == 422


async def test_a_claim_gets_devices_with_admin_access_where_its_namespace_permits_that(api):
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    spec = {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu"}}]}}
    about = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    await api.create(path, {**about, "metadata": {"name": "a"}, "spec": spec})
    device = {"request": "a", "driver": "gpu.example.com", "pool": "p", "device": "d"}
    results = [{**device, "adminAccess": True}]
    status = {"status": {"allocation": {"devices": {"results": results}}}}

    refused = await api.patch(f"{path}/a/status", status)
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    await api.patch(f"{NAMESPACES}/default", label)
    given = await api.patch(f"{path}/a/status", status)
    label["metadata"]["labels"] = {"resource.kubernetes.io/admin-access": None}
    await api.patch(f"{NAMESPACES}/default", label)
    kept = await api.patch(f"{path}/a/status", {"metadata": {"labels": {"a": "b"}}})

    assert refused.code == 422
    assert "status.allocation.devices.results[0].adminAccess: Forbidden" in refused.body["message"]
    assert (given.code, kept.code) == (200, 200)
