"""`make replayed-week`: what a replay of the audit log forecasts, compared with what then happens.

A seeded load is sent to a real API server with an audit log and without policies. The log is
replayed with policies. Then they are enforced, those of the API server's kinds by itself, and those
of Kyverno's by policyd's webhooks, and the same load is sent again, in other namespaces. A request
that is refused is sent again by a user whom no policy concerns, so that the state stays that of the
first time, and each request is compared.
"""

import argparse
import http.client
import json
import random
import shutil
import ssl
import sys
import tempfile
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from click.testing import CliRunner

from policyd.cli import main
from policyd.cli.formats.documents import load_texts
from policyd.cli.planning.executors import cores
from policyd.cli.policies.audit_files import LogProblems, log_files
from policyd.cli.policies.judging import Judge, Judging, Setup
from policyd.engine.offline.audit_log import AuditReader, Gone
from tests.controlplane.programs import API_SERVER, ETCD
from tests.controlplane.server import ControlPlane
from tests.scenarios import clusters

RECALL, PRECISION = 1.0, 0.99
"""What is asked of the forecast."""

NAMESPACES = {"a": "prod", "b": "prod", "c": "test"}
TENANT = "tenant"
TENANTS = "tenants"
MARK = "cost-center"
"""The label that a policy of the API server's kind adds, to Services."""
MARKS = {MARK, "stage"}
"""The labels that policies add; a policy of Kyverno's adds the other one, to Deployments."""
CREATED = 201
REFUSALS = ("AdmissionPolicy", "denied the request: ")
"""What refusals by the API server's policies say, and by those of the webhooks."""


def _policy(name, rules, expression, *, selector=None):
    constraints = {
        "resourceRules": [
            {"apiGroups": [group], "apiVersions": ["*"], "operations": operations}
            | {"resources": resources}
            for group, resources, operations in rules
        ]
    }
    if selector:
        constraints["namespaceSelector"] = {"matchLabels": selector}
    spec = {
        "matchConstraints": constraints,
        "matchConditions": [
            {"name": "tenants", "expression": f"request.userInfo.username == '{TENANT}'"}
        ],
        "validations": [{"expression": expression, "message": f"{name} objects"}],
    }
    api = "admissionregistration.k8s.io/v1"
    yield {
        "apiVersion": api,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }
    yield {
        "apiVersion": api,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }


BOTH = ["CREATE", "UPDATE"]
POLICIES = [
    *_policy(
        "versions",
        [("", ["pods"], BOTH)],
        "object.spec.containers.all(c, c.image.matches('.*:[0-9]+$'))",
    ),
    # The API server's own admission sets the limits in some namespaces.
    *_policy(
        "limits",
        [("", ["pods"], ["CREATE"])],
        "object.spec.containers.all(c, has(c.resources) && has(c.resources.limits)"
        " && 'cpu' in c.resources.limits)",
    ),
    *_policy(
        "teams",
        [("", ["pods"], BOTH)],
        "has(object.metadata.labels) && 'team' in object.metadata.labels",
        selector={"tier": "prod"},
    ),
    *_policy(
        "replicas",
        [("apps", ["deployments", "deployments/scale"], BOTH)],
        "object.spec.replicas <= 5",
    ),
    *_policy(
        "owners",
        [("", ["configmaps"], ["UPDATE"])],
        "object.?data.owner.orValue('') == oldObject.?data.owner.orValue('')",
    ),
    *_policy(
        "protected",
        [("", ["configmaps"], ["DELETE"])],
        "oldObject.?metadata.labels.protected.orValue('') != 'true'"
        " || 'platform' in request.userInfo.groups",
    ),
    *_policy(
        "services",
        [("", ["services"], BOTH)],
        "object.spec.type != 'LoadBalancer' || 'platform' in request.userInfo.groups",
    ),
]
MUTATION = {
    "matchConstraints": {
        "resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
            | {"resources": ["services"]}
        ]
    },
    "matchConditions": [
        {"name": "tenants", "expression": f"request.userInfo.username == '{TENANT}'"}
    ],
    "failurePolicy": "Fail",
    "reinvocationPolicy": "Never",
    "mutations": [
        {
            "patchType": "ApplyConfiguration",
            "applyConfiguration": {
                "expression": "Object{metadata: Object.metadata{labels: "
                f"{{'{MARK}': has(object.metadata.labels) && '{MARK}' in object.metadata.labels"
                f" ? object.metadata.labels['{MARK}'] : 'none'}}}}}}"
            },
        }
    ],
}
POLICIES += [
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": "costs"},
        "spec": MUTATION,
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": "costs"},
        "spec": {"policyName": "costs"},
    },
]


