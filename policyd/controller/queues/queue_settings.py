"""The settings of all queues, as a Kueue Configuration has them."""

from collections.abc import Mapping
from typing import cast

import msgspec

from policyd.alloc.settings import (
    FairSharingRules,
    Gates,
    QueueingSettings,
    Strategy,
    UsageBasedOrder,
)
from policyd.api.configuration import (
    API_VERSION,
    OLD_API_VERSION,
    Configuration,
    all_gates,
    chosen_gates,
    decode_configuration,
    duration_seconds,
    pods_ready_awaited,
)
from policyd.api.configuration.frameworks import KINDS as FRAMEWORKS
from policyd.api.configuration.kinds import (
    DurationText,
    IntegrationsConfiguration,
    RequeuingStrategy,
    WorkloadRetention,
)
from policyd.api.meta import Json
from policyd.controller.metrics.counters import MetricsSettings
from policyd.controller.retention import FOR_EVER, Retention, TimeLimits
from policyd.jobs.copied import CopiedKeys
from policyd.multikueue.settings import MultiKueueSettings, gated
from policyd.status.naming import OtherTeams
from policyd.workload.time_limits import ReadyRules

HEEDED = {
    "api_version",
    "kind",
    "feature_gates",
    "fair_sharing",
    "admission_fair_sharing",
    "resources",
    "wait_for_pods_ready",
    "object_retention_policies",
    "integrations",
    "manage_jobs_without_queue_name",
    "managed_jobs_namespace_selector",
    "multi_kueue",
    "pprof_bind_address",
    "tls",
    "visibility",
}

_DECIDING = (
    *("fair_sharing", "admission_fair_sharing", "resources", "wait_for_pods_ready"),
    *("integrations", "manage_jobs_without_queue_name", "managed_jobs_namespace_selector"),
)
"""The fields by which queues decide, and webhooks hold jobs, beside the feature gates."""


def ineffective_fields(configuration: Configuration) -> list[str]:
    """Return the fields that say something else than their defaults, and change nothing here."""
    defaults = [
        decode_configuration({"apiVersion": version, "kind": "Configuration"})
        for version in (API_VERSION, OLD_API_VERSION)
    ]
    given = _without_heeded_metrics(configuration, defaults[0])
    curves = ["tls.curvePreferences"] if given.tls and given.tls.curve_preferences else []
    return curves + [
        field.encode_name
        for field in msgspec.structs.fields(Configuration)
        if field.name not in HEEDED
        and all(getattr(given, field.name) != getattr(d, field.name) for d in defaults)
    ]


def _without_heeded_metrics(given: Configuration, default: Configuration) -> Configuration:
    """Return a Configuration whose heeded settings of metrics are the defaults."""
    heeded = {
        name: getattr(default.metrics, name)
        for name in ("custom_labels", "enable_cluster_queue_resources", "local_queue_metrics")
    }
    metrics = msgspec.structs.replace(given.metrics, **heeded)
    return msgspec.structs.replace(given, metrics=metrics)


def metrics_settings(configuration: Configuration, *, gates: str = "") -> MetricsSettings:
    """Return which of Kueue's metrics a Configuration asks for.

    Args:
        configuration: With defaults.
        gates: Feature gates from the command line: `A=true,B=false`.

    Raises:
        ConfigurationError: If something in it is wrong.
    """
    chosen, given = all_gates(chosen_gates(configuration, gates=gates)), configuration.metrics
    own = given.local_queue_metrics
    return MetricsSettings(
        resources=given.enable_cluster_queue_resources,
        local_queues=chosen["LocalQueueMetrics"] and own is not None and own.enable,
        selector=None if own is None else own.local_queue_selector,
        cohorts=chosen["MetricsForCohorts"],
        creation=chosen["MetricForWorkloadCreationLatency"],
        custom=given.custom_labels if chosen["CustomMetricLabels"] else (),
    )


def multi_kueue_settings(configuration: Configuration, *, gates: str = "") -> MultiKueueSettings:
    """Return how jobs go to other clusters.

    Args:
        configuration: With defaults.
        gates: Feature gates from the command line: `A=true,B=false`.

    Raises:
        ConfigurationError: If something in it is wrong.
    """
    chosen = all_gates(chosen_gates(configuration, gates=gates))
    settings, given = gated(chosen), configuration.multi_kueue
    if given is None:
        return settings
    steps = given.incremental_dispatcher_config
    heeded = steps is not None and chosen["MultiKueueIncrementalDispatcherConfig"]
    step = steps.step_size if heeded and steps is not None else None
    profiles = given.cluster_profile
    custom = given.external_frameworks if chosen["MultiKueueAdaptersForCustomJobs"] else ()
    lengths = {"collect_seconds": given.gc_interval, "lost_seconds": given.worker_lost_timeout}
    return msgspec.structs.replace(
        settings,
        origin=given.origin or settings.origin,
        dispatcher=given.dispatcher_name or settings.dispatcher,
        step=step or settings.step,
        frameworks=tuple(each.name for each in custom),
        providers=() if profiles is None else profiles.providers,
        **{name: duration_seconds(text) for name, text in lengths.items() if text is not None},
    )


