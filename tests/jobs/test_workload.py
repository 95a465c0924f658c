"""Workloads that stand for jobs: named and written as Kueue does."""

import msgspec
import pytest

from policyd.api.kueue import PodSet, WorkloadStatus
from policyd.api.kueue.names import ADMITTED
from policyd.api.meta import Condition, ObjectMeta, OwnerReference
from policyd.api.pods import Container, PodSpec, PodTemplate, Resources, Toleration
from policyd.jobs.copied import CopiedKeys
from policyd.jobs.pods import role_hash
from policyd.jobs.workload import (
    Priority,
    body_of,
    equivalent,
    maximum_execution_time,
    new_workload,
    workload_name,
)
from policyd.workload.transitions import with_status


def owner(kind="Job", api_version="batch/v1", name="job", uid="test-uid"):
    return OwnerReference(api_version, kind, name, uid, controller=True, block_owner_deletion=True)


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        pytest.param(owner(), "job-job-b3219", id="job"),
        pytest.param(owner(uid=""), "job-job-15f7f", id="job-without-uid"),
        pytest.param(owner("Pod", "v1", "pod"), "pod-pod-43ebf", id="pod-of-the-core-group"),
    ],
)
def test_names_are_those_that_kueue_gives(reference, name):
    assert workload_name(reference) == name


def test_a_long_name_is_cut_before_the_hash():
    name = workload_name(owner(name="j" * 300))

    assert len(name) == 253
    assert name.startswith("job-jjj")


def test_a_workload_names_its_job_and_keeps_the_template_whole():
    job = ObjectMeta(
        name="job",
        namespace="ns",
        uid="test-uid",
        labels={"kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/max-exec-time-seconds": "60"},
        annotations={"provreq.kueue.x-k8s.io/zone": "z", "other": "x"},
    )
    template = {"spec": {"containers": [{"name": "c", "image": "train:1", "env": []}]}}
    pod_set = msgspec.convert({"count": 10, "template": template}, PodSet)

    workload = new_workload(job, owner=owner(), pod_sets=(pod_set,), priority=Priority(value=7))
    body = body_of(workload, [template], CopiedKeys().of(job))

    metadata = body["metadata"]
    assert metadata["labels"] == {"kueue.x-k8s.io/job-uid": "test-uid"}
    assert metadata["annotations"] == {"provreq.kueue.x-k8s.io/zone": "z"}
    assert list(metadata["finalizers"]) == ["kueue.x-k8s.io/resource-in-use"]
    assert metadata["ownerReferences"][0]["controller"] is True
    spec = body["spec"]
    assert (spec["queueName"], spec["priority"]) == ("lq", 7)
    assert spec["maximumExecutionTimeSeconds"] == 60
    assert spec["podSets"][0] == {"name": "main", "count": 10, "template": template}


def test_a_uid_too_long_for_a_label_is_left_out():
    job = ObjectMeta(name="job", namespace="ns", uid="u" * 64)

    workload = new_workload(job, owner=owner(), pod_sets=(PodSet(),), priority=Priority())

    assert workload.metadata.labels == {}


def pod_set(cpu="1", count=1, tolerations=()):
    container = Container(name="c", resources=Resources(requests={"cpu": cpu}))
    template = PodTemplate(spec=PodSpec(containers=(container,), tolerations=tolerations))
    return PodSet(count=count, template=template)


@pytest.mark.parametrize(
    ("demanded", "admitted", "same"),
    [
        pytest.param(pod_set(), False, True, id="as-it-was"),
        pytest.param(pod_set(cpu="2"), False, False, id="other-requests"),
        pytest.param(pod_set(count=2), False, False, id="other-count"),
        pytest.param(pod_set(tolerations=(Toleration(key="a"),)), False, False, id="tolerations"),
        pytest.param(
            pod_set(tolerations=(Toleration(key="a"),)), True, True, id="tolerations-of-its-flavor"
        ),
    ],
)
def test_a_workload_fits_its_job(demanded, admitted, same):
    job = ObjectMeta(name="job", namespace="ns")
    workload = new_workload(job, owner=owner(), pod_sets=(pod_set(),), priority=Priority())
    conditions = (Condition(ADMITTED, "True", "Admitted", ""),) if admitted else ()

    fits = equivalent((demanded,), with_status(workload, WorkloadStatus(conditions=conditions)))

    assert fits is same


CONTAINER = {"name": "c", "resources": {}}


@pytest.mark.parametrize(
    ("spec", "digest"),
    [
        pytest.param({"containers": [CONTAINER]}, "7aa6c7b8", id="a-container"),
        pytest.param(
            {"containers": [{**CONTAINER, "resources": {"requests": {}}}]},
            "a9f06f3a",
            id="empty-requests",
        ),
        pytest.param(
            {"containers": [{**CONTAINER, "resources": {"requests": {"cpu": "1"}}}]},
            "dc85db45",
            id="requests",
        ),
        pytest.param(
            {"containers": [CONTAINER], "resources": {"requests": {"cpu": "1"}}},
            "424e2272",
            id="requests-of-the-pod",
        ),
        pytest.param(
            {"containers": [{**CONTAINER, "image": "other", "env": [{"name": "A"}]}]},
            "7aa6c7b8",
            id="image-and-environment-do-not-matter",
        ),
    ],
)
def test_role_hashes_are_those_that_kueue_gives(spec, digest):
    assert role_hash(spec, {}) == digest


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("60", 60, id="a-minute"),
        pytest.param("0", None, id="no-limit"),
        pytest.param("soon", None, id="no-number"),
        pytest.param("9" * 60, 2**31 - 1, id="longer-than-a-workload-can-say"),
    ],
)
def test_how_long_a_job_may_run(text, seconds):
    job = ObjectMeta(labels={"kueue.x-k8s.io/max-exec-time-seconds": text})

    assert maximum_execution_time(job) == seconds
