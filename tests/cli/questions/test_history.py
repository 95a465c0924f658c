"""What ran, by the Workloads that remain: who is chosen, who is named, and what is not kept."""

import pytest
from click.testing import CliRunner

from policyd.api.kueue.names import API_VERSION
from policyd.cli import main
from policyd.cli.formats.times import MOMENT
from policyd.cli.questions.history import history, history_lines
from policyd.clock import SystemClock
from policyd.controller.watch.preemptions import preemption_message
from policyd.kube import resources as r
from policyd.kube.errors import ForbiddenError
from policyd.status.ages import seconds_of
from policyd.testing import FakeClient
from policyd.workload.families import PARENT
from tests.cli.questions.test_job import condition
from tests.questions.test_unqueued_jobs import put

pytestmark = pytest.mark.anyio

PREEMPTED = preemption_message(
    uid="Workload-runs", job_uid="", reason="InClusterQueue", preemptor_path="/c/cq-b", path=""
)


@pytest.fixture
def client():
    """Workloads of two namespaces: one ended, one runs and preempted the third, which waits."""
    client = FakeClient()
    ended = [
        condition("QuotaReserved", since="2026-01-01T00:10:00Z"),
        condition("Admitted", since="2026-01-01T00:10:00Z"),
        condition("Finished", message="done", since="2026-01-01T02:10:00Z"),
    ]
    admission = {"clusterQueue": "cq", "podSetAssignments": [{"flavors": {"cpu": "f"}}]}
    owner = {"policyd.io/owner": "ann"}
    for name, namespace, hour, fields in (
        ("ended", "ns", 0, {"conditions": ended, "admission": admission}),
        ("runs", "ns", 3, {"conditions": ended[:2], "admission": admission}),
        ("waits", "other", 1, {"conditions": [condition("Preempted", message=PREEMPTED)]}),
    ):
        put(
            client, r.WORKLOADS, name, {"queueName": f"lq-{namespace}", "podSets": []},
            namespace=namespace, status=fields, labels=owner if name == "ended" else {},
            creationTimestamp=f"2026-01-01T0{hour}:00:00Z",
        )  # fmt: skip
    return client


async def names(client, namespace="", **chosen):
    return [each.workload for each in await history(client, namespace, **chosen)]


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        pytest.param({}, ["ended", "waits", "runs"], id="all-the-oldest-first"),
        pytest.param({"namespace": "other"}, ["waits"], id="of-a-namespace"),
        pytest.param({"queue": "cq"}, ["ended", "runs"], id="of-a-cluster-queue"),
        pytest.param({"queue": "lq-other"}, ["waits"], id="of-a-local-queue"),
        pytest.param({"owner": "ann"}, ["ended"], id="of-a-person"),
        pytest.param(
            {"since": seconds_of("2026-01-01T02:10:00Z")},
            ["ended", "waits", "runs"],
            id="just-ended",
        ),
        pytest.param(
            {"since": seconds_of("2026-01-01T02:10:01Z")}, ["waits", "runs"], id="ended-before"
        ),
    ],
)
async def test_workloads_are_chosen(client, chosen, found):
    assert await names(client, **chosen) == found


async def test_a_preemptor_is_named_where_its_workload_was_read(client):
    everywhere = {each.workload: each.preempted_by for each in await history(client, "")}
    (alone,) = await history(client, "other")

    assert everywhere == {"ended": "", "runs": "", "waits": "ns/runs"}
    assert alone.preempted_by == "a workload of ClusterQueue cq-b"


async def test_a_job_with_variants_is_listed_once(client):
    spec = {"queueName": "lq-ns", "podSets": []}
    put(client, r.WORKLOADS, "job", spec, labels={PARENT: "true"}, uid="parent")
    owner = {"apiVersion": API_VERSION, "kind": "Workload", "name": "job", "controller": True}
    for name, uid in (("variant", "parent"), ("forged", "another")):
        put(client, r.WORKLOADS, name, spec, ownerReferences=[{**owner, "uid": uid}])

    assert {*await names(client, "ns")} == {"ended", "forged", "job", "runs"}


async def test_the_table_says_how_long_each_waited_and_ran_and_what_is_not_kept(client):
    text = "\n".join(history_lines(await history(client, "ns"), wide=False))

    (row,) = (line.split() for line in text.splitlines() if "Workload/ended" in line)
    assert row == [
        "ns", "Workload/ended", "cq/lq-ns", "WhyFinished", "2026-01-01T00:00:00Z", "10m", "120m",
        "-", "f", "-",
    ]  # fmt: skip
    assert "Oldest: 2026-01-01T00:00:00Z. Workloads that were deleted" in text


async def test_a_user_without_the_right_gets_its_name(client):
    client.fail(ForbiddenError("no"))

    with pytest.raises(ForbiddenError) as error:
        await history(client, "ns")
    assert error.value.hint == (
        "an administrator has to grant `list` on `workloads` in namespace ns"
    )


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        pytest.param("90m", 5_400, id="minutes"),
        pytest.param("1d12h", 129_600, id="days-and-hours"),
        pytest.param("2w", 1_209_600, id="weeks"),
    ],
)
def test_a_moment_is_so_long_ago(text, ago):
    assert SystemClock().now() - MOMENT.convert(text, None, None) == pytest.approx(ago, abs=5)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        pytest.param("2026-01-01T01:00:00+01:00", "2026-01-01T00:00:00Z", id="with-a-zone"),
        pytest.param("2026-01-01", "2026-01-01T00:00:00Z", id="a-day-in-utc"),
    ],
)
def test_a_moment_is_a_time(text, moment):
    assert MOMENT.convert(text, None, None) == seconds_of(moment)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(["--since", "soon"], "`soon` is not a moment: write a time", id="since"),
        pytest.param(["--snapshot", "/dev/null"], "No such option '--snapshot'", id="snapshot"),
    ],
)
def test_options_that_make_no_sense_are_reported(options, message):
    done = CliRunner().invoke(main, ["history", *options])

    assert done.exit_code == 2
    assert message in done.stderr.replace("\n", " ")
