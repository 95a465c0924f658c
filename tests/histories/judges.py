"""What must hold in every history, whatever happened in it.

Each judge takes the world after the last event, reads all that was written, and yields sentences
about what must not be.
"""

from collections import Counter, defaultdict

from policyd.api.kueue.names import (
    ADMITTED,
    EVICTED,
    FINISHED,
    MANAGED,
    POD_GROUP_NAME,
    QUOTA_RESERVED,
)
from tests.histories.accounts import OWN
from tests.histories.decisions import decisions_are_the_cores
from tests.histories.gangs import gangs_are_whole, places_are_free
from tests.histories.lifecycle import life_is_as_documented
from tests.histories.order import own_quota_comes_back, priority_is_heeded, shares_are_fair
from tests.histories.preemptions import preemptions_are_just
from tests.histories.quota import (
    GRACE_SECONDS,
    no_quota_is_idle,
    quota_is_kept,
    what_runs_has_quota,
)
from tests.histories.reasons import all_have_reasons, reasons_are_true, reasons_stay_true
from tests.histories.record import (
    WORKLOADS,
    condition,
    held_gpus,
    is_true,
    owner_of,
    waits_for_good,
)
from tests.histories.starts import (
    STARTED,
    starts,
    starts_are_as_admitted,
    workloads_are_as_their_jobs,
)
from tests.histories.statuses import statuses_are_true, times_are_now
from tests.soak.operators import is_over

LEASES = "leases.coordination.k8s.io"
UNJUDGED = frozenset({"events", LEASES})
"""What decides nothing: events are of what was written before."""
MOST_WRITES, MORE_WRITES = 30, 12
"""Writes of a workload by the controller; and for each eviction, fault or change by others more."""


def nothing_starts_unadmitted(world, log):
    """A job or pod is started by the queue alone, while its workload is admitted."""
    admitted = defaultdict(dict)
    for v in world.record.versions:
        if v.resource == WORKLOADS:
            name = v.key.partition("/")[2]
            until = admitted[owner_of(v.last), name].get("until", float("-inf"))
            now = v.new is not None and is_true(v.new, ADMITTED) and not is_true(v.new, EVICTED)
            was = v.old is not None and is_true(v.old, ADMITTED) and not is_true(v.old, EVICTED)
            until = float("inf") if now else v.at if was else until
            admitted[owner_of(v.last), name]["until"] = until
        elif v.resource in STARTED and starts(v):
            group = v.last["metadata"].get("labels", {}).get(POD_GROUP_NAME)
            uid = v.last["metadata"]["uid"]
            found = [
                each["until"]
                for (owner, name), each in admitted.items()
                if owner == uid or (group and name == group)
            ]
            if max(found, default=float("-inf")) < v.at - GRACE_SECONDS:
                yield f"{v.at:.1f} s: {v.who} starts {v.resource} {v.key}, which is not admitted"


def nothing_is_doubled(world, log):
    """No job holds quota twice, and no workload is admitted again without a release."""
    holders = {}
    for v in world.record.of(WORKLOADS):
        was, now = bool(held_gpus(v.old)), bool(held_gpus(v.new))
        owner = owner_of(v.last) or v.key
        if was and not now:
            holders.pop((owner, v.key), None)
        if now and not was:
            others = [key for o, key in holders if o == owner and key != v.key]
            if others:
                yield f"{v.at:.1f} s: {v.key} holds quota for a job that {others[0]} holds for"
            holders[owner, v.key] = True
        if was and now and v.old["status"]["admission"] != v.new["status"]["admission"]:
            before, after = (each["status"]["admission"] for each in (v.old, v.new))
            if before["clusterQueue"] != after["clusterQueue"]:
                yield f"{v.at:.1f} s: {v.key} moves to another queue without a release"


def all_runs_in_the_end(world, log):
    """Once faults stop, all that can run has run, and nothing is left of what is gone."""
    if not world.record.quiet_since:
        return
    store = world.cluster.store
    for resource in (WORKLOADS, *STARTED):
        for _, obj in store.items(resource):
            metadata = obj["metadata"]
            if metadata.get("deletionTimestamp"):
                yield f"{resource} {metadata['name']} is deleted and stays: {metadata}"[:300]
    for resource, left in ((WORKLOADS, _workload_left), ("pods", _pod_left)):
        for _, obj in store.items(resource):
            if not waits_for_good(obj):
                yield from left(obj)


def _workload_left(workload):
    if workload["spec"].get("active", True) and not is_true(workload, FINISHED):
        found = condition(workload, QUOTA_RESERVED)
        why = f"{found.get('status')}: {found.get('message', 'no reason')}"
        yield f"workload {workload['metadata']['name']} has not finished ({why[:200]})"


