"""Defaults of built-in kinds, as a real API server's audit log has them."""

import pytest
import yaml

from policyd.patch.builtin_views import type_of, typed_view
from policyd.patch.defaults import fill_in

POD = "{apiVersion: v1, kind: Pod, spec: "


def read(text):
    obj = yaml.safe_load(text)
    obj["metadata"] = {"name": "a"} | obj.get("metadata", {})
    found, _ = typed_view(obj, type_of(obj))
    fill_in(found)
    return found


def test_a_struct_that_is_not_given_has_its_defaults():
    spec = read("{apiVersion: apps/v1, kind: Deployment}")["spec"]
    rolling = {"maxSurge": "25%", "maxUnavailable": "25%"}
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": rolling}
    assert spec["template"]["spec"]["restartPolicy"] == "Always"
    assert (spec["replicas"], spec["revisionHistoryLimit"]) == (1, 10)


def test_a_value_decides_on_defaults_beside_it():
    spec = read("{apiVersion: apps/v1, kind: Deployment, spec: {strategy: {type: Recreate}}}")
    assert spec["spec"]["strategy"] == {"type": "Recreate"}
    service = read("{apiVersion: v1, kind: Service, spec: {sessionAffinity: ClientIP}}")
    assert service["spec"]["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10800}}


def test_a_field_decides_on_defaults_beside_it_by_being_there():
    job = "{apiVersion: batch/v1, kind: Job, spec: "
    assert read(job + "{}}")["spec"]["completions"] == 1
    assert "completions" not in read(job + "{parallelism: 2}}")["spec"]
    assert read(job + "{backoffLimitPerIndex: 1}}")["spec"]["backoffLimit"] == 2**31 - 1


@pytest.mark.parametrize("given", ["{name: a}", "{name: a, emptyDir: {}}"])
def test_a_volume_is_an_empty_directory_unless_it_is_another(given):
    pod = read(POD + "{volumes: [" + given + "]}}")
    assert pod["spec"]["volumes"] == [{"name": "a", "emptyDir": {}}]


def test_a_volume_of_another_kind_is_no_empty_directory():
    pod = read("{apiVersion: v1, kind: Pod, spec: {volumes: [{name: a, secret: {}}]}}")
    assert pod["spec"]["volumes"] == [{"name": "a", "secret": {"defaultMode": 420}}]


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("localhost:5000/a/nginx", "Always"),
        ("nginx:1", "IfNotPresent"),
        ("nginx@sha256:" + "a" * 64, "IfNotPresent"),
        (".example.com/nginx", "IfNotPresent"),
    ],
)
def test_an_image_without_a_version_is_always_pulled(image, policy):
    pod = read(POD + "{containers: [{name: a, image: '" + image + "'}]}}")
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_what_is_limited_is_requested_by_a_pod_but_not_by_a_template():
    containers = "containers: [{name: a, resources: {limits: {cpu: 1}, requests: {memory: 1}}}]"
    pod = read(POD + "{" + containers + "}}")
    made = read("{apiVersion: v1, kind: PodTemplate, template: {spec: {" + containers + "}}}")
    requests = [
        spec["containers"][0]["resources"]["requests"]
        for spec in (pod["spec"], made["template"]["spec"])
    ]
    assert requests == [{"cpu": "1", "memory": "1"}, {"memory": "1"}]


def test_fields_are_copied_to_others():
    service = read("{apiVersion: v1, kind: Service, spec: {ports: [{port: 80}]}}")
    assert service["spec"]["ports"] == [{"port": 80, "targetPort": 80, "protocol": "TCP"}]
    pod = read("{apiVersion: v1, kind: Pod, spec: {serviceAccountName: a}}")
    assert pod["spec"]["serviceAccount"] == "a"
    job = read("{apiVersion: batch/v1, kind: Job, spec: {template: {metadata: {labels: {a: b}}}}}")
    assert job["metadata"]["labels"] == {"a": "b"}
    assert read("{apiVersion: v1, kind: Namespace}")["metadata"]["labels"] == {
        "kubernetes.io/metadata.name": "a"
    }


def test_the_texts_of_a_secret_are_encoded():
    secret = read("{apiVersion: v1, kind: Secret, data: {b: Yg==}, stringData: {a: a}}")
    assert (secret["data"], secret["type"]) == ({"a": "YQ==", "b": "Yg=="}, "Opaque")
    assert "stringData" not in secret


def test_values_that_are_given_stay():
    text = "{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 0, revisionHistoryLimit: 0}}"
    spec = read(text)["spec"]
    assert (spec["replicas"], spec["revisionHistoryLimit"]) == (0, 0)
