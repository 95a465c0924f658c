"""While no webhook answers, what stops is what a policy with `failurePolicy: Fail` is about."""

import json
import time
from contextlib import contextmanager

import pytest

from policyd.jobs.integrations import EVERYTHING
from policyd.registration.configurations import (
    Registration,
    UrlEndpoint,
    mutating_configuration,
    validating_configuration,
)
from policyd.registration.webhook_rules import derive_webhook_rules
from tests.e2e.likeness.objects import make, pod
from tests.e2e.likeness.servers import WAIT_SECONDS
from tests.e2e.likeness.telling import raw
from tests.webhooks.policies import policy, rule

pytestmark = pytest.mark.e2e

UNREACHABLE = UrlEndpoint(url="https://127.0.0.1:1")
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
POLL_SECONDS = 0.05

GUARDED = {"matchLabels": {"outage": "guarded"}}
POLICIES = [
    policy(rule(), validations=True, inject=True, namespaces=GUARDED),
    policy(rule(), validations=True, objects={"matchLabels": {"checked": "yes"}}),
    policy(
        rule("pods", "CREATE,UPDATE,DELETE"),
        validations=True,
        conditions=["request.?name.orValue('') == 'no' // comment", "'a' in ['a', 'b']"],
    ),
    policy(rule("configmaps", resourceNames=["settings"]), validations=True),
    policy(rule("secrets"), validations=True, inject=True, failure="Ignore"),
    policy(rule("services"), validations=True, enforcement="Warn"),
]


def labelled(name, **labels):
    return pod(name, metadata={"labels": labels})


def config_map(name):
    return make("ConfigMap", name)


CASES = [
    pytest.param("outage-guarded", labelled("one"), False, id="namespace-that-a-policy-selects"),
    pytest.param("outage-free", labelled("one"), True, id="another-namespace"),
    pytest.param("outage-free", labelled("one", checked="yes"), False, id="object-selected"),
    pytest.param("outage-free", labelled("one", checked="no"), True, id="another-label"),
    pytest.param("outage-free", labelled("no"), False, id="match-condition"),
    pytest.param("outage-free", config_map("settings"), False, id="named"),
    pytest.param("outage-free", config_map("other"), True, id="another-name"),
    pytest.param("outage-guarded", make("Secret", "one"), True, id="a-policy-that-may-be-left-out"),
    pytest.param("outage-guarded", config_map("other"), True, id="another-kind"),
]


@pytest.fixture(scope="module")
def outage(servers_and_loop):
    """Both servers, with the webhooks of a webhook that is down."""
    servers, _ = servers_and_loop
    wanted = Registration(
        endpoint=UNREACHABLE,
        rules=derive_webhook_rules(POLICIES, queue=EVERYTHING),
        own_namespace="policyd",
        timeout_seconds=1,
    )
    for server in servers.values():
        for name, labels in (("outage-guarded", GUARDED["matchLabels"]), ("outage-free", {})):
            namespace = make("Namespace", name, metadata={"labels": labels})
            assert post(server, "/api/v1/namespaces", namespace) == 201
    with registered(servers, wanted):
        yield servers


@contextmanager
def registered(servers, wanted):
    built = {
        "mutatingwebhookconfigurations": mutating_configuration(wanted),
        "validatingwebhookconfigurations": validating_configuration(wanted),
    }
    try:
        for server in servers.values():
            for plural, body in built.items():
                code, _, answer = raw(server, "POST", f"{CONFIGURATIONS}/{plural}", encoded(body))
                assert code == 201, answer
                assert answer["webhooks"] == body["webhooks"]
            until_registered(server)
        yield
    finally:
        for server in servers.values():
            for plural, body in built.items():
                name = body["metadata"]["name"]
                raw(server, "DELETE", f"{CONFIGURATIONS}/{plural}/{name}", None)


def until_registered(server):
    deadline = time.monotonic() + WAIT_SECONDS
    path = "/api/v1/namespaces/outage-guarded/pods?dryRun=All"
    while post(server, path, labelled("probe")) == 201:
        assert time.monotonic() < deadline, "the webhooks are never asked"
        time.sleep(POLL_SECONDS)


def post(server, path, body):
    return raw(server, "POST", path, encoded(body))[0]


def encoded(body):
    return json.dumps(body).encode()


@pytest.mark.parametrize("server", ["embedded", "real"])
@pytest.mark.parametrize(("namespace", "body", "passes"), CASES)
def test_only_what_must_be_asked_is_refused(outage, server, namespace, body, passes):
    plural = f"{body['kind'].lower()}s"

    code = post(outage[server], f"/api/v1/namespaces/{namespace}/{plural}?dryRun=All", body)

    assert code == (201 if passes else 500)
