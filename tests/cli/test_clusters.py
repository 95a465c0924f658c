"""What commands read with `--cluster`: all of it, by pages, and what follows if they may not."""

import asyncio
import json
import os
import signal
from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import yaml
from click.testing import CliRunner

from policyd.api.configuration import API_VERSION as CONFIGURATION
from policyd.cli import clusters, main
from policyd.cli.policies import impact_objects, judging, policy_reports
from policyd.cli.policies.request_options import key_of
from policyd.cli.policies.surroundings import read_case_surroundings, read_surroundings
from policyd.engine.compile.load import load_policies
from policyd.kube import resources as r
from policyd.kube.errors import ForbiddenError, UnreachableError
from policyd.questions.queue_objects import scenario_of
from policyd.questions.snapshots import OF_CLUSTER, OF_NAMESPACE
from policyd.snapshot.values import API_VERSION, FORMAT, NAME
from policyd.testing import FakeClient
from tests.cli.given import CASES, NODES, POLICY, QUEUES
from tests.engine.audit_events import created, lines
from tests.engine.audit_events import pod as logged_pod
from tests.engine.reviews import pod, policy

pytestmark = pytest.mark.anyio

WIDGETS = r.Resource("example.com", "v1", "widgets", "Widget")
DENIED = ForbiddenError("you may not do that", hint="ask for it")
BY_LABEL = """
matchConditions: [{name: a, expression: "namespaceObject.metadata.labels['tier'] == 'gold'"}]
validations: [{expression: "false", message: no gold}]
"""
WITH_PARAMS = """
paramKind: {apiVersion: v1, kind: ConfigMap}
paramRef: {name: p, namespace: team-a, parameterNotFoundAction: Deny}
validations: [{expression: "params.data.word == 'yes'", message: not yes}]
"""
READING = "validations: [{expression: cluster.pending == 0, message: busy}]"
WIDGET = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}


class Counting(FakeClient):
    """Counts pages, of two objects each."""

    pages = 0

    async def page(self, resource, *, into, **options):
        self.pages += 1
        return await super().page(resource, into=into, **{**options, "limit": 2})


def put(client, resource, name, namespace="", **fields):
    client.store.put(resource, {"metadata": {"name": name, "namespace": namespace}, **fields})


@pytest.fixture
def client():
    client = Counting(resources=[r.PODS, r.NAMESPACES, r.CONFIG_MAPS, WIDGETS])
    for name, tier in (("team-a", "gold"), ("team-b", "tin")):
        labels = {"tier": tier}
        client.store.put(r.NAMESPACES, {"metadata": {"name": name, "labels": labels}})
        put(client, r.PODS, "old", name, spec={"containers": []})
    put(client, r.CONFIG_MAPS, "p", "team-a", data={"word": "yes"})
    return client


@pytest.fixture
def run(client, tmp_path, monkeypatch):
    """Run a command on the cluster, with a policy and perhaps an object."""
    monkeypatch.setattr(
        clusters, "connection_from", lambda *_, **__: SimpleNamespace(namespace="team-a")
    )
    monkeypatch.setattr(clusters, "HttpClient", lambda _connection: nullcontext(client))

    def run(name, spec, *words, obj=None):
        (tmp_path / "policy.yaml").write_text(policy(spec))
        words = [name, "-p", str(tmp_path / "policy.yaml"), "--cluster", *words]
        if obj is not None:
            (tmp_path / "object.json").write_text(json.dumps(obj))
            words += ["-f", str(tmp_path / "object.json")]
        return CliRunner().invoke(main, words)

    return run


def plain(namespace=None):
    made = pod()
    del made["metadata"]["namespace"]
    return made | {"metadata": {"name": "a", **({"namespace": namespace} if namespace else {})}}


# --- apply and explain


@pytest.mark.parametrize(
    ("words", "namespace", "denied"),
    [
        pytest.param([], "team-b", False, id="its-own"),
        pytest.param([], "team-a", True, id="another"),
        pytest.param([], None, True, id="that-of-the-context"),
        pytest.param(["-n", "team-b"], None, False, id="the-named-one"),
    ],
)
def test_labels_are_those_of_the_namespace(run, words, namespace, denied):
    result = run("apply", BY_LABEL, *words, obj=plain(namespace))

    assert result.exit_code == (1 if denied else 0), result.stderr
    assert ("denied: p: no gold" in result.stderr) is denied


