"""The application: what is a call, what is answered when it is none, and that it goes on."""

import asyncio
import json

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from starlette.testclient import TestClient

from policyd.api import causes
from policyd.api.admission import MAXIMUM_REVIEW_BYTES, ReviewError
from policyd.health import create_health_app
from tests.webhooks.conftest import figures as told_by
from webhooks import app, bodies
from webhooks.app import create_app
from webhooks.bodies import LIGHT_BYTES, LIGHT_ROOM, NO_ROOM
from webhooks.deadlines import DEFAULT_TIMEOUT_SECONDS, TooLateError, timeout_seconds
from webhooks.metrics import WebhookMetrics
from webhooks.shared import Readiness

JSON = {"content-type": "application/json"}


async def echo(body: bytes, _out_of_time) -> bytes:
    msgspec.json.decode(body)
    return body


def client_for(answer=echo, *, clock=None, unjudged=None):
    metrics = WebhookMetrics(CollectorRegistry())
    answers = {"/mutate": answer, "/validate": answer}
    client = TestClient(
        create_app(answers, metrics=metrics, clock=clock, unevaluated=unjudged or {})
    )
    client.registry = metrics.registry
    return client


def metrics_of(client):
    return told_by(client.registry)


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


UID = b'{"kind": "AdmissionReview", "request": {"uid": "u-1", "object": "'


class Sent:
    """A call whose body comes in pieces, as a server passes it on."""

    def __init__(self, client, body, *, length=True, size=65_536, query=b""):
        given = [(b"content-type", b"application/json")]
        given += [(b"content-length", b"%d" % len(body))] if length else []
        self.scope = {"type": "http", "method": "POST", "path": "/validate", "headers": given}
        self.scope["query_string"] = query
        self.pieces = [body[at : at + size] for at in range(0, len(body), size)]
        self.client, self.messages = client, []

    async def receive(self):
        if not self.pieces:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": self.pieces.pop(0), "more_body": bool(self.pieces)}

    async def send(self, message):
        self.messages.append(message)

    def answered(self):
        """Return status and body."""
        asyncio.run(self.client.app(self.scope, self.receive, self.send))
        first, *rest = self.messages
        return first["status"], b"".join(message["body"] for message in rest)

    def verdict(self):
        """Return the answer of a review."""
        status, body = self.answered()
        assert status == 200
        return json.loads(body)["response"]


def test_a_review_of_the_largest_size_is_judged():
    body = UID + b"x" * (MAXIMUM_REVIEW_BYTES - len(UID) - 3) + b'"}}'
    seen = []

    async def answer(body, _out_of_time):
        seen.append(len(body))
        return b"{}"

    client = client_for(answer)

    assert Sent(client, body).answered() == (200, b"{}")
    assert seen == [MAXIMUM_REVIEW_BYTES]
    assert client.app.endpoints[b"/validate"].room.taken == 0


async def nothing(_body, _out_of_time):
    raise AssertionError("it is not judged")


TOO_LARGE = UID.ljust(MAXIMUM_REVIEW_BYTES + 1)
UNREAD = [
    pytest.param(
        TOO_LARGE, True, f"the review has more than {MAXIMUM_REVIEW_BYTES} bytes", id="too-large"
    ),
    pytest.param(
        UID.ljust(LIGHT_BYTES + 1),
        False,
        f"the review has more than {LIGHT_BYTES} bytes, and no Content-Length",
        id="large-and-of-no-length",
    ),
]


@pytest.mark.parametrize(("body", "length", "reason"), UNREAD)
def test_a_review_that_is_not_read_is_refused_by_a_verdict(body, length, reason):
    client = client_for(nothing)
    sent = Sent(client, body, length=length)

    verdict = sent.verdict()

    assert (verdict["uid"], verdict["allowed"]) == ("u-1", False)
    assert reason in verdict["status"]["message"]
    assert 'policyd_reviews_total{outcome="unjudged",path="/validate"} 1.0' in metrics_of(client)
    assert client.app.endpoints[b"/validate"].room.taken == 0


