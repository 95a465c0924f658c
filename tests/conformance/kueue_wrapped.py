"""Kueue's tables of AppWrappers and SparkApplications, where they look into a job."""

import msgspec

from policyd.api.kueue import PodSet
from policyd.jobs.kinds.spark_application import SparkApplication
from policyd.jobs.kinds.spark_pods import template_of
from tests.conformance.kueue_jobs import read, unnamed
from tests.conformance.kueue_objects import convert, run_table
from tests.conformance.kueue_scene import Scene, compared, difference, job_key

ROLES = ("driver", "executor")
MOUNT = {"name": "data", "mountPath": "/data"}


def run_pod_sets(path):
    """What jobs demand; templates are compared where the table compares them."""

    def failure(case):
        kind, job = read(path, case)
        observed = case.data["observed"]
        whole = "gotPodSets" not in observed
        got = Scene(case).steps.requested(kind.pod_sets(job))
        wanted = convert(observed["got" if whole else "gotPodSets"], list[PodSet])
        return difference(*([shown(each, whole) for each in sets] for sets in (got, wanted)), "")

    yield from run_table(path, failure)


def shown(pod_set, whole):
    return repr(pod_set if whole else msgspec.structs.replace(pod_set, template=PodSet().template))


def run_reconciler(path):
    """AppWrappers and their workloads after one look of Kueue; templates are not compared."""

    def failure(case):
        scene = Scene(case)
        job = case.input["job"]

        def unlike():
            got = [compared(each) for each in scene.all(job["kind"])]
            workloads = [without_templates(each) for each in scene.all("Workload")]
            wanted = [without_templates(each) for each in case.want["wantWorkloads"] or ()]
            return difference(got, [compared(case.want["wantJob"])], "job") or difference(
                unnamed(workloads, exactly=False), unnamed(wanted, exactly=False), "workloads"
            )

        return scene.unlike_once_reconciled([job_key(job)], unlike)

    yield from run_table(path, failure)


def without_templates(workload):
    spec = {key: v for key, v in workload["spec"].items() if key != "priority"}
    pod_sets = [{**each, "template": None} for each in spec["podSets"]]
    return {**workload, "spec": {**spec, "podSets": pod_sets}}


def run_volumes(path):
    """Which volumes the pods of a role have, of those of their application."""

    def failure(case):
        role = role_of(case)
        job = convert({"spec": case.input["app"]["spec"]}, SparkApplication)
        template = template_of(getattr(job.spec, role), role, {}, job.spec.volumes)
        (container, *_), spec = template["spec"]["containers"], template["spec"]
        got = [[e["name"] for e in each or ()] for each in mounted(spec, container)]
        wanted = [case.want.get("wantVolumes") or [], case.want.get("wantVolumeMount") or []]
        return difference(got, wanted, "volumes")

    yield from run_table(path, failure, rule=no_role)


def mounted(spec, container):
    return spec.get("volumes"), container.get("volumeMounts")


def run_mounts(path):
    """Into which container of a pod volumes are mounted."""

    def failure(case):
        role = role_of(case)
        given = {"template": {"spec": case.input["pod"]["spec"]}, "volumeMounts": [MOUNT]}
        spec = {role: given, "volumes": [{"name": MOUNT["name"]}]}
        job = convert({"spec": spec}, SparkApplication)
        made = template_of(getattr(job.spec, role), role, {}, job.spec.volumes)
        with_mounts = [c["name"] for c in made["spec"]["containers"] if c.get("volumeMounts")]
        return difference(with_mounts, [f"spark-kubernetes-{role}"], "mounted in")

    yield from run_table(path, failure, rule=no_role)


def role_of(case):
    labels = case.input["pod"].get("metadata", {}).get("labels") or {}
    return labels.get("spark-role")


def no_role(case):
    """Leave out pods of no role: templates are made of the two roles of an application."""
    return "" if role_of(case) in ROLES else "a pod of neither role is not made of an application"
