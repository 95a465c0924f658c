"""Nodes as a user may read them: pods, stranded devices, moves, and what is left out."""

import json

import click
import pytest

from policyd.cli.questions.nodes import nodes_lines
from policyd.clock import SystemClock
from policyd.kube import resources as r
from policyd.kube.errors import ForbiddenError, UnreachableError
from policyd.questions.nodes import nodes_answer
from policyd.questions.snapshots import OF_CLUSTER
from policyd.testing import FakeClient
from tests.alloc.builders import pod_set, queue, workload
from tests.questions.test_unqueued_jobs import owned, put
from tests.snapshot.taking import body_for, taken
from tests.status.test_pending_reasons import settled

pytestmark = pytest.mark.anyio

GPU = "nvidia.com/gpu"
READY = [{"type": "Ready", "status": "True", "reason": "", "message": ""}]


def node(client, name, rack):
    labels = {"rack": rack, "kubernetes.io/hostname": name, "gpu": "h100"}
    status = {"allocatable": {GPU: "8", "cpu": "64", "pods": "9"}, "conditions": READY}
    put(client, r.NODES, name, namespace="", labels=labels, status=status)


def pod(client, name, on, gpus, *, owner=("Job", "j"), phase="Running", **metadata):
    requests = {"cpu": "1", GPU: str(gpus)}
    spec = {"nodeName": on, "containers": [{"resources": {"requests": requests}}]}
    selector = {"kubernetes.io/hostname": on} if metadata.get("annotations") else {}
    spec["nodeSelector"] = selector
    owners = owned(*owner) if owner else []
    put(client, r.PODS, name, spec, ownerReferences=owners, status={"phase": phase}, **metadata)


