"""Changes are tried, and nothing is made: dry runs, and queues in a process that ends in time."""

import pytest

from policyd.kube import resources as r
from policyd.kube.errors import ForbiddenError, UnavailableError
from policyd.questions.what_if_changes import (
    MOST_DOCUMENTS,
    MOST_TEXT,
    QueueChange,
    WhatIfError,
    changed_queues,
    manifests_in,
    tried,
)
from policyd.testing import FakeClient
from tests.cli.questions.test_what_if import BUSY, cluster_queue, job

pytestmark = pytest.mark.anyio


class Judging(FakeClient):
    """Refuses, and warns, as it is told."""

    def __init__(self, error=None, warnings=()):
        super().__init__()
        self.resources = (r.JOBS, r.CLUSTER_QUEUES)
        self.error, self.warnings, self.options = error, warnings, {}

    async def create(self, resource, body, *, into, **options):
        self.options = options
        for each in self.warnings:
            options["warned"](each)
        if self.error is not None:
            raise self.error
        return await super().create(resource, body, into=into, **options)


def error(kind, code):
    made = kind("no")
    made.code = code
    return made


async def test_manifests_are_yaml_or_json():
    text = '{"apiVersion": "v1", "kind": "Pod"}\n---\napiVersion: v1\nkind: List\nitems: []\n'

    assert [each["kind"] for each in await manifests_in(text)] == ["Pod"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: [", "manifest", id="broken"),
        pytest.param("a: 1", "document 1 is not an object", id="no-object"),
        pytest.param("- 1", "document 1 is not an object", id="a-list"),
        pytest.param("kind: {}\napiVersion: v1", "document 1 is not an object", id="odd-kind"),
        pytest.param("x" * (MOST_TEXT + 1), "more than 256 KiB", id="long"),
        pytest.param("a: " + "[" * 2_000, "manifest", id="deep"),
        pytest.param(
            "apiVersion: v1\nkind: Pod\n---\n" * (MOST_DOCUMENTS + 1), "more than 20", id="many"
        ),
    ],
)
async def test_what_is_no_manifest_is_a_sentence(text, message):
    with pytest.raises(WhatIfError, match=message):
        await manifests_in(text)


async def test_an_object_is_given_as_a_dry_run_with_warnings():
    client = Judging(warnings=["would wait"])
    sent = {**job(), "metadata": {"name": "new", "resourceVersion": "7", "uid": "u"}}

    found = await tried(client, sent, "ns")

    assert (found.stored["kind"], found.stored["metadata"]["name"]) == ("Job", "new")
    assert found.warnings == ("would wait",)
    assert client.options["dry_run"]
    assert client.options["namespace"] == "ns"
    assert not client.store.select(r.JOBS, {})


async def test_a_refusal_is_an_answer():
    found = await tried(Judging(error(ForbiddenError, 403), ["w"]), job(), "ns")

    assert (found.stored, found.refusal, found.warnings) == (None, "no", ("w",))


async def test_an_api_server_that_does_not_answer_is_none():
    with pytest.raises(UnavailableError):
        await tried(Judging(error(UnavailableError, 503)), job(), "ns")


@pytest.mark.parametrize("change", [{"kind": "Jobb"}, {"apiVersion": "batch/v7"}])
async def test_a_kind_that_is_not_served_is_named(change):
    with pytest.raises(WhatIfError, match="has no kind"):
        await tried(Judging(), {**job(), **change}, "ns")


async def test_a_job_without_a_namespace_is_not_sent():
    with pytest.raises(WhatIfError, match="names no namespace"):
        await tried(Judging(), {**job(), "metadata": {"name": "new"}}, "")


async def test_queues_are_compared():
    change = QueueChange(
        submitted=(job(priority="x"),), deleted=("workload/ns/first",), namespace="ns"
    )

    found = await changed_queues(BUSY, change)

    changes = {each.workload: each.change for each in found.answer.differences}
    assert changes["first"] == "Gone"
    assert changes["second"] == "Earlier"
    assert found.answer.same == 1


async def test_a_quota_is_changed():
    change = QueueChange(applied=(cluster_queue(gpus=16),), until="24h", assume="1h")

    found = await changed_queues(BUSY, change)

    assert {each.change for each in found.answer.differences} >= {"Earlier"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"deleted": ("job/ns/nobody",)}, "not found", id="no-such-job"),
        pytest.param({"lost_nodes": ("n",)}, "not found", id="no-such-node"),
        pytest.param({"deleted": ("workload/ns/first",), "until": "soon"}, "soon", id="duration"),
        pytest.param({"deleted": ("--help",)}, "--help", id="an-option"),
        pytest.param({"submitted": ({"kind": "Job"},)}, "", id="not-an-object"),
    ],
)
async def test_a_change_that_is_not_possible_is_a_sentence(change, message):
    with pytest.raises(WhatIfError) as raised:
        await changed_queues(BUSY, QueueChange(**change))

    assert message in str(raised.value)
    assert "Traceback" not in f"{raised.value}{raised.value.hint}"


async def test_a_simulation_that_takes_too_long_is_ended():
    with pytest.raises(WhatIfError, match="not simulated within 0 seconds"):
        await changed_queues(BUSY, QueueChange(deleted=("workload/ns/first",)), within=0.05)
