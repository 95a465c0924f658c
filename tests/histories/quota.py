"""Judges of quota: what is admitted was left in the queue and its cohorts, and nothing is idle."""

from collections import Counter, defaultdict

from policyd.api.kueue.names import GROUP
from tests.histories.order import Own
from tests.histories.record import WORKLOADS, gpus_of, has_ended, held_gpus, owner_of

GRACE_SECONDS = 70.0
"""So long may a write be on its way that was decided before a quota was cut, or before another user
stopped what it starts: retries of a call, and the delay of a watch."""
IDLE_SECONDS = 120.0
"""So long may quota be left that the first of a queue could have."""
INFINITE = float("inf")
KINDS = f"clusterqueues.{GROUP}", f"cohorts.{GROUP}"


def quota_is_kept(world, log):
    """No workload takes more than what its queue and its cohorts had left, by the quota of lately.

    What a queue does not lend is its own. Of the rest, it gets what its cohort has left, up to its
    borrowing limit; and so does each cohort from the one above.
    """
    quotas = Quotas()
    held = {}
    for v in world.record.versions:
        if has_other_quota(v):
            quotas.note(v)
        if v.resource != WORKLOADS:
            continue
        before, now = held.pop(v.key, Counter()), held_gpus(v.new)
        used = sum(held.values(), Counter())
        for queue in now:
            more = now[queue] - before[queue]
            left = quotas.left(queue, v.at, used + before) if more > 0 else more
            if more > left:
                yield f"{v.at:.1f} s: {v.key} takes {more} GPUs of {queue}, which has {left} left"
        if now:
            held[v.key] = now


def no_quota_is_idle(world, log):
    """The first of a queue does not wait long for quota that is left, unless it needs a place.

    As in Kueue, the first of a StrictFIFO queue may keep its cohort from lending.
    """
    setting = world.plan.setting["queues"]
    queues, quotas, idle = {name: Own(name, world) for name in setting}, Quotas(), {}
    for v in world.record.versions:
        if has_other_quota(v):
            quotas.note(v)
            if queue := queues.get(v.key.lstrip("/")) if v.resource == KINDS[0] else None:
                queue.change(v)
        elif v.resource != WORKLOADS or not sum(queue.note(v) for queue in queues.values()):
            continue
        used = Counter({name: queue.held for name, queue in queues.items()})
        blocked = {
            setting[name]["cohort"] and name
            for name, queue in queues.items()
            if setting[name]["strategy"] == "StrictFIFO" and queue.first()[0]
        }
        for name, queue in queues.items():
            key, head = queue.first()
            fits = key and queue.is_open and not blocked - {name, ""}
            fits = fits and head.gpus <= quotas.left(name, v.at, used, lately=False)
            before, since = idle.pop(name, ("", v.at))
            if before and v.at - since > IDLE_SECONDS and world.record.was_calm(v.at, v.at - since):
                yield f"{v.at:.1f} s: {before} waits since {since:.1f} s, and {name} has quota left"
                since = v.at
            if fits:
                idle[name] = (key, since if before == key else v.at)


def what_runs_has_quota(world, log):
    """The pods of a job request no more, but for a while, than its workload holds."""
    pods, held, since = defaultdict(dict), {}, {}
    for v in world.record.versions:
        uid = owner_of(v.last)
        if v.resource == WORKLOADS:
            held[uid] = held_gpus(v.new).total()
        elif v.resource == "pods":
            pods[uid][v.key] = 0 if v.new is None or has_ended(v.new) else gpus_of(v.new["spec"])
        if v.resource not in {WORKLOADS, "pods"} or uid not in held:
            continue
        began, used = since.pop(uid, v.at), sum(pods[uid].values())
        if v.at - began > GRACE_SECONDS and world.record.was_calm(v.at, v.at - began):
            yield f"{v.at:.1f} s: {v.key}, more than its quota was in use since {began:.1f} s"
        elif used > held[uid]:
            since[uid] = began


def has_other_quota(v):
    """Tell whether a write gives a queue or a cohort other quotas."""
    new = v.resource in KINDS and v.new is not None
    return new and (v.old is None or v.old["spec"] != v.new["spec"])


class Quotas:
    """The quotas of queues and cohorts, as they were."""

    def __init__(self):
        self._of = defaultdict(list)
        self._parents, self._children = {}, defaultdict(set)

    def note(self, v):
        """Take a write of a queue or a cohort."""
        spec, cohort = v.new["spec"], v.resource == KINDS[1]
        node = cohort, v.key.lstrip("/")
        parent = spec.get("parentName" if cohort else "cohortName")
        self._parents[node] = (True, parent) if parent else None
        if parent:
            self._children[True, parent].add(node)
        quota = {"nominalQuota": 0}
        for group in spec.get("resourceGroups") or ():
            quota = group["flavors"][0]["resources"][0]
        limits = [quota.get(name) for name in ("lendingLimit", "borrowingLimit")]
        numbers = [INFINITE if limit is None else int(limit) for limit in limits]
        self._of[node].append((v.at, int(quota["nominalQuota"]), *numbers))

    def left(self, queue, at, used, *, lately=True):
        """Return the most that a queue could get at a moment, or at some time shortly before."""
        node, found = (False, queue), []
        at += 0 if lately else GRACE_SECONDS
        while node is not None:
            found.append(Part(self, node, at, used))
            node = self._parents.get(node)
        left = found[-1].total - found[-1].used
        for part in reversed(found[:-1]):
            left = max(0, part.kept - part.used) + min(left, part.lent + part.more - part.over)
        return left

    def recent(self, node, at):
        """Return the quotas of a node, its lending and its borrowing limit since shortly before."""
        found = self._of[node] or [(0.0, 0, INFINITE, INFINITE)]  # a cohort that is only named
        return [
            each[1:]
            for number, each in enumerate(found)
            if number + 1 == len(found) or found[number + 1][0] >= at - GRACE_SECONDS
        ]

    def children(self, node):
        """Return the queues and cohorts of a cohort."""
        return sorted(each for each in self._children[node] if self._parents[each] == node)


class Part:
    """A queue or a cohort at a moment: what it has, keeps, lends and may borrow, at most."""

    def __init__(self, quotas, node, at, used):
        parts = [Part(quotas, each, at, used) for each in quotas.children(node)]
        below, recent = sum(each.lent for each in parts), quotas.recent(node, at)
        self.total = max(nominal + below for nominal, _, _ in recent)
        self.lent = max(min(nominal + below, lending) for nominal, lending, _ in recent)
        self.kept = max(max(0, nominal + below - lending) for nominal, lending, _ in recent)
        self.more = max(borrowing for _, _, borrowing in recent)
        self.used = sum(each.over for each in parts) if node[0] else used[node[1]]
        self.over = max(0, self.used - self.kept)
