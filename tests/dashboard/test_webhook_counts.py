"""Counts of the webhooks: read from all processes, added up, and never wrong for a bad answer."""

import asyncio
import socket
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.routing import Route

from policyd.connections import Listening
from policyd.dashboard import webhook_counts
from policyd.dashboard.views.review_counts import (
    METRIC,
    CountsError,
    ReviewCounts,
    counts_in,
    counts_of_text,
)
from policyd.dashboard.webhook_counts import MOST_WEBHOOKS, WebhookCounts
from policyd.errors import ConfigurationError
from policyd.health import HEALTH_BOUNDS, create_health_app
from policyd.serving import served
from webhooks.metrics import WebhookMetrics

pytestmark = pytest.mark.anyio
HOSTILE = '"}\n# TYPE x counter\nx{a="\\'


def metrics(**counts):
    """Metrics of the webhooks, given numbers by policy and result."""
    made = WebhookMetrics(CollectorRegistry())
    for name, results in counts.items():
        for phase, result, number in results:
            made.policy_results.labels(name, phase, result).inc(number)
    return made


def webhook(**counts):
    return create_health_app(metrics(**counts).registry, tuple)


def answering(respond):
    async def answer(_request):
        return await respond() if asyncio.iscoroutinefunction(respond) else respond()

    return Starlette(routes=[Route("/metrics", answer)])


@asynccontextmanager
async def serving(*apps):
    """Serve metrics; give their addresses."""
    async with asyncio.TaskGroup() as group:
        ended, ports = asyncio.Event(), [asyncio.get_running_loop().create_future() for _ in apps]

        async def serve(app, given):
            listening = Listening(bounds=HEALTH_BOUNDS)
            async with served(app, listening, host="127.0.0.1", port=0, option="--port") as port:
                given.set_result(port)
                await ended.wait()

        for app, given in zip(apps, ports, strict=True):
            group.create_task(serve(app, given))
        try:
            yield tuple([f"127.0.0.1:{await given}" for given in ports])
        finally:
            ended.set()


async def test_the_counts_of_all_processes_and_phases_are_added_up():
    one = webhook(
        p=[("mutate", "matched", 3), ("validate", "matched", 4), ("mutate", "changed", 2)]
    )
    other = webhook(p=[("validate", "matched", 10)], q=[("validate", "refused", 1)])

    async with serving(one, other) as addresses:
        found = await WebhookCounts(addresses)()

    assert found.counts == {
        "p": ReviewCounts(matched=17, changed=2), "q": ReviewCounts(refused=1)
    }  # fmt: skip
    assert (found.webhooks, found.missing) == (2, ())
    assert found.of("never-matched") == ReviewCounts()


async def test_what_the_webhooks_of_this_process_count_is_the_same():
    made = metrics(p=[("mutate", "warned", 3)])

    found = counts_in(sample for each in made.results.collect() for sample in each.samples)

    assert found == {"p": ReviewCounts(warned=3)}


async def test_names_of_policies_are_read_as_they_are():
    async with serving(webhook(**{HOSTILE: [("validate", "refused", 5)]})) as addresses:
        found = await WebhookCounts(addresses)()

    assert found.counts == {HOSTILE: ReviewCounts(refused=5)}


async def slow():
    await asyncio.sleep(30)


@pytest.mark.parametrize(
    ("respond", "why"),
    [
        pytest.param(lambda: PlainTextResponse("x 1\n"), f"has no `{METRIC}`", id="foreign"),
        pytest.param(lambda: PlainTextResponse("", 503), "answers with status 503", id="busy"),
        pytest.param(
            lambda: RedirectResponse("http://127.0.0.1:1/"),
            "answers with status 307",
            id="redirect",
        ),
        pytest.param(
            lambda: PlainTextResponse("x" * (webhook_counts.MOST_BYTES + 1)),
            "answers with more than 4 MiB",
            id="huge",
        ),
        pytest.param(slow, "did not answer within 0.2 s", id="slow"),
    ],
)
async def test_a_process_without_counts_is_named_and_the_others_count(respond, why, monkeypatch):
    if respond is slow:  # the others have the time that they have on a busy machine
        monkeypatch.setattr(webhook_counts, "READ_SECONDS", 0.2)
    good = webhook(p=[("mutate", "matched", 3)])

    async with serving(good, answering(respond)) as addresses:
        found = await WebhookCounts(addresses)()

    assert found.counts == {"p": ReviewCounts(matched=3)}
    assert found.webhooks == 1
    (missing,) = found.missing
    assert missing.startswith(f"the webhook at {addresses[1]}")
    assert why in missing


async def test_a_process_that_is_gone_is_named():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"

        found = await WebhookCounts((address,))()

    assert found == ({}, 0, (f"the webhook at {address} cannot be reached",))
    assert found.of("p") is None


async def test_all_addresses_of_a_name_are_asked_up_to_a_bound(monkeypatch):
    asked = []

    async def read(_session, address, port):
        asked.append((address, port))
        return {"p": ReviewCounts(matched=1)}

    async def known(host, port, **_options):
        if host == "gone":
            raise socket.gaierror(-2, "Name or service not known")
        return [(0, 0, 0, "", (f"10.0.0.{n}", port)) for n in (*range(40), 1, 2)]

    monkeypatch.setattr(webhook_counts, "_read", read)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", known, raising=False)

    found = await WebhookCounts(("many:1", "gone:1"))()

    assert len(asked) == len({*asked}) == MOST_WEBHOOKS
    assert found.counts["p"].matched == MOST_WEBHOOKS
    assert found.missing == (
        "`gone` has no address: name or service not known",
        f"only {MOST_WEBHOOKS} of 40 webhooks are asked",
    )


@pytest.mark.parametrize("number", ["-1", "NaN", "+Inf", "1e300", "x", ""])
async def test_a_number_that_is_no_count_is_not_taken(number):
    text = f'{METRIC}{{policy="p",phase="mutate",result="matched"}} {number}'

    with pytest.raises(CountsError, match=f"`{METRIC}`"):
        counts_of_text([text])


@pytest.mark.parametrize(
    "text", ["", "host", ":1", "host:", "host:0", "host:99999", "http://a:1", "a:٣"]
)
async def test_an_address_is_a_host_and_a_port(text):
    with pytest.raises(ConfigurationError, match="not an address of metrics of webhooks"):
        WebhookCounts((text,))
