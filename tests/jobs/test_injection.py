"""What pods get when their job is admitted, and how they lose it again."""

import msgspec
import pytest

from policyd.api.kueue import PodSet, ResourceFlavor, Workload
from policyd.api.pods import Toleration
from policyd.jobs.injection import (
    CONSUMES,
    FlavorMissingError,
    PodInjection,
    StartError,
    inject,
    injections,
    restore,
)
from policyd.patch.draft import Draft

P = "kueue.x-k8s.io/"
TOLERATION = {"key": "gpu", "operator": "Exists"}


def flavor(name, labels, *tolerations):
    body = {
        "metadata": {"name": name},
        "spec": {"nodeLabels": labels, "tolerations": list(tolerations)},
    }
    return msgspec.convert(body, ResourceFlavor)


def workload(flavors, checks=(), queue="cq"):
    assignment = {"name": "main", "flavors": flavors, "count": 1}
    body = {
        "metadata": {"name": "w", "namespace": "ns"},
        "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": 1}]},
        "status": {
            "admission": {"clusterQueue": queue, "podSetAssignments": [assignment]},
            "admissionChecks": list(checks),
        },
    }
    return msgspec.convert(body, Workload)


FLAVORS = {
    "h100": flavor("h100", {"gpu": "h100"}, TOLERATION),
    "big": flavor("big", {"memory": "big"}, TOLERATION),
    "a100": flavor("a100", {"gpu": "a100"}),
}


def test_pods_are_sent_to_the_nodes_of_all_their_flavors():
    (given,) = injections(workload({"nvidia.com/gpu": "h100", "memory": "big"}), FLAVORS)

    assert given.node_selector == {"gpu": "h100", "memory": "big"}
    assert len(given.tolerations) == 1
    assert given.labels == {
        f"{P}podset": "main",
        f"{P}local-queue-name": "lq",
        f"{P}cluster-queue-name": "cq",
    }
    assert given.annotations == {f"{P}workload": "w"}


def test_a_queue_whose_name_is_no_label_is_not_made_one():
    (given,) = injections(workload({}, queue="c.q"), FLAVORS)

    assert f"{P}cluster-queue-name" not in given.labels


def test_updates_of_ready_checks_are_added():
    update = {"name": "main", "labels": {"a": "b"}, "nodeSelector": {"zone": "z"}}
    ready = {"name": "c", "state": "Ready", "podSetUpdates": [update]}

    (given,) = injections(workload({"cpu": "h100"}, [ready]), FLAVORS)

    assert given.node_selector == {"gpu": "h100", "zone": "z"}
    assert given.labels["a"] == "b"


@pytest.mark.parametrize(
    ("flavors", "error"),
    [
        pytest.param({"cpu": "gone"}, FlavorMissingError, id="missing-flavor"),
        pytest.param({"cpu": "h100", "gpu": "a100"}, StartError, id="flavors-disagree"),
    ],
)
def test_unsupported_inputs(flavors, error):
    with pytest.raises(error):
        injections(workload(flavors), FLAVORS)


TEMPLATE = {
    "metadata": {"labels": {"mine": "1"}},
    "spec": {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "mine"}]},
}


def given():
    return injections(workload({"cpu": "h100"}), FLAVORS)[0]


def test_existing_items_stay_and_none_is_added_twice():
    draft = Draft({"spec": {"template": TEMPLATE}})

    for _ in range(2):
        inject(draft, ("spec", "template"), given())

    spec = draft.object["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"disk": "ssd", "gpu": "h100"}
    assert spec["tolerations"] == [{"key": "mine"}, TOLERATION]


def test_a_contradiction_is_an_error_that_names_both_values():
    draft = Draft({"spec": {"nodeSelector": {"gpu": "a100"}}})

    with pytest.raises(StartError, match="key=gpu, value1=a100, value2=h100"):
        inject(draft, (), PodInjection(node_selector={"gpu": "h100"}))


def test_a_pod_of_an_earlier_slice_uses_the_nodes_of_the_latest():
    draft = Draft({"metadata": {"annotations": {CONSUMES: "first", "mine": "1"}}})

    inject(draft, (), PodInjection(annotations={CONSUMES: "second"}, renews=True))

    assert draft.object["metadata"]["annotations"] == {CONSUMES: "second", "mine": "1"}


def test_restoring_undoes_an_injection():
    draft = Draft({"spec": {"template": TEMPLATE}})
    inject(draft, ("spec", "template"), given())

    restore(draft, ("spec", "template"), msgspec.convert({"template": TEMPLATE}, PodSet))

    template = draft.object["spec"]["template"]
    assert template["spec"] == TEMPLATE["spec"]
    assert template["metadata"]["labels"] == {"mine": "1"}
    assert not template["metadata"].get("annotations")


def test_restoring_leaves_what_the_selector_of_a_job_goes_by():
    added = {"controller-uid": "u", "batch.kubernetes.io/job-name": "j"}
    metadata = {"labels": {"mine": "2", "more": "3", **added}}
    draft = Draft({"spec": {"template": {**TEMPLATE, "metadata": metadata}}})

    restore(draft, ("spec", "template"), msgspec.convert({"template": TEMPLATE}, PodSet))

    assert draft.object["spec"]["template"]["metadata"]["labels"] == {"mine": "1", **added}


@pytest.mark.parametrize("operator", [{}, {"operator": "Equal"}, {"operator": "Exists"}])
def test_a_toleration_is_passed_on_as_it_is_written_and_is_there_once(operator):
    toleration = {"key": "gpu", "effect": "NoSchedule", **operator}
    injection = PodInjection(labels={}, annotations={})
    injection.tolerations.append(msgspec.convert(toleration, Toleration))
    fresh, has_it = ({"spec": {"tolerations": given}} for given in ([], [{**toleration}]))
    drafts = [Draft({"t": fresh}), Draft({"t": has_it})]

    for draft in drafts:
        inject(draft, ("t",), injection)

    assert [draft.object["t"]["spec"]["tolerations"] for draft in drafts] == [[toleration]] * 2
