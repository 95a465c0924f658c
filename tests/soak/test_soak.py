"""The judges of a soak see what must not be: without that, `make soak` could not fail."""

import copy
import json

import pytest

from policyd.kube import resources as r
from policyd.workload.obstacles import BYPASSED, PENDING
from tests.controller.world import World, running
from tests.faults.history import Version
from tests.scenarios.api import Refused
from tests.soak.__main__ import reported
from tests.soak.judge import Memory, Quotas, Reasons, reason_of, refused
from tests.soak.load import Load, Made
from tests.soak.replay import Finding, Replays, fresh, reworded
from tests.soak.soak import Soak
from tests.soak.stage import CONFIGURATION, opened

pytestmark = pytest.mark.anyio

ROOT = "/registry/kueue.x-k8s.io/"
GPU = "nvidia.com/gpu"
OLD, NOW = "2026-01-01T00:00:00Z", 1_767_225_600.0
OLDER = 0.0


def queue(revision, name, gpus, *, borrowing="4"):
    quota = {"name": GPU, "nominalQuota": str(gpus), "borrowingLimit": borrowing}
    flavors = [{"name": "h100", "resources": [quota]}]
    spec = {"cohortName": "all", "resourceGroups": [{"flavors": flavors}]}
    return Version(revision, f"{ROOT}clusterqueues/{name}", {"metadata": {}, "spec": spec})


def workload(revision, name, gpus, *, of="a", back=0, replaces="", active=True, pods=4):
    condition = {"type": "QuotaReserved", "status": "True", "lastTransitionTime": OLD}
    usage = {GPU: str(gpus)}
    assigned = {"name": "main", "count": 4, "flavors": {GPU: "h100"}, "resourceUsage": usage}
    admission = {"clusterQueue": of, "podSetAssignments": [assigned]}
    status = {"conditions": [condition], "admission": admission}
    if back:
        status["reclaimablePods"] = [{"name": "main", "count": back}]
    notes = {"kueue.x-k8s.io/workload-slice-replacement-for": replaces} if replaces else {}
    spec = {"active": active, "podSets": [{"name": "main", "count": pods}]}
    obj = {"metadata": {"annotations": notes}, "spec": spec, "status": status}
    return Version(revision, f"{ROOT}workloads/ns/{name}", obj)


TWO = (queue(1, "a", 8), queue(2, "b", 8))


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        pytest.param([workload(3, "x", 12), workload(4, "y", 4, of="b")], "", id="all-there-is"),
        pytest.param([workload(3, "x", 13)], "a with ns/x at revision 3: 13 of 12", id="a-queue"),
        pytest.param(
            [workload(3, "x", 8), workload(4, "y", 9, of="b")],
            "all with ns/y at revision 4: 17 of 16",
            id="a-cohort",
        ),
        pytest.param([workload(3, "x", 16, back=1)], "", id="pods-that-gave-theirs-back"),
        pytest.param(
            [workload(3, "x", 12), workload(4, "x", 12, pods=2), workload(5, "y", 6)],
            "",
            id="a-job-shrinks",
        ),
        pytest.param(
            [workload(3, "x", 8), workload(4, "y", 12, replaces="ns/x")], "", id="a-slice-grows"
        ),
        pytest.param(
            [workload(3, "x", 8), workload(4, "y", 12)], "a with ns/y at revision 4", id="no-slice"
        ),
        pytest.param(
            [workload(3, "x", 12), queue(4, "a", 4), workload(5, "x", 12)],
            "",
            id="quota-is-cut-below-what-is-held",
        ),
        pytest.param(
            [workload(3, "x", 12), workload(4, "x", 12, active=False), workload(5, "y", 12)],
            "",
            id="deactivated",
        ),
        pytest.param(
            [workload(3, "x", 12, active=False), workload(4, "y", 12), workload(5, "x", 12)],
            "",
            id="reactivated-before-it-has-stopped",
        ),
        pytest.param(
            [workload(3, "x", 12), Version(4, f"{ROOT}workloads/ns/x", None), workload(5, "y", 12)],
            "",
            id="deleted",
        ),
    ],
)
def test_more_quota_than_there_is_is_named(history, expected):
    quotas = Quotas()
    quotas.go_through([*TWO, *history])

    assert "; ".join(quotas.exceeded)[: len(expected) or None] == expected


@pytest.mark.parametrize(
    ("answered", "expected"),
    [
        pytest.param({3: NOW - 60}, "a with ns/x at revision 4: 12 of 8", id="long-ago"),
        pytest.param({3: NOW - 1}, "", id="a-moment-ago"),
        pytest.param({3: NOW + 60}, "", id="by-a-slow-server"),
        pytest.param({}, "", id="not-answered-yet"),
        pytest.param({9: NOW}, "a with ns/x at revision 4: 12 of 8", id="by-somebody-else"),
    ],
)
def test_a_quota_may_be_given_that_was_cut(answered, expected):
    quotas = Quotas(answered)
    quotas.go_through([*TWO, queue(3, "a", 4), workload(4, "x", 12)])

    assert "; ".join(quotas.exceeded)[: len(expected) or None] == expected


