"""What a change would change: on a dump, and on what a cluster's user may list."""

import json

import pytest
import yaml
from click.testing import CliRunner

from policyd.cli import main
from policyd.cli.questions.what_if import PlannedChange, submitted_objects
from policyd.kube import resources as r
from policyd.kube.errors import ForbiddenError, NotFoundError
from policyd.questions.queue_objects import configuration_of, queue_objects, request_objects
from policyd.questions.snapshots import OF_CLUSTER
from policyd.snapshot.values import API_VERSION, FORMAT, NAME
from policyd.testing import FakeClient
from policyd.testing.objects import refusal

GPU = "nvidia.com/gpu"
KUEUE = "kueue.x-k8s.io/v1beta2"
QUEUE = "kueue.x-k8s.io/queue-name"


def clock(minute):
    return f"2026-01-02T03:{minute:02}:00Z"


def cluster_queue(name="cq", gpus=8, cohort="", **spec):
    flavor = {"name": "h100", "resources": [{"name": GPU, "nominalQuota": gpus}]}
    group = {"coveredResources": [GPU], "flavors": [flavor]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group], "cohortName": cohort, **spec}
    return {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}


def local_queue(name="lq", namespace="ns", of="cq", **spec):
    metadata = {"name": name, "namespace": namespace}
    spec = {"clusterQueue": of, **spec}
    return {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": metadata, "spec": spec}


def with_uid(stored):
    """An object that an API server has stored."""
    return {**stored, "metadata": {**stored["metadata"], "uid": "1"}}


def pod_template(gpus):
    requests = {GPU: gpus}
    container = {"name": "c", "image": "i", "resources": {"requests": requests, "limits": requests}}
    return {"spec": {"restartPolicy": "Never", "containers": [container]}}


def workload(name, gpus=4, *, created=0, admitted=None, limit=3600, priority=0, **annotations):
    """A Workload that waits, or that runs since it was admitted: minutes after three."""
    conditions, status = [], {}
    if admitted is not None:
        status["admission"] = {
            "clusterQueue": "cq",
            "podSetAssignments": [
                {
                    "name": "main",
                    "count": 1,
                    "flavors": {GPU: "h100"},
                    "resourceUsage": {GPU: gpus},
                }
            ],
        }
        for kind in ("QuotaReserved", "Admitted"):
            since = {"reason": "R", "lastTransitionTime": clock(admitted)}
            conditions.append({"type": kind, "status": "True", **since})
    return {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": name,
            "creationTimestamp": clock(created),
            "annotations": {key.replace("_", "-"): text for key, text in annotations.items()},
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": f"job-{name}",
                    "uid": f"job-{name}",
                    "controller": True,
                }
            ],
        },
        "spec": {
            "queueName": "lq",
            "priority": priority,
            "podSets": [{"name": "main", "count": 1, "template": pod_template(gpus)}],
            **({} if limit is None else {"maximumExecutionTimeSeconds": limit}),
        },
        "status": {**status, "conditions": conditions},
    }


def job(name="new", gpus=4, **labels):
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "labels": {QUEUE: "lq", "kueue.x-k8s.io/max-exec-time-seconds": "600", **labels},
        },
        "spec": {"parallelism": 1, "completions": 1, "template": pod_template(gpus)},
    }


FLAVOR = {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "h100"}}
BUSY = [
    FLAVOR,
    cluster_queue(),
    local_queue(),
    workload("runs", 8, created=0, admitted=10),
    workload("first", 8, created=20),
    workload("second", 8, created=30, limit=60),
]
"""As of half past three: `runs` ends at 4:10, `first` runs an hour after it, then `second`."""


@pytest.fixture
def ask(tmp_path):
    """Run the command on a dump; return its answer as JSON, or what it says if it fails."""

    def ask(*words, dump=BUSY, code=0, output="json", **files):
        for name, objects in {"dump": dump, **files}.items():
            (tmp_path / name).write_text(yaml.safe_dump_all(objects))
        given = [str(tmp_path / word) if word in files else word for word in words]
        command = ["what-if", "--dump", str(tmp_path / "dump"), "-n", "ns", *given]
        done = CliRunner().invoke(main, [*command, "-o", output], catch_exceptions=False)
        assert done.exit_code == code, done.stderr
        if output != "json":
            return done.stdout, done.stderr
        return json.loads(done.stdout) if code == 0 else done.stderr

    return ask


