"""Kueue's tables of its Configuration, and of objects that are turned into another version."""

import json

import msgspec

from policyd import config
from policyd.api.configuration import (
    check_configuration,
    decode_configuration,
    pods_ready_awaited,
    v1beta1,
    validate_gates,
)
from policyd.api.configuration.defaults import with_defaults
from policyd.api.configuration.kinds import Configuration
from policyd.api.configuration.validation import validate_custom_labels
from policyd.api.kueue.v1beta1 import downgraded, upgraded
from policyd.errors import ConfigurationError
from tests.conformance.kueue_objects import run_table


def run_objects(path):
    """Convert Kueue's objects."""
    yield from run_table(path, lambda case: _conversion(path.stem, case, upgraded, downgraded))


def _conversion(table, case, up, down):
    """Convert up, down, or there and back, as the table's name says."""
    if "RoundTrip" in table:
        ways = (down, up) if table.endswith("Reverse") else (up, down)
        (document,) = case.input.values()
        return difference(ways[1](ways[0](document)), document)
    way = up if table.endswith("ConvertTo") else down
    return difference(way(case.input["input"]), case.want["expected"])


def run_conversion(path):
    """Convert Configurations."""
    ways = v1beta1.upgraded, v1beta1.downgraded
    yield from run_table(path, lambda case: _conversion(path.stem, case, *ways))


def run_defaults(path):
    def failure(case):
        return difference(with_defaults(case.input["original"]), case.want["want"])

    yield from run_table(path, failure)


def run_alias(path):
    """Whether providers are found under their old name and their new one."""

    def failure(case):
        old, new = (_profile(case, name) for name in ("credentialsProviders", "accessProviders"))
        return "" if old.providers == new.providers != () else f"{old} is not {new}"

    yield from run_table(path, failure)


def _profile(case, name):
    given = {"clusterProfile": {name: case.data["locals"][name]}}
    document = {"apiVersion": Configuration().api_version, "kind": "Configuration"}
    return decode_configuration({**document, "multiKueue": given}).multi_kueue.cluster_profile


def run_validation(path):
    def failure(case):
        configuration = _raw(case.input["cfg"])
        if configuration.feature_gates is None and case.gates:
            configuration = msgspec.structs.replace(configuration, feature_gates=case.gates)
        _, errors = check_configuration(configuration)
        if path.stem.endswith("DeviceClassMappings"):  # the others are other tables'
            errors = [error for error in errors if error.path.startswith("resources")]
        return _errors(errors, case.want["wantErr"], details=False)

    yield from run_table(path, failure)


def run_custom_labels(path):
    def failure(case):
        if not case.input:  # one case is written apart, and says only what it compares
            counts = {"Cohort": 9, "LocalQueue": 10, "Workload": 5}
            labels = [
                {"name": f"{kind}{i}", "sourceKind": kind, "trackedValues": ["a"]}
                for kind, count in counts.items()
                for i in range(count)
            ]
            given = {"kind": "Configuration", "metrics": {"customLabels": labels}}
            errors = validate_custom_labels(_raw(given).metrics.custom_labels)
            found = [e.message for e in errors if e.problem == "Invalid"]
            return "" if found == case.want["wantDetails"] else str(found)
        labels = _raw(case.input["cfg"]).metrics.custom_labels
        return _errors(validate_custom_labels(labels), case.want["wantErr"])

    yield from run_table(path, failure)


def run_gates(path):
    def failure(case):
        given = case.data["input"].get("featureGateMap")  # nil is none, and empty is some
        _, errors = validate_gates(case.input["featureGatesCLI"], given)
        return _errors(errors, case.want["wantErr"], details=not case.input["ignoreDetail"])

    yield from run_table(path, failure)


def run_waiting(path):
    def failure(case):
        got = pods_ready_awaited(_raw(case.input["cfg"]), case.gates)
        return "" if got is case.want["want"] else f"got {got}"

    yield from run_table(path, failure)


def run_encoding(path):
    def failure(case):
        text = msgspec.json.encode(_raw(case.input["cfg"]))
        return difference(json.loads(text), case.want["wantResult"])

    yield from run_table(path, failure)