def event(code, user, message="", *, verb="patch"):
    status = {"code": code, "message": message}
    body = {"user": {"username": user}, "responseStatus": status, "verb": verb}
    return json.dumps({**body, "requestURI": "/x?a=b", "stageTimestamp": "2026-01-01T12:34:56Z"})


@pytest.mark.parametrize(
    ("line", "found"),
    [
        pytest.param(event(422, "ours", "no"), ("me", "12:34:56 patch /x: 422 no"), id="ours"),
        pytest.param(event(409, "ours", "late"), None, id="too-late"),
        pytest.param(event(504, "ours", "Timeout"), None, id="not-answered"),
        pytest.param(event(422, "alice", 'admission webhook "w" denied it'), None, id="a-user"),
        pytest.param(
            event(403, "system:job-controller", 'admission webhook "w" denied it', verb="create"),
            ("system:job-controller", '12:34:56 create /x: 403 admission webhook "w" denied it'),
            id="a-controller-of-kubernetes",
        ),
        pytest.param(event(422, "system:job-controller", "no"), None, id="not-by-webhooks"),
    ],
)
def test_refused_writes_are_reported(line, found):
    assert [*refused([line], {"me": "ours"})] == ([found] if found else [])


def test_how_long_no_reason_is_reported_is_measured_from_the_creation_on():
    pending = {"metadata": {"namespace": "ns", "name": "x", "creationTimestamp": OLD}}
    condition = {"type": "QuotaReserved", "status": "False", "message": "because"}
    reasons = Reasons()

    reasons.look([pending], NOW + 5)
    reasons.look([pending], NOW + 12)
    reasons.look([{**pending, "status": {"conditions": [condition]}}], NOW + 14)
    reasons.look([pending], NOW + 30)  # it may have said none for a moment only

    assert reasons.longest == {"ns/x": 12}
    assert reasons.over(10) == {"ns/x": 12}
    assert reasons.over(12) == {}


@pytest.mark.parametrize(
    ("message", "reason"),
    [("because", "because"), ("", ""), (PENDING, ""), (BYPASSED, "")],
)
def test_what_says_only_that_it_waits_is_no_reason(message, reason):
    condition = {"type": "QuotaReserved", "status": "False", "message": message}

    assert reason_of({"status": {"conditions": [condition]}}) == reason


class Created(list):
    """An API server that only takes note of what is created."""

    def create(self, item):
        self.append(item["metadata"]["name"])


def member(number, *, phase="Running", deleted=False):
    gone = {"deletionTimestamp": OLD} if deleted else {}
    about = {"namespace": "ns", "name": f"ring-{number}", **gone}
    return {"kind": "Pod", "metadata": about, "status": {"phase": phase}}


def group_workload(*, waits="True", active=True):
    conditions = [{"type": "WaitingForReplacementPods", "status": waits}]
    about = {"namespace": "ns", "name": "ring"}
    return {"metadata": about, "spec": {"active": active}, "status": {"conditions": conditions}}


@pytest.mark.parametrize(
    ("pods", "workloads", "made"),
    [
        pytest.param([member(1)], [group_workload()], ["ring-0-0"], id="gone"),
        pytest.param(
            [member(0, deleted=True), member(1, phase="Failed")],
            [group_workload()],
            ["ring-0-0", "ring-1-1"],
            id="deleted-or-failed",
        ),
        pytest.param(
            [member(0), member(1, phase="Succeeded")], [group_workload()], [], id="none-lost"
        ),
        pytest.param([member(0)], [], ["ring-1-0"], id="before-it-has-a-workload"),
        pytest.param([], [group_workload(waits="False")], [], id="nobody-waits-for-them"),
        pytest.param([], [group_workload(active=False)], [], id="stopped"),
    ],
)
def test_pods_that_groups_have_lost_are_replaced(pods, workloads, made):
    api = Created()
    load = Load(api, seed=1)
    load.jobs.append(
        Made("PodGroup", "ns", "ring", [member(0), member(1)], frozenset(), made_at=OLDER)
    )

    load.replace_lost(pods, workloads)

    assert api == made
    assert [item["metadata"]["name"] for item in load.jobs[0].lost] == [n[:6] for n in made]


class Failing:
    """An API server that fails at the creation of the third object, and once at a deletion."""

    def __init__(self, deletions=0):
        self.there, self.deletions = [], deletions

    def create(self, item):
        if len(self.there) == 2:
            raise Refused(500, "InternalError", "a webhook did not answer in time")
        self.there.append(item["metadata"]["name"])

    def delete(self, kind, name, namespace, *, missing_is_fine):
        if self.deletions:
            self.deletions -= 1
            raise Refused(500, "InternalError", "a webhook did not answer in time")
        if name in self.there:
            self.there.remove(name)


def ring():
    return Made("PodGroup", "ns", "ring", [member(number) for number in range(4)], frozenset())