def test_an_oversized_review_is_answered_by_its_beginning():
    sent = Sent(client_for(nothing), TOO_LARGE)
    sent.answered()

    assert len(sent.pieces) > 500


@pytest.mark.parametrize("size", [1000, 200_000], ids=["light", "within-a-large-one"])
def test_a_review_that_does_not_come_in_is_refused_by_a_verdict(monkeypatch, size):
    monkeypatch.setattr(bodies, "LATE", 0.001)
    sent = Sent(client_for(nothing), UID.ljust(5_000_000), size=size)
    del sent.pieces[2:]
    sent.pieces.append(b"")
    sent.receive = stopping(sent)

    verdict = sent.verdict()

    assert verdict["allowed"] is False
    assert "did not come in within 0.01 s" in verdict["status"]["message"]


def stopping(sent):
    """Receive what is there, and nothing more."""

    async def receive():
        if len(sent.pieces) == 1:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": sent.pieces.pop(0), "more_body": True}

    return receive


def test_a_review_that_finds_no_room_is_refused_by_a_verdict_and_not_judged_in_part():
    client = client_for(nothing)
    client.app.endpoints[b"/validate"].room.took(LIGHT_ROOM)

    verdict = Sent(client, UID.ljust(200_000), size=1000).verdict()

    assert verdict["allowed"] is False
    assert NO_ROOM in verdict["status"]["message"]


def test_a_caller_that_is_gone_leaves_no_room_taken():
    client = client_for(nothing)
    sent = Sent(client, UID.ljust(5_000_000))
    given = iter([{"type": "http.request", "body": UID.ljust(100_000), "more_body": True}])

    async def receive():
        return next(given, {"type": "http.disconnect"})

    asyncio.run(client.app(sent.scope, receive, sent.send))

    assert sent.messages == []
    assert client.app.endpoints[b"/validate"].room.taken == 0


@pytest.mark.parametrize(
    ("error", "reason", "cause"),
    [
        pytest.param(
            ReviewError("nested too deep", causes.TOO_DEEP),
            "nested too deep",
            causes.TOO_DEEP,
            id="no-review",
        ),
        pytest.param(
            RecursionError(), "the object is nested too deep", causes.TOO_DEEP, id="recursion"
        ),
        pytest.param(TooLateError(), "there was no time left", causes.OUT_OF_TIME, id="late"),
        pytest.param(
            ValueError("a bug"),
            "policyd could not decide: ValueError: a bug",
            causes.DEFECT,
            id="defect",
        ),
    ],
)
def test_the_handler_of_unevaluated_reviews_gets_the_beginning_and_the_reason(error, reason, cause):
    reported = []

    def unjudged(*given):
        reported.append(given)
        return b'"unjudged"'

    async def fail(_body, _out_of_time):
        raise error

    client = client_for(fail, unjudged={"/mutate": unjudged})

    answer = client.post("/mutate", content=UID, headers=JSON)

    assert (answer.status_code, answer.content) == (200, b'"unjudged"')
    assert reported == [(UID, reason, cause)]


def test_an_oversized_review_without_a_uid_is_reported():
    status, body = Sent(client_for(nothing), b" " * (MAXIMUM_REVIEW_BYTES + 1)).answered()

    assert (status, json.loads(body)["reason"]) == (413, "RequestEntityTooLarge")


def test_a_bug_is_no_yes():
    async def broken(_body, _out_of_time):
        raise KeyError("spec")

    client = client_for(broken)

    verdict = client.post("/validate", content=UID, headers=JSON).json()["response"]

    assert verdict["allowed"] is False
    assert "KeyError: 'spec'" in verdict["status"]["message"]
    assert 'policyd_reviews_total{outcome="failed",path="/validate"} 1.0' in metrics_of(client)


