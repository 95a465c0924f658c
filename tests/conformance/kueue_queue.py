"""Kueue's tables of its queue manager: the calls that a test made, made again on what we ship.

Kueue takes a head out of its queue and puts it back after the attempt. Ours stays where it is until
the attempt is decided: so "pop" here takes it out, and remembers the one taken last.
"""

import copy
import math

from policyd.alloc.flavors.assignment import Progress
from policyd.alloc.flavors.options import request_key_of
from policyd.alloc.pending import becomes_inadmissible
from policyd.alloc.plan import Plan, Requeue
from policyd.alloc.reasons import Refusal
from policyd.alloc.settings import UsageBasedOrder
from policyd.alloc.usage_history import nanos
from policyd.alloc.workload import QueuedWorkload as Value
from policyd.api.configuration import duration_seconds
from policyd.api.pod_requests import amounts
from policyd.status.queues import count_queues, queue_figures
from tests.conformance.kueue_objects import (
    NOW,
    Cluster,
    decode,
    keys_of,
    read_table,
    run_table,
    settings_of,
)
from tests.conformance.kueue_replay import (
    NAMESPACE,
    CallReplay,
    bodies,
    key_of,
    key_text,
    placed,
    unlike,
)

QUEUE = "cq"
LOCAL_QUEUE = "lq"


def run_calls(path):
    """Make the recorded calls, and compare what each of them returns."""
    setup = read_table(path).get("setup") or {}

    def failure(case):
        return Replay(case, setup).failure()

    yield from run_table(path, failure)


