"""The GPUs of a SparkApplication: of the driver, and of the most executors that Spark may make."""

import msgspec
import pytest

from policyd.cel import Budget, admission_environment, compile_expression
from policyd.engine.export.expressions import claims_of, devices_of, gpus_of
from policyd.engine.export.places import in_all_of_spark
from policyd.engine.objects.pods import claims, count_pods, devices, gpus
from policyd.engine.objects.spark import UNBOUNDED
from policyd.jobs.kinds.spark_application import SPARK_APPLICATION

GPU = {"name": "nvidia.com/gpu", "quantity": 1}
CONTAINER = {"name": "a", "resources": {"limits": {"nvidia.com/gpu": 2}}}


def application(conf=(), dynamic=None, driver=None, main=None, arguments=(), **executor):
    spec = {"driver": driver or {}, "executor": executor, "sparkConf": dict(conf)}
    spec |= {"arguments": [*arguments]} | ({} if main is None else {"mainApplicationFile": main})
    if dynamic is not None:
        spec["dynamicAllocation"] = dynamic
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "etl"},
        "spec": spec,
    }


ENABLED = {"spark.dynamicAllocation.enabled": "true"}


GPUS = [
    pytest.param(application(instances=3, gpu=GPU), 3, id="executors"),
    pytest.param(application(driver={"gpu": GPU}, instances=0), 1, id="driver"),
    pytest.param(application(gpu=GPU), 2, id="as-many-as-spark-makes"),
    pytest.param(application({"spark.executor.instances": "5"}, gpu=GPU), 5, id="by-settings"),
    pytest.param(
        application({"spark.executor.instances": "5"}, gpu=GPU, instances=3),
        5,
        id="the-more-of-both",
    ),
    pytest.param(
        application(dynamic={"enabled": True, "maxExecutors": 7}, instances=2, gpu=GPU),
        7,
        id="dynamic",
    ),
    pytest.param(
        application(dynamic={"enabled": False, "maxExecutors": 7}, instances=2, gpu=GPU),
        2,
        id="dynamic-but-off",
    ),
    pytest.param(
        application(ENABLED | {"spark.dynamicAllocation.maxExecutors": "9"}, gpu=GPU),
        9,
        id="dynamic-by-settings",
    ),
    pytest.param(application(ENABLED, gpu=GPU), UNBOUNDED, id="without-a-bound"),
    *(
        pytest.param(
            application(
                {f"spark.dynamicAllocation.{name}": "64"},
                dynamic={"enabled": True, "maxExecutors": 7},
                gpu=GPU,
            ),
            64,
            id=f"{name}-above-the-most",
        )
        for name in ("initialExecutors", "minExecutors")
    ),
    pytest.param(
        application(dynamic={"enabled": True, "maxExecutors": 7, "initialExecutors": 64}, gpu=GPU),
        64,
        id="more-at-first",
    ),
    *(
        pytest.param(
            application({"spark.executor.instances": text}, gpu=GPU), count, id=f"{text!r}"
        )
        for text, count in (
            ("+64", UNBOUNDED),
            (" 64", UNBOUNDED),
            ("0" * 20 + "64", UNBOUNDED),
            ("64k", UNBOUNDED),
            ("", 2),
            ("000000064", 64),
        )
    ),
    pytest.param(
        application({"spark.streaming.dynamicAllocation.enabled": "true"}, gpu=GPU, instances=1),
        UNBOUNDED,
        id="streaming",
    ),
    pytest.param(application(gpu=GPU, main="--conf", arguments=["a=b"]), UNBOUNDED, id="options"),
    pytest.param(application(gpu=GPU, arguments=["-c", "a=b"]), UNBOUNDED, id="options-only"),
    pytest.param(
        application(gpu=GPU, main="local:///a.py", arguments=["--conf"]), 2, id="of-the-program"
    ),
    pytest.param(
        application(sidecars=[CONTAINER], initContainers=[CONTAINER], instances=1),
        2,
        id="sidecars",
    ),
    pytest.param(
        application(template={"spec": {"containers": [CONTAINER]}}, instances=2),
        4,
        id="template",
    ),
    pytest.param(
        application(
            {
                "spark.executor.resource.gpu.amount": "2",
                "spark.executor.resource.gpu.vendor": "nvidia.com",
            },
            instances=2,
        ),
        4,
        id="resources-by-settings",
    ),
    pytest.param(application(instances="x", gpu=[], sidecars={}), 0, id="misshapen"),
]


@pytest.mark.parametrize(("made", "number"), GPUS)
def test_gpus_are_those_of_the_most_pods_that_there_may_be(made, number):
    assert gpus(made) == number
    assert devices(made) <= max(gpus(made), 1)


def test_claims_are_those_of_the_templates():
    template = {"spec": {"resourceClaims": [{"name": "gpu"}], "containers": []}}

    assert claims(application(template=template, instances=3)) == 3


@pytest.mark.parametrize(
    "made",
    [
        application(instances=3),
        application(),
        application({"spark.executor.instances": "5"}),
        application(dynamic={"enabled": True, "maxExecutors": 7}, instances=2),
    ],
)
def test_pods_are_those_that_the_queue_counts(made):
    job = msgspec.convert(made, SPARK_APPLICATION.type)

    assert count_pods(made) == sum(each.count for each in SPARK_APPLICATION.pod_sets(job))


@pytest.mark.parametrize(("made", "number"), GPUS[:-1])
def test_an_exported_policy_counts_the_same(made, number):
    environment = admission_environment(params=False)
    asked = [
        in_all_of_spark("object", gpus_of, once=False),
        in_all_of_spark("object", None, once=False),
        in_all_of_spark("object", devices_of, once=True),
        in_all_of_spark("object", claims_of, once=False),
    ]

    found = [
        compile_expression(text, environment, wants="int").evaluate({"object": made}, Budget())
        for text in asked
    ]

    assert found == [number, count_pods(made), devices(made), claims(made)]
