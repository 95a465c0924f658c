"""Kueue's tables of its scheduler cache: objects put and removed, then what is known of queues.

How often Kueue counted the generations of quota up is not compared: which remembered searches are
outdated by what, the tables of searches say.
"""

import msgspec

from policyd.api.meta import Condition
from policyd.controller.queues.queue_status_values import (
    cluster_queue_active,
    cluster_queue_status,
    local_queue_status,
)
from policyd.status.queues import queue_figures, queue_status
from tests.conformance.kueue_objects import NOW, Cluster, read_table, run_table, settings_of
from tests.conformance.kueue_replay import CallReplay, key_of, key_text, unlike

DEVICES = "feature KueueDRAIntegration: which queues a device class concerns"


def run_calls(path):
    """Make the recorded calls, and compare what they return and what is known at the end."""
    table = read_table(path)

    def failure(case):
        return Replay(case, table).failure()

    def rule(case):
        calls = {call["op"].rpartition(".")[2] for call in case.env.get("ops") or ()}
        return DEVICES if "ClusterQueuesForResources" in calls else ""

    yield from run_table(path, failure, rule=rule)


class Replay(CallReplay):
    def __init__(self, case, table):
        self.case = case
        setup = table.get("setup") or {}
        super().__init__(
            Cluster(settings_of(case)), {**(setup.get("objects") or {}), **case.objects}
        )
        listed = [
            key
            for group in (*(setup.get("client") or ()), *(case.env.get("client") or ()))
            for key in group
        ]
        # Kueue reads workloads from the API when their queue comes; ours are there before it.
        for key in dict.fromkeys(listed):
            self.cluster.put(self.objects[key])

    def failure(self):
        return self.replay(self.case.env.get("ops") or ()) or self._wanted()

    def _do_wait_for_pods_ready(self, _args, _result):
        """Nothing waits here: what is put is known at once."""

    _do_create = _do_wait_for_pods_ready

    def _do_add_or_update_workload(self, args, result):
        self.put(args)
        key = _key(args["w"])
        holding = self.cluster.state.holding(key)
        # What is kept although nothing was taken in does not count.
        known = holding is not None and self._queue(holding.admission.cluster_queue) is not None
        return unlike(known, result[0]) if result[0] else ""

    def _do_terminate_cluster_queue(self, args, _result):
        self._terminate(args["name"])

    def _terminate(self, name):
        for body in self.objects.values():
            if body.get("kind") == "ClusterQueue" and body["metadata"]["name"] == name:
                ending = {**body["metadata"], "deletionTimestamp": "2026-01-02T03:04:05Z"}
                self.cluster.put({**body, "metadata": ending})

    # What is asked.

    def _do_cluster_queue_empty(self, args, result):
        queue = self._queue(args["name"])
        return unlike(queue is None or not queue.holdings, result[0])

    def _do_is_added(self, args, result):
        return unlike(self.cluster.state.holding(_key(args["w"]["Obj"])) is not None, result[0])

    def _do_matching_cluster_queues(self, args, result):
        got = [
            queue.metadata.name
            for queue in self.cluster.mirrors.cluster_queues
            if queue.spec.namespace_selector is not None
            and queue.spec.namespace_selector.matches(args["nsLabels"] or {})
        ]
        return unlike(sorted(got), sorted(result[0] or ()))

    def _do_get_cache_local_queue(self, args, result):
        queue = self.cluster.mirrors.local_queues.get(key_text(args["lqKey"]))
        got = queue is not None and queue.spec.cluster_queue == args["cqName"]
        return unlike(got and self._queue(args["cqName"]) is not None, bool(result[0]))

    def _do_cluster_queue_readiness(self, args, result):
        return unlike(list(self._active(args["name"])), result)

    def _active(self, name):
        queue = self.cluster.mirrors.cluster_queues.get(name)
        state = self.cluster.state
        if queue is None:
            status = queue_status(state, name)
            return "True" if status.active else "False", status.reason, status.message
        condition = cluster_queue_active(state, queue)
        return condition.status, condition.reason, condition.message

    def _do_cluster_queue_active(self, args, result):
        return unlike(self._active(args["name"])[0] == "True", result[0])

    def _do_cluster_queue_terminating(self, args, result):
        return unlike(self._active(args["name"])[1] == "Terminating", result[0])

    def _do_cluster_queues_using_flavor(self, args, result):
        got = [queue.name for queue in self.cluster.state.using(args["flavor"])]
        return unlike(sorted(got), sorted(result[0] or ()))

    def _do_cluster_queues_using_admission_check(self, args, result):
        return unlike(sorted(self.cluster.changes.with_check(args["ac"])), sorted(result[0] or ()))

    def _do_pods_ready_for_all_admitted_workloads(self, _args, result):
        return unlike(not self.cluster.state.awaits_pods(), result[0])

    def _do_usage(self, args, result):
        name = args["cqObj"]["metadata"]["name"]
        queue = self.cluster.mirrors.cluster_queues.get(name)
        figures = queue_figures(self.cluster.state, name)
        status = cluster_queue_status(queue, figures, _CONDITION, now=NOW)
        wanted = result[0]
        return unlike(
            (
                _usages(status.flavors_reservation),
                _usages(status.flavors_usage),
                status.reserving_workloads,
                status.admitted_workloads,
            ),
            (
                _usages(wanted["ReservedResources"]),
                _usages(wanted["AdmittedResources"]),
                wanted.get("ReservingWorkloads", 0),
                wanted.get("AdmittedWorkloads", 0),
            ),
        )

    def _do_local_queue_usage(self, args, result):
        key = _key(args["qObj"])
        queue = self.cluster.mirrors.local_queues.get(key)
        name = queue.spec.cluster_queue
        figures = queue_figures(self.cluster.state, name, local_queue=key)
        status = local_queue_status(queue, figures, _CONDITION, now=NOW)
        wanted = result[0]
        return unlike(
            (_usages(status.flavors_reservation), _usages(status.flavors_usage)),
            (_usages(wanted["ReservedResources"]), _usages(wanted["AdmittedResources"])),
        )

    # What is known at the end.

    def _wanted(self):
        want = self.case.want
        if "cqStatus" in self.case.input or "curStatus" in self.case.input:
            return self._updated()
        for name, check in (
            ("wantClusterQueues", self._cluster_queues),
            ("wantCohorts", self._cohorts),
            ("wantResults", self._results),
            ("wantQueuesAssigned", self._assigned),
            ("wantLocalQueues", self._local_queues),
        ):
            if name in want and (wrong := check(want[name] or {})):
                return f"{name}: {wrong}"
        return ""

    def _updated(self):
        """Put what the row says by name: flavors, and checks with who carries them out."""
        input_, want = self.case.input, self.case.want
        self.put(input_.get("flavors") or {})
        for name, check in (input_.get("admissionChecks") or {}).items():
            active = "True" if check.get("Active") else "False"
            condition = {"type": "Active", "status": active, "reason": "ByTest", "message": ""}
            self.cluster.put(
                {
                    "kind": "AdmissionCheck",
                    "metadata": {"name": name},
                    "spec": {"controllerName": check.get("Controller", "")},
                    "status": {"conditions": [condition]},
                }
            )
        (name,) = {q.metadata.name for q in self.cluster.mirrors.cluster_queues}
        if "terminating" in (input_.get("cqStatus"), input_.get("curStatus")):
            self._terminate(name)
        status, reason, message = self._active(name)
        words = {"True": "active", "False": "pending"}
        got = "terminating" if reason == "Terminating" else words[status]
        wanted = [want[n] for n in ("wantReason", "wantMessage") if n in want]
        return unlike([got, *[reason, message][: len(wanted)]], [want["wantStatus"], *wanted])

    def _queue(self, name):
        queue = self.cluster.state.queues.get(name)
        return queue if queue is not None and queue.spec is not None else None

    def _cluster_queues(self, wanted):
        state = self.cluster.state
        state.settle()
        names = {name for name, queue in state.queues.items() if queue.spec is not None}
        if names != wanted.keys():
            return unlike(names, set(wanted))
        for name, each in wanted.items():
            queue = state.queues[name]
            preemption, fungibility = queue.spec.preemption, queue.spec.fungibility
            got = {
                "Status": "active" if self._active(name)[0] == "True" else "pending",
                "FairWeight": queue.spec.weight,
                "Preemption": (preemption.reclaim_within_cohort, preemption.within_cluster_queue),
                "FlavorFungibility": (fungibility.when_can_borrow, fungibility.when_can_preempt),
                "Workloads": set(queue.holdings),
                "Usage": _held(state, queue),
                "AdmittedUsage": _held(state, queue, admitted=True),
            }
            spec = each["Preemption"], each["FlavorFungibility"]
            if each["Status"] == "terminating":
                got["Status"] = "terminating"
            expected = {
                "Status": each["Status"],
                "FairWeight": each["FairWeight"],
                "Preemption": (spec[0]["reclaimWithinCohort"], spec[0]["withinClusterQueue"]),
                "FlavorFungibility": (spec[1]["whenCanBorrow"], spec[1]["whenCanPreempt"]),
                "Workloads": {key_text(key) for key in each.get("Workloads") or ()},
                "Usage": _positive((each.get("resourceNode") or {}).get("Usage")),
                "AdmittedUsage": _positive(each.get("AdmittedUsage")),
            }
            if got != expected:
                return f"{name}: {unlike(got, expected)}"
        return ""

    def _cohorts(self, wanted):
        cohorts = self.cluster.state.tree.hierarchy.cohorts
        got = {
            name: sorted(child.name for child in node.children.values() if child.queue)
            for name, node in cohorts.items()
        }
        return unlike(got, {name: sorted(queues or ()) for name, queues in wanted.items()})

    def _results(self, wanted):
        state = self.cluster.state
        got = {
            name: (set(queue.holdings), _held(state, queue))
            for name, queue in state.queues.items()
            if queue.spec is not None
        }
        return unlike(
            got,
            {
                name: (
                    {key_text(key) for key in each.get("Workloads") or ()},
                    _positive(each.get("UsedResources")),
                )
                for name, each in wanted.items()
            },
        )

    def _assigned(self, wanted):
        if self.case.want.get("wantError"):  # what Kueue keeps when it refuses a call is its own
            return ""
        got = {
            key: queue.name
            for queue in self.cluster.state.queues.values()
            for key in queue.holdings
        }
        return unlike(got, {key_text(key): queue for key, queue in wanted.items()})

    def _local_queues(self, wanted):
        """Compare figures; Kueue forgets a LocalQueue without its ClusterQueue, ours reports 0."""
        state = self.cluster.state
        for queue in self.cluster.mirrors.local_queues:
            key, name = queue.metadata.key, queue.spec.cluster_queue
            each = wanted.get(key)
            if each is None and self._queue(name) is not None:
                return f"{key} is known, and should not be"
            if each is None:
                continue
            figures = queue_figures(state, name, local_queue=key)
            got = (
                figures.reserving,
                figures.admitted,
                _reserved(state, name, local=key),
                _reserved(state, name, local=key, admitted=True),
            )
            expected = (
                each.get("reservingWorkloads", 0),
                each.get("admittedWorkloads", 0),
                _positive(each.get("totalReserved")),
                _positive(each.get("admittedUsage")),
            )
            if got != expected:
                return f"{key}: {unlike(got, expected)}"
        return ""


_CONDITION = Condition("Active", "True")


def _reserved(state, name, *, local=None, admitted=False):
    figures = queue_figures(state, name, local_queue=local)
    found = {
        f"{use.flavor}/{use.resource}": use.admitted if admitted else use.reserved
        for use in figures.uses
    }
    return _positive(found)


def _held(state, queue, *, admitted=False):
    """Return what the tree says is used; or of that, what is admitted."""
    state.settle()
    usage = {names: state.tree.usage[cell] for names, cell in queue.node.cells.items()}
    if admitted:
        usage = dict.fromkeys(usage, 0)
        for holding in queue.holdings.values():
            for names, amount in holding.admission.usage().items():
                usage[names] = usage.get(names, 0) + amount * holding.workload.admitted
    return _positive({f"{flavor}/{resource}": n for (flavor, resource), n in usage.items()})


def _positive(usage):
    return {name: amount for name, amount in (usage or {}).items() if amount}


def _usages(usages):
    """Flatten usages: ours, or the table's."""
    return [
        (flavor["name"], each["name"], str(each.get("total", 0)), str(each.get("borrowed", 0)))
        for flavor in msgspec.to_builtins(usages)
        for each in flavor["resources"]
    ]


def _key(body):
    return key_of(body, "Workload")
