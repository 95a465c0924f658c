"""Traces: what spans say, that no collector delays anything, and that they cost nothing if off."""

import http.server
import json
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from policyd.admission.handler import AdmissionHandler
from policyd.api.admission import ReviewError
from policyd.controller.cycle_loop import cycle_spans
from policyd.engine.model.deadline import never
from policyd.engine.model.decision import Decision, Denial, Failure
from policyd.errors import ConfigurationError
from policyd.tracing import CLOSE_SECONDS, MOST_EVENTS, MOST_WAITING, provider_for, tracing
from tests.controller.world import World, running
from webhooks.observe.observing import traced

pytestmark = pytest.mark.anyio

SECRET = "hunter2-do-not-export"
REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {
        "uid": "u-1",
        "kind": {"group": "", "version": "v1", "kind": "Secret"},
        "resource": {"group": "", "version": "v1", "resource": "secrets"},
        "operation": "CREATE",
        "name": "password",
        "namespace": "team-a",
        "userInfo": {"username": SECRET},
        "object": {"metadata": {"name": "password"}, "data": {"password": SECRET}},
    },
}


@contextmanager
def recorded():
    """Give a tracer, and a function that returns the spans that it has made."""
    exporter, lost = InMemorySpanExporter(), []
    provider = provider_for(exporter, service="test", dropped=lambda *each: lost.append(each))

    def spans():
        provider.force_flush()
        assert lost == []
        return exporter.get_finished_spans()

    yield provider.get_tracer("test"), spans
    provider.shutdown()


def answering(tracer, decision, *, observe=None, body=REVIEW):
    handler = AdmissionHandler(
        phase="validate", policies=lambda _request, _deadline: decision, observe=observe
    )
    return traced(handler, tracer)(json.dumps(body).encode(), never)


async def test_a_review_has_a_span_with_its_policies_and_nothing_of_its_object():
    denial = Denial(policy="no-secrets", validation="first", message=f"`{SECRET}` is a password")
    decision = Decision(
        denials=(denial,),
        failures=(Failure(policy="broken", message=SECRET, ignored=True),),
        matched=("no-secrets", "other"),
        audit_annotations={"a": SECRET},
    )
    seen = []
    with recorded() as (tracer, spans):
        answer = await answering(tracer, decision, observe=lambda *each: seen.append(each))
        (span,) = spans()

    assert b'"allowed":false' in answer
    assert seen[0][1].denials == (denial,)
    assert span.name == "review validate"
    assert span.attributes["policyd.review.resource"] == "secrets"
    assert span.attributes["policyd.review.allowed"] is False
    assert span.attributes["k8s.namespace.name"] == "team-a"
    assert [(each.name, each.attributes["policy"]) for each in span.events] == [
        ("denied", "no-secrets"),
        ("failed", "broken"),
        ("matched", "no-secrets"),
        ("matched", "other"),
    ]
    assert SECRET not in span.to_json()


async def test_the_span_of_a_huge_decision_is_bounded():
    matched = tuple(f"{number}-{'x' * 10_000}" for number in range(10_000))
    with recorded() as (tracer, spans):
        await answering(tracer, Decision(matched=matched))
        (span,) = spans()

    assert len(span.events) == MOST_EVENTS
    assert len(span.to_json()) < 64_000


async def test_what_is_no_review_has_a_span_with_the_kind_of_error_alone():
    with recorded() as (tracer, spans):
        with pytest.raises(ReviewError):
            await answering(tracer, Decision(), body={"kind": SECRET})
        (span,) = spans()

    assert span.attributes["error.type"] == "ReviewError"
    assert SECRET not in span.to_json()


async def test_a_cycle_that_decides_has_a_span_with_its_decisions():
    world = World()
    world.furnish()
    async with running(world):
        with recorded() as (tracer, spans):
            world.controller.workloads.cycles.trace = cycle_spans(tracer, world.clock)
            world.job("train")
            await world.pass_time(2)
            (span,) = spans()

    assert span.name == "cycle"
    assert span.attributes["policyd.cycle.admit"] == 1
    assert span.start_time <= span.end_time
    (event,) = span.events
    assert event.name == "admit"
    assert event.attributes["cluster_queue"] == "cq"
    assert event.attributes["workload"].startswith("ns/")


