"""What policyd does otherwise than the Kueue of a cluster: what is lost, and what is different."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from policyd.api.configuration.fixed_gates import LEFT_OUT
from policyd.api.configuration.frameworks import kind_of
from policyd.api.configuration.gates import DEFAULTS
from policyd.api.configuration.kinds import API_VERSION
from policyd.migrate.kueue.configuration import KueueSettings
from policyd.migrate.kueue.survey import DEFAULT_LEASE, Consumer, Survey

Effect = Literal["lost", "different"]
SETTINGS: Final = "docs/reference/settings.md"
KNOWN_VERSIONS: Final = frozenset({"v1alpha1", "v1beta1", "v1beta2"})
NOTHING: Final = frozenset({"SchedulerLibraryIntegration"})
"""Gates that are off here, and without which no job is treated otherwise."""
PROCESS: Final = frozenset(
    {
        *("clientConnection", "controller", "health", "internalCertManagement", "leaderElection"),
        *("metrics", "namespace", "visibilityServer", "webhook"),
    }
)
"""Fields of the Configuration that are about Kueue's process; of `metrics`, a part."""
_SUFFIXES: Final = ("_bucket", "_count", "_sum")


@dataclass(frozen=True, slots=True)
class KueueDifference:
    """One thing that policyd does otherwise.

    Attributes:
        effect: Whether something is lost, or only different.
        subject: What it is about, such as `feature gate MultiKueue`.
        message: What policyd does.
        hint: What to do about it; "" for nothing.
    """

    effect: Effect
    subject: str
    message: str
    hint: str = ""


def differences(
    survey: Survey, settings: KueueSettings, *, ineffective: Iterable[str], metrics: frozenset[str]
) -> list[KueueDifference]:
    """Return what policyd does otherwise, what is lost first.

    Args:
        survey: The cluster.
        settings: Kueue's settings.
        ineffective: Fields of the Configuration without effect.
        metrics: The names of policyd's metrics.
    """
    found = [
        *_versions(survey),
        *_gates(settings),
        *_fields(settings, ineffective),
        *_kinds(survey, settings),
        *_objects(survey, settings),
        *_election(settings),
        *_webhooks(survey),
        *(each for consumer in survey.consumers for each in _consumer(consumer, metrics)),
    ]
    return sorted(found, key=lambda each: each.effect != "lost")


def _versions(survey: Survey) -> Iterator[KueueDifference]:
    for each in survey.definitions:
        subject = f"CustomResourceDefinition {each.name}"
        if "v1beta2" not in each.served and not each.name.startswith("multikueue"):
            served = ", ".join(each.served) or "nothing"
            hint = "upgrade Kueue to a version that serves v1beta2"
            yield KueueDifference(
                "lost", subject, f"policyd reads v1beta2, and {served} is served", hint
            )
        unknown = sorted(set(each.stored) - KNOWN_VERSIONS)
        if unknown:
            yield KueueDifference(
                "lost",
                subject,
                f"objects may be stored as {', '.join(unknown)}, which policyd does not convert",
                "have Kueue's storage migrated first",
            )
        elif "v1beta1" in each.stored:
            yield KueueDifference(
                "different",
                subject,
                "objects may be stored as v1beta1",
                "`policyd takeover start` stores them as v1beta2",
            )
    if any("v1beta1" in each.served for each in survey.definitions):
        yield KueueDifference(
            "different",
            "version v1beta1",
            "policyd converts it only if its webhooks serve it",
            "set webhooks.serveV1beta1 after the takeover, if manifests or clients use v1beta1",
        )


def _gates(settings: KueueSettings) -> Iterator[KueueDifference]:
    for name in settings.unknown_gates:
        yield KueueDifference(
            "lost",
            f"feature gate {name}",
            "policyd does not know it, and the values leave it out",
            "see docs/reference/feature-gates.md for those that there are",
        )
    for name, on in sorted((settings.gates or {}).items()):
        fixed = LEFT_OUT.get(name)
        if fixed is None or fixed.on is on or on is DEFAULTS[name]:
            continue  # what a default means is reported where it is used
        stays = "on" if fixed.on else "off"
        effect: Effect = "lost" if on and name not in NOTHING else "different"
        yield KueueDifference(effect, f"feature gate {name}", f"it stays {stays}: {fixed.reason}")


def _fields(settings: KueueSettings, ineffective: Iterable[str]) -> Iterator[KueueDifference]:
    for name in settings.unknown_fields:
        yield KueueDifference(
            "lost",
            f"Configuration {name}",
            "policyd does not know the field, and the values leave it out",
        )
    for name in ineffective:
        yield KueueDifference(
            "different",
            f"Configuration {name}",
            "it is about Kueue's process; policyd's have settings of their own",
            f"see {SETTINGS}",
        )


