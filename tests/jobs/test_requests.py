"""What a pod will request: as its namespace, its runtime and the administrator have it."""

import msgspec
import pytest

from policyd.api.configuration.kinds import ResourcesConfiguration
from policyd.api.kueue import Workload
from policyd.api.limit_ranges import LimitRange, summarize
from policyd.api.pods import PodSpec
from policyd.jobs.requests import (
    InvalidRequestsError,
    RequestRules,
    check_requests,
    prepared,
    requests_of,
)


def pod(**resources):
    return msgspec.convert({"containers": [{"resources": resources}]}, PodSpec)


def limits(**item):
    body = {"spec": {"limits": [{"type": "Container", **item}]}}
    return summarize([msgspec.convert(body, LimitRange)])


def workload(spec):
    pod_set = {"template": {"spec": msgspec.to_builtins(spec)}}
    return msgspec.convert({"spec": {"podSets": [pod_set]}}, Workload)


def counted(**resources):
    return RequestRules(resources=msgspec.convert(resources, ResourcesConfiguration))


def test_unset_requests_come_from_the_namespace_and_the_runtime():
    rules = RequestRules(
        limits=limits(default={"cpu": "4"}, defaultRequest={"cpu": "3"}),
        overheads={"kata": {"memory": "1Ki"}},
    )
    spec = msgspec.structs.replace(pod(limits={"memory": "1Ki"}), runtime_class_name="kata")

    assert requests_of(prepared(spec, rules)) == {"cpu": 3_000, "memory": 2_048}


def test_overhead_that_the_pod_states_stays():
    spec = msgspec.structs.replace(pod(), runtime_class_name="kata", overhead={"cpu": "1"})

    rules = RequestRules(overheads={"kata": {"cpu": "5"}})

    assert requests_of(prepared(spec, rules)) == {"cpu": 1_000}


def test_some_resources_are_not_counted_and_some_as_others():
    rules = counted(
        excludeResourcePrefixes=["networking.example.com/"],
        transformations=[
            {
                "input": "example.com/mig",
                "strategy": "Replace",
                "multiplyBy": "example.com/slices",
                "outputs": {"example.com/memory": "5Gi", "cpu": "500m"},
            }
        ],
    )
    spec = pod(
        requests={
            "cpu": "1",
            "example.com/mig": 2,
            "example.com/slices": 3,
            "networking.example.com/vpc": 1,
        }
    )

    assert requests_of(spec, rules) == {
        "cpu": 4_000,
        "example.com/slices": 3,
        "example.com/memory": 30 * 2**30,
    }


def test_an_allowance_takes_nothing_from_what_is_requested_directly():
    rules = counted(transformations=[{"input": "a", "strategy": "Replace", "outputs": {"b": "-1"}}])

    assert requests_of(pod(requests={"a": 3, "b": 8}), rules) == {"b": 8}


@pytest.mark.parametrize(
    ("spec", "rules", "message"),
    [
        pytest.param(
            pod(requests={"cpu": "2"}, limits={"cpu": "1"}),
            RequestRules(),
            "resources validation failed: spec.podSets[0].template.spec.containers[0]: "
            'Invalid value: ["cpu"]: requests must not exceed its limits',
            id="above-its-limit",
        ),
        pytest.param(
            pod(requests={"cpu": "2"}),
            RequestRules(limits=limits(max={"cpu": "1"})),
            "resources didn't satisfy LimitRange constraints: "
            'spec.podSets[0].template.spec.containers[0]: Invalid value: ["cpu"]: '
            "requests must not be above the limitRange max",
            id="above-the-namespace",
        ),
    ],
)
def test_requests_that_cannot_be_are_named_with_their_place(spec, rules, message):
    with pytest.raises(InvalidRequestsError) as refused:
        check_requests(workload(spec), rules)

    assert str(refused.value) == message


def test_invalid_quantities_are_refused():
    with pytest.raises(InvalidRequestsError, match="quantities must match"):
        requests_of(pod(requests={"cpu": "a lot"}))
