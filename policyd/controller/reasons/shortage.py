"""Which jobs hold the quota that a workload waits for, by the names of the jobs."""

from collections.abc import Sequence

from policyd.api.kueue import Workload
from policyd.api.meta import ObjectMeta
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.mirror import Mirror
from policyd.status.naming import Naming, team_of
from policyd.status.quantities import format_amount
from policyd.status.shortages import Shortage, and_others
from policyd.workload.families import parent_key
from policyd.workload.records import job_of


def naming_for(cache: Cache, key: str) -> Naming:
    """Return how jobs are named in messages on the workload of this key."""
    return naming_in(cache, team_of(key))


def naming_in(cache: Cache, namespace: str) -> Naming:
    """Return how jobs are named to users of a namespace; "" for those of none."""
    workloads: Mirror[Workload] = cache.mirrors.workloads

    def path(key: str) -> str:
        workload = workloads.get(key)
        if workload is None:
            return key
        return job_path((workloads.get(parent_key(workload)) or workload).metadata)

    return Naming(namespace=namespace, others=cache.other_teams, path=path)


def held_by(shortages: Sequence[Shortage], naming: Naming) -> str:
    """Return an addition to Kueue's message: the holders of missing quota; empty for none."""
    parts = []
    for shortage in shortages:
        if shortage.holders:
            resource = shortage.missing.resource
            amounts = naming.sums((each.workload, each.amount) for each in shortage.holders)
            holders = ", ".join(
                f"{name} ({format_amount(resource, amount)})" for name, amount in amounts.items()
            )
            parts.append((resource, holders + and_others(shortage.others)))
    if not parts:
        return ""
    if len(parts) == 1:
        return f"; held by {parts[0][1]}"
    return "".join(f"; {resource} held by {holders}" for resource, holders in parts)


def job_path(workload: ObjectMeta) -> str:
    """Return `namespace/name` of the job that a workload stands for, or of the workload itself."""
    return f"{workload.namespace}/{job_of(workload).partition('/')[2] or workload.name}"