KYVERNO = "policies.kyverno.io/v1"


def _of_kyverno(kind, name, resources, operations, **spec):
    group, plural = resources
    return {
        "apiVersion": KYVERNO,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [group], "apiVersions": ["*"], "operations": operations}
                    | {"resources": [plural]}
                ]
            },
            "matchConditions": [
                {"name": "tenants", "expression": f"request.userInfo.username == '{TENANT}'"}
            ],
            **spec,
        },
    }


def _validating(name, resources, operations, expression, **spec):
    spec |= {"validations": [{"expression": expression, "message": f"{name} objects"}]}
    spec |= {"validationActions": ["Deny"]}
    return _of_kyverno("ValidatingPolicy", name, resources, operations, **spec)


KYVERNOS = [
    # Kyverno extends it to the pods of Deployments.
    _validating(
        "images",
        ("", "pods"),
        BOTH,
        "object.spec.containers.all(c, image(c.image).registry() != 'b.example'"
        " && c.image != 'a:2')",
    ),
    _validating(
        "values",
        ("", "configmaps"),
        BOTH,
        "variables.value < 7",
        variables=[{"name": "value", "expression": "int(object.data[?'value'].orValue('0'))"}],
    ),
    _validating(
        "kept",
        ("", "services"),
        ["DELETE"],
        "'platform' in request.userInfo.groups"
        f" || oldObject.metadata.?labels[?'{MARK}'].orValue('') != '17'",
    ),
    _of_kyverno(
        "MutatingPolicy",
        "stages",
        ("apps", "deployments"),
        ["CREATE"],
        mutations=[
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {
                    "expression": "Object{metadata: Object.metadata{labels: {'stage': 'new'}}}"
                },
            }
        ],
    ),
]
"""Policies of Kyverno's kinds, which policyd's webhooks enforce."""


@dataclass(frozen=True)
class Call:
    """One request of the load; `{ns}` in the path is its namespace."""

    number: int
    method: str
    path: str
    namespace: str
    body: object = None
    content_type: str = "application/json"
    groups: tuple = (TENANTS,)

    @property
    def audit_id(self):
        return f"week-{self.number}"


def _pod(rng, name, *, generated=False):
    container = {"name": "main", "image": rng.choice(["a:1", "a:2", "a:latest", "a"])}
    if rng.random() < 0.6:
        container["resources"] = {"limits": {"cpu": "1"}}
    labels = {"team": "x"} if rng.random() < 0.6 else {}
    metadata = {"generateName" if generated else "name": name, "labels": labels}
    spec = {"containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _config_map(rng, name):
    labels = {"protected": rng.choice(["true", "false"])}
    metadata = {"name": name, "labels": labels}
    data = {"owner": rng.choice(["ada", "bob"]), "value": str(rng.randrange(9))}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _deployment(rng, name):
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "m", "image": rng.choice(["a", "b.example/a"])}]},
    }
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
    if rng.random() < 0.8:
        spec["replicas"] = rng.randrange(9)
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def _service(rng, name):
    labels = {MARK: "17"} if rng.random() < 0.4 else {}
    spec = {"type": rng.choice(["ClusterIP", "LoadBalancer"]), "ports": [{"port": 80}]}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }


MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
KINDS = {
    "pods": ("/api/v1/namespaces/{ns}/pods", _pod),
    "configmaps": ("/api/v1/namespaces/{ns}/configmaps", _config_map),
    "deployments": ("/apis/apps/v1/namespaces/{ns}/deployments", _deployment),
    "services": ("/api/v1/namespaces/{ns}/services", _service),
}


