"""What other schedulers are told of a gang: one declaration, four ways to say it."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import yaml

from policyd.api.kueue import Workload
from policyd.jobs.gangs.gang import LONGEST_NAME, gang_of, short_name
from policyd.jobs.gangs.hand_over import hand_over, mark
from policyd.jobs.gangs.schedulers import (
    COSCHEDULING_GROUP,
    KAI_QUEUE,
    POD_GROUP,
    SCHEDULERS,
    VOLCANO_QUEUE,
    GangMetadata,
)
from policyd.patch.draft import Draft

RACK = "rack"
P = "kueue.x-k8s.io/podset-"
NAMES = {"Volcano": "volcano", "KAI": "kai-scheduler"}


def pod_set(name="main", count=4, *, gpus=1, labels=None, annotations=None, **spec):
    requests = {"cpu": "500m", "nvidia.com/gpu": gpus}
    containers = [{"name": "c", "resources": {"requests": requests}}]
    metadata = {"labels": labels or {}, "annotations": annotations or {}}
    template = {"metadata": metadata, "spec": {"containers": containers, **spec}}
    return {"name": name, "count": count, "template": template}


def workload(*pod_sets, name="train", counts=None, placed=()):
    assigned = [
        {
            "name": each["name"],
            "count": (counts or {}).get(each["name"], each["count"]),
            "topologyAssignment": {"levels": [RACK], "slices": []}
            if each["name"] in placed
            else None,
        }
        for each in pod_sets
    ]
    body = {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"podSets": list(pod_sets)},
        "status": {"admission": {"clusterQueue": "cq", "podSetAssignments": assigned}},
    }
    return msgspec.convert(body, Workload)


def handed_over(scheduler, *pod_sets, annotated=True, counts=None, placed=(), **options):
    """What a scheduler is told of a gang whose pods name it as theirs."""
    name = NAMES.get(scheduler, "") if annotated else ""
    for each in pod_sets:
        each["template"]["spec"].setdefault("schedulerName", name)
    made = workload(*pod_sets, counts=counts, placed=placed)
    return hand_over(gang_of(made, **options), SCHEDULERS[scheduler])


def two(**template):
    return pod_set("leader", 1, gpus=0, **template), pod_set("worker", 4, gpus=8, **template)


@pytest.mark.parametrize(
    ("scheduler", "specs"),
    [
        pytest.param(
            "Volcano",
            {
                "train": {
                    "minMember": 5,
                    "minTaskMember": {"leader": 1, "worker": 4},
                    "minResources": {"cpu": "2500m", "nvidia.com/gpu": "32"},
                    "queue": "research",
                }
            },
            id="volcano",
        ),
        pytest.param(
            "KAI",
            {
                "train": {
                    "minMember": 5,
                    "queue": "research",
                    "subGroups": [
                        {"name": "leader", "minMember": 1},
                        {"name": "worker", "minMember": 4},
                    ],
                }
            },
            id="kai",
        ),
        pytest.param(
            "Coscheduling",
            {
                "train": {
                    "minMember": 5,
                    "minResources": {"cpu": "2500m", "nvidia.com/gpu": "32"},
                }
            },
            id="coscheduling",
        ),
        pytest.param(
            "Native", {"train": {"schedulingPolicy": {"gang": {"minCount": 5}}}}, id="native"
        ),
    ],
)
def test_a_gang_of_two_roles(scheduler, specs):
    assert handed_over(scheduler, *two(), queue="research").specs == specs


@pytest.mark.parametrize(
    ("scheduler", "labels", "annotations"),
    [
        pytest.param(
            "Volcano",
            {},
            {"scheduling.k8s.io/group-name": "train", "volcano.sh/task-spec": "worker"},
            id="volcano",
        ),
        pytest.param(
            "KAI",
            {"kai.scheduler/queue": "research", "kai.scheduler/subgroup-name": "worker"},
            {"pod-group-name": "train", "kai.scheduler/skip-podgrouper": "true"},
            id="kai",
        ),
        pytest.param(
            "Coscheduling", {"scheduling.x-k8s.io/pod-group": "train"}, {}, id="coscheduling"
        ),
        pytest.param("Native", {"policyd.io/pod-group": "train"}, {}, id="native"),
    ],
)
def test_the_required_labels_of_its_pods(scheduler, labels, annotations):
    marks = handed_over(scheduler, *two(), queue="research").marks

    assert marks["worker"] == GangMetadata(labels=labels, annotations=annotations)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_gang_counts_the_pods_that_it_was_admitted_with(scheduler):
    (spec,) = handed_over(scheduler, pod_set(count=8), counts={"main": 3}, queue="q").specs.values()

    counted = spec.get("minMember") or spec["schedulingPolicy"]["gang"]["minCount"]
    assert counted == 3


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize(
    ("annotated", "least"),
    [("2", 2), ("9", 4), ("0", 1), ("some", 4)],
    ids=lambda value: f"says-{value}",
)
def test_a_role_may_do_with_fewer_pods(scheduler, annotated, least):
    annotations = {"policyd.io/min-members": annotated}
    (spec,) = handed_over(scheduler, pod_set(annotations=annotations), queue="q").specs.values()

    counted = spec.get("minMember") or spec["schedulingPolicy"]["gang"]["minCount"]
    assert counted == least


def asks(mode):
    return {f"{P}{mode}-topology": RACK}


def grouped(mode):
    return {**asks(mode), f"{P}group-name": "ring"}


@pytest.mark.parametrize(
    ("scheduler", "annotations", "field", "value"),
    [
        pytest.param(
            "Volcano", asks("required"), "networkTopology",
            {"mode": "hard", "highestTierName": RACK}, id="volcano-required",
        ),
        pytest.param(
            "Volcano", asks("preferred"), "networkTopology",
            {"mode": "soft", "highestTierName": RACK}, id="volcano-preferred",
        ),
        pytest.param(
            "KAI", asks("required"), "topologyConstraint",
            {"topology": "net", "requiredTopologyLevel": RACK}, id="kai-required",
        ),
        pytest.param(
            "KAI", asks("preferred"), "topologyConstraint",
            {"topology": "net", "preferredTopologyLevel": RACK}, id="kai-preferred",
        ),
        pytest.param(
            "Native", asks("required"), "schedulingConstraints",
            {"topology": [{"key": RACK}]}, id="native-required",
        ),
        pytest.param("Native", asks("preferred"), "schedulingConstraints", None,
                     id="native-preferred"),
        pytest.param("Native", {f"{P}unconstrained-topology": "true"}, "schedulingConstraints",
                     None, id="anywhere"),
    ],
)  # fmt: skip
def test_how_close_together_a_role_must_be(scheduler, annotations, field, value):
    asked = pod_set(annotations=annotations)
    (spec,) = handed_over(scheduler, asked, queue="q", topology="net").specs.values()

    assert spec.get(field) == value


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_pods_that_have_their_place_need_say_nothing_of_topology(scheduler):
    asked = pod_set(annotations=asks("required"))
    found = handed_over(scheduler, asked, placed=["main"], queue="q", topology="net")
    plain = handed_over(scheduler, pod_set(), queue="q", topology="net")

    assert (found.specs, found.unsupported) == (plain.specs, plain.unsupported)


def test_kai_keeps_roles_together_that_keep_together_each_for_itself():
    found = handed_over("KAI", *two(annotations=asks("required")), queue="q", topology="net")

    groups = found.specs["train"]["subGroups"]
    constraint = {"topology": "net", "requiredTopologyLevel": RACK}
    assert [group["topologyConstraint"] for group in groups] == [constraint, constraint]
    assert "topologyConstraint" not in found.specs["train"]


def test_roles_of_one_pod_set_group_keep_together_as_one():
    found = handed_over("Native", *two(annotations=grouped("required")))

    assert found.specs["train"]["schedulingConstraints"] == {"topology": [{"key": RACK}]}


EACH_ROLE = "the minimum size of each role (only their sum)"


@pytest.mark.parametrize(
    ("scheduler", "pod_sets", "options", "unsupported"),
    [
        pytest.param("Volcano", [pod_set()], {}, [], id="nothing"),
        pytest.param(
            "KAI",
            [pod_set()],
            {},
            ["a default queue (pods without the label kai.scheduler/queue stay pending)"],
            id="kai-without-a-queue",
        ),
        pytest.param("KAI", [pod_set(labels={KAI_QUEUE: "a"})], {}, [], id="kai-queue-of-the-pods"),
        pytest.param(
            "KAI",
            [pod_set(annotations=asks("required"))],
            {"queue": "q"},
            ["the required topology level `rack`"],
            id="kai-without-a-topology",
        ),
        pytest.param(
            "Coscheduling",
            [pod_set(annotations=asks("preferred"))],
            {},
            ["the preferred topology level `rack`"],
            id="coscheduling-knows-no-topology",
        ),
        pytest.param("Coscheduling", two(), {}, [EACH_ROLE], id="coscheduling-knows-no-roles"),
        pytest.param(
            "Native",
            [pod_set(annotations=asks("preferred"))],
            {},
            ["the preferred topology level `rack`"],
            id="native-knows-no-preference",
        ),
        pytest.param(
            "Native",
            two(annotations=asks("required")),
            {},
            [
                EACH_ROLE,
                "the required topology level `rack` of role `leader`",
                "the required topology level `rack` of role `worker`",
            ],
            id="native-has-one-level-for-all",
        ),
        pytest.param(
            "Volcano",
            [
                pod_set(
                    annotations={
                        "kueue.x-k8s.io/podset-slice-required-topology": RACK,
                        "kueue.x-k8s.io/podset-slice-size": "2",
                    }
                )
            ],
            {},
            ["the topology slices of role `main`"],
            id="slices",
        ),
    ],
)
def test_properties_that_a_scheduler_does_not_support(scheduler, pod_sets, options, unsupported):
    assert handed_over(scheduler, *pod_sets, **options).unsupported == tuple(unsupported)


@pytest.mark.parametrize(
    ("scheduler", "annotations", "unsupported"),
    [
        pytest.param("Coscheduling", 90, (), id="coscheduling"),
        pytest.param("Volcano", None, ("the annotation policyd.io/gang-wait",), id="volcano"),
    ],
)
def test_how_long_pods_wait_for_each_other(scheduler, annotations, unsupported):
    each = pod_set(schedulerName=NAMES.get(scheduler, ""))
    gang = replace(gang_of(workload(each)), wait_seconds=90)

    found = hand_over(gang, SCHEDULERS[scheduler])

    assert found.specs["train"].get("scheduleTimeoutSeconds") == annotations
    assert found.unsupported == unsupported


@pytest.mark.parametrize("scheduler", NAMES)
def test_pods_that_name_no_such_scheduler_are_not_handed_over(scheduler):
    found = handed_over(scheduler, pod_set(), annotated=False, queue="q")

    assert (found.specs, found.marks) == ({}, {})
    assert found.hindrance == f"the pods of `main` do not have `schedulerName: {NAMES[scheduler]}`"


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_roles_that_start_one_after_the_other_are_gangs_of_their_own(scheduler):
    found = handed_over(scheduler, *two(), comes="RoleByRole", queue="q")

    assert list(found.specs) == ["train-leader", "train-worker"]
    whole = "the gang as a whole (its roles start in order: each is a separate gang)"
    assert found.unsupported[0] == whole


def test_a_single_role_that_starts_in_order_is_one_gang():
    found = handed_over("Native", pod_set(), comes="RoleByRole")

    assert found.specs == handed_over("Native", pod_set()).specs
    assert found.unsupported == ()


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_pods_that_are_made_one_by_one_are_no_gang(scheduler):
    found = handed_over(scheduler, pod_set(), comes="PodByPod", queue="q")

    assert (found.specs, found.marks) == ({}, {})
    assert found.hindrance == "each pod is created only when the previous one is ready"


def test_pods_may_say_themselves_that_they_start_one_after_the_other():
    first, then = two()
    then["template"]["metadata"]["annotations"] = {"policyd.io/start-order": "1"}

    assert list(handed_over("Native", first, then).specs) == ["train-leader", "train-worker"]


@pytest.mark.parametrize(
    ("scheduler", "names"),
    [
        pytest.param("Native", ["train-leader", "train-worker"], id="native-needs-one-priority"),
        pytest.param("Coscheduling", ["train-leader", "train-worker"], id="so-does-coscheduling"),
        pytest.param("Volcano", ["train"], id="volcano-does-not"),
    ],
)
def test_roles_of_different_priority(scheduler, names):
    leader, worker = two()
    worker["template"]["spec"]["priorityClassName"] = "high"

    assert list(handed_over(scheduler, leader, worker, queue="q").specs) == names


@pytest.mark.parametrize(
    ("scheduler", "template"),
    [
        pytest.param(
            "Volcano", {"annotations": {"scheduling.k8s.io/group-name": "mine"}}, id="volcano"
        ),
        pytest.param("KAI", {"annotations": {"pod-group-name": "mine"}}, id="kai"),
        pytest.param("Coscheduling", {"labels": {COSCHEDULING_GROUP: "mine"}}, id="coscheduling"),
        pytest.param("Native", {"labels": {POD_GROUP: "mine"}}, id="native-by-label"),
        pytest.param("Native", {"schedulingGroup": {"podGroupName": "mine"}}, id="native"),
    ],
)
def test_pods_that_name_a_group_already_belong_to_it(scheduler, template):
    assert list(handed_over(scheduler, *two(**template), queue="q").specs) == ["mine"]


def test_groups_that_volcano_makes_of_single_pods_do_not_count():
    own = pod_set(annotations={"scheduling.k8s.io/group-name": "podgroup-0815"})

    assert list(handed_over("Volcano", own).specs) == ["train"]


def test_a_queue_that_pods_name_wins():
    own = pod_set(annotations={VOLCANO_QUEUE: "urgent"})

    assert handed_over("Volcano", own, queue="research").specs["train"]["queue"] == "urgent"


def test_pods_that_exist_cannot_join_a_native_group():
    found = handed_over("Native", pod_set(labels={POD_GROUP: "mine"}), pods={})

    assert found.specs == {}
    assert found.hindrance.startswith("only new pods can join a native PodGroup")


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        pytest.param({}, {"group": "train"}, id="nothing"),
        pytest.param({"group": "mine"}, {"group": "mine"}, id="another"),
        pytest.param({"group": "podgroup-1"}, {"group": "train"}, id="one-of-its-own"),
        pytest.param({"a": "b"}, {"a": "b", "group": "train"}, id="something-else"),
    ],
)
@pytest.mark.parametrize("section", ["labels", "annotations"])
def test_a_template_says_which_group_its_pods_belong_to(section, own, expected):
    draft = Draft({"spec": {"template": {"metadata": {section: own}}}})

    paths = (("spec", "template", "metadata", name) for name in ("labels", "annotations"))
    mark(draft, *paths, GangMetadata(**{section: {"group": "train"}}))

    assert draft.object["spec"]["template"]["metadata"][section] == expected


@pytest.mark.parametrize("length", [1, LONGEST_NAME, LONGEST_NAME + 1, 200])
def test_names_fit_a_label(length):
    name = short_name("n" * length)

    assert len(name) == min(length, LONGEST_NAME)
    assert name != short_name("n" * (length + 1))


@pytest.mark.parametrize(
    ("policy", "keys"),
    [
        pytest.param("volcano-gang", [VOLCANO_QUEUE], id="volcano"),
        pytest.param("kai-gang", [KAI_QUEUE], id="kai"),
        pytest.param("coscheduling-gang", [COSCHEDULING_GROUP], id="coscheduling"),
        pytest.param("native-gang", [POD_GROUP], id="native"),
    ],
)
def test_the_policies_of_the_library_say_the_same_words(policy, keys):
    text = (Path("policies/queueing") / policy / "policy.yaml").read_text()

    assert yaml.safe_load(text)
    assert all(key in text for key in keys)
