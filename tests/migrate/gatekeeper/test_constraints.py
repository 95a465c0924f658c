"""Constraints of Gatekeeper, converted: what they match, decide and refuse."""

import pytest

from policyd.api.admission import UserInfo
from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import load_document
from policyd.engine.documents.reading import Document
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.offline.requests import RequestCircumstances, namespace_lookup, request_for
from policyd.migrate.gatekeeper.constraints import (
    UnconvertibleConstraintError,
    as_kyverno,
    convert_constraint,
    library,
    of_library,
    source_of,
)


def constraint(kind="K8sAllowedRepos", parameters=None, match=None, **spec):
    return {
        "apiVersion": "constraints.gatekeeper.sh/v1beta1",
        "kind": kind,
        "metadata": {"name": "c"},
        "spec": {"match": match or {}, "parameters": parameters or {}, **spec},
    }


def obj(kind, *, api="v1", name="a", namespace="default", labels=None, annotations=None, **fields):
    metadata = {"name": name}
    metadata |= {"namespace": namespace} if namespace else {}
    metadata |= {"labels": labels} if labels else {}
    metadata |= {"annotations": annotations} if annotations else {}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **fields}


def pod(*containers, init=(), ephemeral=(), labels=None, annotations=None, **spec):
    given = {"containers": list(containers or ({"name": "c", "image": "nginx:1"},))}
    given |= {"initContainers": list(init)} if init else {}
    given |= {"ephemeralContainers": list(ephemeral)} if ephemeral else {}
    return obj("Pod", labels=labels, annotations=annotations, spec=given | spec)


def image(name, **fields):
    return {"name": "c", "image": name, **fields}


def resourced(limits=None, requests=None, name="nginx:1"):
    return image(name, resources={"limits": limits or {}, "requests": requests or {}})


def service(**spec):
    return obj("Service", spec={"ports": [{"port": 80}], **spec})


def ingress(*hosts, annotations=None, **spec):
    rules = [{"host": host} if host else {} for host in hosts]
    return obj(
        "Ingress",
        api="networking.k8s.io/v1",
        annotations=annotations,
        spec={"rules": rules, **spec},
    )


def deployment(replicas=None):
    spec = {"selector": {}, "template": {"spec": {"containers": [image("nginx:1")]}}}
    if replicas is not None:
        spec["replicas"] = replicas
    return obj("Deployment", api="apps/v1", spec=spec)


def binding(role, *names):
    return obj(
        "ClusterRoleBinding",
        api="rbac.authorization.k8s.io/v1",
        namespace=None,
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        subjects=[{"kind": "User", "name": name} for name in names],
    )


def cluster_role(name, *verbs):
    return obj(
        "ClusterRole",
        api="rbac.authorization.k8s.io/v1",
        name=name,
        namespace=None,
        rules=[{"apiGroups": [""], "resources": ["endpoints"], "verbs": list(verbs)}],
    )


def decide(given, reviewed, *, template=None, old=None, labels=(), kyverno=False, **how):
    document = Document(given, "c")
    described = None if template is None else Document(template, "t")
    source = of_library(given["kind"]) if described is None else source_of(described)
    policy = convert_constraint(source, document, described, name="c")
    written = as_kyverno(policy) if kyverno else policy
    loaded = load_document(Document(written, "p"), EVERY_FORMAT)
    assert not [each for each in loaded.findings if each.severity == "error"], loaded.findings
    operation = "CREATE" if old is None else "UPDATE"
    request = request_for(
        reviewed, RequestCircumstances(operation=operation, **how), old_object=old
    )
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": each}}
        for name, each in dict(labels).items()
    ]
    context = PolicyContext(namespaces=namespace_lookup(namespaces, {}))
    decision = PolicySet(loaded.policies, bindings=(), surroundings=context).review(request)
    assert not [denial for denial in decision.denials if denial.failed], decision.denials
    return decision


