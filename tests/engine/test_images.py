"""`images()`: what it returns of pods and workloads, and when a policy that calls it runs again."""

import pytest

from policyd.cel import Budget, CelCompileError
from policyd.cel.compile.program import compile_expression
from policyd.engine.model.functions import expression_environment
from policyd.engine.model.reads import reads_of
from tests.engine.reviews import pod, policies, policy, raw_request

TEMPLATE = {
    "initContainers": [{"image": "fetch:1"}],
    "containers": [{"image": "train:2"}, {"name": "no-image"}, {"image": 7}],
    "ephemeralContainers": [{"image": "debug:3"}],
}
IMAGES = ["fetch:1", "train:2", "debug:3"]
JOB_SET = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "spec": {
        "replicatedJobs": [
            {"name": name, "template": {"spec": {"template": {"spec": TEMPLATE}}}}
            for name in ("driver", "workers")
        ]
    },
}


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        pytest.param({"kind": "Pod", "apiVersion": "v1", "spec": TEMPLATE}, IMAGES, id="pod"),
        pytest.param({"spec": TEMPLATE}, IMAGES, id="template"),
        pytest.param(JOB_SET, IMAGES * 2, id="each-template"),
        pytest.param({"kind": "ConfigMap", "apiVersion": "v1"}, [], id="no-pods"),
    ],
)
def test_images_of_all_containers(workload, expected):
    program = compile_expression("workload.images()", expression_environment())

    assert program.evaluate({"workload": workload}, Budget(100)) == expected


def test_images_are_known_to_be_texts():
    with pytest.raises(CelCompileError, match="no matching overload for '_<_'"):
        compile_expression("workload.images().all(i, i < 1)", expression_environment())


def test_a_misshapen_pod_is_denied_with_the_reason():
    asks = policies(policy("validations: [{expression: pod.images().size() > 0, message: m}]"))
    (denial,) = asks.validate(raw_request(pod() | {"spec": {"containers": {}}})).denials

    assert "`containers` is not a list of objects" in denial.message


def test_only_a_change_of_images_makes_it_run_again():
    assert reads_of(["pod.images().size() > 0"]) == {"image"}