def changes(answer):
    return [(each["job"], each["change"], each["seconds"]) for each in answer["differences"]]


def test_more_quota_starts_those_in_line_earlier_in_their_order(ask):
    answer = ask("--apply", "more", more=[cluster_queue(gpus=16)])

    assert answer["now"] == clock(30)
    assert changes(answer) == [
        ("Job/job-first", "Earlier", -40 * 60),
        ("Job/job-second", "Earlier", -60 * 60),
    ]
    assert (answer["same"], answer["unknown"], answer["unclear"]) == (1, 0, [])


def test_a_change_of_one_field_keeps_the_others(ask):
    weight = {"kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {"stopPolicy": "Hold"}}

    answer = ask("--apply", "weight", weight=[weight])

    assert changes(answer) == [("Job/job-first", "Never", None), ("Job/job-second", "Never", None)]
    assert answer["differences"][0]["before"]["seconds"] == 40 * 60


def test_a_submitted_job_goes_last_and_preempts_by_priority(ask):
    policy = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    dump = [*BUSY, cluster_queue(**policy)]
    urgent = {"kind": "WorkloadPriorityClass", "metadata": {"name": "urgent"}, "value": 10}
    label = {"kueue.x-k8s.io/priority-class": "urgent"}

    last = ask("--submit", "new", dump=dump, new=[job()])
    first = ask("--submit", "new", dump=[*dump, urgent], new=[job(**label)])

    assert [(each["job"], each["change"]) for each in last["differences"]] == [("Job/new", "New")]
    assert last["differences"][0]["after"]["seconds"] == 40 * 60 + 3600 + 60
    assert first["differences"][0]["job"] == "Job/new"
    assert first["differences"][0]["after"]["seconds"] == 0
    (stops,) = [each for each in first["differences"] if each["change"] == "Preempted"]
    assert stops["job"] == "Job/job-runs"
    assert stops["after"]["stops"][0] == {
        "seconds": 0,
        "by": f"ns/{first['differences'][0]['workload']}",
        "job": "Job/new",
        "reason": "InClusterQueue",
    }
    assert stops["after"]["restarts"] == [600]


def test_a_changed_priority_class_changes_its_workloads(ask):
    urgent = {"kind": "WorkloadPriorityClass", "metadata": {"name": "urgent"}, "value": 0}
    of_class = workload("second", 8, created=30, limit=60)
    of_class["spec"]["priorityClassRef"] = {
        "group": "kueue.x-k8s.io",
        "kind": "WorkloadPriorityClass",
        "name": "urgent",
    }

    answer = ask(
        "--apply", "higher", dump=[*BUSY[:-1], of_class, urgent], higher=[{**urgent, "value": 10}]
    )

    assert changes(answer) == [
        ("Job/job-second", "Earlier", -3600),
        ("Job/job-first", "Later", 60),
    ]


def variant(of, name, **status):
    """A variant of a workload, which is marked as its parent."""
    of["metadata"].setdefault("labels", {})["kueue.x-k8s.io/concurrent-admission-parent"] = "true"
    parent = {"apiVersion": KUEUE, "kind": "Workload", "name": of["metadata"]["name"]}
    owner = {**parent, "uid": of["metadata"]["uid"], "controller": True}
    metadata = {**of["metadata"], "name": name, "uid": name, "labels": {}}
    return {**of, "metadata": {**metadata, "ownerReferences": [owner]}, **status}


def test_variants_count_as_the_one_job_that_they_are(ask):
    running, waiting = workload("runs", 8, admitted=10), workload("first", 8, created=20)
    inactive = {**variant(running, "b"), "spec": {**running["spec"], "active": False}}
    variants = [variant(running, "a"), inactive, variant(waiting, "c"), variant(waiting, "d")]
    alone = [*BUSY[:3], running, waiting, BUSY[-1]]

    answer = ask("--delete", "job/job-first", dump=[*alone, *variants])

    assert changes(answer) == [
        ("Job/job-second", "Earlier", -3600),
        ("Job/job-first", "Gone", None),
    ]
    assert (answer["same"], answer["unknown"]) == (1, 0)


def test_a_deleted_job_goes_with_its_workload(ask):
    answer = ask("--delete", "job/job-first")

    assert changes(answer) == [
        ("Job/job-second", "Earlier", -3600),
        ("Job/job-first", "Gone", None),
    ]


@pytest.mark.parametrize(
    ("held", "why"),
    [
        pytest.param(
            {"conditions": [{"type": "WaitingForReplacementPods", "status": "True"}]},
            "waits for new pods",
            id="pods-that-were-stopped",
        ),
        pytest.param(
            {"conditions": [{"type": "QuotaReserved", "status": "False", "reason": "OnHold"}]},
            "is on hold",
            id="on-hold",
        ),
    ],
)
def test_what_waits_for_somebody_is_not_simulated(ask, held, why):
    first = {**workload("first", 8, created=20), "status": held}

    _, notes = ask("--delete", "job/job-second", output="table", dump=[*BUSY[:4], first, BUSY[5]])

    assert f"Workload ns/first: not simulated: it {why}" in notes.replace("was stopped, and ", "")


def test_pods_of_a_group_are_gone_once_they_are_stopped(ask):
    group = workload("runs", 8, created=0, admitted=10)
    group["metadata"] |= {
        "annotations": {"kueue.x-k8s.io/is-group-workload": "true"},
        "ownerReferences": [],
    }
    policy = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    urgent = workload("new", 8, priority=5, limit=60)
    urgent["metadata"].pop("ownerReferences")

    answer = ask(
        "--submit", "new", "--all", dump=[FLAVOR, cluster_queue(**policy), local_queue(), group],
        new=[{**urgent, "status": {}}],
    )  # fmt: skip

    (gone,) = (each for each in answer["differences"] if each["workload"] == "runs")
    assert gone["change"] == "Preempted"
    assert gone["after"]["restarts"] == []


def test_a_node_that_is_added_is_ready(ask):
    topology = {"apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": "racks"}}
    topology["spec"] = {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}
    flavor = {**FLAVOR, "spec": {"nodeLabels": {"gpu": "h100"}, "topologyName": "racks"}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    node["metadata"]["labels"] = {"gpu": "h100", "kubernetes.io/hostname": "n"}
    node["status"] = {"allocatable": {GPU: "8", "pods": "9"}, "capacity": {GPU: "8", "pods": "9"}}

    answer = ask("--apply", "more", dump=[topology, flavor, *BUSY[1:3], BUSY[4]], more=[node])

    assert changes(answer) == [("Job/job-first", "Starts", None)]


def test_without_a_run_time_nothing_is_claimed_of_later_starts(ask):
    endless = [*BUSY, workload("runs", 8, created=0, admitted=10, limit=None)]

    assert ask("--delete", "job/job-first", dump=endless)["unknown"] == 1
    more = ask("--apply", "more", dump=endless, more=[cluster_queue(gpus=16)])
    assumed = ask("--delete", "job/job-first", "--assume", "2h", dump=endless)

    assert more["unclear"] == [{"workload": "ns/runs", "reason": "it declares no run time"}]
    assert changes(more) == [("Job/job-first", "Earlier", None)]  # at once, and by some time
    assert changes(assumed)[0] == ("Job/job-second", "Earlier", -3600)
    assert assumed["differences"][0]["after"]["seconds"] == 100 * 60  # two hours from 3:10 on


@pytest.mark.parametrize(
    ("dump", "why"),
    [
        pytest.param(
            [
                workload(
                    "runs", 8, admitted=10, limit=None, **{"policyd.io/expected_run_time": "5m"}
                )
            ],
            "it has run for longer than it declared",
            id="late",
        ),
        pytest.param(
            [cluster_queue(admissionChecksStrategy={"admissionChecks": [{"name": "budget"}]})],
            "the admission checks of ClusterQueue cq may take any time",
            id="admission-checks",
        ),
    ],
)
def test_what_makes_an_end_unknown_is_named(ask, dump, why):
    checks = [
        {
            "apiVersion": KUEUE,
            "kind": "AdmissionCheck",
            "metadata": {"name": "budget"},
            "spec": {"controllerName": "example.com/budget"},
            "status": {"conditions": [{"type": "Active", "status": "True", "reason": "Active"}]},
        }
    ]

    answer = ask("--delete", "job/job-second", dump=[*BUSY, *checks, *dump])

    assert {each["reason"] for each in answer["unclear"]} == {why}


def test_the_table_says_what_it_leaves_out(ask):
    shown, left = ask("--apply", "more", output="table", more=[cluster_queue(gpus=16)])
    nothing, notes = ask("--delete", "job/job-second", output="table", dump=BUSY)

    assert shown.splitlines()[1].split() == [
        "ns", "Job/job-first", "cq", "in", "40m", "now", "earlier", "by", "40m"
    ]  # fmt: skip
    assert left == "1 workload as before\n"
    assert nothing.splitlines()[1].endswith("gone")
    assert notes == "2 workloads as before\n"


@pytest.mark.parametrize(
    ("words", "files", "message"),
    [
        pytest.param(["--delete", "job/job-frist"], {}, "did you mean `job-first`?", id="mistyped"),
        pytest.param(["--delete", "jbo/job-first"], {}, "did you mean `job`?", id="mistyped-kind"),
        pytest.param(["--delete", "job"], {}, "is not the name of an object", id="no-name"),
        pytest.param(
            ["--submit", "new"],
            {"new": [job("job-first")]},
            "it is queued as Workload ns/first already",
            id="queued-already",
        ),
        pytest.param(
            ["--submit", "new"],
            {"new": [job(**{QUEUE: "typo"})]},
            "LocalQueue `ns/typo` not found",
            id="no-queue",
        ),
        pytest.param(
            ["--submit", "new"],
            {"new": [job(**{QUEUE: "lqq"})]},
            "did you mean `ns/lq`?",
            id="mistyped-queue",
        ),
        pytest.param(
            ["--apply", "new"],
            {"new": [{**cluster_queue(), "kind": "ClusterQeue"}]},
            "did you mean `ClusterQueue`?",
            id="mistyped-kind",
        ),
        pytest.param(
            ["--apply", "new"],
            {"new": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}]},
            "no queue depends on a ConfigMap",
            id="no-part-of-queues",
        ),
        pytest.param(
            ["--apply", "new"],
            {"new": [{"kind": "Policy", "metadata": {"name": "p"}}]},
            "what-if does not evaluate policies",
            id="policy",
        ),
        pytest.param(
            ["--apply", "new"],
            {"new": [{"kind": "NetworkPolicy", "metadata": {"name": "p"}}]},
            "no queue depends on a NetworkPolicy",
            id="another-kind-of-policy",
        ),
        pytest.param(
            ["--apply", "new"],
            {"new": [cluster_queue(fairSharing={"wieght": 2})]},
            "a ClusterQueue has no field `wieght`",
            id="mistyped-field",
        ),
        pytest.param(
            ["--apply", "new"],
            {"new": [with_uid(local_queue(stopPolicyy="Hold"))]},
            "LocalQueue ns/lq: a LocalQueue has no field `stopPolicyy`: `spec.stopPolicyy`",
            id="mistyped-field-of-a-stored-object",
        ),
        pytest.param(
            ["--delete", "job/job-first", "--until", "-5h"], {}, "`-5h` is negative", id="past"
        ),
        pytest.param([], {}, "no change: name one with --submit", id="no-change"),
        pytest.param(["--apply", "new"], {"new": [{"a": 1}]}, "`kind` is missing", id="no-object"),
    ],
)
def test_a_change_that_is_none_is_named(ask, words, files, message):
    assert message in ask(*words, code=2, **files)


