"""What SparkApplications request, how they start and stop, and what is refused in them."""

import copy

import msgspec
import pytest

from policyd.jobs.injection import PodInjection, put_back, start
from policyd.jobs.kinds.spark_application import ELASTIC_EXECUTORS, SPARK_APPLICATION
from policyd.jobs.kinds.spark_pods import AT_FIRST, INSTANCES, LEAST
from policyd.jobs.rules.validation import validate_job
from policyd.patch.draft import Draft

ON = {"enabled": True}
GROUP, KIND = "sparkoperator.k8s.io", "SparkApplication"


def application(executor=None, annotations=None, **spec):
    labels = {"kueue.x-k8s.io/queue-name": "q"}
    metadata = {"name": "s", "namespace": "ns", "labels": labels, "annotations": annotations or {}}
    given = {"mode": "cluster", "driver": {}, "executor": executor or {}, **spec}
    return {"metadata": metadata, "spec": given}


def read(body):
    return msgspec.convert(body, SPARK_APPLICATION.type)


def requested(body):
    driver, executor = SPARK_APPLICATION.pod_sets(read(body))
    assert (driver.name, driver.count) == ("driver", 1)
    resources = [each.resources for each in executor.template.spec.containers]
    return executor.count, [{**each.limits, **each.requests} for each in resources]


@pytest.mark.parametrize(
    ("executor", "conf", "resources"),
    [
        pytest.param({}, {}, {}, id="nothing"),
        pytest.param({"coreRequest": "500m", "cores": 2}, {}, {"cpu": "500m"}, id="cores"),
        pytest.param({"cores": 2}, {"spark.executor.cores": "3"}, {"cpu": "2"}, id="field-wins"),
        pytest.param({}, {"spark.executor.cores": "3"}, {"cpu": "3"}, id="conf"),
        pytest.param({}, {"spark.driver.cores": "3"}, {}, id="conf-of-the-driver"),
        pytest.param({"memory": "512m"}, {}, {"memory": "512Mi"}, id="java"),
        pytest.param({"memory": "512Mi"}, {}, {"memory": "512Mi"}, id="kubernetes"),
        pytest.param({"memory": "2GB"}, {}, {"memory": "2Gi"}, id="capitals"),
        pytest.param({"memory": "512"}, {}, {"memory": "512Mi"}, id="plain-number"),
        pytest.param(
            {"memory": "512m", "memoryOverhead": "1g"}, {}, {"memory": "1536Mi"}, id="overhead"
        ),
        pytest.param({"memory": "much"}, {}, {}, id="no-amount"),
        pytest.param({"gpu": {"name": "g", "quantity": 2}}, {}, {"g": "2"}, id="devices"),
        pytest.param({"gpu": {"name": "g", "quantity": -2}}, {}, {}, id="fewer-than-none"),
    ],
)
def test_requests_are_those_of_the_pods_that_spark_makes(executor, conf, resources):
    assert requested(application(executor, sparkConf=conf)) == (2, [resources])


def test_sidecars_and_templates_count_too():
    sidecar = {"name": "log", "resources": {"limits": {"cpu": "1"}}}
    own = {"name": "spark-kubernetes-executor", "resources": {"limits": {"g": "4"}}}
    other = {"name": "other", "resources": {"limits": {"cpu": "9"}}}
    template = {"spec": {"containers": [other, own]}}
    executor = {"sidecars": [sidecar], "template": template, "coreLimit": "2"}

    assert requested(application(executor))[1] == [
        {"cpu": "9"},
        {"g": "4", "cpu": "2"},
        {"cpu": "1"},
    ]


