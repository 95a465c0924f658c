"""Kueue's tables of workload facts: requests, limits, priorities, checks, places in the queue."""

import json

import msgspec

from policyd.alloc.settings import Gates, QueueingSettings, UsageBasedOrder
from policyd.alloc.usage_history import ConsumedUsage, UsageHistory, decayed, nanos, weight_of_now
from policyd.alloc.workload import PodSetFlavors, ReservedQuota
from policyd.api.configuration.kinds import ResourcesConfiguration, ResourceTransformation
from policyd.api.kueue import ClusterQueue, LocalQueue, ReclaimablePod, Workload
from policyd.api.limit_ranges import LimitRange, LimitRangeItem, limit_errors, summarize
from policyd.api.pod_requests import amounts
from policyd.api.pods import PodSpec
from policyd.api.quantity import parse_quantity
from policyd.controller.watch.workload_values import WorkloadContext, queued_at, workload_value
from policyd.jobs.requests import RequestRules, prepared, resource_errors
from policyd.jobs.workload import within_sizes
from policyd.workload.conversion import weight_of
from policyd.workload.lifecycle import required_checks
from policyd.workload.transitions import with_requests
from tests.conformance.kueue_objects import NOW, Cluster, convert, decode, run_table, seconds

CLIENT = "errors of the API when an object is read: policyd reads mirrors of its objects"
CODE = "a Go function as input"


def run_adjustments(path):
    """Fill in what a namespace and a runtime add to pods."""

    def failure(case):
        ranges = [decode(each, LimitRange) for each in case.input.get("limitranges") or ()]
        overheads = {
            each["metadata"]["name"]: (each.get("overhead") or {}).get("podFixed") or {}
            for each in case.input.get("runtimeClasses") or ()
        }
        rules = RequestRules(limits=summarize(ranges), overheads=overheads)
        got = [prepared(p.template.spec, rules) for p in _workload(case.input["wl"]).spec.pod_sets]
        wanted = [p.template.spec for p in _workload(case.want["wantWl"]).spec.pod_sets]
        return _unlike(got, wanted)

    yield from run_table(path, failure)


def run_info(path):
    """What a workload asks for, or holds."""
    yield from run_table(path, _info)


def _info(case):
    options = ((case.input.get("infoOptions") or {}).get("$options")) or {}
    rules = RequestRules(
        resources=ResourcesConfiguration(
            exclude_resource_prefixes=tuple(options.get("excludedResourcePrefixes") or ()),
            transformations=tuple(
                convert(each, ResourceTransformation)
                for each in (options.get("resourceTransformations") or {}).values()
            ),
        )
    )
    settings = QueueingSettings(gates=Gates.of(case.gates))
    value = workload_value(
        _workload(case.input["workload"]),
        WorkloadContext(now=NOW, settings=settings, rules=rules),
        cluster_queue="",
    )
    if value.admission is None:
        got = [(p.name, p.count, p.totals(), {}, []) for p in value.pod_sets]
    else:
        given = value.admission.pod_sets
        got = [(p.name, p.count, p.usage, p.flavors, _domains(p)) for p in given]
    wanted = [
        (
            p["Name"],
            p.get("Count", 0),
            p.get("Requests") or {},
            p.get("Flavors") or {},
            (p.get("TopologyRequest") or {}).get("DomainRequests") or [],
        )
        for p in case.want["wantInfo"].get("TotalRequests") or ()
    ]
    return _unlike(got, wanted)


def _domains(pod_set):
    """Return what the pods of a pod set take of which domain."""
    each = {"SinglePodRequests": dict(pod_set.pod_requests)}
    domains = () if pod_set.placement is None else pod_set.placement.domains
    return [{"Values": list(values), "Count": count} | each for values, count in domains]