def test_a_namespace_that_may_not_be_read_leaves_it_open_and_says_so(run, client):
    client.fail(DENIED, verb="get", plural="namespaces", times=9)

    result = run("apply", BY_LABEL, obj=plain())

    assert "depend on namespace team-a cannot be evaluated: you may not do that" in result.stderr
    assert "namespace `team-a` is not known" in result.stderr
    assert result.exit_code == 1


def test_a_namespace_that_is_not_there_is_an_error(run):
    result = run("apply", "inject: {labels: {a: b}}", obj=plain("gone"))

    assert "there is no namespace gone: objects in it are refused" in result.stderr
    assert result.exit_code == 1


def test_params_are_read(run, client):
    assert run("apply", WITH_PARAMS, obj=plain()).exit_code == 0

    put(client, r.CONFIG_MAPS, "p", "team-a", data={"word": "no"})
    assert "denied: p: not yes" in run("apply", WITH_PARAMS, obj=plain()).stderr


def test_policies_whose_params_may_not_be_read_are_left_out_with_a_sentence(run, client):
    client.fail(DENIED, verb="page", plural="configmaps", times=9)

    result = run("apply", WITH_PARAMS, obj=plain())

    assert "left out, for want of params: `p`: you may not do that" in result.stderr
    assert "denied" not in result.stderr
    assert result.exit_code == 1


CLAIMED = "validations: [{expression: pod.claimedDevices() < 9}]"


def claiming():
    made = plain("team-a")
    claims = [{"name": "a", "resourceClaimTemplateName": "many"}]
    return made | {"spec": {**made["spec"], "resourceClaims": claims}}


@pytest.mark.parametrize(("count", "denied"), [(8, False), (9, True)])
def test_devices_of_claims_are_those_of_the_cluster(run, client, count, denied):
    asked = {"deviceClassName": "gpu", "count": count}
    spec = {"spec": {"devices": {"requests": [{"name": "a", "exactly": asked}]}}}
    put(client, r.RESOURCE_CLAIM_TEMPLATES, "many", "team-a", spec=spec)

    assert run("apply", CLAIMED, obj=claiming()).exit_code == denied


def test_policies_that_count_claims_are_left_out_if_these_may_not_be_read(run, client):
    client.fail(DENIED, verb="page", plural="resourceclaimtemplates", times=9)

    result = run("apply", CLAIMED, obj=claiming())

    assert "left out, for want of claims: `p`: you may not do that" in result.stderr
    assert "denied" not in result.stderr


CHANGED = "validations: [{expression: object.metadata.?labels == oldObject.metadata.?labels}]"


def test_an_update_changes_the_object_that_is_there(run):
    changed = {**pod(name="old", labels={"a": "b"})}

    assert run("apply", CHANGED, "--operation", "UPDATE", obj=changed).exit_code == 1
    unchanged = pod(name="old")
    assert run("apply", CHANGED, "--operation", "UPDATE", obj=unchanged).exit_code == 0


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        pytest.param(pod(name="new"), "there is no Pod new in the cluster", id="not-there"),
        pytest.param(WIDGET | {"kind": "Gadget"}, "serves no Gadget", id="no-such-kind"),
        pytest.param(
            pod() | {"metadata": {"generateName": "a"}}, "without a name", id="without-a-name"
        ),
    ],
)
def test_an_update_of_nothing_is_no_request(run, obj, message):
    result = run("apply", CHANGED, "--operation", "UPDATE", obj=obj)

    assert message in result.stderr
    assert result.exit_code == 2


async def test_the_scope_of_other_kinds_is_asked(client):
    surroundings = await read_surroundings(client, (), [WIDGET], namespace="team-a", stored=False)

    assert surroundings.kinds == {("example.com", "Widget"): ("widgets", True)}


def test_explain_reads_the_same(run):
    result = run("explain", BY_LABEL, obj=plain())

    assert result.exit_code == 0
    assert "validation `validations[0]`: false" in result.stdout


@pytest.mark.parametrize("command", ["apply", "explain"])
def test_queues_that_no_one_serves_are_unknown(run, command):
    result = run(command, READING, obj=plain())

    assert "cannot read the queues: the cluster serves no queue snapshots" in result.stderr
    assert "the queues are unknown" in result.output


JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train"},
    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": []}}},
}
QUEUE = "kueue.x-k8s.io/queue-name"
NOTHING = "validations: [{expression: 'true'}]"