@pytest.mark.parametrize(
    ("executor", "more", "count"),
    [
        pytest.param({"instances": 3}, {}, 3, id="given"),
        pytest.param({"instances": 0}, {}, 0, id="none"),
        pytest.param({}, {}, 2, id="as-many-as-spark-makes"),
        pytest.param({}, {"sparkConf": {"spark.executor.instances": "5"}}, 5, id="conf"),
        pytest.param({}, {"sparkConf": {"spark.executor.instances": "+64"}}, 64, id="conf-sign"),
        pytest.param({}, {"sparkConf": {"spark.executor.instances": " 64\t"}}, 64, id="conf-space"),
        pytest.param(
            {}, {"sparkConf": {"spark.executor.instances": "0" * 20 + "64"}}, 64, id="conf-zeros"
        ),
        pytest.param(
            {}, {"sparkConf": {"spark.executor.instances": "٦٤"}}, 2**31 - 1, id="conf-unknown"
        ),
        pytest.param(
            {"instances": 1},
            {"dynamicAllocation": {"enabled": True, "maxExecutors": 7}},
            7,
            id="most",
        ),
        pytest.param(
            {"instances": 1},
            {"dynamicAllocation": {"enabled": True, "maxExecutors": 7, "initialExecutors": 64}},
            64,
            id="at-first",
        ),
        *(
            pytest.param(
                {},
                {
                    "dynamicAllocation": {"enabled": True, "maxExecutors": 7},
                    "sparkConf": {key: "64"},
                },
                64,
                id=f"dynamic-with-{key}",
            )
            for key in (INSTANCES, AT_FIRST, LEAST)
        ),
        pytest.param(
            {"instances": 1},
            {
                "dynamicAllocation": {
                    "enabled": True,
                    "maxExecutors": 7,
                    "initialExecutors": 2,
                    "minExecutors": 1,
                },
                "sparkConf": dict.fromkeys((INSTANCES, AT_FIRST, LEAST), "64"),
            },
            7,
            id="fields-win",
        ),
    ],
)
def test_executors_are_counted_as_many_as_there_may_be(executor, more, count):
    assert requested(application(executor, **more))[0] == count


def test_a_start_writes_into_the_roles_and_a_stop_puts_them_back():
    body = application({"instances": 2, "labels": {"a": "b"}})
    job = read(body)
    pod_sets = SPARK_APPLICATION.pod_sets(job)
    draft = Draft(copy.deepcopy(body))
    given = [PodInjection(labels={"x": "y"}, node_selector={"n": "1"}, gates=["g"])] * 2

    start(draft, job, kind=SPARK_APPLICATION, given=given, counts={})
    executor = draft.object["spec"]["executor"]
    put_back(draft, read(draft.object), kind=SPARK_APPLICATION, pod_sets=pod_sets)

    containers = [{"name": "spark-kubernetes-executor"}]
    assert executor["labels"] == {"a": "b", "x": "y"}
    assert executor["nodeSelector"] == {"n": "1"}
    assert executor["template"]["spec"] == {
        "schedulingGates": [{"name": "g"}],
        "containers": containers,
    }
    after = draft.object["spec"]["executor"]
    assert after == {
        "instances": 2,
        "labels": {"a": "b"},
        "template": {"spec": {"containers": containers}},
    }


