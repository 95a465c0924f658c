"""Objects of Kueue's v1beta1 become v1beta2 and come back."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.api.kueue.v1beta1 import KINDS, UnconvertibleError, downgraded, upgraded

OLD, NEW = "kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"

names = st.text("abc", max_size=3)


@st.composite
def workloads(draw):
    levels = draw(st.integers(1, 3))
    values = st.lists(names, min_size=levels, max_size=levels)
    domain = st.fixed_dictionaries({"values": values, "count": st.integers(1, 3)})
    topology = {"levels": ["l"] * levels, "domains": draw(st.lists(domain, max_size=4))}
    assignment = {"name": "main", "topologyAssignment": topology}
    admission = {"clusterQueue": "q", "podSetAssignments": [assignment]}
    spec = draw(
        st.sampled_from(
            [
                {"queueName": "lq"},
                {
                    "priorityClassName": "high",
                    "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass",
                },
            ]
        )
    )
    status = {"admission": admission, "accumulatedPastExexcutionTimeSeconds": 5}
    return {"apiVersion": OLD, "kind": "Workload", "spec": spec, "status": status}


@given(workloads())
def test_a_workload_survives_the_way_there_and_back(workload):
    assert downgraded(upgraded(workload)) == workload


def test_fields_that_v1beta2_lacks_are_dropped_and_the_rest_is_renamed():
    queue = {
        "apiVersion": OLD,
        "kind": "ClusterQueue",
        "spec": {
            "cohort": "team",
            "admissionChecks": ["budget"],
            "flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"},
            "namespaceSelector": {},
        },
        "status": {
            "pendingWorkloadsStatus": {"lastChangeTime": "now"},
            "fairSharing": {"weightedShare": 1, "admissionFairSharingStatus": {}},
        },
    }

    assert upgraded(queue) == {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "spec": {
            "cohortName": "team",
            "admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]},
            "flavorFungibility": {
                "whenCanBorrow": "MayStopSearch",
                "whenCanPreempt": "MayStopSearch",
            },
            "namespaceSelector": {},
        },
        "status": {"fairSharing": {"weightedShare": 1}},
    }


def test_other_objects_are_left_alone():
    pod = {"apiVersion": "v1", "kind": "Pod"}

    assert upgraded(pod) is pod
    assert downgraded(pod) is pod


def placed(**assignment):
    return {"admission": {"podSetAssignments": [{"name": "m", "topologyAssignment": assignment}]}}


AT = "status.admission.podSetAssignments[0].topologyAssignment"


@pytest.mark.parametrize(
    ("version", "kind", "parts", "place"),
    [
        (OLD, "LocalQueue", {"spec": "large"}, "spec"),
        (OLD, "ClusterQueue", {"spec": {"admissionChecks": "one"}}, "spec.admissionChecks"),
        (OLD, "ClusterQueue", {"spec": {"flavorFungibility": []}}, "spec.flavorFungibility"),
        (OLD, "Cohort", {"status": {"fairSharing": 1}}, "status.fairSharing"),
        (OLD, "Workload", {"spec": {"priorityClassSource": {}}}, "spec.priorityClassSource"),
        (OLD, "Workload", {"status": placed(levels="l")}, f"{AT}.levels"),
        (OLD, "Workload", {"status": placed(levels=["l"], domains=[{}])}, f"{AT}.domains[0]"),
        (OLD, "Workload", {"status": placed(levels=["l"], domains=[{"values": []}])}, AT),
        (OLD, "MultiKueueCluster", {"spec": {"kubeConfig": "a"}}, "spec.kubeConfig"),
        (NEW, "MultiKueueCluster", {"spec": {"clusterSource": 1}}, "spec.clusterSource"),
        (NEW, "Workload", {"spec": {"priorityClassRef": "high"}}, "spec.priorityClassRef"),
        (NEW, "Workload", {"spec": {"podSets": ["main"]}}, "spec.podSets[0]"),
        (NEW, "Workload", {"status": placed(slices=[{"domainCount": 2}])}, f"{AT}.slices[0]"),
        (NEW, "Workload", {"status": placed(slices=[{"domainCount": "2"}])}, f"{AT}.slices[0]"),
    ],
)
def test_a_field_of_another_type_is_named_with_its_place(version, kind, parts, place):
    other, convert = {OLD: (NEW, upgraded), NEW: (OLD, downgraded)}[version]
    document = {"apiVersion": version, "kind": kind, "metadata": {"name": "one"}, **parts}
    start = f"{kind} `one` cannot be had as `{other}`: `{place}"

    with pytest.raises(UnconvertibleError, match=f"^{re.escape(start)}") as raised:
        convert(document)

    assert raised.value.place.startswith(place)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | names,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)
FIELDS = [
    *("spec", "status", "fairSharing", "admissionChecks", "flavorFungibility", "podSets"),
    *("topologyRequest", "admission", "podSetAssignments", "topologyAssignment", "levels"),
    *("domains", "values", "count", "slices", "domainCount", "podCounts", "valuesPerLevel"),
    *("universal", "individual", "roots", "prefix", "priorityClassRef", "priorityClassSource"),
    *("group", "kubeConfig", "clusterSource"),
]


def nested(inner):
    return st.lists(inner, max_size=2) | st.dictionaries(
        st.sampled_from(FIELDS), inner, min_size=1, max_size=4
    )


@given(
    st.sampled_from([(OLD, upgraded), (NEW, downgraded)]),
    st.sampled_from(sorted(KINDS)),
    st.dictionaries(st.sampled_from(["spec", "status"]), st.recursive(json_values, nested)),
)
def test_any_object_is_converted_or_refused(way, kind, parts):
    version, convert = way
    document = {"apiVersion": version, "kind": kind, **parts}
    try:
        converted = convert(document)
    except UnconvertibleError:
        return
    assert converted["apiVersion"] != version