def copied_keys(configuration: Configuration) -> CopiedKeys:
    """Return which labels and annotations of a job its workload has too."""
    integrations = configuration.integrations
    labels = () if integrations is None else integrations.label_keys_to_copy
    annotations = tuple(
        each.source_annotation_key
        for each in configuration.metrics.custom_labels
        if each.source_kind == "Workload" and each.source_annotation_key
    )
    return CopiedKeys(labels=labels, annotations=annotations)


def queue_settings(configuration: Configuration, *, gates: str = "") -> QueueingSettings:
    """Return the settings that a Configuration stands for.

    Args:
        configuration: With defaults.
        gates: Feature gates from the command line: `A=true,B=false`.

    Raises:
        ConfigurationError: If something in it is wrong.
    """
    chosen = chosen_gates(configuration, gates=gates)
    resources, ready = configuration.resources, configuration.wait_for_pods_ready
    requeuing = None if ready is None else ready.requeuing_strategy
    return QueueingSettings(
        gates=Gates.of(chosen),
        fair_sharing=_fair_sharing(configuration),
        admission_fair_sharing=_admission_fair_sharing(configuration, chosen),
        ignores_undeclared=resources is not None
        and resources.quota_check_strategy == "IgnoreUndeclared",
        blocks_until_ready=pods_ready_awaited(configuration, chosen)
        and ready is not None
        and bool(ready.block_admission),
        requeues_by_creation=requeuing is not None and requeuing.timestamp == "Creation",
    )


def deciding_fields(
    configuration: Configuration, *, gates: str = "", all_kinds: bool = False
) -> dict[str, Json]:
    """Return the fields of a Configuration by which queues decide, and which jobs queue.

    Args:
        configuration: With defaults.
        gates: Feature gates from the command line: `A=true,B=false`.
        all_kinds: Whether all known kinds queue, in all namespaces: without a file they do.

    Raises:
        ConfigurationError: If something in it is wrong.
    """
    chosen = dict(chosen_gates(configuration, gates=gates))
    given = {name: getattr(configuration, name) for name in _DECIDING}
    if all_kinds:
        every = IntegrationsConfiguration(frameworks=tuple(FRAMEWORKS))
        given |= {"integrations": every, "managed_jobs_namespace_selector": None}
    fields = Configuration(**given, feature_gates=chosen or None)
    document: dict[str, Json] = msgspec.to_builtins(fields)
    return {"apiVersion": API_VERSION, "kind": "Configuration", **document}


def other_teams(configuration: Configuration) -> OtherTeams:
    """Return whether messages name jobs of other namespaces, once that was checked."""
    given = None if configuration.visibility is None else configuration.visibility.other_teams
    return cast("OtherTeams", given or "names")


def time_limits(configuration: Configuration, *, gates: str = "") -> TimeLimits:
    """Return the time limits of workloads.

    Args:
        configuration: With defaults.
        gates: Feature gates from the command line: `A=true,B=false`.

    Raises:
        ConfigurationError: If something in it is wrong.
    """
    chosen = chosen_gates(configuration, gates=gates)
    policies = configuration.object_retention_policies
    kept = policies.workloads if policies is not None else None
    retention = FOR_EVER if kept is None else _retention(kept)
    return TimeLimits(ready=_ready_rules(configuration, chosen), retention=retention)


def _retention(kept: WorkloadRetention) -> Retention:
    return Retention(
        after_finished=_seconds(kept.after_finished),
        after_deactivated=_seconds(kept.after_deactivated_by_kueue),
    )


def _seconds(text: DurationText | None) -> float | None:
    return None if text is None else duration_seconds(text)


def _ready_rules(configuration: Configuration, chosen: Mapping[str, bool]) -> ReadyRules | None:
    ready = configuration.wait_for_pods_ready
    if ready is None or not pods_ready_awaited(configuration, chosen):
        return None
    strategy = ready.requeuing_strategy or RequeuingStrategy()
    return ReadyRules(
        timeout=duration_seconds(ready.timeout),
        recovery=duration_seconds(ready.recovery_timeout or ready.timeout),
        retries=strategy.backoff_limit_count,
        first_wait=strategy.backoff_base_seconds or 0,
        longest_wait=strategy.backoff_max_seconds or 0,
    )


def _fair_sharing(configuration: Configuration) -> FairSharingRules | None:
    sharing = configuration.fair_sharing
    if sharing is None:
        return None
    strategies = cast("tuple[Strategy, ...]", sharing.preemption_strategies)
    return FairSharingRules(strategies=strategies) if strategies else FairSharingRules()


def _admission_fair_sharing(
    configuration: Configuration, gates: Mapping[str, bool]
) -> UsageBasedOrder | None:
    sharing = configuration.admission_fair_sharing
    if sharing is None or not all_gates(gates)["AdmissionFairSharing"]:
        return None
    return UsageBasedOrder(
        half_life_seconds=duration_seconds(sharing.usage_half_life_time),
        sampling_seconds=duration_seconds(sharing.usage_sampling_interval),
        weights=sharing.resource_weights,
    )