def load_of(seed, count):
    """Yield the requests of a seed: creations, changes of all sorts, deletions, dry runs."""
    rng = random.Random(seed)
    existing = []
    for number in range(count):
        kind = rng.choice(list(KINDS))
        namespace = rng.choice(list(NAMESPACES))
        groups = (TENANTS, *(["platform"] if rng.random() < 0.3 else []))
        path, make = KINDS[kind]
        more = {"number": number, "groups": groups}
        if not existing or rng.random() < 0.5:
            yield _creation(rng, kind, existing, {**more, "namespace": namespace})
            continue
        kind, namespace, name = rng.choice(existing)
        path, make = KINDS[kind]
        one = {"path": f"{path}/{name}", "namespace": namespace, **more}
        choice = rng.random()
        if choice < 0.25:
            existing.remove((kind, namespace, name))
            yield Call(method="DELETE", **one)
        elif kind == "deployments" and choice < 0.5:
            scale = {"spec": {"replicas": rng.randrange(9)}}
            one["path"] += "/scale"
            yield Call(method="PATCH", body=scale, content_type=MERGE, **one)
        elif kind in ("configmaps", "deployments") and choice < 0.75:
            yield Call(method="PUT", body=make(rng, name), **one)
        else:
            team = rng.choice(["y", None])
            patch = {"metadata": {"labels": {"team": team}}}
            if kind == "configmaps":
                patch["data"] = {"owner": rng.choice(["ada", "bob"])}
            yield Call(method="PATCH", body=patch, content_type=MERGE, **one)


def _creation(rng, kind, existing, more):
    """Return a request that creates an object, and note it."""
    name = f"o{more['number']}"
    path, make = KINDS[kind]
    choice = rng.random()
    if choice < 0.1:
        return Call(method="POST", path=f"{path}?dryRun=All", body=make(rng, name), **more)
    if choice < 0.2 and kind == "pods":
        return Call(method="POST", path=path, body=_pod(rng, "gen-", generated=True), **more)
    existing.append((kind, more["namespace"], name))
    if choice < 0.4:
        path = f"{path}/{name}?fieldManager=load&force=true"
        return Call(method="PATCH", path=path, body=make(rng, name), content_type=APPLY, **more)
    return Call(method="POST", path=path, body=make(rng, name), **more)


class Api:
    """One connection to the API server."""

    def __init__(self, plane):
        address = urlsplit(plane.server)
        context = ssl.create_default_context(cadata=plane.ca.decode())
        self._connection = http.client.HTTPSConnection(
            address.hostname, address.port, context=context, timeout=60
        )
        self._token = plane.token

    def close(self):
        self._connection.close()

    def send(self, method, path, body=None, *, content_type="application/json", headers=()):
        """Return the status, the decoded answer, and nothing else."""
        sent = {"Authorization": f"Bearer {self._token}", "Content-Type": content_type}
        sent |= dict(headers)
        self._connection.putrequest(method, path)
        text = b"" if body is None else json.dumps(body).encode()
        for name, value in (*sent.items(), ("Content-Length", str(len(text)))):
            for each in value if isinstance(value, tuple) else (value,):
                self._connection.putheader(name, each)
        self._connection.endheaders(text)
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")

    def call(self, call, week, *, exempt=False):
        """Send a request of the load in a week."""
        path = call.path.replace("{ns}", f"{week}-{call.namespace}")
        headers = {}
        if not exempt:
            headers = {"Impersonate-User": TENANT, "Impersonate-Group": call.groups}
            headers["Audit-ID"] = f"{week}-{call.audit_id}"
        return self.send(
            call.method, path, call.body, content_type=call.content_type, headers=headers
        )


@dataclass
class Compared:
    """What was forecast, and what happened, of each request by its number."""

    requests: int = 0
    failed: int = 0
    forecast: set = field(default_factory=set)
    refused: set = field(default_factory=set)
    forecast_changes: set = field(default_factory=set)
    changes: set = field(default_factory=set)
    by_webhooks: int = 0
    unjudged: dict = field(default_factory=dict)
    summary: dict = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def recall(self):
        return _share(self.forecast & self.refused, self.refused)

    @property
    def precision(self):
        return _share(self.forecast & self.refused, self.forecast)

    @property
    def change_recall(self):
        return _share(self.forecast_changes & self.changes, self.changes)

    @property
    def change_precision(self):
        return _share(self.forecast_changes & self.changes, self.forecast_changes)

    @property
    def met(self):
        recall = min(self.recall, self.change_recall)
        precision = min(self.precision, self.change_precision)
        return recall >= RECALL and precision >= PRECISION


