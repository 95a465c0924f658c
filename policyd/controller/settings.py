"""Settings of the controller."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from policyd.alloc.settings import DEFAULTS, QueueingSettings
from policyd.api.configuration.frameworks import KINDS as FRAMEWORKS
from policyd.api.configuration.kinds import API_VERSION, ResourcesConfiguration
from policyd.api.configuration.tls import SYSTEM, TlsRules
from policyd.api.meta import Json
from policyd.controller.metrics.counters import MetricsSettings
from policyd.controller.retention import NO_LIMITS, TimeLimits
from policyd.jobs.copied import NO_KEYS, CopiedKeys
from policyd.jobs.integrations import EVERYTHING, Integrations
from policyd.multikueue.settings import DEFAULTS as MULTI_KUEUE
from policyd.multikueue.settings import MultiKueueSettings
from policyd.status.naming import OtherTeams


def _default_configuration() -> dict[str, Json]:
    """Return Kueue's defaults, except that all kinds of jobs queue."""
    every: Json = {"frameworks": list(FRAMEWORKS)}
    return {"apiVersion": API_VERSION, "kind": "Configuration", "integrations": every}


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastsSettings:
    """Whether there are forecasts, and what they remember.

    Attributes:
        enabled: Whether forecasts are made.
        names: Whether owners and names of jobs are remembered.
        memory: The ConfigMap in which the memory is stored, as `namespace/name`; "" to keep it in
            the process only.
    """

    enabled: bool = True
    names: bool = True
    memory: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Settings of the controller, beside the address of the API server."""

    identity: str = ""
    """Name in the election; another for each process. Empty: there is no election."""

    namespace: str = "policyd"
    """The namespace of the Lease."""

    lease: str = "policyd-controller"
    """Name of the Lease."""

    kueue_namespace: str = ""
    """The namespace of Kueue, whose Lease there says whether policyd may lead. Empty: no Kueue is
    looked for."""

    workers: int = 16
    """Keys reconciled at a time. Each waits for the API server most of the time; more than the
    client keeps in flight would only wait in another place."""

    queueing: QueueingSettings = DEFAULTS
    """Settings of all queues."""

    configuration: Mapping[str, Json] = field(default_factory=_default_configuration)
    """The fields of Kueue's Configuration that `queueing` and `resources` are made of, and
    which jobs queue, for commands that simulate the queues or show what the webhooks do."""

    limits: TimeLimits = NO_LIMITS
    """How long pods may take to get ready, and how long finished objects are kept."""

    copied: CopiedKeys = NO_KEYS
    """Labels and annotations of a job that its workload has too."""

    integrations: Integrations = EVERYTHING
    """Which kinds of jobs queue, and where."""

    resources: ResourcesConfiguration | None = None
    """The requests that count against quota, and their names there; None for all, unchanged."""

    other_teams: OtherTeams = "names"
    """Whether messages name the jobs of other namespaces."""

    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    """Which of Kueue's metrics there are."""

    forecasts: ForecastsSettings = field(default_factory=ForecastsSettings)
    """Whether starts are forecast, and what is remembered for that."""

    hours_record: str = ""
    """The ConfigMap in which GPU-hours are recorded, as `namespace/name`; "" to keep them in the
    process only, where they are lost at its end."""

    multi_kueue: MultiKueueSettings = MULTI_KUEUE
    """How jobs go to other clusters, where a check sends them there."""

    tls: TlsRules = SYSTEM
    """Restrictions of TLS for callers of the visibility API."""

    pprof_bind_address: str = ""
    """Where profiles of the process are served; "" for nowhere."""

    policies: bool = True
    """Whether to write the statuses of Policy objects, where their kind is served."""

    reports_outside_quota: bool = True
    """Whether to watch all pods for those that use resources of queues, but are in none."""

    deletes_outside_quota: bool = False
    """Whether such pods are deleted, as long as they have no node."""
