"""The client against a real kube-apiserver: what the fakes claim of it is so."""

import asyncio
import json
from contextlib import aclosing, asynccontextmanager
from operator import itemgetter

import pytest

from policyd.api.meta import ObjectReference
from policyd.kube.changes import Added, Deleted
from policyd.kube.connection import connection_from
from policyd.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    UnauthorizedError,
)
from policyd.kube.events import EventRecorder
from policyd.kube.http_client import HttpClient
from policyd.kube.informer import Informer
from policyd.kube.leader import LeaderElection, LeaseTerms
from policyd.kube.resources import CONFIG_MAPS, EVENTS, LEASES, NAMESPACES, PODS, Resource
from tests.controlplane.credentials import User
from tests.controlplane.programs import API_SERVER, ETCD
from tests.controlplane.server import ControlPlane
from tests.kube.objects import Pod

pytestmark = [pytest.mark.e2e, pytest.mark.anyio]

SHORT = LeaseTerms(
    lease_seconds=4, renew_seconds=2.5, retry_seconds=0.3, candidate_seconds=0.3, call_seconds=1.0
)


@pytest.fixture(scope="module")
def control_plane():
    with ControlPlane(
        components=(ETCD, API_SERVER), users=[User(name="nobody-special", groups=())]
    ) as control_plane:
        control_plane.kubectl("create", "namespace", "ml")
        control_plane.kubectl("create", "serviceaccount", "default", "--namespace=ml")
        yield control_plane


@pytest.fixture
async def client(control_plane):
    connection = connection_from({}, kubeconfig=str(control_plane.kubeconfig))
    async with HttpClient(connection) as client:
        yield client
        for resource in (PODS, CONFIG_MAPS, LEASES, EVENTS):
            for obj in (await client.page(resource, into=dict, namespace="ml")).items:
                name = obj["metadata"]["name"]
                await client.delete(resource, name, namespace="ml", grace_seconds=0)


def pod(name, **metadata):
    container = {"name": "main", "image": "registry.example/train"}
    return {
        "metadata": {"name": name, "namespace": "ml", **metadata},
        "spec": {"containers": [container], "priority": 0},
    }


@asynccontextmanager
async def running(work):
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(is_so, *, seconds=20):
    async with asyncio.timeout(seconds):
        while not is_so():  # noqa: ASYNC110 - what is waited for happens in another process
            await asyncio.sleep(0.02)


async def test_an_object_s_life(client):
    created = await client.create(PODS, pod("a"), into=Pod)
    with pytest.raises(AlreadyExistsError):
        await client.create(PODS, pod("a"), into=Pod)
    labelled = await client.patch(
        PODS, "a", {"metadata": {"labels": {"x": "y"}}}, namespace="ml", into=Pod
    )
    running = await client.patch(
        PODS,
        "a",
        {"status": {"phase": "Running"}},
        namespace="ml",
        subresource="status",
        into=Pod,
    )
    outdated = {"metadata": {"resourceVersion": created.metadata.resource_version}}
    with pytest.raises(ConflictError):
        await client.patch(PODS, "a", outdated, namespace="ml", into=Pod)
    with pytest.raises(ConflictError):
        await client.delete(PODS, "a", namespace="ml", uid="other")
    await client.delete(PODS, "a", namespace="ml", uid=created.metadata.uid, grace_seconds=0)
    with pytest.raises(NotFoundError, match='pods "a" not found'):
        await client.get(PODS, "a", namespace="ml", into=Pod)

    assert labelled.metadata.labels == {"x": "y"}
    assert running.status.phase == "Running"