def test_a_new_object_with_almost_the_name_of_another_is_a_warning(ask):
    _, notes = ask("--apply", "new", output="table", new=[cluster_queue("cqq")], dump=BUSY)

    assert "ClusterQueue cqq is new: did you mean `cq`?" in notes


def test_a_dump_cut_in_half_is_refused(ask, tmp_path):
    (tmp_path / "cut").write_text(yaml.safe_dump_all(BUSY)[:-200])

    done = CliRunner().invoke(
        main, ["what-if", "--dump", str(tmp_path / "cut"), "--delete", "job/ns/job-first"]
    )

    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")


class Restricted(FakeClient):
    """A cluster whose user may not list some kinds, and which lacks others."""

    forbidden: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    async def page(self, resource, **options):
        if resource.plural in self.forbidden:
            raise ForbiddenError(f"{resource.plural} is forbidden")
        if resource.plural in self.missing:
            raise NotFoundError("the server could not find the requested resource")
        return await FakeClient.page(self, resource, **options)


@pytest.fixture
def client():
    client = Restricted()
    kinds = (r.RESOURCE_FLAVORS, r.CLUSTER_QUEUES, r.LOCAL_QUEUES, r.WORKLOADS, r.NODES)
    for resource, body in zip(kinds, [*BUSY[:4], {"metadata": {"name": "n"}}], strict=True):
        client.store.put(resource, {k: v for k, v in body.items() if k != "kind"})
    return client


