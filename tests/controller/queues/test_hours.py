"""GPU-hours, as the controller records them over restarts, and budgets that hold queues."""

import base64
import gzip
from datetime import UTC, datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

import msgspec
import pytest

from policyd.api.kueue import Workload
from policyd.api.meta import rfc3339
from policyd.controller.queues.hours import (
    KEY,
    SAVE_SECONDS,
    TICK_SECONDS,
    Hours,
    resume,
    short,
)
from policyd.controller.queues.snapshots import Snapshots
from policyd.kube import resources as r
from policyd.snapshot.reading import read
from policyd.usage.budgets import HOLD, HOURS, TIME_ZONE, bounds
from policyd.usage.hours import month_hours
from policyd.usage.months import month_of
from policyd.usage.packing import unpack
from policyd.usage.record import HoursRecord, QuotaGiven, UseKey
from policyd.workload.held_quota import held_quota
from tests.controller.world import World

pytestmark = pytest.mark.anyio

PLACE = "policyd/hours"
HOUR = 3_600


@pytest.fixture
async def world():
    world = World()
    world.hours_record = PLACE
    world.furnish(gpus=16)
    yield world
    await world.kill()


def annotate(world, resource, name, **annotations):
    obj = world.get(resource, name)
    kept = {**obj["metadata"].get("annotations", {}), **annotations}
    world.put(resource, {**obj, "metadata": {**obj["metadata"], "annotations": kept}})


def limit(hours, *, hold="true", zone="Europe/Berlin"):
    return {HOURS: str(hours), TIME_ZONE: zone, HOLD: hold}


def whole(world):
    return sum(total.expected for total in hours(world).values())


def hours(world, zone=UTC):
    """GPU-hours of this month, by key."""
    record, now = world.controller.hours.record, world.clock.now()
    record.advance(now)
    month = month_of(now, zone)
    return {
        key: pytest.approx(total / 28 / HOUR, abs=0.01)
        for key, total in record.sums(month, *bounds(month, zone))
    }


def test_a_uid_is_shortened():
    found = {short(f"12345678-1234-1234-1234-123456789ab{number}") for number in range(10)}

    assert len(found) == 10
    assert {len(each) for each in found} == {16}


async def test_what_holds_quota_is_recorded_until_it_gives_it_back(world):
    await world.start()
    world.job("a", 8)
    await world.pass_time(HOUR)
    world.end_job("a")
    await world.pass_time(HOUR)

    assert hours(world) == {UseKey("cq", "ns/lq-cq", "", "h100"): 8}


async def test_a_restart_loses_nothing_of_what_still_exists(world):
    await world.start()
    world.job("runs", 2)
    world.job("ends", 4)
    await world.pass_time(SAVE_SECONDS + 60)
    await world.kill()
    world.clock.jump(HOUR)
    world.end_job("ends")

    await world.start()
    await world.pass_time(60)

    at_end, since = SAVE_SECONDS + 60 + HOUR, SAVE_SECONDS + 120 + HOUR
    expected = (4 * at_end + 2 * since) / HOUR
    assert whole(world) == pytest.approx(expected, abs=0.1)
    assert world.controller.hours.record.unknown == {}


async def test_quota_that_was_held_over_a_restart_is_own_up_to_the_nominal_one(world):
    world.furnish(gpus=8)
    await world.start()
    world.job("runs", 4)
    world.job("ends", 2)
    await world.pass_time(SAVE_SECONDS + 60)
    await world.kill()
    stopped = world.clock.now()
    world.clock.jump(HOUR)
    world.end_job("ends")

    await world.start()
    await world.pass_time(60)

    record, now = world.controller.hours.record, world.clock.now()
    record.advance(now)
    month = month_hours(record, month_of(now, UTC), UTC)
    (quota,) = month.quotas
    passed = Fraction(int(now) - record.since, HOUR)
    assert stopped - record.since < now - stopped, "most of the time nothing was recorded"
    assert (quota.borrowed, quota.lent) == (0, 0)
    assert quota.own == sum(each.hours for each in month.lines)
    assert quota.own + quota.idle == 8 * passed