@pytest.fixture
def client():
    """Two nodes of eight GPUs: a small job is in the way of one that waits for eight."""
    client = FakeClient()
    levels = [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
    put(client, r.TOPOLOGIES, "racks", {"levels": levels}, namespace="")
    put(client, r.RESOURCE_FLAVORS, "default", {"nodeLabels": {"gpu": "h100"}}, namespace="")
    node(client, "n1", "r1")
    node(client, "n2", "r2")
    placed = {"annotations": {"kueue.x-k8s.io/workload": "w"}}
    pod(client, "small", "n1", 1, owner=("Job", "small"), **placed)
    pod(client, "big-a", "n2", 2, owner=("Job", "big"))
    pod(client, "big-b", "n2", 2, owner=("Job", "big"))
    pod(client, "ended", "n1", 4, phase="Succeeded")
    waits = pod_set(count=1, **{GPU: 8, "cpu": 1_000})
    serve(client, workload("ns/job-new", "q", waits, at=1))
    return client


def driver(client, *names, at="dra", **of_class):
    """Let a driver offer devices on a node, which has none of its own."""
    labels = {"rack": "r3", "kubernetes.io/hostname": at, "gpu": "h100"}
    status = {"allocatable": {"cpu": "64", "pods": "9"}, "conditions": READY}
    put(client, r.NODES, at, namespace="", labels=labels, status=status)
    devices = [{"name": each} for each in names]
    pool = {"name": at, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": at, "pool": pool, "devices": devices}
    put(client, r.RESOURCE_SLICES, at, spec, namespace="")
    put(client, r.DEVICE_CLASSES, "gpus", of_class, namespace="")


def claim(client, name, *devices, at="dra", pods=()):
    results = [{"driver": "gpu.example.com", "pool": at, "device": each} for each in devices]
    reserved = [{"resource": "pods", "name": each} for each in pods]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
    put(client, r.RESOURCE_CLAIMS, name, status=status)


def serve(client, *waiting, mapped=""):
    """Let the client serve a snapshot of a queue without room in which so much waits."""
    body = json.loads(body_for(taken(settled(queue("q", gpu=0), *waiting))))
    body["metadata"] = {"name": "current"}
    body["takenAt"] = SystemClock().now()
    body["clusterQueues"][0]["quotas"][0]["resource"] = GPU
    if mapped:
        mappings = [{"name": GPU, "deviceClassNames": [mapped]}]
        head = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
        body["configuration"] = {**head, "resources": {"deviceClassMappings": mappings}}
    client.store.put(OF_CLUSTER, body)


async def asked(client, most=3, later=0.0):
    return await nodes_answer(client, most=most, now=SystemClock().now() + later)


async def test_an_old_snapshot_is_reported_as_old(client):
    found = await asked(client, later=300)

    assert found.left_out == ("pending workloads of now: the snapshot is 5m old",)


async def test_nodes_are_shown_with_their_pods_and_who_strands_what(client):
    answer = await asked(client)

    first, second = answer.nodes
    assert (first.domain, first.name, second.domain, second.name) == ("r1", "n1", "r2", "n2")
    assert [(each.job, each.pods) for each in second.pods] == [("ns/Job/big", 2)]
    assert (first.free[GPU], first.fragments) == (7, {GPU: 7})
    (stranded,) = first.stranded
    assert (stranded.amount, stranded.by, stranded.missing) == (7, ("ns/Job/small",), (GPU,))
    (total,) = answer.devices
    assert (total.total, total.free, total.fragments, total.stranded) == (16, 11, 11, 11)
    assert (answer.asked, answer.left_out) == (("ns/new",), ())


@pytest.mark.parametrize(
    ("parent", "labels", "job"),
    [
        pytest.param("statefulset", {}, "ns/StatefulSet/serve", id="stateful-set"),
        pytest.param(
            "leaderworkerset.x-k8s.io/leaderworkerset",
            {"leaderworkerset.sigs.k8s.io/name": "lws"},
            "ns/LeaderWorkerSet/lws",
            id="leader-worker-set",
        ),
        pytest.param("", {}, "ns/PodGroup/group", id="plain-group"),
        pytest.param(
            "leaderworkerset.x-k8s.io/leaderworkerset", {}, "ns/PodGroup/group", id="without-name"
        ),
    ],
)
async def test_pods_of_a_group_are_called_by_the_object_that_makes_them(
    client, parent, labels, job
):
    annotations = {
        "kueue.x-k8s.io/pod-group-name": "group",
        "kueue.x-k8s.io/pod-suspending-parent": parent,
    }
    owner = ("StatefulSet", "serve")
    pod(client, "p", "n1", 1, owner=owner, annotations=annotations, labels=labels)

    assert job in {each.job for each in (await asked(client)).nodes[0].pods}


async def test_the_job_in_the_way_is_proposed_to_move(client):
    (plan,) = (await asked(client)).moves

    assert (plan.workload, dict(plan.target)) == ("ns/new", {"n1": 1})
    (move,) = plan.moves
    assert (move.workload, dict(move.target)) == ("ns/Job/small", {"n2": 1})
    assert (await asked(client, most=0)).moves == ()


async def test_pods_that_nobody_makes_again_are_not_moved(client):
    for owner in (None, ("DaemonSet", "agent")):
        pod(client, "small", "n1", 1, owner=owner)
        for name in ("big-a", "big-b"):
            pod(client, name, "n2", 2, owner=owner)

        assert (await asked(client)).moves == ()


async def test_a_job_that_may_be_on_no_such_node_does_not_count_as_asking(client):
    put(client, r.RESOURCE_FLAVORS, "default", {"nodeLabels": {"gpu": "l4"}}, namespace="")
    serve(client, workload("ns/job-new", "q", pod_set(count=1, **{GPU: 1}), at=1))

    first, _ = (await asked(client)).nodes
    assert first.stranded[0].amount == 7, "by a pod that takes the whole node"


async def test_without_pending_jobs_a_pod_of_a_whole_node_is_what_is_asked_for(client):
    serve(client)
    answer = await asked(client)

    assert answer.asked == ()
    assert [each.amount for line in answer.nodes for each in line.stranded] == [7, 4]
    assert answer.moves[0].workload == f"a pod with 8 {GPU}"


@pytest.mark.parametrize(
    ("plural", "missing"),
    [
        pytest.param("pods", "pods: no", id="pods"),
        pytest.param("clusterqueuesnapshots", "pending workloads: no", id="snapshots"),
        pytest.param(
            "topologies",
            "places in the topology, and which flavor a node is of: no",
            id="topologies",
        ),
    ],
)
async def test_what_the_user_may_not_read_is_left_out_and_reported(client, plural, missing):
    client.fail(ForbiddenError("no"), plural=plural)

    assert missing in (await asked(client)).left_out


async def test_without_pods_and_snapshots_the_rights_are_named(client):
    client.fail(ForbiddenError("no"), plural="pods")
    client.fail(ForbiddenError("no"), plural="clusterqueuesnapshots")

    with pytest.raises(ForbiddenError) as error:
        await asked(client)
    assert error.value.hint.startswith("an administrator has to grant `list` on `nodes`")


async def test_an_api_server_that_does_not_answer_is_an_error(client):
    client.fail(UnreachableError("cannot connect"), times=9)

    with pytest.raises(UnreachableError):
        await asked(client)


async def test_without_a_topology_there_is_no_column_for_places(client):
    await client.delete(r.TOPOLOGIES, "racks")
    lines = [*nodes_lines(await asked(client), wide=False)]

    assert lines[1].startswith("NODE  STATE  DEVICE")
    assert lines[2].startswith("n1    Ready  nvidia.com/gpu")


async def test_people_read_a_table_a_map_and_the_moves(client):
    lines = [click.unstyle(line) for line in nodes_lines(await asked(client), wide=True)]

    assert lines[0] == f"{GPU}: 16, 11 free, 11 of these in fragments, 11 stranded"
    (row,) = (line.split() for line in lines if " n1 " in line and "Ready" in line)
    assert row == [
        "r1", "n1", "Ready", GPU, "8", "7", "7", "7", "ns/Job/small", "ns/Job/small", "(1)", GPU,
        "63", "-",
    ]  # fmt: skip
    assert any(line.startswith("rack r1") and "n1 B......." in line for line in lines)
    assert any(line.startswith("  move ns/Job/small: n1 (1) -> n2 (1) (") for line in lines)
    assert "  start ns/new: n1 (1)" in lines


@pytest.mark.parametrize(
    ("mapped", "of_class", "resource"),
    [
        pytest.param("gpus", {}, GPU, id="mapped"),
        pytest.param("", {"extendedResourceName": GPU}, GPU, id="extended-resource"),
        pytest.param("", {}, "deviceclass.resource.kubernetes.io/gpus", id="by-class"),
    ],
)
async def test_devices_that_pods_get_by_claims_are_counted_with_their_jobs(
    client, mapped, of_class, resource
):
    driver(client, *"abcdefgh", **of_class)
    serve(client, mapped=mapped)
    claim(client, "one", *"abc", pods=("p", "q"))
    claim(client, "kept", "d")
    pod(client, "p", "dra", 0, owner=("Job", "train"))
    pod(client, "q", "dra", 0, owner=("Job", "train"))

    *_, line = (await asked(client)).nodes
    assert (line.name, line.allocatable[resource], line.free[resource]) == ("dra", 8, 4)
    assert line.fragments == {resource: 4}
    assert [(each.job, each.requests.get(resource)) for each in line.pods] == [
        ("ns/Job/train", 3), ("ns/ResourceClaim/kept", 1),
    ]  # fmt: skip
    assert line.free["pods"] == 7, "the claim without a pod takes the place of none"
    (stranded,) = line.stranded
    assert (stranded.amount, stranded.missing) == (4, (resource,))


async def test_an_extended_resource_that_a_claim_provides_counts_once(client):
    driver(client, *"abcd", extendedResourceName=GPU)
    claim(client, "extended", *"ab", pods=("p",))
    pod(client, "p", "dra", 2, owner=("Job", "train"))
    for each in ("small", "big-a"):
        claim(client, each, pods=(each,))

    first, second, third = (await asked(client)).nodes
    assert (third.allocatable[GPU], third.free[GPU]) == (4, 2)
    assert (first.free[GPU], second.free[GPU]) == (7, 4), "these nodes have GPUs of their own"


async def test_pods_that_share_a_claim_are_not_moved(client):
    spec = {"nodeName": "n1", "resourceClaims": [{"name": "c", "resourceClaimName": "shared"}]}
    spec["containers"] = [{"resources": {"requests": {GPU: "1"}}}]
    put(client, r.PODS, "small", spec, ownerReferences=owned("Job", "small"))

    assert not any(
        move.workload == "ns/Job/small"
        for plan in (await asked(client)).moves
        for move in plan.moves
    )


@pytest.mark.parametrize("free", [True, False])
async def test_a_pod_with_a_claim_is_moved_where_claims_give_it_devices(client, free):
    """Nodes with GPUs of their own have room, too, but no devices for claims."""
    driver(client, *"abcd", extendedResourceName="")
    driver(client, *"efgh", at="other")
    claim(client, "one", "a", pods=("p",))
    pod(client, "p", "dra", 0, owner=("Job", "claims"))
    claim(client, "kept", *("efgh" if not free else "e"), at="other")
    waits = pod_set(count=1, selector={"rack": "r3"}, **{GPU: 4, "cpu": 1_000})
    serve(client, workload("ns/job-new", "q", waits, at=1), mapped="gpus")

    (*plans,) = (await asked(client)).moves
    assert [each.workload for plan in plans for each in plan.moves] == ["ns/Job/claims"] * free


@pytest.mark.parametrize("plural", ["resourceslices", "deviceclasses", "resourceclaims"])
async def test_without_rights_devices_of_claims_are_left_out_and_reported(client, plural):
    driver(client, "a")
    client.fail(ForbiddenError("no"), plural=plural)
    found = await asked(client)

    assert found.left_out == ("devices that pods get by claims: no",)
    assert {each.resource for each in found.devices} == {GPU}


async def test_a_configuration_of_another_version_is_no_obstacle(client):
    driver(client, "a")
    serve(client, mapped="gpus")
    body = client.store.get(OF_CLUSTER, "", "current")
    body["configuration"]["resources"]["newField"] = 1
    client.store.put(OF_CLUSTER, body)
    found = await asked(client)

    (sentence,) = found.left_out
    assert sentence.startswith("which resources device classes are mapped to: ")
    assert {each.resource: each.total for each in found.devices} == {
        GPU: 16, "deviceclass.resource.kubernetes.io/gpus": 1,
    }  # fmt: skip