def snapshot(**fields):
    return {
        "apiVersion": API_VERSION,
        "kind": "QueueSnapshot",
        "format": FORMAT,
        "metadata": {"name": NAME},
        **fields,
    }


@pytest.mark.anyio
async def test_the_configuration_is_that_of_the_controller(client):
    given = {"apiVersion": "v", "kind": "Configuration", "fairSharing": {}}
    body = snapshot(configuration=given, otherTeams="team")
    client.store.put(OF_CLUSTER, body)
    missing = []

    found = await configuration_of(client, missing.append)

    assert found == [{**given, "visibility": {"otherTeams": "team"}}]
    assert missing == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param(None, "serves no queue snapshots", id="no-snapshots"),
        pytest.param(snapshot(), "have no Configuration", id="an-older-controller"),
        pytest.param(snapshot(format=FORMAT + 1), "has format", id="another-format"),
        pytest.param(snapshot(configuration=[]), "not a whole QueueSnapshot", id="damaged"),
    ],
)
async def test_a_configuration_that_is_not_read_is_a_sentence(client, body, why):
    if body is not None:
        client.store.put(OF_CLUSTER, body)
    missing = []

    assert await configuration_of(client, missing.append) == []

    assert len(missing) == 1
    assert why in missing[0]
    assert "is not read, and its defaults are used" in missing[0]


