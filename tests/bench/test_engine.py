"""What policies cost that do not concern a request, and how long a thousand cases take."""

import json
import os
import statistics
import subprocess
import sys
import time

import pytest

from policyd.api.admission import parse_review
from policyd.engine.compile.load import load_document
from policyd.engine.documents.reading import Document
from policyd.engine.evaluate.policy_set import PolicySet
from tests.bench.report import report
from tests.bench.reviewed import injecting_policies, pod, policies, request

pytestmark = pytest.mark.bench

POLICIES, REVIEWS, ROUNDS, CASES = 500, 5, 9, 1000

NAMESPACE = {"metadata": {"name": "team-a", "labels": {"tier": "research"}}}
OTHERS = {"namespaceSelector": {"matchLabels": {"tier": "production"}}}
AUDIO = {"objectSelector": {"matchLabels": {"team": "audio"}}}
DELETED = [{"name": "deleted", "expression": "request.operation == 'DELETE'"}]


def microseconds(decide, body):
    """Return the CPU time of a review, the median of rounds."""
    times = []
    for _ in range(ROUNDS):
        started = time.thread_time_ns()
        for _ in range(REVIEWS):
            decide(parse_review(body))
        times.append((time.thread_time_ns() - started) / REVIEWS / 1e3)
    return statistics.median(times)


@pytest.mark.parametrize(
    ("by", "constraints", "conditions"),
    [
        pytest.param("its namespace's label", OTHERS, [], id="namespace"),
        pytest.param("its label", AUDIO, [], id="label"),
        pytest.param("a condition", {}, DELETED, id="condition"),
    ],
)
@pytest.mark.parametrize("verb", ["mutate", "validate"])
def test_policies_that_do_not_match(verb, by, constraints, conditions):
    given = policies if verb == "validate" else injecting_policies
    loaded = []
    for policy in given("pods", POLICIES):
        policy["spec"]["matchConstraints"] |= constraints
        policy["spec"]["matchConditions"] = conditions
        loaded += load_document(Document(policy, "bench")).policies
    one, all_of_them = (
        PolicySet(some, namespaces=lambda _name: NAMESPACE) for some in (loaded[:1], loaded)
    )
    body = request(f"/{verb}").partition(b"\r\n\r\n")[2]

    first = microseconds(getattr(one, verb), body)
    spent = microseconds(getattr(all_of_them, verb), body) - first

    report(f"engine, {verb}, a policy left out by {by}", spent / (POLICIES - 1), "µs", 3)


def test_a_thousand_cases(tmp_path):
    several = list(policies("pods"))
    (tmp_path / "policy.yaml").write_text("\n---\n".join(map(json.dumps, several)))
    cases = [
        {"name": f"pod {n}", "object": pod(1_000), "expect": {"allowed": True}}
        for n in range(CASES)
    ]
    (tmp_path / "cases.yaml").write_text(json.dumps({"cases": cases}))
    command = [sys.executable, "-m", "policyd", "test", str(tmp_path)]

    before = os.times()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = os.times()

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    spent = (after.children_user + after.children_system) - (
        before.children_user + before.children_system
    )
    report(f"policyd test, {CASES:,} cases of 20 policies, CPU", spent, "s", 5)
