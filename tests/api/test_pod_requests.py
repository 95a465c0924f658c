"""What a pod requests."""

import msgspec
import pytest

from policyd.api.pod_requests import pod_requests
from policyd.api.pods import PodSpec


def container(requests=None, limits=None, **rest):
    return {"resources": {"requests": requests or {}, "limits": limits or {}}, **rest}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, {}, id="no-containers"),
        pytest.param(
            {"containers": [container({"cpu": "500m"}), container({"cpu": "1"})]},
            {"cpu": 1500},
            id="containers-add-up",
        ),
        pytest.param(
            {"containers": [container(limits={"nvidia.com/gpu": "8"})]},
            {"nvidia.com/gpu": 8},
            id="a-limit-counts-as-the-request",
        ),
        pytest.param(
            {"containers": [container({"cpu": "1"}, {"cpu": "4"})]},
            {"cpu": 1000},
            id="a-request-wins-over-its-limit",
        ),
        pytest.param(
            {
                "containers": [container({"cpu": "1"})],
                "initContainers": [container({"cpu": "3"}), container({"cpu": "2"})],
            },
            {"cpu": 3000},
            id="the-largest-init-container-counts",
        ),
        pytest.param(
            {
                "containers": [container({"cpu": "1"})],
                "initContainers": [
                    container({"cpu": "1"}, restartPolicy="Always"),
                    container({"cpu": "3"}),
                ],
            },
            {"cpu": 4000},
            id="a-sidecar-runs-beside-later-init-containers",
        ),
        pytest.param(
            {
                "containers": [container({"cpu": "3"})],
                "initContainers": [container({"cpu": "1"}, restartPolicy="Always")],
            },
            {"cpu": 4000},
            id="a-sidecar-runs-beside-the-containers",
        ),
        pytest.param(
            {
                "containers": [container({"cpu": "1", "memory": "1Gi"})],
                "resources": {"requests": {"cpu": "6"}},
            },
            {"cpu": 6000, "memory": 2**30},
            id="the-pod-as-a-whole-replaces-the-sum",
        ),
        pytest.param(
            {
                "containers": [container({"nvidia.com/gpu": "8"})],
                "resources": {"requests": {"nvidia.com/gpu": "0", "hugepages-2Mi": "4Mi"}},
            },
            {"nvidia.com/gpu": 8, "hugepages-2Mi": 4 * 2**20},
            id="devices-are-not-stated-for-pods-as-a-whole",
        ),
        pytest.param(
            {
                "containers": [container({"cpu": "2"}), container({"cpu": "-2"})],
                "initContainers": [container({"cpu": "-1"}, restartPolicy="Always")],
                "overhead": {"cpu": "-2", "memory": "-1Gi"},
            },
            {"cpu": 2000, "memory": 0},
            id="what-is-negative-takes-nothing-from-others",
        ),
        pytest.param(
            {
                "containers": [container({"cpu": "2"})],
                "resources": {"requests": {"cpu": "-2", "memory": "-1Gi"}},
            },
            {"cpu": 2000, "memory": 0},
            id="what-is-negative-replaces-no-sum",
        ),
        pytest.param(
            {"containers": [container({"cpu": "1"})], "overhead": {"cpu": "250m"}},
            {"cpu": 1250},
            id="overhead-comes-on-top",
        ),
    ],
)
def test_requests(spec, expected):
    assert pod_requests(msgspec.convert(spec, PodSpec)) == expected
