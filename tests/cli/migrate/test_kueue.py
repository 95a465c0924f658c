"""`policyd migrate kueue`: what is lost, what is different, the values, and the exit codes."""

import json

import pytest
import yaml
from click.testing import CliRunner

from policyd.cli import main
from policyd.cli.migrate.kueue import survey_cluster
from policyd.config import parse_configuration
from policyd.kube import resources as r
from policyd.kube.errors import ForbiddenError
from policyd.migrate.kueue.survey import Survey
from policyd.testing import FakeClient
from tests.cli.given import KUEUE

SETTINGS = "    resources: {excludeResourcePrefixes: [a.example/]}\n"


def migrate(text, *options):
    done = CliRunner().invoke(main, ["migrate", "kueue", "--from", "-", *options], input=text)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.stdout, done.stderr, done.exit_code


def found(text, effect="lost"):
    stdout, stderr, code = migrate(text, "-o", "json")
    assert code in (0, 1), stderr
    return {each["subject"]: each["message"] for each in json.loads(stdout)[effect]}


def setting(line):
    return KUEUE.replace(SETTINGS, f"{SETTINGS}    {line}\n")


def also(kind, name, *, api_version="kueue.x-k8s.io/v1beta2", metadata=None, **parts):
    obj = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, **(metadata or {})},
        **parts,
    }
    return f"{KUEUE}---\n{yaml.safe_dump(obj)}"


def test_nothing_is_lost_where_kueue_does_what_policyd_does():
    stdout, stderr, code = migrate(KUEUE)

    assert code == 0
    assert "Kueue v0.19.2 in kueue-system" in stderr
    assert "0 things lost" in stderr
    values = yaml.safe_load(stdout)
    assert values["webhooks"]["extraArgs"] == [
        "--starters=system:serviceaccount:kueue-system:kueue-controller-manager"
    ]
    configuration = values["controller"]["configuration"]
    assert configuration["featureGates"] == {"PriorityBoost": True}
    assert configuration["resources"] == {"excludeResourcePrefixes": ["a.example/"]}
    assert "leaderElection" not in configuration
    assert parse_configuration(yaml.safe_dump(configuration).encode()).integrations.frameworks == (
        "batch/job",
        "pod",
    )


QUEUED = {"namespace": "a", "labels": {"kueue.x-k8s.io/queue-name": "q"}}
MULTI = {"controllerName": "kueue.x-k8s.io/multikueue"}
RULE = {"groups": [{"rules": [{"expr": "kueue_no_such_metric_total > 1"}]}]}
CLAIMS = {"podSets": [{"template": {"spec": {"resourceClaims": [{"name": "gpu"}]}}}]}


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        pytest.param(setting("featureGates: {NewGate: true}"), "feature gate NewGate", id="gate"),
        pytest.param(
            setting("featureGates: {ShortWorkloadNames: true}"),
            "feature gate ShortWorkloadNames",
            id="gate-that-is-off-here",
        ),
        pytest.param(setting("newField: {a: 1}"), "Configuration newField", id="field"),
        pytest.param(
            KUEUE.replace("{leaderElect: true}", "{leaderElect: true, resourceName: other}"),
            "Configuration leaderElection.resourceName",
            id="lease",
        ),
        pytest.param(
            KUEUE.replace("[{name: v1beta1, served: true}, {name: v1beta2, served: true}]", "[]"),
            "CustomResourceDefinition workloads.kueue.x-k8s.io",
            id="no-version",
        ),
        pytest.param(
            KUEUE.replace("{storedVersions: [v1beta2]}", "{storedVersions: [v2, v1beta2]}"),
            "CustomResourceDefinition workloads.kueue.x-k8s.io",
            id="stored-version",
        ),
        pytest.param(
            also("Workload", "w", spec=CLAIMS), "Workloads with ResourceClaims", id="claims"
        ),
        pytest.param(
            also("Workload", "w", status={"clusterName": "b"}),
            "Workloads of other clusters",
            id="elsewhere",
        ),
        pytest.param(
            also("PrometheusRule", "r", api_version="monitoring.coreos.com/v1", spec=RULE),
            "PrometheusRule r",
            id="metric",
        ),
    ],
)
def test_what_is_lost_is_named_and_ends_with_1(text, subject):
    assert subject in found(text)
    assert migrate(text)[2] == 1


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(setting("featureGates: {MultiKueue: true}"), id="a-gate-at-its-default"),
        pytest.param(setting("clientConnection: {qps: 5}"), id="process"),
        pytest.param(also("AdmissionCheck", "m", spec=MULTI), id="multikueue"),
        pytest.param(
            also(
                "AppWrapper", "x", api_version="workload.codeflare.dev/v1beta2", metadata=QUEUED
            ).replace("[batch/job, pod]", "[batch/job, workload.codeflare.dev/appwrapper]"),
            id="kind",
        ),
        pytest.param(
            also(
                "Workload",
                "w",
                spec=CLAIMS,
                status={"conditions": [{"type": "Finished", "status": "True"}]},
            ),
            id="finished",
        ),
        pytest.param(
            also("Dashboard", "d", api_version="v1").replace("Dashboard", "ConfigMap"), id="other"
        ),
        pytest.param(
            also(
                "PrometheusRule",
                "r",
                api_version="monitoring.coreos.com/v1",
                spec={"expr": "rate(kueue_admission_wait_time_seconds_bucket[5m])"},
            ),
            id="a-metric-that-there-is",
        ),
        pytest.param(
            also(
                "ReplicaSet",
                "x",
                api_version="apps/v1",
                metadata={
                    **QUEUED,
                    "ownerReferences": [{"controller": True, "kind": "Deployment"}],
                },
            ),
            id="an-object-of-a-job",
        ),
        pytest.param(
            also(
                "Deployment",
                "d",
                api_version="apps/v1",
                metadata={
                    "namespace": "team-a",
                    "labels": {
                        "app.kubernetes.io/name": "kueue",
                        "control-plane": "controller-manager",
                    },
                },
            ),
            id="a-deployment-of-others",
        ),
    ],
)
def test_what_is_not_lost_ends_with_0(text):
    assert found(text) == {}


