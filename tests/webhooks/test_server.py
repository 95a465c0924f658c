"""The whole server against an API server in memory: policies watched, trust published first."""

import asyncio
import base64
import json
import ssl
import time
from contextlib import asynccontextmanager
from functools import partial

import pytest

from policyd.api.makers import Makers
from policyd.certificates import Authority, split_bundle
from policyd.config import Settings
from policyd.errors import ConfigurationError
from policyd.jobs.integrations import EVERYTHING, Integrations
from policyd.kube.errors import ForbiddenError, UnreachableError
from policyd.kube.pace import Pace
from policyd.kube.resources import (
    JOBS,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACES,
    POLICIES,
    SECRETS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)
from policyd.registration.configurations import NAME
from policyd.serving import listen
from policyd.testing import FakeClient
from tests.webhooks.conftest import AUTHORITY, Connection
from tests.webhooks.outside import message_policy, serving
from tests.webhooks.reviews import POD, patch_of, policy, queued, response, review
from webhooks.registering import NOT_REGISTERED
from webhooks.server import WebhookServer, run_webhooks
from webhooks.settings_checks import certificate_files, endpoint, names_to_serve, secret_name

pytestmark = pytest.mark.anyio

BOTH = (MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS)

ONLY_VISION = {
    "matchConstraints": {
        "resourceRules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
            }
        ],
        "namespaceSelector": {"matchLabels": {"team": "vision"}},
    },
    "validations": [{"expression": "false", "message": "not here"}],
}


@asynccontextmanager
async def running(client, *, integrations=EVERYTHING, **settings):
    listener, beside = listen("127.0.0.1", 0), listen("127.0.0.1", 0)
    port, stop = listener.getsockname()[1], asyncio.Event()
    given = {
        "from_cluster": True,
        "register": True,
        "secret": "policyd/webhooks",
        "url": f"https://127.0.0.1:{port}",
        "drain_seconds": 0.0,
        "metrics_port": beside.getsockname()[1],
    }
    given = Settings(**{**given, **settings})
    served = WebhookServer(settings=given, client=client, pace=Pace(), integrations=integrations)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(run_webhooks(served, listener, stop=stop, health=beside))
        yield served, port
        stop.set()


async def until(holds):
    async with asyncio.timeout(10):  # the loop turns meanwhile: there is nothing to be told by
        while not await holds():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def webhooks(client, resource):
    configurations = await client.page(resource, into=dict)
    return [w for c in configurations.items if c["metadata"]["name"] == NAME for w in c["webhooks"]]


async def ask(client, port, path, body):
    """Call as the API server would: trusting what the configuration says, and nothing else."""
    [configured, *_] = await webhooks(client, MUTATING_WEBHOOK_CONFIGURATIONS)
    bundle = base64.b64decode(configured["clientConfig"]["caBundle"]).decode()
    trust = ssl.create_default_context(cadata=bundle)
    connection = Connection(*await asyncio.open_connection("127.0.0.1", port, ssl=trust))
    status, answer = await connection.post(body, path)
    await connection.close()
    assert status == 200
    return response(answer)


REVIEWS = "authorization.k8s.io/v1"


async def create_namespace(client, name, **labels):
    await client.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}}, into=dict)


async def test_policies_and_namespaces_of_the_cluster_decide_over_published_trust():
    client = FakeClient()
    await create_namespace(client, "team-a", team="vision")
    await client.create(POLICIES, {"metadata": {"name": "vision"}, "spec": ONLY_VISION}, into=dict)

    async with running(client) as (_, port):

        async def registered():
            return bool(await webhooks(client, VALIDATING_WEBHOOK_CONFIGURATIONS))

        await until(registered)
        denied = await ask(client, port, "/validate", review())

    assert denied["status"]["message"] == "vision: not here"


@pytest.mark.parametrize(
    ("known", "held"),
    [
        pytest.param("its own", False, id="the-job-is-there"),
        pytest.param("another", True, id="another-job-has-its-name"),
        pytest.param("", True, id="no-job-has-its-name"),
        pytest.param("secret", False, id="nobody-may-look"),
    ],
)
async def test_a_pod_whose_owner_is_not_there_is_held_where_all_owners_are_believed(known, held):
    client = FakeClient()
    await create_namespace(client, "team-a")
    name, namespace = ("other", "team-a") if not known else ("train", "team-a")
    made = await client.create(JOBS, {"metadata": {"name": name}}, namespace=namespace, into=dict)
    uid = made["metadata"]["uid"] if known in {"its own", "secret"} else "of-one-that-is-gone"
    if known == "secret":
        client.fail(ForbiddenError("not you"), verb="get", plural="jobs", times=100)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "controller": True}
    metadata = {**POD["metadata"], "ownerReferences": [{**owner, "uid": uid}]}
    believing = Integrations(makers=Makers(trusted=True))

    async with running(client, integrations=believing) as (_, port):

        async def registered():
            return bool(await webhooks(client, VALIDATING_WEBHOOK_CONFIGURATIONS))

        await until(registered)
        body = review(queued({**POD, "metadata": metadata}))
        answers = [await ask(client, port, path, body) for path in ("/mutate", "/validate")]

    assert [answer["allowed"] for answer in answers] == [True, True]
    paths = {change["path"] for change in patch_of(answers[0])}
    assert ("/spec/schedulingGates" in paths) is held
    assert ("/metadata/finalizers" in paths) is held


