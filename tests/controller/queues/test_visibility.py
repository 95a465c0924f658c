"""Kueue's visibility API: who waits, told to the API server alone."""

import asyncio
import json
import ssl
from contextlib import AsyncExitStack
from types import SimpleNamespace

import aiohttp
import pytest
from structlog.testing import capture_logs

from policyd.cli.controller import _serve_visibility
from policyd.connections import Listening
from policyd.controller.queues import pending_workloads
from policyd.controller.queues.visibility import CALLERS, Callers, create_app
from policyd.errors import ConfigurationError
from policyd.kube import resources as r
from policyd.serving import served
from policyd.status import pending_reasons
from policyd.status.pending_order import PendingOrder
from tests.controller.world import World
from tests.kube.test_connection import pair

ROOT = "/apis/visibility.kueue.x-k8s.io"
CERTIFICATE, KEY = pair("front-proxy")

pytestmark = pytest.mark.anyio


@pytest.fixture
async def world():
    """Two LocalQueues of one ClusterQueue; a job runs and three wait."""
    world = World()
    world.furnish(gpus=8)
    local = {"metadata": {"name": "other", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}}
    world.put(r.LOCAL_QUEUES, local)
    await world.start()
    world.job("runs")
    await world.pass_time(2)
    for name, queue in (("first", "lq-cq"), ("second", "other"), ("third", "lq-cq")):
        world.job(name, queue=queue)
        await world.pass_time(2)
    yield world
    await world.kill()


class Caller:
    def __init__(self, port, tls=None):
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        self.tls = tls

    async def __call__(self, path):
        async with (
            aiohttp.ClientSession() as session,
            session.get(self.url + path, ssl=self.tls or True) as answer,
        ):
            return answer.status, await answer.json()


def app_of(world, **given):
    given = {"ready": lambda: True, "names": frozenset, **given}
    return create_app(world.controller.cache, **given)


def plainly(app):
    return served(app, Listening(), host="127.0.0.1", port=0, option="--visibility-port")


def names(body):
    return [item["metadata"]["ownerReferences"][0]["name"] for item in body["items"]]


@pytest.mark.parametrize(
    ("path", "waiting"),
    [
        pytest.param("clusterqueues/cq", ["first", "second", "third"], id="cluster-queue"),
        pytest.param("namespaces/ns/localqueues/lq-cq", ["first", "third"], id="local-queue"),
        pytest.param("namespaces/ns/localqueues/other", ["second"], id="another"),
        pytest.param(
            "namespaces/ns/localqueues/lq-cq/pendingworkloads?offset=1",
            ["third"],
            id="offset-counts-what-the-local-queue-has",
        ),
        pytest.param(
            "clusterqueues/cq/pendingworkloads?offset=1&limit=1", ["second"], id="offset-and-limit"
        ),
        pytest.param("clusterqueues/cq/pendingworkloads?limit=0", [], id="none-are-asked-for"),
        pytest.param("clusterqueues/cq/pendingworkloads?offset=-1&limit=1", ["first"], id="below"),
    ],
)
async def test_pending_workloads_are_reported_in_order(world, path, waiting):
    path = path if "?" in path else f"{path}/pendingworkloads"
    async with plainly(app_of(world)) as port:
        status, body = await Caller(port)(f"{ROOT}/v1beta2/{path}")

    assert (status, names(body)) == (200, waiting)


@pytest.mark.parametrize(
    ("user", "named"),
    [
        pytest.param("system:serviceaccount:ns:ci", True, id="of-the-namespace"),
        pytest.param("system:serviceaccount:other:ci", False, id="of-another"),
        pytest.param("alice", False, id="of-none"),
        pytest.param("a:system:serviceaccount:ns:ci", False, id="called-like-one"),
    ],
)
async def test_a_service_account_is_of_its_namespace(world, user, named):
    world.controller.cache.other_teams = "hidden"
    path = f"{ROOT}/v1beta2/clusterqueues/cq/pendingworkloads"
    async with plainly(app_of(world)) as port, aiohttp.ClientSession() as session:
        given = {"X-Remote-User": user}
        async with session.get(f"http://127.0.0.1:{port}{path}", headers=given) as answer:
            items = (await answer.json())["items"]

    assert [bool(item["metadata"].get("name")) for item in items] == [named] * 3
    assert [item["positionInClusterQueue"] for item in items] == [0, 1, 2]


