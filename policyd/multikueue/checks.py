"""Admission checks that send jobs to other clusters: their parameters, and whether they work."""

from collections.abc import Mapping, Sequence

from policyd.api.kueue import AdmissionCheck, Workload
from policyd.api.kueue.multikueue import MultiKueueCluster, MultiKueueConfig
from policyd.api.kueue.names import ACTIVE, GROUP, MULTI_KUEUE
from policyd.api.meta import Condition, condition_true, find_condition, timestamp
from policyd.multikueue.connections import same_state


def sends_away(check: AdmissionCheck) -> bool:
    """Tell whether a check sends jobs to other clusters."""
    return check.spec.controller_name == MULTI_KUEUE


def find_config(
    check: AdmissionCheck, configs: Mapping[str, MultiKueueConfig]
) -> MultiKueueConfig | str:
    """Return the parameters of a check; a message if they cannot be used.

    Args:
        check: The check.
        configs: All configs by name.
    """
    given = check.spec.parameters
    if given is None:
        return "missing parameters reference"
    for what, actual, wanted in (
        ("group", given.api_group, GROUP),
        ("kind", given.kind, "MultiKueueConfig"),
    ):
        if actual != wanted:
            return f'wrong {what} "{actual}", expecting "{wanted}": bad parameters reference'
    if not given.name:
        return "missing name: bad parameters reference"
    found = configs.get(given.name)
    return f'MultiKueueConfig.{GROUP} "{given.name}" not found' if found is None else found


def check_condition(
    check: AdmissionCheck,
    configs: Mapping[str, MultiKueueConfig],
    clusters: Mapping[str, MultiKueueCluster],
    *,
    now: float,
) -> Condition | None:
    """Return the condition that says whether a check works; None if it says so already.

    Args:
        check: The check.
        configs: All configs by name.
        clusters: All clusters by name.
        now: Seconds since the epoch.
    """
    config = find_config(check, configs)
    if isinstance(config, str):
        message = f"Cannot load the AdmissionChecks parameters: {config}"
        state = ("False", "BadConfig", message)
    else:
        state = _state(config.spec.clusters, clusters)
    status, reason, message = state
    new = Condition(
        type=ACTIVE,
        status="True" if status == "True" else "False",
        reason=reason,
        message=message,
        last_transition_time=timestamp(now),
        observed_generation=check.metadata.generation,
    )
    return None if same_state(find_condition(check.status.conditions, ACTIVE), new) else new


def _state(names: Sequence[str], clusters: Mapping[str, MultiKueueCluster]) -> tuple[str, str, str]:
    missing = [name for name in names if name not in clusters]
    inactive = [
        name
        for name in names
        if name in clusters and not condition_true(clusters[name].status.conditions, ACTIVE)
    ]
    unusable = len(missing) + len(inactive)
    if not unusable:
        return "True", ACTIVE, "The admission check is active"
    parts = (("Missing", missing), ("Inactive", inactive))
    message = ", ".join(f"{what} clusters: [{' '.join(some)}]" for what, some in parts if some)
    some_left = unusable < len(names)
    return (
        ("True", "SomeActiveClusters", message)
        if some_left
        else ("False", "NoUsableClusters", message)
    )


def workloads_of(check: str, workloads: Sequence[Workload]) -> list[Workload]:
    """Return the workloads that a check decides on."""
    return [w for w in workloads if any(s.name == check for s in w.status.admission_checks)]


def concerns_workloads(old: AdmissionCheck | None, new: AdmissionCheck | None) -> bool:
    """Tell whether a change of a check matters to its workloads: where they may be sent to.

    Args:
        old: The check before; None if it is new.
        new: The check now; None if it was deleted.
    """
    before = old is not None and sends_away(old)
    after = new is not None and sends_away(new)
    if old is None or new is None or before is not after:
        return before or after
    return after and old.spec.parameters != new.spec.parameters


def clusters_changed(old: MultiKueueConfig, new: MultiKueueConfig) -> bool:
    """Tell whether another set or order of clusters is to be used."""
    return old.spec.clusters != new.spec.clusters