def run_usage(path):
    """What is charged to quota, by flavor and resource."""

    def failure(case):
        pod_sets = tuple(
            PodSetFlavors(
                name=str(index),
                count=each.get("Count", 1),
                flavors=each.get("Flavors") or {},
                usage=each.get("Requests") or {},
            )
            for index, each in enumerate((case.input["info"] or {}).get("TotalRequests") or ())
        )
        usage = ReservedQuota(cluster_queue="", pod_sets=pod_sets).usage()
        got = {f"{flavor}/{resource}": n for (flavor, resource), n in usage.items()}
        return _unlike(got, (case.want["want"] or {}).get("Assigned") or {})

    yield from run_table(path, failure)


def run_propagation(path):
    """Whether the requests that were considered are written again."""

    def failure(case):
        workload = _workload(case.input["wl"])
        requests = {
            p["Name"]: p.get("Requests") or {}
            for p in (case.input["info"] or {}).get("TotalRequests") or ()
        }
        status = with_requests(workload.status, requests)
        changed = status.resource_requests != workload.status.resource_requests
        return _unlike(changed, case.want["want"])

    yield from run_table(path, failure)


def run_resources(path):
    """What requests more than its limit, or than its namespace allows."""

    def failure(case):
        if "limitRange" in case.input:
            ranges = [decode(case.input["limitRange"], LimitRange)]
            workload = _workload(case.input["workload"])
        else:
            ranges, workload = [], _workload(case.input["workloadInfo"]["Obj"])
        errors = []
        for index, pod_set in enumerate(workload.spec.pod_sets):
            where, spec = f"spec.podSets[{index}].template.spec", pod_set.template.spec
            errors += resource_errors(spec, where)
            errors += limit_errors(spec, summarize(ranges), where)
        return _field_errors(errors, case.want["wantError"])

    yield from run_table(path, failure)


def run_limit_ranges(path):
    def failure(case):
        if path.stem.endswith("Summarize"):
            ranges = [decode(each, LimitRange) for each in case.input["ranges"]]
            wanted = case.want["expected"]
            return _unlike(_stripped(summarize(ranges)), _stripped(_summary(wanted)))
        table = json.loads(path.read_text())["fixtures"]
        spec = convert(case.input.get("podSpec") or table["podSpec"], PodSpec)
        errors = limit_errors(spec, _summary(case.input["summary"]), table["podSpecPath"])
        return _field_errors(errors, case.want["want"])

    yield from run_table(path, failure)


def _summary(given):
    return {name: convert(item, LimitRangeItem) for name, item in given.items()}


def _stripped(summary):
    replace = msgspec.structs.replace
    return {name: replace(item, type="") for name, item in summary.items()}


def _field_errors(got, wanted):
    pairs = [(f"FieldValue{e.problem}", e.path, e.value, e.message) for e in got]
    return _unlike(
        pairs, [(e["type"], e["field"], e["badValue"], e["detail"]) for e in wanted or ()]
    )


def run_checks(path):
    """The admission checks that count for a workload's flavors."""

    def failure(case):
        queue = decode((case.input.get("cq") or case.data["locals"]["cq"]), ClusterQueue)
        got = required_checks(_workload(case.input["wl"]), queue)
        return _unlike(list(got), case.want["wantAdmissionChecks"])

    yield from run_table(path, failure)


def run_places(path):
    """Since when a workload has its place, by when those evicted count from."""

    def failure(case):
        gates = Gates.of(case.gates)
        for counts_from, wanted in case.want["want"].items():
            settings = QueueingSettings(gates=gates, requeues_by_creation=counts_from == "Creation")
            got = queued_at(_workload(case.input["wl"]), settings)
            if abs(got - seconds(wanted)) > 1e-6:
                return f"{counts_from}: {got}, wanted {wanted}"
        return ""

    yield from run_table(path, failure)


def run_reclaimable(path):
    """No more pods are given back than there are."""
    table = json.loads(path.read_text())["fixtures"]

    def failure(case):
        given = convert(case.input.get("reclaimablePods") or (), tuple[ReclaimablePod, ...])
        wanted = convert(case.want["want"] or (), tuple[ReclaimablePod, ...])
        return _unlike(within_sizes(given, _workload(table["wl"]).spec.pod_sets), wanted)

    yield from run_table(path, failure)


