"""Validation of a Configuration: pure functions from its parts to field errors.

The rules, the paths and, where it states them, the words are Kueue's.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from ipaddress import ip_address
from typing import Final

import msgspec

from policyd.api.configuration.defaults import INCREMENTAL_DISPATCHER, SYSTEM_NAMESPACE
from policyd.api.configuration.devices import RESERVED, reserved_names, validate_mappings
from policyd.api.configuration.duration import DurationError, duration_seconds
from policyd.api.configuration.frameworks import KINDS, kind_of
from policyd.api.configuration.gates import all_gates
from policyd.api.configuration.kinds import (
    AccessProvider,
    ClusterProfile,
    Configuration,
    CustomLabel,
    DurationText,
    MultiKueue,
)
from policyd.api.configuration.tls import SUITES
from policyd.api.kueue.validation import FieldError
from policyd.api.meta import Json
from policyd.api.names import (
    LABEL_1035,
    LABEL_1035_RULE,
    LABEL_VALUE_RULE,
    NAME_LABEL,
    SUBDOMAIN_RULE,
    is_label_value,
    is_subdomain,
    label_key_problems,
)
from policyd.errors import did_you_mean

_STRATEGIES: Final = (
    ("LessThanOrEqualToFinalShare",),
    ("LessThanInitialShare",),
    ("LessThanOrEqualToFinalShare", "LessThanInitialShare"),
)
OTHER_TEAMS: Final = ("names", "team", "hidden")
"""Whether messages name jobs of other namespaces, their namespaces alone, or neither."""
_TLS_VERSIONS: Final = frozenset({"VersionTLS12", "VersionTLS13"})

_NEGATIVE: Final = "must be greater than or equal to 0"
_UNSAID: Final = "must be specified"

Errors = Iterator[FieldError]


def validate_configuration(
    configuration: Configuration, gates: Mapping[str, bool]
) -> list[FieldError]:
    """Return the errors in a Configuration.

    Args:
        configuration: With its defaults.
        gates: Feature gates that are set; the others are at their defaults.
    """
    known = all_gates(gates)
    return [
        *([] if known["DisableWaitForPodsReady"] else _waiting(configuration)),
        *_integrations(configuration),
        *validate_multi_kueue(configuration.multi_kueue),
        *_fair_sharing(configuration),
        *_admission_fair_sharing(configuration),
        *_certificates(configuration),
        *_transformations(configuration, reserved=reserved_names(known)),
        *validate_mappings(configuration.resources, known),
        *_namespaces(configuration),
        *_retention(configuration),
        *_tls(configuration),
        *_visibility(configuration),
        *_other_teams(configuration),
        *validate_custom_labels(configuration.metrics.custom_labels),
        *(_quota_check(configuration) if known["QuotaCheckStrategy"] else []),
    ]


def pods_ready_awaited(configuration: Configuration, gates: Mapping[str, bool]) -> bool:
    """Tell whether admitted workloads must get their pods ready in time."""
    off = all_gates(gates)["DisableWaitForPodsReady"]
    return configuration.wait_for_pods_ready is not None and not off


def _seconds(text: DurationText) -> float:
    try:
        return duration_seconds(text or "0s")
    except DurationError:
        return 1.0  # an invalid duration is reported by its own check


def _waiting(configuration: Configuration) -> Errors:
    path, waiting = "waitForPodsReady", configuration.wait_for_pods_ready
    if waiting is None:
        return
    if not _seconds(waiting.timeout):
        yield FieldError(f"{path}.timeout", waiting.timeout, _UNSAID, "Required")
    yield from length_errors(f"{path}.timeout", waiting.timeout or None)
    yield from length_errors(f"{path}.recoveryTimeout", waiting.recovery_timeout)
    strategy = waiting.requeuing_strategy
    if strategy is None:
        return
    path = f"{path}.requeuingStrategy"
    if strategy.timestamp not in {None, "Creation", "Eviction"}:
        yield unsupported(f"{path}.timestamp", strategy.timestamp, ("Creation", "Eviction"))
    for name, number in (
        ("backoffLimitCount", strategy.backoff_limit_count),
        ("backoffBaseSeconds", strategy.backoff_base_seconds),
        ("backoffMaxSeconds", strategy.backoff_max_seconds),
    ):
        if number is not None and number < 0:
            yield FieldError(f"{path}.{name}", number, _NEGATIVE)


def _integrations(configuration: Configuration) -> Errors:
    path, integrations = "integrations", configuration.integrations
    if integrations is None or integrations.frameworks is None:
        where = path if integrations is None else f"{path}.frameworks"
        yield FieldError(where, None, "cannot be empty", "Required")
        return
    frameworks = integrations.frameworks
    given = [(f"{path}.frameworks[{i}]", n, KINDS.get(n)) for i, n in enumerate(frameworks)]
    unknown = {where for where, _, kind in given if kind is None}
    external = enumerate(integrations.external_frameworks)
    given += [(f"{path}.externalFrameworks[{i}]", name, kind_of(name)) for i, name in external]
    seen = set()
    for where, name, kind in given:
        if where in unknown:
            yield unsupported(where, name, tuple(sorted(KINDS)))
        elif kind is None:
            yield FieldError(where, name, "must be format, 'Kind.version.group.com'")
        elif kind in seen:
            yield FieldError(where, name, "is there twice", "Duplicate")
        seen.add(kind)
    if "pod" in frameworks:
        yield from _pods(configuration)


def _pods(configuration: Configuration) -> Errors:
    path = "managedJobsNamespaceSelector"
    if configuration.managed_jobs_namespace_selector is None:
        message = "cannot be empty when pod integration is enabled"
        yield FieldError(path, None, message, "Required")
    else:
        yield from _namespaces(configuration)


def _namespaces(configuration: Configuration) -> Errors:
    """Check that jobs of the system and of Kueue itself are left alone."""
    selector = configuration.managed_jobs_namespace_selector
    if selector is None:
        return
    path = "managedJobsNamespaceSelector"
    for index, requirement in enumerate(selector.match_expressions):
        listed = requirement.operator in {"In", "NotIn"}
        where = f"{path}.matchExpressions[{index}].values"
        if listed and not requirement.values:
            message = "must be specified when `operator` is 'In' or 'NotIn'"
            yield FieldError(where, [], message, "Required")
        if not listed and requirement.values:
            message = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield FieldError(where, list(requirement.values), message, "Forbidden")
    for namespace in filter(None, (SYSTEM_NAMESPACE, configuration.namespace)):
        if selector.matches({NAME_LABEL: namespace}):
            message = f'should not match the "{namespace}" namespace'
            yield FieldError(path, msgspec.to_builtins(selector), message)


def _fair_sharing(configuration: Configuration) -> Errors:
    path, sharing = "fairSharing.preemptionStrategies", configuration.fair_sharing
    if sharing is None:
        return
    given = sharing.preemption_strategies
    if not given:
        yield FieldError(path, [], _UNSAID, "Required")
    elif given not in _STRATEGIES:
        supported = tuple(",".join(strategies) for strategies in _STRATEGIES)
        yield unsupported(path, list(given), supported)


def _admission_fair_sharing(configuration: Configuration) -> Errors:
    path, sharing = "admissionFairSharing", configuration.admission_fair_sharing
    if sharing is None:
        return
    yield from length_errors(f"{path}.usageHalfLifeTime", sharing.usage_half_life_time)
    if _seconds(sharing.usage_sampling_interval) <= 0:
        interval = sharing.usage_sampling_interval
        yield FieldError(f"{path}.usageSamplingInterval", interval, "must be greater than 0")
    for resource, weight in sharing.resource_weights.items():
        if weight < 0:
            yield FieldError(f"{path}.resourceWeights[{resource}]", weight, _NEGATIVE)


def _certificates(configuration: Configuration) -> Errors:
    path, management = "internalCertManagement", configuration.internal_cert_management
    if management is None or not management.enable:
        return
    service, secret = management.webhook_service_name, management.webhook_secret_name
    if service is not None and not re.fullmatch(LABEL_1035, service):
        yield FieldError(f"{path}.webhookServiceName", service, LABEL_1035_RULE)
    if secret is not None and not is_subdomain(secret):
        yield FieldError(f"{path}.webhookSecretName", secret, SUBDOMAIN_RULE)


def _transformations(configuration: Configuration, *, reserved: Collection[str]) -> Errors:
    resources, seen = configuration.resources, set()
    for index, each in enumerate(resources.transformations if resources else ()):
        path = f"resources.transformations[{index}]"
        if each.strategy not in {"Retain", "Replace"}:
            yield unsupported(f"{path}.strategy", each.strategy, ("Retain", "Replace"))
        if each.input in seen:
            yield FieldError(f"{path}.input", each.input, "is there twice", "Duplicate")
        seen.add(each.input)
        names = {"input": each.input, **{f"outputs[{name}]": name for name in each.outputs}}
        for field, name in names.items():
            if name in reserved:
                yield FieldError(f"{path}.{field}", name, RESERVED)


def _quota_check(configuration: Configuration) -> Errors:
    resources, path = configuration.resources, "resources.quotaCheckStrategy"
    strategy = resources.quota_check_strategy if resources else None
    if resources is None or strategy is None:
        return
    if resources.exclude_resource_prefixes and strategy == "IgnoreUndeclared":
        message = (
            "excludeResourcePrefixes is not allowed when quotaCheckStrategy is IgnoreUndeclared"
        )
        yield FieldError(path, strategy, message)
    if strategy not in {"IgnoreUndeclared", "BlockUndeclared"}:
        yield unsupported(path, strategy, ("IgnoreUndeclared", "BlockUndeclared"))


def _retention(configuration: Configuration) -> Errors:
    policies = configuration.object_retention_policies
    if policies is not None and policies.workloads is not None:
        path, kept = "objectRetentionPolicies.workloads", policies.workloads
        yield from length_errors(f"{path}.afterFinished", kept.after_finished)
        yield from length_errors(f"{path}.afterDeactivatedByKueue", kept.after_deactivated_by_kueue)


def _tls(configuration: Configuration) -> Errors:
    tls = configuration.tls
    if tls is None:
        return
    if tls.min_version and tls.min_version not in _TLS_VERSIONS:
        message = f"unknown TLS version {tls.min_version}"
        yield FieldError("tls", msgspec.to_builtins(tls), message)
    elif unknown := [each for each in tls.cipher_suites if not each.startswith("TLS_")]:
        near = did_you_mean(unknown[0], SUITES)
        message = f"cipher suite `{unknown[0]}` is not known" + (f"; {near}" if near else "")
        yield FieldError("tls", msgspec.to_builtins(tls), message)
    elif tls.min_version == "VersionTLS13" and tls.cipher_suites:
        message = "may not be specified when `minVersion` is 'VersionTLS13'"
        yield FieldError("tls.cipherSuites", list(tls.cipher_suites), message)


def _visibility(configuration: Configuration) -> Errors:
    path, server = "visibilityServer", configuration.visibility_server
    if server is None:
        return
    if server.bind_address is not None and not _is_address(server.bind_address):
        yield FieldError(f"{path}.bindAddress", server.bind_address, "must be a valid IP address")
    if server.bind_port is not None and not 1 <= server.bind_port <= 65535:
        message = "must be a valid port number (1-65535)"
        yield FieldError(f"{path}.bindPort", server.bind_port, message)


def _other_teams(configuration: Configuration) -> Errors:
    visibility = configuration.visibility
    given = None if visibility is None else visibility.other_teams
    if given is not None and given not in OTHER_TEAMS:
        yield unsupported("visibility.otherTeams", given, OTHER_TEAMS)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def length_errors(path: str, text: DurationText | None) -> Errors:
    """Yield the errors in a duration: it may not be negative; None is unset."""
    if text is None:
        return
    try:
        if duration_seconds(text) < 0:
            yield FieldError(path, text, _NEGATIVE)
    except DurationError as error:
        yield FieldError(path, text, str(error))


def unsupported(path: str, value: Json, supported: tuple[str, ...]) -> FieldError:
    """Return the error that a word is none of those known."""
    words = ", ".join(f'"{word}"' for word in supported)
    return FieldError(path, value, f"supported values: {words}", "NotSupported")


_MOST_LABELS: Final = 20
_MOST_LABELS_OF: Final = {"ClusterQueue": 6, "Cohort": 6, "LocalQueue": 6, "Workload": 2}
_MOST_TRACKED: Final = 16
_MOST_TRACKED_OF_WORKLOADS: Final = 12
_LABEL_NAME: Final = "^[a-zA-Z][a-zA-Z0-9_]*$"


def validate_custom_labels(labels: tuple[CustomLabel, ...]) -> list[FieldError]:
    """Return the errors in the labels that metrics take from objects."""
    path, seen = "metrics.customLabels", set()
    errors: list[FieldError] = []
    if len(labels) > _MOST_LABELS:
        errors.append(_too_many(path, len(labels), _MOST_LABELS))
    for index, label in enumerate(labels):
        where = f"{path}[{index}]"
        errors += _label(where, label, twice=label.name in seen)
        errors += _tracked(f"{where}.trackedValues", label)
        seen.add(label.name)
    kinds = [label.source_kind or "ClusterQueue" for label in labels]
    for kind in sorted(set(kinds)):
        count, most = kinds.count(kind), _MOST_LABELS_OF.get(kind)
        if most is None:
            message = f"unknown source kind: {kind}"
        elif count > most:
            message = f"too many custom labels for source kind {kind}: found {count}, "
            message += f"expected <= {most}"
        else:
            continue
        errors.append(FieldError(path, msgspec.to_builtins(labels), message))
    return errors


def _too_many(path: str, count: int, most: int) -> FieldError:
    return FieldError(path, count, f"must have at most {most} items", "TooMany")


def _label(path: str, label: CustomLabel, *, twice: bool) -> Errors:
    if not re.fullmatch(_LABEL_NAME, label.name):
        yield FieldError(f"{path}.name", label.name, f"must match {_LABEL_NAME}")
    if twice:
        yield FieldError(f"{path}.name", label.name, "", "Duplicate")
    if label.source_label_key and label.source_annotation_key:
        message = "sourceLabelKey and sourceAnnotationKey are mutually exclusive"
        yield FieldError(path, msgspec.to_builtins(label), message)
    name, key = "name", label.name
    if label.source_label_key:
        name, key = "sourceLabelKey", label.source_label_key
    elif label.source_annotation_key:
        name, key = "sourceAnnotationKey", label.source_annotation_key
    problems = label_key_problems(key)
    if problems:
        yield FieldError(f"{path}.{name}", key, "; ".join(problems))


def _tracked(path: str, label: CustomLabel) -> Errors:
    values = label.tracked_values
    of_workloads = label.source_kind == "Workload"
    if of_workloads and not values:
        yield FieldError(path, [], "must not be empty when sourceKind is 'Workload'")
    if of_workloads and len(values) > _MOST_TRACKED_OF_WORKLOADS:
        most = _MOST_TRACKED_OF_WORKLOADS
        message = f"must not be greater than {most} when sourceKind is 'Workload'"
        yield FieldError(path, list(values), message)
    if not of_workloads and len(values) > _MOST_TRACKED:
        yield _too_many(path, len(values), _MOST_TRACKED)
    if len(set(values)) < len(values):
        yield FieldError(path, list(values), "must not contain duplicates")


def validate_multi_kueue(multi: MultiKueue | None) -> Errors:
    """Yield the errors in the part `multiKueue`."""
    path = "multiKueue"
    if multi is None:
        return
    yield from length_errors(f"{path}.gcInterval", multi.gc_interval)
    yield from length_errors(f"{path}.workerLostTimeout", multi.worker_lost_timeout)
    if multi.origin is not None and not is_label_value(multi.origin):
        yield FieldError(f"{path}.origin", multi.origin, LABEL_VALUE_RULE)
    yield from _external_frameworks(multi)
    if multi.cluster_profile is not None:
        yield from _profile(f"{path}.clusterProfile", multi.cluster_profile)
    yield from _steps(f"{path}.incrementalDispatcherConfig", multi)


def _profile(path: str, profile: ClusterProfile) -> Errors:
    if profile.access_providers and profile.credentials_providers:
        message = "must not be specified when accessProviders is specified"
        yield FieldError(f"{path}.credentialsProviders", None, message, "Forbidden")
    name = "accessProviders" if profile.access_providers else "credentialsProviders"
    for provider in profile.providers:
        yield from _provider(f"{path}.{name}", provider)


def _steps(path: str, multi: MultiKueue) -> Errors:
    steps = multi.incremental_dispatcher_config
    if steps is None:
        return
    if multi.dispatcher_name != INCREMENTAL_DISPATCHER:
        message = f"needs dispatcherName to be {INCREMENTAL_DISPATCHER}"
        yield FieldError(path, msgspec.to_builtins(steps), message)
    if steps.step_size is not None and steps.step_size < 1:
        message = "must be greater than or equal to 1"
        yield FieldError(f"{path}.stepSize", steps.step_size, message)


def _external_frameworks(multi: MultiKueue) -> Errors:
    seen = set()
    for index, framework in enumerate(multi.external_frameworks):
        path, kind = f"multiKueue.externalFrameworks[{index}].name", kind_of(framework.name)
        if kind is None:
            yield FieldError(path, framework.name, "must be in 'kind.version.group' format")
            continue
        if kind in seen:
            yield FieldError(path, framework.name, "is there twice", "Duplicate")
        seen.add(kind)
        if kind in KINDS.values():
            message = "conflicts with a built-in MultiKueue adapter"
            yield FieldError(path, framework.name, message)


def _provider(path: str, provider: AccessProvider) -> Errors:
    program = provider.exec_config
    for where, text in (
        ("name", provider.name),
        ("execConfig.command", program.command),
        ("execConfig.apiVersion", program.api_version),
        *(("execConfig.env.name", variable.name) for variable in program.env or ()),
        ("execConfig.interactiveMode", program.interactive_mode),
    ):
        if not text:
            yield FieldError(f"{path}.{where}", text, _UNSAID, "Required")
    modes = ("Never", "IfAvailable", "Always")
    if program.interactive_mode and program.interactive_mode not in modes:
        where = f"{path}.execConfig.interactiveMode"
        yield unsupported(where, program.interactive_mode, modes)
