"""What must hold for a Configuration: pure functions from its parts to field errors.

The rules, the paths and, where it states them, the words are Kueue's.
"""

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Final

import msgspec

from policyd.api.configuration.custom_labels import validate_custom_labels
from policyd.api.configuration.defaults import SYSTEM_NAMESPACE
from policyd.api.configuration.devices import validate_mappings
from policyd.api.configuration.duration import DurationError, duration_seconds
from policyd.api.configuration.frameworks import KINDS, kind_of
from policyd.api.configuration.gates import all_gates
from policyd.api.configuration.kinds import (
    Configuration,
    DurationText,
)
from policyd.api.configuration.multi_kueue import validate_multi_kueue
from policyd.api.configuration.problems import NEGATIVE, UNSAID, length_errors, unsupported
from policyd.api.kueue.validation import FieldError
from policyd.api.names import (
    LABEL_1035,
    LABEL_1035_RULE,
    NAME_LABEL,
    SUBDOMAIN_RULE,
    is_subdomain,
)

_STRATEGIES: Final = (
    ("LessThanOrEqualToFinalShare",),
    ("LessThanInitialShare",),
    ("LessThanOrEqualToFinalShare", "LessThanInitialShare"),
)
OTHER_TEAMS: Final = ("names", "team", "hidden")
"""Whether messages name jobs of other namespaces, their namespaces alone, or neither."""
_TLS_VERSIONS: Final = frozenset({"VersionTLS12", "VersionTLS13"})

Errors = Iterator[FieldError]


def validate_configuration(
    configuration: Configuration, gates: Mapping[str, bool]
) -> list[FieldError]:
    """Return what is wrong with a Configuration.

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
        *_transformations(configuration),
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
        return 1.0  # what is no length at all is said where it is checked


def _waiting(configuration: Configuration) -> Errors:
    path, waiting = "waitForPodsReady", configuration.wait_for_pods_ready
    if waiting is None:
        return
    if not _seconds(waiting.timeout):
        yield FieldError(f"{path}.timeout", waiting.timeout, UNSAID, "Required")
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
            yield FieldError(f"{path}.{name}", number, NEGATIVE)


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
        yield FieldError(path, [], UNSAID, "Required")
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
            yield FieldError(f"{path}.resourceWeights[{resource}]", weight, NEGATIVE)


def _certificates(configuration: Configuration) -> Errors:
    path, management = "internalCertManagement", configuration.internal_cert_management
    if management is None or not management.enable:
        return
    service, secret = management.webhook_service_name, management.webhook_secret_name
    if service is not None and not re.fullmatch(LABEL_1035, service):
        yield FieldError(f"{path}.webhookServiceName", service, LABEL_1035_RULE)
    if secret is not None and not is_subdomain(secret):
        yield FieldError(f"{path}.webhookSecretName", secret, SUBDOMAIN_RULE)


def _transformations(configuration: Configuration) -> Errors:
    resources, seen = configuration.resources, set()
    for index, each in enumerate(resources.transformations if resources else ()):
        path = f"resources.transformations[{index}]"
        if each.strategy not in {"Retain", "Replace"}:
            yield unsupported(f"{path}.strategy", each.strategy, ("Retain", "Replace"))
        if each.input in seen:
            yield FieldError(f"{path}.input", each.input, "is there twice", "Duplicate")
        seen.add(each.input)


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
    elif any(not suite.startswith("TLS_") for suite in tls.cipher_suites):
        message = "a cipher suite is not known"
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