async def test_places_priority_and_queue_are_reported(world):
    async with plainly(app_of(world)) as port:
        _, body = await Caller(port)(f"{ROOT}/v1beta1/clusterqueues/cq/pendingworkloads?offset=2")

    (item,) = body.pop("items")
    assert body == {
        "apiVersion": "visibility.kueue.x-k8s.io/v1beta1",
        "kind": "PendingWorkloadsSummary",
    }
    assert item.pop("metadata").keys() == {
        "name",
        "namespace",
        "creationTimestamp",
        "ownerReferences",
    }
    assert item == {
        "priority": 0,
        "localQueueName": "lq-cq",
        "positionInClusterQueue": 2,
        "positionInLocalQueue": 1,
    }


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        pytest.param(
            "clusterqueues/none/pendingworkloads",
            404,
            'clusterqueue.visibility.kueue.x-k8s.io "none" not found',
            id="no-such-cluster-queue",
        ),
        pytest.param(
            "namespaces/none/localqueues/lq-cq/pendingworkloads",
            404,
            'localqueue.visibility.kueue.x-k8s.io "lq-cq" not found',
            id="no-such-local-queue",
        ),
        pytest.param(
            "clusterqueues/cq/pendingworkloads?limit=all",
            400,
            "`limit` must be a whole number",
            id="no-number",
        ),
        pytest.param(
            "clusterqueues/cq", 404, "the server could not find the requested resource", id="path"
        ),
    ],
)
async def test_an_unknown_outcome_is_a_status(world, path, code, message):
    async with plainly(app_of(world)) as port:
        status, body = await Caller(port)(f"{ROOT}/v1beta2/{path}")

    assert (status, body["kind"], body["message"]) == (code, "Status", message)


async def test_it_can_be_discovered(world):
    async with plainly(app_of(world)) as port:
        ask = Caller(port)
        _, groups = await ask("/apis")
        _, group = await ask(ROOT)
        _, resources = await ask(f"{ROOT}/v1beta2")

    assert groups["groups"][0] == group
    assert group["preferredVersion"]["version"] == "v1beta2"
    assert {each["name"]: each["namespaced"] for each in resources["resources"]} == {
        "clusterqueues/pendingworkloads": False,
        "localqueues/pendingworkloads": True,
    }


async def test_nothing_is_reported_before_all_queues_are_known(world):
    async with plainly(app_of(world, ready=lambda: False)) as port:
        status, _ = await Caller(port)(f"{ROOT}/v1beta2")

    assert status == 503


def callers(**data):
    return {"metadata": {"name": CALLERS, "namespace": "kube-system"}, "data": data}


def shown(tmp_path, certificate, key):
    """Return TLS of a caller with a certificate."""
    chain = tmp_path / "caller.pem"
    chain.write_bytes(certificate + key)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(chain)
    return context


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        pytest.param([], 200, id="everybody-with-a-certificate"),
        pytest.param(["front-proxy"], 200, id="by-name"),
        pytest.param(["another"], 403, id="another-name"),
    ],
)
async def test_the_api_server_is_answered(world, tmp_path, allowed, expected):
    data = {
        "requestheader-client-ca-file": CERTIFICATE.decode(),
        "requestheader-allowed-names": json.dumps(allowed),
    }
    world.put(r.CONFIG_MAPS, callers(**data))
    known = Callers(world.client, pace=world.clock.pace())
    await known.read()

    app = app_of(world, names=lambda: known.names)
    async with served(app, Listening(tls=known.tls), host="127.0.0.1", port=0, option="") as port:
        status, _ = await Caller(port, shown(tmp_path, CERTIFICATE, KEY))(f"{ROOT}/v1beta2")

    assert status == expected