def report_configuration(client, namespace="", **fields):
    """Have the controller report in a snapshot which jobs queue."""
    configuration = {"apiVersion": CONFIGURATION, "kind": "Configuration", **fields}
    body = {"apiVersion": API_VERSION, "kind": "QueueSnapshot", "format": FORMAT}
    metadata = {"name": NAME, "namespace": namespace}
    resource = OF_NAMESPACE if namespace else OF_CLUSTER
    client.store.put(resource, {**body, "metadata": metadata, "configuration": configuration})


def named(obj=JOB, queue="q"):
    return {**obj, "metadata": {**obj["metadata"], "labels": {QUEUE: queue}}}


def held(result):
    """Tell whether a job is suspended, by the result of the command."""
    (found,) = yaml.safe_load_all(result.stdout)
    return bool(found["spec"].get("suspend"))


@pytest.mark.parametrize(
    ("fields", "suspended"),
    [
        pytest.param({"frameworks": ["batch/job"]}, True, id="on"),
        pytest.param({"frameworks": ["pod"]}, False, id="off"),
    ],
)
@pytest.mark.parametrize("namespace", ["", "team-a"])
def test_kinds_that_queue_are_those_of_the_cluster(run, client, namespace, fields, suspended):
    """The snapshot of the namespace says it, too, for users who may not read the cluster's."""
    report_configuration(client, namespace, integrations=fields)
    if namespace:
        client.fail(DENIED, verb="get", plural=OF_CLUSTER.plural, times=9)

    result = run("apply", NOTHING, obj=named())

    assert held(result) is suspended
    assert "kinds of jobs" not in result.stderr


def test_only_jobs_of_selected_namespaces_are_held(run, client):
    selected = {"matchLabels": {"tier": "tin"}}
    every = {"frameworks": ["batch/job"]}
    report_configuration(client, integrations=every, managedJobsNamespaceSelector=selected)

    assert not held(run("apply", NOTHING, obj=named()))
    assert held(run("apply", NOTHING, "-n", "team-b", obj=named()))


@pytest.mark.parametrize("namespace", ["team-a", "team-b"])
def test_a_default_queue_and_a_default_class_are_those_of_the_cluster(run, client, namespace):
    report_configuration(client, integrations={"frameworks": ["batch/job"]})
    put(client, r.LOCAL_QUEUES, "default", "team-a")
    put(client, r.WORKLOAD_PRIORITY_CLASSES, "default")

    (found,) = yaml.safe_load_all(run("apply", NOTHING, "-n", namespace, obj=JOB).stdout)

    given = {QUEUE: "default", "kueue.x-k8s.io/priority-class": "default"}
    assert found["metadata"].get("labels", {}) == (given if namespace == "team-a" else {})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param(None, "the cluster serves no queue snapshots", id="no-snapshots"),
        pytest.param({}, "do not say which jobs queue", id="an-older-controller"),
        pytest.param({"integrations": {"a": 1}}, "`a`", id="a-newer-controller"),
    ],
)
def test_kinds_that_are_not_known_are_a_warning(run, client, fields, reason):
    if fields is not None:
        report_configuration(client, **fields)

    result = run("apply", NOTHING, obj=named())

    assert held(result)
    assert "all kinds of jobs are taken to queue: " in result.stderr
    assert reason in result.stderr
    assert result.exit_code == 0


def test_defaults_that_may_not_be_read_are_warnings(run, client):
    for each in (OF_CLUSTER, OF_NAMESPACE, r.LOCAL_QUEUES, r.WORKLOAD_PRIORITY_CLASSES):
        client.fail(DENIED, verb="get", plural=each.plural, times=9)

    result = run("apply", NOTHING, obj=JOB)

    assert result.stderr.count("you may not do that") == 3
    assert "jobs in team-a that name no queue are taken to have no default queue" in result.stderr
    assert "taken to have no default class" in result.stderr
    assert result.exit_code == 0


def test_objects_that_never_queue_need_no_queues(run):
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}

    assert "queue" not in run("apply", NOTHING, obj=config).stderr


# --- report, simulate, devices, test