@contextmanager
def collector(answer):
    """Run an HTTP server that handles each POST by a function; give its address and its bodies."""
    bodies = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            answer(self)

        def log_message(self, *_given):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1/traces", bodies
        finally:
            server.shutdown()


def respond(code, **headers):
    def answer(handler):
        handler.send_response(code)
        for name, text in headers.items():
            handler.send_header(name, text)
        handler.send_header("content-length", "0")
        handler.end_headers()

    return answer


def test_spans_reach_a_collector():
    lost = []
    with collector(respond(200)) as (address, bodies):
        with tracing(
            address, service="webhooks", dropped=lambda *each: lost.append(each)
        ) as tracer:
            tracer.start_span("one").end()
        deadline = time.monotonic() + 10
        while not bodies and time.monotonic() < deadline:
            time.sleep(0.05)

    assert any(b"webhooks" in body and b"one" in body for body in bodies)
    assert lost == []


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(respond(400), id="refuses"),
        pytest.param(respond(404), id="knows-no-traces"),
        pytest.param(lambda handler: handler.wfile.write(b"\0\1\2 no HTTP\r\n"), id="no-http"),
        pytest.param(lambda handler: handler.connection.close(), id="hangs-up"),
    ],
)
def test_spans_that_a_collector_does_not_take_are_counted(answer):
    lost = []
    with (
        collector(answer) as (address, bodies),
        tracing(address, service="w", dropped=lambda *each: lost.append(each)) as tracer,
    ):
        tracer.start_span("one").end()
        deadline = time.monotonic() + 15
        while not lost and time.monotonic() < deadline:
            time.sleep(0.05)

    assert bodies
    assert lost == [("not_exported", 1)]


def test_spans_go_nowhere_else_than_to_the_collector():
    lost = []
    with (
        collector(respond(200)) as (other, elsewhere),
        collector(respond(307, location=other)) as (address, _bodies),
        tracing(address, service="w", dropped=lambda *each: lost.append(each)) as tracer,
    ):
        tracer.start_span("one").end()
        deadline = time.monotonic() + 15
        while not lost and time.monotonic() < deadline:
            time.sleep(0.05)

    assert lost == [("not_exported", 1)]
    assert elsewhere == []


def test_a_collector_that_hangs_delays_nothing():
    lost, many = [], 4 * MOST_WAITING
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces"
        with tracing(address, service="w", dropped=lambda *each: lost.append(each)) as tracer:
            slowest = 0.0
            for _ in range(many):
                began = time.thread_time()
                tracer.start_span("one").end()
                slowest = max(slowest, time.thread_time() - began)
            closing = time.monotonic()
        closed = time.monotonic() - closing
        full = sum(number for reason, number in lost if reason == "queue_full")

    assert slowest < 0.1
    assert full >= many - 2 * MOST_WAITING
    assert closed < CLOSE_SECONDS + 1


@pytest.mark.parametrize("address", ["collector:4318", "ftp://collector", "http://", "/v1/traces"])
def test_an_address_that_is_no_url_is_an_error_with_a_hint(address):
    with (
        pytest.raises(ConfigurationError, match="is not the URL of a collector") as caught,
        tracing(address, service="w", dropped=lambda *_: None),
    ):
        pass

    assert "http://collector:4318/v1/traces" in caught.value.hint


def test_without_the_extra_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)

    with (
        pytest.raises(ConfigurationError, match=r"pip install 'policyd\[tracing\]'"),
        tracing("http://collector:4318", service="w", dropped=lambda *_: None),
    ):
        pass


def test_nothing_of_opentelemetry_is_imported_unless_traces_are_on():
    program = (
        "import sys, webhooks.__main__, policyd.cli.controller\n"
        "from policyd.tracing import tracing\n"
        "with tracing('', service='w', dropped=print) as tracer: assert tracer is None\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"