def _share(part, whole):
    return len(part) / len(whole) if whole else 1.0


AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "RequestResponse", "verbs": ["create", "update", "patch", "delete"]},
        {"level": "Metadata"},
    ],
}


def replayed_week(seed, count):
    """Send a load, replay its log, enforce the policies, send it again, and compare."""
    folder = Path(tempfile.mkdtemp(prefix="policyd-week-"))
    try:
        return _compared(folder, seed, count)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _compared(folder, seed, count):
    (folder / "audit").mkdir()
    (folder / "audit-policy.yaml").write_text(json.dumps(AUDIT_POLICY))
    flags = [
        f"--audit-policy-file={folder / 'audit-policy.yaml'}",
        f"--audit-log-path={folder / 'audit' / 'audit.log'}",
        *("--audit-log-maxsize=1", "--audit-log-compress=true"),
        "--service-cluster-ip-range=10.64.0.0/12",
    ]
    calls = list(load_of(seed, count))
    compared = Compared(requests=len(calls))
    plane = ControlPlane(components=(ETCD, API_SERVER), flags={API_SERVER: flags})
    with plane, closing(Api(plane)) as api:
        _prepare(api)
        worked = {}
        for call in calls:
            status, answer = api.call(call, "past")
            if status < 400:
                worked[call.number] = _marked(answer)
            else:
                compared.failed += 1
        logs = folder / "log"
        shutil.copytree(folder / "audit", logs)
        _forecast(logs, folder, compared)
        api.close()  # to connect again: the API server ends what was idle for so long
        with _webhooks(plane, folder) as webhooks:
            _enforce(api, webhooks)
            for call in calls:
                if call.number in worked:
                    _again(api, call, compared, marked_before=worked[call.number])
    return compared


@contextmanager
def _webhooks(plane, folder):
    """Have policyd's webhooks enforce the policies of Kyverno's kinds."""
    policies = folder / "kyverno.yaml"
    policies.write_text("---\n".join(f"{json.dumps(each)}\n" for each in KYVERNOS))
    plane.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(clusters.definitions("slim")))
    command = clusters.webhooks_command(clusters.accounts_on(plane), only=[policies])
    process = clusters.Process([*command, "--no-queue"], folder / "webhooks.log")
    process.start()
    try:
        yield process
    finally:
        process.stop()


def _marked(answer):
    return MARKS & ((answer.get("metadata") or {}).get("labels") or {}).keys()


def _again(api, call, compared, *, marked_before):
    dry = "dryRun" in call.path
    status, answer = api.call(call, "then")
    if status >= 400:
        assert any(words in answer["message"] for words in REFUSALS), (call, answer)
        compared.by_webhooks += REFUSALS[1] in answer["message"]
        if not dry:
            compared.refused.add(call.number)
            status, answer = api.call(call, "then", exempt=True)
            assert status < 400, (call, answer)
    elif status == CREATED and not dry and _marked(answer) - marked_before:
        compared.changes.add(call.number)