def test_what_policyd_does_not_know_is_left_out_of_the_values():
    stdout, _, code = migrate(
        setting("newField: {a: 1}").replace("PriorityBoost=true", "NewGate=true")
    )

    assert code == 1
    configuration = yaml.safe_load(stdout)["controller"]["configuration"]
    assert "newField" not in configuration
    assert "featureGates" not in configuration
    parse_configuration(yaml.safe_dump(configuration).encode())


def test_an_older_configuration_is_read():
    text = KUEUE.replace("config.kueue.x-k8s.io/v1beta2", "config.kueue.x-k8s.io/v1beta1")

    stdout, _, code = migrate(text)

    assert code == 0
    version = yaml.safe_load(stdout)["controller"]["configuration"]["apiVersion"]
    assert version == "config.kueue.x-k8s.io/v1beta1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(KUEUE.split("---")[0], "no ConfigMap with", id="half-a-dump"),
        pytest.param(KUEUE[KUEUE.index("---") :], "no Deployment of Kueue", id="other-half"),
        pytest.param(KUEUE[: KUEUE.index("{name: workloads") + 3], "error", id="cut"),
        pytest.param(
            KUEUE.replace("config.kueue.x-k8s.io/v1beta2", "config.kueue.x-k8s.io/v9"),
            "unsupported Configuration version",
            id="unknown-version",
        ),
        pytest.param(setting("fairSharing: ["), "is not YAML", id="configuration-cut"),
        pytest.param(setting("resources: 7"), "Configuration", id="mistyped"),
    ],
)
def test_what_cannot_be_read_ends_with_2_and_no_values(text, words):
    stdout, stderr, code = migrate(text)

    assert (stdout, code) == ("", 2)
    assert words in stderr
    assert "nothing is written" in stderr


class WithoutRights(FakeClient):
    """A client that may not list workloads."""

    async def page(self, resource, *, into, **options):
        if resource is r.WORKLOADS:
            raise ForbiddenError("workloads is forbidden: User x cannot list them")
        return await FakeClient.page(self, resource, into=into, **options)


@pytest.mark.anyio
async def test_a_cluster_is_read_as_its_dump_is():
    client = FakeClient()
    for obj in yaml.safe_load_all(KUEUE):
        resource = next(
            each
            for each in vars(r).values()
            if isinstance(each, r.Resource) and each.kind == obj["kind"]
        )
        client.store.put(resource, obj)
    read, dumped, findings = Survey("kueue-system"), Survey("kueue-system"), []
    for obj in yaml.safe_load_all(KUEUE):
        dumped.add(obj)

    await survey_cluster(client, read, findings)

    assert findings == []
    assert (read.version, read.gates, read.checks) == (dumped.version, dumped.gates, dumped.checks)
    assert (read.configuration, read.definitions) == (dumped.configuration, dumped.definitions)


@pytest.mark.anyio
async def test_what_may_not_be_listed_is_named():
    findings = []

    await survey_cluster(WithoutRights(), Survey("kueue-system"), findings)

    (one,) = findings
    assert one.rule == "unreadable"
    assert "workloads cannot be read" in one.message
