"""HorizontalPodAutoscalers are seen in the version that a rule names, as the API server has them.

What is expected was read from an API server, which had been given the other version.
"""

import pytest

from policyd.api.admission import GroupVersionKind
from policyd.engine.compile.load import load_policies
from policyd.engine.objects.equivalents import VersionError, convert, restore
from policyd.engine.offline.requests import (
    RequestCircumstances,
    namespace_lookup,
    offline_set,
    request_for,
)
from policyd.patch.json_patch import apply_json_patch

METRICS = "autoscaling.alpha.kubernetes.io/metrics"
BEHAVIOR = "autoscaling.alpha.kubernetes.io/behavior"
CONDITIONS = "autoscaling.alpha.kubernetes.io/conditions"
CURRENT = "autoscaling.alpha.kubernetes.io/current-metrics"

CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}},
}
OBJECT = {
    "type": "Object",
    "object": {
        "describedObject": {"kind": "Ingress", "name": "i"},
        "metric": {"name": "r"},
        "target": {"type": "AverageValue", "averageValue": "2k"},
    },
}
EXTERNAL = {
    "type": "External",
    "external": {
        "metric": {"name": "q", "selector": {"matchLabels": {"a": "b"}}},
        "target": {"type": "Value", "value": "30"},
    },
}
RULES = {"selectPolicy": "Max", "policies": [{"type": "Pods", "value": 1, "periodSeconds": 15}]}
CONDITION = {"type": "AbleToScale", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}


def scaler(version, spec=None, annotations=None, status=None):
    metadata = {"name": "h", "namespace": "ns"}
    none = {"v1": {"currentReplicas": 0}, "v2": {"currentMetrics": None}}[version]
    return {
        "apiVersion": f"autoscaling/{version}",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata | ({"annotations": annotations} if annotations else {}),
        "spec": {"scaleTargetRef": {"kind": "D", "name": "d"}, "maxReplicas": 5, **(spec or {})},
        "status": {"desiredReplicas": 0, **none, **(status or {})},
    }


def seen(obj, version):
    kind = GroupVersionKind(group="autoscaling", version=version, kind="HorizontalPodAutoscaler")
    return convert(obj, kind)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(scaler("v1"), scaler("v2"), id="nothing"),
        pytest.param(
            scaler("v1", {"targetCPUUtilizationPercentage": 70, "minReplicas": 2}, {"x": "y"}),
            scaler("v2", {"metrics": [CPU], "minReplicas": 2}, {"x": "y"}),
            id="utilization",
        ),
        pytest.param(
            scaler(
                "v1",
                {"targetCPUUtilizationPercentage": 70},
                {
                    METRICS: '[{"type":"Object","object":{"target":{"kind":"Ingress","name":"i"},'
                    '"metricName":"r","targetValue":"0","averageValue":"2k"}},'
                    '{"type":"External","external":{"metricName":"q",'
                    '"metricSelector":{"matchLabels":{"a":"b"}},"targetValue":"30"}}]'
                },
            ),
            scaler("v2", {"metrics": [OBJECT, EXTERNAL, CPU]}),
            id="metrics",
        ),
        pytest.param(
            scaler(
                "v1",
                None,
                {
                    BEHAVIOR: '{"ScaleUp":null,"ScaleDown":{"StabilizationWindowSeconds":null,'
                    '"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":1,"PeriodSeconds":15}],'
                    '"Tolerance":null}}'
                },
            ),
            scaler("v2", {"behavior": {"scaleDown": RULES}}),
            id="behavior",
        ),
        pytest.param(
            scaler(
                "v1",
                None,
                {
                    CONDITIONS: '[{"type":"AbleToScale","status":"True",'
                    '"lastTransitionTime":"2020-01-01T00:00:00Z","message":"a\\u003cb"}]',
                    CURRENT: '[{"type":"Resource","resource":{"name":"cpu",'
                    '"currentAverageUtilization":9,"currentAverageValue":"0"}}]',
                },
                {"currentCPUUtilizationPercentage": 9},
            ),
            scaler(
                "v2",
                status={
                    "currentReplicas": 0,
                    "conditions": [CONDITION | {"message": "a<b"}],
                    "currentMetrics": [
                        {
                            "type": "Resource",
                            "resource": {
                                "name": "cpu",
                                "current": {"averageUtilization": 9, "averageValue": "0"},
                            },
                        }
                    ],
                },
            ),
            id="status",
        ),
    ],
)
def test_each_version_is_seen_as_the_other(first, second):
    second["status"].pop("currentReplicas", None)

    assert seen(second, "v1") == first
    assert without_zero(seen(first, "v2")) == second
    assert without_zero(restore(first, second)) == second


def without_zero(obj):
    if obj["status"].get("currentReplicas") == 0:
        del obj["status"]["currentReplicas"]
    return obj


@pytest.mark.parametrize("text", ["nonsense", "{}", "[]", "[5]"])
def test_annotations_that_say_nothing_are_left_out(text):
    given = scaler("v1", annotations={METRICS: text, CURRENT: text, "x": "y"})

    assert without_zero(seen(given, "v2")) == scaler("v2", annotations={"x": "y"})


def test_other_kinds_than_autoscalers_are_not_converted():
    with pytest.raises(VersionError, match="not a HorizontalPodAutoscaler"):
        seen(scaler("v1", {"maxReplicas": "many"}), "v2")


def test_a_change_for_the_other_version_comes_back_in_the_object_s_own():
    policy = """\
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: p}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [autoscaling], apiVersions: [v1], operations: [CREATE], resources: ["*"]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: "Object{spec: Object.spec{targetCPUUtilizationPercentage: 50}}"
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: b}
spec: {policyName: p}
"""
    given = scaler("v2", {"metrics": [CPU]})
    asked = offline_set(load_policies(policy, "p.yaml"), namespace_lookup((), {}))
    decision = asked.mutate(request_for(given, RequestCircumstances()))
    result = apply_json_patch(given, list(decision.operations))

    assert not decision.denials
    assert result["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 50
    assert result["apiVersion"] == "autoscaling/v2"
