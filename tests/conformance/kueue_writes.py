"""Kueue's tables of writes: what they leave behind when somebody else writes, and when they fail.

Kueue has two ways of writing a status, and tells of each what it must not be. The product has one,
a merge patch of the version that it has read: who was slower tries again with what there is then.
"""

import asyncio
import dataclasses

import msgspec

from policyd.api.kueue import AdmissionCheckState, Workload
from policyd.api.meta import Condition, with_condition
from policyd.controller.queues.provisioning_checks import with_states
from policyd.kube import resources as r
from policyd.kube.errors import ApiError, ConflictError
from policyd.testing.objects import refusal
from tests.conformance.kueue_objects import NOW, convert, run_table
from tests.conformance.kueue_parts import workload_of
from tests.conformance.kueue_scene import Scene, compared, difference, job_key

CODES = {"AlreadyExists": 409, "Conflict": 409, "NotFound": 404}
FILTERED = "conditions of others that an apply leaves out: the product patches what it changes"
ADDS = "checks that whoever answers them adds: the queue alone adds checks"
PODS_READY = {"waitForPodsReady": True}


def failure_of(error):
    """Return what an API server answers, as a table says it."""
    reason = error.get("reason", "InternalError")
    return refusal(CODES.get(reason, 500), reason, error["$error"])


def raised(code, *arguments):
    """Return the error that some code ends with; None if it does not."""
    try:
        code(*arguments)
    except ApiError as error:
        return error
    return None


# Statuses.


def run_statuses(path):
    """What is stored after a status was written while somebody else wrote, or deleted."""

    def failure(case):
        want = case.want["want"]
        scene = Scene(case)
        stored = workload_of(case.input["args"]["wl"])
        mirror = scene.cluster.mirrors.workloads
        first = mirror.get(stored.metadata.key)
        for _, arguments, _ in case.operations("client.Update"):
            somebody_elses(scene, arguments["obj"])
        expected = want.get("err")
        if expected and expected.get("reason") != "Conflict":
            scene.cluster.client.fail(failure_of(expected), verb="patch", plural="workloads")
        conditions = want["wl"].get("status", {}).get("conditions", ())
        recorded = [convert(each, Condition) for each in conditions]
        recorded = [CHANGE] if expected else recorded
        error = raised(write, scene, first, recorded)
        if isinstance(error, ConflictError) and "opts" in case.input["args"]:
            # The mirror knows the new version by now: Kueue's loose write asks for no version.
            error = raised(write, scene, mirror.get(stored.metadata.key), recorded)
        # What Kueue's test stored has the labels, too, that somebody else wrote meanwhile.
        left = [compared(case.data["observed"]["updatedWl"])]
        got = [type(error), [compared(each) for each in scene.all("Workload")]]
        wanted = [type(failure_of(expected)) if expected else type(None), left]
        return difference(got, wanted, "written")

    yield from run_table(path, failure, rule=filtered)


CHANGE = Condition("QuotaReserved", "True", "ByTest", "By test")


def filtered(case):
    """Leave out what is written and changes nothing: a condition was filtered out of it."""
    given, want = case.input["args"]["wl"], case.want["want"]
    others = case.input["conflict"] or want.get("err")
    written = given["metadata"]["resourceVersion"] != want["wl"]["metadata"]["resourceVersion"]
    return FILTERED if written and not others and "status" not in want["wl"] else ""


def somebody_elses(scene, body):
    """Store what somebody else writes; the mirrors have not seen it."""
    old = scene.store.get(r.WORKLOADS, body["metadata"]["namespace"], body["metadata"]["name"])
    labels = body["metadata"].get("labels") or {}
    metadata = {**old["metadata"], "labels": {**old["metadata"].get("labels", {}), **labels}}
    scene.store.replace(r.WORKLOADS, old, {**old, "metadata": metadata})


def write(scene, workload, conditions):
    conditions_now = workload.status.conditions
    for each in conditions:
        conditions_now = with_condition(conditions_now, each)
    status = msgspec.structs.replace(workload.status, conditions=conditions_now)
    asyncio.run(scene.writes.status(scene.cluster.mirrors.workloads, workload, status))


# Admission checks.


def run_checks(path):
    """What checks say after one has been answered."""

    def failure(case):
        given = case.input
        workload = Workload(status=status_of(given["origStates"]))
        state = convert(given["state"], AdmissionCheckState)
        new = with_states(workload, {state.name: state}, now=NOW)
        got = msgspec.to_builtins(new.admission_checks)
        wanted = msgspec.to_builtins(status_of(case.want["wantStates"]).admission_checks)
        for one, other in zip(got, wanted, strict=False):
            if not other.get("lastTransitionTime"):
                one.pop("lastTransitionTime", None)
                other.pop("lastTransitionTime", None)
        return difference(list(got), list(wanted), "checks")

    yield from run_table(path, failure, rule=lambda case: "" if case.input["origStates"] else ADDS)


def status_of(states):
    checks = convert(states or (), tuple[AdmissionCheckState, ...])
    return msgspec.structs.replace(Workload().status, admission_checks=checks)


# Reconcilers.


def run_readiness(path):
    """A status that cannot be written is an error, and is written at the next try."""

    def failure(case):
        given = {**case.input, "reconcilerOptions": {"$options": PODS_READY}}
        case = dataclasses.replace(case, input=given)
        scene, key = Scene(case), job_key(job_in(case))
        expected = failure_of(case.want["wantError"])
        scene.cluster.client.fail(expected, verb="patch", plural="workloads")
        error = raised(scene.reconcile, key)
        if error is not expected:
            return f"error: {error}, wanted {expected}"
        before = ready_in(scene)
        scene.reconcile(key)
        return difference([before, ready_in(scene)], ["False", "True"], "PodsReady")

    yield from run_table(path, failure)


def job_in(case):
    return next(body for body in case.objects.values() if body["kind"] == "Job")


def ready_in(scene):
    (workload,) = scene.all("Workload")
    conditions = workload["status"]["conditions"]
    return next(each["status"] for each in conditions if each["type"] == "PodsReady")