class Replay(CallReplay):
    """A cluster in which a test's calls are made again."""

    def __init__(self, case, setup):
        self.case = case
        super().__init__(Cluster(_settings(case)), {**(setup.get("objects") or {}), **case.objects})
        self.calls = [*(setup.get("ops") or ()), *(case.env.get("ops") or ())]
        self.woken = 0
        self.moved = 0
        self.inflight = None
        self.client = {_key(each, self): placed(each) for each in _initial(case)}
        self.waiting = []  # Heads that found nobody yet
        self.cluster.cache.hooks.schedule = self._wake
        for key, body in self.objects.items():
            if body.get("kind") == "Namespace" and "#" not in key:
                self.cluster.put(body)
        self._put_queues()

    def _wake(self):
        self.woken += 1

    def _put_queues(self):
        """Put the queue of tests that have no more than one, and LocalQueues that lead there."""
        given = self.case.input.get("cq")
        if any(call["op"].startswith("qcache.Manager") for call in self.calls):
            return
        strict = "StrictFIFO" in self.case.data.get("subtest", "")
        spec = {"queueingStrategy": "StrictFIFO" if strict else "BestEffortFIFO"}
        body = given or {"kind": "ClusterQueue", "metadata": {"name": QUEUE}, "spec": spec}
        body.setdefault("spec", {}).setdefault("namespaceSelector", {})
        self.cluster.put(body)
        queues = {
            (each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
            for each in self.case.input.get("lqs") or ()
        }
        for each in self.objects.values():
            if each.get("kind") == "Workload":
                spec = each.setdefault("spec", {})
                spec.setdefault("queueName", LOCAL_QUEUE)
                place = each["metadata"].get("namespace", ""), spec["queueName"]
                queues.setdefault(place, {"kind": "LocalQueue", "metadata": {}, "spec": {}})
        for (namespace, name), each in queues.items():
            metadata = {**each["metadata"], "namespace": namespace, "name": name}
            spec = {**(each.get("spec") or {}), "clusterQueue": QUEUE}
            self.cluster.put({"kind": "LocalQueue", "metadata": metadata, "spec": spec})
        for name, consumed in (self.case.input.get("initConsumedResources") or {}).items():
            self.cluster.state.history.seed(name, nanos(amounts(consumed)), NOW)

    @property
    def pending(self):
        """The queue of tests that have no more than one."""
        return self.cluster.state.queues[QUEUE].pending

    def failure(self):
        return self.replay(self.calls) or self._unmet() or self._wanted()

    # What is put.

    def _do_add_cluster_queue(self, args, _result):
        body = args["cq"]
        if body["metadata"]["name"].startswith("pending-"):  # so the test's status checker says
            body = {**body, "spec": {**body["spec"], "stopPolicy": "Hold"}}
        self.cluster.put(body)

    def _do_update(self, args, _result):
        if "apiCQ" in args:
            body = args["apiCQ"]
            self.cluster.put({**body, "metadata": {**body["metadata"], "name": QUEUE}})
        else:
            self._do_create(args, _result)

    def _do_create(self, args, _result):
        body = args["obj"]
        self.client[_key(body, self)] = body

    def _do_add_local_queue(self, args, _result):
        for each in _initial(self.case):  # there before their queue
            self.cluster.put(placed(each))
        self.cluster.put(args["q"])

    def _do_add_or_update_workload(self, args, result):
        self.cluster.put(args["w"])
        got, wanted = self._place(args["w"]) is not None, not (result or [None])[0]
        return "" if got == wanted else f"accepted {got}, wanted {wanted}"

    def _do_push_or_update(self, args, _result):
        self.cluster.put(args["wInfo"]["Obj"])

    _do_status_update = _do_create

    def _do_delete(self, args, _result):
        if "obj" in args:
            self.client.pop(_key(args["obj"], self), None)
            return
        key = args.get("wlKey", args.get("key"))
        self.cluster.state.remove_workload(key_text(key))
        if self.inflight == key_text(key):
            self.inflight = None

    # What is asked.

    def _do_pop(self, _args, result):
        ticket = self.pending.head() if QUEUE in self.cluster.state.queues else None
        got = None if ticket is None else ticket.workload.key
        wanted = _key(result[0]["Obj"], self) if result and result[0] else None
        if got != wanted and wanted is not None:
            # Without uids, which tests leave out, Kueue takes any of those that are alike.
            alike = [t for t in self.pending.active if t.rank[:2] == ticket.rank[:2]]
            got = wanted if any(t.workload.key == wanted for t in alike) else got
        if got is not None:
            self.pending.remove(got)
        self.inflight = got or self.inflight
        return unlike(got, wanted)

    def _do_heads(self, _args, result):
        wrong = self._unmet()
        self.waiting = [_key(each["Obj"], self) for each in (result or [None])[0] or ()]
        self._take_heads()
        return wrong

    def _take_heads(self):
        tickets = [ticket for _, ticket in self.cluster.state.heads()]
        if tickets and self.waiting:
            got = sorted(ticket.workload.key for ticket in tickets)
            if got == sorted(self.waiting):
                self.waiting = []
                for ticket in tickets:
                    queue = self.cluster.state.queues[ticket.workload.cluster_queue]
                    queue.pending.remove(ticket.workload.key)

    def _unmet(self):
        if self.waiting:
            self._take_heads()
        return f"nobody of {self.waiting} is next" if self.waiting else ""

    def _do_requeue_if_not_present(self, args, result):
        body = args["wInfo"]["Obj"]
        key = _key(body, self)
        present = any(ticket.workload.key == key for ticket in self.pending)
        if not present:
            self.cluster.put(_elsewhere(body))
            self.cluster.put(body)
            last = args["wInfo"].get("LastAssignment") or {}
            parked = False if args.get("immediate") else None
            self._requeue(key, args, last=last, parked=parked)
            if self.inflight == key:
                self.inflight = None
        return unlike(not present, (result or [None])[0])

    def _do_requeue_workload(self, args, result):
        self._unmet()
        key = _key(args["info"]["Obj"], self)
        newest = self.client.get(key)
        queued = newest is not None and self._place(newest) is None
        if queued:
            self.cluster.put(newest)
            queued = self._place(newest) is not None
            if queued:
                self._requeue(key, args)
        return unlike(queued, (result or [None])[0])

    def _requeue(self, key, args, *, last=None, parked=None):
        """Carry out what a cycle decided that did not admit a workload."""
        state = self.cluster.state
        state.settle()
        tried = (last or {}).get("LastTriedFlavorIdx") or ()
        progress = None
        if any(place != -1 for places in tried for place in places.values()):
            progress = Progress(tried=((0,),), request_key=None, generation=0, cycle=0)
        workload = state.waiting(key)
        reason = args.get("reason") or "Generic"
        strict = state.queues[workload.cluster_queue].spec.strict
        if parked is None:
            parked = becomes_inadmissible(reason, progress, strict=strict)
        action = Requeue(
            workload=workload,
            reason=reason,
            refusal=Refusal(args.get("quotaReservedReason") or "PendingEvaluation"),
            requests={},
            inadmissible=parked,
            progress=progress,
        )
        state.commit(Plan(actions=(action,), revision=state.revision))

    def _do_delete_workload(self, args, _result):
        key = key_text(args["wlKey"])
        if self.cluster.mirrors.workloads.get(key) is None:
            self.cluster.state.remove_workload(key)
        else:
            self.cluster.remove("Workload", key)

    _do_delete_and_forget_workload = _do_delete_workload

    def _do_queue_associated_inadmissible_workloads_after(self, args, _result):
        """What changes a workload without quota wakes nobody here: quota that comes free does."""
        workload = self.cluster.mirrors.workloads.get(key_text(args["wlKey"]))
        queue = workload and self.cluster.cache.cluster_queue_of(workload)
        if queue is not None:
            self.cluster.state.wake(queue.metadata.name)
            self.cluster.state.settle()

    def _do_queue_inadmissible_workloads(self, args, _result):
        for name in args.get("cqNames") or [QUEUE]:
            self.cluster.state.wake(name)
        self.cluster.state.settle()

    # What is asked.

    def _do_pending_active(self, _args, result):
        return unlike(len(self.pending) - self.pending.inadmissible, result[0])

    def _do_pending_inadmissible(self, _args, result):
        return unlike(self.pending.inadmissible, result[0])

    def _do_queue_for_workload_exists(self, args, result):
        (body,) = bodies(args)
        key = f"{body['metadata'].get('namespace') or NAMESPACE}/{body['spec']['queueName']}"
        return unlike(self.cluster.mirrors.local_queues.get(key) is not None, result[0])

    def _do_cluster_queue_for_workload(self, args, result):
        (body,) = bodies(args)
        workload = decode(placed(body), self.cluster.mirrors.workloads.into)
        found = self.cluster.cache.cluster_queue_of(workload)
        got = ["" if found is None else found.metadata.name, found is not None]
        return unlike(got, result)

    def _do_pending(self, _args, result):
        return unlike(
            [len(self.pending) - self.pending.inadmissible, self.pending.inadmissible], result
        )

    def _do_pending_resources(self, _args, result):
        """Compare what is asked for; of ours, the one that was taken out is pending as well."""
        taken = self.cluster.mirrors.workloads.get(self.inflight) if self.inflight else None
        if taken is not None:
            self.cluster.cache.put(taken)
        asked = count_queues(self.cluster.state).cluster_queues[QUEUE].asked
        if taken is not None:
            self.pending.remove(self.inflight)
        wanted = {name: amount for name, amount in (result[0] or {}).items() if amount}
        return unlike({name: amount for name, amount in asked.items() if amount}, wanted)

    def _do_get(self, args, result):
        key = key_text(args["key"])
        return unlike(key in keys_of(self.pending, parked=True), bool(result and result[0]))

    def _do_empty(self, _args, result):
        return unlike(not self.pending.inadmissible, result[0])

    def _do_len(self, _args, result):
        return unlike(self.pending.inadmissible, result[0])

    def _do_has_key(self, args, result):
        key = key_text(args["key"])
        got = key in keys_of(self.pending, parked=True)
        return unlike(got, result[0])

    def _do_info(self, args, result):
        key = key_text(args["key"])
        got = any(t.workload.key == key for t in self.pending)
        return unlike(got, bool(result and result[0]))

    def _do_dump(self, _args, result):
        self._wake_up()
        if isinstance(result[0], list) or result[-1] is True or result[-1] is False:
            got = keys_of(self.pending, parked=False)
            return unlike(got, {key_text(key) for key in result[0] or ()})
        return unlike(self._dump(parked=False), _keys(result[0]))

    def _do_dump_inadmissible(self, _args, result):
        self._wake_up()
        return unlike(self._dump(parked=True), _keys(result[0]))

    def _dump(self, *, parked):
        found = {
            name: keys_of(queue.pending, parked=parked)
            for name, queue in self.cluster.state.queues.items()
        }
        return {name: keys for name, keys in found.items() if keys}

    def _wake_up(self):
        """Wake queues up as the test does before it looks."""
        input_ = self.case.input
        names = input_.get("cqNames") or (
            [QUEUE] if input_.get("queueInadmissibleWorkloads") else []
        )
        state = self.cluster.state
        parked = sum(queue.pending.inadmissible for queue in state.queues.values())
        for name in names:
            state.wake(name)
        state.settle()
        self.moved += parked - sum(queue.pending.inadmissible for queue in state.queues.values())

    def _do_queue_second_pass_if_needed(self, args, result):
        """Have a workload that was tried so often before seen as it is now."""
        waiting = self.cluster.cache.second_pass
        key = _key(args["w"], self)
        if key not in copy.deepcopy(waiting).take_ready(math.inf):
            for _ in range(args.get("iteration") or 0):
                waiting.put(key, now=NOW)
                waiting.take_ready(math.inf)
        self.cluster.put(args["w"])
        return unlike(key in copy.deepcopy(waiting).take_ready(math.inf), result[0])

    def _do_pending_total(self, _args, result):
        return unlike(len(self.pending), result[0])

    def _do_pending_workloads(self, args, result):
        self._wake_up()
        body = args["q"]
        key = _key({**body, "kind": "LocalQueue"}, self)
        queue = self.cluster.mirrors.local_queues.get(key)
        if queue is None:
            return "" if result[1] else "there is no such LocalQueue"
        name = queue.spec.cluster_queue
        local = f"{queue.metadata.namespace}/{queue.metadata.name}"
        figures = queue_figures(self.cluster.state, name, local_queue=local)
        return unlike(figures.pending, result[0])

    def _do_get_no_fit_reason(self, args, result):
        key = key_text(args["wl"])
        got = self.pending.shared_refusal(key)
        return unlike([got or "", got is not None], result)

    def _do_backoff_waiting_time_expired(self, args, result):
        self.cluster.put(args["wInfo"]["Obj"])
        (ticket,) = self.pending
        return unlike(ticket in self.pending.active, result[0])

    def _do_pending_breakdown(self, _args, _result):
        """Compare the sums: by which labels metrics are told apart is another matter."""
        pending, want = self.pending, self.case.want
        active = len(pending) - pending.inadmissible + (self.inflight is not None)
        wanted = [sum((want[n] or {}).values()) for n in ("wantPending", "wantInadmissible")]
        return unlike([active, pending.inadmissible], wanted)

    # What the test wanted at the end.

    def _wanted(self):
        want = self.case.want
        for name, check in (
            ("wantSticky", self._sticky),
            ("wantReady", self._ready),
            ("wantHash", self._shared),
            ("wantMovedCount", lambda: self.moved),
            ("wantInadmissibleWorkloadsRequeued", lambda: self.moved),
        ):
            wanted = want.get(name)
            wanted = set(map(key_text, wanted or ())) if name == "wantReady" else wanted
            if name in want and (wrong := unlike(check(), wanted)):
                return f"{name}: {wrong}"
        if "gotCondBeforeCleanup" in (self.case.data.get("observed") or {}):
            return "" if self.woken else "nobody was told"
        if "wantAssigned" in want:
            wanted = {key_text(k): key_text(q) for k, q in (want["wantAssigned"] or {}).items()}
            return unlike(self._assigned(), wanted)
        return ""

    def _sticky(self):
        """Tell whether the only one that waits goes before one that is more important."""
        rival = Value(
            key="z/z", uid="z", cluster_queue=QUEUE, queued_at=0.0, pod_sets=(), priority=10**6
        )
        self.pending.put(rival)
        return self.pending.head().workload.key != rival.key

    def _ready(self):
        passed = duration_seconds(self.case.input["passTime"] or "0s")
        return set(self.cluster.cache.second_pass.take_ready(NOW + passed))

    def _shared(self):
        (ticket,) = self.pending
        return self.pending.shared_refusal(ticket.workload.key) is not None

    def _assigned(self):
        """Return the LocalQueue of everybody who waits, or is taken out."""
        found = {
            t.workload.key: t.workload.local_queue
            for queue in self.cluster.state.queues.values()
            for t in queue.pending
        }
        if self.inflight is not None:
            workload = self.cluster.mirrors.workloads.get(self.inflight)
            found[self.inflight] = f"{workload.metadata.namespace}/{workload.spec.queue_name}"
        return found

    def _place(self, body):
        """Return the queue with a specification in which a workload waits."""
        key = _key(body, self)
        for queue in self.cluster.state.queues.values():
            if queue.spec is not None and any(t.workload.key == key for t in queue.pending):
                return queue
        return None


def run_demands(path):
    """Whether workloads ask for the same."""

    def failure(case):
        cluster = Cluster(settings_of(case))
        one, other = (cluster.value(case.input[n], QUEUE) for n in ("wl1", "wl2"))
        same = one.priority == other.priority and request_key_of(one) == request_key_of(other)
        return unlike(same, case.want["wantSame"])

    yield from run_table(path, failure)


def _initial(case):
    objects = case.input.get("initialObjs") or ()
    return [each for each in objects if each.get("kind") == "Workload"]


def _settings(case):
    given = case.input.get("afsConfig")
    ordering = case.input.get("workloadOrdering") or {}
    sharing = given and UsageBasedOrder(
        half_life_seconds=duration_seconds(given.get("usageHalfLifeTime", "0s")),
        sampling_seconds=duration_seconds(given.get("usageSamplingInterval", "0s")),
        weights=given.get("resourceWeights") or {},
    )
    return settings_of(
        case,
        admission_fair_sharing=sharing,
        requeues_by_creation=ordering.get("PodsReadyRequeuingTimestamp") == "Creation",
    )


def _elsewhere(body):
    """Return a workload as it is where no queue has it, so that its return is a change."""
    return {**body, "spec": {**body["spec"], "active": False}}


def _key(body, replay):
    return key_of(replay.resolve(body), "Workload")


def _keys(found):
    return {name: {key_text(key) for key in keys} for name, keys in (found or {}).items()}