FULL = {"cpu": "1", "memory": "1Gi"}
TTY = image("nginx:1", tty=True)
ALLOW_HTTP = {"kubernetes.io/ingress.allow-http": "false"}
MOUNTED = {"name": "t", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
HOST_LOGS = {"name": "v", "hostPath": {"path": "/var/log/app"}}
READS = image("nginx:1", volumeMounts=[{"name": "v", "mountPath": "/x", "readOnly": True}])
WRITES = image("nginx:1", volumeMounts=[{"name": "v", "mountPath": "/x"}])
PROBES = {"probes": ["readinessProbe", "livenessProbe"], "probeTypes": ["httpGet", "exec"]}
HTTP = {"httpGet": {"port": 80}}
TCP = {"tcpSocket": {"port": 80}}

ROWS = [
    ("K8sRequiredLabels", {"labels": [{"key": "a"}]}, pod(labels={"a": "x"}), pod()),
    (
        "K8sRequiredLabels",
        {"labels": [{"key": "a", "allowedRegex": "^x+$"}]},
        pod(labels={"a": "xx"}),
        pod(labels={"a": "y"}),
    ),
    (
        "K8sRequiredAnnotations",
        {"annotations": [{"key": "a", "allowedRegex": "x"}, {"key": "b"}]},
        pod(annotations={"a": "yxy", "b": ""}),
        pod(annotations={"a": "y", "b": ""}),
    ),
    ("K8sRequiredAnnotations", {"annotations": [{"key": "a"}]}, pod(annotations={"a": ""}), pod()),
    ("K8sAllowedRepos", {"repos": ["r/"]}, pod(image("r/a")), pod(image("q/a"))),
    ("K8sAllowedRepos", {"repos": ["r/"]}, pod(image("r/a")), pod(image("r/a"), init=[image("q")])),
    ("K8sAllowedReposv2", {"allowedImages": ["r/*"]}, pod(image("r/a")), pod(image("ra"))),
    ("K8sAllowedReposv2", {"allowedImages": ["r/a"]}, pod(image("r/a")), pod(image("r/a:1"))),
    (
        "K8sDisallowedRepos",
        {"repos": ["r/"]},
        pod(image("q/a")),
        pod(image("q/a"), ephemeral=[image("r/a")]),
    ),
    ("K8sDisallowedTags", {"tags": ["latest"]}, pod(image("a:1")), pod(image("a:latest"))),
    ("K8sDisallowedTags", {"tags": ["latest"]}, pod(image("a:1")), pod(image("a"))),
    (
        "K8sDisallowedTags",
        {"tags": ["latest"], "exemptImages": ["r/*", "b"]},
        pod(image("r/a:latest"), image("b")),
        pod(image("r:latest")),
    ),
    ("K8sImageDigests", {}, pod(image("a@sha256:0f")), pod(image("a:1"))),
    ("K8sContainerLimits", FULL, pod(resourced(FULL)), pod(resourced({"cpu": "1"}))),
    ("K8sContainerLimits", FULL, pod(resourced(FULL)), pod(resourced({**FULL, "cpu": "1001m"}))),
    ("K8sContainerLimits", FULL, pod(resourced(FULL)), pod(resourced({**FULL, "memory": "2Gi"}))),
    (
        "K8sContainerLimits",
        {"cpu": "-1", "memory": "1Gi"},
        pod(resourced({"memory": "1Gi"})),
        pod(resourced({"cpu": "1"})),
    ),
    ("K8sContainerRequests", FULL, pod(resourced({}, FULL)), pod(resourced(FULL))),
    (
        "K8sContainerRatios",
        {"ratio": "2"},
        pod(resourced({"cpu": "2", "memory": "2Gi"}, FULL)),
        pod(resourced({"cpu": "2", "memory": "3Gi"}, FULL)),
    ),
    (
        "K8sContainerRatios",
        {"ratio": "4", "cpuRatio": "1"},
        pod(resourced({"cpu": "1", "memory": "4Gi"}, FULL)),
        pod(resourced({"cpu": "2", "memory": "4Gi"}, FULL)),
    ),
    (
        "K8sRequiredResources",
        {"limits": ["cpu", "memory"], "requests": ["cpu"]},
        pod(resourced(FULL, {"cpu": "1"})),
        pod(resourced(FULL)),
    ),
    ("K8sRequiredProbes", PROBES, pod(image("a", readinessProbe=HTTP, livenessProbe=HTTP)), pod()),
    (
        "K8sRequiredProbes",
        {**PROBES, "probeTypes": ["tcpSocket"]},
        pod(image("a", readinessProbe=TCP, livenessProbe=TCP)),
        pod(image("a", readinessProbe=TCP, livenessProbe=HTTP)),
    ),
    (
        "K8sReplicaLimits",
        {
            "ranges": [
                {"min_replicas": 1, "max_replicas": 2},
                {"min_replicas": 5, "max_replicas": 5},
            ]
        },
        deployment(5),
        deployment(3),
    ),
    ("K8sBlockNodePort", {}, service(type="ClusterIP"), service(type="NodePort")),
    ("K8sBlockLoadBalancer", {}, service(), service(type="LoadBalancer")),
    ("K8sBlockWildcardIngress", {}, ingress("a.example"), ingress("a.example", "*.example")),
    ("K8sBlockWildcardIngress", {}, ingress("a.example"), ingress("a.example", None)),
    (
        "K8sBlockEndpointEditDefaultRole",
        {},
        cluster_role("system:aggregate-to-edit", "get"),
        cluster_role("system:aggregate-to-edit", "patch"),
    ),
    (
        "K8sExternalIPs",
        {"allowedIPs": ["192.0.2.1"]},
        service(externalIPs=["192.0.2.1"]),
        service(externalIPs=["192.0.2.1", "192.0.2.2"]),
    ),
    (
        "K8sHttpsOnly",
        {},
        ingress("a.example", annotations=ALLOW_HTTP, tls=[{"hosts": ["a.example"]}]),
        ingress("a.example", annotations=ALLOW_HTTP),
    ),
    (
        "K8sHttpsOnly",
        {"tlsOptional": True},
        ingress("a.example", annotations=ALLOW_HTTP),
        ingress("a.example", tls=[{"hosts": ["a.example"]}]),
    ),
    ("K8sDisallowAnonymous", {}, binding("r", "ann"), binding("r", "ann", "system:anonymous")),
    (
        "K8sDisallowAnonymous",
        {"allowedRoles": ["r"]},
        binding("r", "system:anonymous"),
        binding("q", "system:unauthenticated"),
    ),
    ("K8sDisallowInteractiveTTY", {}, pod(image("a", stdin=False)), pod(image("a"), init=[TTY])),
    (
        "K8sPSPAutomountServiceAccountTokenPod",
        {},
        pod(automountServiceAccountToken=False),
        pod(automountServiceAccountToken=True),
    ),
    (
        "K8sPSPAutomountServiceAccountTokenPod",
        {},
        pod(image("a", volumeMounts=[MOUNTED]), automountServiceAccountToken=False),
        pod(image("a", volumeMounts=[MOUNTED])),
    ),
    (
        "K8sPSPForbiddenSysctls",
        {"forbiddenSysctls": ["kernel.*", "a"]},
        pod(securityContext={"sysctls": [{"name": "net.core", "value": "1"}]}),
        pod(securityContext={"sysctls": [{"name": "kernel.x", "value": "1"}]}),
    ),
    (
        "K8sPSPForbiddenSysctls",
        {"allowedSysctls": ["net.*"]},
        pod(securityContext={"sysctls": [{"name": "net.core", "value": "1"}]}),
        pod(securityContext={"sysctls": [{"name": "kernel.x", "value": "1"}]}),
    ),
    (
        "K8sPSPHostFilesystem",
        {"allowedHostPaths": [{"pathPrefix": "/var/log"}]},
        pod(WRITES, volumes=[HOST_LOGS]),
        pod(volumes=[{"name": "v", "hostPath": {"path": "/var/logs"}}]),
    ),
    (
        "K8sPSPHostFilesystem",
        {"allowedHostPaths": [{"pathPrefix": "/var/log/", "readOnly": True}]},
        pod(READS, volumes=[HOST_LOGS]),
        pod(READS, WRITES, volumes=[HOST_LOGS]),
    ),
    ("K8sPSPHostFilesystem", {}, pod(volumes=[{"name": "v"}]), pod(volumes=[HOST_LOGS])),
]


@pytest.mark.parametrize("kyverno", [False, True])
@pytest.mark.parametrize(("kind", "parameters", "good", "bad"), ROWS)
def test_a_template_of_the_library_in_rego_has_its_cel(kind, parameters, good, bad, kyverno):
    given = constraint(kind, parameters)

    assert not decide(given, good, kyverno=kyverno).denials
    assert decide(given, bad, kyverno=kyverno).denials


def running_as(account, kind="Pod"):
    spec = {"containers": [image("a")], "serviceAccountName": account}
    if kind == "Pod":
        return obj("Pod", spec=spec)
    return obj("Deployment", api="apps/v1", spec={"template": {"spec": spec}})


@pytest.mark.parametrize("kind", ["Pod", "Deployment"])
def test_a_service_account_may_be_changed_by_the_callers_that_are_named(kind):
    given = constraint("NoUpdateServiceAccount", {"allowedUsers": ["ann"]})
    one, other = running_as("a", kind), running_as("b", kind)

    assert decide(given, other, old=one).denials
    assert not decide(given, one, old=one).denials
    assert not decide(given, one).denials
    assert not decide(given, other, old=one, user=UserInfo(username="ann")).denials


def test_every_template_of_the_library_is_tested():
    assert {row[0] for row in ROWS} | {"NoUpdateServiceAccount"} == set(library())


@pytest.mark.parametrize(
    ("match", "matched", "other"),
    [
        ({"kinds": [{"apiGroups": [""], "kinds": ["Pod"]}]}, pod(), service()),
        ({"kinds": [{"apiGroups": ["", "apps"], "kinds": ["Deployment"]}]}, deployment(), pod()),
        ({"kinds": [{"apiGroups": ["apps"], "kinds": ["*"]}]}, deployment(), pod()),
        ({"scope": "Namespaced"}, pod(), binding("r")),
        ({"scope": "Cluster"}, binding("r"), pod()),
        ({"namespaces": ["default"]}, pod(), obj("Pod", namespace="b", spec={})),
        ({"namespaces": ["def*", "x"]}, pod(), obj("Pod", namespace="b", spec={})),
        ({"excludedNamespaces": ["b"]}, pod(), obj("Pod", namespace="b", spec={})),
        ({"excludedNamespaces": ["*-b"]}, pod(), obj("Pod", namespace="a-b", spec={})),
        ({"excludedNamespaces": ["*-b", "x"]}, binding("r"), obj("Pod", namespace="x", spec={})),
        ({"labelSelector": {"matchLabels": {"a": "x"}}}, pod(labels={"a": "x"}), pod()),
        (
            {"namespaceSelector": {"matchLabels": {"t": "x"}}},
            pod(),
            obj("Pod", namespace="b", spec={}),
        ),
        ({"name": "a*"}, pod(), obj("Pod", name="b", spec={})),
    ],
)
def test_a_constraint_matches_as_in_gatekeeper(match, matched, other):
    given = constraint("K8sRequiredLabels", {"labels": [{"key": "none"}]}, match)
    labels = {name: {"kubernetes.io/metadata.name": name} for name in ("default", "b", "a-b", "x")}
    labels["default"]["t"] = "x"

    assert decide(given, matched, labels=labels).denials
    assert not decide(given, other, labels=labels).matched


@pytest.mark.parametrize(
    ("action", "denied", "warned"), [("deny", 1, 0), ("warn", 0, 1), ("dryrun", 0, 0)]
)
def test_an_action_is_enforced_as_there(action, denied, warned):
    decision = decide(constraint("K8sImageDigests", enforcementAction=action), pod())

    assert (len(decision.denials), len(decision.warnings)) == (denied, warned)


def template(*code, kind="Own", rego="", schema=None):
    return {
        "apiVersion": "templates.gatekeeper.sh/v1",
        "kind": "ConstraintTemplate",
        "metadata": {"name": kind.lower(), "annotations": {"description": "A\n  sentence."}},
        "spec": {
            "crd": {
                "spec": {
                    "names": {"kind": kind},
                    "validation": {"openAPIV3Schema": schema or {"type": "object"}},
                }
            },
            "targets": [
                {"target": "admission.k8s.gatekeeper.sh", "code": list(code), "rego": rego}
            ],
        },
    }


IN_CEL = template(
    {
        "engine": "K8sNativeValidation",
        "source": {
            "variables": [{"name": "names", "expression": "variables.params.names"}],
            "validations": [
                {"expression": "variables.anyObject.metadata.name in variables.names"},
            ],
        },
    },
    schema={"type": "object", "properties": {"names": {"type": "array"}}},
)


def test_a_template_in_cel_is_used_as_it_is():
    given = constraint("Own", {"names": ["a", "b"]})

    assert not decide(given, pod(), template=IN_CEL).denials
    assert decide(given, obj("Pod", name="c", spec={}), template=IN_CEL).denials


def test_variables_that_nothing_uses_are_left_out():
    source = source_of(Document(IN_CEL, "t"))
    policy = convert_constraint(
        source, Document(constraint("Own", {"names": ["a"]}), "c"), name="c"
    )

    assert [each["name"] for each in policy["spec"]["variables"]] == [
        "params",
        "anyObject",
        "names",
    ]
    assert policy["spec"]["description"] == "A sentence."
    plain = of_library("K8sBlockNodePort")
    policy = convert_constraint(plain, Document(constraint("K8sBlockNodePort"), "c"), name="c")
    assert "variables" not in policy["spec"]


@pytest.mark.parametrize(
    ("given", "described", "reason"),
    [
        (constraint("Own", {"names": 3}), IN_CEL, "not of type 'array'"),
        (constraint("K8sImageDigests", enforcementAction="scoped"), None, "`scoped`"),
        (constraint("K8sImageDigests", match={"source": "Generated"}), None, "`source: Generated`"),
        (constraint("K8sImageDigests", match={"namespaces": ["a*b"]}), None, "`a*b` matches no"),
        (constraint("K8sImageDigests", match={"unknown": 1}), None, "the field `unknown`"),
        (constraint("K8sRequiredProbes", {"onlyServices": True}), None, "`onlyServices` makes"),
        (constraint("Own"), template(rego="package own"), "the template `Own` is in Rego"),
        (constraint("Own"), template(rego="data.inventory.cluster"), "reads other objects"),
        (constraint("Own"), template({"engine": "K8sNativeValidation", "source": []}), "source"),
        (
            constraint("Own"),
            template({"engine": "K8sNativeValidation", "source": {"validations": [{}]}}),
            "expression",
        ),
        (
            constraint("Own"),
            template(
                {
                    "engine": "K8sNativeValidation",
                    "source": {"validations": [{"expression": "object.("}]},
                }
            ),
            "the result is not a valid policy",
        ),
    ],
)
def test_the_reason_is_named_where_there_is_no_counterpart(given, described, reason):
    with pytest.raises(UnconvertibleConstraintError) as caught:
        decide(given, pod(), template=described)

    assert reason in str(caught.value)
