"""What belongs to a namespace sees that namespace alone, whatever it asks and wherever."""

import pytest
import yaml

from policyd.cel.lib.authorizer import Authorization
from policyd.dialects.kyverno.declared import declared_values
from policyd.dialects.kyverno.environments import kyverno_values
from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.params import StoredParams
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.offline.requests import namespace_lookup
from tests.engine.reviews import pod, request

OWN, OTHER = "team-a", "team-b"


def obj(kind, name, namespace="", **more):
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **more}


WORLD = (
    obj("Secret", "s", OWN, data={"word": "own-word"}),
    obj("Secret", "s", OTHER, data={"word": "other-word"}),
    obj("Node", "n", data={"word": "cluster-word"}),
    obj("Namespace", OWN, data={"word": "cluster-word"}),
    {**obj("Gate", "g", data={"word": "cluster-word"}), "apiVersion": "example.com/v1"},
    {**obj("Key", "k", OTHER, data={"word": "other-word"}), "apiVersion": "example.com/v1"},
)
EXTERNAL_DATA = declared_values(
    objects=WORLD,
    images=[{"image": "i", "data": {"word": "other-word"}}],
    responses=[{"url": "https://a", "response": {"data": {"word": "other-word"}}}],
    entries=[{"name": "e", "data": {"data": {"word": "other-word"}}}],
)
GVR = "resource.ToGVR('{}', '{}')"
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
NAMESPACES = {**PODS, "resources": ["namespaces"], "operations": ["*"]}


def validating(expression, *, kind="NamespacedValidatingPolicy", rule=PODS, **spec):
    validation = {"expression": f"{expression} == ''", "messageExpression": expression}
    constraints = {"resourceRules": [rule]}
    spec = {"matchConstraints": constraints, "validations": [validation], **spec}
    return made("policies.kyverno.io/v1", kind, spec)


def mutating(text, **_):
    expression = f"Object{{metadata: Object.metadata{{labels: {{'said': {text}}}}}}}"
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
    constraints = {"resourceRules": [PODS]}
    spec = {"matchConstraints": constraints, "mutations": [mutation]}
    return made("policies.kyverno.io/v1", "NamespacedMutatingPolicy", spec)


