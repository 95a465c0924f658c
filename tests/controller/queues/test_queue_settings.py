"""What a Kueue Configuration changes here, and what it says in vain."""

from pathlib import Path

import msgspec
import pytest

from policyd.alloc.settings import FairSharingRules, QueueingSettings, UsageBasedOrder
from policyd.api.configuration import API_VERSION, Configuration, decode_configuration
from policyd.cli.configuring import configured
from policyd.config import configured as webhooks_configured
from policyd.config import parse_configuration
from policyd.controller.queues.queue_settings import (
    HEEDED,
    deciding_fields,
    ineffective_fields,
    metrics_settings,
    multi_kueue_settings,
    other_teams,
    queue_settings,
    time_limits,
)
from policyd.controller.retention import Retention, TimeLimits
from policyd.controller.settings import ControllerSettings
from policyd.errors import ConfigurationError
from policyd.jobs.frameworks import integrations_of, reported_integrations
from policyd.jobs.integrations import EVERYTHING
from policyd.jobs.kinds.registry import KINDS, PARENTS
from policyd.workload.time_limits import ReadyRules

HEAD = "apiVersion: config.kueue.x-k8s.io/{}\nkind: Configuration\n"


def configuration(text, version="v1beta2"):
    return parse_configuration((HEAD.format(version) + text).encode())


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        pytest.param("", {}, id="nothing"),
        pytest.param(
            "fairSharing: {preemptionStrategies: [LessThanInitialShare]}",
            {"fair_sharing": FairSharingRules(strategies=("LessThanInitialShare",))},
            id="fair-sharing",
        ),
        pytest.param(
            "admissionFairSharing: {usageHalfLifeTime: 1h, usageSamplingInterval: 1m}",
            {
                "admission_fair_sharing": UsageBasedOrder(
                    half_life_seconds=3600, sampling_seconds=60
                )
            },
            id="admission-fair-sharing",
        ),
        pytest.param(
            "resources: {quotaCheckStrategy: IgnoreUndeclared}",
            {"ignores_undeclared": True},
            id="undeclared",
        ),
    ],
)
def test_a_configuration_says_how_queues_decide(text, settings):
    found = queue_settings(configuration(text))

    expected = {
        name: settings.get(name, getattr(QueueingSettings(), name))
        for name in QueueingSettings.__slots__
    }
    assert {name: getattr(found, name) for name in expected if name != "gates"} == {
        name: value for name, value in expected.items() if name != "gates"
    }


def test_a_configuration_says_whether_jobs_of_other_teams_are_named():
    reason = configuration("visibility: {otherTeams: team}")

    assert (other_teams(reason), other_teams(configuration(""))) == ("team", "names")
    assert ineffective_fields(reason) == []
    with pytest.raises(ConfigurationError, match=r"visibility\.otherTeams"):
        queue_settings(configuration("visibility: {otherTeams: nobody}"))


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        pytest.param("", TimeLimits(ready=ReadyRules()), id="the-defaults-of-kueue"),
        pytest.param(
            "featureGates: {DisableWaitForPodsReady: true}", TimeLimits(), id="nobody-waits"
        ),
        pytest.param(
            "waitForPodsReady: {timeout: 5m, requeuingStrategy: {backoffLimitCount: 0,"
            " backoffBaseSeconds: 0, backoffMaxSeconds: 9}}",
            TimeLimits(
                ready=ReadyRules(timeout=300, recovery=300, retries=0, first_wait=0, longest_wait=9)
            ),
            id="recovery-takes-as-long-as-the-start",
        ),
        pytest.param(
            "waitForPodsReady: {recoveryTimeout: 0s}",
            TimeLimits(ready=ReadyRules(recovery=0)),
            id="recovery-takes-what-it-takes",
        ),
        pytest.param(
            "objectRetentionPolicies: {workloads: {afterFinished: 1h,"
            " afterDeactivatedByKueue: 0s}}",
            TimeLimits(
                ready=ReadyRules(), retention=Retention(after_finished=3600, after_deactivated=0)
            ),
            id="retention",
        ),
    ],
)
@pytest.mark.gate("DisableWaitForPodsReady")
def test_a_configuration_sets_the_time_limits(text, limits):
    assert time_limits(configuration(text)) == limits


def test_gates_come_from_the_file_or_the_command_line():
    given = configuration("featureGates: {PriorityBoost: true}")

    assert queue_settings(given).gates.priority_boost
    assert queue_settings(configuration(""), gates="PriorityBoost=true").gates.priority_boost


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
@pytest.mark.parametrize(
    ("text", "gates"),
    [
        pytest.param("", "", id="nothing"),
        pytest.param("", "PriorityBoost=true", id="a-gate-of-the-command-line"),
        pytest.param(
            "fairSharing: {preemptionStrategies: [LessThanInitialShare]}\n"
            "admissionFairSharing: {usageHalfLifeTime: 1h, resourceWeights: {cpu: 2}}\n"
            "waitForPodsReady: {timeout: 5m, blockAdmission: true}\n"
            "resources: {excludeResourcePrefixes: [example.com/]}\n"
            "featureGates: {PriorityBoost: true}",
            "",
            id="everything",
        ),
    ],
)
def test_readers_get_the_fields_by_which_queues_decide(text, gates, version):
    given = configuration(text, version)

    reported = decode_configuration(deciding_fields(given, gates=gates))

    assert queue_settings(reported) == queue_settings(given, gates=gates)
    assert reported.resources == given.resources