@pytest.mark.parametrize("last_first", [False, True])
def test_what_ended_and_began_meanwhile_counts_in_the_order_of_time(last_first):
    """Of a quota of 4, a job uses 8 in the first of three hours, and another one in the last."""
    record = HoursRecord(0)
    first, last = (held_workload(n, begin, end) for n, begin, end in (("a", 0, 1), ("b", 2, 3)))
    before = held_workload("a", 0, None)
    record.hold(short("a"), held_quota(before), 0)
    record.put_quotas({"cq": ("queue cq", {"h100": QuotaGiven(4 * 28)})}, 0)

    resume(record, [last, first] if last_first else [first, last], now=3 * HOUR, whole=True)
    record.advance(3 * HOUR)

    (quota,) = month_hours(record, month_of(0, UTC), UTC).quotas
    assert (quota.own, quota.borrowed, quota.idle) == (8, 8, 4)


def held_workload(name, begin, end, *, pods=8, claims=(), **status):
    """A workload that was admitted with 8 pods of one GPU, from and to hours after the epoch."""
    template = {"spec": {"containers": [], "resourceClaims": claims}}
    times = {"QuotaReserved": begin, "Finished": end}
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": rfc3339(at * HOUR)}
        for kind, at in times.items()
        if at is not None
    ]
    gpu = "nvidia.com/gpu"
    assigned = {"name": "main", "count": 8, "flavors": {gpu: "h100"}, "resourceUsage": {gpu: "8"}}
    admission = {"clusterQueue": "cq", "podSetAssignments": [assigned]}
    body = {
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {
            "queueName": "lq",
            "podSets": [{"name": "main", "count": pods, "template": template}],
        },
        "status": {"admission": admission, "conditions": conditions, **status},
    }
    return msgspec.convert(body, Workload)


@pytest.mark.parametrize(
    ("pods", "given_back", "expected"),
    [
        pytest.param(8, 0, 8, id="as-admitted"),
        pytest.param(3, 0, 3, id="shrunk"),
        pytest.param(3, 1, 2, id="shrunk-and-given-back"),
        pytest.param(8, 3, 5, id="given-back"),
        pytest.param(12, 0, 8, id="admitted-in-part"),
    ],
)
def test_pods_that_a_job_no_longer_has_hold_no_quota(pods, given_back, expected):
    reclaimable = [{"name": "main", "count": given_back}] if given_back else []

    held = held_quota(held_workload("a", 0, None, pods=pods, reclaimablePods=reclaimable))

    assert held.amounts == {"h100": expected * 28}


def test_a_claim_that_pods_share_does_not_shrink_with_their_job():
    claim = {"name": "gpu", "resourceClaimName": "shared"}

    held = held_quota(held_workload("a", 0, None, pods=3, claims=[claim]))

    assert held.amounts == {"h100": 8 * 28}


async def test_a_restart_says_what_is_not_known_of_what_is_gone(world):
    await world.start()
    world.job("a", 2)
    await world.pass_time(SAVE_SECONDS + 60)
    await world.kill()
    world.clock.jump(HOUR)
    workload = world.workload_of("a")
    freed = {**workload, "metadata": {**workload["metadata"], "finalizers": []}}
    world.store.replace(r.WORKLOADS, workload, freed)
    world.delete(r.JOBS, "a")
    assert world.workload_of("a") is None

    await world.start()
    await world.pass_time(60)

    record = world.controller.hours.record
    unknown = sum(record.unknown["cq"].values()) / 28 / HOUR
    assert unknown == pytest.approx(2 * (HOUR + 300) / HOUR, abs=0.2)


async def test_the_record_is_stored_and_made_if_there_is_none(world):
    await world.start()
    world.job("a", 8)
    await world.pass_time(SAVE_SECONDS + 60)

    stored = _stored(world)

    found = unpack(base64.b64decode(stored["binaryData"][KEY]))
    assert [key.queue for key in found.record.used] == ["cq"]
    assert found.whole