def claiming(name, **more):
    """A Workload whose pod gets four devices by a claim."""
    asked = {"name": "gpus", "resourceClaimTemplateName": "four"}
    made = workload(name, 0, **more)
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    made["spec"]["podSets"][0]["template"] = {"spec": {**pod, "resourceClaims": [asked]}}
    return made


DEVICES = "resource.k8s.io/v1"
FOUR = {"deviceClassName": "gpus", "count": 4}
CLAIMS = [
    {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "resources": {"deviceClassMappings": [{"name": GPU, "deviceClassNames": ["gpus"]}]},
    },
    {"apiVersion": DEVICES, "kind": "DeviceClass", "metadata": {"name": "gpus"}, "spec": {}},
    {
        "apiVersion": DEVICES,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "four", "namespace": "ns"},
        "spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": FOUR}]}}},
    },
]


def test_devices_of_claims_count_in_a_dump(ask):
    dump = [*BUSY[:4], *CLAIMS, claiming("claims", created=20), claiming("more", created=21)]
    dump.append(claiming("last", created=22))

    answer = ask("--delete", "workload/ns/runs", dump=dump)

    # Of the eight that are free now, each takes four: the third goes when the first ends.
    assert sorted(changes(answer)) == [
        ("Job/job-claims", "Earlier", -2880.0),
        ("Job/job-last", "Earlier", -2880.0),
        ("Job/job-more", "Earlier", -2880.0),
        ("Job/job-runs", "Gone", None),
    ]