def run_default_class(path):
    """Whether there is a class for jobs that name none."""

    def failure(case):
        cluster = Cluster()
        for item in (case.input["workloadPriorityClassList"] or {}).get("items") or ():
            cluster.put({**item, "kind": "WorkloadPriorityClass"})
        found = cluster.mirrors.priorities.get("default") is not None
        return _unlike(found, case.want["wantExist"])

    yield from run_table(path, failure)


# What LocalQueues used.

HALF_LIFE = 604_800.0
SAMPLE = 300.0


def run_decay(path):
    """How history moves towards what is used."""

    def failure(case):
        table = json.loads(path.read_text())["fixtures"]
        half_life, elapsed = table["longHalfLifeTime"], table["samplingElapsed"]
        share = weight_of_now(elapsed, half_life)
        values = case.data.get("locals") or {}
        if "wantAfterHalfLife" in case.want:
            usage, consumed = nanos(amounts(values["usage"])), {}
            for number, wanted in case.want["wantAfterHalfLife"].items():
                for _ in range(int(half_life / elapsed)):
                    consumed = decayed(consumed, usage, share)
                # The Go test allows for a thousandth.
                if abs(consumed["cpu"] / 10**9 - float(parse_quantity(wanted))) > 1e-3:
                    return f"{consumed} after {number} half-lives, wanted {wanted}"
            return _unlike(_nano_text(consumed), case.data["observed"]["consumed"])
        size = case.data["params"]["size"]
        consumed = decayed({}, nanos(amounts({"memory": size})), share)
        return _unlike(_nano_text(consumed), values["consumed"])

    yield from run_table(path, failure)


def _nano_text(values):
    return {name: f"{value}n" for name, value in values.items()}


def run_usage_order(path):
    """By what LocalQueues are ordered."""

    def rule(case):
        errors = (case.input.get("getErr") or case.input.get("err") or {}).get("$errorType", "")
        return CLIENT if errors == "*errors.errorString" else ""

    yield from run_table(path, _usage_order, rule=rule)


def _usage_order(case):
    if "wantWeight" in case.want:
        queue = decode(case.input.get("localQueue") or {"metadata": {}}, LocalQueue)
        return _unlike(weight_of(queue.spec.fair_sharing), case.want["wantWeight"])
    # A table that says no consumption has ten cores in its code, and five as their weight.
    values = case.data.get("locals") or {}
    weights = case.input.get("resWeights") or values.get("resWeights") or {}
    history = UsageHistory(UsageBasedOrder(weights=weights))
    consumed = nanos(amounts(case.input.get("consumed") or {"cpu": "10"}))
    entry = history.entries["lq"] = ConsumedUsage(NOW, consumed)
    entry.penalties["w"] = nanos(amounts(case.input.get("penalty") or {}))
    history.put_queue("lq", case.input.get("lqWeight", 1))
    got = history.usage["lq"]
    wanted = case.want.get("wantUsage", (case.data.get("observed") or {}).get("got"))
    return _unlike(got, float(str(wanted).replace("+Inf", "inf")))


def run_penalties(path):
    """What workloads count that were decided and are not admitted yet."""

    def failure(case):
        # A half-life that makes all of a penalty count: the table pushes what it counts.
        history = UsageHistory(UsageBasedOrder(half_life_seconds=1e-9))
        for each in case.input["ops"]:
            if "push" in each:
                history.push("ns/lq", each.get("wl", ""), nanos(amounts(each["push"])), NOW)
            else:
                history.drop("ns/lq", each.get("wl", ""))
        entry = history.entries.get("ns/lq")
        penalty = {} if entry is None else entry.penalty
        got = {name: value // 10**6 for name, value in penalty.items()}
        wanted = {n: v for n, v in (case.want["wantMilli"] or {}).items() if v}
        return _unlike((bool(got), got), (case.want["wantHas"], wanted))

    yield from run_table(path, failure)


def run_ledger(path):
    """Tables whose rows are Go functions on the history."""
    yield from run_table(path, lambda _case: "", rule=lambda _case: CODE)


def _workload(body):
    return decode(body, Workload)


def _unlike(got, wanted):
    return "" if got == wanted else f"got {got}, wanted {wanted}"
