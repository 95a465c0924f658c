"""What a cluster would refuse of the controller's own writes: by our webhooks, or by itself."""

import msgspec

from policyd.api.kueue import Workload
from policyd.api.kueue.workload_validation import validate_workload
from policyd.jobs.kinds.registry import KINDS
from policyd.jobs.rules.validation import validate_job
from policyd.kube import resources as r
from policyd.testing.objects import ObjectStore, refusal

JOBS = {(kind.group, kind.kind) for kind in KINDS}


class Admitting(ObjectStore):
    """A store that looks at what the controller writes, as the webhooks do."""

    by_controller = False
    refused = None
    """What was refused, in words."""

    def _commit(self, resource, old, new, *, dry_run):
        if self.by_controller and new is not None and new != old:
            found = list(objections(resource, old, new))
            if found:
                self.refused = [*(self.refused or []), *found]
                raise refusal(422, "Invalid", "; ".join(found))
        return super()._commit(resource, old, new, dry_run=dry_run)


def objections(resource, old, new):
    """Yield what speaks against a write."""
    name = (resource.group, resource.kind)
    if resource == r.WORKLOADS:
        both = (msgspec.convert(each, Workload) if each else None for each in (new, old))
        yield from map(str, validate_workload(*both))
    elif name in JOBS or resource == r.PODS:
        yield from map(str, validate_job(new, old, group=name[0], kind=name[1]))
    if resource == r.PODS and old is not None:
        added = gates_of(new) - gates_of(old)
        if added:
            yield f"spec.schedulingGates: only deletion is allowed, but found {added}"


def gates_of(pod):
    return {each["name"] for each in pod.get("spec", {}).get("schedulingGates") or ()}
