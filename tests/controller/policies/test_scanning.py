"""The background scan: what exists is listed in pages, and reports are written if they differ."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from policyd.controller.policies.scanning import (
    PAGE,
    SETTLE_SECONDS,
    ScanMetrics,
    Scanner,
    ScanSettings,
)
from policyd.engine.offline.report import APIS, ResultCount, ResultKey, admitted
from policyd.kube.errors import ConflictError, ForbiddenError, UnavailableError
from policyd.kube.reports import Reports, resource_of
from policyd.kube.resources import (
    CONFIG_MAPS,
    NAMESPACES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
)
from policyd.testing import FakeClient, FakeClock
from tests.engine.reviews import pod, policies, policy

OPEN, WORKING_GROUP = APIS
NOW = 1_800_000_000.0
HEAD = 'apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"]'


def demand(expression, resources="pods", name="p"):
    text = policy(f'validations: [{{expression: "{expression}", name: v}}]', name=name)
    rule = f'apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [{resources}]'
    return text.replace(HEAD, rule)


class World:
    """An API server in memory, and a scanner beside it."""

    def __init__(self, *texts, api=WORKING_GROUP, settings=None):
        self.client, self.clock = FakeClient(), FakeClock(NOW)
        self.client.resources = [PODS, CONFIG_MAPS]
        if api is not None:
            self.client.resources += [resource_of(api, namespaced=n) for n in (True, False)]
        self.api, self.leading = api, True
        self.policies = policies(*texts)
        self.reports = Reports(self.client)
        self.scanner = Scanner(
            self.client,
            self.reports,
            policies=lambda: self.policies,
            leading=lambda: self.leading,
            metrics=ScanMetrics(CollectorRegistry()),
            settings=settings,
            pace=self.clock.pace(),
        )

    async def create(self, *pods):
        for each in pods:
            await self.client.create(PODS, each, into=dict)

    async def scan(self):
        """Scan once, however long that takes."""
        task = asyncio.create_task(self.scanner.scan())
        while not task.done():
            await self.clock.advance(1)
        await task

    async def report(self, namespace="team-a", api=None):
        resource = resource_of(api or self.api, namespaced=bool(namespace))
        found = await self.client.get(resource, "policyd", namespace=namespace, into=dict)
        return {
            (each["policy"], each["result"]): each["properties"]["count"]
            for each in found["results"]
        }

    @property
    def writes(self):
        """What was written of reports: the verb, and the namespace."""
        return [
            (write.verb, write.namespace)
            for write in self.client.writes
            if write.resource.plural.endswith("reports")
        ]


def in_namespace(name, namespace):
    made = pod(name=name)
    made["metadata"]["namespace"] = namespace
    return made


@pytest.mark.anyio
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.group)
async def test_existing_objects_are_reported_in_the_installed_kind(api):
    world = World(demand("object.metadata.name == 'a'"), api=api)
    await world.create(pod(name="a"), pod(name="b"), in_namespace("c", "team-b"))

    await world.scan()

    assert await world.report("team-a") == {("p", "fail"): "1", ("p", "pass"): "1"}
    assert await world.report("team-b") == {("p", "fail"): "1"}
    assert world.writes == [("create", "team-a"), ("create", "team-b")]


def claiming(name, template):
    made = pod(name=name)
    made["spec"]["resourceClaims"] = [{"name": "r", "resourceClaimTemplateName": template}]
    return made


async def world_of_claims():
    """A policy that allows two devices by claims, and templates for two and for four."""
    world = World(demand("pod.claimedDevices() <= 2"))
    world.client.resources += [RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES]
    for name, count in (("two", 2), ("four", 4)):
        exactly = {"deviceClassName": "gpu", "count": count, "selectors": []}
        spec = {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}
        template = {"metadata": {"name": name, "namespace": "team-a"}, "spec": spec}
        await world.client.create(RESOURCE_CLAIM_TEMPLATES, template, into=dict)
    return world


@pytest.mark.anyio
async def test_devices_of_claims_are_counted_by_the_templates_of_the_cluster():
    world = await world_of_claims()
    await world.create(claiming("a", "two"), claiming("b", "four"), claiming("c", "gone"))

    await world.scan()

    assert await world.report() == {("p", "pass"): "1", ("p", "fail"): "1", ("p", "error"): "1"}


@pytest.mark.anyio
async def test_claims_that_may_not_be_listed_are_reported_and_not_counted_as_none():
    world = await world_of_claims()
    world.client.fail(ForbiddenError("may not"), plural="resourceclaimtemplates")
    await world.create(claiming("a", "two"), pod(name="b"))

    await world.scan()

    assert await world.report() == {("p", "error"): "1", ("p", "pass"): "1"}
    assert await world.report("") == {("policyd", "skip"): "0"}


@pytest.mark.anyio
async def test_claims_are_listed_only_for_policies_that_count_them():
    world = World(demand("true"))
    world.client.fail(ForbiddenError("may not"), plural="resourceclaims")
    await world.create(claiming("a", "two"))

    await world.scan()

    assert world.writes == [("create", "team-a")]


@pytest.mark.anyio
async def test_without_a_kind_of_reports_nothing_is_listed():
    world = World(demand("false"), api=None)
    await world.create(pod())

    await world.scan()

    assert world.writes == []


@pytest.mark.anyio
async def test_unchanged_statuses_are_not_written_again():
    world = World(demand("false"))
    await world.create(pod())

    await world.scan()
    await world.scan()

    assert world.writes == [("create", "team-a")]


@pytest.mark.anyio
async def test_objects_are_listed_in_pages_and_only_of_kinds_that_policies_name():
    world = World(demand("false"))
    await world.create(*(pod(name=f"pod-{n}") for n in range(2 * PAGE + 1)))
    await world.client.create(
        CONFIG_MAPS, {"metadata": {"name": "x", "namespace": "team-a"}}, into=dict
    )

    await world.scan()

    assert await world.report() == {("p", "fail"): str(2 * PAGE + 1)}


@pytest.mark.anyio
async def test_a_scan_takes_its_time():
    world = World(demand("false"), settings=ScanSettings(objects_per_second=20))
    await world.create(*(pod(name=f"pod-{n}") for n in range(100)))

    await world.scan()

    assert world.clock.monotonic() >= 100 / 20


@pytest.mark.anyio
async def test_a_report_that_says_nothing_any_more_is_deleted():
    world = World(demand("false"))
    await world.create(pod())
    await world.scan()
    await world.client.delete(PODS, "a", namespace="team-a")

    await world.scan()

    assert world.writes == [("create", "team-a"), ("delete", "team-a")]


@pytest.mark.anyio
async def test_namespaces_that_the_webhooks_leave_out_are_left_out():
    world = World(demand("false"), settings=ScanSettings(exempt=frozenset({"team-a"})))
    await world.create(pod())

    await world.scan()

    assert world.writes == []


@pytest.mark.anyio
async def test_a_namespace_that_is_left_out_is_itself_left_out():
    exempt = ScanSettings(exempt=frozenset({"kube-system"}))
    world = World(demand("false", "namespaces"), settings=exempt)
    world.client.resources.append(NAMESPACES)
    for name in ("kube-system", "team-a"):
        await world.client.create(NAMESPACES, {"metadata": {"name": name}}, into=dict)

    await world.scan()

    assert await world.report("") == {("p", "fail"): "1"}


@pytest.mark.anyio
async def test_forbidden_lists_are_reported_and_the_rest_is_scanned():
    world = World(demand("false", "pods, configmaps"))
    world.client.fail(ForbiddenError("no"), verb="page", plural="configmaps")
    await world.create(pod())

    await world.scan()

    assert await world.report("") == {("policyd", "skip"): "0"}
    assert await world.report("team-a") == {("p", "fail"): "1"}


@pytest.mark.anyio
async def test_a_scan_that_breaks_off_writes_nothing():
    world = World(demand("false", "pods, configmaps"))
    world.client.fail(UnavailableError("busy"), verb="page", plural="pods")
    await world.create(pod())

    with pytest.raises(UnavailableError):
        await world.scan()

    assert world.writes == []


@pytest.mark.anyio
async def test_objects_admitted_meanwhile_are_kept():
    world = World(demand("false"))
    await world.create(pod())
    await world.scan()
    key = ResultKey("p", "v", "fail", "Deny")

    def count(api, old):
        return admitted(api, "team-a", {key: ResultCount(count=4, message="x")}, old, now=NOW)

    await world.reports.update("team-a", count)
    await world.create(pod(name="b"))
    await world.scan()

    resource = resource_of(world.api, namespaced=True)
    report = await world.client.get(resource, "policyd", namespace="team-a", into=dict)
    [result] = report["results"]
    assert result["properties"] == {"count": "2", "admitted": "4", "enforcement": "Deny"}


@pytest.mark.anyio
async def test_the_slower_writer_makes_the_report_anew():
    world = World(demand("false"))
    await world.create(pod())
    await world.scan()
    world.client.fail(ConflictError("changed"), verb="replace", times=2)
    await world.create(pod(name="b"))

    await world.scan()

    assert await world.report() == {("p", "fail"): "2"}
    assert world.writes == [("create", "team-a"), *[("replace", "team-a")] * 3]


class Running(World):
    """A scanner that runs by itself."""

    async def __aenter__(self):
        self._task = asyncio.create_task(self.scanner.run())
        return self

    async def __aexit__(self, *_error):
        self._task.cancel()
        await asyncio.wait([self._task])


@pytest.mark.anyio
async def test_a_stand_by_scans_nothing_until_it_leads():
    world = Running(demand("false"))
    world.leading = False
    await world.create(pod())
    async with world:
        await world.clock.advance(60)
        assert world.writes == []

        world.leading = True
        await world.clock.advance(60)

        assert world.writes == [("create", "team-a")]


@pytest.mark.anyio
async def test_a_former_leader_stops_before_the_next_write():
    world = Running(demand("false"), settings=ScanSettings(objects_per_second=1))
    await world.create(*(pod(name=f"pod-{n}") for n in range(50)))
    async with world:
        await world.clock.advance(15)
        world.leading = False
        await world.clock.advance(600)

        assert world.writes == []


@pytest.mark.anyio
async def test_policies_that_change_are_scanned_with_soon():
    world = Running(demand("false"))
    await world.create(pod())
    async with world:
        await world.clock.advance(60)
        world.policies = policies(demand("true"))
        world.scanner.changed.set()
        await world.clock.advance(SETTLE_SECONDS + 5)

        assert await world.report() == {("p", "pass"): "1"}


@pytest.mark.anyio
@pytest.mark.parametrize(
    "error",
    [
        pytest.param(UnavailableError("busy"), id="refused"),
        pytest.param(ZeroDivisionError("a bug"), marks=pytest.mark.breaks, id="broken"),
    ],
)
async def test_a_scan_that_failed_is_tried_again(error):
    world = Running(demand("false"), settings=ScanSettings(every_seconds=60))
    world.client.fail(error, verb="page", plural="pods")
    await world.create(pod())
    async with world:
        await world.clock.advance(90)

        assert world.writes == [("create", "team-a")]
