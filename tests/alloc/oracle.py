"""The allocation core once more: slow, obvious, and nothing kept between questions."""

from policyd.alloc.queue import quotas_of


class Tree:
    """Quota and usage, from specifications and what each queue uses itself."""

    def __init__(self, queues, cohorts, used):
        self.parent = {("queue", q.name): q.cohort for q in queues}
        self.parent |= {("cohort", c.name): c.parent for c in cohorts}
        self.quotas = {("queue", q.name): quotas_of(q.groups) for q in queues}
        self.quotas |= {("cohort", c.name): quotas_of(c.groups) for c in cohorts}
        self.used = used
        for name in [*self.parent.values()]:
            if name and ("cohort", name) not in self.parent:
                self.parent["cohort", name] = ""
                self.quotas["cohort", name] = {}

    def above(self, node):
        name = self.parent[node]
        return ("cohort", name) if name else None

    def children(self, node):
        return [child for child in self.parent if self.above(child) == node]

    def cyclic(self, node):
        seen = []
        while node is not None and node not in seen:
            seen.append(node)
            node = self.above(node)
        return node is not None

    def quota(self, node, fr):
        found = self.quotas[node].get(fr)
        return (0, None, None) if found is None else (
            found.nominal, found.borrowing_limit, found.lending_limit)  # fmt: skip

    def subtree(self, node, fr):
        lent = sum(self.subtree(c, fr) - self.guaranteed(c, fr) for c in self.children(node))
        return self.quota(node, fr)[0] + lent

    def guaranteed(self, node, fr):
        lending = self.quota(node, fr)[2]
        return 0 if lending is None else max(0, self.subtree(node, fr) - lending)

    def usage(self, node, fr):
        if node[0] == "queue":
            return self.used.get((node[1], *fr), 0)
        return sum(max(0, self.usage(c, fr) - self.guaranteed(c, fr)) for c in self.children(node))

    def spare(self, node, fr):
        return max(0, self.guaranteed(node, fr) - self.usage(node, fr))

    def available(self, node, fr):
        above = self.above(node)
        if above is None:
            return self.subtree(node, fr) - self.usage(node, fr)
        could = self.available(above, fr)
        limit = self.quota(node, fr)[1]
        if limit is not None:
            stored = self.subtree(node, fr) - self.guaranteed(node, fr)
            used = max(0, self.usage(node, fr) - self.guaranteed(node, fr))
            could = min(could, stored - used + limit)
        return self.spare(node, fr) + could

    def potential(self, node, fr):
        above = self.above(node)
        if above is None:
            return self.subtree(node, fr)
        could = self.guaranteed(node, fr) + self.potential(above, fr)
        limit = self.quota(node, fr)[1]
        return could if limit is None else min(could, self.subtree(node, fr) + limit)

    def height(self, node):
        heights = [0 if c[0] == "queue" else self.height(c) for c in self.children(node)]
        return max((1 + height for height in heights), default=0)

    def level(self, node, fr, amount):
        above = self.above(node)
        if self.usage(node, fr) + amount <= self.subtree(node, fr) or above is None:
            return 0, above is not None
        rest = amount - self.spare(node, fr)
        while True:
            node, above = above, self.above(above)
            if self.usage(node, fr) + rest <= self.subtree(node, fr) or above is None:
                return self.height(node), above is not None
            rest -= self.spare(node, fr)


def plan(queues, cohorts, heads, used):
    """What one cycle does with the heads: `(key, flavors by pod set and resource)` or `(key, why)`.

    For one group of resources a queue, flavors without taints and labels, and no preemption. With
    each head comes how many flavors are left out, by pod set, since they were tried before.
    """
    tree = Tree(queues, cohorts, dict(used))
    specs = {queue.name: queue for queue in queues}
    entries = []
    for head, left_out in heads:
        found = nominate(tree, specs[head.cluster_queue], head, left_out)
        rank = (-head.priority, head.queued_at, head.uid, head.key)
        entries.append(((found["level"], rank), head, found))
    entries.sort(key=lambda entry: entry[0])
    return [process(tree, specs[head.cluster_queue], head, found) for _, head, found in entries]


def nominate(tree, queue, head, left_out):
    assumed, chosen, levels, blocked = {}, {}, [0], False
    for pod_set in head.pod_sets:
        best = best_flavor(tree, queue, pod_set, assumed, left_out.get(pod_set.name, 0))
        if best is None:
            return {"mode": "NoFit", "level": max(levels)}
        flavor, mode, level = best
        blocked = blocked or mode == "Blocked"
        levels.append(level)
        chosen[pod_set.name] = flavor
        for resource, amount in pod_set.requests.items():
            if flavor and resource in queue.groups[0].resources:
                key = flavor, resource
                assumed[key] = assumed.get(key, 0) + amount * pod_set.count
    mode = "Blocked" if blocked else "Fit"
    return {"mode": mode, "level": max(levels), "flavors": chosen, "charges": assumed}


def best_flavor(tree, queue, pod_set, assumed, left_out):
    covered = set(queue.groups[0].resources) if queue.groups else set()
    totals = {resource: one * pod_set.count for resource, one in pod_set.requests.items()}
    if any(total for resource, total in totals.items() if resource not in covered):
        return None
    asked = {resource: total for resource, total in totals.items() if resource in covered}
    if not asked:
        return "", "Fit", 0
    best, found = None, None
    for flavor in queue.groups[0].flavors[left_out:]:
        names = [(flavor.name, resource) for resource in asked]
        modes = [mode_of(tree, queue, fr, asked[fr[1]] + assumed.get(fr, 0)) for fr in names]
        worst = min(modes, key=rank_of)
        if worst[0] == "NoFit" or (best is not None and rank_of(worst) <= rank_of(best)):
            continue
        best, found = worst, (flavor.name, worst[0], max(level for _, level in modes))
        borrows_rather = queue.fungibility.when_can_borrow == "MayStopSearch"
        if worst[0] == "Fit" and (worst[1] == 0 or borrows_rather):
            break
    return found


def rank_of(found):
    mode, level = found
    return {"NoFit": 0, "Blocked": 1, "Fit": 2}[mode], -level


def mode_of(tree, queue, fr, needed):
    node = ("queue", queue.name)
    if needed > tree.potential(node, fr):
        return "NoFit", 0
    level, reclaimable = tree.level(node, fr, needed)
    if needed <= max(0, tree.available(node, fr)):
        return "Fit", level
    if reclaimable or tree.quota(node, fr)[0] >= needed:
        return "Blocked", level
    return "NoFit", level


def process(tree, queue, head, found):
    node = ("queue", queue.name)
    if found["mode"] == "NoFit":
        return head.key, "NoFit"
    charges = found["charges"]
    if found["mode"] == "Blocked":
        for fr, amount in charges.items():
            nominal, limit, _ = tree.quota(node, fr)
            most = nominal - tree.usage(node, fr)
            if found["level"]:
                most = amount if limit is None else most + limit
            use(tree, queue, fr, max(0, min(amount, most)))
        return head.key, "PreemptionNoCandidates"
    if any(n > max(0, tree.available(node, fr)) for fr, n in charges.items()):
        return head.key, "FailedAfterNomination"
    for fr, amount in charges.items():
        use(tree, queue, fr, amount)
    return head.key, found["flavors"]


def use(tree, queue, fr, amount):
    key = (queue.name, *fr)
    tree.used[key] = tree.used.get(key, 0) + amount
