"""A policy sets the RuntimeClass of pods and of pod templates, here and as it is exported."""

import pytest

from policyd.engine.compile.load import gather, load_document, load_policies
from policyd.engine.documents.reading import Document
from policyd.engine.lint.conflicts import conflicts
from tests.engine.reviews import job, mutated, pod, policies, policy
from tests.engine.test_export import exported, policy_set

SANDBOX = policy("inject: {runtimeClassName: sandbox}")
FORCED = policy("inject: {runtimeClassName: sandbox, override: [runtimeClassName]}")
COMPUTED = "pod.gpus() > 0 ? optional.of('gpu') : optional.none()"
OF_GPUS = policy(f'inject: {{runtimeClassName: {{expression: "{COMPUTED}"}}}}')


def with_class(name):
    obj = pod()
    return obj | {"spec": {**obj["spec"], "runtimeClassName": name}}


@pytest.mark.parametrize(
    ("source", "obj", "expected"),
    [
        pytest.param(SANDBOX, pod(), "sandbox", id="set"),
        pytest.param(SANDBOX, with_class(""), "sandbox", id="an-empty-name-is-none"),
        pytest.param(SANDBOX, with_class("mine"), "mine", id="the-authors-stays"),
        pytest.param(FORCED, with_class("mine"), "sandbox", id="override"),
        pytest.param(OF_GPUS, pod(gpus=1), "gpu", id="computed"),
        pytest.param(OF_GPUS, pod(), None, id="computed-and-left-out"),
    ],
)
def test_the_class_of_a_pod(source, obj, expected):
    spec = mutated(policies(source), obj)["spec"]
    assert spec.get("runtimeClassName") == expected

    resources = '{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"]}'
    pods = '{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}'
    assert resources in source
    _, objects, said = exported(source.replace(resources, pods))
    native = gather(load_document(Document(each, "export")) for each in objects)
    assert not said
    assert mutated(policy_set(native, {}), obj)["spec"] == spec


def test_the_class_of_a_template_is_set_when_its_job_is_created():
    created = mutated(policies(SANDBOX), job())
    updated = mutated(policies(SANDBOX), job(), "UPDATE", old=job())

    assert created["spec"]["template"]["spec"]["runtimeClassName"] == "sandbox"
    assert updated == job()


def test_two_classes_are_a_conflict():
    other = policy("inject: {runtimeClassName: other}", "q")
    loaded = load_policies(f"{SANDBOX}---\n{other}", "p.yaml")

    (finding,) = conflicts(loaded.policies)

    assert "sets runtimeClassName to `sandbox`" in finding.message
