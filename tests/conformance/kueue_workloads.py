"""Kueue's tables of workloads: what becomes of them between the cycles."""

from policyd.api.kueue import Workload
from policyd.controller.keys import Key
from policyd.controller.time_limits import ready_time_left
from tests.conformance.kueue_objects import NOW, decode, run_table
from tests.conformance.kueue_scene import (
    Scene,
    compared,
    difference,
    events,
    ready_rules,
    seconds_of,
)

NOW_TEXT = "2026-01-02T03:04:05Z"

ABOUT = 1.0
"""Seconds by which a wait may differ."""


def run_reconciler(path):
    """Workloads, and what is told of them, after one look of Kueue."""

    def failure(case):
        scene = Scene(case)
        for flag, queue in (("shouldDeleteLQ", "lq"), ("shouldDeleteCQ", "cq")):
            if case.input.get(flag):
                scene.put(terminating(case.input[queue]))
        metadata = case.input["workload"]["metadata"]
        key = Key("Workload", metadata["namespace"], metadata["name"])
        return scene.reconcile_until(key, lambda: unlike(scene, case))

    yield from run_table(path, failure)


def terminating(queue):
    return {**queue, "metadata": {**queue["metadata"], "deletionTimestamp": NOW_TEXT}}


def unlike(scene, case):
    want = case.want
    # The product writes merge patches only; server-side apply leaves what nobody owned.
    wanted = want.get("wantWorkloadUseMergePatch") or want.get("wantWorkload")
    got = [timeless(each) for each in scene.all("Workload")]
    told = events(want.get("wantEvents"))
    after = seconds_of((want.get("wantResult") or {}).get("RequeueAfter", "0s"))
    late = not scene.wrote and abs((scene.wait or 0.0) - after) > ABOUT
    return (
        difference(got, [timeless(wanted)] if wanted else [], "workload")
        or difference(scene.notes.told, told, "events")
        or (f"looks again after {scene.wait} s, wanted {after}" if late else "")
    )


def timeless(workload):
    found = compared(workload)
    found.get("status", {}).get("requeueState", {}).pop("requeueAt", None)
    return found


def run_readiness(path):
    """How long the pods of a workload are waited for."""

    def failure(case):
        workload = decode({"metadata": {"name": "a"}, **case.input["workload"]}, Workload)
        rules = ready_rules(case.input.get("waitForPodsReady") or {})
        found = ready_time_left(workload, rules, now=NOW)
        cause, left = found or ("", 0.0)
        wanted = case.want["wantUnderlyingCause"], seconds_of(case.want["wantRecheckAfter"])
        return difference([cause, max(left, 0.0)], list(wanted), "wait")

    yield from run_table(path, failure)