def _stored(world):
    (found,) = [each for each in world.all(r.CONFIG_MAPS) if each["metadata"]["name"] == "hours"]
    return found


async def test_a_damaged_record_begins_anew_and_is_logged(world):
    world.put(
        r.CONFIG_MAPS,
        {"metadata": {"name": "hours", "namespace": "policyd"}, "binaryData": {KEY: "AAAA"}},
    )

    await world.start()

    assert world.controller.hours.record.since == int(world.clock.now())


async def test_a_budget_that_is_used_up_holds_new_jobs_and_stops_none(world):
    world.clock.jump(-86_400 * 3)
    annotate(world, r.CLUSTER_QUEUES, "cq", **limit(8))
    await world.start()
    world.job("runs", 8)
    await world.pass_time(HOUR + TICK_SECONDS)

    world.job("held", 4)
    world.job("plain", 0)
    await world.pass_time(TICK_SECONDS)

    assert world.suspended("held")
    assert world.condition("held", "QuotaReserved")["message"] == (
        "the budget of cq for November, 8 GPU-hours, is used up; it renews on 2023-12-01 00:00"
        " Europe/Berlin"
    )
    assert not world.suspended("runs")

    world.end_job("runs")
    await world.pass_time(60)
    assert world.suspended("held")


async def test_a_budget_renews_with_the_month_of_its_time_zone(world):
    berlin = ZoneInfo("Europe/Berlin")
    begin = datetime(2023, 12, 1, tzinfo=berlin).timestamp()
    world.clock.jump(begin - 2 * HOUR - world.clock.now())
    annotate(world, r.CLUSTER_QUEUES, "cq", **limit(8))
    await world.start()
    world.job("runs", 8)
    await world.pass_time(HOUR + 2 * TICK_SECONDS)
    world.end_job("runs")
    world.job("held", 8)
    await world.pass_time(60)
    assert world.suspended("held")

    world.clock.jump(begin - world.clock.now() - 30)
    await world.pass_time(20)
    assert world.suspended("held")
    await world.pass_time(10 + 2 * TICK_SECONDS)

    assert not world.suspended("held")


async def test_a_budget_of_a_local_queue_holds_that_alone(world):
    other = {"metadata": {"name": "other", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}}
    world.put(r.LOCAL_QUEUES, other)
    annotate(world, r.LOCAL_QUEUES, "lq-cq", **limit(0))
    await world.start()

    world.job("held", 4)
    world.job("free", 4, queue="other")
    await world.pass_time(1)

    assert (world.suspended("held"), world.suspended("free")) == (True, False)
    assert (
        "the budget of ns/lq-cq for November"
        in (world.condition("held", "QuotaReserved")["message"])
    )


async def test_a_strict_queue_goes_on_behind_a_local_queue_that_is_held(world):
    world.queue(gpus=16, queueingStrategy="StrictFIFO")
    other = {"metadata": {"name": "other", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}}
    world.put(r.LOCAL_QUEUES, other)
    annotate(world, r.LOCAL_QUEUES, "lq-cq", **limit(0))
    await world.start()

    world.job("held", 4)
    await world.pass_time(1)
    world.job("free", 4, queue="other")
    await world.pass_time(1)

    assert (world.suspended("held"), world.suspended("free")) == (True, False)


async def test_a_budget_that_does_not_hold_lets_jobs_start(world):
    annotate(world, r.CLUSTER_QUEUES, "cq", **limit(0, hold="false"))
    await world.start()

    world.job("starts", 4)
    await world.pass_time(1)

    assert not world.suspended("starts")
    assert world.controller.cache.budgets["cq"].used_up


async def test_a_budget_that_is_raised_lets_held_jobs_start(world):
    annotate(world, r.CLUSTER_QUEUES, "cq", **limit(0))
    await world.start()
    world.job("held", 4)
    await world.pass_time(1)
    assert world.suspended("held")

    annotate(world, r.CLUSTER_QUEUES, "cq", **limit(100))
    await world.pass_time(2 * TICK_SECONDS)

    assert not world.suspended("held")


