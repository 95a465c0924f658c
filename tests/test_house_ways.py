"""An object passes no more files and calls on its way than it has to."""

import ast
import asyncio
import re

import pytest

from tests.house import ROOT
from tests.house_loops import STEPS, figures, job_way, workload_way
from tests.house_ways import review_way

MOST_FILES = 53
MOST_CALLS = 1_200
"""What the way of a review comes to; more calls are over the target. What each policy did is
counted in a file of its own, with six calls."""

MOST_LINES = 60
"""How long the explanation of a way may be, in one module."""

EXPLAINED = [
    ("policyd/admission/handler.py", ("answer", "mutate", "validate")),
    (STEPS["workload"], ("changed", "run", "reconcile", "_carry_out")),
    (STEPS["job"], ("changed", "reconcile", "_take")),
]
"""The functions that have the numbered steps of each way."""

MOST = {
    workload_way: (12, 66, 95, 2_350),
    job_way: (8, 36, 117, 3_200),
}
"""What the ways of a Workload and a Job came to: files that they lead through, that their steps
enter, that the controller passes, and its calls, with room for versions of Python. Forecasts learn
from what passes, in one file beside the ways, and in one that corrects them. GPU-hours are recorded
beside the ways, too, and the series of metrics are bounded: three files more for each. Whether pods
request a part of a GPU is looked at in one file. Which pods have ended, and whether any of them
share a claim, takes some calls; so does whether quota is still held for an admission, before and
after its write. The rule of priority classes, which what-ifs share, has a file of its own."""


def test_a_review_does_not_travel_further_than_it_did():
    calls = asyncio.run(review_way())

    assert len(calls) <= MOST_FILES, sorted(calls)
    assert calls.total() <= MOST_CALLS, calls.most_common(20)
    assert "policyd/admission/handler.py" in calls


@pytest.mark.parametrize("way", MOST)
def test_the_controller_goes_no_further_for_an_object_than_it_did(way):
    found = asyncio.run(way())

    beyond = [
        f"{what}: {now}, at most {most}"
        for (what, now), most in zip(figures(found).items(), MOST[way], strict=True)
        if now > most
    ]
    assert not beyond, sorted(found.through)


@pytest.mark.parametrize(("path", "functions"), EXPLAINED)
def test_a_way_is_explained_by_numbered_steps_in_few_lines(path, functions):
    text = (ROOT / path).read_text()
    nodes = {
        node.name: node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in functions
    }
    lines = [
        line
        for name in functions
        for line in text.splitlines()[nodes[name].lineno - 1 : nodes[name].end_lineno]
    ]
    steps = [int(number) for line in lines for number in re.findall(r"# (\d)\. ", line)]

    assert len(lines) <= MOST_LINES
    assert sorted(set(steps)) == [1, 2, 3, 4, 5, 6]
    if path in STEPS.values():
        assert steps == [1, 2, 3, 4, 5, 6]
