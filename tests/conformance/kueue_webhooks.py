"""Kueue's tables of what its webhooks refuse."""

from policyd.api.kueue import ClusterQueue, Cohort, ResourceFlavor, Workload
from policyd.api.kueue.gates import ValidationGates
from policyd.api.kueue.queue_validation import validate_cluster_queue, validate_cohort
from policyd.api.kueue.validation import validate_resource_flavor
from policyd.api.kueue.workload_validation import validate_workload
from tests.conformance.kueue_objects import convert, run_table


def run_queues(path):
    """ClusterQueues, given or made of many flavors and resources."""

    def failure(case):
        gates = convert(case.gates, ValidationGates)
        old = case.input.get("oldClusterQueue")
        new = case.input.get("newClusterQueue") or case.input.get("clusterQueue") or made(case)
        queue = convert(new, ClusterQueue)
        before = convert(old, ClusterQueue) if old else None
        return unlike(validate_cluster_queue(queue, before, gates=gates), case.want)

    yield from run_table(path, failure)


def run_cohorts(path):
    def failure(case):
        return unlike(validate_cohort(convert(case.input["cohort"], Cohort)), case.want)

    yield from run_table(path, failure)


def run_flavors(path):
    def failure(case):
        flavor = convert(case.input["rf"], ResourceFlavor)
        return unlike(validate_resource_flavor(flavor), case.want)

    yield from run_table(path, failure)


def run_workloads(path):
    """Workloads that are created, or changed."""

    def failure(case):
        gates = convert(case.gates, ValidationGates)
        old = case.input.get("before")
        workload = convert(case.input.get("after") or case.input["workload"], Workload)
        before = convert(old, Workload) if old else None
        return unlike(validate_workload(workload, before, gates=gates), case.want)

    yield from run_table(path, failure)


def made(case):
    """Build the queue of a case that says only how many flavors and resources it has."""
    flavors = case.input.get("numFlavors", 1)
    resources = case.input.get("numResources", case.input.get("numCoveredRes", 1))
    names = [f"r{number}" for number in range(resources)]
    quotas = [{"name": name, "nominalQuota": "1"} for name in names]
    group = {
        "coveredResources": names,
        "flavors": [{"name": f"f{number}", "resources": quotas} for number in range(flavors)],
    }
    return {"spec": {"resourceGroups": [group]}}


def unlike(errors, want):
    """Say how errors differ from those that are wanted: kinds and fields, words where given."""
    wanted = want["wantErr"]
    if isinstance(wanted, bool):
        return "" if bool(errors) is wanted else f"got {errors}"
    if isinstance(wanted, dict):
        wanted = wanted.get("errors", [wanted])
    fields = {e["field"] for e in wanted or ()}
    # What Kueue leaves to the schemas of its kinds, the tables of its webhooks may have wrong.
    errors = [e for e in errors if e.path in fields or not e.schema]
    found = sorted((f"FieldValue{e.problem}", e.path) for e in errors)
    if found != sorted((e["type"], e["field"]) for e in wanted or ()):
        return f"got {[str(e) for e in errors]}, wanted {wanted}"
    if want.get("wantDetail") and errors[0].message != want["wantDetail"]:
        return f"got {errors[0].message}, wanted {want['wantDetail']}"
    return ""
