"""Kueue's Configuration, `config.kueue.x-k8s.io/v1beta2`, as its file says it.

Every field may be missing; None is unset. Lengths of time stay as they are written.
"""

from typing import Final

from policyd.api.meta import Wire
from policyd.api.schema import QuantityText
from policyd.api.selectors import LabelSelector

GROUP: Final = "config.kueue.x-k8s.io"
API_VERSION: Final = f"{GROUP}/v1beta2"
OLD_API_VERSION: Final = f"{GROUP}/v1beta1"

DurationText = str
"""A duration as Go writes it: `1h30m`, `500ms`."""


class Strict(Wire, frozen=True, forbid_unknown_fields=True):
    """Base of the parts of a Configuration: an unknown field is an error."""


class WebhookListener(Strict, frozen=True):
    """Where Kueue's webhooks listen."""

    port: int | None = None
    host: str = ""
    cert_dir: str = ""


class LeaderElectionConfiguration(Strict, frozen=True):
    """The election of the replica that writes."""

    leader_elect: bool | None = None
    lease_duration: DurationText = ""
    renew_deadline: DurationText = ""
    retry_period: DurationText = ""
    resource_lock: str = ""
    resource_name: str = ""
    resource_namespace: str = ""


class LocalQueueMetrics(Strict, frozen=True):
    """Which LocalQueues have metrics of their own."""

    enable: bool = False
    local_queue_selector: LabelSelector | None = None


class CustomLabel(Strict, frozen=True):
    """A label of metrics that is taken from an object's label or annotation."""

    name: str = ""
    source_label_key: str = ""
    source_annotation_key: str = ""
    source_kind: str | None = None
    tracked_values: tuple[str, ...] = ()


class MetricsConfiguration(Strict, frozen=True):
    """Where metrics are served, and which."""

    bind_address: str = ""
    enable_cluster_queue_resources: bool = False
    local_queue_metrics: LocalQueueMetrics | None = None
    custom_labels: tuple[CustomLabel, ...] = ()


class HealthConfiguration(Strict, frozen=True):
    """Where probes are answered."""

    health_probe_bind_address: str = ""
    readiness_endpoint_name: str = ""
    liveness_endpoint_name: str = ""


class ControllerConfiguration(Strict, frozen=True):
    """How many objects of a kind are reconciled at a time."""

    group_kind_concurrency: dict[str, int] = {}
    cache_sync_timeout: DurationText | int | None = None


class Tls(Strict, frozen=True):
    """Which TLS the servers speak."""

    min_version: str = ""
    cipher_suites: tuple[str, ...] = ()
    curve_preferences: tuple[int, ...] = ()


class InternalCertManagement(Strict, frozen=True):
    """Whether the certificate of the webhooks is made here."""

    enable: bool | None = None
    webhook_service_name: str | None = None
    webhook_secret_name: str | None = None


class RequeuingStrategy(Strict, frozen=True):
    """When a workload whose pods did not get ready is tried again."""

    timestamp: str | None = None
    backoff_limit_count: int | None = None
    backoff_base_seconds: int | None = None
    backoff_max_seconds: int | None = None


class WaitForPodsReady(Strict, frozen=True):
    """How long pods may take to get ready, and the response if they take longer."""

    timeout: DurationText = ""
    block_admission: bool | None = None
    recovery_timeout: DurationText | None = None
    requeuing_strategy: RequeuingStrategy | None = None


class ClientConnection(Strict, frozen=True):
    """How often the API server is called."""

    qps: float | None = None
    burst: int | None = None


class IntegrationsConfiguration(Strict, frozen=True):
    """Which kinds of jobs are queued."""

    frameworks: tuple[str, ...] | None = None
    external_frameworks: tuple[str, ...] = ()
    label_keys_to_copy: tuple[str, ...] = ()


class EnvironmentVariable(Strict, frozen=True):
    """A variable for a program."""

    name: str = ""
    value: str = ""


class ExecConfig(Strict, frozen=True):
    """A program that says how to reach a cluster."""

    command: str = ""
    api_version: str = ""
    args: tuple[str, ...] = ()
    env: tuple[EnvironmentVariable, ...] | None = ()
    install_hint: str = ""
    interactive_mode: str = ""
    provide_cluster_info: bool = False


class AccessProvider(Strict, frozen=True):
    """A way to reach the clusters of ClusterProfiles."""

    name: str = ""
    exec_config: ExecConfig = ExecConfig()


class ClusterProfile(Strict, frozen=True):
    """How ClusterProfiles are reached; `credentials_providers` is the old name."""

    access_providers: tuple[AccessProvider, ...] = ()
    credentials_providers: tuple[AccessProvider, ...] = ()

    @property
    def providers(self) -> tuple[AccessProvider, ...]:
        """The providers, under whichever name they were given."""
        return self.access_providers or self.credentials_providers