def test_a_claim_whose_template_is_not_in_a_dump_waits(tmp_path):
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"kind": "List", "items": [*BUSY[:3], *CLAIMS[:2], claiming("w")]}))

    found = CliRunner().invoke(main, ["simulate", str(dump), "--explain"])

    assert "four" in found.stdout
    assert "admitted" not in found.stdout


@pytest.mark.anyio
async def test_what_claims_are_counted_by_is_read_where_a_class_is_mapped(client):
    template = {key: value for key, value in CLAIMS[2].items() if key != "kind"}
    client.store.put(r.RESOURCE_CLAIM_TEMPLATES, template)
    missing = []

    assert await request_objects(client, [FLAVOR], missing.append) == []
    found = await request_objects(client, CLAIMS[:1], missing.append)
    assert [each["kind"] for each in found] == ["ResourceClaimTemplate"]
    assert missing == []

    client.forbidden = ("resourceclaims",)
    assert await request_objects(client, CLAIMS[:1], missing.append) == []
    assert missing[0].endswith(": jobs that get devices by claims count as jobs that cannot start")


@pytest.mark.anyio
async def test_a_cluster_is_read_as_far_as_decisions_depend_on_it(client):
    client.missing, client.forbidden = ("topologies", "cohorts"), ("namespaces",)
    missing = []

    found = await queue_objects(client, missing.append)

    assert [each["kind"] for each in found] == [
        "ResourceFlavor", "ClusterQueue", "LocalQueue", "Workload"
    ]  # fmt: skip
    assert len(missing) == 1
    assert missing[0].endswith(": namespace selectors of ClusterQueues are not checked")


@pytest.mark.anyio
async def test_nodes_are_read_where_a_topology_places_pods(client):
    topology = {"metadata": {"name": "h100"}, "spec": {"topologyName": "racks"}}
    client.store.put(r.RESOURCE_FLAVORS, topology)

    assert [each["kind"] for each in await queue_objects(client, pytest.fail)][-1] == "Node"


@pytest.mark.anyio
async def test_nodes_are_read_where_one_is_lost(client):
    objects = await queue_objects(client, pytest.fail, nodes=True)

    assert "n" in [each["metadata"]["name"] for each in objects if each["kind"] == "Node"]


def test_a_lost_node_changes_nothing_without_a_topology(tmp_path):
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [*BUSY, node]}))

    found = CliRunner().invoke(main, ["what-if", "--dump", str(dump), "--lose-node", "n"])

    assert "nothing would change" in found.stderr
    assert "no flavor has a topology: quotas do not depend on nodes" in found.stderr


@pytest.mark.anyio
async def test_a_user_without_the_right_gets_its_name(client):
    client.forbidden = ("workloads",)

    with pytest.raises(ForbiddenError) as raised:
        await queue_objects(client, pytest.fail)

    assert "`list` on `workloads.kueue.x-k8s.io` in all namespaces" in raised.value.hint


@pytest.mark.anyio
async def test_a_job_is_given_to_the_api_server_as_a_dry_run(client):
    (found,) = await submitted_objects(client, [job()], "ns")

    assert (found["kind"], found["metadata"]["name"]) == ("Job", "new")
    assert client.writes[-1].verb == "create"
    assert not client.store.select(r.JOBS, {})


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("served", "expected"),
    [
        pytest.param([], "the cluster serves no Job of batch/v1", id="no-such-kind"),
        pytest.param([r.JOBS], 'namespaces "ns" not found', id="no-such-namespace"),
    ],
)
async def test_a_kind_that_the_cluster_does_not_serve_is_named(client, served, expected):
    client.resources = served
    client.fail(refusal(404, "NotFound", 'namespaces "ns" not found'), verb="create")

    with pytest.raises(NotFoundError, match=expected):
        await submitted_objects(client, [job()], "ns")


