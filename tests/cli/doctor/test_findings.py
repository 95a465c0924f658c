"""What is wrong with an installation is found, one test case each; a sound one has no findings."""

import base64
from datetime import UTC, datetime

import msgspec
import pytest

from policyd import __version__
from policyd.api.crd import KINDS, definition
from policyd.api.meta import rfc3339
from policyd.certificates import DAY, Authority
from policyd.cli.doctor.command import CHECKS, examine
from policyd.cli.doctor.webhooks import Webhook, probe_of, wrong_with
from policyd.kube import resources as r
from policyd.kube.errors import (
    AlreadyExistsError,
    ForbiddenError,
    InternalError,
    UnreachableError,
)
from policyd.testing import FakeClient

pytestmark = pytest.mark.anyio

NOW = 1_800_000_000.0
EARLIER, JUST_NOW = rfc3339(NOW - 3600), rfc3339(NOW - 5)
NAME = "admission.policyd.io"
SERVICE = ("policyd-webhooks.policyd-system.svc",)
AUTHORITY = Authority.create(now=NOW - DAY)
OTHER = Authority.create(now=NOW - DAY)
RULE = {"operations": ["CREATE"], "apiGroups": ["kueue.x-k8s.io"], "resources": ["*"]}
SNAPSHOTS = r.Resource("visibility.policyd.io", "v1alpha1", "queuesnapshots", "QueueSnapshot")
PENDING = r.Resource("visibility.kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue")
MANAGED = "kueue.x-k8s.io/managed"


def text(pem):
    return base64.b64encode(pem).decode()


def put(client, resource, name, *, namespace="ns", uid="", created=EARLIER, **body):
    metadata = {"name": name, "uid": uid or f"uid-{name}", "creationTimestamp": created}
    metadata |= body.pop("metadata", {})
    if resource.namespaced:
        metadata["namespace"] = namespace
    client.store.put(resource, {"metadata": metadata, **body})


def remove(client, resource, namespace, name):
    client.store.delete(resource, client.store.get(resource, namespace, name), dry_run=False)


def condition(kind, status, reason="Why", message="it is said"):
    return {"type": kind, "status": status, "reason": reason, "message": message}


def webhook(bundle=AUTHORITY.certificate_pem, name="a.policyd.io"):
    service = {"namespace": "policyd-system", "name": "policyd-webhooks"}
    called = {"service": service, "caBundle": text(bundle)}
    return {"name": name, "clientConfig": called, "rules": [{**RULE, "scope": "*"}]}


def put_configuration(client, resource, *webhooks, version=__version__):
    labels = {"app.kubernetes.io/version": version}
    put(client, resource, NAME, metadata={"labels": labels}, webhooks=list(webhooks))


def put_certificate(client, pair):
    data = {"tls.crt": text(pair.certificate_pem), "tls.key": text(pair.key_pem)}
    put(client, r.SECRETS, "policyd-webhooks", namespace="policyd-system", data=data)


def put_lease(client, holder, age):
    renewed = datetime.fromtimestamp(NOW - age, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}
    put(client, r.LEASES, "policyd-controller", namespace="policyd-system", spec=spec)


def put_queue(client, name, *, status="True", **spec):
    quotas = [{"name": "cpu", "nominalQuota": 1}]
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "h100", "resources": quotas}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group], **spec}
    put(
        client,
        r.CLUSTER_QUEUES,
        name,
        spec=spec,
        status={"conditions": [condition("Active", status)]},
    )


def put_pod(client, name, **metadata):
    metadata["labels"] = {MANAGED: "true", **metadata.get("labels", {})}
    gates = [{"name": "kueue.x-k8s.io/admission"}]
    put(client, r.PODS, name, metadata=metadata, spec={"schedulingGates": gates})


@pytest.fixture
def client():
    """An installation in which nothing is wrong, and one of each thing."""
    client = FakeClient(resources=[SNAPSHOTS, PENDING])
    for kind in KINDS:
        found = definition(kind)
        put(
            client,
            r.CUSTOM_RESOURCE_DEFINITIONS,
            found["metadata"]["name"],
            spec=msgspec.to_builtins(found["spec"]),
        )
    for each in (r.MUTATING_WEBHOOK_CONFIGURATIONS, r.VALIDATING_WEBHOOK_CONFIGURATIONS):
        put_configuration(client, each, webhook())
    put_certificate(client, AUTHORITY.issue(SERVICE, now=NOW - DAY))
    put_lease(client, "me", 3)
    put(client, r.POLICIES, "fine", status={"conditions": [condition("Ready", "True")]})
    put(client, r.NODES, "n", metadata={"labels": {"gpu": "h100"}})
    put(client, r.RESOURCE_FLAVORS, "h100", spec={"nodeLabels": {"gpu": "h100"}})
    put_queue(client, "team-a")
    put(client, r.LOCAL_QUEUES, "train", spec={"clusterQueue": "team-a"})
    queued = {"kueue.x-k8s.io/queue-name": "train"}
    put(client, r.JOBS, "held", metadata={"labels": queued}, spec={"suspend": True})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "held", "uid": "uid-held"}
    put(client, r.WORKLOADS, "job-held", metadata={"ownerReferences": [owner]})
    put(client, r.WORKLOADS, "gang")
    put_pod(client, "of-a-gang", labels={"kueue.x-k8s.io/pod-group-name": "gang"})
    return client