def _pod_left(pod):
    phase, name, metadata = pod["status"].get("phase"), pod["metadata"]["name"], pod["metadata"]
    if phase in {"Succeeded", "Failed"}:
        if metadata.get("finalizers"):
            yield f"pod {name} has ended, and keeps {metadata['finalizers']}"
    elif MANAGED in metadata.get("labels", {}) and not metadata.get("deletionTimestamp"):
        yield f"pod {name} is still {phase}"


def nothing_is_lost(world, log):
    """Every job that still stands has its workload."""
    if not world.record.quiet_since:
        return
    owners = {owner_of(w) for _, w in world.cluster.store.items(WORKLOADS)}
    for resource in STARTED[1:]:
        for _, job in world.cluster.store.items(resource):
            metadata = job["metadata"]
            queued = "kueue.x-k8s.io/queue-name" in metadata.get("labels", {})
            ended = is_over(job)
            if queued and not ended and metadata["uid"] not in owners:
                yield f"{resource} {metadata['name']} has no workload"


def nobody_foresaw_no_error(world, log):
    """No error came up in product code that it does not expect, and no process ended."""
    for error in log.errors:
        yield f"{error.get('event')}: {error.get('traceback', '')[-700:]}"
    for context in world.loop.errors:
        yield f"{context.get('message')}: {context.get('exception')!r}"
    processes = [*world.cluster.controllers, world.rest]
    for process, task in ((p, task) for p in processes for task in p.kept if task.done()):
        if not task.cancelled() and task.exception():
            yield f"{process.name} ended: {task.exception()!r}"


def only_the_leader_writes(world, log):
    """A controller writes nothing once another one has the Lease, but what was under way then."""
    holder, since = "", 0.0
    for v in world.record.versions:
        if v.resource == LEASES:
            now = v.last["spec"].get("holderIdentity", "") if v.who == OWN else ""
            holder, since = now, since if now == holder else v.at
        elif v.who != OWN or v.resource in UNJUDGED or v.process == holder:
            continue
        elif holder and v.at > since + GRACE_SECONDS:
            yield f"{v.at:.1f} s: {v.process} writes {v.resource} {v.key}, and {holder} leads"


def writes_are_legal(world, log):
    """The controller asks for nothing that its roles, the chart's policies or webhooks refuse."""
    for account, call, text in world.cluster.network.refused:
        if account == OWN:
            yield f"{call}: {text[:400]}"


def writes_are_bounded(world, log):
    """The controller writes a workload a number of times, and nothing when nothing happens.

    So are evictions: a workload may be preempted by each other one, and by what happens.
    """
    writes, others, evictions = Counter(), Counter(), Counter()
    for v in world.record.of(WORKLOADS):
        writes[v.key] += v.who == OWN
        others[v.key] += v.who != OWN or is_true(v.new, EVICTED) != is_true(v.old, EVICTED)
        evictions[v.key] += is_true(v.new, EVICTED) and not is_true(v.old, EVICTED)
    for key, count in writes.items():
        most = MOST_WRITES + MORE_WRITES * (others[key] + world.record.faults)
        if count > most:
            yield f"{key} was written {count} times by the controller"
        if evictions[key] > len(world.plan.events):
            yield f"{key} was evicted {evictions[key]} times"
    quiet = world.record.quiet_since
    if quiet:
        own = [v for v in world.record.versions if v.who == OWN and v.resource not in UNJUDGED]
        late = [f"{v.resource} {v.key}" for v in own if v.at > quiet + 120]
        if late:
            yield f"{len(late)} writes when nothing happens, such as of {late[0]}"


JUDGES = {
    "quota": quota_is_kept,
    "in use": what_runs_has_quota,
    "unadmitted": nothing_starts_unadmitted,
    "idle": no_quota_is_idle,
    "doubled": nothing_is_doubled,
    "life": life_is_as_documented,
    "gangs": gangs_are_whole,
    "places": places_are_free,
    "priority": priority_is_heeded,
    "own quota": own_quota_comes_back,
    "preemptions": preemptions_are_just,
    "fairness": shares_are_fair,
    "reasons": reasons_are_true,
    "stale reasons": reasons_stay_true,
    "no reason": all_have_reasons,
    "starts": starts_are_as_admitted,
    "copies": workloads_are_as_their_jobs,
    "decisions": decisions_are_the_cores,
    "leader": only_the_leader_writes,
    "rights": writes_are_legal,
    "the end": all_runs_in_the_end,
    "lost": nothing_is_lost,
    "errors": nobody_foresaw_no_error,
    "writes": writes_are_bounded,
    "statuses": statuses_are_true,
    "times": times_are_now,
}
