"""Kyverno's policies in the API server's kinds say and do what they say and do here."""

import pytest

from policyd.api.admission import UserInfo
from policyd.dialects.kyverno.export import export_kyverno
from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import gather, load_document
from policyd.engine.documents.reading import Document, read_documents
from policyd.engine.offline.requests import (
    RequestCircumstances,
    namespace_lookup,
    offline_set,
    request_for,
)
from policyd.patch.json_patch import apply_json_patch

BEGIN = """\
apiVersion: policies.kyverno.io/v1
kind: {kind}
metadata: {{name: p{namespace}}}
spec:
  matchConstraints:
    resourceRules:
    - {{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}}
"""
SPEC = {"containers": [{"name": "c", "image": "a:latest"}]}


def policy(body, *, kind="ValidatingPolicy", namespace=""):
    lines = "".join(f"  {line}\n" for line in body.splitlines())
    return BEGIN.format(kind=kind, namespace=namespace) + lines


def exported(text):
    documents, findings = read_documents(text, "policy.yaml")
    assert not findings
    loaded = gather(load_document(document, EVERY_FORMAT) for document in documents)
    assert loaded.policies, loaded.findings
    return loaded, export_kyverno(loaded.policies, documents[0])


def pod(**metadata):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", **metadata}, "spec": SPEC}


def deployment(**metadata):
    template = {"metadata": metadata, "spec": SPEC}
    selector = {"matchLabels": {"a": "b"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a", "namespace": "team-a"},
        "spec": {"selector": selector, "template": template},
    }


def cron_job(**metadata):
    job = {"spec": {"template": {"metadata": metadata, "spec": SPEC}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "a"},
        "spec": {"schedule": "* * * * *", "jobTemplate": job},
    }


LABELLED = """
validations:
- expression: has(object.metadata.labels) && object.metadata.labels[?'team'].orValue('') != ''
  message: no team
- expression: object.spec.containers.all(c, !c.image.endsWith(':latest'))
  messageExpression: >-
    'no version in ' + object.metadata.?namespace.orValue('none') + '/' + object.metadata.name
"""
PARTS = """
matchConditions:
- {name: not for me, expression: "request.userInfo.username != 'me'"}
- {name: there, expression: "object != null && has(object.spec)"}
variables:
- {name: images, expression: "object.spec.containers.map(c, c.image)"}
validations:
- {expression: "size(variables.images) > 1 && object.kind != 'Job'", message: too few}
"""
OBJECTS = [
    pytest.param(obj, id=f"{what}-{how}")
    for how, metadata in (("bare", {}), ("labelled", {"labels": {"team": "a"}}))
    for what, obj in (
        ("pod", pod(**metadata)),
        ("deployment", deployment(**metadata)),
        ("cron-job", cron_job(**metadata)),
    )
]


@pytest.mark.parametrize("obj", OBJECTS)
@pytest.mark.parametrize(
    "body", [pytest.param(LABELLED, id="validations"), pytest.param(PARTS, id="parts")]
)
@pytest.mark.parametrize("user", ["me", "you"])
def test_pods_and_their_controllers_are_answered_alike(body, obj, user):
    loaded, made = exported(policy(body))
    assert not made.findings
    native = gather(load_document(Document(o, "export")) for o in made.objects)
    request = request_for(obj, RequestCircumstances(user=UserInfo(username=user)))

    ours, theirs = (
        offline_set(each, namespace_lookup((), {})).review(request) for each in (loaded, native)
    )

    assert [d.message for d in ours.denials] == [d.message for d in theirs.denials]
    assert bool(ours.matched) == bool(theirs.matched)


def test_there_is_a_policy_for_each_place_of_the_template():
    _, made = exported(policy(LABELLED))

    names = [o["metadata"]["name"] for o in made.objects if not o["kind"].endswith("Binding")]
    assert names == ["p", "p-templates", "p-cronjobs"]


def test_a_policy_that_is_not_extended_stays_one():
    _, made = exported(policy(LABELLED + "autogen: {podControllers: {controllers: []}}"))

    assert len(made.objects) == 2


def test_a_policy_of_a_namespace_is_bound_to_it():
    text = policy(LABELLED, kind="NamespacedValidatingPolicy", namespace=", namespace: team-a")
    _, made = exported(text)

    selector = {"matchLabels": {"kubernetes.io/metadata.name": "team-a"}}
    bindings = [o for o in made.objects if o["kind"].endswith("Binding")]
    assert all(o["spec"]["matchResources"] == {"namespaceSelector": selector} for o in bindings)


MUTATING = """
autogen: {podControllers: {controllers: []}}
mutations:
- patchType: ApplyConfiguration
  applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"}
"""


def test_a_mutation_changes_the_same():
    loaded, made = exported(policy(MUTATING, kind="MutatingPolicy"))
    assert not made.findings
    native = gather(load_document(Document(o, "export")) for o in made.objects)
    request = request_for(pod(), RequestCircumstances())
    sets = (offline_set(each, namespace_lookup((), {})) for each in (loaded, native))

    changed = [apply_json_patch(pod(), each.review(request).operations) for each in sets]

    assert changed[0] == changed[1] == pod(labels={"a": "b"})


OF_NAMESPACE = "has(namespaceObject.metadata)"
MUCH = "validations: [{expression: 'true'}]"
EMPTY_FIRST = """
autogen: {podControllers: {controllers: []}}
mutations:
- patchType: JSONPatch
  jsonPatch: {expression: "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {}}]"}
- patchType: JSONPatch
  jsonPatch: {expression: "[JSONPatch{op: 'add', path: '/metadata/annotations/a', value: 'b'}]"}
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            policy(
                MUTATING.replace("autogen: {podControllers: {controllers: []}}", ""),
                kind="MutatingPolicy",
            ),
            "a mutation of pods is extended to the templates of controllers",
            id="mutation-of-templates",
        ),
        pytest.param(
            policy(LABELLED + "autogen: {podControllers: {controllers: [jobsets]}}"),
            "it is extended to `jobsets`, which have pod templates in places of their own",
            id="custom-controller",
        ),
        pytest.param(
            policy(EMPTY_FIRST, kind="MutatingPolicy"),
            "a mutation adds empty values, which the API server drops before the next mutation",
            id="empty-objects-between-mutations",
        ),
        pytest.param(
            policy(f"matchConditions: [{{name: a, expression: {OF_NAMESPACE}}}]\n{MUCH}"),
            "a match condition reads `namespaceObject`, which is null in the API server",
            id="condition-on-the-namespace",
        ),
        pytest.param(
            policy('validations: [{expression: "dyn(object) != 1"}]'),
            "an expression reads the whole object, not the pod",
            id="the-object-as-a-whole",
        ),
        pytest.param(
            policy("validations: [{expression: \"image('a').registry() == 'b'\"}]"),
            "as ValidatingAdmissionPolicy, spec.validations[0].expression: undeclared reference to "
            "'image' (in container '')",
            id="a-function-of-kyvernos",
        ),
    ],
)
def test_parts_without_a_counterpart_are_reported(text, message):
    _, made = exported(text)

    assert not made.objects
    assert message in [
        finding.message.removeprefix("policy `p` is not exported: ") for finding in made.findings
    ]