def test_an_answer_that_waits_for_too_long_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(app, "LATE", 0.001)
    monkeypatch.setattr(app, "SPARE_SECONDS", 0.001)

    async def waiting(_body, _out_of_time):
        await asyncio.Event().wait()

    verdict = client_for(waiting).post("/validate", content=UID, headers=JSON).json()["response"]

    assert verdict["allowed"] is False
    assert "there was no time left" in verdict["status"]["message"]


def test_a_timeout_that_is_not_ours_is_a_bug_like_others():
    async def broken(_body, _out_of_time):
        raise TimeoutError("elsewhere")

    answer = client_for(broken).post("/validate", content=b"{}", headers=JSON)

    assert answer.status_code == 500
    assert "TimeoutError" in answer.json()["message"]


def test_a_long_answer_comes_whole():
    async def long(_body, _out_of_time):
        return b"x" * 1_000_000

    assert len(client_for(long).post("/mutate", content=b"{}", headers=JSON).content) == 1_000_000


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
    ],
)
def test_an_invalid_call_is_refused_in_one_sentence(given, code, sentence):
    client = client_for()

    response = client.request(**given)

    status = response.json()
    assert (response.status_code, status["code"], status["message"]) == (code, code, sentence)
    assert status["kind"] == "Status"
    assert client.post("/mutate", content=b"{}", headers=JSON).status_code == 200


def test_an_invalid_review_is_refused_with_the_reason():
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
    figures = metrics_of(client)
    assert 'policyd_reviews_total{outcome="failed",path="/validate"} 1.0' in figures
    assert 'policyd_review_duration_seconds_count{path="/validate"} 1.0' in figures


def test_it_lives_whatever_happens_and_is_ready_when_nothing_speaks_against_it():
    readiness = Readiness("policies are being read", "namespaces are being read")
    client = TestClient(create_health_app(CollectorRegistry(), lambda: readiness.reasons))

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


@pytest.mark.parametrize("path", ["/", "/metrics", "/readyz", "/livez", "/mutate/", "//mutate"])
def test_reviews_alone_are_answered(path):
    assert client_for().post(path, content=b"{}", headers=JSON).status_code == 404
    assert client_for().get(path).status_code == 404


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

    assert f'policyd_late_reviews_total{{path="/mutate"}} {late}' in metrics_of(client)


@pytest.mark.parametrize(
    ("query", "seconds", "left"),
    [
        pytest.param("?timeout=10s", 7.9, True, id="within-four-fifths-of-the-patience"),
        pytest.param("?timeout=10s", 8.1, False, id="beyond-them"),
        pytest.param("?timeout=2s", 1.7, False, id="with-less-patience"),
    ],
)
def test_deciding_knows_when_the_caller_is_about_to_stop_waiting(query, seconds, left):
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
        pytest.param(b"timeout=999s", 30.0, id="longer-than-a-webhook-may-take"),
        pytest.param(b"", DEFAULT_TIMEOUT_SECONDS, id="missing"),
        pytest.param(b"timeout=soon", DEFAULT_TIMEOUT_SECONDS, id="no-number"),
        pytest.param(b"timeout=s", DEFAULT_TIMEOUT_SECONDS, id="no-digits"),
        pytest.param(b"timeout=%31s", DEFAULT_TIMEOUT_SECONDS, id="escaped"),
    ],
)
def test_a_timeout_that_is_not_understood_is_the_default(query, seconds):
    assert timeout_seconds(query) == seconds


def test_metric_names_begin_with_the_project():
    figures = metrics_of(client_for())

    names = {line.split()[2] for line in figures.splitlines() if line.startswith("# TYPE")}
    assert names
    assert all(name.startswith("policyd_") for name in names)


def test_a_status_is_json_that_clients_can_read():
    response = client_for().post("/mutate", content=b"x", headers={"content-type": "x"})

    assert json.loads(response.content)["reason"] == "UnsupportedMediaType"