def test_of_a_group_that_was_created_in_part_nothing_stays(monkeypatch):
    load = Load(api := Failing(), seed=1)
    monkeypatch.setattr(load, "_made_up", ring)

    with pytest.raises(Refused):
        load._create()

    assert (api.there, load.live()) == ([], [])


def test_what_could_not_be_deleted_is_deleted_later():
    load = Load(api := Failing(deletions=1), seed=1)
    load.jobs.append(made := ring())
    for item in made.items[:2]:
        api.create(item)

    with pytest.raises(Refused):
        load.delete(made)
    for each in load.live():
        load.delete(each)

    assert (api.there, load.live()) == ([], [])


def test_memory_that_grows_in_the_second_half_is_measured():
    start = [(float(second), 50.0 + second) for second in range(50)]

    assert Memory([*start, *((50.0 + s, 100.0) for s in range(50))]).growth() == 0
    assert Memory([*start, *((50.0 + s, 100.0 + s) for s in range(50))]).growth() == 49


@pytest.fixture
def configuration(tmp_path):
    file = tmp_path / "kueue.yaml"
    file.write_text(json.dumps(CONFIGURATION))
    return file


@pytest.fixture
async def dumped():
    """A queue of 8 GPUs, of which one job has all, and another waits."""
    world = World()
    world.furnish()
    async with running(world):
        world.job("runs")
        await world.pass_time(1)
        world.job("waits")
        await world.pass_time(5)
    kinds = (r.CLUSTER_QUEUES, r.LOCAL_QUEUES, r.RESOURCE_FLAVORS, r.NAMESPACES)
    found = {kind: world.all(kind) for kind in (*kinds, r.JOBS, r.WORKLOADS)}
    return copy.deepcopy(found), world.clock.now()


def change(dumped, name, *, without=""):
    (workload,) = (w for w in dumped[r.WORKLOADS] if name in w["metadata"]["name"])
    if without:
        status = workload["status"]
        status["conditions"] = [c for c in status["conditions"] if c["type"] != without]
    return workload


async def test_a_fresh_controller_finds_nothing_to_do_where_all_is_done(dumped, configuration):
    objects, now = dumped
    store, done = await fresh(objects, configuration, now)

    assert done == []
    assert [*reworded(objects, store)] == []


async def test_what_was_left_undone_is_found(dumped, configuration):
    objects, now = dumped
    objects[r.CLUSTER_QUEUES][0]["spec"]["resourceGroups"][0]["flavors"][0]["resources"] = [
        {"name": GPU, "nominalQuota": "16"}
    ]

    found = {(f.about, f.what) for f in (await fresh(objects, configuration, now))[1]}

    waits = change(objects, "waits")["metadata"]["name"]
    assert (f"Workload ns/{waits}", "would admit it") in found
    assert ("Job ns/waits", "would change spec.suspend, spec.template") in found


async def test_a_reason_that_is_not_true_is_found(dumped, configuration):
    objects, now = dumped
    waits = change(objects, "waits")
    (reserved,) = (c for c in waits["status"]["conditions"] if c["type"] == "QuotaReserved")
    reserved["message"] = reserved["message"].replace("8 more", "2 more")

    (finding,) = reworded(objects, (await fresh(objects, configuration, now))[0])

    assert finding.about == f"Workload ns/{waits['metadata']['name']}"
    assert "8 more needed" in finding.detail.partition(" -> ")[2]


@pytest.mark.parametrize(
    ("between", "found"),
    [
        pytest.param([], 1, id="it-stood-all-the-time"),
        pytest.param([("w", "wrong")], 1, id="written-again-as-it-was"),
        pytest.param([("w", "8 more needed"), ("w", "wrong")], 0, id="it-was-corrected-meanwhile"),
        pytest.param([("v", "8 more needed")], 1, id="another-was-corrected"),
        pytest.param([("w", None)], 0, id="it-was-deleted"),
    ],
)
def test_a_reason_is_wrong_for_long_only_if_it_was_not_replaced_meanwhile(
    configuration, between, found
):
    replays = Replays(configuration, truth=20.0)
    wrong = Finding("waits for another reason", "Workload ns/w", "uid", "wrong")
    done = Finding("would evict it", "Workload ns/w", "uid")
    versions = [Version(7, f"{ROOT}workloads/ns/{name}", _pending(text)) for name, text in between]

    for now in (0.0, 10.0, 20.0):
        replays.note([done], [wrong], now)
        replays.go_through(versions if now == 10 else ())

    assert len(replays.worded) == found
    assert len(replays.defects) == 1


def _pending(text):
    condition = {"type": "QuotaReserved", "status": "False", "message": text}
    return None if text is None else {"status": {"conditions": [condition]}}


@pytest.mark.e2e
def test_a_short_soak_finds_nothing(tmp_path):
    with opened(tmp_path) as stage:
        soak = Soak(seed=7)
        soak.run(stage, minutes=0.4)

    assert {what: findings for what, findings in soak.found.items() if findings} == {}
    report = reported(soak, 0.4)
    assert report["admissions"] > 10
    assert report["looks"] > 2