@pytest.mark.parametrize(
    ("last", "why"),
    [
        pytest.param(
            'image.GetMetadata("ghcr.io/a/b").tag', "not query `ghcr.io` without", id="registry"
        ),
        pytest.param(
            f'resource.Post("{REVIEWS}", "subjectaccessreviews", {{"spec": {{"user": "a"}}}}).kind',
            "post resource: a SubjectAccessReview needs a name",  # so says the fake
            id="review",
        ),
        pytest.param(
            'resource.Get("v1", "secrets", "a", "b").kind', "without `--reads v1/s", id="read"
        ),
    ],
)
async def test_policies_may_ask_where_the_settings_allow_it(tmp_path, last, why):
    client = FakeClient()
    await create_namespace(client, "team-a")
    async with serving() as server:
        entry = {"spec": {"apiCall": {"service": {"url": f"{server.url}/api/list"}}}}
        entry |= {"apiVersion": "kyverno.io/v2alpha1", "kind": "GlobalContextEntry"}
        (tmp_path / "b.yaml").write_text(json.dumps({**entry, "metadata": {"name": "list"}}))
        asking = [
            f'http.Get("{server.url}/api/teams").name',
            'globalContext.Get("list")[0]',
            last,
        ]
        (tmp_path / "a.yaml").write_text(json.dumps(message_policy(" + ".join(asking))))
        allowed = {"http": (f"{server.url}/api",), "registries": ("docker.io",)}
        async with running(client, policies=(str(tmp_path),), **allowed) as (_, port):

            async def registered():
                return bool(await webhooks(client, MUTATING_WEBHOOK_CONFIGURATIONS))

            await until(registered)
            denied = await ask(client, port, "/validate", review())

    assert [path for _, path, *_ in server.asked] == ["/api/teams", "/api/list"]
    assert why in denied["status"]["message"]


async def test_a_namespace_that_the_informer_has_not_seen_decides_all_the_same():
    client = FakeClient()
    await client.create(POLICIES, {"metadata": {"name": "vision"}, "spec": ONLY_VISION}, into=dict)

    async with running(client) as (_, port):

        async def registered():
            return bool(await webhooks(client, VALIDATING_WEBHOOK_CONFIGURATIONS))

        await until(registered)
        for verb in ("watch", "page"):
            client.fail(UnreachableError("no route"), verb=verb, plural="namespaces", times=1_000)
        client.end_watches()
        await create_namespace(client, "team-a", team="vision")
        denied = await ask(client, port, "/validate", review())

    assert denied["status"]["message"] == "vision: not here"


async def test_a_policy_that_comes_later_is_in_force_and_its_rules_are_registered():
    client = FakeClient()
    await create_namespace(client, "team-a")

    async with running(client, queue=False) as (_, port):

        async def made():
            return len((await client.page(VALIDATING_WEBHOOK_CONFIGURATIONS, into=dict)).items)

        await until(made)
        (own,) = await webhooks(client, VALIDATING_WEBHOOK_CONFIGURATIONS)
        assert (own["failurePolicy"], own["rules"][0]["apiGroups"]) == ("Ignore", ["policyd.io"])

        late = policy("late", validations=[{"expression": "false"}], inject={"queueName": "a"})
        await client.create(POLICIES, late, into=dict)

        async def called():
            return bool(await webhooks(client, MUTATING_WEBHOOK_CONFIGURATIONS))

        await until(called)
        assert not (await ask(client, port, "/validate", review()))["allowed"]


async def test_without_registering_only_trust_is_written():
    client = FakeClient()
    service = {"service": {"namespace": "policyd", "name": "policyd-webhooks"}}
    configuration = {
        "metadata": {"name": NAME},
        "webhooks": [{"name": "chart.made.this", "clientConfig": service}],
    }
    await client.create(MUTATING_WEBHOOK_CONFIGURATIONS, configuration, into=dict)

    async with running(client, register=False, from_cluster=False):

        async def trusted():
            [webhook] = await webhooks(client, MUTATING_WEBHOOK_CONFIGURATIONS)
            return "caBundle" in webhook["clientConfig"]

        await until(trusted)

    [webhook] = await webhooks(client, MUTATING_WEBHOOK_CONFIGURATIONS)
    secret = await client.get(SECRETS, "webhooks", namespace="policyd", into=dict)
    bundle = base64.b64decode(webhook["clientConfig"]["caBundle"])
    assert split_bundle(bundle) == (base64.b64decode(secret["data"]["ca.crt"]),)
    assert webhook["name"] == "chart.made.this"