def patching(expression, **_):
    patch = f"[JSONPatch{{op: 'add', path: '/metadata/labels', value: {{'said': {expression}}}}}]"
    policy = mutating("''")
    given = {"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}
    policy["spec"]["mutations"] = [given]
    return policy


def rule_of(expression, **cel):
    expressions = [{"expression": f"{expression} == ''", "messageExpression": expression}]
    rule = {
        "name": "r",
        "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
        "validate": {"cel": {"expressions": expressions, **cel}},
    }
    spec = {"validationFailureAction": "Enforce", "rules": [rule]}
    return made("kyverno.io/v1", "Policy", spec)


def made(group, kind, spec):
    metadata = {"name": "p", "namespace": OWN}
    return {"apiVersion": group, "kind": kind, "metadata": metadata, "spec": spec}


KINDS = {
    "validating": validating,
    "mutating": mutating,
    "patching": patching,
    "rule": rule_of,
}


def load(*documents):
    return load_policies(yaml.safe_dump_all(documents), "p.yaml", EVERY_FORMAT)


def decide(*documents, subject=None, authorize=None, extra=EXTERNAL_DATA, params=()):
    loaded = load(*documents)
    assert not loaded.findings, "\n".join(map(str, loaded.findings))
    more = {} if authorize is None else {"authorize": authorize}
    surroundings = PolicyContext(
        namespaces=namespace_lookup(WORLD, {}), extra=extra, params=StoredParams(params), **more
    )
    asked = PolicySet(loaded.policies, exceptions=loaded.exceptions, surroundings=surroundings)
    return asked.review(subject or request(pod()))


OWN_READS = {
    "get": "resource.Get('v1', 'secrets', 's').data.word",
    "get-by-resource": f"resource.get({GVR.format('v1', 'secrets')}, 's').data.word",
    "list": "resource.List('v1', 'secrets').items.map(i, string(i.data.word)).join(',')",
    "list-by-labels": "string(resource.List('v1', 'secrets', {'a': 'b'}).items.size())",
    "list-by-resource": f"resource.list({GVR.format('v1', 'secrets')}).items[0].data.word",
    "list-of-it-by-labels": (
        f"string(resource.List({GVR.format('v1', 'secrets')}, {{'a': 'b'}}).items.size())"
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", OWN_READS)
def test_its_own_objects_are_read_without_naming_the_namespace(kind, form):
    decision = decide(KINDS[kind](f"string({OWN_READS[form]})"))

    results = repr((decision.denials, decision.operations))
    assert ("'0'" in results or "r: 0" in results) if "labels" in form else "own-word" in results
    assert not decision.failures


WRONG = {
    "get": "resource.Get('v1', 'secrets', 'team-b', 's').data.word",
    "get-by-resource": f"resource.get({GVR.format('v1', 'secrets')}, 'team-b', 's').data.word",
    "list": "resource.List('v1', 'secrets', 'team-b').items[0].data.word",
    "list-of-all": "resource.List('v1', 'secrets', '').items[1].data.word",
    "list-by-resource": f"resource.list({GVR.format('v1', 'secrets')}, '').items[1].data.word",
    "post": "resource.Post('v1', 'secrets', 'team-b', {'a': 'b'}).data.word",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", WRONG)
def test_a_namespace_is_no_argument(kind, form):
    loaded = load(KINDS[kind](f"string({WRONG[form]})"))

    assert loaded.policies == ()
    assert "found no matching overload" in loaded.findings[0].message
    hint = "in a namespaced policy, `resource` takes no namespace"
    assert loaded.findings[0].hint == hint


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("version", "plural", "name"),
    [
        pytest.param("v1", "nodes", "n", id="built-in"),
        pytest.param("v1", "namespaces", OWN, id="its-namespace"),
        pytest.param("example.com/v1", "gates", "g", id="custom"),
        pytest.param("v1", "nodes/status", "n", id="subresource"),
    ],
)
@pytest.mark.parametrize("verb", ["get", "list", "by-resource"])
def test_cluster_objects_are_not_read(kind, version, plural, name, verb):
    forms = {
        "get": f"resource.Get('{version}', '{plural}', '{name}').data.word",
        "list": f"resource.List('{version}', '{plural}').items[0].data.word",
        "by-resource": f"resource.Get({GVR.format(version, plural)}, '{name}').data.word",
    }
    decision = decide(KINDS[kind](f"string({forms[verb]})"))

    assert "cluster-word" not in repr(decision)
    why = f"`{version}/{plural}`, which belongs to the cluster"
    assert not decision.allowed
    assert why in decision.denials[0].message


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_of_a_custom_kind_elsewhere_is_not_there(kind):
    decision = decide(KINDS[kind]("string(resource.Get('example.com/v1', 'keys', 'k').data.word)"))

    assert not decision.allowed
    assert "other-word" not in repr(decision)


WITHHELD = {
    "http": "http.Get('https://a').data.word",
    "http-client": "http.Client('pem').Get('https://a').data.word",
    "http-post": "http.Post('https://a', {}).data.word",
    "globalContext": "globalContext.Get('e', '').data.word",
    "globalContext-short": "globalContext.get('e').data.word",
    "image": "image.GetMetadata('i').data.word",
    "image-short": "image.getMetadata('i').data.word",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", WITHHELD)
def test_reads_beyond_the_namespace_are_refused_at_load(kind, form):
    loaded = load(KINDS[kind](f"string({WITHHELD[form]})"))

    assert loaded.policies == ()
    name = form.partition("-")[0]
    message = loaded.findings[0].message
    assert message.startswith(f"`{name}` is not allowed in namespaced policies: ")
    assert loaded.findings[0].hint == "use a cluster-wide policy"


@pytest.mark.parametrize("form", WITHHELD)
def test_the_targets_of_a_mutation_are_not_named_by_what_is_elsewhere(form):
    policy = mutating("'x'")
    policy["spec"]["evaluation"] = {"mutateExisting": {"enabled": True}}
    targets = {"resourceRules": [PODS], "expression": WITHHELD[form]}
    policy["spec"]["targetMatchConstraints"] = targets
    loaded = load(policy)

    assert loaded.background == ()
    assert "is not allowed in namespaced policies: " in loaded.findings[0].message


@pytest.mark.parametrize(
    "place",
    [
        {"variables": [{"name": "v", "expression": "{}"}]},
        {"matchConditions": [{"name": "c", "expression": "{} == ''"}]},
        {"auditAnnotations": [{"key": "k", "valueExpression": "{}"}]},
    ],
    ids=["variable", "condition", "annotation"],
)
@pytest.mark.parametrize(
    "expression", ["http.Get('https://a').b", "resource.Get('v1', 'secrets', 'team-b', 's').b"]
)
def test_no_place_of_a_policy_is_left_out(place, expression):
    asked = yaml.safe_load(
        yaml.safe_dump(place).replace("{}", f"string({expression})".replace("'", "''"))
    )
    loaded = load(validating("''", **asked))

    assert loaded.policies == ()
    assert loaded.findings


def test_a_message_is_no_way_round():
    policy = validating("''")
    policy["spec"]["validations"][0]["messageExpression"] = "string(http.Get('https://a').b)"

    assert load(policy).policies == ()


EXCEPTED = validating("'no'", kind="ValidatingPolicy")
del EXCEPTED["metadata"]["namespace"]


def excepting(condition, namespace=OWN):
    spec = {
        "policyRefs": [{"name": "p", "kind": "ValidatingPolicy"}],
        "matchConditions": [{"name": "c", "expression": condition}],
    }
    exception = made("policies.kyverno.io/v1", "PolicyException", spec)
    exception["metadata"] = {"name": "e", "namespace": namespace}
    return exception


@pytest.mark.parametrize(
    ("namespace", "lifted"), [pytest.param(OWN, True, id="own"), pytest.param("c", False, id="no")]
)
def test_an_exception_reads_its_own_namespace(namespace, lifted):
    condition = "resource.List('v1', 'secrets').items.exists(s, s.data.word == 'own-word')"

    assert decide(EXCEPTED, excepting(condition, namespace)).allowed is lifted


@pytest.mark.parametrize(
    "condition",
    [
        "resource.Get('v1', 'secrets', 'team-b', 's').data.word == 'other-word'",
        *(f"{expression} == 'other-word'" for expression in WITHHELD.values()),
    ],
)
def test_an_exception_reads_nothing_else(condition):
    loaded = load(EXCEPTED, excepting(condition))

    assert loaded.exceptions == ()
    assert loaded.findings


def test_an_exception_of_one_namespace_reads_none_in_a_policy_of_another():
    policy = validating("'no'")
    exception = excepting("resource.List('v1', 'secrets').items.size() > 0", OTHER)
    exception["spec"]["policyRefs"][0]["kind"] = "NamespacedValidatingPolicy"
    decision = decide(policy, exception)

    assert not decision.allowed
    assert "needs a cluster to read from" in decision.denials[0].message


def allow_all(user, permission):
    return Authorization(allowed=True, reason="other-word")


MAY = {
    "own": ("authorizer.group('').resource('pods').namespace('team-a').check('get')", True),
    "its-request": ("authorizer.requestResource.check('get')", True),
    "own-account": (
        "authorizer.serviceAccount('team-a', 's').group('').resource('pods')"
        ".namespace('team-a').check('get')",
        True,
    ),
    "other": ("authorizer.group('').resource('pods').namespace('team-b').check('get')", False),
    "everywhere": ("authorizer.group('').resource('nodes').check('get')", False),
    "a-path": ("authorizer.path('/metrics').check('get')", False),
    "request-elsewhere": ("authorizer.requestResource.namespace('team-b').check('get')", False),
    "account-elsewhere": (
        "authorizer.serviceAccount('team-b', 's').group('').resource('pods')"
        ".namespace('team-a').check('get')",
        False,
    ),
    "account-with-a-like-name": (
        "authorizer.serviceAccount('team-a-2', 's').group('').resource('pods')"
        ".namespace('team-a').check('get')",
        False,
    ),
}


@pytest.mark.parametrize("asked", MAY)
def test_permissions_are_asked_about_in_its_namespace(asked):
    expression, answered = MAY[asked]
    variables = [{"name": "said", "expression": f"{expression}.reason()"}]
    decision = decide(rule_of("variables.said", variables=variables), authorize=allow_all)

    assert ("other-word" in repr(decision)) is answered
    assert answered or "cannot access" in decision.denials[0].message


class Reviewing:
    """A cluster that answers every SubjectAccessReview."""

    def __init__(self):
        self.posted = []

    def post(self, api_version, resource, namespace, body):
        self.posted.append((api_version, resource, namespace, body))
        return {"kind": "SubjectAccessReview", "spec": body["spec"], "status": {"allowed": True}}


def attributes(namespace):
    return f"'resourceAttributes': {{'namespace': '{namespace}', 'verb': 'get'}}"


def local_review(spec, plural="localsubjectaccessreviews"):
    body = f"{{'spec': {{{spec}}}}}"
    return f"string(resource.Post('authorization.k8s.io/v1', '{plural}', {body}).status.allowed)"


def test_a_review_of_its_namespace_is_posted():
    cluster = Reviewing()
    extra = kyverno_values(resources=cluster)
    decision = decide(validating(local_review(attributes(OWN))), extra=extra)

    assert decision.denials[0].message == "true"
    assert {posted[1:3] for posted in cluster.posted} == {("subjectaccessreviews", "")}


@pytest.mark.parametrize(
    "expression",
    [
        local_review(attributes(OTHER)),
        local_review("'resourceAttributes': {'verb': 'get'}"),
        local_review("'nonResourceAttributes': {'path': '/metrics', 'verb': 'get'}"),
        local_review(f"{attributes(OWN)}, 'nonResourceAttributes': {{'path': '/', 'verb': 'get'}}"),
        local_review(attributes(OWN), "subjectaccessreviews"),
    ],
    ids=["other", "everywhere", "a-path", "both", "of-the-cluster"],
)
def test_another_review_is_not(expression):
    cluster = Reviewing()
    decision = decide(validating(expression), extra=kyverno_values(resources=cluster))

    assert not cluster.posted
    assert "cannot access" in decision.denials[0].message


CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap"}
SETTINGS = tuple(
    {**obj("ConfigMap", "settings", namespace), "data": {"word": f"{word}-word"}}
    for namespace, word in ((OWN, "own"), (OTHER, "other"))
)


def test_params_are_those_of_its_namespace():
    ref = {"selector": {}}
    policy = rule_of("string(params.data.word)", paramKind=CONFIG_MAP, paramRef=ref)

    assert [denial.message for denial in decide(policy, params=SETTINGS).denials] == ["own-word"]


@pytest.mark.parametrize(
    ("kind", "ref", "field"),
    [
        pytest.param(
            CONFIG_MAP, {"name": "settings", "namespace": OTHER}, "paramRef.namespace", id="other"
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "Node"}, {"name": "n"}, "paramKind", id="of-the-cluster"
        ),
    ],
)
def test_params_from_elsewhere_are_refused_when_they_are_loaded(kind, ref, field):
    loaded = load(rule_of("string(params.data.word)", paramKind=kind, paramRef=ref))

    assert loaded.policies == ()
    assert loaded.findings[0].field.endswith(field)


def test_params_of_a_custom_kind_of_the_cluster_are_not_seen():
    gate = next(each for each in WORLD if each["kind"] == "Gate")
    policy = rule_of(
        "string(params.data.word)",
        paramKind={"apiVersion": "example.com/v1", "kind": "Gate"},
        paramRef={"name": "g"},
    )
    decision = decide(policy, params=[gate])

    assert "cluster-word" not in repr(decision)
    assert "which belong to the cluster" in decision.denials[0].message


@pytest.mark.parametrize("make", [validating, mutating])
def test_it_has_no_say_in_its_namespace_itself(make):
    policy = make("'no'", rule=NAMESPACES)
    policy["spec"]["matchConstraints"]["resourceRules"] = [NAMESPACES]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OWN}}
    asked = request(namespace, namespace=OWN)
    asked = type(asked)(
        **{name: getattr(asked, name) for name in asked.__struct_fields__}
        | {"resource": type(asked.resource)(version="v1", resource="namespaces")}
    )
    decision = decide(policy, subject=asked)

    assert decision.allowed
    assert decision.operations == ()


def test_it_sees_its_own_namespace_object():
    decision = decide(validating("string(namespaceObject.metadata.name)"))

    assert decision.denials[0].message == OWN