FAIR = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "resources": {"quotaCheckStrategy": "IgnoreUndeclared"},
}


@pytest.mark.parametrize("own", [True, False], ids=["in-place-of-its-own", "added"])
def test_a_configuration_of_a_file_counts_before_and_after_a_change(tmp_path, own):
    other = {"apiVersion": FAIR["apiVersion"], "kind": "Configuration"}
    new = workload("new", 1)
    new["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"] = {
        "requests": {GPU: 1, "cpu": 1}
    }
    objects = [*BUSY[:3], new, *([other] if own else [])]
    (tmp_path / "dump.yaml").write_text(yaml.safe_dump_all(objects))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(FAIR))
    more = {**cluster_queue(), "spec": {"stopPolicy": "None"}}
    (tmp_path / "more.yaml").write_text(yaml.safe_dump(more))
    words = ["--apply", str(tmp_path / "more.yaml"), "--dump", str(tmp_path / "dump.yaml"), "--all"]

    def asked(*more):
        done = CliRunner().invoke(main, ["what-if", *words, *more, "-o", "json"])
        assert done.exit_code == 0, done.output
        (found,) = json.loads(done.stdout)["differences"]
        return [found[when]["start"] for when in ("before", "after")]

    assert asked() == ["Never", "Never"]
    assert asked("--config", str(tmp_path / "config.yaml")) == ["Starts", "Starts"]


@pytest.mark.parametrize("flavors", [True, False])
def test_a_queue_in_which_nothing_can_start_is_a_warning(ask, flavors):
    dump = BUSY[:3] if flavors else BUSY[1:3]

    table, warnings = ask("--submit", "new", dump=dump, new=[job()], output="table")

    assert ("never" in table) is not flavors
    assert ("ClusterQueue cq: " in warnings and "missing ResourceFlavor" in warnings) is not flavors


def test_a_workload_that_was_cut_off_is_an_error(ask):
    cut = {**workload("cut", 8), "spec": {"queueName": "lq"}}

    error = ask("--submit", "new", dump=[*BUSY, cut], new=[job()], code=2)

    assert "Workload `ns/cut`: `spec.podSets` is missing" in error
    assert "cut off" in error


def test_a_field_that_the_cluster_has_stored_is_not_a_mistake(ask):
    later = with_uid(local_queue(fieldOfALaterVersion=1))
    dump = [each for each in BUSY if each["kind"] != "LocalQueue"]

    ask("--apply", "new", new=[later], dump=[*dump, later])


@pytest.mark.anyio
async def test_a_change_is_planned_again_only_when_something_has_changed(client, capsys):
    client.forbidden = ("namespaces",)
    for resource in (r.RESOURCE_FLAVORS, r.CLUSTER_QUEUES, r.LOCAL_QUEUES, r.WORKLOADS):
        for each in BUSY:
            if each["kind"] == resource.kind:
                client.store.put(resource, each)
    options = dict.fromkeys(("dump", "config", "until", "assume"), "")
    options |= {"apply": (), "lose_node": (), "delete": ("job/job-runs",)}
    planned = PlannedChange(options, [], "ns")

    first = await planned.ask(client)
    again = await planned.ask(client)
    client.store.put(r.WORKLOADS, workload("third", 8, created=3))
    changed = await planned.ask(client)

    assert again is first
    assert len(changed.differences) == len(first.differences) + 1
    assert capsys.readouterr().err.count("namespace selectors of ClusterQueues") == 1


def test_a_dump_is_not_watched(tmp_path):
    (tmp_path / "dump").write_text(yaml.safe_dump_all(BUSY))
    words = ["what-if", "--dump", str(tmp_path / "dump"), "--delete", "job/job-first", "--watch"]

    found = CliRunner().invoke(main, words)

    assert (found.exit_code, "use one of both" in found.stderr) == (2, True)