async def found(client):
    report = await examine(client, now=NOW)
    return [(each.check, each.severity, each.object, each.message) for each in report.findings]


async def test_nothing_is_found_in_a_sound_installation_and_nothing_is_stored(client):
    before = client.store.version

    report = await examine(client, now=NOW)

    assert report.findings == ()
    assert report.unchecked == ()
    assert report.checked == tuple(CHECKS)
    assert client.store.version == before


def kind_missing(client):
    remove(client, r.CUSTOM_RESOURCE_DEFINITIONS, "", "cohorts.kueue.x-k8s.io")


def older_kind(client):
    name = "workloads.kueue.x-k8s.io"
    crd = client.store.get(r.CUSTOM_RESOURCE_DEFINITIONS, "", name)
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["spec"]["properties"]["active"]
    put(client, r.CUSTOM_RESOURCE_DEFINITIONS, name, spec=crd["spec"])


def kind_of_another_version(client):
    crd = client.store.get(r.CUSTOM_RESOURCE_DEFINITIONS, "", "topologies.kueue.x-k8s.io")
    crd["spec"]["versions"][0]["name"] = "v1beta1"
    put(client, r.CUSTOM_RESOURCE_DEFINITIONS, "topologies.kueue.x-k8s.io", spec=crd["spec"])


def other_chart(client):
    put_configuration(client, r.MUTATING_WEBHOOK_CONFIGURATIONS, webhook(), version="0.0.1")


def no_lease(client):
    remove(client, r.LEASES, "policyd-system", "policyd-controller")
    client.resources.remove(SNAPSHOTS)


def unregistered(client):
    remove(client, r.VALIDATING_WEBHOOK_CONFIGURATIONS, "", NAME)


def other_authority(client):
    bundle = OTHER.certificate_pem
    put_configuration(client, r.VALIDATING_WEBHOOK_CONFIGURATIONS, webhook(bundle))


def broken_policy(client):
    ready = condition("Ready", "False", "Broken", "line 3: no such field")
    put(client, r.POLICIES, "bad", status={"conditions": [ready]})


def policy_without_status(client):
    put(client, r.POLICIES, "new")
    put(client, r.POLICIES, "newer", created=JUST_NOW)


def local_queue_to_nowhere(client):
    put(client, r.LOCAL_QUEUES, "lost", spec={"clusterQueue": "taem-a"})


def pod_without_workload(client):
    put_pod(client, "stray", labels={"kueue.x-k8s.io/pod-group-name": "gone"})
    put_pod(client, "young", creationTimestamp=JUST_NOW)


def job_without_workload(client):
    labels = {"kueue.x-k8s.io/queue-name": "train"}
    policy = {"runPolicy": {"suspend": True}}
    kind = r.Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
    put(client, kind, "stray", metadata={"labels": labels}, spec=policy)
    put(client, r.JOBS, "runs", metadata={"labels": labels}, spec={"suspend": False})


def kept_after_deletion(client):
    kept = {"deletionTimestamp": EARLIER, "finalizers": ["kueue.x-k8s.io/resource-in-use"]}
    put(client, r.RESOURCE_FLAVORS, "old", metadata=kept)


