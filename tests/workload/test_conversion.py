"""ClusterQueues as the allocator sees them."""

import msgspec
import pytest

from policyd.api.kueue import AdmissionCheck, ClusterQueue
from policyd.workload.conversion import queue_spec

MULTI_KUEUE = "kueue.x-k8s.io/multikueue"
PROVISIONING = "kueue.x-k8s.io/provisioning-request"


def queue(*rules):
    strategy = {
        "admissionChecks": [{"name": name, "onFlavors": flavors} for name, flavors in rules]
    }
    body = {"metadata": {"name": "q"}, "spec": {"admissionChecksStrategy": strategy}}
    return msgspec.convert(body, ClusterQueue)


def checks(**controllers):
    return {
        name: msgspec.convert({"spec": {"controllerName": controller}}, AdmissionCheck)
        for name, controller in controllers.items()
    }


@pytest.mark.parametrize(
    ("rules", "controllers", "clashes"),
    [
        pytest.param([("a", []), ("b", ["f"])], {"a": MULTI_KUEUE, "b": "x"}, [], id="none"),
        pytest.param(
            [("b", []), ("a", [])],
            {"a": MULTI_KUEUE, "b": MULTI_KUEUE},
            [
                (
                    "MultipleMultiKueueAdmissionChecks",
                    "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue,"
                    " found: a,b",
                )
            ],
            id="two-ways-to-other-clusters",
        ),
        pytest.param(
            [("a", ["f"]), ("b", [])],
            {"a": MULTI_KUEUE, "b": PROVISIONING},
            [
                (
                    "MultiKueueAdmissionCheckAppliedPerFlavor",
                    "Cannot specify MultiKueue AdmissionCheck per flavor, found: a",
                ),
                (
                    "MultiKueueWithProvisioningRequest",
                    "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together,"
                    " found: a, b",
                ),
            ],
            id="elsewhere-for-a-flavor-and-nodes-here",
        ),
    ],
)
def test_checks_that_cannot_be_used_together_are_named(rules, controllers, clashes):
    assert list(queue_spec(queue(*rules), checks(**controllers)).clashes) == clashes


def test_a_queue_that_is_being_deleted_is_not_called_stopped_only():
    metadata = {"name": "q", "deletionTimestamp": "2026-11-21T10:00:00Z"}
    deleted = msgspec.convert({"metadata": metadata}, ClusterQueue)

    specs = queue_spec(queue(), {}), queue_spec(deleted, {})

    assert [(each.stopped, each.terminating) for each in specs] == [(False, False), (True, True)]
