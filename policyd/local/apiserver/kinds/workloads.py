"""Deployments, ReplicaSets, StatefulSets and DaemonSets, which are stored but not run."""

from collections.abc import Iterator

from policyd.api.selectors import LabelSelector
from policyd.local.apiserver.kinds.jobs import default_job_spec
from policyd.local.apiserver.kinds.pod_checks import check_template
from policyd.local.apiserver.kinds.pod_defaults import default_template
from policyd.local.apiserver.status import (
    Cause,
    Object,
    not_permitted,
    not_supported,
    required,
    wrong,
)

ROLLING = {"maxSurge": "25%", "maxUnavailable": "25%"}


def default_deployment(deployment: Object) -> None:
    """Fill in a deployment's spec."""
    spec = _default_replicated(deployment)
    strategy = spec.setdefault("strategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        strategy["rollingUpdate"] = ROLLING | strategy.get("rollingUpdate", {})
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)


def default_stateful_set(stateful_set: Object) -> None:
    """Fill in a stateful set's spec."""
    spec = _default_replicated(stateful_set)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("updateStrategy", {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
    retention = {"whenDeleted": "Retain", "whenScaled": "Retain"}
    spec.setdefault("persistentVolumeClaimRetentionPolicy", retention)


def default_replica_set(replica_set: Object) -> None:
    """Fill in the spec of a replica set or replication controller."""
    _default_replicated(replica_set)


def default_daemon_set(daemon_set: Object) -> None:
    """Fill in a daemon set's spec."""
    spec = daemon_set.setdefault("spec", {})
    default_template(spec.setdefault("template", {}))
    spec.setdefault("revisionHistoryLimit", 10)
    rolling = {"maxSurge": 0, "maxUnavailable": 1}
    spec.setdefault("updateStrategy", {"type": "RollingUpdate", "rollingUpdate": rolling})


def default_cron_job(cron_job: Object) -> None:
    """Fill in a cron job's spec."""
    spec = cron_job.setdefault("spec", {})
    template = spec.setdefault("jobTemplate", {})
    template.setdefault("metadata", {})
    default_job_spec(template.setdefault("spec", {}))
    template["spec"]["template"].setdefault("metadata", {})
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("failedJobsHistoryLimit", 1)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("suspend", False)


def _default_replicated(workload: Object) -> Object:
    spec: Object = workload.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    default_template(spec.setdefault("template", {}))
    return spec


STRATEGIES = ("Recreate", "RollingUpdate")


def check_deployment(deployment: Object) -> Iterator[Cause]:
    """Check a deployment that is created or changed."""
    yield from check_workload(deployment)
    strategy = deployment["spec"]["strategy"]
    if strategy["type"] not in STRATEGIES:
        yield not_supported("spec.strategy", strategy, STRATEGIES)
    elif strategy["type"] == "Recreate" and "rollingUpdate" in strategy:
        why = "may not be specified when strategy `type` is 'Recreate'"
        yield not_permitted("spec.strategy.rollingUpdate", why)


def check_workload(workload: Object) -> Iterator[Cause]:
    """Check a workload that is created or changed."""
    spec = workload["spec"]
    for field in ("replicas", "minReadySeconds"):
        if spec.get(field, 0) < 0:
            yield wrong(f"spec.{field}", spec[field], "must be greater than or equal to 0")
    labels = spec["template"].get("metadata", {}).get("labels")
    selector = spec.get("selector")
    if selector is None:
        yield required("spec.selector")
    elif not selector:
        what = f"empty selector is invalid for {workload['kind'].lower()}"
        yield wrong("spec.selector", selector, what)
        return
    wanted = LabelSelector(match_labels=(selector or {}).get("matchLabels", {}))
    if selector is None or not wanted.matches(labels or {}):
        why = "`selector` does not match template `labels`"
        yield wrong("spec.template.metadata.labels", labels, why)
    yield from check_template(spec["template"], "spec.template")


def check_workload_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check a change of a workload."""
    selector = new["spec"].get("selector")
    if selector != old["spec"].get("selector"):
        yield wrong("spec.selector", selector, "field is immutable")


CHANGEABLE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
"""The fields of a stateful set that can change."""


def check_stateful_set_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check a change of a stateful set."""
    fixed, before = (
        {name: part for name, part in value["spec"].items() if name not in CHANGEABLE}
        for value in (new, old)
    )
    if fixed != before:
        quoted = [f"'{name}'" for name in CHANGEABLE]
        listed = f"{', '.join(quoted[:-1])} and {quoted[-1]}"
        why = f"updates to statefulset spec for fields other than {listed} are forbidden"
        yield not_permitted("spec", why)


def check_cron_job(cron_job: Object) -> Iterator[Cause]:
    """Check a cron job that is created or changed."""
    spec = cron_job["spec"]
    if not spec.get("schedule"):
        yield required("spec.schedule")
    template = spec["jobTemplate"]["spec"]["template"]
    yield from check_template(template, "spec.jobTemplate.spec.template")
