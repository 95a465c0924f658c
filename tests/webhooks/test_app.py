"""The application: what is a call, what is answered when it is none, and that it goes on."""

import json

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from starlette.testclient import TestClient

from policyd.api.admission import MAXIMUM_REVIEW_BYTES, ReviewError
from webhooks.app import DEFAULT_TIMEOUT_SECONDS, create_app, timeout_seconds
from webhooks.health import Readiness
from webhooks.metrics import DoorMetrics

JSON = {"content-type": "application/json"}


async def echo(body: bytes, _out_of_time) -> bytes:
    msgspec.json.decode(body)
    return body


def client_for(answer=echo, *, readiness=None, clock=None):
    app = create_app(
        {"/mutate": answer, "/validate": answer},
        readiness=readiness or Readiness(),
        metrics=DoorMetrics(CollectorRegistry()),
        clock=clock,
    )
    return TestClient(app)


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
def test_a_posted_review_gets_its_answer(path):
    response = client_for().post(path, content=b'{"a": 1}', headers=JSON)

    assert (response.status_code, response.content) == (200, b'{"a": 1}')
    assert response.headers["content-type"] == "application/json"


def test_a_content_type_may_have_parameters_and_capitals():
    headers = {"content-type": "Application/JSON; charset=utf-8"}

    assert client_for().post("/mutate", content=b"{}", headers=headers).status_code == 200


def test_a_body_may_come_in_pieces():
    def pieces():
        yield b"[1, "
        yield b"2]"

    assert client_for().post("/validate", content=pieces(), headers=JSON).content == b"[1, 2]"


def call(method="POST", url="/mutate", content=b"{}", headers=JSON):
    return {"method": method, "url": url, "content": content, "headers": headers}


@pytest.mark.parametrize(
    ("given", "code", "sentence"),
    [
        pytest.param(call("GET"), 405, "`GET` is not answered here, only `POST`", id="not-a-post"),
        pytest.param(
            call(headers={"content-type": "text/plain"}),
            415,
            "`text/plain` is not a content type that is understood, only `application/json`",
            id="not-json",
        ),
        pytest.param(
            call(headers={}),
            415,
            "`` is not a content type that is understood, only `application/json`",
            id="no-content-type",
        ),
        pytest.param(
            call(url="/validate", content=b" " * (MAXIMUM_REVIEW_BYTES + 1)),
            413,
            f"the review has more than {MAXIMUM_REVIEW_BYTES} bytes",
            id="too-large",
        ),
    ],
)
def test_what_is_no_call_is_refused_in_one_sentence(given, code, sentence):
    client = client_for()

    response = client.request(**given)

    status = response.json()
    assert (response.status_code, status["code"], status["message"]) == (code, code, sentence)
    assert status["kind"] == "Status"
    assert client.post("/mutate", content=b"{}", headers=JSON).status_code == 200


def test_a_body_of_exactly_the_limit_is_read():
    body = b'"' + b"x" * (MAXIMUM_REVIEW_BYTES - 2) + b'"'

    assert client_for().post("/mutate", content=body, headers=JSON).status_code == 200


def test_what_is_no_review_is_refused_with_the_reason():
    async def refuse(_body, _out_of_time):
        raise ReviewError("not an AdmissionReview: no uid")

    response = client_for(refuse).post("/mutate", content=b"{}", headers=JSON)

    assert response.status_code == 400
    assert response.json()["message"] == "not an AdmissionReview: no uid"


def test_an_object_too_deep_to_work_on_is_refused():
    def descend(body):
        return descend(body)

    async def answer(body, _out_of_time):
        return descend(body)

    response = client_for(answer).post("/mutate", content=b"{}", headers=JSON)

    assert response.status_code == 400
    assert response.json()["message"] == "the object is nested too deep"


