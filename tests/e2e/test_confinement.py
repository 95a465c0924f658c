"""Policies of a namespace on a real control plane, where the webhooks may read every Secret."""

import base64
from contextlib import ExitStack, contextmanager

import pytest

from policyd.dialects.kyverno.policies import KINDS
from tests.attacks.registering import refused
from tests.charts.release import NAMESPACE, WEBHOOKS
from tests.controlplane.server import ControlPlane
from tests.live.server import definition
from tests.scenarios.api import PATHS, Api, Refused, eventually
from tests.scenarios.clusters import (
    Process,
    accounts_on,
    find_failures,
    install,
    webhooks_are_ready,
    webhooks_command,
)
from tests.scenarios.objects import pod

pytestmark = pytest.mark.e2e

GROUP = "policies.kyverno.io"
OF_NAMESPACES = sorted(kind for kind in KINDS if kind.startswith("Namespaced"))
OWN, OTHER = "team-a", "team-b"
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
GVR = "resource.ToGVR('v1', 'secrets')"
OWN_WORDS = "resource.Get('v1', 'secrets', 'keys').data.word"
OTHER_WORDS = {
    "get-by-namespace": f"resource.Get('v1', 'secrets', '{OTHER}', 'keys').data.word",
    "get-by-gvr": f"resource.Get({GVR}, '{OTHER}', 'keys').data.word",
    "get-by-path": f"resource.Get('v1', 'secrets', '../{OTHER}/secrets/keys').data.word",
    "list-by-namespace": f"resource.List('v1', 'secrets', '{OTHER}').items[0].data.word",
    "list-everywhere": "resource.List('v1', 'secrets', '').items.map(i, i.data.word).join()",
    "list-own": "resource.List('v1', 'secrets').items.map(i, i.data.word).join()",
}
DO_NOT_COMPILE = [
    OTHER_WORDS[name]
    for name in ("get-by-namespace", "get-by-gvr", "list-by-namespace", "list-everywhere")
]
"""The functions of policies of namespaces take no namespace."""


def encoded(namespace):
    return base64.b64encode(f"of-{namespace}".encode()).decode()


@pytest.fixture(scope="module")
def webhooks(tmp_path_factory):
    """A control plane and its webhooks, which follow Kyverno's policies and read Secrets."""
    folder = tmp_path_factory.mktemp("confinement")
    PATHS["Secret"] = "api/v1/namespaces/{namespace}/secrets"
    with ControlPlane() as control_plane, ExitStack() as stack:
        api = Api(control_plane.kubeconfig)
        for kind in OF_NAMESPACES:
            plural = kind.lower().removesuffix("y") + "ies"
            PATHS[kind] = f"apis/{GROUP}/v1/namespaces/{{namespace}}/{plural}"
            api.create(definition(GROUP, ["v1"], kind, plural))
        install(api)
        accounts = accounts_on(control_plane, webhooks__kyverno=True)
        grant_secrets(control_plane)
        for namespace in (OWN, OTHER):
            metadata = {"name": "keys", "namespace": namespace}
            data = {"word": encoded(namespace)}
            api.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
        command = [*webhooks_command(accounts), "--kyverno", "--reads=v1/secrets"]
        process = Process(command, folder / "webhooks.log")
        process.start()
        stack.callback(process.stop)
        eventually(lambda: webhooks_are_ready(api, (process,)), what="the webhooks answer")
        yield api
        assert find_failures(process) == []


def grant_secrets(control_plane):
    """Let the webhooks read every Secret, as an administrator may for policies of the cluster."""
    role = ("clusterrole", "reader", "--verb=list,watch", "--resource=secrets")
    control_plane.kubectl("create", *role)
    account = f"--serviceaccount={NAMESPACE}:{WEBHOOKS}"
    control_plane.kubectl("create", "clusterrolebinding", "reader", "--clusterrole=reader", account)


def validating(expression):
    text = f"string({expression})"
    validation = {"expression": f"{text} == ''", "messageExpression": text}
    return {"validations": [validation], "validationActions": ["Deny"]}


def mutating(expression):
    applied = f"Object{{metadata: Object.metadata{{labels: {{'said': {expression}}}}}}}"
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": applied}}
    return {"mutations": [mutation]}


WRITTEN = {"NamespacedValidatingPolicy": validating, "NamespacedMutatingPolicy": mutating}


def policy(kind, expression):
    spec = {"matchConstraints": {"resourceRules": [PODS]}, **WRITTEN[kind](expression)}
    metadata = {"name": "reads", "namespace": OWN}
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata, "spec": spec}


def read_refusal(api, namespace=OWN):
    """Return what whoever makes a pod is told: a refusal, or warnings and the pod's labels."""
    try:
        made = api.create(pod("p", gpus=0, namespace=namespace), dry_run=True)
    except Refused as refusal:
        return refusal.message
    return f"{made['metadata'].get('labels')} {api.warnings}"


@contextmanager
def applied(api, policy):
    """Have a policy in force."""
    before, metadata = read_refusal(api), policy["metadata"]
    api.create(policy)
    try:
        eventually(lambda: read_refusal(api) != before, what="the policy is in force")
        yield
    finally:
        api.delete(policy["kind"], metadata["name"], metadata["namespace"])
    eventually(lambda: read_refusal(api) == before, what="the policy is gone")


@pytest.mark.parametrize("kind", OF_NAMESPACES)
def test_a_policy_of_a_namespace_reads_the_secrets_of_that(webhooks, kind):
    with applied(webhooks, policy(kind, OWN_WORDS)):
        assert encoded(OWN) in read_refusal(webhooks)


@pytest.mark.parametrize("expression", OTHER_WORDS.values(), ids=OTHER_WORDS)
@pytest.mark.parametrize("kind", OF_NAMESPACES)
def test_a_policy_of_a_namespace_reads_no_other_secret(webhooks, kind, expression):
    wanted = policy(kind, expression)
    if expression in DO_NOT_COMPILE:
        with pytest.raises(Refused, match="found no matching overload") as caught:
            webhooks.create(wanted)
        assert encoded(OTHER) not in caught.value.message
        return
    with applied(webhooks, wanted):
        assert encoded(OTHER) not in read_refusal(webhooks)
        assert encoded(OTHER) not in read_refusal(webhooks, namespace=OTHER)


def test_no_policy_of_a_namespace_keeps_those_of_others_from_being_registered(webhooks):
    for number, (_, (odd,)) in enumerate(refused()):
        odd["metadata"] |= {"name": f"odd-{number}", "namespace": OWN}
        webhooks.create(odd)
    metadata = {"name": "late", "namespace": OTHER}
    configmaps = PODS | {"resources": ["configmaps"]}  # nothing else has these sent
    spec = {"matchConstraints": {"resourceRules": [configmaps]}, **validating("'late'")}
    about = {"apiVersion": f"{GROUP}/v1", "kind": OF_NAMESPACES[-1]}
    webhooks.create({**about, "metadata": metadata, "spec": spec})
    PATHS["ConfigMap"] = "api/v1/namespaces/{namespace}/configmaps"
    asked = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": OTHER}}

    def denial():
        try:
            webhooks.create(asked, dry_run=True)
        except Refused as refusal:
            return refusal.message
        return ""

    assert "late" in eventually(denial, within=60, what="the other policy is in force")