def test_a_report_has_all_objects_page_by_page(run, client):
    for number in range(5):
        put(client, r.PODS, f"pod-{number}", "team-b", spec={"containers": []})

    result = run("report", BY_LABEL.replace("'gold'", "'tin'"))

    rows = [line.split() for line in result.stdout.splitlines()[1:]]
    assert ["team-b", "p", "validations[0]", "fail", "(Deny)", "6"] in [row[:6] for row in rows]
    assert "team-a" not in {row[0] for row in rows}
    assert client.pages > 4
    assert result.exit_code == 1


def test_what_may_not_be_listed_is_missing_from_the_report(run, client):
    client.fail(DENIED, verb="page", plural="pods", times=9)

    result = run("report", "validations: [{expression: 'true'}]")

    assert "the report lacks pods: you may not do that" in result.stderr
    assert result.exit_code == 1


def test_without_namespaces_what_depends_on_them_is_an_error_and_the_rest_a_result(run, client):
    client.fail(DENIED, verb="page", plural="namespaces", times=9)

    by_label = run("report", BY_LABEL)
    rest = run("report", "validations: [{expression: object.kind == 'ConfigMap'}]")

    assert " error " in by_label.stdout
    assert " pass " in rest.stdout
    assert "labels of namespaces are not evaluated: you may not do that" in rest.stderr


NEVER = "validations: [{name: never, expression: \"object.kind != 'Pod'\", message: nothing}]"


def test_a_summary_has_all_objects_and_their_topmost_owners(run, client):
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u"}
    owned = {"name": "x", "namespace": "team-b", "ownerReferences": [owner | {"controller": True}]}
    client.store.put(r.PODS, {"metadata": owned, "spec": {"containers": []}})

    result = run("report", NEVER, "--summary", "-o", "json")

    answer = json.loads(result.stdout)
    assert (answer["refused"], answer["running"], result.exit_code) == (3, 3, 1)
    assert "ReplicaSet web-1" in {each["owner"] for each in answer["refusedObjects"]}


def test_processes_sum_up_a_cluster_alike(run, client, monkeypatch):
    for number in range(450):
        status = {"phase": "Failed" if number % 5 == 0 else "Running"}
        namespace = ("team-a", "team-b")[number % 2]
        name = f"pod-{number}"
        put(client, r.PODS, name, namespace, spec={"containers": []}, status=status)
    arguments = ("report", BY_LABEL, "--summary", "-o", "json", "--team", "tier")
    alone = run(*arguments, "--workers", "1")
    monkeypatch.setattr(judging, "ALONE_SECONDS", -1.0)
    judged = []
    monkeypatch.setattr(judging.Judge, "judge", lambda *given: judged.append(given))

    together = run(*arguments, "--workers", "2")

    assert judged == []
    assert (together.stdout, together.stderr) == (alone.stdout, alone.stderr)
    answer = json.loads(alone.stdout)
    pods = [each for each in answer["refusedObjects"] if each["name"].startswith("pod-")]
    assert Counter(each["running"] for each in pods) == {True: 180, False: 45}
    assert together.exit_code == alone.exit_code == 1


@pytest.mark.parametrize("words", [[], ["--summary"]], ids=["report", "summary"])
def test_ctrl_c_ends_a_command_that_reads_a_cluster(run, client, monkeypatch, words):
    async def interrupted(*_, **__):
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(30)

    put(client, r.PODS, "a", "team-a", spec={"containers": []})
    monkeypatch.setattr(policy_reports, "take_objects", interrupted)
    monkeypatch.setattr(impact_objects, "take_objects", interrupted)

    result = run("report", BY_LABEL, *words)

    assert (result.exit_code, result.output) == (130, "")


def test_what_may_not_be_listed_is_missing_from_the_summary(run, client):
    client.fail(DENIED, verb="page", plural="pods", times=9)

    result = run("report", NEVER, "--summary")

    assert "the report lacks pods: you may not do that" in result.stderr
    assert result.exit_code == 1


def replayed(run, tmp_path):
    log = tmp_path / "audit.log"
    made = [logged_pod(name, namespace="team-b") for name in ("old", "another")]
    log.write_text(lines([created("pods", each) for each in made]))
    return run("replay", NEVER, str(log), "-o", "json")


def test_the_cluster_says_which_refused_objects_of_a_log_exist(run, tmp_path):
    answer = json.loads(replayed(run, tmp_path).stdout)

    running = {each["name"]: each["running"] for each in answer["refusedObjects"]}
    assert running == {"old": True, "another": False}