@pytest.mark.parametrize(
    ("spoil", "wanted"),
    [
        pytest.param(
            kind_missing,
            [("versions", "error", "CustomResourceDefinition cohorts.kueue.x-k8s.io",
              "it is not installed")],
            id="kind-missing",
        ),
        pytest.param(
            older_kind,
            [("versions", "error", "CustomResourceDefinition workloads.kueue.x-k8s.io",
              "it lacks spec.active: the API server drops what is written there")],
            id="kind-without-a-field",
        ),
        pytest.param(
            kind_of_another_version,
            [("versions", "error", "CustomResourceDefinition topologies.kueue.x-k8s.io",
              "it does not serve v1beta2, only v1beta1")],
            id="kind-of-another-version",
        ),
        pytest.param(
            other_chart,
            [("versions", "warning", "chart policyd",
              f"it has version 0.0.1, and this program {__version__}")],
            id="chart-of-another-version",
        ),
        pytest.param(
            lambda client: put_lease(client, "", 3),
            [("leader", "error", "Lease policyd-system/policyd-controller",
              "no controller holds it: nothing is admitted")],
            id="no-leader",
        ),
        pytest.param(
            lambda client: put_lease(client, "me", 600),
            [("leader", "error", "Lease policyd-system/policyd-controller",
              "me holds it, and last renewed it 600 s ago: nothing is admitted")],
            id="leader-is-gone",
        ),
        pytest.param(
            no_lease,
            [("leader", "error", "controller",
              "there is no Lease policyd-controller: no controller has been started:"
              " nothing is admitted"),
             ("visibility", "warning", "API visibility.policyd.io/v1alpha1",
              "it is not available (the server could not find the requested resource):"
              " `why`, `queue` and `quota` have no numbers")],
            id="no-controller",
        ),
        pytest.param(
            unregistered,
            [("registration", "error", f"ValidatingWebhookConfiguration {NAME}",
              "it is missing: policies have no effect")],
            id="webhooks-not-registered",
        ),
        pytest.param(
            lambda client: put_configuration(client, r.MUTATING_WEBHOOK_CONFIGURATIONS),
            [("registration", "error", f"MutatingWebhookConfiguration {NAME}",
              "it has no webhooks: policies have no effect")],
            id="webhooks-not-filled",
        ),
        pytest.param(
            other_authority,
            [("registration", "error", f"webhook configurations {NAME}",
              "their webhooks have different CA bundles: something else has changed them")],
            id="another-authority",
        ),
        pytest.param(
            lambda client: put_certificate(client, OTHER.issue(SERVICE, now=NOW)),
            [("certificate", "error", "Secret policyd-system/policyd-webhooks",
              "no authority in the caBundle of the webhook configurations has issued the"
              " certificate")],
            id="certificate-of-another-authority",
        ),
        pytest.param(
            broken_policy,
            [("policies", "error", "Policy bad",
              "it has no effect (Broken): line 3: no such field")],
            id="broken-policy",
        ),
        pytest.param(
            policy_without_status,
            [("policies", "warning", "Policy new",
              "no controller has looked at it: it is not known whether it can be loaded")],
            id="policy-without-status",
        ),
        pytest.param(
            lambda client: put(
                client, r.RESOURCE_FLAVORS, "h200", spec={"nodeLabels": {"gpu": "h200"}}
            ),
            [("flavors", "warning", "ResourceFlavor h200",
              "no node has its labels gpu=h200, unless an autoscaler adds some; there are nodes"
              " with gpu=h100")],
            id="flavor-without-nodes",
        ),
        pytest.param(
            lambda client: put_queue(client, "empty", resourceGroups=[]),
            [("queues", "error", "ClusterQueue empty",
              "it has no flavors, so that nothing can be admitted")],
            id="queue-without-flavors",
        ),
        pytest.param(
            lambda client: put_queue(client, "off", status="False"),
            [("queues", "error", "ClusterQueue off", "it is not active (Why): it is said")],
            id="queue-not-active",
        ),
        pytest.param(
            lambda client: put_queue(client, "held", stopPolicy="Hold"),
            [("queues", "warning", "ClusterQueue held", "it is stopped (stopPolicy Hold)")],
            id="queue-stopped",
        ),
        pytest.param(
            lambda client: put_queue(client, "for-none", namespaceSelector=None),
            [("queues", "warning", "ClusterQueue for-none",
              "it has no namespaceSelector, so that it takes workloads of no namespace")],
            id="queue-of-no-namespace",
        ),
        pytest.param(
            local_queue_to_nowhere,
            [("queues", "error", "LocalQueue ns/lost",
              "its ClusterQueue `taem-a` doesn't exist: did you mean `team-a`?")],
            id="local-queue-to-nowhere",
        ),
        pytest.param(
            pod_without_workload,
            [("pods", "error", "Pod ns/stray", "it is gated, and its Workload gone is gone")],
            id="gated-pod",
        ),
        pytest.param(
            job_without_workload,
            [("jobs", "error", "PyTorchJob ns/stray", "it is suspended, and has no Workload")],
            id="suspended-job",
        ),
        pytest.param(
            kept_after_deletion,
            [("deletions", "error", "ResourceFlavor old",
              "it was deleted 3600 s ago, and is kept by kueue.x-k8s.io/resource-in-use, as it is"
              " used or no controller runs")],
            id="deletion-that-does-not-end",
        ),
    ],
)  # fmt: skip
async def test_what_is_wrong_is_found_and_nothing_else(client, spoil, wanted):
    spoil(client)

    assert await found(client) == wanted