def run_load(path):
    """Load a file, options included.

    The tables name files and do not have them. What a file must have said is what the wanted
    Configuration and options say beyond the defaults, so that is what is written and loaded.
    """
    yield from run_table(path, _load)


def _load(case):
    error = case.want.get("wantError")
    if error:
        return _refused(case.input["configFile"], error)
    wanted = _wanted(case)
    given = _beyond(wanted, with_defaults(_EMPTY))
    loaded = config.parse_configuration(json.dumps({**_EMPTY, **given}).encode())
    return "" if loaded == _raw(wanted) else f"got {loaded}, wanted {wanted}"


_EMPTY = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}


def _refused(file, error):
    try:
        if "is a directory" in error["$error"]:
            config.load_configuration(file)
        else:
            unknown = error["$error"].split('"')[1::2]
            config.parse_configuration(json.dumps({**_EMPTY, **dict.fromkeys(unknown)}).encode())
    except ConfigurationError as refused:
        message = str(refused)
        return (
            "" if all(name in message for name in error["$error"].split('"')[1::2][:1]) else message
        )
    return "nothing was wrong with it"


def _wanted(case):
    """Return the wanted Configuration; some of it is wanted as options of Go's library."""
    options = case.want.get("wantOptions") or {}
    election = {
        "leaderElect": options.get("LeaderElection", False),
        "resourceLock": options.get("LeaderElectionResourceLock"),
        "resourceNamespace": options.get("LeaderElectionNamespace"),
        "resourceName": options.get("LeaderElectionID"),
        "leaseDuration": options.get("LeaseDuration"),
        "renewDeadline": options.get("RenewDeadline"),
        "retryPeriod": options.get("RetryPeriod"),
    }
    health = {
        "healthProbeBindAddress": options.get("HealthProbeBindAddress"),
        "readinessEndpointName": options.get("ReadinessEndpointName"),
        "livenessEndpointName": options.get("LivenessEndpointName"),
    }
    wanted = {
        **case.want["wantConfiguration"],
        "leaderElection": election,
        "health": health,
        "pprofBindAddress": options.get("PprofBindAddress"),
    }
    return with_defaults(_trimmed(wanted))


def _beyond(wanted, defaults):
    """Return what is wanted and not the default."""
    beyond = {}
    for name, value in wanted.items():
        default = defaults.get(name)
        if isinstance(value, dict) and isinstance(default, dict):
            beyond[name] = _beyond(value, default)
        elif value != default:
            beyond[name] = value
    return {name: value for name, value in beyond.items() if value != {}}


def _raw(document):
    """Decode a Configuration without defaults."""
    return msgspec.json.decode(json.dumps(_trimmed(document)), type=Configuration)


def _errors(got, wanted, *, details=True):
    """Compare type, path and, where the table does, the words; the order matters."""
    wanted = wanted or []
    kinds = {"Forbidden": "FieldValueForbidden"}
    pairs = [(kinds.get(e.problem, f"FieldValue{e.problem}"), e.path) for e in got]
    if pairs != [(e["type"], e["field"]) for e in wanted]:
        return f"got {[str(e) for e in got]}, wanted {wanted}"
    for error, want in zip(got, wanted, strict=True):
        if details and want.get("detail") and want["detail"] != error.message:
            return f"got {error.message!r}, wanted {want['detail']!r}"
    return ""


def difference(got, wanted):
    """Say where JSON differs; what Go calls zero may be written or not."""
    got, wanted = _trimmed(got), _trimmed(wanted)
    return "" if got == wanted else f"got {got}, wanted {wanted}"


def _trimmed(value):
    if isinstance(value, list):
        return [_trimmed(each) for each in value]
    if not isinstance(value, dict):
        return value
    trimmed = {name: _trimmed(each) for name, each in value.items()}
    trimmed.pop("certDir", None)  # policyd's webhooks are told their certificate
    trimmed = {name: each for name, each in trimmed.items() if each not in (None, "", [], {})}
    if trimmed.get("manageJobsWithoutQueueName") is False:
        del trimmed["manageJobsWithoutQueueName"]
    counts = {"pendingWorkloads", "reservingWorkloads", "admittedWorkloads"}
    return {} if trimmed.keys() <= counts and not any(trimmed.values()) else trimmed
