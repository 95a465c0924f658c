"""Kueue's tables of jobs: what becomes of them, and what is read of them."""

import json

from tests.conformance.kueue_objects import run_table
from tests.conformance.kueue_scene import Scene, compared, difference, events, job_key

UNNAMED = frozenset({"name", "admission"})
"""What is not compared of the workloads of jobs."""


def run_reconciler(path):
    """Jobs, their workloads and what is told of them, after one look of Kueue."""

    def failure(case):
        scene = Scene(case)
        job = case.input.get("job") or case.want["wantJob"]
        return scene.reconcile_until(job_key(job), lambda: unlike(scene, case.want, job["kind"]))

    yield from run_table(path, failure)


def unlike(scene, want, kind):
    """Say what is not as the table wants it; empty if all is."""
    job = want.get("wantJob") or {}
    name = job.get("metadata", {}).get("name")
    got = [compared(each) for each in scene.all(kind) if each["metadata"]["name"] == name]
    wanted = [compared(job)] if name else []
    workloads = want.get("wantWorkloads") or ()
    told = events(want["wantEvents"]) if "wantEvents" in want else scene.notes.told
    return (
        difference(got, wanted, "job")
        or difference(unnamed(scene.all("Workload")), unnamed(workloads), "workloads")
        or difference(scene.notes.told, told, "events")
    )


def unnamed(workloads):
    return sorted((compared(each, untold=UNNAMED) for each in workloads), key=json.dumps)