async def test_nobody_else_is(world, tmp_path):
    data = {"requestheader-client-ca-file": CERTIFICATE.decode()}
    world.put(r.CONFIG_MAPS, callers(**data))
    known = Callers(world.client, pace=world.clock.pace())
    await known.read()

    app = app_of(world, names=lambda: known.names)
    async with served(app, Listening(tls=known.tls), host="127.0.0.1", port=0, option="") as port:
        with pytest.raises(aiohttp.ClientError):
            await Caller(port, shown(tmp_path, *pair("stranger")))(f"{ROOT}/v1beta2")


async def test_an_authority_that_is_replaced_counts_within_a_minute(world, tmp_path):
    def publish(certificate, name):
        names = json.dumps([name])
        world.put(
            r.CONFIG_MAPS,
            callers(
                **{
                    "requestheader-client-ca-file": certificate.decode(),
                    "requestheader-allowed-names": names,
                }
            ),
        )

    publish(CERTIFICATE, "front-proxy")
    known = Callers(world.client, pace=world.clock.pace())
    await known.read()
    following = asyncio.create_task(known.follow())
    certificate, key = pair("next")
    publish(certificate, "next")
    await world.clock.advance(61)
    following.cancel()

    app = app_of(world, names=lambda: known.names)
    async with served(app, Listening(tls=known.tls), host="127.0.0.1", port=0, option="") as port:
        fresh, _ = await Caller(port, shown(tmp_path, certificate, key))(f"{ROOT}/v1beta2")
        old, _ = await Caller(port, shown(tmp_path, CERTIFICATE, KEY))(f"{ROOT}/v1beta2")

    assert (fresh, old) == (200, 403)


@pytest.mark.parametrize("names", ["5", '["a"', '{"a": 1}'])
async def test_names_that_cannot_be_read_are_an_error_with_the_place(world, names):
    data = {"requestheader-client-ca-file": CERTIFICATE.decode()}
    world.put(r.CONFIG_MAPS, callers(**data, **{"requestheader-allowed-names": names}))

    with pytest.raises(ConfigurationError, match=CALLERS):
        await Callers(world.client, pace=world.clock.pace()).read()


@pytest.mark.parametrize(
    "data", [pytest.param(None, id="no-config-map"), pytest.param({}, id="no-authority")]
)
async def test_an_api_server_that_passes_nothing_on_is_reported(world, data):
    if data is not None:
        world.put(r.CONFIG_MAPS, callers(**data))

    with pytest.raises(ConfigurationError, match="has no request header configuration"):
        await Callers(world.client, pace=world.clock.pace()).read()


async def test_a_controller_runs_on_where_the_api_server_passes_nothing_on(world):
    async with AsyncExitStack() as stack:
        with capture_logs() as reason:
            await _serve_visibility(stack, world.controller, world.client, options=None)

    (event,) = reason
    assert (event["event"], event["log_level"]) == ("visibility_not_served", "warning")
    assert "request header configuration" in event["error"]


@pytest.mark.parametrize(
    ("at_once", "prepared"), [pytest.param(2, True, id="long"), pytest.param(3, False, id="short")]
)
async def test_the_order_of_a_long_queue_is_ready_before_anybody_asks(
    world, at_once, prepared, monkeypatch
):
    monkeypatch.setattr(pending_workloads, "AT_ONCE", at_once)
    unordered = SimpleNamespace(places=lambda *_: ())
    monkeypatch.setattr(pending_reasons, "order_of", lambda _: unordered)  # advice keeps it as well
    cache, pace = world.controller.cache, world.controller.pace
    known = asyncio.Event()
    preparing = asyncio.create_task(
        pending_workloads.prepare_orders(cache, ready=known.is_set, pace=pace)
    )
    queue = cache.state.queues["cq"].pending
    queue.follower = None
    await world.pass_time(2)
    too_early = queue.follower
    known.set()
    await world.pass_time(2)
    preparing.cancel()

    assert too_early is None
    assert isinstance(queue.follower, PendingOrder) is prepared