def _kinds(survey: Survey, settings: KueueSettings) -> Iterator[KueueDifference]:
    given = settings.configuration.integrations
    external = filter(None, map(kind_of, given.external_frameworks if given is not None else ()))
    others = {(group, kind) for group, _, kind in external}
    for (group, kind), found in sorted(survey.unmanaged.items()):
        subject = f"{kind}.{group}" if group else kind
        message = f"they have a queue name, and neither Kueue nor policyd queues them: {found}"
        if (group, kind) in others:
            message = f"its own controller queues them, as with Kueue: {found}"
        yield KueueDifference("different", subject, message)


def _objects(survey: Survey, settings: KueueSettings) -> Iterator[KueueDifference]:
    for name, controller in sorted(survey.checks.items()):
        if controller == "kueue.x-k8s.io/multikueue":
            yield KueueDifference(
                "different",
                f"AdmissionCheck {name}",
                "policyd sends jobs to other clusters with a setting, and neither pods nor sets",
                "set controller.multiKueue.enabled; see docs/guides/multi-cluster.md",
            )
    if survey.elsewhere.count:
        yield KueueDifference(
            "lost",
            "Workloads of other clusters",
            f"a takeover does not adopt jobs that run elsewhere: {survey.elsewhere}",
            "let them end first",
        )
    resources = settings.configuration.resources
    if survey.claiming.count and not (resources and resources.device_class_mappings):
        yield KueueDifference(
            "lost",
            "Workloads with ResourceClaims",
            f"no `resources.deviceClassMappings`, so they are held: {survey.claiming}",
            "see docs/concepts/devices.md",
        )


def _election(settings: KueueSettings) -> Iterator[KueueDifference]:
    given: Any = settings.document.get("leaderElection")
    given = given if isinstance(given, dict) else {}
    name = given.get("resourceName", DEFAULT_LEASE)
    if given.get("leaderElect") is False:
        yield KueueDifference(
            "different",
            "Configuration leaderElection.leaderElect",
            "Kueue takes no Lease, so it would not notice that policyd leads",
            "set it to true before you give the cluster back",
        )
    elif name != DEFAULT_LEASE:
        yield KueueDifference(
            "lost",
            "Configuration leaderElection.resourceName",
            f"policyd looks at the Lease {DEFAULT_LEASE} alone, and not at {name}",
            "leave the field out, and restart Kueue",
        )


def _webhooks(survey: Survey) -> Iterator[KueueDifference]:
    if survey.webhooks:
        yield KueueDifference(
            "different",
            f"webhook configurations {', '.join(sorted(survey.webhooks))}",
            "policyd has its own, which hold jobs alike",
            "`policyd takeover start` has the API server no longer call Kueue's",
        )


def _consumer(consumer: Consumer, known: frozenset[str]) -> Iterator[KueueDifference]:
    subject = f"{consumer.kind} {consumer.name}"
    missing = sorted(name for name in consumer.metrics if not _has(name, known))
    if missing:
        yield KueueDifference(
            "lost", subject, f"policyd has no {', '.join(missing)}", "see docs/reference/metrics.md"
        )
    clusters = sorted(n for n in consumer.metrics if "multikueue" in n and _has(n, known))
    if clusters:
        message = f"policyd has {', '.join(clusters)}, which count nothing"
        yield KueueDifference("different", subject, message)
    if consumer.kind in {"ServiceMonitor", "PodMonitor"}:
        yield KueueDifference(
            "different",
            subject,
            "it finds Kueue's pods, and not policyd's",
            "set metrics.enabled and metrics.serviceMonitor.enabled: docs/guides/monitor.md",
        )


def _has(name: str, known: frozenset[str]) -> bool:
    """Tell whether a metric, or the histogram that it is a part of, is known."""
    whole = (name.removesuffix(suffix) for suffix in _SUFFIXES)
    return name in known or any(each in known for each in whole)


def chart_values(
    survey: Survey, settings: KueueSettings, *, ineffective: Iterable[str]
) -> dict[str, Any]:
    """Return the values of policyd's chart that correspond to a Kueue.

    Args:
        survey: The cluster.
        settings: Kueue's settings.
        ineffective: Fields of the Configuration without effect, which are left out.
    """
    ignored = PROCESS.union(ineffective)
    document = {name: value for name, value in settings.document.items() if name not in ignored}
    if not {"customLabels", "enableClusterQueueResources", "localQueueMetrics"}.isdisjoint(
        settings.document.get("metrics") or ()
    ):
        metrics = settings.document["metrics"]
        document["metrics"] = {k: v for k, v in metrics.items() if k != "bindAddress"}
    document.setdefault("apiVersion", API_VERSION)
    controller: dict[str, Any] = {}
    if survey.namespace != "kueue-system":
        controller["kueueNamespace"] = survey.namespace
    controller["configuration"] = document
    # Kueue's chart owns the objects of its visibility API.
    controller["visibility"] = {"kueueApi": False}
    values: dict[str, Any] = {
        "controller": controller,
        "webhooks": {"extraArgs": [f"--starters={survey.account}"]},
    }
    if any(each.kind in {"ServiceMonitor", "PodMonitor"} for each in survey.consumers):
        values["metrics"] = {"enabled": True, "serviceMonitor": {"enabled": True}}
    return values