def test_a_bug_is_a_500_with_a_reason_and_counted_and_the_next_review_is_answered(capsys):
    async def fail_once(body, _out_of_time):
        if body == b"bad":
            raise KeyError("spec")
        return body

    client = client_for(fail_once)

    response = client.post("/validate", content=b"bad", headers=JSON)

    assert response.status_code == 500
    assert response.json()["message"] == "policyd could not decide: KeyError: 'spec'"
    assert "Traceback" not in response.text
    assert client.post("/validate", content=b"{}", headers=JSON).status_code == 200
    figures = client.get("/metrics").text
    assert 'policyd_reviews_total{outcome="failed",path="/validate"} 1.0' in figures
    assert 'policyd_review_duration_seconds_count{path="/validate"} 1.0' in figures


def test_it_lives_whatever_happens_and_is_ready_when_nothing_speaks_against_it():
    readiness = Readiness("policies are being read", "namespaces are being read")
    client = client_for(readiness=readiness)

    assert client.get("/livez").text == "ok\n"
    unready = client.get("/readyz")
    assert (unready.status_code, unready.text) == (
        503,
        "policies are being read\nnamespaces are being read\n",
    )

    readiness.unblock("policies are being read")
    readiness.unblock("namespaces are being read")
    assert client.get("/readyz").status_code == 200

    readiness.block("shutting down")
    assert client.get("/readyz").status_code == 503


def test_other_paths_are_not_found():
    assert client_for().post("/", content=b"{}", headers=JSON).status_code == 404


@pytest.mark.parametrize(
    ("took", "late"),
    [pytest.param(2.3, 0.0, id="in-time"), pytest.param(2.5, 1.0, id="perhaps-too-late")],
)
def test_an_answer_that_may_have_come_too_late_is_counted(took, late):
    clock = FakeClock()

    async def answer(body, _out_of_time):
        clock.elapse(took)
        return body

    client = client_for(answer, clock=clock)

    client.post("/mutate?timeout=3s", content=b"{}", headers=JSON)

    assert f'policyd_late_reviews_total{{path="/mutate"}} {late}' in client.get("/metrics").text


@pytest.mark.parametrize(
    ("query", "seconds", "left"),
    [
        pytest.param("?timeout=10s", 7.9, True, id="within-four-fifths-of-the-patience"),
        pytest.param("?timeout=10s", 8.1, False, id="beyond-them"),
        pytest.param("?timeout=2s", 1.7, False, id="with-less-patience"),
    ],
)
def test_deciding_is_told_when_the_caller_is_about_to_stop_waiting(query, seconds, left):
    clock, seen = FakeClock(), []

    async def answer(body, out_of_time):
        clock.elapse(seconds)
        seen.append(not out_of_time())
        return body

    client_for(answer, clock=clock).post(f"/mutate{query}", content=b"{}", headers=JSON)

    assert seen == [left]


class FakeClock:
    """A clock that goes on when it is told to."""

    def __init__(self):
        self._monotonic = 0.0

    def now(self):
        return 1_800_000_000.0

    def monotonic(self):
        return self._monotonic

    def elapse(self, seconds):
        self._monotonic += seconds


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        pytest.param(b"timeout=10s", 10.0, id="as-the-api-server-writes-it"),
        pytest.param(b"a=b&timeout=7s", 7.0, id="among-others"),
        pytest.param(b"", DEFAULT_TIMEOUT_SECONDS, id="missing"),
        pytest.param(b"timeout=soon", DEFAULT_TIMEOUT_SECONDS, id="no-number"),
        pytest.param(b"timeout=s", DEFAULT_TIMEOUT_SECONDS, id="no-digits"),
        pytest.param(b"timeout=%31s", DEFAULT_TIMEOUT_SECONDS, id="escaped"),
    ],
)
def test_a_timeout_that_is_not_understood_is_the_default(query, seconds):
    assert timeout_seconds(query) == seconds


def test_metric_names_begin_with_the_project():
    figures = client_for().get("/metrics").text

    names = {line.split()[2] for line in figures.splitlines() if line.startswith("# TYPE")}
    assert names
    assert all(name.startswith("policyd_") for name in names)


def test_a_status_is_json_that_clients_can_read():
    response = client_for().post("/mutate", content=b"x", headers={"content-type": "x"})

    assert json.loads(response.content)["reason"] == "UnsupportedMediaType"