async def test_where_nothing_is_installed_there_is_one_finding():
    report = await examine(FakeClient(), now=NOW, checks={"versions": CHECKS["versions"]})

    assert [(each.object, each.message) for each in report.findings] == [
        ("policyd", "it is not installed")
    ]


async def test_webhooks_that_the_api_server_does_not_reach_are_found(client):
    client.fail(InternalError('failed calling webhook "a": connection refused'), verb="create")

    (only,) = (await examine(client, now=NOW)).findings

    assert (only.check, only.object) == ("calls", "Service policyd-system/policyd-webhooks")
    assert only.message.endswith("connection refused")
    assert only.fix == "kubectl logs deployment/policyd-webhooks -n policyd-system"


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ForbiddenError("admission webhook denied the request: no"), id="denied"),
        pytest.param(AlreadyExistsError("exists"), id="exists"),
    ],
)
async def test_webhooks_that_refuse_the_trial_have_answered(client, error):
    client.fail(error, verb="create")

    report = await examine(client, now=NOW)

    assert (report.findings, report.unchecked) == ((), ())


async def test_what_may_not_be_read_is_named_and_the_rest_is_checked(client):
    client.fail(ForbiddenError("user cannot get secrets"), plural="secrets")
    client.fail(ForbiddenError("user cannot create resourceflavors"), verb="create")
    client.fail(ForbiddenError("user cannot list nodes"), plural="nodes")
    local_queue_to_nowhere(client)

    report = await examine(client, now=NOW)

    assert [(each.check, each.why) for each in report.unchecked] == [
        ("certificate", "user cannot get secrets"),
        ("calls", "user cannot create resourceflavors"),
        ("flavors", "user cannot list nodes"),
    ]
    assert [each.object for each in report.findings] == ["LocalQueue ns/lost"]


async def test_what_was_found_before_an_error_is_kept(client):
    put_queue(client, "empty", resourceGroups=[])
    client.fail(ForbiddenError("user cannot list localqueues"), plural="localqueues")

    report = await examine(client, now=NOW)

    assert [each.object for each in report.findings] == ["ClusterQueue empty"]
    assert [each.check for each in report.unchecked] == ["queues"]


async def test_a_cluster_that_does_not_answer_is_an_error(client):
    client.fail(UnreachableError("cannot connect"))

    with pytest.raises(UnreachableError):
        await examine(client, now=NOW)


async def test_one_controller_without_leader_election_leads(client):
    remove(client, r.LEASES, "policyd-system", "policyd-controller")

    assert await found(client) == []


@pytest.mark.parametrize(
    ("pem", "names", "wanted"),
    [
        pytest.param(b"", SERVICE, ["there is no certificate in it"], id="none"),
        pytest.param(
            AUTHORITY.issue(SERVICE, now=NOW - 3 * DAY, days=1).certificate_pem,
            SERVICE,
            [f"the certificate expired at {rfc3339(NOW - 2 * DAY)}"],
            id="expired",
        ),
        pytest.param(
            AUTHORITY.issue(SERVICE, now=NOW, days=2).certificate_pem,
            SERVICE,
            [f"the certificate ends soon, at {rfc3339(NOW + 2 * DAY)}, and was not renewed"],
            id="ends-soon",
        ),
        pytest.param(
            AUTHORITY.issue(["a.b.svc"], now=NOW).certificate_pem,
            SERVICE,
            [f"the certificate is not for {SERVICE[0]}, but for a.b.svc"],
            id="of-another-name",
        ),
        pytest.param(AUTHORITY.certificate_pem, (), [], id="its-own-authority"),
    ],
)
async def test_a_certificate_is_checked_against_time_names_and_authorities(pem, names, wanted):
    assert list(wrong_with(pem, AUTHORITY.certificate_pem, names=names, now=NOW)) == wanted


async def test_a_trial_is_sent_to_webhooks_that_are_not_ignored_while_they_are_down():
    def asked(plural, group, policy, scope="*"):
        rule = {"operations": ["CREATE"], "apiGroups": [group], "resources": [plural]}
        return {"name": plural, "failurePolicy": policy, "rules": [{**rule, "scope": scope}]}

    def probe(*webhooks):
        chosen = probe_of([msgspec.convert(each, Webhook) for each in webhooks])
        return chosen and chosen[0].plural

    own = asked("policies", "policyd.io", "Ignore")
    flavors = asked("resourceflavors", "kueue.x-k8s.io", "Fail")

    assert probe(own, flavors) == "resourceflavors"
    assert probe(own) == "policies"
    assert probe(asked("*", "*", "Ignore", "Namespaced")) is None
