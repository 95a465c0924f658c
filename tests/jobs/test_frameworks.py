"""Which kinds of jobs queue, as Kueue's Configuration and installed packages say."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from policyd.api.makers import makers_of
from policyd.config import parse_configuration
from policyd.jobs.frameworks import gated_frameworks, integrations_of
from policyd.jobs.integrations import Integrations
from policyd.jobs.kinds.batch_job import BATCH_JOB
from policyd.jobs.kinds.ray_job import RAY_JOB
from policyd.jobs.kinds.registry import registered
from policyd.jobs.rules.defaults import default_on_create, holds
from policyd.jobs.rules.surroundings import JobContext
from policyd.patch.draft import Draft

QUEUE = "kueue.x-k8s.io/queue-name"
SELECTOR = "managedJobsNamespaceSelector: {matchLabels: {team: a}}"


def chosen(text):
    return integrations_of(configuration(text))


def configuration(text):
    head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    return parse_configuration(f"{head}{text}".encode())


@pytest.mark.parametrize(
    ("text", "on", "off"),
    [
        pytest.param("", [("batch", "Job")], [("", "Pod"), ("ray.io", "RayJob")], id="jobs-alone"),
        pytest.param(
            "integrations: {frameworks: [ray.io/rayjob]}",
            [("ray.io", "RayJob")],
            [("batch", "Job"), ("ray.io", "RayCluster")],
            id="only-what-is-listed",
        ),
        pytest.param(
            "integrations: {frameworks: [statefulset]}",
            [("apps", "StatefulSet"), ("", "Pod")],
            [("apps", "Deployment")],
            id="pods-with-what-makes-them",
        ),
    ],
)
def test_kinds_are_on_that_a_configuration_lists(text, on, off):
    found = chosen(text)

    assert all(holds(*kind, found) for kind in on)
    assert not any(holds(*kind, found) for kind in off)


def test_pods_that_nothing_made_queue_only_if_that_is_configured():
    pods, made = (
        chosen(f"integrations: {{frameworks: [{name}]}}\n{SELECTOR}")
        for name in ("pod", "deployment")
    )

    assert (pods.plain_pods, made.plain_pods) == (True, False)
    assert changed(pod(), pods)
    assert not changed(pod(), made)
    assert changed(pod(annotations={"kueue.x-k8s.io/pod-suspending-parent": "deployment"}), made)


def pod(queue="a", **metadata):
    labels = {QUEUE: queue} if queue else {}
    return {"metadata": {"labels": labels, **metadata}, "spec": {"containers": [{"name": "a"}]}}


def changed(body, integrations, *, group="", kind="Pod"):
    draft = Draft(body)
    surroundings = JobContext(integrations=integrations, account="system:kube-controller-manager")
    default_on_create(draft, group=group, kind=kind, surroundings=surroundings)
    return draft.changed


def test_jobs_that_name_no_queue_are_held_where_all_are():
    everywhere = chosen("manageJobsWithoutQueueName: true")
    job = {"metadata": {}, "spec": {"template": {}}}

    assert everywhere.manages_all
    assert changed(job, everywhere, group="batch", kind="Job")
    assert not changed(job, Integrations(), group="batch", kind="Job")


def test_namespaces_are_chosen_by_their_labels():
    found = chosen(SELECTOR)

    assert found.covers({"team": "a"})
    assert not found.covers({"team": "b"})
    assert not chosen("").covers({"kubernetes.io/metadata.name": "kube-system"})


def test_objects_of_an_external_kind_are_left_to_it():
    found = chosen("integrations: {frameworks: [batch/job], externalFrameworks: [Spruce.v1.x.io]}")
    owner = {"apiVersion": "x.io/v2", "kind": "Spruce", "name": "a", "uid": "b", "controller": True}
    job = {"metadata": {"labels": {QUEUE: "a"}, "ownerReferences": [owner]}, "spec": {}}
    makers = makers_of(["x.io=system:kube-controller-manager"])

    assert not changed(job, replace(found, makers=makers), group="batch", kind="Job")
    assert changed(job, found, group="batch", kind="Job")
    assert changed(job, Integrations(), group="batch", kind="Job")


SPARK = ("sparkoperator.k8s.io", "SparkApplication")


@pytest.mark.gate("SparkApplicationIntegration")
def test_spark_applications_queue_only_with_their_feature_gate():
    text = "integrations: {frameworks: [sparkoperator.k8s.io/sparkapplication]}"
    off, on = (
        configuration(f"{text}\nfeatureGates: {{SparkApplicationIntegration: {value}}}")
        for value in ("false", "true")
    )

    assert [*gated_frameworks(off)] == [
        ("sparkoperator.k8s.io/sparkapplication", "SparkApplicationIntegration")
    ]
    assert [*gated_frameworks(on)] == []
    assert not integrations_of(off).has(*SPARK)
    assert integrations_of(on).has(*SPARK)


def entry_point(found):
    return SimpleNamespace(name="one", load=lambda: found)


@pytest.mark.parametrize(
    ("found", "error"),
    [
        pytest.param(object(), TypeError, id="no-kind"),
        pytest.param((object(),), TypeError, id="no-kind-among-them"),
        pytest.param(BATCH_JOB, ValueError, id="a-kind-that-is-there"),
    ],
)
def test_a_package_registers_kinds_of_its_own_and_nothing_else(found, error):
    with pytest.raises(error, match=r"one|Job of batch/v1"):
        list(registered([entry_point(found)]))


def test_two_packages_cannot_register_the_same_kind():
    with pytest.raises(ValueError, match="twice"):
        list(registered([entry_point((RAY_JOB,)), entry_point((RAY_JOB,))]))