async def test_a_restart_admits_nothing_before_the_budget_is_known(world):
    annotate(world, r.CLUSTER_QUEUES, "cq", **limit(1))
    await world.start()
    world.job("runs", 8)
    await world.pass_time(SAVE_SECONDS + 600)
    world.job("held", 8)
    await world.pass_time(60)
    assert world.suspended("held")
    await world.kill()
    world.end_job("runs")

    await world.start()
    await world.pass_time(60)

    assert world.suspended("held")


async def test_a_clock_that_is_put_back_and_forth_counts_no_time_twice(world):
    await world.start()
    world.job("a", 1)
    await world.pass_time(600)
    world.clock.jump(-300)
    await world.pass_time(600)

    assert whole(world) * HOUR == pytest.approx(900, abs=20)


async def test_a_process_that_leads_no_longer_holds_no_queue(world):
    annotate(world, r.CLUSTER_QUEUES, "cq", **limit(0))
    await world.start()
    await world.pass_time(TICK_SECONDS)
    assert world.controller.cache.budgets["cq"].held

    world.controller.hours.drop()

    assert world.controller.cache.budgets == {}


async def test_a_process_that_does_not_lead_judges_budgets_by_the_stored_record(world):
    annotate(world, r.CLUSTER_QUEUES, "cq", **limit(8))
    await world.start()
    world.job("runs", 8)
    await world.pass_time(2 * HOUR + SAVE_SECONDS)
    stored = world.controller.cache.budgets["cq"]
    follower = Hours(
        world.controller.cache, world.controller.writes, place=PLACE, leading=lambda: False
    )
    follower._put_budgets({})

    await follower._look()

    found = world.controller.cache.budgets["cq"]
    assert found.used_up
    assert found.held
    assert float(found.used) == pytest.approx(float(stored.used), abs=8 * SAVE_SECONDS / HOUR)
    assert follower.record is None


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param(None, id="never-stored"),
        pytest.param({"binaryData": {KEY: "AAAA"}}, id="damaged"),
    ],
)
async def test_without_a_record_that_can_be_read_no_budget_is_known(world, stored):
    annotate(world, r.CLUSTER_QUEUES, "cq", **limit(8))
    await world.start()
    cache = world.controller.cache
    assert "cq" in cache.budgets
    place = PLACE if stored else "policyd/none"
    if stored:
        world.put(r.CONFIG_MAPS, {"metadata": {"name": "hours", "namespace": "policyd"}, **stored})
    follower = Hours(cache, world.controller.writes, place=place, leading=lambda: False)

    await follower._look()

    assert cache.budgets == {}


async def test_a_snapshot_has_the_budgets_that_its_reader_may_see(world):
    for namespace in ("ns", "other"):
        about = {"name": "mine", "namespace": namespace, "annotations": limit(1)}
        world.put(r.LOCAL_QUEUES, {"metadata": about, "spec": {"clusterQueue": "cq"}})
    annotate(world, r.CLUSTER_QUEUES, "cq", **limit(8, hold="false"))
    await world.start()
    world.job("runs", 8)
    await world.pass_time(HOUR + TICK_SECONDS)

    (found,) = (await snapshot_for(world)).cluster_queues
    world.controller.cache.other_teams = "hidden"
    (hidden,) = (await snapshot_for(world, reader="ns", scope="ns")).cluster_queues

    assert [each.queue for each in found.budgets] == ["cq", "ns/mine", "other/mine"]
    assert [each.queue for each in hidden.budgets] == ["cq", "ns/mine"]
    of_queue = found.budgets[0]
    assert of_queue.used == pytest.approx(8, abs=0.05)
    assert (of_queue.hours, of_queue.used_up, of_queue.held) == (8, True, False)
    assert of_queue.time_zone == "Europe/Berlin"


async def snapshot_for(world, *, reader="", scope=""):
    snapshots = Snapshots(world.controller.cache, pace=world.controller.pace)
    body = await snapshots.current(scope=scope, reader=reader)
    return read(gzip.decompress(body), "test")
