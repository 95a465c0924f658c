"""Kueue's Configuration is read as Kueue reads it."""

import pytest

from policyd.alloc.settings import Gates
from policyd.api.configuration import (
    API_VERSION,
    Configuration,
    check_configuration,
    decode_configuration,
    duration_seconds,
    validate_gates,
)
from policyd.api.configuration.duration import DurationError
from policyd.api.configuration.gates import DEFAULTS
from policyd.config import load_configuration, parse_configuration
from policyd.errors import ConfigurationError

OLD = "config.kueue.x-k8s.io/v1beta1"


def document(**parts):
    return {"apiVersion": API_VERSION, "kind": "Configuration", **parts}


def test_an_empty_file_sets_nothing_and_is_fine():
    configuration = parse_configuration(b"")

    assert configuration.namespace == "kueue-system"
    assert configuration.wait_for_pods_ready.timeout == "30m0s"
    assert check_configuration(configuration) == ({}, [])


def test_given_values_are_kept_and_the_rest_is_filled_in():
    configuration = decode_configuration(document(leaderElection={"leaseDuration": "1m"}))

    assert configuration.leader_election.lease_duration == "1m"
    assert configuration.leader_election.retry_period == "2s"


def test_v1beta1_waits_for_pods_and_shares_fairly_only_if_enabled():
    quiet = decode_configuration({**document(), "apiVersion": OLD})
    loud = decode_configuration(
        {
            **document(waitForPodsReady={"enable": True}, fairSharing={"enable": True}),
            "apiVersion": OLD,
        }
    )

    assert (quiet.wait_for_pods_ready, quiet.fair_sharing) == (None, None)
    assert loud.wait_for_pods_ready.block_admission is True
    assert len(loud.fair_sharing.preemption_strategies) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(b"kind: Pod", "must be a YAML map of kind `Configuration`", id="other-kind"),
        pytest.param(b"[", "is not YAML", id="no-yaml"),
        pytest.param(
            b"kind: Configuration", "unsupported Configuration version `None`", id="no-version"
        ),
        pytest.param(
            f"apiVersion: {API_VERSION}\nkind: Configuration\nnamespaces: a".encode(),
            "unknown field `namespaces`",
            id="unknown-field",
        ),
        pytest.param(
            f"apiVersion: {API_VERSION}\nkind: Configuration\nwebhook: {{ports: 1}}".encode(),
            "unknown field `ports` at `webhook`",
            id="unknown-field-below",
        ),
        pytest.param(
            f"apiVersion: {API_VERSION}\nkind: Configuration\nwebhook: {{port: a}}".encode(),
            "`webhook.port`",
            id="wrong-type",
        ),
    ],
)
def test_an_invalid_configuration_is_reported(text, message):
    with pytest.raises(ConfigurationError, match=message):
        parse_configuration(text)


def test_a_file_that_cannot_be_read_is_reported(tmp_path):
    with pytest.raises(ConfigurationError, match="is a directory"):
        load_configuration(str(tmp_path))


def test_all_that_is_wrong_is_named_with_its_path():
    configuration = decode_configuration(
        document(
            admissionFairSharing={"usageHalfLifeTime": "soon", "resourceWeights": {"cpu": -1}},
            integrations={"frameworks": ["pod", "pod"], "externalFrameworks": ["Job"]},
            managedJobsNamespaceSelector={},
        )
    )

    _, errors = check_configuration(configuration, gates="PriorityBoost=true,Nothing=true")

    assert [error.path for error in errors] == [
        "featureGates",
        "integrations.frameworks[1]",
        "integrations.externalFrameworks[0]",
        "managedJobsNamespaceSelector",
        "managedJobsNamespaceSelector",
        "admissionFairSharing.usageHalfLifeTime",
        "admissionFairSharing.resourceWeights[cpu]",
        "managedJobsNamespaceSelector",
        "managedJobsNamespaceSelector",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("A=true", "unrecognized feature gate: A", id="unknown"),
        pytest.param("PriorityBoost", "missing bool value for PriorityBoost", id="no-value"),
        pytest.param("PriorityBoost=1x", "invalid value of PriorityBoost=1x", id="no-boolean"),
        pytest.param("TLSOptions=false", "feature is locked to true", id="locked"),
        pytest.param(
            "TopologyAwareScheduling=false,TASBalancedPlacement=true",
            "depends on features that are disabled",
            id="needs-another",
        ),
    ],
)
def test_gates_that_cannot_be_set_so_are_refused(text, message):
    _, (error,) = validate_gates(text, None)

    assert message in error.message


def test_gates_are_given_in_one_place_only():
    _, (error,) = validate_gates("PriorityBoost=true", {})

    assert error.message == "feature gates for CLI and configuration cannot both specified"


def test_the_core_has_the_defaults_of_the_gates_it_knows():
    assert Gates.of(DEFAULTS) == Gates()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("1h30m", 5400, id="parts"),
        pytest.param("-1.5s", -1.5, id="negative"),
        pytest.param("0", 0, id="zero"),
        pytest.param("500ms", 0.5, id="milliseconds"),
    ],
)
def test_lengths_of_time_are_read_as_go_writes_them(text, seconds):
    assert duration_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "1d"])
def test_invalid_durations_are_refused(text):
    with pytest.raises(DurationError, match="is not a duration"):
        duration_seconds(text)


ODD = (
    *(1.5, "a", [1], [[1]], True, {"a": 1}),
    *({"requeuingStrategy": 1.5}, {"transformations": [1]}, {"transformations": 1.5}),
    *({"enable": []}, {"enable": True, "preemptionStrategies": 1}, {"dispatcherName": []}),
)
"""Values of which most fit no field."""


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
@pytest.mark.parametrize("name", Configuration.__struct_encode_fields__)
def test_a_value_of_a_wrong_type_is_reported_wherever_it_is(version, name):
    """Defaults are filled in before types are checked: nothing of it fails otherwise."""
    refused = 0
    for value in ODD:
        document = {"apiVersion": f"config.kueue.x-k8s.io/{version}", "kind": "Configuration"}
        try:
            decode_configuration(document | {name: value})
        except ConfigurationError:
            refused += 1

    assert refused
