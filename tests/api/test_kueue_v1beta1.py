"""Objects of Kueue's v1beta1 become v1beta2 and come back."""

from hypothesis import given
from hypothesis import strategies as st

from policyd.api.kueue.v1beta1 import downgraded, upgraded

OLD = "kueue.x-k8s.io/v1beta1"

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


def test_what_v1beta2_has_not_is_dropped_and_the_rest_renamed():
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