async def test_an_authority_that_is_replaced_is_registered_with_its_certificate(tmp_path):
    client = FakeClient()
    files = {name: tmp_path / name for name in ("certificate", "key", "authority")}

    def write(authority):
        pair = authority.issue(["127.0.0.1"], now=time.time())
        files["authority"].write_bytes(authority.certificate_pem)
        files["certificate"].write_bytes(pair.certificate_pem)
        files["key"].write_bytes(pair.key_pem)

    write(AUTHORITY)
    given = {name: str(file) for name, file in files.items()}
    async with running(client, secret="", reload_seconds=0.01, **given):
        other = Authority.create(now=time.time())

        async def registered(authority):
            found = await webhooks(client, VALIDATING_WEBHOOK_CONFIGURATIONS)
            bundles = {base64.b64decode(w["clientConfig"]["caBundle"]) for w in found}
            return bundles == {authority.certificate_pem}

        await until(partial(registered, AUTHORITY))
        write(other)
        await until(partial(registered, other))


async def readiness(served):
    port = served.settings.metrics_port
    connection = Connection(*await asyncio.open_connection("127.0.0.1", port))
    await connection.write(b"GET /readyz HTTP/1.1\r\nhost: webhooks\r\n\r\n")
    answer = await connection.receive()
    await connection.close()
    return answer


async def test_one_that_starts_while_the_configurations_are_gone_waits_and_says_why():
    client = FakeClient()
    client.fail(ForbiddenError("cannot create"), verb="create", plural=BOTH[0].plural, times=1_000)
    client.fail(ForbiddenError("cannot create"), verb="create", plural=BOTH[1].plural, times=1_000)
    late = policy("late", validations=[{"expression": "false"}], inject={"queueName": "a"})
    await client.create(POLICIES, late, into=dict)

    async with running(client) as (served, _port):
        code, why = await readiness(served)
        assert (code, why.decode()) == (503, f"{NOT_REGISTERED}\n")
        gauge = "policyd_missing_configurations"
        assert served.metrics.registry.get_sample_value(gauge) == 2

        for resource in BOTH:
            client.store.create(resource, {"metadata": {"name": NAME}})
        served.policies_changed.set()

        async def ready():
            return (await readiness(served))[0] == 200

        await until(ready)
        assert all([await webhooks(client, resource) for resource in BOTH])
        assert served.metrics.registry.get_sample_value(gauge) == 0

        for resource in BOTH:
            await client.delete(resource, NAME)
        served.policies_changed.set()

        async def noticed():
            return served.metrics.registry.get_sample_value(gauge) == 2

        await until(noticed)
        assert await ready(), "who answered before is there when they are back"


async def test_a_secret_that_cannot_be_used_ends_it_before_it_answers():
    client = FakeClient()
    metadata = {"name": "webhooks", "namespace": "policyd"}
    data = {"ca.crt": base64.b64encode(b"mine").decode()}
    await client.create(SECRETS, {"metadata": metadata, "data": data}, into=dict)

    with pytest.raises(ExceptionGroup) as caught:
        async with running(client) as _:
            await asyncio.sleep(10)

    assert caught.value.subgroup(ConfigurationError) is not None


async def test_it_can_be_ended_while_the_api_server_does_not_answer():
    client = FakeClient()
    client.fail(UnreachableError("no route"), verb="page", times=1_000)

    async with running(client) as (served, _):
        await asyncio.sleep(0)

    assert served.context is None


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        pytest.param(
            {},
            ("policyd-webhooks.policyd.svc", "policyd-webhooks.policyd.svc.cluster.local"),
            id="our-own-service",
        ),
        pytest.param(
            {"service": "queue/webhooks:8443"},
            ("webhooks.queue.svc", "webhooks.queue.svc.cluster.local"),
            id="another-service",
        ),
        pytest.param({"url": "https://10.0.0.1:9443"}, ("10.0.0.1",), id="address"),
        pytest.param({"url": "https://[::1]:9443"}, ("::1",), id="address-of-version-6"),
    ],
)
async def test_the_certificate_is_for_what_the_api_server_calls(settings, names):
    assert names_to_serve(endpoint(Settings(**settings))) == names


@pytest.mark.parametrize(
    ("settings", "choose", "message"),
    [
        pytest.param(
            {"url": "http://10.0.0.1"}, endpoint, "not a URL that the API server", id="no-tls"
        ),
        pytest.param({"url": "https://"}, endpoint, "not a URL", id="no-host"),
        pytest.param(
            {"service": "webhooks"}, endpoint, "does not name a service", id="no-namespace"
        ),
        pytest.param({"service": "a/b:x"}, endpoint, "`x` is not a Service port", id="no-port"),
        pytest.param({"secret": "a/b/c"}, secret_name, "does not name a secret", id="three-parts"),
        pytest.param({}, certificate_files, "no certificate to serve with", id="no-certificate"),
        pytest.param(
            {"certificate": "a"}, certificate_files, "no certificate to serve with", id="no-key"
        ),
        pytest.param(
            {"secret": "a/b", "key": "c"}, certificate_files, "given twice", id="both-kinds"
        ),
    ],
)
async def test_settings_that_do_not_go_together_are_refused_with_a_hint(settings, choose, message):
    with pytest.raises(ConfigurationError, match=message) as caught:
        choose(Settings(**settings))

    assert caught.value.hint
