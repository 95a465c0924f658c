"""What counting by policy adds to a review: both timed in turn, in the same thread.

The review is the decision alone, without TLS, HTTP and JSON of the answer: the part that counting
has of a whole review is smaller.
"""

import statistics
import time

import pytest
from prometheus_client import CollectorRegistry

from policyd.api.admission import parse_review
from policyd.engine.compile.load import load_document
from policyd.engine.documents.reading import Document
from policyd.engine.evaluate.policy_set import PolicySet
from tests.bench.report import report
from tests.bench.reviewed import injecting_policies, policies, request
from webhooks.metrics import WebhookMetrics

pytestmark = pytest.mark.bench

ROUNDS, REVIEWS = 41, 20
PERCENT = 5
NAMESPACE = {"metadata": {"name": "team-a", "labels": {"tier": "research"}}}


def seconds(work, times):
    began = time.thread_time_ns()
    for _ in range(times):
        work()
    return (time.thread_time_ns() - began) / times / 1e9


@pytest.mark.parametrize("number", [1, 20, 100])
@pytest.mark.parametrize("phase", ["mutate", "validate"])
def test_the_cost_of_counting_by_policy(phase, number):
    given = policies if phase == "validate" else injecting_policies
    loaded = [
        each
        for policy in given("pods", number)
        for each in load_document(Document(policy, "bench")).policies
    ]
    decide = getattr(PolicySet(loaded, namespaces=lambda _name: NAMESPACE), phase)
    body = request(f"/{phase}").partition(b"\r\n\r\n")[2]
    results = WebhookMetrics(CollectorRegistry()).results
    decision = decide(parse_review(body))
    assert len(decision.matched) == number

    reviewing, counting = [], []
    for _ in range(ROUNDS):
        reviewing.append(seconds(lambda: decide(parse_review(body)), REVIEWS))
        counting.append(seconds(lambda: results.take(phase, decision), 10 * REVIEWS))
    began = time.thread_time_ns()
    list(results.collect())
    scrape = (time.thread_time_ns() - began) / 1e6

    review, count = statistics.median(reviewing) * 1e6, statistics.median(counting) * 1e6
    ratios = [100 * c / r for c, r in zip(counting, reviewing, strict=True)]
    report(f"{phase}, policies that match: {number}, the decision", review, "µs")
    report("... counting it by policy", count, "µs")
    report("... the part of it", statistics.median(ratios), "%", PERCENT)
    report("... taken apart for a scrape", scrape, "ms")