def _prepare(api):
    limits = [{"type": "Container", "default": {"cpu": "2"}}]
    tenants = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": TENANTS},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
        | {"name": "cluster-admin"},
        "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": TENANTS}],
    }
    _created(api, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", tenants)
    for week in ("past", "then"):
        for name, tier in NAMESPACES.items():
            full = f"{week}-{name}"
            metadata = {"name": full, "labels": {"tier": tier}}
            _created(
                api,
                "/api/v1/namespaces",
                {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata},
            )
            if name == "b":
                limit_range = {"apiVersion": "v1", "kind": "LimitRange"}
                limit_range |= {"metadata": {"name": "limits"}, "spec": {"limits": limits}}
                _created(api, f"/api/v1/namespaces/{full}/limitranges", limit_range)
    time.sleep(0.5)  # until admission has read the limits


def _created(api, path, obj):
    status, answer = api.send("POST", path, obj)
    assert status == 201, answer


def _forecast(logs, folder, compared):
    """Replay the log by the command, and once more to see each request."""
    text = "---\n".join(f"{json.dumps(each)}\n" for each in (*POLICIES, *KYVERNOS))
    policies = folder / "policies.yaml"
    policies.write_text(text)
    started = time.monotonic()
    result = CliRunner().invoke(
        main, ["replay", str(logs), "-p", str(policies), "-o", "json"], catch_exceptions=False
    )
    compared.seconds = time.monotonic() - started
    compared.summary = json.loads(result.stdout)
    named = ((str(policies), text.encode()),)
    given = {"namespace_labels": None, "assume_labels": False}
    judge = Judge(Setup(policies=named, given=given), load_texts(named))
    reader = AuditReader(judge.concerns, judge.reads_old)
    judging = Judging(judge._setup, judge, cores(), lambda: reader.namespaces)
    events = (event for file in log_files([str(logs)]) for event in file.events(LogProblems()))
    for judged in judging.verdicts(entry for event in events for entry in reader.take(event)):
        if isinstance(judged, Gone):
            continue
        logged, verdict = judged
        start, _, number = logged.request.uid.rpartition("-")
        assert not verdict.error, verdict.error
        if start != "past-week" or logged.refused or logged.request.dry_run:
            continue
        if verdict.refusals:
            compared.forecast.add(int(number))
        elif verdict.fields:
            compared.forecast_changes.add(int(number))
    compared.unjudged = dict(reader.counts.unjudged)


def _enforce(api, webhooks):
    """Create the policies, and wait until they decide, and the webhooks."""
    for policy in POLICIES:
        plural = policy["kind"].lower().replace("policy", "policies")
        plural = plural if plural.endswith("policies") else policy["kind"].lower() + "s"
        _created(api, f"/apis/{policy['apiVersion']}/{plural}", policy)
    refused = [
        *(_dry("pods", _probe(*given)) for given in (("a:latest", {"team": "x"}), ("a:1", {}))),
        _dry("configmaps", _config_map(random.Random(0), "probe") | {"data": {"value": "9"}}),
    ]
    service, deployment = (make(random.Random(0), "probe") for make in (_service, _deployment))
    service["metadata"]["labels"] = {}
    service["spec"] = {"ports": [{"port": 80}]}
    deployment["spec"]["replicas"] = 1
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = "a"
    marked = [_dry("services", service), _dry("deployments", deployment)]
    deadline = time.monotonic() + 60
    while True:
        webhooks.alive()
        if all(api.call(probe, "then")[0] >= 400 for probe in refused) and all(
            _marked(api.call(probe, "then")[1]) for probe in marked
        ):
            time.sleep(1.0)  # the others were created before
            return
        assert time.monotonic() < deadline, f"the policies do not decide:\n{webhooks.tail()}"
        time.sleep(0.2)


def _dry(plural, body):
    return Call(0, "POST", f"{KINDS[plural][0]}?dryRun=All", "a", body)


def _probe(image, labels):
    container = {"name": "main", "image": image, "resources": {"limits": {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "labels": labels},
        "spec": {"containers": [container]},
    }


def lines_of(compared):
    """Yield the figures of a comparison."""
    yield compared.summary["sentence"]
    yield f"{compared.requests} requests, {compared.failed} of them failed"
    yield f"replayed in {compared.seconds:.1f} s"
    yield f"cannot be judged: {compared.unjudged or 'none'}"
    yield (
        f"refused: {len(compared.refused)}, forecast {len(compared.forecast)}:"
        f" recall {compared.recall:.2%}, precision {compared.precision:.2%};"
        f" {compared.by_webhooks} by the webhooks, dry runs included"
    )
    yield (
        f"changed: {len(compared.changes)}, forecast {len(compared.forecast_changes)}:"
        f" recall {compared.change_recall:.2%}, precision {compared.change_precision:.2%}"
    )
    missed, wrong = compared.refused - compared.forecast, compared.forecast - compared.refused
    yield f"missed: {sorted(missed)[:20]}, wrong: {sorted(wrong)[:20]}"


def run():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=5000, help="requests")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    compared = replayed_week(given.seed, given.n)
    print("\n".join(lines_of(compared)))
    sys.exit(0 if compared.met else 1)


if __name__ == "__main__":
    run()