def test_nodes_of_the_application_move_into_its_roles():
    body = application({"nodeSelector": {"b": "2"}}, nodeSelector={"a": "1", "b": "1"})
    draft = Draft(copy.deepcopy(body))

    start(draft, read(body), kind=SPARK_APPLICATION, given=[PodInjection()] * 2, counts={})

    spec = draft.object["spec"]
    assert "nodeSelector" not in spec
    assert spec["driver"]["nodeSelector"] == {"a": "1", "b": "1"}
    assert spec["executor"]["nodeSelector"] == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    ("body", "where"),
    [
        pytest.param(application(), None, id="fine"),
        pytest.param(application(mode="client"), "spec.mode", id="mode"),
        pytest.param(
            application(dynamicAllocation=ON), "spec.dynamicAllocation.enabled", id="dynamic"
        ),
        pytest.param(
            application(annotations={ELASTIC_EXECUTORS: "true"}, dynamicAllocation=ON),
            "spec.dynamicAllocation.maxExecutors",
            id="dynamic-without-end",
        ),
        pytest.param(
            application(
                annotations={ELASTIC_EXECUTORS: "true"}, dynamicAllocation={**ON, "maxExecutors": 4}
            ),
            None,
            id="dynamic-with-quota-for-the-most",
        ),
        pytest.param(application({"memory": "much"}), "spec.executor.memory", id="no-amount"),
        pytest.param(
            application(sparkConf={"spark.executor.resource.gpu.amount": "8"}),
            "spec.sparkConf[spark.executor.resource.gpu.amount]",
            id="devices-by-conf",
        ),
        pytest.param(
            application({}, sparkConf={"spark.executor.instances": "many"}),
            "spec.sparkConf[spark.executor.instances]",
            id="no-number",
        ),
        pytest.param(
            application(sparkConf={"spark.streaming.dynamicAllocation.enabled": "true"}),
            "spec.sparkConf[spark.streaming.dynamicAllocation.enabled]",
            id="streaming",
        ),
        pytest.param(
            application(sparkConf={"spark.kubernetes.executor.podTemplateFile=/t": ""}),
            "spec.sparkConf[spark.kubernetes.executor.podTemplateFile=/t]",
            id="a-key-with-a-value",
        ),
        pytest.param(
            application(mainApplicationFile="--conf", arguments=["a=b", "local:///main.py"]),
            "spec.mainApplicationFile",
            id="an-option-as-the-program",
        ),
        pytest.param(
            application(arguments=["--properties-file=/t", "local:///main.py"]),
            "spec.arguments[0]",
            id="an-option-as-an-argument",
        ),
        pytest.param(
            application(mainApplicationFile="local:///main.py", arguments=["--conf", "x"]),
            None,
            id="options-of-the-program",
        ),
        pytest.param(
            application(
                annotations={ELASTIC_EXECUTORS: "true"},
                dynamicAllocation={**ON, "maxExecutors": 4},
                sparkConf={AT_FIRST: "many"},
            ),
            f"spec.sparkConf[{AT_FIRST}]",
            id="no-number-at-first",
        ),
        pytest.param(
            application(sparkConf={"spark.dynamicAllocation.enabled": "true"}),
            "spec.sparkConf[spark.dynamicAllocation.enabled]",
            id="dynamic-by-conf",
        ),
    ],
)
def test_pods_that_would_not_be_counted_are_refused(body, where):
    errors = validate_job(body, group=GROUP, kind=KIND)

    assert [each.path for each in errors] == ([] if where is None else [where])


@pytest.mark.parametrize(
    ("state", "executors", "active", "ready", "succeeded"),
    [
        pytest.param("", {}, False, False, None, id="new"),
        pytest.param("RUNNING", {"1": "RUNNING"}, True, False, None, id="some-are-up"),
        pytest.param("RUNNING", {"1": "RUNNING", "2": "COMPLETED"}, True, True, None, id="up"),
        pytest.param("SUSPENDING", {}, True, False, None, id="stops"),
        pytest.param("SUSPENDED", {}, False, False, None, id="stopped"),
        pytest.param("COMPLETED", {}, False, False, True, id="done"),
        pytest.param("FAILED", {}, False, False, False, id="failed"),
        pytest.param("SUBMISSION_FAILED", {}, False, False, False, id="never-began"),
    ],
)
def test_how_far_an_application_has_come(state, executors, active, ready, succeeded):
    status = {"applicationState": {"state": state}, "executorState": executors}
    job = read({**application(), "status": status})

    outcome = SPARK_APPLICATION.outcome(job)

    assert (SPARK_APPLICATION.active(job), SPARK_APPLICATION.ready(job)) == (active, ready)
    assert (None if outcome is None else outcome.succeeded) is succeeded
