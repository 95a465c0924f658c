"""Kueue's tables of jobs that are started, and put back to what they were."""

import copy

from policyd.api.kueue import PodSet
from policyd.api.kueue.names import SLICE_NAME
from policyd.api.pods import PodTemplate, Toleration
from policyd.jobs.injection import PodInjection, StartError, put_back, start
from policyd.patch.draft import Draft
from tests.conformance.kueue_jobs import given, job_of, kind_of
from tests.conformance.kueue_objects import convert, run_table, settings_of
from tests.conformance.kueue_scene import difference, pruned

CHANGES = ("wantChanged", "wantReturn")
"""What tables call it that something was put back."""


def run_ways(path):
    """What a job is after it was started, and after it was put back."""

    def failure(case):
        kind, draft = kind_of(path), Draft(copy.deepcopy(job_of(given(case))))
        original = copy.deepcopy(draft.object)
        infos = case.input.get("runInfo", infos_of(case))
        if {"wantRunError", "wantErr"} & case.want.keys():
            wrong_start, wrong = unlike_start(case, kind, draft, infos)
            if wrong_start or wrong or "wantSparkApp" in case.want:
                return wrong_start
        return unlike_back(case, kind, draft, original)

    unknown = "" if kind_of(path) else "a kind of job that has no module"
    yield from run_table(path, failure, rule=lambda _case: unknown)


def infos_of(case):
    """Return what a table says of the pod sets, however it spells that."""
    return case.input.get("podSetsInfo") or case.input.get("podsetsInfo")


def unlike_start(case, kind, draft, infos):
    job = convert(draft.object, kind.type)
    elastic = settings_of(case).gates.elastic_jobs_via_workload_slices
    injections = [injection_of(each, elastic=elastic) for each in infos or ()]
    counts = {str(i): each["Count"] for i, each in enumerate(infos or ()) if each.get("Count")}
    wrong = ""
    try:
        start(draft, job, kind=kind, given=injections, counts=counts)
        kind.resume(draft)
    except StartError as error:
        wrong = str(error)
    columns = ("wantAfterRun", "wantUnsuspended", "wantSparkApp")
    wanted = next(filter(None, map(case.want.get, columns)), None)
    wants = bool(case.want.get("wantRunError", case.want.get("wantErr")))
    wrong_start = difference(bool(wrong), wants, "error")
    if not wrong_start and not wrong and wanted:
        wrong_start = difference(seen(draft.object), seen(wanted), "started")
    return wrong_start, wrong


def unlike_back(case, kind, draft, original):
    infos = case.input.get("restoreInfo") or infos_of(case) or ()
    before = copy.deepcopy(draft.object)
    job = convert(before, kind.type)
    put_back(draft, job, kind=kind, pod_sets=[pod_set_of(each) for each in infos])
    changes = next((name for name in CHANGES if name in case.want), None)
    if changes is not None:
        named = case.want.get("wantTrainJob") or case.want.get("wantSparkApp")
        wanted = named or {"spec": case.want.get("wantSpec")}
        wrong = difference(draft.object != before, case.want[changes], "changed")
        return (
            wrong or (wanted["spec"] and difference(seen(draft.object), seen(wanted), "job")) or ""
        )
    kind.suspend(draft)
    wanted = case.want.get("wantFinal") or original
    return difference(seen(draft.object), seen(wanted), "put back")


def injection_of(info, *, elastic=False):
    """Return what a pod set gets, of what Kueue calls its info."""
    annotations = info.get("Annotations") or {}
    return PodInjection(
        labels=info.get("Labels") or {},
        annotations=annotations,
        node_selector=info.get("NodeSelector") or {},
        tolerations=convert(info.get("Tolerations") or [], list[Toleration]),
        gates=[each["name"] for each in info.get("SchedulingGates") or ()],
        renews=elastic and SLICE_NAME in annotations,
    )


def pod_set_of(info):
    template = {
        "metadata": {
            "labels": info.get("Labels") or {},
            "annotations": info.get("Annotations") or {},
        },
        "spec": {
            "nodeSelector": info.get("NodeSelector") or {},
            "tolerations": info.get("Tolerations") or [],
            "schedulingGates": info.get("SchedulingGates") or [],
        },
    }
    count = info.get("Count", 1)
    return PodSet(name="any", count=count, template=convert(template, PodTemplate))


def seen(job):
    return {"spec": alike(pruned(job["spec"]))}


def alike(value):
    """Write down that keys are equal, where tolerations say nothing of it."""
    match value:
        case {"key": _, "value": _}:
            return {"operator": "Equal", **value}
        case dict():
            return {name: alike(each) for name, each in value.items()}
        case list():
            return [alike(each) for each in value]
    return value