class IncrementalDispatcherConfig(Strict, frozen=True):
    """How many clusters are tried at a time."""

    step_size: int | None = None


class ExternalFramework(Strict, frozen=True):
    """A kind of job that other clusters run: `Kind.version.group`."""

    name: str = ""


class MultiKueue(Strict, frozen=True):
    """How jobs go to other clusters."""

    gc_interval: DurationText | None = None
    origin: str | None = None
    worker_lost_timeout: DurationText | None = None
    dispatcher_name: str | None = None
    incremental_dispatcher_config: IncrementalDispatcherConfig | None = None
    external_frameworks: tuple[ExternalFramework, ...] = ()
    cluster_profile: ClusterProfile | None = None


class FairSharingConfiguration(Strict, frozen=True):
    """Cohorts share by weight."""

    preemption_strategies: tuple[str, ...] = ()


class AdmissionFairSharingConfiguration(Strict, frozen=True):
    """Order of workloads by the past usage of their LocalQueues."""

    usage_half_life_time: DurationText = "0s"
    usage_sampling_interval: DurationText = "0s"
    resource_weights: dict[str, float] = {}


class ResourceTransformation(Strict, frozen=True):
    """Turns one requested resource into others, for quota."""

    input: str = ""
    strategy: str | None = None
    multiply_by: str = ""
    outputs: dict[str, QuantityText] = {}


class CelSelector(Strict, frozen=True):
    """A condition on a device."""

    expression: str = ""


class DeviceSelector(Strict, frozen=True):
    """Which devices are counted."""

    cel: CelSelector | None = None


class DeviceSource(Strict, frozen=True):
    """A counter or a capacity of devices that is charged."""

    name: str = ""
    driver: str = ""
    device_selector: DeviceSelector = DeviceSelector()


class DeviceClassSource(Strict, frozen=True):
    """The amounts charged for a device, instead of the device: one of the two."""

    counter: DeviceSource | None = None
    capacity: DeviceSource | None = None


class DeviceClassMapping(Strict, frozen=True):
    """The resource whose quota devices of some classes are charged to."""

    name: str = ""
    device_class_names: tuple[str, ...] = ()
    sources: tuple[DeviceClassSource, ...] = ()


class ResourcesConfiguration(Strict, frozen=True):
    """Which requests count against quota, and how."""

    quota_check_strategy: str | None = None
    exclude_resource_prefixes: tuple[str, ...] = ()
    transformations: tuple[ResourceTransformation, ...] = ()
    device_class_mappings: tuple[DeviceClassMapping, ...] = ()
    gpu_fractions: bool = False
    """Whether parts of GPUs are counted: policyd's own field, Kueue has none."""


class WorkloadRetention(Strict, frozen=True):
    """How long Workloads are kept; None is for ever."""

    after_finished: DurationText | None = None
    after_deactivated_by_kueue: DurationText | None = None


class ObjectRetentionPolicies(Strict, frozen=True):
    """How long objects are kept."""

    workloads: WorkloadRetention | None = None


class VisibilityServer(Strict, frozen=True):
    """Where positions in queues are served."""

    bind_address: str | None = None
    bind_port: int | None = None


class Visibility(Strict, frozen=True):
    """How much a team sees of others: policyd's own field, Kueue has none."""

    other_teams: str | None = None


class Configuration(Strict, frozen=True):
    """The settings of Kueue's administrator for all queues."""

    api_version: str = API_VERSION
    kind: str = "Configuration"
    namespace: str | None = None
    webhook: WebhookListener = WebhookListener()
    leader_election: LeaderElectionConfiguration | None = None
    metrics: MetricsConfiguration = MetricsConfiguration()
    health: HealthConfiguration = HealthConfiguration()
    pprof_bind_address: str = ""
    controller: ControllerConfiguration | None = None
    tls: Tls | None = None
    manage_jobs_without_queue_name: bool = False
    managed_jobs_namespace_selector: LabelSelector | None = None
    internal_cert_management: InternalCertManagement | None = None
    wait_for_pods_ready: WaitForPodsReady | None = None
    client_connection: ClientConnection | None = None
    integrations: IntegrationsConfiguration | None = None
    multi_kueue: MultiKueue | None = None
    fair_sharing: FairSharingConfiguration | None = None
    admission_fair_sharing: AdmissionFairSharingConfiguration | None = None
    resources: ResourcesConfiguration | None = None
    feature_gates: dict[str, bool] | None = None
    object_retention_policies: ObjectRetentionPolicies | None = None
    visibility_server: VisibilityServer | None = None
    visibility: Visibility | None = None