def test_without_the_right_to_list_the_log_says_it(run, client, tmp_path):
    client.fail(DENIED, verb="page", plural="pods", times=9)

    result = replayed(run, tmp_path)

    assert json.loads(result.stdout)["running"] == 2
    assert "which refused pods exist now is not asked: you may not do that" in result.stderr


def queues(client):
    by_kind = {each.kind: each for each in vars(r).values() if isinstance(each, r.Resource)}
    for each in yaml.safe_load_all(QUEUES + "---\n" + NODES):
        resource = by_kind.get(each["kind"])
        if resource is not None:
            body = {key: value for key, value in each.items() if key not in ("apiVersion", "kind")}
            client.store.put(resource, body)


async def test_a_scenario_has_the_queues_and_only_what_they_need(client):
    queues(client)

    kinds = {each["kind"] for each in await scenario_of(client, nodes=False)}

    assert kinds == {
        *("ResourceFlavor", "Cohort", "ClusterQueue", "LocalQueue", "AdmissionCheck", "Workload")
    }
    assert "Node" in {each["kind"] for each in await scenario_of(client, nodes=True)}


async def test_flavors_with_a_topology_need_nodes_and_pods(client):
    queues(client)
    put(client, r.RESOURCE_FLAVORS, "h100", spec={"topologyName": "t"})

    kinds = {each["kind"] for each in await scenario_of(client, nodes=False)}

    assert kinds >= {"Topology", "Node", "Pod"}


@pytest.mark.parametrize("plural", ["workloads", "cohorts", "localqueues"])
async def test_a_scenario_without_something_is_none(client, plural):
    client.fail(DENIED, verb="page", plural=plural)

    with pytest.raises(ForbiddenError):
        await scenario_of(client, nodes=False)


async def test_cases_get_what_they_leave_out_or_nothing(client):
    loaded = load_policies(policy(WITH_PARAMS), "p")

    surroundings = await read_case_surroundings(client, loaded.policies)

    assert len(surroundings.namespaces) == 2
    assert [each["data"] for each in surroundings.params] == [{"word": "yes"}]
    for plural in ("namespaces", "configmaps"):
        client.fail(DENIED, verb="page", plural=plural)
        with pytest.raises(ForbiddenError):
            await read_case_surroundings(client, loaded.policies)


CASE = """
cases:
- name: of the cluster
  object: {apiVersion: v1, kind: Pod, metadata: {name: a, namespace: team-a}}
  expect: {denied: no gold}
- name: its own
  namespaceLabels: {tier: tin}
  object: {apiVersion: v1, kind: Pod, metadata: {name: a, namespace: team-a}}
  expect: {skipped: true}
"""


def test_test_reads_what_cases_leave_out(run, tmp_path):
    (tmp_path / "policy.yaml").write_text(policy(BY_LABEL))
    (tmp_path / "cases.yaml").write_text(CASE)

    result = CliRunner().invoke(main, ["test", str(tmp_path), "--cluster"])

    assert result.exit_code == 0, result.output
    assert "2 cases passed" in result.output
    assert CliRunner().invoke(main, ["test", str(tmp_path)]).exit_code == 1


# --- the options


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(["devices"], "FILE or --cluster is required", id="neither"),
        pytest.param(
            ["devices", str(POLICY), "--cluster"], "cannot be used together", id="devices"
        ),
        pytest.param(["simulate", str(POLICY), "--cluster"], "used together", id="simulate"),
        pytest.param(
            ["report", "-p", str(POLICY), "-f", str(POLICY), "--cluster"], "together", id="report"
        ),
        pytest.param(["devices", str(POLICY), "--context", "c"], "needs --cluster", id="context"),
        pytest.param(["test", str(CASES), "--kubeconfig", "c"], "needs --cluster", id="test"),
        pytest.param(
            ["apply", "-p", str(POLICY), "-f", str(POLICY), "--context", "c"],
            "--context needs --cluster",
            id="apply",
        ),
    ],
)
def test_a_cluster_or_files(words, message):
    result = CliRunner().invoke(main, words)

    assert message in result.stderr
    assert result.exit_code == 2


async def test_a_cluster_that_does_not_answer_is_no_result(client):
    client.fail(UnreachableError("no connection"), verb="get")

    with pytest.raises(UnreachableError):
        await read_surroundings(client, (), [pod()], namespace="team-a", stored=False)


def test_an_object_without_a_kind_has_no_key():
    assert key_of({"metadata": {"name": "a"}}) is None
    assert key_of([1]) is None