async def test_all_kinds_of_patches(client):
    await client.create(PODS, pod("a", labels={"a": "1"}), into=dict)
    operations = [{"op": "replace", "path": "/metadata/labels/a", "value": "2"}]
    strategic = {"spec": {"containers": [{"name": "main", "image": "registry.example/other"}]}}
    applied = {"metadata": {"name": "a", "labels": {"b": "3"}}}

    await client.patch(PODS, "a", operations, namespace="ml", kind="json", into=dict)
    await client.patch(PODS, "a", strategic, namespace="ml", kind="strategic", into=dict)
    final = await client.patch(PODS, "a", applied, namespace="ml", kind="apply", into=dict)

    assert final["metadata"]["labels"] == {"a": "2", "b": "3"}
    assert final["spec"]["containers"][0]["image"] == "registry.example/other"


async def test_fields_of_others_are_taken_over_by_force_only(client):
    await client.create(PODS, pod("a", labels={"a": "1"}), into=dict, field_manager="author")
    applied = {"metadata": {"name": "a", "labels": {"a": "2"}}}

    with pytest.raises(ConflictError, match="author"):
        await client.patch(PODS, "a", applied, namespace="ml", kind="apply", into=dict)
    final = await client.patch(
        PODS, "a", applied, namespace="ml", kind="apply", force=True, into=dict
    )

    assert final["metadata"]["labels"] == {"a": "2"}


async def test_a_dry_run_stores_nothing(client):
    answer = await client.create(PODS, pod("a"), into=dict, dry_run=True)

    assert answer["spec"]["schedulerName"] == "default-scheduler"
    with pytest.raises(NotFoundError):
        await client.get(PODS, "a", namespace="ml", into=dict)


async def test_violations_of_rules_are_reported_by_field(client):
    body = pod("a")
    body["spec"]["containers"] = [{"name": "UPPER", "image": "x"}]

    with pytest.raises(InvalidError) as caught:
        await client.create(PODS, body, into=dict)

    assert caught.value.fields == ("spec.containers[0].name",)


async def test_credentials_are_distinguished_from_permissions(control_plane):
    path = str(control_plane.kubeconfig)
    async with HttpClient(connection_from({}, kubeconfig=path, context="nobody-special")) as client:
        with pytest.raises(ForbiddenError, match="cannot list resource") as caught:
            await client.page(NAMESPACES, into=dict)
    assert "kubectl auth can-i" in caught.value.hint

    stranger = connection_from({}, kubeconfig=path)
    object.__setattr__(stranger, "credentials", Stranger())
    async with HttpClient(stranger) as client:
        with pytest.raises(UnauthorizedError, match="Unauthorized"):
            await client.page(NAMESPACES, into=dict)


async def test_an_impersonated_user_is_the_user_of_the_request(control_plane, tmp_path):
    config = json.loads(control_plane.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] |= {"as": "ann", "as-groups": ["ml", "ops"], "as-user-extra": {"a/b": ["c"]}}
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    review = Resource(
        "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False
    )

    async with HttpClient(connection_from({}, kubeconfig=str(path))) as client:
        found = await client.create(review, {}, into=dict)

    seen_user = found["status"]["userInfo"]
    assert seen_user["username"] == "ann"
    assert seen_user["groups"] == ["ml", "ops", "system:authenticated"]
    assert seen_user["extra"] == {"a/b": ["c"]}


class Stranger:
    async def authorization(self):
        return "Bearer made-up"

    def forget(self):
        return False


async def test_a_watch_sends_what_comes(client):
    page = await client.page(PODS, into=Pod, namespace="ml")
    watch = client.watch(PODS, into=Pod, namespace="ml", resource_version=page.resource_version)
    async with aclosing(watch) as events:
        await client.create(PODS, pod("a"), into=Pod)
        await client.delete(PODS, "a", namespace="ml", grace_seconds=0)
        seen = [await anext(events) for _ in range(3)]

    # A pod is marked first, and gone in a second step, even without grace.
    assert [event.type for event in seen] == ["ADDED", "MODIFIED", "DELETED"]


async def test_a_watch_from_a_version_that_the_server_has_forgotten_is_gone(control_plane, client):
    await client.create(PODS, pod("a"), into=Pod)
    await asyncio.to_thread(control_plane.restart, API_SERVER)

    async with aclosing(client.watch(PODS, into=Pod, resource_version="1")) as events:
        with pytest.raises(GoneError):
            await anext(events)