@pytest.mark.parametrize(
    ("text", "gates"),
    [
        pytest.param("", "PriorityBoost=true", id="a-gate-of-the-command-line"),
        pytest.param(
            "integrations:\n"
            "  frameworks: [pod, ray.io/rayjob]\n"
            "  externalFrameworks: [A.v1.example.com]\n"
            "managedJobsNamespaceSelector: {matchLabels: {team: a}}\n"
            "manageJobsWithoutQueueName: true",
            "",
            id="everything",
        ),
    ],
)
def test_readers_get_which_jobs_queue(text, gates):
    given = configuration(text)

    reported = reported_integrations(deciding_fields(given, gates=gates))

    assert reported == integrations_of(given, gates=gates)


def test_without_a_file_readers_get_that_all_jobs_queue():
    settings = configured(ControllerSettings(identity="a"), path="")

    reported = reported_integrations(settings.configuration)

    assert all(reported.has(each.group, each.kind) for each in (*KINDS, *PARENTS))
    assert reported.namespaces is EVERYTHING.namespaces
    assert reported.plain_pods
    assert not reported.requires_queue


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("featureGates: {Unheard: true}", "unrecognized feature gate", id="gate"),
        pytest.param("featureGates: {PartialAdmission: 1}", "expected `bool`", id="gate-type"),
        pytest.param(
            "waitForPodsReady: {timeout: -5m}", "waitForPodsReady.timeout", id="another-field"
        ),
        pytest.param("tls: {cipherSuites: [TLS_RSA_WITH_RC4_128_SHA]}", "RC4", id="tls"),
        pytest.param(
            "tls: {cipherSuites: [ECDHE_RSA_WITH_AES_128_GCM_SHA256]}",
            "cipher suite `ECDHE_RSA_WITH_AES_128_GCM_SHA256` is not known; did you mean"
            " `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`",
            id="tls-suite-without-its-beginning",
        ),
        pytest.param(
            "integrations: {frameworks: [sparkoperator.k8s.io/sparkapplication]}\n"
            "featureGates: {SparkApplicationIntegration: false}",
            "the feature gate `SparkApplicationIntegration` is off",
            id="framework-without-its-gate",
        ),
    ],
)
def test_the_webhooks_refuse_what_the_controller_refuses(tmp_path, text, message):
    file = tmp_path / "configuration.yaml"
    file.write_text(f"{HEAD.format('v1beta2')}{text}\n")

    with pytest.raises(ConfigurationError, match=message) as by_controller:
        configured(ControllerSettings(), path=str(file))
    with pytest.raises(ConfigurationError) as by_webhooks:
        webhooks_configured(str(file))

    assert str(by_webhooks.value) == str(by_controller.value)


def test_an_older_controller_does_not_report_which_jobs_queue():
    assert reported_integrations({"apiVersion": API_VERSION, "kind": "Configuration"}) is None


@pytest.mark.gate("AdmissionFairSharing")
def test_a_gate_that_is_off_turns_its_field_off():
    given = configuration(
        "admissionFairSharing: {usageHalfLifeTime: 1h}\nfeatureGates: {AdmissionFairSharing: false}"
    )

    assert queue_settings(given).admission_fair_sharing is None


@pytest.mark.gate("MetricsForCohorts", "MetricForWorkloadCreationLatency")
def test_a_gate_that_is_off_leaves_its_metrics_out():
    off = "featureGates: {MetricsForCohorts: false, MetricForWorkloadCreationLatency: false}"

    found = [metrics_settings(configuration(text)) for text in ("", off)]

    assert [(each.cohorts, each.creation) for each in found] == [(True, True), (False, False)]


def test_all_that_is_wrong_is_reported():
    text = "fairSharing: {preemptionStrategies: [A]}\nresources: {quotaCheckStrategy: B}"

    with pytest.raises(ConfigurationError, match=r"fairSharing\.pre.*quotaCheckStrategy"):
        queue_settings(configuration(text))


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_parts_without_an_effect_are_named(version):
    reason = configuration("clientConnection: {qps: 7}\nfairSharing: {}", version)

    assert ineffective_fields(reason) == ["clientConnection"]
    assert ineffective_fields(configuration("", version)) == []
    curves = configuration("tls: {minVersion: VersionTLS13, curvePreferences: [29]}", version)
    assert ineffective_fields(curves) == ["tls.curvePreferences"]


def test_the_page_of_differences_names_what_is_not_heeded():
    page = (Path(__file__).parents[3] / "docs/reference/differences-from-kueue.md").read_text()
    unheeded_names = [
        field.encode_name
        for field in msgspec.structs.fields(Configuration)
        if field.name not in HEEDED
    ]

    assert [name for name in unheeded_names if f"`{name}" not in page] == []


@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
@pytest.mark.gate("MultiKueueIncrementalDispatcherConfig")
@pytest.mark.gate("MultiKueueAdaptersForCustomJobs")
def test_a_configuration_says_how_jobs_go_to_other_clusters(on):
    value = str(on).lower()
    names = ("MultiKueueIncrementalDispatcherConfig", "MultiKueueAdaptersForCustomJobs")
    gates = ",".join(f"{name}={value}" for name in names)
    text = (
        "multiKueue:\n"
        "  gcInterval: 0s\n"
        "  origin: berlin\n"
        "  workerLostTimeout: 90s\n"
        "  dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-incremental\n"
        "  incrementalDispatcherConfig: {stepSize: 5}\n"
        "  externalFrameworks: [{name: Film.v1.example.com}]\n"
        "  clusterProfile: {accessProviders: [{name: cloud, execConfig: {command: /get,"
        " apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}}]}\n"
    )

    found = multi_kueue_settings(configuration(text), gates=gates)

    assert (found.collect_seconds, found.lost_seconds, found.origin) == (0, 90, "berlin")
    assert [each.exec_config.command for each in found.providers] == ["/get"]
    assert (found.step, found.frameworks) == ((5, ("Film.v1.example.com",)) if on else (3, ()))