async def test_an_informer_survives_the_end_of_its_server(control_plane, client):
    changes = []
    informer = Informer(
        client,
        CONFIG_MAPS,
        into=Pod,
        namespace="ml",
        on_change=lambda change: changes.append((type(change), change.object.metadata.name)),
    )
    for number in range(3):
        await create_map(client, f"m{number}")
    async with running(informer.run()):
        await informer.synced.wait()
        await asyncio.to_thread(control_plane.kill, API_SERVER)
        await asyncio.sleep(0)
        await asyncio.to_thread(control_plane.start, API_SERVER)
        await client.delete(CONFIG_MAPS, "m0", namespace="ml")
        await create_map(client, "m3")
        await until(lambda: set(informer.store) == {"ml/m1", "ml/m2", "ml/m3"}, seconds=60)

    assert sorted(changes[-2:], key=itemgetter(1)) == [(Deleted, "m0"), (Added, "m3")]
    assert len(changes) == 5


async def create_map(client, name):
    return await client.create(CONFIG_MAPS, {"metadata": {"name": name}}, namespace="ml", into=dict)


async def test_a_lease_is_taken_renewed_and_handed_over(client):
    first = LeaderElection(client, "lock", namespace="ml", identity="a", terms=SHORT)
    second = LeaderElection(client, "lock", namespace="ml", identity="b", terms=SHORT)
    async with running(second.run()):
        await until(lambda: second.leading)
        async with running(first.run()):
            await asyncio.sleep(1)
            assert (first.leading, first.holder) == (False, "b")
    async with running(first.run()):
        await until(lambda: first.leading, seconds=10)

    lease = await client.get(LEASES, "lock", namespace="ml", into=dict)
    assert lease["spec"]["leaseTransitions"] == first.transitions == 1
    assert lease["spec"]["holderIdentity"] == ""


async def test_a_leader_whose_server_hangs_stops_by_itself(control_plane, client):
    election = LeaderElection(client, "hung", namespace="ml", identity="a", terms=SHORT)
    async with running(election.run()):
        await until(lambda: election.leading)
        control_plane.pause(API_SERVER)
        try:
            async with asyncio.timeout(4):
                await election.wait_lost()
        finally:
            control_plane.resume(API_SERVER)
        await until(lambda: election.leading, seconds=30)


async def test_events_are_written_and_counted(client):
    created = await client.create(PODS, pod("a"), into=Pod)
    about = ObjectReference(
        api_version="v1", kind="Pod", namespace="ml", name="a", uid=created.metadata.uid
    )
    recorder = EventRecorder(client, component="policyd")

    for message in ("8 GPUs missing", "4 GPUs missing"):
        recorder.record(about, kind="Warning", reason="Pending", message=message)
        await recorder.flush()

    page = await client.page(
        EVENTS, into=dict, namespace="ml", field_selector="involvedObject.name=a"
    )
    (event,) = page.items
    assert (event["count"], event["message"], event["type"]) == (2, "4 GPUs missing", "Warning")
    assert recorder.left_out == 0


async def test_discovery_lists_the_resources_of_a_version_and_where_they_live(client):
    core, apps = await client.served("v1"), await client.served("apps/v1")

    assert {CONFIG_MAPS, NAMESPACES} <= set(core)
    assert "deployments" in {resource.plural for resource in apps}
    assert not [resource for resource in (*core, *apps) if "/" in resource.plural]


@pytest.mark.parametrize(
    "api_version",
    [
        pytest.param("example.com/v1", id="unknown"),
        pytest.param("../version", id="leads-elsewhere"),
        pytest.param("", id="empty"),
    ],
)
async def test_a_version_that_is_not_served_is_not_found(client, api_version):
    with pytest.raises(NotFoundError):
        await client.served(api_version)
